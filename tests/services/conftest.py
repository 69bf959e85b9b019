"""What tests of services share: an API and a dashboard with a stored run, and two checkpoints of live applications."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_examples import fill
from fastapi.testclient import TestClient

from core.types import Checkpoint
from storage.session import Store
from tests.api_server import api_of, serving
from tests.live import Live
from tests.served import base_checkpoint, scaled_checkpoint


@pytest.fixture
def filled(store: Store) -> Store:
    """A store with the run of `api_examples`."""
    fill(store)
    return store


@pytest.fixture
def api(filled: Store, tmp_path: Path) -> TestClient:
    """The API of this run, without keys."""
    return api_of(filled, tmp_path / "exports")


@pytest.fixture(scope="module")
def address(stored: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a dashboard, for a module that fills the store: it overrides `stored`."""
    with serving(stored, tmp_path_factory.mktemp("exports")) as url:
        yield url


@pytest.fixture(scope="session")
def base(live: Live) -> Checkpoint:
    return base_checkpoint(live)


@pytest.fixture(scope="session")
def other(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return scaled_checkpoint(live, tmp_path_factory.mktemp("other") / "model", 0.97, iteration=1)
