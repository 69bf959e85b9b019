"""The list of runs: filtered, sorted, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Subquery, Text, and_, cast, exists, or_, select
from sqlalchemy.orm import Session

from core.figures import HELD_OUT
from storage.letter_case import capitals
from storage.models import Alerts, Runs, Series
from storage.queries.drift import changes
from storage.queries.tables import columns
from storage.rows import Over, Run

# With a leading - in descending order. By an accuracy, only the runs that have it are listed.
# `change` is that of label accuracy since it was first measured, so the runs that drift come first.
RunSort = Literal[
    "-created",
    "created",
    "name",
    "-name",
    "label_accuracy",
    "-label_accuracy",
    "change",
    "-change",
    "held_out",
    "-held_out",
]
RunKey = datetime | str | float  # what the list is sorted by; runs that are equal in it are in order of their names


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list. A field that is None or empty does not filter. Texts are contained, ignoring case."""

    name: str | None = None
    preset: str | None = None  # exactly this preset
    method: str | None = None  # the Solver's, as in `solver.reward.type`
    names: tuple[str, ...] | None = None  # exactly these runs
    tags: tuple[str, ...] = ()  # a run has all of these
    note: str | None = None
    drifting: bool = False  # their label accuracy has fallen (`drift.LabelChange`)
    open_alerts: bool = False  # they have an alert that nobody has acknowledged


def page_of_runs(
    session: Session,
    filters: RunFilter,
    *,
    sort: RunSort = "-created",
    after: tuple[RunKey, str] | None = None,
    limit: int,
) -> list[tuple[Run, RunKey]]:
    """A page of the runs, each with what the list is sorted by.

    `after` is what the last run of the previous page was sorted by, and its name.
    """
    name, descending = sort.removeprefix("-"), sort.startswith("-")
    moved = changes()
    key: ColumnElement[Any] = moved.c.change if name == "change" else _key(name)
    statement = select(*columns(Runs, Run), key).where(*_conditions(filters, moved), key.is_not(None))
    if name == "change":
        statement = statement.join(moved, moved.c.run == Runs.name)
    if after is not None:
        value, name = after
        later = key < value if descending else key > value
        statement = statement.where(or_(later, and_(key == value, Runs.name > name)))
    ordered = statement.order_by(key.desc() if descending else key, Runs.name).limit(limit)
    return [(Run(*row[:-1]), row[-1]) for row in session.execute(ordered)]


def methods_of(session: Session, names: Sequence[str]) -> dict[str, str]:
    """Run -> the Solver's method, for those of the named runs that are in the store."""
    rows = session.execute(select(Runs.name, _method()).where(Runs.name.in_(names)))
    return {row[0]: row[1] for row in rows}


def _method() -> ColumnElement[str]:
    method: ColumnElement[str] = Runs.config["solver"]["reward"]["type"].as_string()
    return method


def _key(sort: str) -> ColumnElement[Any]:
    """What the runs are sorted by. Of a series it is the last measured value, by the first of its oracles; NULL where
    there is none."""
    latest: dict[str, tuple[str, Over]] = {"label_accuracy": ("label_accuracy", "kept"), "held_out": (HELD_OUT, "")}
    if sort not in latest:
        return Runs.name.expression if sort == "name" else Runs.created_at.expression
    name, over = latest[sort]
    points = select(Series.value).where(
        Series.run == Runs.name, Series.name == name, Series.over == over, Series.estimated.is_(False)
    )
    return points.order_by(Series.oracle, Series.iteration.desc()).limit(1).correlate(Runs).scalar_subquery()


def _conditions(filters: RunFilter, moved: Subquery) -> Iterator[ColumnElement[bool]]:
    if filters.name:
        yield capitals(Runs.name).contains(filters.name.upper(), autoescape=True)
    if filters.preset:
        yield Runs.preset == filters.preset
    if filters.method:
        yield _method() == filters.method
    if filters.names is not None:
        yield Runs.name.in_(filters.names)
    for tag in filters.tags:  # neither a tag nor JSON's form of it contains quotes
        yield cast(Runs.tags, Text).contains(f'"{tag}"', autoescape=True)
    if filters.drifting:
        yield Runs.name.in_(select(moved.c.run).where(moved.c.drifts))
    if filters.open_alerts:
        yield exists().where(Alerts.run == Runs.name, Alerts.acknowledged_at.is_(None))
    if filters.note:
        yield capitals(Runs.note).contains(filters.note.upper(), autoescape=True)
