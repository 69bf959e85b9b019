"""Alerts: storing them once, acknowledging them once, and delivering them to targets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Update, exists, func, or_, select, tuple_, update
from sqlalchemy.orm import Session

from storage.errors import AlreadyAcknowledged, NotThere
from storage.models import Alerts, Deliveries
from storage.queries.tables import columns, database_time, find_row, find_rows, insert_dataclasses, insert_new, table_of
from storage.rows import AlertRow, DeliveryRow, Severity


def add_alerts(session: Session, alerts: Iterable[AlertRow]) -> None:
    """Store alerts. An alert that exists already stays as it is."""
    insert_dataclasses(session, Alerts, alerts, AlertRow)


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
    """A page of alerts, the newest first; `after` is the last alert of the previous page."""
    given = ((Alerts.run, run), (Alerts.iteration, iteration), (Alerts.severity, severity))
    conditions: list[ColumnElement[bool]] = [column == value for column, value in given if value is not None]
    if acknowledged is not None:
        at = Alerts.acknowledged_at
        conditions.append(at.is_not(None) if acknowledged else at.is_(None))
    if after is not None:
        conditions.append(tuple_(Alerts.raised_at, Alerts.id) < tuple_(after.raised_at, after.id))
    newest = [Alerts.raised_at.desc(), Alerts.id.desc()]
    return find_rows(session, Alerts, AlertRow, *conditions, order=newest, limit=limit)


@dataclass(frozen=True, slots=True)
class AlertGroup:
    """The open alerts of a run by one rule. `text` and `raised_at` are those of the newest."""

    run: str
    rule: str
    severity: Severity  # the worst
    alerts: int
    first_iteration: int
    last_iteration: int
    text: str
    raised_at: datetime


def open_groups(session: Session, severity: Severity | None = None) -> list[AlertGroup]:
    """The alerts that nobody has acknowledged, grouped by run and rule; first the critical ones, then the newest."""
    of_group, by_age = (Alerts.run, Alerts.rule), (Alerts.raised_at.desc(), Alerts.id.desc())
    is_open = [Alerts.acknowledged_at.is_(None), *([] if severity is None else [Alerts.severity == severity])]
    numbered = (
        select(
            *(Alerts.run, Alerts.rule, Alerts.text, Alerts.raised_at),
            func.min(Alerts.severity).over(partition_by=of_group).label("severity"),  # critical is before warning
            func.count().over(partition_by=of_group).label("alerts"),
            func.min(Alerts.iteration).over(partition_by=of_group).label("first_iteration"),
            func.max(Alerts.iteration).over(partition_by=of_group).label("last_iteration"),
            func.row_number().over(partition_by=of_group, order_by=by_age).label("age"),
        )
        .where(*is_open)
        .subquery()
    )
    newest = select(*(numbered.c[name] for name in AlertGroup.__dataclass_fields__)).where(numbered.c.age == 1)
    ordered = newest.order_by(numbered.c.severity, numbered.c.raised_at.desc(), numbered.c.run, numbered.c.rule)
    return [AlertGroup(*row) for row in session.execute(ordered)]


def acknowledge_group(session: Session, *, run: str, rule: str, until: datetime, by: str, note: str = "") -> int:
    """Acknowledge the open alerts of a run by a rule that were raised until then; returns their number.

    Later ones stay open, since nobody has seen them.
    """
    is_open = [Alerts.run == run, Alerts.rule == rule, Alerts.acknowledged_at.is_(None), Alerts.raised_at <= until]
    values = {"acknowledged_at": database_time(session), "acknowledged_by": by, "note": note}
    changed = update(table_of(Alerts)).where(*is_open).values(values).returning(table_of(Alerts).c.id)
    return len(session.execute(changed).all())


def get_alert(session: Session, alert: str) -> AlertRow:
    """One alert. Raises `NotThere`."""
    row = find_row(session, Alerts, AlertRow, Alerts.id == alert)
    if row is None:
        raise NotThere(f"alert {alert!r}: no alert has this id")
    return row


def acknowledge(session: Session, alert: str, by: str, note: str = "") -> AlertRow:
    """Record that `by` has acknowledged an alert. Raises `NotThere`, `AlreadyAcknowledged`."""
    unacknowledged = [Alerts.id == alert, Alerts.acknowledged_at.is_(None)]
    values = {"acknowledged_at": database_time(session), "acknowledged_by": by, "note": note}
    changed = update(table_of(Alerts)).where(*unacknowledged).values(values).returning(*columns(Alerts, AlertRow))
    row = session.execute(changed).one_or_none()
    if row is None:
        existing = get_alert(session, alert)
        at = f"{existing.acknowledged_at:%Y-%m-%d %H:%M:%S} UTC"
        raise AlreadyAcknowledged(f"alert {alert}: {existing.acknowledged_by} acknowledged it at {at}")
    return AlertRow(*row)


def deliveries_of(session: Session, alert: str) -> list[DeliveryRow]:
    """The deliveries of an alert, by target."""
    return find_rows(session, Deliveries, DeliveryRow, Deliveries.alert == alert, order=[Deliveries.target])


def delivery_due(session: Session, target: str, *, max_attempts: int, lookback: timedelta) -> bool:
    """Whether `claim_delivery` would find an alert. This only reads, so waiting for alerts takes no write lock."""
    now = database_time(session)
    waiting = exists().where(*_due(target, max_attempts, now))
    return bool(session.scalar(select(or_(waiting, exists().where(*_unseen(session, target, now, lookback))))))


def claim_delivery(
    session: Session, target: str, *, max_attempts: int, lookback: timedelta, delays: list[timedelta]
) -> tuple[AlertRow, DeliveryRow] | None:
    """Claim the oldest alert that waits to be sent to `target`; None if none waits.

    The same transaction postpones the alert's next attempt, by `delays[attempts so far]` or the last delay. So no other
    process sends the alert meanwhile, and if this process dies, the alert is sent again after the delay. At most
    `max_attempts` attempts are made. An alert that was raised more than `lookback` before the first claim for the
    target is never sent there.
    """
    now = database_time(session)
    unseen = session.scalars(select(Alerts.id).where(*_unseen(session, target, now, lookback))).all()
    new_row = {"target": target, "attempts": 0, "next_at": now, "delivered_at": None, "error": None}
    insert_new(session, Deliveries, [{"alert": alert, **new_row} for alert in unseen])
    waiting = select(*columns(Deliveries, DeliveryRow)).join(Alerts).where(*_due(target, max_attempts, now))
    oldest = waiting.order_by(Alerts.raised_at, Alerts.id).limit(1)
    row = session.execute(oldest.with_for_update(skip_locked=True, of=table_of(Deliveries))).one_or_none()
    if row is None:
        return None
    delivery = DeliveryRow(*row)
    next_at = now + delays[min(delivery.attempts, len(delays) - 1)]
    claimed = _changed(delivery.alert, target, attempts=delivery.attempts + 1, next_at=next_at)
    row = session.execute(claimed.returning(*columns(Deliveries, DeliveryRow))).one()
    return get_alert(session, delivery.alert), DeliveryRow(*row)


def mark_delivered(session: Session, alert: str, target: str) -> None:
    """Record that the alert has arrived. It is not sent to the target again. If its run was deleted meanwhile, nothing
    is recorded."""
    session.execute(_changed(alert, target, delivered_at=database_time(session), error=None))


def mark_failed(session: Session, alert: str, target: str, error: str) -> None:
    """Record that an attempt failed. `claim_delivery` has set the time of the next attempt."""
    session.execute(_changed(alert, target, error=error))


def _changed(alert: str, target: str, **values: object) -> Update:
    key = [Deliveries.alert == alert, Deliveries.target == target]
    return update(table_of(Deliveries)).where(*key).values(**values)


def _due(target: str, max_attempts: int, now: datetime) -> list[ColumnElement[bool]]:
    undelivered = [Deliveries.target == target, Deliveries.delivered_at.is_(None)]
    return [*undelivered, Deliveries.attempts < max_attempts, Deliveries.next_at <= now]


def _unseen(session: Session, target: str, now: datetime, lookback: timedelta) -> list[ColumnElement[bool]]:
    """Conditions on alerts that have no row for the target yet. An alert is left out if it is older than `lookback` and
    older than every alert that has a row for the target."""
    oldest_seen = session.scalar(
        select(func.min(Alerts.raised_at))
        .join(Deliveries, Deliveries.alert == Alerts.id)
        .where(Deliveries.target == target)
    )
    since = now - lookback if oldest_seen is None else min(oldest_seen, now - lookback)
    seen = exists().where(Deliveries.alert == Alerts.id, Deliveries.target == target)
    return [Alerts.raised_at >= since, ~seen]
