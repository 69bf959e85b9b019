"""The words of the loop as frozen carriers. Missing is `None`; nothing here does anything.

Suffixes in docstrings: `m` votes a question, `G` rollouts a group, `B` questions a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Role = Literal["challenger", "solver"]
Verdict = Literal["kept", "too_easy", "too_hard", "no_majority", "malformed", "duplicate"]
Flow = Literal["co_evolve", "self_train"]  # the loop of both roles, or a Solver alone on given prompts
Denominator = Literal["all", "parsed"]
OracleVerdict = Literal["right", "wrong", "ill_posed", "unknown"]
FinishReason = Literal["stop", "length"]
ResourceKind = Literal["CPU", "GPU"]  # what the worker pool shares, in Ray's words
Stage = Literal[
    "train_challenger",
    "generate_questions",
    "label_questions",
    "train_solver",
    "evaluate",
    "audit_labels",
    "check_health",
    "read_prompts",  # of self_train: instead of the first two
    "ask_a_person",  # where the guard says so
]
STAGES: tuple[Stage, ...] = get_args(Stage)


def question_id(run: str, iteration: int, index: int) -> str:
    """The natural key of a question; it sorts in the order of generation."""
    return f"{run}/{iteration}/{index:06d}"


def question_key(question_id: str) -> tuple[str, int, int]:
    """Run, iteration and index of a question's natural key."""
    run, iteration, index = question_id.rsplit("/", 2)
    return run, int(iteration), int(index)


def checkpoint_id(run: str, role: Role | Literal["base"], iteration: int) -> str:
    """The natural key of a checkpoint: `demo/solver/2`; the base model of a run is `demo/base/0`."""
    return f"{run}/{role}/{iteration}"


@dataclass(frozen=True, slots=True)
class Question:
    """One Challenger rollout of `generate_questions`, or one prompt of a given set.

    `text` is None when a rollout is malformed (kept all the same).
    """

    id: str
    run: str
    iteration: int
    index: int
    text: str | None
    raw: str  # what the Challenger wrote, bounded by its max_tokens
    checkpoint: str | None  # the Challenger that wrote it; None for a given prompt
    seed: int
    answer: str | None = None  # the true one, where a given prompt came with it


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled completion for a question."""

    question_id: str
    sample_index: int
    text: str
    answer: str | None  # content of the last \boxed{}
    tokens: int
    finish_reason: FinishReason
    mean_entropy: float | None  # nats a token, of the sampling policy
    entropy_error: float | None  # the exact one is within mean_entropy -+ this: 0 where it is exact, else an estimate
    checkpoint: str  # the model that wrote it
    seed: int


@dataclass(frozen=True, slots=True)
class PseudoLabel:
    """The outcome of a vote over m rollouts. `answer` is None when nobody answered or the top is tied away."""

    answer: str | None
    votes: int  # rollouts that agree with `answer`
    m: int  # rollouts asked for
    parsed: int  # rollouts with an answer
    unknown: int  # comparisons that the grader could not decide; they abstain
    p_hat: float  # votes / m, or votes / parsed, as `denominator` says; 0 when nobody answered
    denominator: Denominator
    classes: tuple[tuple[str, int], ...] = ()  # (representative answer, votes), most votes first


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question with its pseudo-label and verdict: what `train_solver` learns from when `verdict` is kept."""

    question_id: str
    text: str | None
    label: PseudoLabel | None  # None when it was never asked: malformed or duplicate
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class OracleLabel:
    """What an oracle says of a pseudo-label."""

    question_id: str
    oracle: str  # "exact", "given", "judge" or "human"
    verdict: OracleVerdict
    truth: str | None  # the oracle's own answer, where it has one


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A published model: a folder of safetensors and JSON, and the sha256 of its manifest."""

    id: str
    run: str
    role: Role | Literal["base"]
    iteration: int
    step: int
    path: str
    sha256: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class Score:
    """A raw reward and the parts it was made of."""

    value: float
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A prompt's G rollouts as a Solver's method sees them; a signal that nobody asked for is None.

    `classes[i]` is the place of rollout i's answer in `vote.classes`, whose first is the majority; None without one.
    """

    answers: tuple[str | None, ...]
    vote: PseudoLabel
    classes: tuple[int | None, ...]
    label: str | None = None  # the one that the question came with
    agrees: tuple[bool, ...] | None = None  # whether an answer equals `label`; None where there is no label
    mean_entropy: NDArray[np.float64] | None = None  # (G,), nats a token
    embeddings: NDArray[np.float64] | None = None  # (G, D)
    clusters: tuple[int, ...] | None = None  # strategies; `core.rollouts.strategies.DEGENERATE` is none


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """What a method makes of a group. `label` is the answer that it rewards, None where it abstains; `negatives` are
    the answers that it takes for wrong; it needs no label for that."""

    label: str | None
    rewards: NDArray[np.float64]  # (G,)
    learn: bool = True  # False: the prompt takes no part in the loss
    parts: dict[str, float] = field(default_factory=dict)
    negatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BenchmarkItem:
    """One held-out question with its true answer; `level` groups items in reports (number of operations, say)."""

    id: str
    problem: str
    answer: str
    level: str | None = None


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One benchmark item as a Solver did on it: counts, so that every figure can carry its interval."""

    item_id: str
    level: str | None
    samples: int
    correct: int  # of `samples`, at the sampling temperature
    greedy_correct: bool
    majority_correct: bool
