"""The tables, which `docs/storage.md` describes.

Their keys are natural (`core.types.question_id`, `checkpoint_id`), so writing a row a second time changes nothing. Rows
are never updated, except those of `runs`, `run_leases`, `stages`, `pool_jobs`, `usage`, `series`, `alerts`,
`deliveries` and `api_keys`, and `files_removed` of `checkpoints`.

A class has the name of its table, in the plural. The singular names belong to the dataclasses in `core.types`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, column_property, mapped_column

from storage.columns import AnyText, UtcDateTime

# The table is one B-tree instead of two. This suits narrow rows that are only looked up by their key.
_NARROW = {"sqlite_with_rowid": False}


def _run_key() -> Mapped[str]:
    return mapped_column(ForeignKey("runs.name", ondelete="CASCADE"), primary_key=True)


def _question_key() -> Mapped[str]:
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
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy expects a plain attribute
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
    __table_args__ = (Index(None, "created_at", "name"),)

    name: Mapped[str] = mapped_column(primary_key=True)
    preset: Mapped[str | None]
    seed: Mapped[int] = mapped_column(BigInteger)
    status: Mapped[str]
    config: Mapped[dict[str, Any]] = mapped_column(JSON)  # the whole RunConfig
    # What `config` was made from: the preset's settings, and the overrides by dotted names. NULL: not recorded.
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


class ExperimentRuns(Base):
    """Which arm of which experiment a run is."""

    __tablename__ = "experiment_runs"

    run: Mapped[str] = _run_key()
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

    run: Mapped[str] = _run_key()
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
    files_removed: Mapped[bool]


class Questions(Base):
    __tablename__ = "questions"
    __table_args__ = (Index(None, "run", "iteration", "index", unique=True),)

    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("runs.name", ondelete="CASCADE"))
    iteration: Mapped[int]
    index: Mapped[int]
    text: Mapped[str | None]
    raw: Mapped[str]
    checkpoint: Mapped[str | None] = mapped_column(ForeignKey("checkpoints.id"))  # NULL: the question came from a file
    seed: Mapped[int] = mapped_column(BigInteger)
    answer: Mapped[str | None]  # the true answer, if the file has one


class Rollouts(Base):
    """Votes, without their texts, which are in Parquet files (`storage.texts`)."""

    __tablename__ = "rollouts"
    __table_args__ = _NARROW

    question_id: Mapped[str] = _question_key()
    sample_index: Mapped[int] = mapped_column(primary_key=True)
    answer: Mapped[str | None]
    tokens: Mapped[int]
    finish_reason: Mapped[str]
    mean_entropy: Mapped[float | None]
    entropy_error: Mapped[float | None]
    checkpoint: Mapped[str] = mapped_column(ForeignKey("checkpoints.id"))
    seed: Mapped[int] = mapped_column(BigInteger)


class PseudoLabels(Base):
    """One row per question: its verdict, and the vote, unless the question was never asked (malformed, duplicate).

    Run, iteration and index are copied from the question, so that an iteration's rows can be read in order of p_hat.
    """

    __tablename__ = "pseudo_labels"
    __table_args__ = (
        Index(None, "run", "iteration", "p_hat", "index", "verdict"),
        Index(None, "run", "iteration", "verdict", "index"),
    )

    question_id: Mapped[str] = _question_key()
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
    """The worker pool's queue: trainings that wait for GPUs or CPUs, that have them, or that had them."""

    __tablename__ = "pool_jobs"

    run: Mapped[str] = _run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    stage: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    kind: Mapped[str]
    units: Mapped[float]
    status: Mapped[str]
    since: Mapped[datetime]  # when it got this status
    used: Mapped[float]  # unit-seconds in total


class Usage(Base):
    """What a stage has used for one purpose: time, devices, requests, tokens. Amounts are added up."""

    __tablename__ = "usage"
    __table_args__ = _NARROW

    run: Mapped[str] = _run_key()
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


class OracleLabels(Base):
    __tablename__ = "oracle_labels"
    __table_args__ = (Index(None, "run", "iteration", "index", "oracle", "verdict"), _NARROW)

    question_id: Mapped[str] = _question_key()
    oracle: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str]  # run, iteration and index are copied from the question
    iteration: Mapped[int]
    index: Mapped[int]
    verdict: Mapped[str]
    truth: Mapped[str | None]


class AuditSamples(Base):
    """The pseudo-labels drawn for an oracle that grades a sample. Its figures count only these, weighted by stratum."""

    __tablename__ = "audit_samples"
    __table_args__ = (Index(None, "run", "iteration", "oracle", "position"),)

    question_id: Mapped[str] = _question_key()
    oracle: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str]
    iteration: Mapped[int]
    stratum: Mapped[str]
    position: Mapped[int]  # the order in which the oracle is asked; the same in a larger sample


class Annotations(Base):
    """One person's verdict on a pseudo-label. What people agree on is stored as the oracle label of `human`."""

    __tablename__ = "annotations"

    question_id: Mapped[str] = _question_key()
    annotator: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[str]  # `unknown`: the person skipped the question
    note: Mapped[str]
    made_at: Mapped[datetime]


class QuestionClusters(Base):
    """The iteration's cluster of similar questions that a question is in (`core.questions.similarity.clusters`)."""

    __tablename__ = "question_clusters"
    __table_args__ = (Index(None, "run", "iteration", "cluster"), _NARROW)

    question_id: Mapped[str] = _question_key()
    run: Mapped[str]
    iteration: Mapped[int]
    cluster: Mapped[int]  # 0 is the largest
    size: Mapped[int]


