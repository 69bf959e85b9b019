"""Hostile input by chance; `python -m tests.fuzzing` tries more of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzzing.targets import TARGETS, Resources, resources

pytestmark = pytest.mark.slow

_INPUTS, _EXPORTS = 40, 5  # of each target; an export takes a second


@pytest.fixture(scope="module")
def shared() -> Iterator[Resources]:
    with resources() as opened:
        yield opened


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_input_is_read_or_refused(name: str, shared: Resources) -> None:
    target = TARGETS[name](shared)

    @settings(max_examples=_EXPORTS if name == "exports" else _INPUTS, suppress_health_check=list(HealthCheck))
    @given(**target.inputs)
    def check(**values: Any) -> None:
        target.check(**values)

    check()
