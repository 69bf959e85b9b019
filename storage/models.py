"""The tables. Their keys are natural (`core.types.question_id`, `checkpoint_id`), so that writing a row twice is
writing it once; rows are never updated, except those of `runs`, `run_leases`, `stages`, `pool_jobs`, `series`, `alerts`
and `deliveries`. `docs/storage.md` describes them.

A class is named for its table, in the plural: the singular names are the carriers in `core.types`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from storage.columns import AnyText, UtcDateTime

# One B-tree a table instead of two, for narrow rows that are only ever found by their key.
_NARROW = {"sqlite_with_rowid": False}


def _run() -> Mapped[str]:
    return mapped_column(ForeignKey("runs.name", ondelete="CASCADE"), primary_key=True)


def _question() -> Mapped[str]:
    return mapped_column(ForeignKey("questions.id", ondelete="CASCADE"), primary_key=True)


class Base(DeclarativeBase):
    # Constraints have names, so that a later migration can drop them.
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it as it stands
        str: AnyText,
        float: Double,
        datetime: UtcDateTime,
        dict[str, Any]: JSON,
        dict[str, str]: JSON,
        list[list[Any]]: JSON,
        list[int]: JSON,
    }


class Runs(Base):
    __tablename__ = "runs"

    name: Mapped[str] = mapped_column(primary_key=True)
    preset: Mapped[str | None]
    seed: Mapped[int] = mapped_column(BigInteger)
    status: Mapped[str]
    config: Mapped[dict[str, Any]]  # the whole RunConfig
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class RunLeases(Base):
    """Who works on a run now. Not bound to `runs`: a run is claimed before it is made."""

    __tablename__ = "run_leases"

    run: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    expires: Mapped[datetime]


class Stages(Base):
    """The ledger: which stage of which iteration is done, by whom, and the lease of whoever is at it."""

    __tablename__ = "stages"

    run: Mapped[str] = _run()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    stage: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str]
    owner: Mapped[str]
    lease_expires: Mapped[datetime]
    attempt: Mapped[int]
    started_at: Mapped[datetime]  # of this attempt
    finished_at: Mapped[datetime | None]
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    error: Mapped[str | None]
    progress_done: Mapped[int | None]
    progress_total: Mapped[int | None]
    progress_note: Mapped[str | None]


class Checkpoints(Base):
    """Published checkpoints only: the row is written in the transaction that finishes the stage."""

    __tablename__ = "checkpoints"

    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("runs.name", ondelete="CASCADE"), index=True)
    role: Mapped[str]
    iteration: Mapped[int]
    step: Mapped[int]
    path: Mapped[str]
    sha256: Mapped[str]
    manifest: Mapped[dict[str, str]]  # file name -> sha256
    parent: Mapped[str | None] = mapped_column(ForeignKey("checkpoints.id"), index=True)


class Questions(Base):
    __tablename__ = "questions"
    __table_args__ = (Index(None, "run", "iteration", "index", unique=True),)

    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("runs.name", ondelete="CASCADE"))
    iteration: Mapped[int]
    index: Mapped[int]
    text: Mapped[str | None]
    raw: Mapped[str]
    checkpoint: Mapped[str | None] = mapped_column(ForeignKey("checkpoints.id"))  # NULL: it came from a file
    seed: Mapped[int] = mapped_column(BigInteger)
    answer: Mapped[str | None]  # the true one, where the file has it


class Rollouts(Base):
    """Votes without their texts, which are in Parquet files (`storage.texts`)."""

    __tablename__ = "rollouts"
    __table_args__ = _NARROW

    question_id: Mapped[str] = _question()
    sample_index: Mapped[int] = mapped_column(primary_key=True)
    answer: Mapped[str | None]
    tokens: Mapped[int]
    finish_reason: Mapped[str]
    mean_entropy: Mapped[float | None]
    entropy_error: Mapped[float | None]
    checkpoint: Mapped[str] = mapped_column(ForeignKey("checkpoints.id"))
    seed: Mapped[int] = mapped_column(BigInteger)


class PseudoLabels(Base):
    """One row a question: its verdict, and the vote unless it was never asked (malformed, duplicate).

    Run, iteration and index are the question's, here too so that an iteration's rows can be read in order of p_hat.
    """

    __tablename__ = "pseudo_labels"
    __table_args__ = (
        Index(None, "run", "iteration", "p_hat", "index", "verdict"),
        Index(None, "run", "iteration", "verdict", "index"),
    )

    question_id: Mapped[str] = _question()
    run: Mapped[str]
    iteration: Mapped[int]
    index: Mapped[int]
    verdict: Mapped[str]
    answer: Mapped[str | None]
    votes: Mapped[int | None]
    m: Mapped[int | None]
    parsed: Mapped[int | None]
    unknown: Mapped[int | None]
    p_hat: Mapped[float | None]
    denominator: Mapped[str | None]
    classes: Mapped[list[list[Any]] | None] = mapped_column(JSON(none_as_null=True))  # [[answer, votes], …]


class PoolJobs(Base):
    """The worker pool's queue: the trainings that wait for GPUs or CPUs, those that have them, and what they used."""

    __tablename__ = "pool_jobs"

    run: Mapped[str] = _run()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    stage: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    kind: Mapped[str]
    units: Mapped[float]
    priority: Mapped[int]
    status: Mapped[str]
    since: Mapped[datetime]  # in this status
    preempted: Mapped[bool]
    used: Mapped[float]  # unit-seconds, in all


