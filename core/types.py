"""The data types of the loop, as frozen dataclasses without behaviour, and the natural keys of their rows.

A missing value is `None`. In docstrings, `m` is the number of votes on a question, `G` the number of rollouts in a
group, and `B` the number of questions in a batch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Role = Literal["challenger", "solver"]
# What a checkpoint was trained as. "labelled" is a Solver after a training on labelled data that no iteration goes on
# from; "base" is the model that both roles begin with.
CheckpointRole = Role | Literal["base", "labelled"]
Verdict = Literal["kept", "too_easy", "too_hard", "no_majority", "refused", "malformed", "duplicate"]
Flow = Literal["co_evolve", "self_train"]  # the loop of both roles, or a Solver alone on a given prompt set
Denominator = Literal["all", "parsed"]
QuestionFormat = Literal["tags", "tags_and_answer"]  # what a well-formed Challenger rollout has
OracleVerdict = Literal["right", "wrong", "ill_posed", "unknown"]
EqualityVerdict = Literal["equal", "unequal", "unknown"]  # unknown: the grader could not tell
FinishReason = Literal["stop", "length"]
Message = dict[str, str]  # of a chat: `role` and `content`
ResourceKind = Literal["CPU", "GPU"]  # what the worker pool shares out, under Ray's names
Stage = Literal[
    "train_challenger",
    "generate_questions",
    "label_questions",
    "admit_questions",  # only if the run has gates
    "train_solver",
    "train_labelled",  # and `evaluate_labelled`: only if a run has labelled data that its loop does not go on from
    "evaluate",
    "evaluate_labelled",
    "audit_labels",
    "check_health",
    "read_prompts",  # in self_train, instead of the first two stages
    "ask_a_person",  # only if the action of `check_health` is "pause"
]
# What a stage used something for: "stage" is its time, "applications" the devices of inference, the others are tokens.
Purpose = Literal["stage", "applications", "questions", "votes", "reward", "training", "evaluation", "judge"]
STAGES: tuple[Stage, ...] = get_args(Stage)
# The shipped base models (trainers/micro/bases.py). Their benchmarks and their prompt sets have the same names.
TINY_BASES = ("micro", "micro-long")
DEGENERATE = 100  # Poly-EPO's cluster of gibberish and bare guesses, which is no strategy


def question_id(run: str, iteration: int, index: int) -> str:
    """The natural key of a question; it sorts in the order of generation."""
    return f"{run}/{iteration}/{index:06d}"


def question_key(question_id: str) -> tuple[str, int, int]:
    """The run, iteration and index in the natural key of a question."""
    run, iteration, index = question_id.rsplit("/", 2)
    return run, int(iteration), int(index)


def checkpoint_id(run: str, role: CheckpointRole, iteration: int) -> str:
    """The natural key of a checkpoint: `demo/solver/2`; the base model of a run is `demo/base/0`."""
    return f"{run}/{role}/{iteration}"


def evaluation_id(model: str, benchmark: str, *protocol: str | int | float) -> str:
    """The natural key of an evaluation: 16 hexadecimal digits.

    An evaluation by a run is identified by checkpoint and benchmark, because the run has one protocol; any other also
    by all that its answers depend on.
    """
    return sha256(json.dumps([model, benchmark, *protocol]).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Question:
    """One Challenger rollout of `generate_questions`, or one prompt of a given set.

    `text` is None if the rollout is malformed; such a question is stored too.
    """

    id: str
    run: str
    iteration: int
    index: int
    text: str | None
    raw: str  # what the Challenger wrote, bounded by its max_tokens, or the text of a given prompt
    checkpoint: str | None  # the Challenger that wrote the question; None for a given prompt
    seed: int
    answer: str | None = None  # the true answer, if a given prompt came with one


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled completion for a question."""

    question_id: str
    sample_index: int
    text: str
    answer: str | None  # the content of the last \boxed{}
    tokens: int
    finish_reason: FinishReason
    mean_entropy: float | None  # nats per token, of the sampling policy
    entropy_error: float | None  # the exact value is within mean_entropy -+ entropy_error; 0 if mean_entropy is exact
    checkpoint: str  # the model that wrote the text
    seed: int


