"""Two checkpoints, between which the tests swap the live applications."""

from __future__ import annotations

import pytest

from core.types import Checkpoint
from tests.live import Live
from tests.served import base_checkpoint, scaled_checkpoint


@pytest.fixture(scope="session")
def base(live: Live) -> Checkpoint:
    return base_checkpoint(live)


@pytest.fixture(scope="session")
def other(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return scaled_checkpoint(live, tmp_path_factory.mktemp("other") / "model", 0.97, iteration=1)
