"""Runs and their stages."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated

from fastapi import APIRouter, Query

from services.api import run_views
from services.api.dependencies import (
    After,
    InstallationDependency,
    Limit,
    PrefectDependency,
    RunName,
    StoreDependency,
)
from services.api.pages import run_cursor, run_position
from services.api.problems import documented
from services.api.schemas import IterationSummary, RunPage, RunWithConfig
from services.views.remaining import RunRemaining, remaining_in
from services.views.states import State
from storage import queries
from storage.files.run_logs import LogEvent, last_events
from storage.queries.run_list import RunFilter, RunSort
from storage.queries.run_notes import MOST_TAGS, TAG
from storage.queries.runs import RUN_NAME
from storage.rows import Job, Stage

router = APIRouter(tags=["runs"])
Lines = Annotated[int, Query(ge=1, le=500, description="How many lines.")]
_Text = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")]


@router.get("/runs", responses=documented(400))
def list_runs(
    store: StoreDependency,
    prefect: PrefectDependency,
    name: Annotated[_Text, Query(description="Contained in the run's name, ignoring case.")] = None,
    preset: Annotated[_Text, Query(description="Its preset.", examples=["demo"])] = None,
    method: Annotated[_Text, Query(description="The Solver's method.", examples=["evol_rl"])] = None,
    state: Annotated[list[State] | None, Query(max_length=16, description="One of these.")] = None,
    tag: Annotated[
        list[Annotated[str, Query(pattern=f"^{TAG.pattern}$")]] | None,
        Query(max_length=MOST_TAGS, description="It has all of these tags."),
    ] = None,
    note: Annotated[_Text, Query(description="Contained in its note, ignoring case.")] = None,
    drifting: Annotated[
        bool, Query(description="The interval of its last label accuracy is below that of its first.")
    ] = False,
    open_alerts: Annotated[bool, Query(description="It has an alert that nobody has acknowledged.")] = False,
    sort: Annotated[
        RunSort,
        Query(
            description="By an accuracy or by its change since it was first measured, only runs that have it are "
            "listed. By `change`, the runs that fell most come first."
        ),
    ] = "-created",
    limit: Limit = 50,
    after: After = None,
) -> RunPage:
    """Runs with their states, by default all of them, the newest first.

    Runs that Prefect has accepted and that are not in the store are among them if the list is in the order of creation
    and filtered at most by name, preset and state.
    """
    filters = RunFilter(name, preset, method, None, tuple(tag or ()), note, drifting, open_alerts)
    position, known = run_position(after, sort), prefect.newest()
    with store.read() as session:
        page = run_views.page_of_runs(
            session, known, filters, tuple(state or ()), sort=sort, after=position, limit=limit + 1
        )
    last = page[limit - 1] if len(page) > limit else None
    next_page = run_cursor(sort, last.key, last.summary.name) if last else None
    return RunPage(items=[row.summary for row in page[:limit]], next=next_page, problem=known.problem)


@router.get("/runs/{run}", responses=documented(404))
def get_run(store: StoreDependency, prefect: PrefectDependency, run: RunName) -> RunWithConfig:
    """A run with its state and its whole configuration."""
    known = prefect.newest()
    with store.read() as session:
        shown = run_views.run_with_config(session, known, run)
    # A done flow run is not among the known ones, and an older one that failed may be.
    return shown if shown.active else shown.model_copy(update={"flow_run": prefect.page_of_last(run, known)})


@router.get("/runs/{run}/stages", responses=documented(404))
def list_stages(store: StoreDependency, run: RunName) -> list[Stage]:
    """The stages that the run has started, by iteration and start."""
    with store.read() as session:
        queries.runs.get_run(session, run)
        return [stage for stage in queries.ledger.stages_of(session, run) if stage.run == run]


@router.get("/runs/{run}/log", responses=documented(404))
def list_log(
    installation: InstallationDependency, store: StoreDependency, run: RunName, lines: Lines = 50
) -> list[LogEvent]:
    """The last lines of the run's log, the newest last. There are none if this server does not have the file."""
    with store.read() as session:
        queries.runs.get_run(session, run)
    return [] if installation.run_logs is None else last_events(installation.run_logs, run, lines)


@router.get("/runs/{run}/remaining", responses=documented(404, 409))
def get_remaining(installation: InstallationDependency, store: StoreDependency, run: RunName) -> RunRemaining:
    """The remaining time of the run and of its current stage, as a range of seconds. If that of the run is null,
    `unknown` says why."""
    with store.read() as session:
        row = queries.runs.get_run(session, run)
        return remaining_in(session, row, [*installation.planned(queries.runs.config_from(row))])


@router.get("/runs/{run}/iterations", responses=documented(404))
def list_iterations(store: StoreDependency, run: RunName) -> list[IterationSummary]:
    """The iterations that were begun or inherited, with their stages and the numbers of their questions by verdict."""
    with store.read() as session:
        queries.runs.get_run(session, run)
        stats, holder = queries.figures.filter_stats_of(session, run), queries.run_leases.run_holder(session, run)
        stages = groupby(queries.ledger.stages_of(session, run), key=lambda row: row.iteration)
        inherited = queries.forks.inherited(session, run)
        return [IterationSummary.of(t, list(rows), stats.get(t), holder, inherited.get(t)) for t, rows in stages]


@router.get("/pool", responses=documented(404))
def list_jobs(
    store: StoreDependency,
    run: Annotated[
        str | None,
        Query(pattern=f"^{RUN_NAME.pattern}$", description="All trainings of this run, also those that are done."),
    ] = None,
) -> list[Job]:
    """The worker pool's queue: the trainings of all runs that wait or run."""
    with store.read() as session:
        if run is None:
            return [*queries.pool.unfinished_jobs(session)]
        queries.runs.get_run(session, run)
        return [*queries.pool.pool_jobs(session, run)]
