"""The loop of `scripted_loop` under one fault.

Processes work on the run, one after another or at once, until one of them has ended it. A fault is a function of this
module.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import select, text, update

from core.processes.faultpoints import FaultPoint, arm
from orchestrator.installation.home import Home
from storage.models import RunLeases, Stages
from storage.session import open_store
from storage.trouble import in_words
from tests.chaos.attempts import Fork
from tests.chaos.campaign import stored_and_deleted
from tests.chaos.contents import differences
from tests.chaos.killed_run import PATIENCE_S, last_lines
from tests.chaos.outcome import Outcome
from tests.chaos.scripted_loop import scripted_run
from tests.chaos.trace import Trace

_LEDGER: tuple[FaultPoint, ...] = ("run claimed", "stage claimed", "batch stored", "stage ready to end", "stage ended")
_CLOCK_MOVES: tuple[FaultPoint, ...] = ("stage claimed", "batch begun", "step ended", "stage ended")
# Bytes that each process may write more than the one before: while the base model is copied, and in the stages.
_COPYING, _WORKING = 64 * 1024, 32 * 1024
_AT_ONCE, _TRIGGERS = 4, 20
KILLED_IN = "killed-in"  # the folder that has a file for each stage in which a process was killed


@dataclass
class Processes:
    """The processes that have worked on the run."""

    home: Home
    folder: Path
    work: Callable[[bool], None]
    count: int = 0
    errors: list[str] = field(default_factory=list)

    def begin(self, action: Callable[[FaultPoint, str], None] | None = None) -> Fork:
        """Start a process whose fault points call `action`."""
        self.count += 1

        def work() -> None:
            arm(action)
            try:
                self.work(False)
            except Exception as error:
                raise in_words(error) from error  # as `coevo run` does

        return Fork(work, Trace(self.folder / "trace"), self.count, None, self._log_of(self.count))

    def last_lines_of(self, attempt: Fork) -> str:
        """The end of what a process has printed; the message of a database may have several lines."""
        return last_lines(self._log_of(attempt.number), 3)

    def _log_of(self, number: int) -> Path:
        return self.folder / f"{number}.log"

    def has_ended_the_run(self, attempt: Fork) -> bool:
        """Wait for a process. Its error is noted if it has failed."""
        ended = attempt.wait(PATIENCE_S)
        assert ended is not None, "it hangs"
        if ended.code > 0:
            self.errors.append(self.last_lines_of(attempt))
        return ended.code == 0

    def one_after_another(self, action: Callable[[FaultPoint, str], None], before: Callable[[], None]) -> None:
        """`before` is called before each process starts."""
        before()
        while not self.has_ended_the_run(self.begin(action)):
            before()


def crashes(processes: Processes) -> None:
    """Every other write to the ledger is the last thing that a process does."""
    rng = random.Random(1)

    def crash(name: FaultPoint, _unit: str) -> None:
        if name in _LEDGER and rng.random() < 0.5:
            os.kill(os.getpid(), signal.SIGKILL)

    processes.one_after_another(crash, lambda: rng.seed(processes.count))


def stages(processes: Processes) -> None:
    """In each stage, a process is killed when it has stored its first batch or ended its first step."""
    (processes.folder / KILLED_IN).mkdir()

    def kill(name: FaultPoint, unit: str) -> None:
        *stage, part = unit.split("/")
        file = processes.folder / KILLED_IN / "-".join(stage)
        if name in ("batch stored", "step ended") and part != "0" and not file.exists():  # 0: a stage has begun
            file.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    processes.one_after_another(kill, lambda: None)


def clock(processes: Processes) -> None:
    """The database's clock moves an hour forward or back, again and again, and processes are killed.

    The leases move instead: it is only their distance to the clock that counts.
    """
    rng = random.Random(1)

    def move(name: FaultPoint, _unit: str) -> None:
        if name in _CLOCK_MOVES and rng.random() < 0.3:
            store = open_store(processes.home.database)
            hour = timedelta(hours=rng.choice((-1, 1)))
            with store.write() as session:
                for expires in (RunLeases.expires, Stages.lease_expires):
                    for at in session.scalars(select(expires).where(expires.is_not(None)).distinct()).all():
                        session.execute(update(expires.class_).where(expires == at).values({expires.key: at + hour}))
        elif name in _CLOCK_MOVES and rng.random() < 0.2:
            os.kill(os.getpid(), signal.SIGKILL)

    processes.one_after_another(move, lambda: rng.seed(processes.count))


def cut(processes: Processes) -> None:
    """PostgreSQL cuts all connections while a transaction is about to be committed, or one of its own processes is
    killed, so that it starts again and recovers from its log."""
    rng = random.Random(1)
    others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"

    def cut_all(name: FaultPoint, _unit: str) -> None:
        if name != "transaction complete" or rng.random() > 0.1:
            return
        with open_store(processes.home.database).read() as session:
            if rng.random() < 0.3:
                os.kill(session.scalars(text(f"SELECT pid {others}")).first() or 0, signal.SIGKILL)
            else:
                session.execute(text(f"SELECT pg_terminate_backend(pid, 30000) {others}"))

    processes.one_after_another(cut_all, lambda: rng.seed(processes.count))


def full_disk(processes: Processes) -> None:
    """The disk of the home is full, later and later."""
    ballast = processes.home.path / "ballast"
    with ballast.open("wb") as file:
        free = os.statvfs(processes.home.path)
        size = (free.f_bavail - 1) * free.f_frsize
        os.posix_fallocate(file.fileno(), 0, size)
    while not processes.has_ended_the_run(processes.begin()):
        size -= _WORKING if "StorageUnusable" in processes.errors[-1] else _COPYING
        assert size > 0, processes.errors
        os.truncate(ballast, size)
    ballast.unlink()


def rivals(processes: Processes) -> None:
    """Several processes start at once, and the one that works is killed, again and again."""
    rng, done = random.Random(1), False

    def crash(name: FaultPoint, _unit: str) -> None:
        if name in _LEDGER and rng.random() < 0.2:
            os.kill(os.getpid(), signal.SIGKILL)

    while not done:
        attempts = []
        for _ in range(_AT_ONCE):
            rng.seed(processes.count)
            attempts.append(processes.begin(crash))
        done = True in [processes.has_ended_the_run(attempt) for attempt in attempts]


def triggers(processes: Processes) -> None:
    """Twenty processes start at once, as if an iteration was triggered twenty times in Prefect's UI."""
    attempts = [processes.begin() for _ in range(_TRIGGERS)]
    ended = [processes.has_ended_the_run(attempt) for attempt in attempts]
    assert ended.count(True) >= 1, processes.errors


def outcome_under(fault: str, folder: Path, database: str) -> dict[str, Any]:
    """How many processes there were, the last line of each that failed, and what differs from a run without a fault."""
    os.environ["COEVO_DATABASE"] = database
    home, outcome = Home(folder / "home"), Outcome()
    with scripted_run(home, folder) as work:
        processes = Processes(home, folder, work)
        assert processes.has_ended_the_run(processes.begin()), processes.errors
        expected, processes.count = stored_and_deleted(home, outcome), 0
        globals()[fault](processes)
        outcome.violations += differences(expected, stored_and_deleted(home, outcome))
    return {
        "processes": processes.count,
        "errors": processes.errors,
        "violations": [violation[:1000] for violation in outcome.violations[:10]],
    }
