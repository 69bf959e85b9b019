from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_tiny import answering_model, save_tiny
from two_ranks import Pair, two_ranks


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two ranks, started once for all tests that need them."""
    with two_ranks(tmp_path_factory.mktemp("gloo") / "rendezvous") as run_on_both:
        yield run_on_both


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that a job can start from and improve."""
    return save_tiny(tmp_path_factory.mktemp("model"), answering_model())
