from __future__ import annotations

import pytest
from store_examples import fresh_run

from storage.session import Store


@pytest.fixture
def run(store: Store) -> str:
    """A run with its base model and nothing else."""
    return fresh_run(store)
