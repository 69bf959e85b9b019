"""The remaining time of a run and of its current stage: what the run's own iterations that are done took, on average.

The range is that of the shortest and the longest of them, stage by stage. Ends are added for a run, as if all of its
stages were fast or all were slow, so the range of a run is wide. During the first iteration little is known; what
finished runs of the same preset took is in `coevo check PRESET`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from statistics import fmean

from sqlalchemy.orm import Session

from core.types import Stage
from storage import queries
from storage.rows import RunDetail, StageRow

Key = tuple[int, Stage]  # iteration and stage

_UNITS = {"h": 3600.0, "min": 60.0}


@dataclass(frozen=True, slots=True)
class Remaining:
    """The time until something ends, in seconds: after the mean, the shortest and the longest iteration so far."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RunRemaining:
    """The remaining time of a run and of the stage that it is at; null where nothing is known."""

    iteration: int | None  # of the stage that is running or comes next; null if all stages are done
    stage: Stage | None
    of_stage: Remaining | None
    of_run: Remaining | None  # unless the run is stopped early
    unknown: str | None  # why `of_run` is null, in a sentence


def remaining_in(session: Session, run: RunDetail, plan: Sequence[Key]) -> RunRemaining:
    """The remaining time of a run. `plan` are all its stages, in order; those of inherited iterations are done."""
    begins_at, now = queries.forks.begins_at(session, run.name), queries.tables.database_time(session)
    own = [(iteration, stage) for iteration, stage in plan if iteration >= begins_at]
    return remaining_at(now, queries.ledger.stages_of(session, run.name), own)


def remaining_at(now: datetime, stages: Iterable[StageRow], plan: Sequence[Key]) -> RunRemaining:
    """The remaining time at `now` (UTC), from the ledger's rows as they were then.

    A stage that has taken longer than ever before has 0 seconds left.
    """
    rows = {(row.iteration, row.stage): row for row in stages}
    to_come = [key for key in plan if key not in rows or rows[key].status != "done"]
    if not to_come:
        why = "all stages are done" if plan else "this server does not know the stages of runs"
        return RunRemaining(None, None, None, None, why)
    row = rows.get(to_come[0])
    # The stage of a process that died does not go on, although it stays "running" in the ledger.
    until = now if row is None else min(now, row.lease_expires)
    elapsed = (until - row.started_at).total_seconds() if row is not None and row.status == "running" else 0.0
    taken, expected = durations_of(rows.values()), list[Remaining | None]()
    for _, stage in to_come:
        seconds_of = {iteration: seconds for (iteration, name), seconds in taken.items() if name == stage}
        # Before the first iteration another model is asked, so that counts if nothing else is known.
        known = [seconds for iteration, seconds in seconds_of.items() if iteration] or [*seconds_of.values()]
        expected.append(Remaining(fmean(known), min(known), max(known)) if known else None)
    first, *later = expected
    if first is not None:
        first = Remaining(*(max(seconds - elapsed, 0.0) for seconds in astuple(first)))
    left = [remaining for remaining in (first, *later) if remaining is not None]
    if len(left) < len(to_come):
        iteration, stage = next(key for key, remaining in zip(to_come, expected, strict=True) if not remaining)
        why = f"{stage} of iteration {iteration} was done in no earlier iteration of the run"
        return RunRemaining(*to_come[0], first, None, why)
    return RunRemaining(*to_come[0], first, Remaining(*map(sum, zip(*map(astuple, left), strict=True))), None)


def durations_of(stages: Iterable[StageRow]) -> dict[Key, float]:
    """The seconds of the stages that are done. Interrupted stages are left out: their seconds cover the last attempt
    only."""
    return {
        (row.iteration, row.stage): row.seconds
        for row in stages
        if row.status == "done" and row.attempt == 1 and row.seconds is not None
    }


def range_text(low: float, high: float) -> str:
    """A range of seconds for people: "12 to 31 min". The unit is that of the upper end."""
    seconds, unit = next(((seconds, unit) for unit, seconds in _UNITS.items() if high >= 2 * seconds), (1.0, "s"))
    first, last = (f"{end / seconds:.0f}" for end in (low, high))
    return f"{first} to {last} {unit}" if first != last else f"{last} {unit}"
