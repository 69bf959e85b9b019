"""What every stage is given, and what all stages share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Generic

from sqlalchemy.orm import Session
from typing_extensions import TypeVar

from core.errors import CoevoError
from core.seeds import seed_for
from core.settings.config import CoEvolution, RunConfig
from core.statistics.guard import WATCHED, TrainingHistory
from core.types import Checkpoint, Role, checkpoint_id
from orchestrator.installation.home import Home, Services
from orchestrator.serving.checkpoints import serve_checkpoints, turn
from services.inference.client import InferenceClient, Reply
from services.inference.engines.base import Prompt
from storage import queries
from storage.session import Store

BATCH = 128  # questions a transaction; part of what makes a run reproducible, so not a setting


class StageError(CoevoError):
    """A stage cannot go on with what the stages before it left; the message says what is wrong."""


def solver_steps(session: Session, run: str, iteration: int) -> list[dict[str, float]]:
    """The metrics of the Solver's training in an iteration, step by step; what was not a number is left out."""
    steps: dict[int, dict[str, float]] = {}
    for metric in queries.figures.train_metrics_of(session, run, iteration=iteration, role="solver"):
        if metric.value is not None:
            steps.setdefault(metric.step, {})[metric.name] = metric.value
    return [steps[step] for step in sorted(steps)]


# Of both kinds of run, or of the one that has the stage.
Config_co = TypeVar("Config_co", bound=RunConfig, default=RunConfig, covariant=True)
Progress = Callable[[int, int, str], None]  # done, of how many, a word on it


@dataclass(frozen=True, slots=True)
class Context(Generic[Config_co]):
    """Everything that a stage needs to know."""

    home: Home
    store: Store
    services: Services
    run: str
    config: Config_co
    iteration: int
    progress: Progress

    def seed(self, *key: str | int) -> int:
        return seed_for(self.config.seed, self.iteration_key, *key)

    @property
    def iteration_key(self) -> str:
        """What seeds derive from: not the run's name, so that a run under another name repeats this one."""
        return f"iteration {self.iteration}"

    def checkpoint(self, role: Role, iteration: int) -> Checkpoint:
        """The newest checkpoint of `role` up to `iteration`, or what the guard went back to since; the base model where
        there is none."""
        with self.store.read() as session:
            back = [
                (t, to)
                for t, to in queries.ledger.rolled_back(session, self.run)
                if t <= iteration and t < self.iteration
            ]
            since, to = back[-1] if back else (-1, {})
            own = [
                c
                for c in queries.checkpoints.checkpoints_of(session, self.run, role)
                if since < c.iteration <= iteration
            ]
            if own:
                return own[-1]
            return queries.checkpoints.get_checkpoint(session, to.get(role) or checkpoint_id(self.run, "base", 0))

    def training_history(self) -> TrainingHistory:
        """For the guard, where rounds on given prompts are one training: the steps that led to this round's start.

        Not those just before it where a person has looked at them and said to go on.
        """
        if isinstance(self.config, CoEvolution):
            return TrainingHistory()
        start, rounds = self.checkpoint("solver", self.iteration - 1), list[Checkpoint]()
        with self.store.read() as session:
            while start.role == "solver":
                rounds.insert(0, start)
                start = queries.checkpoints.get_checkpoint(session, start.parent or checkpoint_id(self.run, "base", 0))
            done = [step for done_round in rounds for step in solver_steps(session, self.run, done_round.iteration)]
            last = rounds[-1].iteration if rounds else 0
            asked = queries.ledger.find_stage(session, run=self.run, iteration=last, stage="ask_a_person")
        looked_at = [{name: step[name] for name in WATCHED if name in step} for step in done]
        window = self.config.guard.window
        return TrainingHistory(tuple(looked_at[:window]), () if asked else tuple(looked_at[-window:]))

    @contextmanager
    def serving(
        self,
        wanted: dict[str, Checkpoint],
        fixed: Sequence[str] = (),
        soon: dict[str, Checkpoint] | None = None,
    ) -> Iterator[None]:
        """The inference applications to oneself, each of `wanted` (role -> checkpoint) holding its own, for the block,
        and those of `fixed`, which hold one model, up. Those of `soon` are started for a later stage.

        Waits for its turn; the time it waits counts as the stage's.
        """
        self.progress(0, 1, "waiting for the services")
        with turn(self.home):
            serve_checkpoints(self.services, wanted, self.config.serving, fixed, soon or {})
            yield

    @contextmanager
    def asked_in_turn(
        self, role: Role, checkpoint: Checkpoint, batches: Iterable[Sequence[Prompt]]
    ) -> Iterator[Iterator[list[list[Reply]]]]:
        """The replies to each batch, in order, with `serving.batches` of them under way at once."""
        client = InferenceClient(self.services.endpoint(role), role)
        with closing(client.generate_in_turn(batches, checkpoint.id, self.config.serving.batches)) as replies:
            yield replies
