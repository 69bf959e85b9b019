"""The rows that the queries return, where they are not one of the types of `core.types`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, computed_field

from core.statistics.estimates import Estimate
from core.types import (
    Denominator,
    FinishReason,
    OracleLabel,
    OracleVerdict,
    PseudoLabel,
    Purpose,
    Question,
    ResourceKind,
    Role,
    Verdict,
)
from core.types import Stage as StageName

# A seed has up to 63 bits. In JSON it is a string, since the numbers of JavaScript, and of other readers, have 53.
Seed = Annotated[int, PlainSerializer(str, when_used="json")]
# "stopped": the guard, early stopping or a person ended the run; "out_of_budget": it has spent one of its budgets
RunStatus = Literal["created", "running", "paused", "stopped", "out_of_budget", "done", "failed", "cancelled"]
ENDED: tuple[RunStatus, ...] = ("done", "stopped")  # by itself or by its guard, so that nothing is missing
StageStatus = Literal["running", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run. `updated_at` is when its status or its number of iterations last changed.

    `tags` and `note` are people's words, which do not change what the run does; `noted_by` changed them last.
    """

    name: str
    preset: str | None
    seed: Seed
    status: RunStatus
    iterations: int  # planned
    created_at: datetime
    updated_at: datetime
    tags: list[str]
    note: str
    noted_by: str | None
    noted_at: datetime | None


@dataclass(frozen=True, slots=True)
class TagCount:
    """A tag, and how many runs have it."""

    tag: str
    runs: int


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """What a run's configuration was made from: the preset's settings as they were, and overrides by dotted names.

    Both are None for a run that was created before they were recorded, or without a preset.
    """

    preset_settings: Mapping[str, Any] | None
    overrides: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class RunDetail(Run):
    """A run with its settings. `core.settings.parsing.parse_config` makes a `RunConfig` of its `config`."""

    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """What a model was asked. The manifest has all that the answers depend on. Times are in UTC."""

    id: str
    run: str | None  # that made it, in a stage or in `coevo matrix`; None: `coevo evaluate` did
    checkpoint_id: str | None
    model: str  # a checkpoint's id, or the folder or URL of a model that is no run's
    benchmark: str
    manifest: Mapping[str, Any]
    seconds: float  # spent on it so far
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunLease:
    """The process that works on a run, and the time (UTC) until which it counts as alive."""

    run: str
    owner: str
    expires: datetime


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of an iteration. Times are in UTC and of the latest attempt; the first attempt is 1."""

    iteration: int
    stage: StageName
    status: StageStatus
    attempt: int
    started_at: datetime
    finished_at: datetime | None
    error: str | None
    progress_done: int | None  # out of `progress_total`; `progress_note` names the unit
    progress_total: int | None
    progress_note: str | None

    @computed_field  # type: ignore[prop-decorator]  # mypy knows it for pydantic's own classes only
    @property
    def seconds(self) -> float | None:
        """From the start to the end; None while there is no end."""
        return None if self.finished_at is None else (self.finished_at - self.started_at).total_seconds()


@dataclass(frozen=True, slots=True)
class StageRow(Stage):
    """An entry of the ledger: a stage, and what the API does not show."""

    run: str
    owner: str
    lease_expires: datetime
    result: Mapping[str, Any] | None


Scope = Literal["read", "run", "label", "admin"]


@dataclass(frozen=True, slots=True)
class KeyRow:
    """The stored facts about an API key. The key itself is not stored."""

    name: str
    scopes: list[Scope]
    created_at: datetime
    revoked_at: datetime | None


PoolStatus = Literal["queued", "running", "done"]


@dataclass(frozen=True, slots=True)
class Job:
    """A training in the worker pool."""

    run: str
    iteration: int
    stage: StageName
    kind: ResourceKind
    units: float
    status: PoolStatus
    since: datetime  # when it got this status
    used: float  # unit-seconds in total


@dataclass(frozen=True, slots=True)
class PoolRow(Job):
    """A job with the process that it belongs to, which the API does not show."""

    owner: str


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
    """A question as an entry of a list: without the Challenger's whole text and without the classes of its votes."""

    id: str
    run: str
    iteration: int
    index: int
    text: str | None
    checkpoint: str | None  # the Challenger that wrote it; None for a given prompt
    seed: Seed
    verdict: Verdict | None  # None: not labelled yet
    answer: str | None  # this field and the next six are the pseudo-label; None if there is none
    votes: int | None
    m: int | None
    parsed: int | None
    unknown: int | None
    p_hat: float | None
    denominator: Denominator | None  # of p_hat: all votes, `m`, or those with an answer, `parsed`
    oracles: tuple[OracleLabel, ...]


@dataclass(frozen=True, slots=True)
class QuestionEntry:
    """A question with its label, verdict and oracle labels so far."""

    question: Question
    verdict: Verdict | None  # None: not labelled yet
    label: PseudoLabel | None  # None also if the Solver was never asked
    oracles: tuple[OracleLabel, ...]


@dataclass(frozen=True, slots=True)
class AuditCount:
    """The number of pseudo-labels of one iteration and verdict that an oracle gave the verdict `oracle_verdict`."""

    iteration: int
    oracle: str
    verdict: Verdict
    oracle_verdict: OracleVerdict
    count: int


@dataclass(frozen=True, slots=True)
class TrainMetric:
    """One figure of one optimiser step. `value` is None if it was not a number."""

    iteration: int
    role: Role
    step: int
    name: str
    value: float | None


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """What is stored of the rollouts of one step of a training: how many, and their rewards."""

    step: int
    prompts: int
    rollouts: int
    trained_on: int  # rollouts
    reward_mean: float  # over the stored rollouts; that of the whole step is among the training metrics
    reward_min: float
    reward_max: float


Slice = Literal["kept", "all"]  # of an iteration's questions
Over = Slice | Literal[""]  # what a series is over; "": over no questions
Severity = Literal["warning", "critical"]


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A pseudo-label drawn for an oracle. `position`, from 0, is the order in which the oracle is asked."""

    question_id: str
    oracle: str
    run: str
    iteration: int
    stratum: str
    position: int


@dataclass(frozen=True, slots=True)
class AnnotationRow:
    """One person's verdict on a pseudo-label. `unknown`: the person skipped it."""

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
    oracle: str  # empty if no oracle is involved
    value: float
    lo: float | None  # 95% interval; None for a figure without one
    hi: float | None
    n: int
    estimated: bool = False  # from p_hat and the audits of other iterations, not measured

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
    """A finding of a rule. `id` derives from the finding, so the same finding has the same id."""

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
    reference: float | None  # the value that `value` is compared with
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


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What a stage of a run has used for one purpose, over all its attempts."""

    iteration: int
    stage: StageName
    purpose: Purpose
    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    requests: int
    prompt_tokens: int
    reply_tokens: int


@dataclass(frozen=True, slots=True)
class ExperimentRun:
    """Which arm of which experiment a run is. `position` is the arm's in the experiment; the baseline's is 0."""

    run: str
    experiment: str
    arm: str
    position: int
    seed: Seed
