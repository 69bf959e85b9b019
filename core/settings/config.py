"""What a run is made of: `RunConfig`, of which there are two kinds, and its parts, read from a TOML preset.

Defaults are the papers' (R-Zero sections 2 and D.1, appendix E.1). An unknown key is an error that names it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from core.errors import CoevoError
from core.methods import Method, Objective, SolverReward
from core.methods.rzero import ChallengerReward, RZero, Supervised
from core.settings.alerts import Alerts
from core.settings.audit import Audit
from core.settings.bounds import (
    Answers,
    Factor,
    Iterations,
    LearningRate,
    Part,
    Positive,
    Scale,
    Seed,
    Share,
    Temperature,
    Tokens,
    Workers,
)
from core.settings.prompts import Prompts
from core.settings.serving import Serving, Signals
from core.settings.trainers import LocalSettings, PoolSettings, TrainerSettings
from core.statistics.guard import Guard, LoopGuard
from core.types import Denominator, Flow, Role

_METHOD: TypeAdapter[Any] = TypeAdapter(SolverReward)
_SUPERVISED = "supervised learns from true labels: expected prompts with labels = 'given'"
_MOST_COMPLAINTS, _LONGEST = 20, 100  # complaints of one configuration; characters of a name or a value in them


def trained_rollouts(rollouts: int, objective: Objective) -> int:
    """How many of a prompt's rollouts are trained on: `trained_share`, and at least two."""
    return max(2, round(rollouts * objective.trained_share))


class ConfigError(CoevoError):
    """A preset or an override that cannot be used; the message names the field, what was expected and what came."""


class Sampling(Part):
    """How rollouts are drawn."""

    temperature: Temperature = 1.0
    top_p: float = Field(0.99, gt=0, le=1)
    max_tokens: Tokens = 4096


class Training(Part):
    """How much one role trains, and on what (R-Zero E.1, A.1). What it minimises is its reward's `Objective`."""

    steps: Positive = 15
    prompts_per_step: Positive = 128
    rollouts_per_prompt: Annotated[Answers, Field(ge=2)] | None = None  # None: as many as the reward's paper takes
    learning_rate: LearningRate = 1e-6
    weight_decay: Factor = 1e-2
    max_grad_norm: Scale = 1.0
    prompts_per_update: Positive | None = None  # the mini-batch of an optimiser step; None: all of the step's prompts
    updates_per_step: Positive = 1  # passes over its rollouts; with one mini-batch and one pass nothing is clipped
    micro_batch: Positive = 16  # sequences a forward pass, a matter of memory only
    checkpoint_every: Positive = 5
    workers: Workers = 1  # data-parallel
    sharded: bool = False  # weights, gradients and AdamW's moments over the workers (FSDP); nothing to a single one
    sampling: Sampling = Sampling()


class Challenger(Part):
    """How the Challenger is trained. `trained=False` is the paper's baseline of Table 1: it stays the base model."""

    trained: bool = True
    reward: ChallengerReward = ChallengerReward()
    training: Training = Training(steps=5)

    @property
    def rollouts(self) -> int:
        """How many a prompt gets."""
        return self.training.rollouts_per_prompt or self.reward.rollouts


class Solver(Part):
    """How the Solver is trained: `reward` names the method, `core.methods`."""

    reward: SolverReward = RZero()
    training: Training = Training()
    signals: Signals = Signals()

    @property
    def rollouts(self) -> int:
        """How many a prompt gets; all of them vote."""
        return self.training.rollouts_per_prompt or self.reward.rollouts

    @model_validator(mode="after")
    def _sets_fit(self) -> Solver:
        self.reward.check_group_size(trained_rollouts(self.rollouts, self.reward))
        return self


class Votes(Part):
    """How the Solver labels questions before it trains (R-Zero 2.3; SRT 5.2), and how long a question may be."""

    votes: Answers = 10  # m
    denominator: Denominator = "all"
    max_question_chars: Tokens = 2000
    sampling: Sampling = Sampling()

    @property
    def limits(self) -> tuple[float, float] | None:
        """The lowest and the highest p_hat that is kept; None: every question that has a majority."""
        return None


class Dataset(Votes):
    """R-Zero 2.3: how the Solver's questions are made, labelled and filtered."""

    candidates: Positive = 8000  # N
    filtered: bool = True  # False is the ablation of Table 3: keep whatever has a majority
    delta: float = Field(0.25, ge=0, le=0.5)
    band: tuple[Share, Share] | None = None  # instead of 1/2 -+ delta, where a release has an uneven one

    @property
    def limits(self) -> tuple[float, float] | None:
        return (self.band or (0.5 - self.delta, 0.5 + self.delta)) if self.filtered else None

    @model_validator(mode="after")
    def _band_in_order(self) -> Dataset:
        if self.band is not None and self.band[0] > self.band[1]:
            raise ValueError(f"band: expected [low, high] with low <= high, got {list(self.band)}")
        return self


