"""A run of the demo in this process, which notes when it graded: `python -m benchmarks.demo_time_run RUN ITERATIONS`.

Its last line is a JSON list of [begin, end], in seconds since the epoch.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from core.questions.voting import vote_many
from orchestrator import flows
from orchestrator.stages.auditing import _graded
from orchestrator.stages.measuring import graded

_grading: list[tuple[float, float]] = []


def _noted(grade: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        begin = time.time()
        try:
            return grade(*arguments)
        finally:
            _grading.append((begin, time.time()))

    return noted


def main(run: str, iterations: int) -> None:
    with (
        patch("orchestrator.stages.dataset.vote_many", _noted(vote_many)),
        patch("orchestrator.stages.measuring.graded", _noted(graded)),
        patch("orchestrator.stages.auditing._graded", _noted(_graded)),
    ):
        flows.co_evolve(run, "demo", iterations)
    print(json.dumps(_grading))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
