"""Reads everything that a report needs from the store, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.questions.filtering import FilterStats
from core.settings.config import RunConfig
from core.statistics.estimates import Estimate
from core.types import Evaluated, LabelledQuestion, OracleLabel
from services.drift.series import label_points
from services.drift.training_labels import training_label_points
from services.views.states import RunState, states_of
from storage import queries
from storage.rows import RunDetail, SeriesPoint, StageRow, TrainMetric
from storage.session import Store


@dataclass(frozen=True, slots=True)
class IterationRows:
    """The rows of one iteration. Unfinished stages are left out, since half of a benchmark is not a sample of it."""

    t: int
    stages: dict[str, StageRow]
    checkpoint: str | None  # the one that was evaluated
    evaluated: list[Evaluated]
    validated: list[Evaluated]  # on the benchmark of early stopping, if that is another one
    branch: list[Evaluated]  # of the Solver that was trained on labelled data apart from the loop
    stats: FilterStats | None
    labelled: list[LabelledQuestion]
    audited: list[OracleLabel]  # by the run's own oracle
    audits: list[SeriesPoint]  # the figures of all oracles, the run's own among them
    training_labels: dict[str, Estimate]  # series -> figure of the labels that were made in training


@dataclass(frozen=True, slots=True)
class RunRows:
    """One run. `iterations[t].t == t`; the first is the base model, the last the newest that was begun."""

    run: RunDetail
    state: RunState  # as far as the store knows it, without Prefect
    config: RunConfig
    iterations: list[IterationRows]
    training: list[TrainMetric]
    inherited: dict[str, list[int]]  # another run -> the iterations that it has made


def read_rows(store: Store, run: str) -> RunRows:
    """Read a run, which may be in progress. Raises `StoreError` when there is no such run."""
    with store.read() as session:
        row = queries.runs.get_run(session, run)
        config = queries.runs.config_from(row)
        by_iteration: dict[int, dict[str, StageRow]] = {0: {}}
        for stage in queries.ledger.stages_of(session, run):
            by_iteration.setdefault(stage.iteration, {})[stage.stage] = stage
        stats = queries.figures.filter_stats_of(session, run)
        iterations = [
            _iteration(session, run, config, t, by_iteration.get(t, {}), stats.get(t))
            for t in range(max(by_iteration) + 1)
        ]
        state = states_of(session, {run: row}, {})[run]
        training, inherited = queries.figures.train_metrics_of(session, run), queries.forks.by_maker(session, run)
        return RunRows(row, state, config, iterations, training, inherited)


def _iteration(
    session: Session, run: str, config: RunConfig, t: int, stages: dict[str, StageRow], stats: FilterStats | None
) -> IterationRows:
    run = queries.forks.made_by(session, run, t)
    done = {name: stage.result or {} for name, stage in stages.items() if stage.status == "done"}
    # The stage's result names the checkpoint, which may be of an earlier iteration if the Solver did not change.
    checkpoint = done.get("evaluate", {}).get("checkpoint")
    benchmark, stopping = config.evaluation.benchmark, config.early_stopping
    validation = stopping.benchmark if stopping and stopping.benchmark != benchmark else None
    evaluated = queries.evaluations.evaluations_of(session, checkpoint, benchmark) if checkpoint else []
    validated = queries.evaluations.evaluations_of(session, checkpoint, validation) if checkpoint and validation else []
    branch_id = done.get("evaluate_labelled", {}).get("checkpoint")
    branch = queries.evaluations.evaluations_of(session, branch_id, benchmark) if branch_id else []
    labelled = queries.questions.labels_of(session, run, t) if stats is not None else []
    oracle = config.audit.label if "audit_labels" in done else None
    audited = queries.questions.oracle_labels_of(session, run, t, oracle) if oracle is not None else []
    points = label_points(session, run, t) if stats is not None else ()
    audits = [point for point in points if point.oracle != config.audit.label or oracle is not None]
    training_labels = {
        point.name: point.estimate for point in training_label_points(session, run, t, config) if point.estimate
    }
    figures = (stats, labelled, audited, audits, training_labels)
    return IterationRows(t, stages, checkpoint, evaluated, validated, branch, *figures)