class Evaluation(Part):
    """Held-out accuracy after each iteration: `samples` at the sampling temperature, one greedy, maj@samples."""

    benchmark: str = "micro"  # "micro", or a JSONL file with id, problem, answer and perhaps level
    samples: Answers = 8
    sampling: Sampling = Sampling(top_p=1.0)


class Labelled(Part):
    """Labelled data that the Solver learns from at the end of each iteration (R-Zero B.3), by the same GRPO."""

    file: str  # JSONL or Parquet, or "micro"
    question: str = "problem"  # columns
    answer: str = "answer"
    limit: Positive | None = None
    reward: Supervised = Supervised()
    training: Training = Training()

    @model_validator(mode="after")
    def _a_prompt_set_with_answers(self) -> Labelled:
        if self.file == "benchmark" or (self.file == "micro" and self.limit is None):
            raise ValueError('file: expected a file of labelled questions, or "micro" with a limit')
        return self

    @property
    def rollouts(self) -> int:
        """How many a prompt gets."""
        return self.training.rollouts_per_prompt or self.reward.rollouts

    @property
    def prompts(self) -> Prompts:
        """The same as a prompt set."""
        return Prompts(file=self.file, question=self.question, answer=self.answer, labels="given", limit=self.limit)


class EarlyStopping(Part):
    """Stop when a small labelled set has shown no better Solver for `patience` iterations, and go back to the best
    (SRT 5.1)."""

    benchmark: str  # as the evaluation's
    patience: Iterations = 2


@dataclass(frozen=True, slots=True)
class PlannedTraining:
    """One of the trainings of an iteration; `table` is the setting's name."""

    table: str
    training: Training
    objective: Objective
    rollouts: int  # a prompt


class _Run(Part):
    """A whole run: what both kinds have. The preset's file name is not part of it: two presets with equal values are
    the same run."""

    kind: Flow  # which flow runs it
    seed: Seed = 0
    iterations: Iterations = 3
    base_model: str = "micro"  # "micro", or a folder with a Hugging Face model in safetensors
    rollout_text: Literal["none", "kept", "all"] = "kept"
    dataset: Votes = Votes()
    solver: Solver = Solver()
    evaluation: Evaluation = Evaluation()
    audit: Audit = Audit()
    early_stopping: EarlyStopping | None = None
    guard: Guard = Guard()
    alerts: Alerts = Alerts()
    serving: Serving = Serving()
    trainer: TrainerSettings = LocalSettings()
    pool: PoolSettings = PoolSettings()

    @property
    def test_time(self) -> bool:
        """Whether the Solver trains on the benchmark's own questions, their answers hidden: test-time training (TTRL;
        SRT 4.2). Its accuracy there is not held-out accuracy."""
        return False

    @property
    def roles(self) -> tuple[Role, ...]:
        """Whose models there are."""
        return ("solver",)

    @property
    def trainings(self) -> tuple[PlannedTraining, ...]:
        """Those of an iteration, in order."""
        return (PlannedTraining("solver", self.solver.training, self.solver.reward, self.solver.rollouts),)

    @property
    def prompt_sets(self) -> tuple[Prompts, ...]:
        """The prompt sets that the Solver trains on, if any."""
        return ()


class CoEvolution(_Run):
    """R-Zero's loop: a Challenger asks what the Solver learns from."""

    kind: Literal["co_evolve"] = "co_evolve"
    challenger: Challenger = Challenger()
    dataset: Dataset = Dataset()
    labelled: Labelled | None = None
    guard: LoopGuard = LoopGuard()

    @property
    def votes_before_training(self) -> bool:
        """Whether the Solver's questions are voted on before it trains."""
        return True

    @property
    def roles(self) -> tuple[Role, ...]:
        return ("challenger", "solver")

    @property
    def trainings(self) -> tuple[PlannedTraining, ...]:
        challenger, labelled = self.challenger, self.labelled
        own = PlannedTraining("challenger", challenger.training, challenger.reward, challenger.rollouts)
        on_labels = (
            ()
            if labelled is None
            else (PlannedTraining("labelled", labelled.training, labelled.reward, labelled.rollouts),)
        )
        return (*([own] if challenger.trained else []), *super().trainings, *on_labels)

    @property
    def prompt_sets(self) -> tuple[Prompts, ...]:
        return () if self.labelled is None else (self.labelled.prompts,)

    @model_validator(mode="after")
    def _no_true_labels(self) -> CoEvolution:
        if self.solver.reward.type == "supervised":
            raise ValueError("solver.reward: " + _SUPERVISED)
        return self


