"""What the queries give back where `core.types` has no word for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer

from core.statistics.estimates import Estimate
from core.types import (
    Denominator,
    FinishReason,
    OracleLabel,
    OracleVerdict,
    PseudoLabel,
    Question,
    ResourceKind,
    Role,
    Stage,
    Verdict,
)

# A seed has up to 63 bits. In JSON it is a string, since the numbers of JavaScript, and of other readers, have 53.
Seed = Annotated[int, PlainSerializer(str, when_used="json")]
# "stopped": the guard, early stopping or a person ended it
RunStatus = Literal["created", "running", "paused", "stopped", "done", "failed", "cancelled"]
StageStatus = Literal["running", "done", "failed"]


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as it was created; `core.settings.parsing.parse_config` makes a `RunConfig` of `config`."""

    name: str
    preset: str | None
    seed: Seed
    status: RunStatus
    config: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class RunLease:
    """Which process works on a run, and until when it is believed to be alive, in UTC."""

    run: str
    owner: str
    expires: datetime


@dataclass(frozen=True, slots=True)
class StageRow:
    """An entry of the ledger. Times are in UTC; `started_at` is that of the latest attempt, the first being 1."""

    run: str
    iteration: int
    stage: Stage
    status: StageStatus
    owner: str
    lease_expires: datetime
    attempt: int
    started_at: datetime
    finished_at: datetime | None
    result: Mapping[str, Any] | None
    error: str | None
    progress_done: int | None = None  # of `progress_total`, in what `progress_note` names
    progress_total: int | None = None
    progress_note: str | None = None


Scope = Literal["read", "run", "label", "admin"]


@dataclass(frozen=True, slots=True)
class KeyRow:
    """An API key, without the key."""

    name: str
    scopes: list[Scope]
    created_at: datetime
    revoked_at: datetime | None


PoolStatus = Literal["queued", "running", "done"]


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A training in the worker pool's queue."""

    run: str
    iteration: int
    stage: Stage
    owner: str
    kind: ResourceKind
    units: float
    status: PoolStatus
    since: datetime  # in this status
    used: float  # unit-seconds, in all


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """A `core.types.Rollout` without its text, which `storage.texts` keeps."""

    question_id: str
    sample_index: int
    answer: str | None
    tokens: int
    finish_reason: FinishReason
    mean_entropy: float | None  # nats a token
    entropy_error: float | None
    checkpoint: str
    seed: Seed


@dataclass(frozen=True, slots=True)
class QuestionSummary:
    """A question as one of a list: with neither what the Challenger wrote around it nor all classes of its votes."""

    id: str
    run: str
    iteration: int
    index: int
    text: str | None
    checkpoint: str | None  # that wrote it; None for a given prompt
    seed: Seed
    verdict: Verdict | None  # None: not labelled yet
    answer: str | None  # this and the next six are the pseudo-label's; None where there is none
    votes: int | None
    m: int | None
    parsed: int | None
    unknown: int | None
    p_hat: float | None
    denominator: Denominator | None  # of p_hat: all votes, `m`, or those with an answer, `parsed`
    oracles: tuple[OracleLabel, ...]


@dataclass(frozen=True, slots=True)
class QuestionEntry:
    """A question with what was made of it so far."""

    question: Question
    verdict: Verdict | None  # None: not labelled yet
    label: PseudoLabel | None  # None where it was never asked too
    oracles: tuple[OracleLabel, ...]


@dataclass(frozen=True, slots=True)
class AuditCount:
    """How many pseudo-labels of an iteration and verdict an oracle gave one and the same verdict."""

    iteration: int
    oracle: str
    verdict: Verdict
    said: OracleVerdict
    count: int


@dataclass(frozen=True, slots=True)
class TrainMetric:
    """One figure of one optimiser step; `value` is None where it was not a number."""

    iteration: int
    role: Role
    step: int
    name: str
    value: float | None


Over = Literal["", "kept", "all"]
Severity = Literal["warning", "critical"]


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A pseudo-label drawn for an oracle; `position` counts from 0 in the order in which they are asked."""

    question_id: str
    oracle: str
    run: str
    iteration: int
    stratum: str
    position: int


@dataclass(frozen=True, slots=True)
class AnnotationRow:
    """What one person said of a pseudo-label; `unknown` is skipped."""

    question_id: str
    annotator: str
    verdict: OracleVerdict
    note: str
    made_at: datetime


@dataclass(frozen=True, slots=True)
class ClusterRow:
    question_id: str
    run: str
    iteration: int
    cluster: int  # 0 is the largest
    size: int


@dataclass(frozen=True, slots=True)
class TrainedOnRow:
    question_id: str
    checkpoint: str
    steps: list[int]


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """One figure of one iteration."""

    iteration: int
    name: str
    over: Over
    oracle: str  # empty: the figure has none
    value: float
    lo: float | None  # the 95% interval; None: a figure without one
    hi: float | None
    n: int
    estimated: bool = False  # from p_hat and earlier audits, not measured

    @property
    def estimate(self) -> Estimate | None:
        return None if self.lo is None or self.hi is None else Estimate(self.value, self.lo, self.hi, self.n)


@dataclass(frozen=True, slots=True)
class StepLabelFigures:
    """The labels of one step of an iteration's training; n are different questions.

    `accuracy`: right ones of the labels. `labelled`: the share of the prompts that got one; the method abstained from
    the others. `negatives`: wrong ones of the answers that SCRL takes for wrong. None where there are none.
    """

    iteration: int
    step: int
    oracle: str
    accuracy: Estimate | None
    labelled: Estimate | None
    negatives: Estimate | None


@dataclass(frozen=True, slots=True)
class AlertRow:
    """What a rule found. `id` is natural: the same finding has the same."""

    id: str
    run: str
    iteration: int
    rule: str
    series: str
    over: Over
    oracle: str
    severity: Severity
    value: float
    lo: float | None
    hi: float | None
    n: int | None
    reference: float | None  # what `value` is compared with
    threshold: float | None
    text: str
    raised_at: datetime
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """An alert on its way to a target."""

    alert: str
    target: str
    attempts: int
    next_at: datetime
    delivered_at: datetime | None
    error: str | None
