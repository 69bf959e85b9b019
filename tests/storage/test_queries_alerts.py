"""Alerts, and the queue of deliveries that they are sent from."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update
from store_examples import fresh_run, in_four_threads, reads, writes

from storage import queries
from storage.errors import AlreadyAcknowledged, NotThere
from storage.models import Deliveries
from storage.queries.tables import table_of
from storage.rows import AlertRow, DeliveryRow
from storage.session import Store

TARGET, DAY = "example.org#12345678", timedelta(days=1)
DELAYS = [timedelta(seconds=30), timedelta(seconds=60)]


def alert(run: str, number: int, age: timedelta = timedelta(), **more: object) -> AlertRow:
    raised = datetime.now(UTC) - age + timedelta(milliseconds=number)
    base = AlertRow(
        *(f"{number:016x}", run, 1, "sudden", "label_accuracy", "kept", "exact", "warning"),
        *(0.7, 0.6, 0.8, 400, 0.8, 0.75, "it fell", raised),
    )
    return replace(base, **more)


def claim(store: Store, max_attempts: int = 3) -> tuple[AlertRow, DeliveryRow] | None:
    return writes(store).alerts.claim_delivery(TARGET, max_attempts=max_attempts, lookback=DAY, delays=DELAYS)


def is_delivery_due(store: Store, max_attempts: int = 3) -> bool:
    return reads(store).alerts.delivery_due(TARGET, max_attempts=max_attempts, lookback=DAY)


def add_alerts(store: Store, *alerts: AlertRow) -> None:
    writes(store).alerts.add_alerts(alerts)


def make_next_attempts_due(store: Store) -> None:
    """Set the time of every next attempt to a second ago."""
    with store.write() as session:
        session.execute(update(table_of(Deliveries)).values(next_at=datetime.now(UTC) - timedelta(seconds=1)))


def test_an_alert_is_raised_once_and_listed_newest_first(store: Store) -> None:
    run, other = fresh_run(store), fresh_run(store)
    same = datetime.now(UTC)
    rows = [alert(run, i, raised_at=same) for i in range(3)]
    add_alerts(store, *rows, alert(other, 9, severity="critical", iteration=2))
    add_alerts(store, replace(rows[0], text="again"))
    with store.read() as session:
        assert queries.alerts.list_alerts(session, run=run) == rows[::-1]
        assert queries.alerts.list_alerts(session, run=run, after=rows[2], limit=1) == [rows[1]]
        assert [row.run for row in queries.alerts.list_alerts(session, severity="critical")] == [other]
        assert [row.run for row in queries.alerts.list_alerts(session, iteration=2)] == [other]
        assert queries.alerts.get_alert(session, rows[0].id) == rows[0]
        with pytest.raises(NotThere, match="alert 'x': "):
            queries.alerts.get_alert(session, "x")


def test_an_alert_can_be_acknowledged_only_once(store: Store, run: str) -> None:
    add_alerts(store, alert(run, 1), alert(run, 2))
    alert_row = writes(store).alerts.acknowledge(alert(run, 1).id, "ann", "restarted")
    assert (alert_row.acknowledged_by, alert_row.note) == ("ann", "restarted")
    assert alert_row.acknowledged_at is not None
    with store.write() as session, pytest.raises(AlreadyAcknowledged, match="ann"):
        queries.alerts.acknowledge(session, alert_row.id, "bob")
    with store.write() as session, pytest.raises(NotThere):
        queries.alerts.acknowledge(session, "x", "bob")
    assert reads(store).alerts.list_alerts(run=run, acknowledged=True) == [alert_row]
    assert [row.id for row in reads(store).alerts.list_alerts(run=run, acknowledged=False)] == [alert(run, 2).id]


def test_a_delivery_is_claimed_then_delivered_or_retried_later(store: Store, run: str) -> None:
    assert (is_delivery_due(store), claim(store)) == (False, None)
    add_alerts(store, alert(run, 1), alert(run, 2))
    assert is_delivery_due(store)
    before = datetime.now(UTC)
    first, delivery = claim(store)
    assert before <= delivery.next_at - DELAYS[0] <= datetime.now(UTC)
    assert (first.id, delivery.attempts, delivery.delivered_at) == (alert(run, 1).id, 1, None)
    second, _ = claim(store)
    assert second.id == alert(run, 2).id
    assert (is_delivery_due(store), claim(store)) == (False, None)
    writes(store).alerts.mark_delivered(first.id, TARGET)
    writes(store).alerts.mark_failed(second.id, TARGET, "HTTP 500")
    make_next_attempts_due(store)
    before = datetime.now(UTC)
    retried, delivery = claim(store)
    assert before <= delivery.next_at - DELAYS[1] <= datetime.now(UTC)
    assert (retried.id, delivery.attempts, delivery.error) == (second.id, 2, "HTTP 500")
    [delivered] = reads(store).alerts.deliveries_of(first.id)
    assert (delivered.error, delivered.delivered_at is not None) == (None, True)


def test_a_delivery_is_not_attempted_more_often_than_the_maximum(store: Store) -> None:
    add_alerts(store, alert(fresh_run(store), 1))
    for attempt in (1, 2, 3):
        assert claim(store)[1].attempts == attempt
        make_next_attempts_due(store)
    assert (is_delivery_due(store), claim(store)) == (False, None)


def test_a_new_target_gets_no_alert_from_before_the_lookback(store: Store, run: str) -> None:
    add_alerts(store, alert(run, 1, age=timedelta(days=2)))
    assert (is_delivery_due(store), claim(store)) == (False, None)
    add_alerts(store, alert(run, 2, age=timedelta(hours=23)))
    assert claim(store)[0].id == alert(run, 2).id
    # The target is known from now on, so an alert raised while nothing delivers is still delivered later.
    add_alerts(store, alert(run, 3, age=timedelta(hours=22)))
    assert claim(store)[0].id == alert(run, 3).id


def test_each_alert_is_claimed_by_exactly_one_of_several_threads(store: Store, run: str) -> None:
    add_alerts(store, *(alert(run, i) for i in range(6)))
    claimed: list[str] = []

    def work() -> None:
        while claimed_row := claim(store):
            claimed.append(claimed_row[0].id)

    in_four_threads(work)
    assert len(claimed) == len(set(claimed))
    # A thread that met a row locked by another stopped early, so some alerts may still be unclaimed.
    while claimed_row := claim(store):
        claimed.append(claimed_row[0].id)
    assert sorted(claimed) == [alert(run, i).id for i in range(6)]
