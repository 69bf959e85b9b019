"""What every trainer takes and gives: a `TrainJob` in, a `TrainResult` out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, get_args

from core.errors import CoevoError
from core.methods import Method, Signal
from core.methods.rzero import ChallengerReward
from core.settings.serving import Service, Signals
from core.settings.training import Sampling, Training, trained_rollouts
from core.statistics.guard import Guard, TrainingHistory
from core.types import Checkpoint, Denominator, Role


@dataclass(frozen=True, slots=True)
class TrainQuestion:
    """A question that the Solver learns from. `label` is what came with it; None where the method votes anew.

    `truth`, where it is known, is for the figures and the guard: no reward sees it.
    """

    question_id: str
    text: str
    label: str | None
    truth: str | None = None


@dataclass(frozen=True, slots=True)
class SolverService:
    """Where the Challenger's reward asks for answers, which checkpoint must give them, and how they are drawn."""

    url: str  # OpenAI-compatible base, up to and including /v1
    checkpoint: str
    sampling: Sampling  # of the votes
    denominator: Denominator = "all"
    max_question_chars: int = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """One training stage of one role, complete: the same job always gives the same checkpoint."""

    role: ClassVar[Role]

    key: str  # "demo/1/train_solver"; seeds derive from it
    run_seed: int
    start: Checkpoint  # the policy to begin with
    training: Training
    reward: ChallengerReward | Method
    work_dir: Path  # holds step_K folders while the job runs, so that a killed one resumes; the caller removes it
    reference: Checkpoint | None = None  # of the KL term; None: `start`
    steps_before: int = 0  # of the same training, in jobs that came before: prompts and seeds go on from there
    history: TrainingHistory = field(default_factory=TrainingHistory)  # the same, for the guard
    guard: Guard | None = None  # ends the job at the first step whose figures call for it

    @property
    def rollouts(self) -> int:
        """How many a prompt gets."""
        return self.training.rollouts_per_prompt or self.reward.rollouts

    @property
    def trained(self) -> int:
        """How many of them, the first, are trained on: they are draws like any others."""
        return trained_rollouts(self.rollouts, self.reward)

    @property
    def services(self) -> list[Service]:
        """The outside services (embedder, judge of strategies) that the reward calls."""
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengerJob(TrainJob):
    """The Challenger writes questions; the Solver's service answers them (R-Zero 2.2)."""

    role = "challenger"

    reward: ChallengerReward
    solver: SolverService


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverJob(TrainJob):
    """The Solver learns from questions by one of the methods (R-Zero 2.4, and the other papers')."""

    role = "solver"

    reward: Method
    questions: tuple[TrainQuestion, ...]
    signals: Signals = field(default_factory=Signals)

    @property
    def services(self) -> list[Service]:
        return self.signals.services(self.reward)


@dataclass(frozen=True, slots=True)
class TrainResult:
    """A finished job. `folder` is in `work_dir`, complete and synced, and not yet published."""

    folder: Path
    step: int  # the last one: fewer than asked for where the guard ended it
    metrics: tuple[dict[str, float], ...]  # one a step, in order; metrics[i]["step"] == i + 1


class TrainError(CoevoError):
    """A job that cannot be trained, or not to its end; the message names the job and the cause."""


def refuse_unmet(method: Method, gives: frozenset[Signal], trainer: str) -> None:
    """Raise `TrainError` naming the signals that `method` needs and `trainer` cannot give."""
    if unmet := sorted(method.needs - gives):
        raise TrainError(
            f"solver.reward: {method.type} needs {', '.join(unmet)}, which {trainer} cannot give; it gives "
            f"{', '.join(sorted(gives))}"
        )


# What the embedded trainer can tell of a question and its rollouts: everything. Here, since whoever asks before a run
# starts need not load torch for it.
LOCAL_SIGNALS: frozenset[Signal] = frozenset(get_args(Signal))


class Trainer(Protocol):
    """Runs a job to its end, or raises `TrainError`. `progress(step, metrics)` is called once for each new step."""

    def train(self, job: TrainJob, progress: Callable[[int, dict[str, float]], None]) -> TrainResult: ...
