"""When a training reached a pass@1, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.refill import reached

OUTCOME: dict[str, Any] = {
    "curve": [(2, 0.45, 0.0), (4, 0.4, 0.0), (6, 0.6, 0.0)],
    # 32 prompts with 8 rollouts a step; the last two steps had as many prompts again
    "metrics": [{"response_length": 10.0, "refilled": 0.0}] * 4 + [{"response_length": 20.0, "refilled": 32.0}] * 2,
}


@pytest.mark.parametrize(
    ("level", "steps", "tokens"),
    [
        (0.3, 0.5, 0.25 * 2 * 2560),  # a quarter of the way from the base's 0.25 to 0.45
        (0.45, 2, 2 * 2560),
        (0.55, 5.5, 4 * 2560 + 0.75 * 2 * 10240),
    ],
)
def test_steps_and_tokens_to_a_pass_at_1(level: float, steps: float, tokens: float) -> None:
    assert reached(level, 0.25, OUTCOME) == pytest.approx((steps, tokens))


def test_a_pass_at_1_that_was_not_reached_has_no_figure() -> None:
    assert reached(0.61, 0.25, OUTCOME) is None
