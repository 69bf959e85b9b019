"""Runs and their stages."""

from __future__ import annotations

from itertools import groupby

from fastapi import APIRouter

from services.api.dependencies import After, Limit, ReadSession, RunName
from services.api.pages import run_cursor, run_position
from services.api.problems import documented
from services.api.schemas import IterationSummary, RunPage
from storage import queries
from storage.rows import Job, RunDetail, Stage

router = APIRouter(tags=["runs"])


@router.get("/runs", responses=documented(400))
def list_runs(session: ReadSession, limit: Limit = 50, after: After = None) -> RunPage:
    """Runs, the newest first."""
    runs = queries.runs.page_of_runs(session, after=run_position(after), limit=limit + 1)
    page = runs[:limit]
    next_page = run_cursor(page[-1].created_at, page[-1].name) if len(runs) > limit else None
    return RunPage(items=[*page], next=next_page)


@router.get("/runs/{run}", responses=documented(404))
def get_run(session: ReadSession, run: RunName) -> RunDetail:
    """A run with its whole configuration."""
    return queries.runs.get_run(session, run)


@router.get("/runs/{run}/stages", responses=documented(404))
def list_stages(session: ReadSession, run: RunName) -> list[Stage]:
    """The stages that were started, by iteration and start."""
    queries.runs.get_run(session, run)
    return [*queries.ledger.stages_of(session, run)]


@router.get("/runs/{run}/iterations", responses=documented(404))
def list_iterations(session: ReadSession, run: RunName) -> list[IterationSummary]:
    """The iterations that were begun, with their stages and the numbers of their questions by verdict."""
    queries.runs.get_run(session, run)
    stats, now = queries.figures.filter_stats_of(session, run), queries.tables.database_time(session)
    stages = groupby(queries.ledger.stages_of(session, run), key=lambda row: row.iteration)
    return [IterationSummary.of(t, list(rows), stats.get(t), now) for t, rows in stages]


@router.get("/pool")
def list_jobs(session: ReadSession) -> list[Job]:
    """The worker pool: trainings that wait, run or are done."""
    return [*queries.pool.pool_jobs(session)]