class ApiKeys(Base):
    """Keys of the REST API, by their SHA-256: the keys themselves are nowhere."""

    __tablename__ = "api_keys"

    name: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(index=True)
    scopes: Mapped[list[str]] = mapped_column(JSON)
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class OracleLabels(Base):
    __tablename__ = "oracle_labels"
    __table_args__ = (Index(None, "run", "iteration", "index", "oracle", "verdict"), _NARROW)

    question_id: Mapped[str] = _question()
    oracle: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str]  # these three are the question's, as a label's are
    iteration: Mapped[int]
    index: Mapped[int]
    verdict: Mapped[str]
    truth: Mapped[str | None]


class AuditSamples(Base):
    """The pseudo-labels drawn for an oracle that grades a sample: what its figures are weighted by."""

    __tablename__ = "audit_samples"
    __table_args__ = (Index(None, "run", "iteration", "oracle", "position"),)

    question_id: Mapped[str] = _question()
    oracle: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str]
    iteration: Mapped[int]
    stratum: Mapped[str]
    position: Mapped[int]  # the order in which they are asked, the same in a larger sample


class Annotations(Base):
    """What one person said of a pseudo-label; what people agree on is the oracle label of `human`."""

    __tablename__ = "annotations"

    question_id: Mapped[str] = _question()
    annotator: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[str]  # `unknown`: skipped
    note: Mapped[str]
    made_at: Mapped[datetime]


class QuestionClusters(Base):
    """Which questions of an iteration are alike (`core.questions.similarity.clusters`), the largest cluster being 0."""

    __tablename__ = "question_clusters"
    __table_args__ = (Index(None, "run", "iteration", "cluster"), _NARROW)

    question_id: Mapped[str] = _question()
    run: Mapped[str]
    iteration: Mapped[int]
    cluster: Mapped[int]
    size: Mapped[int]


class TrainedOn(Base):
    """Which checkpoint learned from a question, and at which steps."""

    __tablename__ = "trained_on"
    __table_args__ = _NARROW

    question_id: Mapped[str] = _question()
    checkpoint: Mapped[str] = mapped_column(ForeignKey("checkpoints.id", ondelete="CASCADE"), primary_key=True)
    steps: Mapped[list[int]]


class Series(Base):
    """One figure of one iteration, worked out from other tables, so that a run's course is read at once.

    `over` is the questions that it is over (`kept`, `all`) and `oracle` whoever says so; both are empty where the
    figure has none.
    """

    __tablename__ = "series"
    __table_args__ = _NARROW

    run: Mapped[str] = _run()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    over: Mapped[str] = mapped_column(primary_key=True)
    oracle: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float]
    lo: Mapped[float | None]  # None: a figure without an interval
    hi: Mapped[float | None]
    n: Mapped[int]
    estimated: Mapped[bool]  # from p_hat and earlier audits, not measured


class Alerts(Base):
    """What a rule found; raised once, by whichever process saw it first."""

    __tablename__ = "alerts"
    __table_args__ = (Index(None, "raised_at", "id"), Index(None, "run", "iteration"))

    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("runs.name", ondelete="CASCADE"))
    iteration: Mapped[int]
    rule: Mapped[str]
    series: Mapped[str]
    over: Mapped[str]
    oracle: Mapped[str]
    severity: Mapped[str]
    value: Mapped[float]
    lo: Mapped[float | None]
    hi: Mapped[float | None]
    n: Mapped[int | None]
    reference: Mapped[float | None]  # what `value` is compared with
    threshold: Mapped[float | None]
    text: Mapped[str]
    raised_at: Mapped[datetime]
    acknowledged_at: Mapped[datetime | None]
    acknowledged_by: Mapped[str | None]
    note: Mapped[str]


class Deliveries(Base):
    """An alert on its way to a target; an alert without a row for a target has not been tried yet."""

    __tablename__ = "deliveries"

    alert: Mapped[str] = mapped_column(ForeignKey("alerts.id", ondelete="CASCADE"), primary_key=True)
    target: Mapped[str] = mapped_column(primary_key=True)
    attempts: Mapped[int]
    next_at: Mapped[datetime]  # not before; whoever tries it puts it off first
    delivered_at: Mapped[datetime | None]
    error: Mapped[str | None]


class FilterStatistics(Base):
    __tablename__ = "filter_stats"

    run: Mapped[str] = _run()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    candidates: Mapped[int]
    kept: Mapped[int]
    too_easy: Mapped[int]
    too_hard: Mapped[int]
    no_majority: Mapped[int]
    malformed: Mapped[int]
    duplicate: Mapped[int]
    mean_p_hat: Mapped[float | None]
    unparsed_share: Mapped[float | None]
    unknown: Mapped[int]


class TrainMetrics(Base):
    __tablename__ = "train_metrics"
    __table_args__ = _NARROW

    run: Mapped[str] = _run()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]  # None where it was not a number


class Evaluations(Base):
    __tablename__ = "evaluations"
    __table_args__ = _NARROW

    checkpoint_id: Mapped[str] = mapped_column(ForeignKey("checkpoints.id", ondelete="CASCADE"), primary_key=True)
    benchmark: Mapped[str] = mapped_column(primary_key=True)
    item_id: Mapped[str] = mapped_column(primary_key=True)
    level: Mapped[str | None]
    samples: Mapped[int]
    correct: Mapped[int]
    greedy_correct: Mapped[bool]
    majority_correct: Mapped[bool]
