"""Files of runs in a home, for the tests of what is removed from the disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from core.types import CheckpointRole
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
