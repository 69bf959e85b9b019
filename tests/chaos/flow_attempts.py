"""A process in which the flow runner works on a run, as after a start in Prefect's UI or over REST."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import httpx
import psutil

from core.texts.unicode import from_json
from orchestrator.installation.home import Home
from services.prefect.client import Prefect
from services.prefect.flow_runs import ACTIVE, EXISTING
from tests.chaos.attempts import Attempt, Ended
from tests.chaos.small_run import ITERATIONS, NAME, PRESET, exists

_ASK_S = 0.2  # between two questions to Prefect
_STARTS_S = 60.0  # in which the runner has started the process
_FLOW_RUN = "PREFECT__FLOW_RUN_ID"  # Prefect's variable in the process of a flow run
_CODES = {"COMPLETED": 0, "CRASHED": -signal.SIGKILL}  # state -> exit code; that of all others is 1


class FlowAttempt(Attempt):
    """A flow run of the runner, which begins the run `small_run.NAME` with these settings, or goes on with it."""

    def __init__(self, home: Home, settings: Mapping[str, Any], number: int) -> None:
        super().__init__(number, None)
        self._server = home.services().prefect
        self._ended: Ended | None = None
        self._asked = 0.0
        begins = {"preset": PRESET, "iterations": ITERATIONS, "overrides": settings}
        prefect = Prefect(self._server)
        before = prefect.flow_runs(NAME)
        self._id = prefect.start("co_evolve", NAME, {"preset": EXISTING} if exists(home) else begins, before).id

    def poll(self) -> Ended | None:
        if self._ended is None and time.monotonic() - self._asked > _ASK_S:
            self._asked = time.monotonic()
            with suppress(httpx.TransportError):  # Prefect was killed and is not back yet
                answer = self._server.request("GET", f"/flow_runs/{self._id}", None, 30)
                state = from_json(answer.raise_for_status().content)["state"]
                if state["type"] not in (*ACTIVE, "SCHEDULED"):
                    self.message = f"{state['name']}: {state['message']}"
                    self._ended = Ended(_CODES.get(state["type"], 1), self.seconds)
        return self._ended

    def kill(self) -> None:
        """Kill its process as soon as the runner has started one."""
        self.wait(_STARTS_S, lambda: any(True for _ in self._processes()))
        for process in self._processes():
            process.kill()

    def end_hanging(self) -> None:
        self.kill()
        self.wait(30.0)

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(_FLOW_RUN) == self._id:
                    yield process
