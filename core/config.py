"""What a run is made of: `RunConfig` and its parts, read from a TOML preset.

Defaults are the papers' (R-Zero sections 2 and D.1, appendix E.1). An unknown key is an error that names it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from core.errors import CoevoError
from core.types import Denominator

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
Oracle = Annotated[Literal["exact"] | None, BeforeValidator(lambda given: None if given == "none" else given)]


class ConfigError(CoevoError):
    """A preset or an override that cannot be used; the message names the field, what was expected and what came."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sampling(_Part):
    """How rollouts are drawn."""

    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(0.99, gt=0, le=1)
    max_tokens: Positive = 4096


class Training(_Part):
    """One role's GRPO (R-Zero E.1, A.1). `rate`s are per optimiser step."""

    steps: Positive = 15
    prompts_per_step: Positive = 128
    rollouts_per_prompt: Annotated[int, Field(ge=2)] = 5
    learning_rate: float = Field(1e-6, gt=0)
    weight_decay: float = Field(1e-2, ge=0)
    kl_coefficient: float = Field(1e-2, ge=0)
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.2, gt=0)
    max_grad_norm: float = Field(1.0, gt=0)
    updates_per_step: Positive = 1  # passes over the step's rollouts; above 1 the clip has something to do
    loss_average: Literal["sequence", "token"] = "sequence"
    micro_batch: Positive = 16  # sequences a forward pass, a matter of memory only
    checkpoint_every: Positive = 5
    workers: Positive = 1  # data-parallel
    sampling: Sampling = Sampling()


class ChallengerReward(_Part):
    """R-Zero 2.2. `variant="official"` reproduces the released code where it differs from the paper."""

    variant: Literal["paper", "official"] = "paper"
    votes: Positive = 10  # m, the Solver's answers a question
    repetition_weight: float = Field(1.0, ge=0)  # lambda
    bleu_distance: Share = 0.5  # tau_BLEU


class RZeroSolverReward(_Part):
    """R-Zero 2.4: 1 when the answer equals the pseudo-label, else 0."""

    type: Literal["rzero"] = "rzero"


SolverReward = RZeroSolverReward  # issue of the other papers' Solvers: a union on `type`


class Challenger(_Part):
    """How the Challenger is trained. `trained=False` is the paper's baseline of Table 1: it stays the base model."""

    trained: bool = True
    reward: ChallengerReward = ChallengerReward()
    training: Training = Training(steps=5, rollouts_per_prompt=4)


class Solver(_Part):
    reward: SolverReward = RZeroSolverReward()
    training: Training = Training()


class Dataset(_Part):
    """R-Zero 2.3: how the Solver's questions are made and filtered."""

    candidates: Positive = 8000  # N
    votes: Positive = 10  # m
    filtered: bool = True  # False is the ablation of Table 3: keep whatever has a majority
    delta: float = Field(0.25, ge=0, le=0.5)
    band: tuple[Share, Share] | None = None  # instead of 1/2 -+ delta, where a release has an uneven one
    denominator: Denominator = "all"
    max_question_chars: Positive = 2000
    sampling: Sampling = Sampling()  # of the Solver's votes

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest p_hat that is kept."""
        return self.band or (0.5 - self.delta, 0.5 + self.delta)

    @model_validator(mode="after")
    def _band_in_order(self) -> Dataset:
        if self.band is not None and self.band[0] > self.band[1]:
            raise ValueError(f"band: expected [low, high] with low <= high, got {list(self.band)}")
        return self


class Evaluation(_Part):
    """Held-out accuracy after each iteration: `samples` at the sampling temperature, one greedy, maj@samples."""

    benchmark: str = "micro"  # "micro", or a JSONL file with id, problem, answer and perhaps level
    samples: Positive = 8
    sampling: Sampling = Sampling(top_p=1.0)


class Audit(_Part):
    """Who says whether a pseudo-label is right. `exact` grades all of them; TOML's word for nobody is `none`."""

    oracle: Oracle = "exact"


class RunConfig(_Part):
    """A whole run. The preset's file name is not part of it: two presets with equal values are the same run."""

    seed: int = Field(0, ge=0)
    iterations: Positive = 3
    base_model: str = "micro"  # "micro", or a folder with a Hugging Face model in safetensors
    rollout_text: Literal["none", "kept", "all"] = "kept"
    challenger: Challenger = Challenger()
    dataset: Dataset = Dataset()
    solver: Solver = Solver()
    evaluation: Evaluation = Evaluation()
    audit: Audit = Audit()


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a TOML preset; `overrides` maps dotted names to values (`{"dataset.candidates": 320}`)."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"preset {path}: no such file") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"preset {path}: not valid TOML: {error}") from error
    for name, value in (overrides or {}).items():
        _set(tree, name, value)
    return parse_config(tree, source=str(path))


def parse_config(tree: Mapping[str, Any], source: str) -> RunConfig:
    """Validate a tree of settings; every complaint names the field, what was expected and what came."""
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("\n".join([f"{source}: not a valid run configuration", *_complaints(error)])) from error


def _set(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"override {dotted}: {parent} is a value, not a section")
    tree[last] = value


def _complaints(error: ValidationError) -> list[str]:
    return [
        f"  {'.'.join(map(str, e['loc'])) or 'run'}: {e['msg']}"
        + ("" if e["type"] == "extra_forbidden" else f" (got {e['input']!r})")
        for e in error.errors()
    ]
