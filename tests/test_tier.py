"""A tier of the tests says how long it took, and fails when that is too long."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TIER = Path(__file__).with_name("tier.sh")


@pytest.mark.parametrize(
    ("minutes", "command", "status", "is_too_long"),
    [
        ("1", "true", 0, False),
        ("1", "exit 3", 3, False),
        ("0", "sleep 1.1", 1, True),
        ("0", "sleep 1.1; exit 3", 3, False),  # why it failed matters more than how long it took
    ],
)
def test_a_tier_keeps_its_budget(minutes: str, command: str, status: int, is_too_long: bool) -> None:
    done = subprocess.run(
        [TIER, "make test", minutes, "bash", "-c", command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "make test" in done.stderr) == (status, is_too_long)
    assert f"of a budget of {minutes} min" in done.stdout
