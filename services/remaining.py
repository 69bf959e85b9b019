"""The remaining time of a run and of its current stage, from the ledger (`core.statistics.remaining`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from sqlalchemy.orm import Session

from core.statistics.remaining import Durations, Key, Remaining, first_unknown, remaining_of
from core.types import Stage
from storage import queries
from storage.queries.run_list import RunFilter
from storage.rows import ENDED, Run, RunDetail, StageRow

_UNITS = {"h": 3600.0, "min": 60.0}
_NO_PLAN = "this server does not know the stages of runs"
_MOST_SIMILAR = 3  # runs, the newest ones, that the range is based on…
_MOST_READ = 12  # …out of so many finished ones of the same preset…
_MOST_LISTED = 100  # …among so many of that preset


@dataclass(frozen=True, slots=True)
class RunRemaining:
    """The remaining time of a run and of the stage that it is at; null where nothing is known."""

    iteration: int | None  # of the stage that is running or comes next; null if all stages are done
    stage: Stage | None
    of_stage: Remaining | None
    of_run: Remaining | None  # unless the run is stopped early
    unknown: str | None  # why `of_run` is null, in a sentence
    similar: list[str]  # finished runs of the same preset that the range is based on, beside the run itself


def remaining_in(session: Session, run: RunDetail, plan: Sequence[Key]) -> RunRemaining:
    """The remaining time of a run. `plan` are all its stages, in order."""
    stages = queries.ledger.stages_of(session, run.name)
    newest = queries.run_list.page_of_runs(session, RunFilter(preset=run.preset), limit=_MOST_LISTED)
    others = [other for other, _ in newest if _may_be_similar(other, run)][:_MOST_READ]
    durations = {other.name: durations_of(queries.ledger.stages_of(session, other.name)) for other in others}
    now = queries.tables.database_time(session)
    return remaining_at(now, stages, plan, similar_runs(run, others, durations, plan))


def range_text(remaining: Remaining | None) -> str:
    """A range for people: "12 to 31 min"; empty if nothing is known. The unit is that of the upper end."""
    if remaining is None:
        return ""
    seconds, unit = next(
        ((seconds, unit) for unit, seconds in _UNITS.items() if remaining.high >= 2 * seconds), (1.0, "s")
    )
    low, high = (f"{end / seconds:.0f}" for end in (remaining.low, remaining.high))
    return f"{low} to {high} {unit}" if low != high else f"{high} {unit}"


def remaining_at(
    now: datetime, stages: Iterable[StageRow], plan: Sequence[Key], similar: dict[str, Durations]
) -> RunRemaining:
    """The remaining time at `now` (UTC), from the ledger's rows as they were then."""
    rows = {(row.iteration, row.stage): row for row in stages}
    to_come = [key for key in plan if key not in rows or rows[key].status != "done"]
    if not to_come:
        return RunRemaining(None, None, None, None, "all stages are done" if plan else _NO_PLAN, [])
    row = rows.get(to_come[0])
    # The stage of a process that died does not go on, although it stays "running" in the ledger.
    until = now if row is None else min(now, row.lease_expires)
    elapsed = (until - row.started_at).total_seconds() if row is not None and row.status == "running" else 0.0
    own, others = durations_of(rows.values()), [*similar.values()]
    of_stage = remaining_of(to_come[:1], elapsed, own, others)
    of_run = remaining_of(to_come, elapsed, own, others)
    unknown = first_unknown(to_come, own, others)
    return RunRemaining(*to_come[0], of_stage, of_run, unknown and _nothing_like(unknown), [*similar])


def _nothing_like(key: Key) -> str:
    iteration, stage = key
    return (
        f"nothing shows how long {stage} of iteration {iteration} takes: it was done in no earlier iteration of the "
        "run, and in no finished run of the same preset and stages"
    )


def durations_of(stages: Iterable[StageRow]) -> dict[Key, float]:
    """The seconds of the stages that are done. One that was interrupted is left out: its time is that of the latest
    attempt, which went on from where the one before had stopped."""
    return {
        (row.iteration, row.stage): row.seconds
        for row in stages
        if row.status == "done" and row.attempt == 1 and row.seconds is not None
    }


def similar_runs(
    run: Run, others: Iterable[Run], durations: Mapping[str, Durations], plan: Sequence[Key]
) -> dict[str, Durations]:
    """The durations of those `others` that tell how long this run takes, the newest ones: of the same preset, and with
    the same kinds of stages. `others` are finished, the newest first."""
    similar = {
        other.name: durations[other.name]
        for other in others
        if _may_be_similar(other, run) and _same_stages(durations[other.name], plan)
    }
    return dict(islice(similar.items(), _MOST_SIMILAR))


def _may_be_similar(other: Run, run: Run) -> bool:
    return other.name != run.name and other.preset == run.preset is not None and other.status in ENDED


def _same_stages(durations: Durations, plan: Sequence[Key]) -> bool:
    """Whether the other run has the kinds of stages that this run has: another branch makes iterations longer."""
    return {stage for _, stage in durations} - {"ask_a_person"} == {stage for _, stage in plan}
