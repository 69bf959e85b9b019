"""Published checkpoints, and which was trained from which."""

from __future__ import annotations

from fastapi import APIRouter

from core.types import Checkpoint, CheckpointRole
from services.api.dependencies import Iteration, RunName, StoreDependency
from services.api.problems import documented
from services.api.schemas import CheckpointDetail
from storage import queries

router = APIRouter(prefix="/runs/{run}/checkpoints", tags=["checkpoints"])


@router.get("", responses=documented(404))
def list_checkpoints(store: StoreDependency, run: RunName) -> list[Checkpoint]:
    """A run's checkpoints by iteration, the base model first."""
    with store.read() as session:
        queries.runs.get_run(session, run)
        return queries.checkpoints.checkpoints_of(session, run)


@router.get("/{role}/{iteration}", responses=documented(404))
def get_checkpoint(
    store: StoreDependency, run: RunName, role: CheckpointRole, iteration: Iteration
) -> CheckpointDetail:
    """One checkpoint: its files, the checkpoints that it was trained from, and those that were trained from it."""
    with store.read() as session:
        key = queries.checkpoints.id_of(session, run, role, iteration)
        checkpoint, *ancestors = queries.checkpoints.lineage(session, key)
        return CheckpointDetail(
            checkpoint=checkpoint,
            manifest=queries.checkpoints.manifest_of(session, key),
            ancestors=ancestors,
            children=queries.checkpoints.children_of(session, key),
            descendants=queries.checkpoints.descendants_of(session, key),
        )
