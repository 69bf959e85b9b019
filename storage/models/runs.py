"""Runs, their stages and trainings in the pool, what they used, and who may ask for them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index
from sqlalchemy.orm import Mapped, column_property, mapped_column

from storage.models.base import NARROW, Base, run_key


class Runs(Base):
    __tablename__ = "runs"
    __table_args__ = (Index(None, "created_at", "name"),)

    name: Mapped[str] = mapped_column(primary_key=True)
    preset: Mapped[str | None]
    seed: Mapped[int] = mapped_column(BigInteger)
    status: Mapped[str]
    config: Mapped[dict[str, Any]] = mapped_column(JSON)  # the whole RunConfig
    # What `config` was made from: the preset's settings, and the overrides by dotted names. NULL: no preset.
    preset_settings: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    overrides: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    # What people say about the run. It does not change what the run does.
    tags: Mapped[list[str]] = mapped_column(JSON)
    note: Mapped[str]
    noted_by: Mapped[str | None]  # who changed tags or note last, and when
    noted_at: Mapped[datetime | None]

    iterations = column_property(config["iterations"].as_integer())


class InheritedIterations(Base):
    """The iterations that a fork has from other runs, whose rows and checkpoints stay those of the run that made them.

    A run that is no fork has none. A fork of a fork names the runs that made its iterations, not the fork between.
    """

    __tablename__ = "inherited_iterations"
    __table_args__ = NARROW

    run: Mapped[str] = run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    made_by: Mapped[str] = mapped_column(ForeignKey("runs.name"), index=True)  # which cannot be deleted meanwhile


class ExperimentRuns(Base):
    """Which arm of which experiment a run is."""

    __tablename__ = "experiment_runs"

    run: Mapped[str] = run_key()
    experiment: Mapped[str] = mapped_column(index=True)
    arm: Mapped[str]
    position: Mapped[int]  # of the arm in the experiment; the baseline's is 0
    seed: Mapped[int] = mapped_column(BigInteger)


class RunLeases(Base):
    """Which process works on a run now. There is no foreign key to `runs`: a run is claimed before it is created."""

    __tablename__ = "run_leases"

    run: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    expires: Mapped[datetime]


class Stages(Base):
    """The ledger: for each stage of an iteration its status, its owner, and the owner's lease."""

    __tablename__ = "stages"

    run: Mapped[str] = run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    stage: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str]
    owner: Mapped[str]
    lease_expires: Mapped[datetime]
    attempt: Mapped[int]
    started_at: Mapped[datetime]  # of the latest attempt
    finished_at: Mapped[datetime | None]
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    error: Mapped[str | None]
    progress_done: Mapped[int | None]
    progress_total: Mapped[int | None]
    progress_note: Mapped[str | None]


class PoolJobs(Base):
    """The worker pool's queue: trainings that wait for GPUs or CPUs, that have them, or that had them."""

    __tablename__ = "pool_jobs"

    run: Mapped[str] = run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    stage: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    kind: Mapped[str]
    units: Mapped[float]
    status: Mapped[str]
    since: Mapped[datetime]  # when it got this status
    used: Mapped[float]  # unit-seconds in total
    charged: Mapped[datetime | None]  # until when `used` counts; NULL: it does not run


class Usage(Base):
    """What a stage has used for one purpose: time, devices, requests, tokens. Amounts are added up."""

    __tablename__ = "usage"
    __table_args__ = NARROW

    run: Mapped[str] = run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    stage: Mapped[str] = mapped_column(primary_key=True)
    purpose: Mapped[str] = mapped_column(primary_key=True)
    seconds: Mapped[float]
    cpu_seconds: Mapped[float]
    gpu_seconds: Mapped[float]
    requests: Mapped[int] = mapped_column(BigInteger)
    prompt_tokens: Mapped[int] = mapped_column(BigInteger)
    reply_tokens: Mapped[int] = mapped_column(BigInteger)


class ApiKeys(Base):
    """Keys of the REST API. Only their SHA-256 is stored, never the keys themselves."""

    __tablename__ = "api_keys"

    name: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(index=True)
    scopes: Mapped[list[str]] = mapped_column(JSON)
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
