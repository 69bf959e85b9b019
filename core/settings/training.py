"""How each role is trained: a preset's `[challenger]`, `[solver]` and `[labelled]`.

Defaults are the papers' (R-Zero 2.2, 2.4, A.1, B.3 and E.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from core.challenger import AnyChallengerReward, RZeroChallenger
from core.methods import Objective, SolverReward
from core.methods.rzero import RZero, Supervised
from core.questions.parsing import parse_question
from core.settings.prompts import Prompts
from core.settings.serving import Signals
from core.settings.templates import RZERO_CHALLENGER, RZERO_SOLVER, ChallengerTemplate, SolverTemplate
from core.types import TINY_BASES
from core.validation.bounds import (
    Answers,
    Count,
    Decay,
    Factor,
    LearningRate,
    Positive,
    SettingsTable,
    Temperature,
    Tokens,
    TopP,
    Workers,
)

_LOSS = ("clip_high", "entropy_coefficient", "kl_coefficient", "loss_average")


def trained_rollouts(rollouts: int, objective: Objective) -> int:
    """How many of a prompt's rollouts are trained on: the share `trained_share`, but at least two."""
    return max(2, round(rollouts * objective.trained_share))


class Sampling(SettingsTable):
    """How votes and the answers to a benchmark are sampled."""

    temperature: Temperature = 1.0
    top_p: TopP = 0.99
    top_k: Positive | None = None  # only so many tokens, the most likely ones; top_p is a share of their probability
    max_tokens: Tokens = 4096


class TrainingSampling(Sampling):
    """How the rollouts of a training are sampled: no paper cuts their distribution off at k tokens."""

    top_k: ClassVar[None] = None  # type: ignore[misc]


class Training(SettingsTable):
    """How much one role trains, and on how much data (R-Zero E.1, A.1). Its reward's `Objective` defines the loss."""

    max_grad_norm: ClassVar[float] = 1.0  # of every paper that names one, and of EasyR1

    steps: Positive = 15
    prompts_per_step: Positive = 128
    rollouts_per_prompt: Annotated[Answers, Field(ge=2)] | None = None  # None: the number of the reward's paper
    learning_rate: LearningRate = 1e-6  # after the warm-up; `trainers.schedule` has that of every step
    schedule: Literal["constant", "cosine"] = "constant"  # of the learning rate, after the warm-up
    warmup_steps: Count = 0  # in which the learning rate rises from 0
    betas: tuple[Decay, Decay] = (0.9, 0.999)  # AdamW's; PyTorch's defaults, with which R-Zero was trained (EasyR1)
    weight_decay: Factor = 1e-2
    # The mini-batch of an optimiser step; None: all prompts of the step, with which nothing is clipped.
    prompts_per_update: Positive | None = None
    # The most further prompts of a step, in place of those whose rollouts teach nothing, because all have the same
    # reward; the step then learns from the others only (DAPO, arXiv 2503.14476, 3.2). No paper of a preset has it.
    refill: Count = 0
    micro_batch: Positive = 16  # sequences per forward pass; it only affects memory
    checkpoint_every: Positive = 5
    workers: Workers = 1  # data-parallel processes
    sharded: bool = False  # shard weights, gradients and AdamW's moments over the workers (FSDP), if there are several
    sampling: TrainingSampling = TrainingSampling()


class ChallengerTraining(Training):
    """How much the Challenger trains: R-Zero gives its few steps neither a warm-up nor another schedule."""

    schedule: ClassVar[Literal["constant"]] = "constant"  # type: ignore[misc]
    warmup_steps: ClassVar[int] = 0  # type: ignore[misc]
    refill: ClassVar[int] = 0  # type: ignore[misc]  # all its prompts are the same


