"""What the API answers with. Shares lie in [0, 1] and come with their 95% interval and n."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from core.drift import Estimate as Measured
from core.types import Checkpoint as Published
from core.types import Denominator, FinishReason, OracleVerdict, Role, Verdict
from storage.rows import QuestionEntry, RolloutRow, RunRow, RunStatus, StageRow, StageStatus


class Estimate(BaseModel):
    """A figure with its 95% confidence interval and the number of items that it rests on."""

    model_config = ConfigDict(
        from_attributes=True, json_schema_extra={"example": {"value": 0.937, "lo": 0.895, "hi": 0.963, "n": 205}}
    )

    value: float
    lo: float
    hi: float
    n: int

    @classmethod
    def of(cls, found: Measured | None) -> Self | None:
        return None if found is None else cls.model_validate(found)


class Run(BaseModel):
    name: str
    preset: str | None
    seed: int
    status: RunStatus
    iterations: int  # that it is to have
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, row: RunRow) -> Self:
        named = {name: getattr(row, name) for name in ("name", "preset", "seed", "status", "created_at", "updated_at")}
        return cls(**named, iterations=row.config["iterations"])


class RunPage(BaseModel):
    items: list[Run]
    next: str | None  # the `after` of the next page; none after the last


class RunDetail(Run):
    config: dict[str, Any]

    @classmethod
    def of(cls, row: RunRow) -> Self:
        return cls(**Run.of(row).model_dump(), config=dict(row.config))


class Stage(BaseModel):
    """An entry of the ledger; times are of its latest attempt."""

    iteration: int
    stage: str
    status: StageStatus
    attempt: int
    started_at: datetime
    finished_at: datetime | None
    seconds: float | None
    error: str | None

    @classmethod
    def of(cls, row: StageRow) -> Self:
        seconds = (row.finished_at - row.started_at).total_seconds() if row.finished_at else None
        names = ("iteration", "stage", "status", "attempt", "started_at", "finished_at", "error")
        return cls(**{name: getattr(row, name) for name in names}, seconds=seconds)


class OracleSaid(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    oracle: str
    verdict: OracleVerdict
    truth: str | None


class Question(BaseModel):
    """A question, its pseudo-label and verdict; what is not known yet, or never will be, is null."""

    id: str
    run: str
    iteration: int
    index: int
    text: str | None
    verdict: Verdict | None
    answer: str | None
    votes: int | None
    m: int | None
    parsed: int | None
    p_hat: float | None
    oracles: list[OracleSaid]

    @classmethod
    def of(cls, entry: QuestionEntry) -> Self:
        asked, label = entry.question, entry.label
        return cls(
            **{name: getattr(asked, name) for name in ("id", "run", "iteration", "index", "text")},
            verdict=entry.verdict,
            **{name: getattr(label, name, None) for name in ("answer", "votes", "m", "parsed", "p_hat")},
            oracles=[OracleSaid.model_validate(said) for said in entry.oracles],
        )


class QuestionPage(BaseModel):
    items: list[Question]
    next: str | None  # the `after` of the next page; none after the last


class AnswerClass(BaseModel):
    answer: str  # of one of its votes
    votes: int


class Vote(BaseModel):
    """One rollout of the Solver."""

    model_config = ConfigDict(from_attributes=True)

    sample_index: int
    answer: str | None
    tokens: int
    finish_reason: FinishReason
    mean_entropy: float | None  # nats a token
    entropy_error: float | None  # the exact one is within mean_entropy -+ this
    checkpoint: str
    seed: int


class QuestionDetail(Question):
    """A question with every vote."""

    raw: str  # what the Challenger wrote
    checkpoint: str | None  # that wrote it; null for a given prompt
    seed: int
    given_answer: str | None  # that a given prompt came with
    unknown: int | None  # comparisons of answers that could not be decided
    denominator: Denominator | None
    classes: list[AnswerClass]
    rollouts: list[Vote]

    @classmethod
    def with_votes(cls, entry: QuestionEntry, votes: Sequence[RolloutRow]) -> Self:
        asked, label = entry.question, entry.label
        return cls(
            **Question.of(entry).model_dump(),
            **{name: getattr(asked, name) for name in ("raw", "checkpoint", "seed")},
            given_answer=asked.answer,
            unknown=label.unknown if label else None,
            denominator=label.denominator if label else None,
            classes=[AnswerClass(answer=a, votes=n) for a, n in label.classes] if label else [],
            rollouts=[Vote.model_validate(vote) for vote in votes],
        )


class Bin(BaseModel):
    p_hat: float
    verdict: Verdict
    questions: int


class Statistics(BaseModel):
    """What became of an iteration's questions; the histogram's bins are the shares that occur."""

    verdicts: dict[Verdict, int]
    kept: Estimate | None
    mean_p_hat: float | None
    unparsed_share: float | None  # of the votes; no interval: those of one question are not independent
    histogram: list[Bin]


class DriftPoint(BaseModel):
    """Right pseudo-labels of one iteration, by one oracle, over what it was asked of."""

    iteration: int
    oracle: str
    over: Literal["kept", "all"]
    label_accuracy: Estimate
    ill_posed: Estimate
    unknown: int  # of n: the oracle could not say; not right


class Checkpoint(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: str
    run: str
    role: Role | Literal["base"]
    iteration: int
    step: int
    path: str
    sha256: str
    parent: str | None


class CheckpointDetail(Checkpoint):
    manifest: dict[str, str]  # file name -> sha256
    ancestors: list[Checkpoint]  # its parent first, the base model last
    children: list[Checkpoint]

    @classmethod
    def of(cls, chain: Sequence[Published], children: Sequence[Published], manifest: dict[str, str]) -> Self:
        first, *ancestors = [Checkpoint.model_validate(each) for each in chain]
        below = [Checkpoint.model_validate(each) for each in children]
        return cls(**first.model_dump(), manifest=manifest, ancestors=ancestors, children=below)


class Evaluation(BaseModel):
    """How a checkpoint did on a benchmark; n are its items."""

    checkpoint: str
    benchmark: str
    samples: int  # an item
    pass_at_1: Estimate | None
    greedy: Estimate | None
    majority: Estimate | None


class Metric(BaseModel):
    """One figure of one optimiser step; null where it was not a number."""

    model_config = ConfigDict(from_attributes=True)

    iteration: int
    role: Role
    step: int
    name: str
    value: float | None


class Job(BaseModel):
    """A training in the worker pool."""

    model_config = ConfigDict(from_attributes=True)

    run: str
    iteration: int
    stage: str
    kind: Literal["CPU", "GPU"]
    units: float
    priority: int
    status: Literal["queued", "running", "done"]
    since: datetime
    preempted: bool
    used: float  # unit-seconds


class Health(BaseModel):
    status: Literal["ok"] = "ok"
