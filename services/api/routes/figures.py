"""Figures of a run's checkpoints and trainings. series.py has those of its iterations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from core.types import Role
from services.api.dependencies import RunName, StoreDependency
from services.api.problems import documented
from services.api.schemas import Evaluation
from services.drift.training_labels import labels_by_step
from services.evaluations.matrix import MatrixCell, cells
from services.run_report.headline import Headline, headline_of
from services.views.costs import RunCosts, costs_of
from storage import queries
from storage.rows import StepLabelFigures, TrainMetric

router = APIRouter(prefix="/runs/{run}", tags=["figures"])


@router.get("/headline", responses=documented(404, 409))
def get_headline(store: StoreDependency, run: RunName) -> Headline:
    """What the run has shown so far, in sentences: whether the Solver learned, details of it, and what was decided."""
    return headline_of(store, run)


@router.get("/evaluations", responses=documented(404))
def list_evaluations(store: StoreDependency, run: RunName) -> list[Evaluation]:
    """The results of the run's checkpoints on benchmarks."""
    with store.read() as session:
        queries.runs.get_run(session, run)
        rows = queries.evaluations.evaluation_sums(session, run)
        return [Evaluation.model_validate(row, from_attributes=True) for row in rows if row.greedy is not None]


@router.get("/matrix", responses=documented(404))
def list_matrix(store: StoreDependency, run: RunName) -> list[MatrixCell]:
    """The accuracy of every Solver on every iteration's questions, as `coevo show matrix` measured it, and that of the
    pseudo-labels of these questions (`solver` is null). If the oracle graded a sample, it is weighted to all."""
    with store.read() as session:
        queries.runs.get_run(session, run)
        return cells(session, run)


@router.get("/costs", responses=documented(404, 409))
def get_costs(store: StoreDependency, run: RunName) -> RunCosts:
    """What the run has cost so far: time, devices, requests, tokens and money of its stages, and what a question with a
    right label costs."""
    with store.read() as session:
        config = queries.runs.config_of_run(session, run)
        return costs_of(session, run, config.rates)


@router.get("/training-labels", responses=documented(404, 409))
def list_training_labels(store: StoreDependency, run: RunName) -> list[StepLabelFigures]:
    """Label accuracy of the Solver's method in training, step by step, where the truth is known.

    `accuracy` is the share of right labels. `labelled` is the share of prompts that got a label. `negatives`, for SCRL,
    is the share of wrong answers among those that it took for wrong. Each n counts different questions. The figures of
    a whole training are among the series.
    """
    with store.read() as session:
        queries.runs.get_run(session, run)
        return labels_by_step(session, run)


@router.get("/metrics", responses=documented(404))
def list_metrics(
    store: StoreDependency,
    run: RunName,
    iteration: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    role: Role | None = None,
    name: Annotated[str | None, Query(pattern=r"^[A-Za-z0-9_./@-]{1,100}$", examples=["reward_mean"])] = None,
) -> list[TrainMetric]:
    """Training metrics, by iteration, role, step and name. A training that runs has those of the steps that have ended.

    A trainer and a reward may have metrics of their own, so there are no entries, rather than an error, for a name that
    the run does not have.
    """
    with store.read() as session:
        queries.runs.get_run(session, run)
        return queries.figures.train_metrics_of(session, run, iteration=iteration, role=role, name=name)
