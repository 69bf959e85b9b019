"""Real services for tests: Ray, Serve, Prefect and the flow runner, started once for a session of pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.processes.faultpoints import FaultPoint
from orchestrator.installation import cluster
from orchestrator.installation.environment import environment
from orchestrator.installation.home import Home, Services
from orchestrator.installation.ports import ANY_FREE
from storage.session import Store, open_store
from trainers.micro.world import make_benchmark

COEVO = Path(sys.executable).parent / "coevo"

# A run of one iteration: the smallest that still has several batches in every stage.
BENCHMARK_ITEMS = 300
SMALL = (
    "iterations=1",
    "rollout_text=all",
    "challenger.training.steps=3",
    "challenger.training.rollouts_per_prompt=16",
    "challenger.training.checkpoint_every=1",
    "challenger.training.workers=1",
    "dataset.candidates=300",
    "dataset.votes=4",
    "dataset.delta=0.5",
    "solver.training.steps=3",
    "solver.training.prompts_per_step=4",
    "solver.training.rollouts_per_prompt=4",
    "solver.training.checkpoint_every=1",
    "solver.training.workers=1",
    "evaluation.samples=2",
)


@dataclass(frozen=True)
class Live:
    """Running services, and the means to use them."""

    home: Home
    opened: Store

    @property
    def services(self) -> Services:
        """The services as they are now: a test may have killed one, and started it again."""
        return self.home.services()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of a process of these services."""
        return {**environment(self.home, self.services), "PREFECT_LOGGING_LEVEL": "WARNING"}

    @property
    def shell(self) -> dict[str, str]:
        """The environment variables of a user's shell: the commands find everything else in the home."""
        return {**os.environ, "COEVO_HOME": str(self.home.path)}

    @property
    def small(self) -> list[str]:
        """The settings of a small run, NAME=VALUE each."""
        return [*SMALL, f"evaluation.benchmark={self.home.path / 'benchmark.jsonl'}"]

    def small_run(self, name: str, *more: str) -> list[str]:
        """Arguments of `coevo` that start the small run under `name`, with these further settings."""
        return ["run", "demo", "--name", name, *(part for s in (*self.small, *more) for part in ("--set", s))]

    @property
    def few_questions(self) -> str:
        """The setting of a benchmark of few questions, for runs whose evaluations do not matter."""
        few = self.home.path / "few.jsonl"
        few.write_text("".join((self.home.path / "benchmark.jsonl").read_text().splitlines(keepends=True)[:24]))
        return f"evaluation.benchmark={few}"

    def pid(self, service: str) -> int:
        """The process that `coevo up` last started for a service."""
        return next(pid for pid, (name, _) in self.services.processes.items() if name == service)

    def coevo(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return subprocess.run([COEVO, *arguments], env=self.shell, capture_output=True, text=True, check=False)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the command; its process is the one that runs the flow."""
        log = (self.home.logs / "started.log").open("ab")
        return subprocess.Popen([COEVO, *arguments], env=self.shell, stdout=log, stderr=log)

    def start_killed_at(self, point: FaultPoint, unit: str, *arguments: str) -> subprocess.Popen[bytes]:
        """As `start`, for a command that kills itself at this fault point, with a unit that begins with `unit`."""
        log = (self.home.logs / "started.log").open("ab")
        killed = [sys.executable, "-m", "tests.orchestrator.killed_command", point, unit, *arguments]
        return subprocess.Popen(killed, env=self.shell, stdout=log, stderr=log)

    def store(self) -> Store:
        """One for all tests: each new one would compile its statements again."""
        return self.opened


@contextmanager
def live_services(folder: Path) -> Iterator[Live]:
    """Start the services as `coevo up` does, on free ports; end them after the block as `coevo down` does."""
    os.environ.pop("COEVO_DATABASE", None)
    home = Home(folder)
    store = open_store(home.database, create=True)
    problems = make_benchmark(seed=99, per_level=BENCHMARK_ITEMS // 6)
    items = [{"id": f"{i}", "problem": p.text, "answer": str(p.answer)} for i, p in enumerate(problems)]
    (folder / "benchmark.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    cluster.up(home, ANY_FREE, lambda _line: None)
    try:
        yield Live(home, store)
    finally:
        cluster.down(home)


@contextmanager
def terminated(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """Terminate the process when the block ends: else a failed assertion would wait for it for ever, or later tests
    would find it running."""
    try:
        yield process
    finally:
        process.terminate()


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = 300.0) -> None:
    """Poll a condition until it is true; fail after `patience_s`, and name `what` was waited for."""
    deadline = time.monotonic() + patience_s
    while True:
        checked_at = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < deadline, f"waited {patience_s:g} s for {what}"
        # Others need the processor, so poll a twentieth of the time; a check that had to wait for it says nothing.
        time.sleep(min(0.3, max(0.01, 19 * (now - checked_at))))
