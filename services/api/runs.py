"""Runs and their stages."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException

from services.api.given import After, Limit, Reading, RunName
from services.api.problems import documented
from services.api.schemas import Job, Run, RunDetail, RunPage, Stage
from storage import queries

router = APIRouter(tags=["runs"])


@router.get("/runs", responses=documented(400))
def list_runs(session: Reading, limit: Limit = 50, after: After = None) -> RunPage:
    """Runs, the newest first."""
    rows = queries.list_runs(session)
    names = [row.name for row in rows]
    if after is not None and after not in names:
        raise HTTPException(400, f"after: expected `next` of a page before, got {after[:100]!r}")
    start = names.index(after) + 1 if after is not None else 0
    page = rows[start : start + limit]
    return RunPage(items=[Run.of(row) for row in page], next=page[-1].name if start + limit < len(rows) else None)


@router.get("/runs/{run}", responses=documented(404))
def get_run(session: Reading, run: RunName) -> RunDetail:
    """A run with its whole configuration."""
    return RunDetail.of(queries.get_run(session, run))


@router.get("/runs/{run}/stages", responses=documented(404))
def list_stages(session: Reading, run: RunName) -> list[Stage]:
    """The stages that were started, by iteration and start."""
    queries.get_run(session, run)
    return [Stage.of(row) for row in queries.stages_of(session, run)]


@router.get("/pool")
def list_jobs(session: Reading) -> list[Job]:
    """The worker pool: trainings that wait, are at work, or were."""
    return [Job.model_validate(row) for row in queries.pool_jobs(session)]
