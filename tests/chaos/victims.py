"""The processes that a campaign kills, and how each comes back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, get_args

import psutil

from orchestrator.installation import cluster
from orchestrator.installation.home import Home
from orchestrator.installation.ports import ANY_FREE

# The driver is the run's own process. It is killed, or suspended until another process has taken over the run. A flow
# is the process of a run on which the flow runner works.
Victim = Literal["driver", "suspended", "flow", "replica", "trainer", "api", "runner", "prefect", "ray"]
VICTIMS: tuple[Victim, ...] = get_args(Victim)
OF_THE_RUN: tuple[Victim, ...] = ("driver", "suspended")
OF_A_WHOLE_RUN: tuple[Victim, ...] = ("flow", "trainer")  # drawn once for a run: all its processes are of this kind

# How often each is killed in an attempt in which the driver is killed too; of `OF_A_WHOLE_RUN`, how often they are
# drawn for a run. Ray takes the driver and Serve with it, and needs half a minute to come back.
ODDS: dict[Victim, float] = {
    "suspended": 0.1,
    "flow": 0.04,
    "replica": 0.08,
    "trainer": 0.08,
    "api": 0.02,
    "runner": 0.01,
    "prefect": 0.01,
    "ray": 0.005,
}
# A run whose trainer or Ray was killed may end with an error. It must go on when it is resumed.
MAY_END_THE_RUN: frozenset[Victim] = frozenset({"trainer", "ray"})
_ENDS_S = 30.0  # in which a killed process has ended
_TITLES: dict[Victim, str] = {"replica": "ServeReplica:", "trainer": "TrainingWorker"}  # of Ray's processes


def kill_one(home: Home, victim: Victim, rng: random.Random) -> bool:
    """Kill -9 a process of this kind, and wait for its end; False if there is none now."""
    with suppress(psutil.NoSuchProcess):
        processes = sorted(_processes(home, victim), key=lambda process: process.pid)
        if processes:
            victim_process = rng.choice(processes)
            victim_process.kill()
            psutil.wait_procs([victim_process], timeout=_ENDS_S)  # else `bring_back` might still see it alive
            return True
    return False


def bring_back(home: Home) -> None:
    """Start the services that have ended again, as an operator does. Ray and Serve start their own processes again."""
    if cluster.ended(home):
        cluster.up(home, ANY_FREE, lambda _line: None)


def _processes(home: Home, victim: Victim) -> Iterator[psutil.Process]:
    for pid, (name, _) in home.services().processes.items():
        if victim in _TITLES and name == "ray":
            for process in psutil.Process(pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if _TITLES[victim] in " ".join(process.cmdline()):
                        yield process
        elif victim == name:
            yield psutil.Process(pid)
