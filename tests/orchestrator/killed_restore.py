"""`python -m tests.orchestrator.killed_restore HOME ARCHIVE POINT`: restores an archive, and ends this process as
abruptly as by `kill -9` when it first reaches the fault point after it has a lease."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from core.faultpoints import FaultPoint, arm
from orchestrator.disk.restore import restore
from orchestrator.installation.home import Home
from storage.session import open_store

KILLED = 137


def main(home: Home, archive: Path, point: str) -> None:
    claimed = False

    def kill(name: FaultPoint, _unit: str) -> None:
        nonlocal claimed
        claimed = claimed or name == "run claimed"
        if claimed and name == point:
            os._exit(KILLED)

    arm(kill)
    restore(home, open_store(home.database), archive)


if __name__ == "__main__":
    main(Home(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3])
