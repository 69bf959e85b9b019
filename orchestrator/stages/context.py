"""What every stage gets: the run, which stage of it this is, and what stages do alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Generic

from sqlalchemy.orm import Session

from core.errors import CoevoError
from core.processes.faultpoints import faultpoint
from core.seeds import seed_for
from core.settings.config import CoEvolution
from core.statistics.guard import WATCHED, TrainingHistory
from core.types import Checkpoint, Role, Stage, StageKey
from orchestrator.costs import Meter, refuse_spent
from orchestrator.ledger import repeated, stage_write
from orchestrator.reporting.run_log import say
from orchestrator.run import Config_co, Progress, Run
from orchestrator.serving.checkpoints import reserved, serve_checkpoints
from orchestrator.serving.turns import exclusive_use
from orchestrator.stages.chain import Chain
from services.inference.client import InferenceClient, Reply
from services.inference.engines.base import Prompt
from services.views.reasons import turn_note
from storage import queries
from storage.session import DATABASE_ERRORS, Store


class StageError(CoevoError):
    """A stage cannot use what the stages before it stored; the message says what is wrong."""


def key_of(iteration: int) -> str:
    """`Context.iteration_key` of an iteration."""
    return f"iteration {iteration}"


def solver_steps(session: Session, run: str, iteration: int) -> list[dict[str, float]]:
    """The metrics of the Solver's training in an iteration, one dictionary a step. Values that are no numbers are left
    out."""
    steps: dict[int, dict[str, float]] = {}
    for metric in queries.figures.train_metrics_of(session, run, iteration=iteration, role="solver"):
        if metric.value is not None:
            steps.setdefault(metric.step, {})[metric.name] = metric.value
    return [steps[step] for step in sorted(steps)]


@dataclass(slots=True)
class _Turn:
    """A stage's wait for the inference applications: its note is always about who has them, its log says it once."""

    note: Callable[[str], None]
    waits_since: float | None = None  # by time.monotonic; None: it has not had to wait

    def wait(self, holder: str) -> None:
        self.note(turn_note(holder))
        if self.waits_since is None:
            self.waits_since = time.monotonic()
            say(turn_note(holder))

    def end(self) -> None:
        if self.waits_since is not None:
            say(f"got its turn with the inference applications after {time.monotonic() - self.waits_since:.0f} s")


