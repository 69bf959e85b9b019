"""Check the remaining time on the finished runs of a store, and print the table of docs/dashboard.md:
python docs/replay_remaining.py PATH_OF/coevo.db
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

from core.settings.parsing import parse_config
from core.statistics.estimates import share
from core.statistics.remaining import Remaining
from orchestrator.plan import plan
from services.remaining import durations_of, remaining_at, similar_runs
from storage import queries
from storage.rows import ENDED, RunDetail, StageRow
from storage.session import open_store


@dataclass(frozen=True, slots=True)
class Forecast:
    """A range that was given at the beginning of a stage, and the true time until the end."""

    of: str  # "stage" or "run"
    has_similar: bool
    iteration: int
    given: Remaining | None
    true: float


def forecasts(run: RunDetail, ledgers: dict[str, list[StageRow]], runs: list[RunDetail]) -> Iterator[Forecast]:
    """The ranges at the beginning of each stage, from what was in the store then."""
    rows = [row for row in ledgers[run.name] if row.stage != "ask_a_person"]
    stages = [*plan(parse_config(run.config, run.name))]
    ends = {name: _end(ledger) for name, ledger in ledgers.items()}
    for row in rows:
        before = [
            earlier for earlier in rows if earlier.finished_at is not None and earlier.finished_at <= row.started_at
        ]
        now = [*before, replace(row, status="running", finished_at=None)]
        finished = [other for other in runs if other.status in ENDED and ends[other.name] <= row.started_at]
        durations = {other.name: durations_of(ledgers[other.name]) for other in finished}
        similar = similar_runs(run, finished, durations, stages)
        answer = remaining_at(row.started_at, now, stages, similar)
        if row.finished_at is not None:
            true = (row.finished_at - row.started_at).total_seconds()
            yield Forecast("stage", bool(similar), row.iteration, answer.of_stage, true)
            until_end = (ends[run.name] - row.started_at).total_seconds()
            yield Forecast("run", bool(similar), row.iteration, answer.of_run, until_end)


def table(all_forecasts: list[Forecast]) -> Iterator[str]:
    yield "| time until the end of | based on | ranges given | the true end was in it | high / low, median |"
    yield "|---|---|---:|---:|---:|"
    for of in ("stage", "run"):
        for has_similar in (True, False):
            rows = [row for row in all_forecasts if (row.of, row.has_similar) == (of, has_similar)]
            given = [row for row in rows if row.given is not None]
            right = sum(row.given.low <= row.true <= row.given.high for row in given if row.given)
            hits = share(right, len(given))
            if hits is None:
                continue
            width = median(row.given.high / max(row.given.low, 0.001) for row in given if row.given)
            basis = "similar runs and itself" if has_similar else "its own earlier stages"
            interval = f"{hits.value:.0%} [{hits.lo:.0%}, {hits.hi:.0%}]"
            yield f"| a {of} | {basis} | {len(given)} of {len(rows)} | {interval} | {width:.1f} |"


def _end(ledger: list[StageRow]) -> datetime:
    return max(row.finished_at or row.started_at for row in ledger)


if __name__ == "__main__":
    store = open_store(f"sqlite:///{sys.argv[1]}")
    with store.read() as session:
        all_runs = queries.runs.list_runs(session)
        ledgers = {run.name: queries.ledger.stages_of(session, run.name) for run in all_runs}
    finished = [run for run in all_runs if run.status in ENDED]
    whole = [run for run in finished if all(row.attempt == 1 for row in ledgers[run.name])]
    all_forecasts = [forecast for run in whole for forecast in forecasts(run, ledgers, all_runs)]
    print("\n".join(table(all_forecasts)))
    print(f"\n{len(whole)} runs; {len(finished) - len(whole)} more were interrupted and are left out")
