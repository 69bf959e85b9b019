"""The rows that the queries return, where they are not one of the types of `core.types`."""

from __future__ import annotations

from storage.rows.drift import AlertRow, DeliveryRow, Over, SeriesPoint, Severity, Slice, StepLabelFigures
from storage.rows.evaluations import EvaluationRow
from storage.rows.questions import (
    AnnotationRow,
    AuditCount,
    ClusterRow,
    QuestionEntry,
    QuestionSummary,
    RolloutRow,
    SampleRow,
)
from storage.rows.runs import (
    ENDED,
    ExperimentRun,
    Job,
    KeyRow,
    PoolRow,
    PoolStatus,
    Run,
    RunDetail,
    RunLease,
    RunOrigin,
    RunStatus,
    Scope,
    Stage,
    StageRow,
    StageStatus,
    TagCount,
    UsageRow,
)
from storage.rows.seeds import Seed
from storage.rows.training import TrainedOnRow, TrainingStep, TrainMetric
