"""Runs as the API shows them: the rows of the store, and the runs that only Prefect knows, with the state of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, get_args

from sqlalchemy.orm import Session

from services.api.schemas import InheritedIterations, OpenAlerts, RunSummary, RunWithConfig
from services.prefect.client import KnownFlowRuns
from services.prefect.flow_runs import FlowRun
from services.views.states import RunState, State, states_of
from storage import queries
from storage.queries.run_list import RunFilter, RunKey, RunSort
from storage.rows import Run, Severity

_STORED = ("preset", "seed", "iterations", "created_at", "updated_at", "tags", "note", "noted_by", "noted_at")


class ListedRun(NamedTuple):
    """A run in a list, and what the list is sorted by."""

    summary: RunSummary
    key: RunKey


def page_of_runs(
    session: Session,
    known: KnownFlowRuns,
    filters: RunFilter,
    states: Collection[State],
    *,
    sort: RunSort,
    after: tuple[RunKey, str] | None,
    limit: int,
) -> list[ListedRun]:
    """A page of the runs, as `queries.run_list.page_of_runs`, and only those in one of `states`, if there are any.

    Runs that only Prefect knows are listed if the list is in the order of creation, and filtered at most by name,
    preset and state.
    """
    if states:
        names = [name for name, state in all_states(session, known).items() if state.state in states]
        filters = replace(filters, names=tuple(names))
    page = queries.run_list.page_of_runs(session, filters, sort=sort, after=after, limit=limit)
    keys = {run.name: key for run, key in page}
    runs: dict[str, Run | None] = {run.name: run for run, _ in page}
    if sort in ("created", "-created"):
        created: dict[str, datetime] = {}  # of the runs that only Prefect knows and that match the filters
        if not (filters.method or filters.tags or filters.note or filters.drifting or filters.open_alerts):
            created = {
                name: known.by_run[name].created
                for name in only_in_prefect(session, known)
                if (filters.name or "").upper() in name.upper()
                and filters.preset in (None, "", known.by_run[name].preset)
                and (filters.names is None or name in filters.names)
            }
        times = {**created, **{run.name: run.created_at for run, _ in page}}
        sign = -1 if sort == "-created" else 1
        order = {name: (sign * time.timestamp(), name) for name, time in times.items()}
        last = (sign * after[0].timestamp(), after[1]) if after and isinstance(after[0], datetime) else None
        listed = sorted((name for name in order if last is None or order[name] > last), key=order.__getitem__)[:limit]
        runs, keys = {name: runs.get(name) for name in listed}, {**keys, **created}
    return [ListedRun(summary, keys[summary.name]) for summary in _summaries(session, known, runs)]


def run_with_config(session: Session, known: KnownFlowRuns, name: str) -> RunWithConfig:
    """A run with its settings. Raises `NotThere` when neither the store nor Prefect knows it."""
    run = None if name in only_in_prefect(session, known) else queries.runs.get_run(session, name)
    [summary] = _summaries(session, known, {name: run})
    parts = queries.forks.by_maker(session, name).items()
    inherited = [InheritedIterations(run=maker, first=of[0], last=of[-1]) for maker, of in parts]
    return RunWithConfig(**dict(summary), config={**run.config} if run else None, inherited=inherited)


def state_of(session: Session, name: str, flow_run: FlowRun | None = None) -> RunState:
    """The state of one run whose newest flow run is known, or that has none."""
    runs: dict[str, Run | None] = {name: None, **queries.runs.runs_named(session, [name])}
    return states_of(session, runs, {name: flow_run} if flow_run else {})[name]


def all_states(session: Session, known: KnownFlowRuns) -> dict[str, RunState]:
    """The states of all runs, by name."""
    runs: dict[str, Run | None] = {**queries.runs.runs_named(session)}
    return states_of(session, {**runs, **only_in_prefect(session, known)}, known.by_run)


def text(state: RunState) -> str:
    """The state for a message: "it is running: iteration 2, evaluate"."""
    return f"it is {state.state}: {state.reason}"


def only_in_prefect(session: Session, known: KnownFlowRuns) -> dict[str, None]:
    """The names of the listed runs that Prefect knows and the store does not; the values are None."""
    stored = queries.runs.runs_named(session, known.by_run) if known.by_run else {}
    now = datetime.now(UTC)
    listed = [name for name, flow_run in known.by_run.items() if flow_run.is_listed_alone(now)]
    return dict.fromkeys(name for name in listed if name not in stored)


def _summaries(session: Session, known: KnownFlowRuns, runs: dict[str, Run | None]) -> list[RunSummary]:
    states, counts = states_of(session, runs, known.by_run), queries.metrics.alert_counts(session, [*runs])
    severities: tuple[Severity, ...] = get_args(Severity)
    methods = queries.run_list.methods_of(session, [*runs])
    changes = queries.drift.label_changes(session, [*runs])
    done = queries.metrics.finished_iterations(session, [*runs])
    summaries = []
    for name, run in runs.items():
        stored: dict[str, Any] = dict.fromkeys(_STORED)
        if run is not None:
            stored = {field: getattr(run, field) for field in _STORED}
        elif flow_run := known.by_run.get(name):
            stored |= {"preset": flow_run.preset, "created_at": flow_run.created, "tags": [], "note": ""}
        summaries.append(
            RunSummary(
                name=name,
                method=methods.get(name),
                iterations_done=None if run is None else done.get(name, 0),
                **stored,
                **asdict(states[name]),
                flow_run=known.page_of(name),
                open_alerts=OpenAlerts(**{severity: counts.get((name, severity, False), 0) for severity in severities}),
                label_change=changes.get(name),
            )
        )
    return summaries
