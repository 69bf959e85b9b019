"""The tables, which `docs/storage.md` describes.

Their keys are natural (`core.types.question_id`, `checkpoint_id`), so writing a row a second time changes nothing. Rows
are never updated, except those of `runs`, `run_leases`, `stages`, `pool_jobs`, `usage`, `series`, `alerts`,
`deliveries` and `api_keys`, `files_removed` of `checkpoints`, and the verdict of a label that a gate refuses.

A class has the name of its table, in the plural. The singular names belong to the dataclasses in `core.types`.
"""

from __future__ import annotations

from storage.models.audits import Annotations, AuditSamples, OracleLabels
from storage.models.base import Base
from storage.models.checkpoints import Checkpoints, TrainedOn, TrainingRollouts, TrainMetrics
from storage.models.drift import Alerts, Deliveries, Series
from storage.models.evaluations import BenchmarkItems, EvaluatedAnswers, EvaluatedItems, Evaluations, JudgedAnswers
from storage.models.questions import (
    FilterStatistics,
    GateEvidence,
    PseudoLabels,
    QuestionClusters,
    Questions,
    Rollouts,
)
from storage.models.runs import ApiKeys, ExperimentRuns, InheritedIterations, PoolJobs, RunLeases, Runs, Stages, Usage
