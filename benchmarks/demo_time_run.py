"""Runs the demo in this process and records when it grades: `python -m benchmarks.demo_time_run RUN ITERATIONS`.

The last line of its output is a JSON list of [begin, end] intervals, in seconds since the epoch.
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
from orchestrator.evaluation.answering import graded
from orchestrator.stages.audit_labels import audited_labels

_intervals: list[tuple[float, float]] = []


def _timed(grade: Callable[..., Any]) -> Callable[..., Any]:
    """`grade`, wrapped so that each call records its interval."""

    def timed(*arguments: Any) -> Any:
        begin = time.time()
        try:
            return grade(*arguments)
        finally:
            _intervals.append((begin, time.time()))

    return timed


def main(run: str, iterations: int) -> None:
    with (
        patch("orchestrator.stages.label_questions.vote_many", _timed(vote_many)),
        patch("orchestrator.evaluation.answering.graded", _timed(graded)),
        patch("orchestrator.stages.audit_labels.audited_labels", _timed(audited_labels)),
    ):
        flows.co_evolve(run, "demo", iterations)
    print(json.dumps(_intervals))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
