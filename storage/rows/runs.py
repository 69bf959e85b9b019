"""Runs, their stages and jobs, what they used, and the keys of the REST API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import computed_field

from core.types import (
    Purpose,
    ResourceKind,
)
from core.types import Stage as StageName
from storage.rows.seeds import Seed

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

    Both are None for a run that was created without a preset.
    """

    preset_settings: Mapping[str, Any] | None
    overrides: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class RunDetail(Run):
    """A run with its settings. `queries.runs.config_from` makes a `RunConfig` of its `config`."""

    config: Mapping[str, Any]


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
    charged: datetime | None  # until when `used` counts; None: it does not run


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