class SelfTraining(_Run):
    """A Solver that learns from a given prompt set by one of the papers' methods; `iterations` are rounds."""

    kind: Literal["self_train"] = "self_train"
    prompts: Prompts

    @property
    def votes_before_training(self) -> bool:
        """Whether the prompts are voted on before the first round."""
        return self.prompts.voted

    @property
    def test_time(self) -> bool:
        return self.prompts.file == "benchmark"

    @property
    def prompt_sets(self) -> tuple[Prompts, ...]:
        return (self.prompts,)

    @model_validator(mode="after")
    def _labels_for_the_method(self) -> SelfTraining:
        method, stopping = self.solver.reward, self.early_stopping
        if method.type == "supervised" and self.prompts.labels != "given":
            raise ValueError("solver.reward: " + _SUPERVISED)
        if self.test_time and stopping and stopping.benchmark == self.evaluation.benchmark:
            raise ValueError("early_stopping.benchmark: expected another than the one that is trained on")
        if self.prompts.labels == "none" and "label" in method.needs:
            raise ValueError(
                f"prompts.labels: {method.type} learns from labels that come with the questions: expected 'given' or "
                "'offline', got 'none'"
            )
        return self


RunConfig = CoEvolution | SelfTraining


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a TOML preset; `overrides` maps dotted names to values (`{"dataset.candidates": 320}`).

    An override of a `type` takes the preset's other settings of that table away, since they are another variant's; so
    `{"solver.reward.type": "evol_rl"}` runs a preset with EVOL-RL's own numbers.
    """
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"preset {path}: no such file") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"preset {path}: not valid TOML: {error}") from error
    # A `type` first: what else an override says of its table is of the new variant.
    for name, value in sorted((overrides or {}).items(), key=lambda item: not item[0].endswith(".type")):
        _set(tree, name, value)
    config = parse_config(tree, source=str(path))
    if unused := list(_unused(config)):
        raise ConfigError("\n".join([f"{path}: settings that this run would not use", *unused]))
    return config


def _unused(config: RunConfig) -> Iterator[str]:
    """The settings that a run would ignore. Stored runs are not checked, because every setting is stored with them."""
    if not isinstance(config, SelfTraining):
        return
    method = config.solver.reward
    if config.prompts.labels != "none" and "label" not in method.needs:
        remedy = "set prompts.labels = 'none'"
        if "offline" in get_args(type(method).model_fields["labels"].annotation):
            remedy += ", or also set solver.reward.labels = 'offline'"
        yield f"  prompts.labels is {config.prompts.labels!r}, but {method.type} learns without given labels: {remedy}"


def parse_config(tree: Mapping[str, Any], source: str) -> RunConfig:
    """Validate a tree of settings; every complaint names the field, what was expected and what came.

    Without a `kind` it is "self_train" where there is a table `prompts`, and otherwise "co_evolve".
    """
    kinds: dict[Any, type[CoEvolution | SelfTraining]] = {"co_evolve": CoEvolution, "self_train": SelfTraining}
    kind = tree.get("kind", "co_evolve" if tree.get("prompts") is None else "self_train")
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError(f"{source}: kind: expected {' or '.join(kinds)}, got {repr(kind)[:_LONGEST]}")
    try:
        return kinds.pop(kind).model_validate(tree)
    except ValidationError as error:
        complaints = _complaints(error, *kinds.values())
        raise ConfigError("\n".join([f"{source}: not a valid run configuration", *complaints])) from error


def parse_method(name: str, settings: Mapping[str, Any] | None = None) -> Method:
    """One of the Solver's methods by its `type`, with its paper's numbers but for `settings`. Raises `ConfigError`."""
    try:
        method: Method = _METHOD.validate_python({"type": name, **(settings or {})})
    except ValidationError as error:
        raise ConfigError("\n".join([f"method {name}: not a valid method", *_complaints(error)])) from error
    return method


def _set(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"override {dotted}: {parent} is a value, not a section")
    if last == "type" and tree.get("type") != value:
        tree.clear()
    tree[last] = value


def _complaints(error: ValidationError, other: type[CoEvolution | SelfTraining] | None = None) -> list[str]:
    """A line each; a setting that only the `other` kind of run has is said to be that kind's."""
    errors = error.errors()
    named = list[str]()
    for e in errors[:_MOST_COMPLAINTS]:
        without_input = e["type"] in ("extra_forbidden", "missing")
        text = e["msg"] + ("" if without_input else f" (got {repr(e['input'])[:_LONGEST]})")
        if e["type"] == "extra_forbidden" and other is not None and _has(other, e["loc"]):
            text = f"only a run of kind {other.model_fields['kind'].default} has this setting: leave it out"
        named.append(f"  {'.'.join(map(str, e['loc']))[:_LONGEST] or 'run'}: {text}")
    return [*named, f"  and {len(errors) - len(named):,} more"] if len(errors) > len(named) else named


def _has(model: Any, setting: Sequence[int | str]) -> bool:
    for name in setting:
        fields = getattr(model, "model_fields", {})
        if name not in fields:
            return False
        model = fields[name].annotation
    return True
