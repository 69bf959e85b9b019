"""What a replica of the embedded engine does with a checkpoint, without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from core.types import Checkpoint
from orchestrator.installation.home import MICRO_MODEL
from services.inference.engines.base import ModelMismatch
from services.inference.server.app import ModelServer, ServerArgs
from services.inference.server.served import Served
from storage.errors import CheckpointError
from storage.files.checkpoints import publish

Server: Any = ModelServer.func_or_class.__bases__[0]  # the class itself, to which Serve adds the routes


@pytest.fixture
def base(tmp_path: Path) -> Checkpoint:
    return publish(MICRO_MODEL, tmp_path / "root", run="r", role="base", iteration=0, step=0, parent=None)


def test_a_training_s_weights_are_not_hashed_again_but_their_names_are_checked(
    tmp_path: Path, base: Checkpoint
) -> None:
    replica = Server(ServerArgs(role="solver"))
    replica._swap(Served(checkpoint=base.id, folder=Path(base.path), sha256=base.sha256))
    folder = tmp_path / "weights"
    folder.mkdir()
    for file in MICRO_MODEL.iterdir():
        (folder / file.name).symlink_to(file)
    weights = Served(checkpoint="r/1/train_solver@1", folder=folder, sha256="1" * 64, published=False)
    replica._swap(weights)
    assert replica._served == weights
    with pytest.raises(CheckpointError):
        replica._swap(weights.model_copy(update={"published": True}))
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_file(
        {name: tensor for name, tensor in tensors.items() if "layers.0" not in name}, folder / "model.safetensors"
    )
    with pytest.raises(ModelMismatch, match="missing"):
        replica._swap(weights.model_copy(update={"checkpoint": "r/1/train_solver@2"}))
    assert replica._served is None  # Serve restarts it
