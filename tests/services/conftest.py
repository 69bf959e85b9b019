"""Two checkpoints that the live applications are swapped between, and a Prefect server that runs are triggered with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prefect_server import prefect_server

from core.types import Checkpoint
from tests.live import Live
from tests.served import base_checkpoint, scaled_checkpoint


@pytest.fixture(scope="session")
def base(live: Live) -> Checkpoint:
    return base_checkpoint(live)


@pytest.fixture(scope="session")
def other(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return scaled_checkpoint(live, tmp_path_factory.mktemp("other") / "model", 0.97, iteration=1)


@pytest.fixture(scope="session")
def prefect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prefect server without a worker."""
    with prefect_server(tmp_path_factory.mktemp("prefect")) as url:
        yield url