class TrainedOn(Base):
    """A checkpoint that was trained on a question, and at which steps."""

    __tablename__ = "trained_on"
    __table_args__ = _NARROW

    question_id: Mapped[str] = _question_key()
    checkpoint: Mapped[str] = mapped_column(ForeignKey("checkpoints.id", ondelete="CASCADE"), primary_key=True)
    steps: Mapped[list[int]]


class Series(Base):
    """One figure of one iteration, computed from other tables, so that the figures of a run are read quickly.

    `over` names the questions that the figure is over (`kept`, `all`), and `oracle` the oracle that it is by. Each is
    empty if the figure has none.
    """

    __tablename__ = "series"
    __table_args__ = _NARROW

    run: Mapped[str] = _run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    over: Mapped[str] = mapped_column(primary_key=True)
    oracle: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float]
    lo: Mapped[float | None]  # None: the figure has no interval
    hi: Mapped[float | None]
    n: Mapped[int]
    estimated: Mapped[bool]  # from p_hat and the audits of other iterations, not measured


class Alerts(Base):
    """What a rule or the guard found. It is stored once, by the process that finds it first."""

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
    """The delivery of an alert to a target. Without a row, no delivery to the target has been tried."""

    __tablename__ = "deliveries"

    alert: Mapped[str] = mapped_column(ForeignKey("alerts.id", ondelete="CASCADE"), primary_key=True)
    target: Mapped[str] = mapped_column(primary_key=True)
    attempts: Mapped[int]
    next_at: Mapped[datetime]  # time of the next attempt; each attempt first postpones it
    delivered_at: Mapped[datetime | None]
    error: Mapped[str | None]


class FilterStatistics(Base):
    __tablename__ = "filter_stats"

    run: Mapped[str] = _run_key()
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

    run: Mapped[str] = _run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]  # None: it was not a number


class TrainingRollouts(Base):
    """Rollouts of a training, without their texts, which are in Parquet files: `core.types.TrainingRollout`."""

    __tablename__ = "training_rollouts"

    run: Mapped[str] = _run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    prompt: Mapped[int] = mapped_column(primary_key=True)
    rollout: Mapped[int] = mapped_column(primary_key=True)
    question_id: Mapped[str | None]  # no foreign key, because labelled data is not among the questions
    question: Mapped[str | None]
    answer: Mapped[str | None]
    label: Mapped[str | None]
    agrees: Mapped[bool | None]
    reward: Mapped[float]
    parts: Mapped[dict[str, Any]]
    advantage: Mapped[float | None]
    tokens: Mapped[int]
    finish_reason: Mapped[str]
    mean_entropy: Mapped[float | None]


class BenchmarkItems(Base):
    """The questions of benchmarks as they were asked; `sha256` is that of all questions of a benchmark."""

    __tablename__ = "benchmark_items"
    __table_args__ = _NARROW

    sha256: Mapped[str] = mapped_column(primary_key=True)
    item_id: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]  # in the file
    problem: Mapped[str]
    answer: Mapped[str]
    level: Mapped[str | None]
    subject: Mapped[str | None]


class Evaluations(Base):
    """What a model was asked: which questions, how, and by whom. The results are in `evaluated_items`."""

    __tablename__ = "evaluations"

    id: Mapped[str] = mapped_column(primary_key=True)  # `core.types.evaluation_id`
    # The run that made it, in a stage or in `coevo matrix`; None: `coevo evaluate` did
    run: Mapped[str | None] = mapped_column(ForeignKey("runs.name", ondelete="CASCADE"), index=True)
    checkpoint_id: Mapped[str | None] = mapped_column(ForeignKey("checkpoints.id", ondelete="CASCADE"), index=True)
    model: Mapped[str]  # a checkpoint's id, or the folder or URL of a model that is no run's
    benchmark: Mapped[str]
    manifest: Mapped[dict[str, Any]]
    seconds: Mapped[float]  # spent on it so far
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class EvaluatedItems(Base):
    __tablename__ = "evaluated_items"
    __table_args__ = _NARROW

    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True)
    item_id: Mapped[str] = mapped_column(primary_key=True)
    level: Mapped[str | None]
    samples: Mapped[int]
    correct: Mapped[int]
    greedy_correct: Mapped[bool]
    majority_correct: Mapped[bool]


class EvaluatedAnswers(Base):
    __tablename__ = "evaluated_answers"
    __table_args__ = _NARROW

    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True)
    item_id: Mapped[str] = mapped_column(primary_key=True)
    sample_index: Mapped[int] = mapped_column(primary_key=True)  # -1: the greedy answer
    answer: Mapped[str | None]
    answer_class: Mapped[int | None]  # among the question's sampled answers; 0 is the majority
    verdict: Mapped[str | None]  # None: no answer
    tokens: Mapped[int]
    finish_reason: Mapped[str]


class JudgedAnswers(Base):
    """What judges say about the rows of `evaluated_answers`. Equal answers to a question have equal verdicts."""

    __tablename__ = "judged_answers"
    __table_args__ = _NARROW

    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True)
    item_id: Mapped[str] = mapped_column(primary_key=True)
    sample_index: Mapped[int] = mapped_column(primary_key=True)
    judge: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[str]
