"""`python -m tests.fuzzing SECONDS [TARGET …]`: try hostile input by chance for so long, an equal time for each target.

It prints, as JSON, for each target how many inputs were tried, how long the slowest took, and what was found. What is
found goes to standard error at once, with the smallest input that Hypothesis knows; the exit status is then 1. An input
that takes more than a minute ends the process with the stacks of its threads.
"""

from __future__ import annotations

import faulthandler
import json
import random
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

import hypothesis
from hypothesis import HealthCheck, given

from tests.fuzzing.targets import TARGETS, Target, resources

_AT_ONCE = 100  # inputs of one call of Hypothesis, which remembers them
_LONGEST_S = 60


@dataclass
class Tried:
    """What was tried of a target."""

    inputs: int = 0
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    def once(self, target: Target, seconds: float) -> None:
        """Try inputs until the time is over, or `_AT_ONCE` of them. The same failure is noted once."""
        end, holds = time.monotonic() + seconds, True

        @hypothesis.seed(random.randrange(2**32))
        @hypothesis.settings(
            max_examples=_AT_ONCE, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(**target.inputs)
        def check(**values: Any) -> None:
            nonlocal holds
            started = time.monotonic()
            if started > end and holds:  # once an input has failed, Hypothesis looks for a smaller one
                return
            faulthandler.dump_traceback_later(_LONGEST_S, exit=True)
            self.inputs += 1
            before, holds = holds, False
            try:
                target.check(**values)
                holds = before
            finally:
                faulthandler.cancel_dump_traceback_later()
                self.slowest_s = max(self.slowest_s, time.monotonic() - started)

        try:
            check()
        except Exception as error:  # noqa: BLE001 (whatever is raised is what was looked for)
            for one in error.exceptions if isinstance(error, ExceptionGroup) else [error]:
                self._note(one)

    def _note(self, error: Exception) -> None:
        last = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__} in {last.name}, {last.filename}:{last.lineno}"
        if failure not in self.failures:
            self.failures.append(failure)
            lines = "".join(traceback.format_exception(error))
            print(f"{lines[:3_000]}\n...\n{lines[-3_000:]}", file=sys.stderr, flush=True)


def main(seconds: float, names: list[str]) -> dict[str, Any]:
    with resources() as shared:
        chosen = {name: TARGETS[name](shared) for name in names or TARGETS}
        tried, end = {name: Tried() for name in chosen}, time.monotonic() + seconds
        share = min(60.0, seconds / len(chosen))
        while time.monotonic() < end:
            for name, target in chosen.items():
                until = time.monotonic() + share
                while time.monotonic() < min(until, end):
                    tried[name].once(target, until - time.monotonic())
            print({name: target.inputs for name, target in tried.items()}, file=sys.stderr, flush=True)
    return {name: {**vars(target), "slowest_s": round(target.slowest_s, 2)} for name, target in tried.items()}


if __name__ == "__main__":
    result = main(float(sys.argv[1]), sys.argv[2:])
    print(json.dumps(result, indent=1))
    sys.exit(any(target["failures"] for target in result.values()))