@dataclass(frozen=True, slots=True)
class Context(Generic[Config_co]):
    """Everything that a stage gets."""

    run: Run[Config_co]
    iteration: int
    stage: Stage
    progress: Progress

    @property
    def config(self) -> Config_co:
        return self.run.config

    @property
    def store(self) -> Store:
        return self.run.store

    @property
    def key(self) -> StageKey:
        return StageKey(self.run.name, self.iteration, self.stage)

    @property
    def work_dir(self) -> Path:
        """The folder for files that are needed only until the stage is done."""
        return self.run.home.work / self.run.name / str(self.iteration) / self.stage

    def write(self) -> AbstractContextManager[Session]:
        """One transaction for rows of this stage (`ledger.stage_write`). Raises `LeaseLost`."""
        return stage_write(self.store, self.key)

    def refuse_lost(self) -> None:
        """Raise `LeaseLost` if this process has lost the stage. To be called before a file is written."""
        with self.write():
            return

    def note(self, note: str) -> None:
        """Report what the stage waits for or does while it makes no progress; an empty note ends the last one."""
        self.progress(0, 0, note)

    def batch_done(self, done: int, total: int, note: str) -> None:
        """Report progress after a batch was stored. Raises `BudgetSpent` if the run shall end here."""
        faultpoint("batch stored", f"{self.iteration}/{self.stage}/{note}/{done}")
        self.progress(done, total, note)
        refuse_spent(self.store, self.run.name, self.config)

    def seed(self, *key: str | int) -> int:
        """A seed that derives from the run's seed, the iteration and `key`."""
        return seed_for(self.config.seed, self.iteration_key, *key)

    @property
    def iteration_key(self) -> str:
        """The part of a seed's key that names the iteration. The run's name is no part of it, so that a run under
        another name gives the same results."""
        return key_of(self.iteration)

    def chain(self, session: Session) -> Chain:
        """The run's checkpoints as this iteration sees them."""
        return Chain(session, self.run.name, self.config, self.iteration)

    def checkpoint(self, role: Role, iteration: int | None = None) -> Checkpoint:
        """`Chain.checkpoint`: the newest checkpoint of the model that plays `role`."""
        with self.store.read() as session:
            return self.chain(session).checkpoint(role, iteration)

    def training_history(self) -> TrainingHistory:
        """The training steps of earlier rounds that led to this round's start, for the guard.

        The rounds on given prompts are one training. The latest steps are left out if a person was asked about them and
        decided to go on. A co-evolution run has no such history.
        """
        if isinstance(self.config, CoEvolution):
            return TrainingHistory()
        checkpoint, rounds = self.checkpoint("solver", self.iteration - 1), list[Checkpoint]()
        with self.store.read() as session:
            while checkpoint.role == "solver":
                rounds.insert(0, checkpoint)
                assert checkpoint.parent is not None  # only the base model has none
                checkpoint = queries.checkpoints.get_checkpoint(session, checkpoint.parent)
            steps = [step for solver in rounds for step in solver_steps(session, self.run.name, solver.iteration)]
            last = rounds[-1].iteration if rounds else 0
            asked = queries.ledger.result_of(session, self.run.name, last, "ask_a_person") is not None
        watched = [{name: step[name] for name in WATCHED if name in step} for step in steps]
        window = self.config.guard.window
        return TrainingHistory(tuple(watched[:window]), () if asked else tuple(watched[-window:]))

    @contextmanager
    def serving(
        self,
        checkpoints: Mapping[Role, Checkpoint],
        fixed: Sequence[str] = (),
        for_later: Mapping[Role, Checkpoint] = MappingProxyType({}),
    ) -> Iterator[None]:
        """Have the inference applications to itself while the block runs.

        The application of each role in `checkpoints` holds the role's checkpoint. The applications in `fixed`, whose
        model never changes, are up. Those of the roles in `for_later` are started for a later stage. This waits until
        no other run uses the applications; the time of waiting counts as the stage's. Meanwhile the stage's note names
        the stage that has them.
        """
        now, later = self._by_application(checkpoints), self._by_application(for_later)
        me, turn = f"{self.run}'s {self.stage} {self.iteration}", _Turn(self.note)
        with exclusive_use(self.run.home, me, turn.wait):
            turn.end()
            since = time.monotonic()
            self.note("loading weights into the inference applications")
            serve_checkpoints(self.run.services, now, self.config.serving, fixed, later)
            faultpoint("weights loaded")
            self.note("")
            meter = Meter(self.key, "applications", reserved(self.run.services), since)
            try:
                with repeated(self.store, meter.charge, "applications"):
                    yield
            finally:
                with suppress(*DATABASE_ERRORS), self.store.write() as session:
                    meter.charge(session)

    def _by_application(self, checkpoints: Mapping[Role, Checkpoint]) -> dict[str, Checkpoint]:
        return {self.config.application(role): checkpoint for role, checkpoint in checkpoints.items()}

    @contextmanager
    def replies_in_order(
        self, role: Role, checkpoint: Checkpoint, batches: Iterable[Sequence[Prompt]]
    ) -> Iterator[Iterator[list[list[Reply]]]]:
        """The replies to each batch, in the order of the batches; `serving.batches` of them are sent at once."""
        application = self.config.application(role)
        client = InferenceClient(self.run.services.endpoint(application), application)

        def announced() -> Iterator[Sequence[Prompt]]:
            for batch in batches:
                faultpoint("batch begun", f"{self.iteration}/{self.stage}/{batch[0].seed if batch else 0}")
                yield batch

        with closing(client.generate_in_turn(announced(), checkpoint.id, self.config.serving.batches)) as replies:
            yield replies
