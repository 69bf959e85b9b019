"""What the queries give back where `core.types` has no word for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from core.types import FinishReason, OracleLabel, OracleVerdict, PseudoLabel, Question, Role, Verdict

# "stopped": the guard, early stopping or a person ended it
RunStatus = Literal["created", "running", "paused", "stopped", "done", "failed", "cancelled"]
StageStatus = Literal["running", "done", "failed"]


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as it was created; `core.config.parse_config` makes a `RunConfig` of `config`."""

    name: str
    preset: str | None
    seed: int
    status: RunStatus
    config: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class StageRow:
    """An entry of the ledger. Times are in UTC; `started_at` is that of the latest attempt, the first being 1."""

    run: str
    iteration: int
    stage: str
    status: StageStatus
    owner: str
    lease_expires: datetime
    attempt: int
    started_at: datetime
    finished_at: datetime | None
    result: Mapping[str, Any] | None
    error: str | None


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
    stage: str
    owner: str
    kind: Literal["CPU", "GPU"]
    units: float
    priority: int
    status: PoolStatus
    since: datetime  # in this status
    preempted: bool
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
    seed: int


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
