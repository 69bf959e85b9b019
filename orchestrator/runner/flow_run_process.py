"""The process of a flow run: Prefect's own program, with the guard of `services.listeners`.

Prefect's program sends the password before it imports the flow. So the guard must begin before it.
"""

from __future__ import annotations

import runpy
import shlex
import sys
from functools import partial

from core.processes.imports import collection_paused
from services.prefect.server import PrefectServer

_PROGRAM = "prefect.engine"  # which `prefect.runner` starts


def use_for_flow_runs() -> None:
    """Have Prefect's runner in this process start flow runs with this module."""
    from prefect.runner import runner
    from prefect.runner._starter_engine import EngineCommandStarter

    command = shlex.join([sys.executable, "-m", __name__])
    vars(runner)[EngineCommandStarter.__name__] = partial(EngineCommandStarter, command=command)


def main() -> None:
    """Run the flow run that the environment names."""
    PrefectServer.from_environment()
    with collection_paused():
        from orchestrator import flows  # noqa: F401 (which the program imports)
    runpy.run_module(_PROGRAM, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
