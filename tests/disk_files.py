"""Files of runs in a home, for the tests of what is removed from the disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from core.settings.config import CoEvolution
from core.types import CheckpointRole, Stage
from orchestrator.installation.home import Home
from storage import queries
from storage.session import Store
from tests.storage.store_examples import checkpoint


def write(path: Path) -> Path:
    """A file with a few bytes; its folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"some bytes")
    return path


def publish_checkpoint(home: Home, store: Store, run: str, role: CheckpointRole, iteration: int) -> Path:
    """A checkpoint with a row and a folder; returns the folder."""
    folder = home.checkpoints / run / role / str(iteration)
    write(folder / "model.safetensors")
    with store.write() as session:
        row = replace(checkpoint(run, role, iteration), path=str(folder))
        queries.checkpoints.add_checkpoint(session, row, {})
    return folder


def create_run(store: Store, home: Home, run: str) -> None:
    with store.write() as session:
        queries.runs.create_run(session, name=run, config=CoEvolution())
    publish_checkpoint(home, store, run, "base", 0)


def finish_stage(store: Store, run: str, iteration: int, stage: Stage, result: dict[str, Any] | None = None) -> None:
    with store.write() as session:
        key = {"run": run, "iteration": iteration, "stage": stage, "owner": "host:1:2"}
        queries.ledger.claim_stage(session, **key, lease_seconds=60)
        queries.ledger.finish_stage(session, **key, result=result or {})


def half_written(run: str, t: int) -> str:
    """The name of a folder into which a Solver is copied."""
    return f".tmp-{run}-solver-{t}-abc_1234"