@dataclass(frozen=True, slots=True)
class PseudoLabel:
    """The outcome of a vote over m rollouts. `answer` is None when no rollout has an answer."""

    answer: str | None
    votes: int  # rollouts that agree with `answer`
    m: int  # rollouts asked for
    parsed: int  # rollouts with an answer
    unknown: int  # comparisons that the grader could not decide; they merge no votes
    p_hat: float  # votes / m or votes / parsed, depending on `denominator`; 0 when `answer` is None
    denominator: Denominator
    classes: tuple[tuple[str, int], ...] = ()  # (representative answer, votes), most votes first


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question with its pseudo-label and verdict. `train_solver` learns from it if `verdict` is "kept"."""

    question_id: str
    text: str | None
    label: PseudoLabel | None  # None if no vote was taken: malformed, duplicate, or a given prompt without a vote
    verdict: Verdict
    gate: str | None = None  # the type of the gate that refused it; None unless `verdict` is "refused"


@dataclass(frozen=True, slots=True)
class OracleLabel:
    """The verdict of an oracle on a pseudo-label."""

    question_id: str
    oracle: str  # "exact", "given", "program", "judge", "judge_<name>" or "human"
    verdict: OracleVerdict
    truth: str | None  # the oracle's own answer, if it has one


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A published model: a folder of safetensors and JSON, and the sha256 of its manifest.

    `files_removed`: the folder is no longer there, because the run keeps only some of its checkpoints.
    """

    id: str
    run: str
    role: CheckpointRole
    iteration: int
    step: int
    path: str
    sha256: str
    parent: str | None
    files_removed: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """A raw reward and the parts that it is made of."""

    value: float
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The G rollouts of one prompt, as a Solver's method sees them. A signal that is not needed or not known is None.

    `classes[i]` is the index in `vote.classes` of the class of rollout i's answer; index 0 is the majority. It is None
    if the rollout has no answer.
    """

    answers: tuple[str | None, ...]
    vote: PseudoLabel
    classes: tuple[int | None, ...]
    label: str | None = None  # the label that came with the question
    # Whether each answer (G,) equals `label`, None if the grader cannot tell; None if there is no label.
    agrees: tuple[bool | None, ...] | None = None
    mean_entropy: NDArray[np.float64] | None = None  # (G,), nats per token
    embeddings: NDArray[np.float64] | None = None  # (G, D)
    clusters: tuple[int, ...] | None = None  # strategies; `DEGENERATE` means no strategy
    question_id: str | None = None
    seed: int = 0  # of the random numbers that a method draws; another one for each group of a run


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """The result of scoring a group. `label` is the answer that the method rewards, None if there is none. `negatives`
    are the answers that the method takes for wrong; there may be some without a label."""

    label: str | None
    rewards: NDArray[np.float64]  # (G,)
    learn: bool = True  # False: the prompt is dropped from the loss
    parts: dict[str, float] = field(default_factory=dict)  # of the group
    rollout_parts: tuple[dict[str, float], ...] = ()  # (G,), of each reward; empty if the method has none
    negatives: tuple[str, ...] = ()
    undecided: tuple[int, ...] = ()  # indices of the rollouts that have no reward: their entries in `rewards` are 0


@dataclass(frozen=True, slots=True)
class TrainingRollout:
    """One rollout of a training step, with what it was rewarded for.

    `parts` holds the parts of the reward and the figures of the prompt's group, by their names in `Score.parts` and
    `Scored.parts`. Columns that a role or a trainer does not know are None.
    """

    step: int
    prompt: int  # the position of the prompt in its step
    rollout: int  # the position of the rollout among those of its prompt
    question_id: str | None  # None: the Challenger's prompt, which is always the same
    question: str | None  # that a Solver answers, or that a Challenger wrote; None if it is malformed
    answer: str | None  # of a Solver
    label: str | None  # the answer that the method rewards; None if there is none
    agrees: bool | None  # whether the answer is in the label's class; None without a label, or if that is undecided
    reward: float  # 0 if it is undecided; then the part `undecided` is 1
    parts: dict[str, float]
    advantage: float | None  # None: the rollout was not trained on
    tokens: int
    finish_reason: FinishReason
    mean_entropy: float | None  # nats per token, of the sampling policy

    @property
    def prompt_key(self) -> str:
        """The key of the prompt among the texts of its training."""
        return f"{self.step:06d}/{self.prompt:06d}"


@dataclass(frozen=True, slots=True)
class BenchmarkItem:
    """One held-out question with its true answer. `level` and `subject` group items in reports."""

    id: str
    problem: str
    answer: str
    level: str | None = None
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A Solver's result on one benchmark item, as counts, so that figures made from them can have intervals."""

    item_id: str
    level: str | None
    samples: int
    correct: int  # of `samples`, at the sampling temperature
    greedy_correct: bool | None  # None: the model was not asked greedily
    majority_correct: bool


GREEDY = -1  # the sample index of the greedy answer


@dataclass(frozen=True, slots=True)
class EvaluatedAnswer:
    """A model's answer to one benchmark item, and whether it equals the true answer.

    `verdict` is None if there is no answer. `answer_class` is the class of equal answers among the item's sampled
    answers, where 0 is the majority; None if the answer did not vote.
    """

    item_id: str
    sample_index: int
    answer: str | None
    answer_class: int | None
    verdict: EqualityVerdict | None
    tokens: int
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class StageKey:
    """A stage of an iteration of a run."""

    run: str
    iteration: int
    stage: Stage


@dataclass(frozen=True, slots=True)
class Spent:
    """Requests to models, and their tokens. A prompt counts once, however many replies it gets."""

    requests: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.reply_tokens + other.reply_tokens,
        )


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """What a judge says about an `EvaluatedAnswer`, when it is shown the true answer."""

    item_id: str
    sample_index: int
    judge: str  # the name of an oracle, as in `OracleLabel`
    verdict: OracleVerdict
