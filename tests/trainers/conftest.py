from __future__ import annotations

from collections.abc import Iterator

import pytest
from two_ranks import Pair, two_ranks


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The two ranks, started once for all tests that need them."""
    with two_ranks(tmp_path_factory.mktemp("gloo") / "rendezvous") as both:
        yield both