class Challenger(SettingsTable):
    """How the Challenger is trained. `reward` is one of those in `core.challenger`.

    With `trained=False`, a baseline of the paper's Table 1, it is the base model, or the Solver if they share a model.
    With `vocabulary_retention` below 1, each training step and each request for questions samples from a random part of
    the vocabulary, in which a token is with this probability (`services.inference.engines.vocabulary`).
    """

    trained: bool = True
    vocabulary_retention: float = Field(1.0, gt=0, le=1)
    reward: AnyChallengerReward = RZeroChallenger()
    training: ChallengerTraining = ChallengerTraining(steps=5)
    template: ChallengerTemplate = RZERO_CHALLENGER

    @model_validator(mode="after")
    def _examples_are_well_formed(self) -> Challenger:
        expected = "<question>…</question>" + (" and \\boxed{…}" if self.reward.format == "tags_and_answer" else "")
        for number, example in enumerate(self.template.examples):
            if parse_question(example, expected=self.reward.format) is None:
                raise ValueError(f"template.examples.{number}: expected a reply with {expected}, got {example[:80]!r}")
        return self

    @property
    def rollouts(self) -> int:
        """How many rollouts a prompt gets."""
        return self.training.rollouts_per_prompt or self.reward.rollouts


class Solver(SettingsTable):
    """How the Solver is trained. `reward` is one of the methods in `core.methods`."""

    reward: SolverReward = RZero()
    training: Training = Training()
    signals: Signals = Signals()
    template: SolverTemplate = RZERO_SOLVER

    @property
    def rollouts(self) -> int:
        """How many rollouts a prompt gets; all of them vote."""
        return self.training.rollouts_per_prompt or self.reward.rollouts

    @model_validator(mode="after")
    def _sets_fit(self) -> Solver:
        self.reward.check_group_size(trained_rollouts(self.rollouts, self.reward))
        return self


class RoundTraining(Training):
    """How much a Solver trains in one round on given prompts.

    With `optimiser = "continued"` the rounds are one training, as in the papers: AdamW's moments go on from round to
    round, and the schedule of the learning rate goes over all rounds. With `"fresh"`, each round is a training of its
    own.
    """

    optimiser: Literal["continued", "fresh"] = "continued"


class SelfTrainedSolver(Solver):
    """How a Solver is trained on given prompts."""

    training: RoundTraining = RoundTraining()


class Labelled(SettingsTable):
    """Labelled data that the Solver trains on at the end of each iteration, by the same GRPO (R-Zero B.3).

    By default this is a branch: each iteration's Solver is trained on the data and evaluated, and the next iteration
    goes on from the Solver as it was before. So the loop is an initialisation for labelled data, as in Figure 4. With
    `chained`, the next iteration goes on from the Solver that was trained on the data, which is not in the paper.

    It is trained as in `[solver]`, as B.3 says, but for the reward, which is agreement with the label.
    """

    file: str  # as in `Prompts`, or "micro" or "micro-long"
    question: str = "problem"  # names of columns
    answer: str = "answer"
    limit: Positive | None = None
    chained: bool = False
    steps: Positive | None = None  # None: as many as one training of the Solver has

    @model_validator(mode="after")
    def _has_labels(self) -> Labelled:
        if self.file == "benchmark" or (self.file in TINY_BASES and self.limit is None):
            raise ValueError(
                f"file: expected a file of labelled questions, or {' or '.join(TINY_BASES)} with a limit, "
                f"got {self.file!r}"
            )
        return self

    def training(self, solver: Solver) -> Training:
        """How much it trains: as the Solver, but for the steps."""
        return solver.training.model_copy(update={"steps": self.steps or solver.training.steps})

    def reward(self, solver: Solver) -> Supervised:
        """The reward on true labels, with the Solver's loss."""
        return Supervised(**{name: getattr(solver.reward, name) for name in _LOSS})

    @property
    def prompts(self) -> Prompts:
        """The labelled data as a prompt set."""
        return Prompts(file=self.file, question=self.question, answer=self.answer, labels="given", limit=self.limit)


@dataclass(frozen=True, slots=True)
class PlannedTraining:
    """One training of an iteration. `table` is the name of its table in a preset.

    A training on labelled data, whose table is "labelled", has the settings of `[solver]`, but for its steps.
    """

    table: str
    training: Training
    objective: Objective
    rollouts: int  # per prompt
