"""Alerts: raised once, acknowledged once, and on their way to whoever wants to know."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, exists, func, or_, select, tuple_, update
from sqlalchemy.orm import Session

from storage.errors import AlreadyAcknowledged, NotThere
from storage.models import Alerts, Deliveries
from storage.queries.tables import columns, database_time, insert_carriers, insert_new, table_of
from storage.rows import AlertRow, DeliveryRow, Severity


def add_alerts(session: Session, alerts: Iterable[AlertRow]) -> None:
    """Raise alerts; one that was raised before stays as it is."""
    insert_carriers(session, Alerts, alerts, AlertRow)


def list_alerts(
    session: Session,
    *,
    run: str | None = None,
    iteration: int | None = None,
    severity: Severity | None = None,
    acknowledged: bool | None = None,
    after: AlertRow | None = None,
    limit: int = 50,
) -> list[AlertRow]:
    """A page of alerts, the newest first; `after` is the last one of the page before."""
    statement = select(*columns(Alerts, AlertRow))
    for column, wanted in ((Alerts.run, run), (Alerts.iteration, iteration), (Alerts.severity, severity)):
        if wanted is not None:
            statement = statement.where(column == wanted)
    if acknowledged is not None:
        statement = statement.where(
            Alerts.acknowledged_at.is_not(None) if acknowledged else Alerts.acknowledged_at.is_(None)
        )
    if after is not None:
        statement = statement.where(tuple_(Alerts.raised_at, Alerts.id) < tuple_(after.raised_at, after.id))
    ordered = statement.order_by(Alerts.raised_at.desc(), Alerts.id.desc()).limit(limit)
    return [AlertRow(*row) for row in session.execute(ordered)]


def get_alert(session: Session, alert: str) -> AlertRow:
    """Raises `NotThere`."""
    row = session.execute(select(*columns(Alerts, AlertRow)).where(Alerts.id == alert)).one_or_none()
    if row is None:
        raise NotThere(f"alert {alert!r}: there is none of this id")
    return AlertRow(*row)


def acknowledge(session: Session, alert: str, by: str, note: str = "") -> AlertRow:
    """Say that somebody has seen to it. Raises `NotThere`, `AlreadyAcknowledged`."""
    known = [Alerts.id == alert, Alerts.acknowledged_at.is_(None)]
    values = {"acknowledged_at": database_time(session), "acknowledged_by": by, "note": note}
    changed = update(table_of(Alerts)).where(*known).values(values).returning(*columns(Alerts, AlertRow))
    row = session.execute(changed).one_or_none()
    if row is None:
        was = get_alert(session, alert)
        raise AlreadyAcknowledged(
            f"alert {alert}: {was.acknowledged_by} acknowledged it at {was.acknowledged_at:%Y-%m-%d %H:%M:%S} UTC"
        )
    return AlertRow(*row)


def deliveries_of(session: Session, alert: str) -> list[DeliveryRow]:
    """How an alert fares on its way to each target."""
    statement = select(*columns(Deliveries, DeliveryRow)).where(Deliveries.alert == alert)
    return [DeliveryRow(*row) for row in session.execute(statement.order_by(Deliveries.target))]


def delivery_due(session: Session, target: str, *, most: int, first_sight: timedelta) -> bool:
    """Whether `claim_delivery` would find something: a read, so that waiting for alerts locks nothing."""
    now = database_time(session)
    waiting = exists().where(*_due(target, most, now))
    return bool(session.scalar(select(or_(waiting, exists().where(*_unseen(session, target, now, first_sight))))))


def claim_delivery(
    session: Session, target: str, *, most: int, first_sight: timedelta, put_off: list[timedelta]
) -> tuple[AlertRow, DeliveryRow] | None:
    """Take an alert that waits to be sent to `target`, the oldest first; None where there is none.

    Its next attempt is put off in this very transaction, by `put_off[attempts so far]` or the last of them, so no other
    process sends it meanwhile, and one that dies has it sent again. `most` attempts are made. An alert that was raised
    longer than `first_sight` before the target was first seen is never sent there.
    """
    now = database_time(session)
    unseen = session.scalars(select(Alerts.id).where(*_unseen(session, target, now, first_sight))).all()
    fresh = {"target": target, "attempts": 0, "next_at": now, "delivered_at": None, "error": None}
    insert_new(session, Deliveries, [{"alert": alert, **fresh} for alert in unseen])
    waiting = select(*columns(Deliveries, DeliveryRow)).join(Alerts).where(*_due(target, most, now))
    oldest = waiting.order_by(Alerts.raised_at, Alerts.id).limit(1)
    row = session.execute(oldest.with_for_update(skip_locked=True, of=table_of(Deliveries))).one_or_none()
    if row is None:
        return None
    before = DeliveryRow(*row)
    later = now + put_off[min(before.attempts, len(put_off) - 1)]
    claimed = _change(session, before.alert, target, attempts=before.attempts + 1, next_at=later)
    return get_alert(session, before.alert), claimed


def mark_delivered(session: Session, alert: str, target: str) -> None:
    """It has arrived, and is not sent again."""
    _change(session, alert, target, delivered_at=database_time(session), error=None)


def mark_failed(session: Session, alert: str, target: str, error: str) -> None:
    """An attempt failed; the next one is when the claim said."""
    _change(session, alert, target, error=error)


def _change(session: Session, alert: str, target: str, **values: object) -> DeliveryRow:
    key = [Deliveries.alert == alert, Deliveries.target == target]
    changed = update(table_of(Deliveries)).where(*key).values(**values).returning(*columns(Deliveries, DeliveryRow))
    return DeliveryRow(*session.execute(changed).one())


def _due(target: str, most: int, now: datetime) -> list[ColumnElement[bool]]:
    mine = [Deliveries.target == target, Deliveries.delivered_at.is_(None)]
    return [*mine, Deliveries.attempts < most, Deliveries.next_at <= now]


def _unseen(session: Session, target: str, now: datetime, first_sight: timedelta) -> list[ColumnElement[bool]]:
    """Alerts without a row for the target, but for those from long before it was first seen: from before the first
    that it has a row for, or, where it has none, from `first_sight` ago."""
    first = session.scalar(
        select(func.min(Alerts.raised_at))
        .join(Deliveries, Deliveries.alert == Alerts.id)
        .where(Deliveries.target == target)
    )
    since = now - first_sight if first is None else min(first, now - first_sight)
    seen = exists().where(Deliveries.alert == Alerts.id, Deliveries.target == target)
    return [Alerts.raised_at >= since, ~seen]
