"""The interface of every trainer: it takes a `TrainJob` and returns a `TrainResult`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from pydantic import TypeAdapter

from core.challenger import ChallengerReward
from core.errors import CoevoError
from core.methods import Method
from core.settings.serving import Service, Signals
from core.settings.templates import RZERO_CHALLENGER, RZERO_SOLVER, ChallengerTemplate, SolverTemplate
from core.settings.training import Sampling, Training, trained_rollouts
from core.statistics.guard import Guard, TrainingHistory
from core.types import Checkpoint, Denominator, Role

# Of the mean difference between the log-probabilities of sampler and trainer, in nats per token. Rounding in float32
# causes a gap of about 1e-5. A gap above this limit means that the trainer computes other probabilities than the
# sampler. The embedded trainer finds that before its first step (trainers/local/support.py); this is a second line.
LARGEST_SAMPLER_GAP = 0.1

# Numbers in a tensor of logits that the embedded trainer computes at once; half a gigabyte in float32.
LARGEST_LOGITS = 1 << 27


@dataclass(frozen=True, slots=True)
class TrainQuestion:
    """A question that the Solver learns from.

    `label` is the label that came with the question; it is None when the method makes its own label from a vote of the
    training rollouts. `truth` is the true answer, where it is known. The figures and the guard use it; no reward sees
    it.
    """

    question_id: str
    text: str
    label: str | None
    truth: str | None = None


@dataclass(frozen=True, slots=True)
class SolverService:
    """The service that answers questions for the Challenger's reward, and how its answers are sampled."""

    url: str  # OpenAI-compatible base, up to and including /v1
    checkpoint: str  # the Solver that must answer
    sampling: Sampling  # of the votes
    denominator: Denominator = "all"
    max_question_chars: int = 2000
    template: SolverTemplate = RZERO_SOLVER  # how it is asked
    control_tokens: tuple[str, ...] = ()  # of its model; a question with one of them is malformed


SOLVER_SERVICE = TypeAdapter(SolverService)  # writes it as JSON for a trainer in another process, and reads it


@dataclass(frozen=True, slots=True)
class SamplerService:
    """The run's own application that samples the rollouts of a training, and how it gets the training's weights.

    The keys of Ray and of the applications are in the environment of the trainer's workers.
    """

    url: str  # OpenAI-compatible base, up to and including /v1
    application: str
    dashboard_url: str  # of Ray, where Serve is told which weights the application holds
    run: str  # part of the names of the weights
    dtype: Literal["float32", "bfloat16"]  # in which the application computes, and weights are written
    # A private folder in the memory of the machine that all workers and replicas are on; None: `work_dir` is used.
    memory: Path | None
    # Whether the application's log-probabilities are of the distribution that the trainer computes: the softmax of all
    # logits at the sampling temperature. vLLM's are of the logits as they are, so they are so at temperature 1 only.
    # With top-p or top-k, vLLM could also give those of the tokens that are left, which are not (vLLM's issue 42259).
    logprobs_comparable: bool
    # Whether it computes what the trainer computes; else its rollouts are weighted by their importance.
    same_engine: bool
    ahead: int = 0  # by how many steps the rollouts are sampled in advance: 0 or 1


@dataclass(frozen=True, slots=True)
class Rounds:
    """What a job must know of the training that it is one round of, if AdamW goes on from round to round.

    The job's `steps_before` says how far the schedule of the learning rate is. It counts the steps that a roll-back
    discarded, too, so that the schedule ends with the last round.
    """

    steps: int  # of all rounds
    optimiser: Checkpoint | None = None  # AdamW's moments, published like a model, that belong to the start; None: none


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """One training stage of one role, with everything that its result depends on.

    The embedded trainer makes the same checkpoint from the same job; EasyR1 does not (`trainers.easyr1.fit`).
    """

    role: ClassVar[Role]

    key: str  # "demo/1/train_solver"; seeds derive from it
    run_seed: int
    start: Checkpoint  # the policy to begin with
    training: Training
    reward: ChallengerReward | Method
    work_dir: Path  # where the job keeps its checkpoints, so that it can resume after a kill; the caller removes it
    reference: Checkpoint | None = None  # the reference policy of the KL term; None means `start`
    steps_before: int = 0  # steps of this training done by earlier jobs; prompts and seeds continue from there
    rounds: Rounds | None = None  # None: AdamW and its schedule begin anew
    history: TrainingHistory = field(default_factory=TrainingHistory)  # metrics of those earlier steps, for the guard
    guard: Guard | None = None  # ends the job at the first step whose figures call for it
    stored_prompts: int = 0  # of each step; their rollouts are handed back (`trainers.rollouts`)
    sampler: SamplerService | None = None  # None: the trainer samples itself

    @property
    def rollouts(self) -> int:
        """Rollouts per prompt."""
        return self.training.rollouts_per_prompt or self.reward.rollouts

    @property
    def trained(self) -> int:
        """How many of a prompt's rollouts are trained on. A trainer takes the first ones, or a random choice."""
        return trained_rollouts(self.rollouts, self.reward)

    @property
    def services(self) -> list[Service]:
        """The external services (embedder, judge of strategies) that the reward calls."""
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengerJob(TrainJob):
    """Trains the Challenger: it writes questions, and the Solver's service answers them (R-Zero 2.2)."""

    role = "challenger"

    reward: ChallengerReward
    solver: SolverService
    earlier: tuple[str, ...] = ()  # the questions of earlier iterations, if the reward needs them
    exact: bool = False  # whether a program knows which questions have an answer (`core.worlds`)
    template: ChallengerTemplate = RZERO_CHALLENGER
    vocabulary_retention: float = 1.0  # of each step's mask over the vocabulary; 1: none


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverJob(TrainJob):
    """Trains the Solver on questions, with the method of R-Zero 2.4 or of another paper."""

    role = "solver"

    reward: Method
    questions: tuple[TrainQuestion, ...]
    template: SolverTemplate = RZERO_SOLVER
    signals: Signals = field(default_factory=Signals)

    @property
    def services(self) -> list[Service]:
        return self.signals.services(self.reward)


@dataclass(frozen=True, slots=True)
class TrainResult:
    """A finished job. `folder` is inside `work_dir`, complete and synced, but not yet published."""

    folder: Path
    step: int  # the last step; less than `training.steps` when the guard ended the job
    metrics: tuple[dict[str, float], ...]  # one dictionary per step, in order; metrics[i]["step"] == i + 1
    optimiser: Path | None = None  # a folder with AdamW's moments, if the job is one of several `rounds`


class TrainError(CoevoError):
    """Raised when a job cannot be trained, or fails before its end; the message names the job and the cause."""


OnStep = Callable[[int, dict[str, float]], None]  # is called with the number of a step and its metrics


class Trainer(Protocol):
    """Runs a job to its end or raises `TrainError`, and calls `progress` once for each new step."""

    def train(self, job: TrainJob, progress: OnStep) -> TrainResult: ...
