"""Runs as the API shows them: the rows of the store, and the runs that only Prefect knows, with the state of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, get_args

from sqlalchemy.orm import Session

from services.api.prefect import KnownFlowRuns
from services.api.schemas import OpenAlerts, RunSummary, RunWithConfig
from services.flow_runs import FlowRun
from services.run_states import RunState, states_of
from storage import queries
from storage.rows import Run, Severity


def page_of_runs(
    session: Session, known: KnownFlowRuns, *, after: tuple[datetime, str] | None, limit: int
) -> list[RunSummary]:
    """A page of the runs, the newest first; `after` is as in `queries.runs.page_of_runs`."""
    stored = {run.name: run for run in queries.runs.page_of_runs(session, after=after, limit=limit)}
    runs: dict[str, Run | None] = {**stored, **only_in_prefect(session, known)}
    created = {name: run.created_at if run else known.by_run[name].created for name, run in runs.items()}
    newest_first = sorted(runs, key=lambda name: (-created[name].timestamp(), name))
    names = [name for name in newest_first if after is None or _follows(created[name], name, *after)][:limit]
    return _summaries(session, known, {name: runs[name] for name in names})


def run_with_config(session: Session, known: KnownFlowRuns, name: str) -> RunWithConfig:
    """A run with its settings. Raises `NotThere` when neither the store nor Prefect knows it."""
    run = None if name in only_in_prefect(session, known) else queries.runs.get_run(session, name)
    [summary] = _summaries(session, known, {name: run})
    return RunWithConfig(**dict(summary), config={**run.config} if run else None)


def state_of(session: Session, name: str, flow_run: FlowRun | None = None) -> RunState:
    """The state of one run whose newest flow run is known, or that has none."""
    runs: dict[str, Run | None] = {name: None, **queries.runs.runs_named(session, [name])}
    return states_of(session, runs, {name: flow_run} if flow_run else {})[name]


def all_states(session: Session, known: KnownFlowRuns) -> dict[str, RunState]:
    """The states of all runs, by name."""
    runs: dict[str, Run | None] = {run.name: run for run in queries.runs.list_runs(session)}
    return states_of(session, {**runs, **only_in_prefect(session, known)}, known.by_run)


def text(state: RunState) -> str:
    """The state for a message: "it is running: iteration 2, evaluate"."""
    return f"it is {state.state}: {state.reason}"


def only_in_prefect(session: Session, known: KnownFlowRuns) -> dict[str, None]:
    """The names of the runs that Prefect knows and the store does not; the values are None."""
    return dict.fromkeys(known.by_run.keys() - queries.runs.runs_named(session, known.by_run).keys())


def _follows(created: datetime, name: str, after_created: datetime, after_name: str) -> bool:
    """Whether a run comes after another one in the order of `queries.runs.page_of_runs`."""
    return created < after_created or (created == after_created and name > after_name)


def _summaries(session: Session, known: KnownFlowRuns, runs: dict[str, Run | None]) -> list[RunSummary]:
    states, alerts = states_of(session, runs, known.by_run), _open_alerts(session, [*runs])
    return [
        RunSummary(
            name=name,
            **_stored(run, known.by_run.get(name)),
            **asdict(states[name]),
            flow_run=known.page_of(name),
            open_alerts=alerts[name],
        )
        for name, run in runs.items()
    ]


def _stored(run: Run | None, flow_run: FlowRun | None) -> dict[str, Any]:
    if run is not None:
        names = ("preset", "seed", "iterations", "created_at", "updated_at")
        return {name: getattr(run, name) for name in names}
    preset, created = (flow_run.preset, flow_run.created) if flow_run else (None, None)
    return {"preset": preset, "seed": None, "iterations": None, "created_at": created, "updated_at": None}


def _open_alerts(session: Session, runs: Sequence[str]) -> dict[str, OpenAlerts]:
    """Run -> the number of its open alerts by severity."""
    counts = queries.metrics.alert_counts(session, runs)
    severities: tuple[Severity, ...] = get_args(Severity)
    return {
        run: OpenAlerts(**{severity: counts.get((run, severity, False), 0) for severity in severities}) for run in runs
    }
