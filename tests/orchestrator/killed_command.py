"""`python -m tests.orchestrator.killed_command POINT UNIT COMMAND…`: runs `coevo COMMAND…`, and ends this process with
SIGKILL when it first reaches the fault point with a unit that begins with UNIT.

To poll the store for the middle of a short stage would be to miss it now and then.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from core.processes.faultpoints import FaultPoint, arm
from orchestrator.cli import app


def main(point: str, unit: str, command: Sequence[str]) -> None:
    def kill(name: FaultPoint, at: str) -> None:
        if name == point and at.startswith(unit) and not at.endswith("/0"):  # a stage reports 0 when it begins
            os.kill(os.getpid(), signal.SIGKILL)

    arm(kill)
    app(command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
