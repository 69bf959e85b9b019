"""Figures over a run's iterations: label accuracy, evaluations, training metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from core.drift import mean_interval, share
from core.types import Evaluated, OracleVerdict, Role
from services.api.given import Reading, RunName
from services.api.problems import documented
from services.api.schemas import DriftPoint, Estimate, Evaluation, Metric
from storage import queries
from storage.rows import AuditCount

router = APIRouter(prefix="/runs/{run}", tags=["figures"])


@router.get("/drift", responses=documented(404))
def get_drift(session: Reading, run: RunName) -> list[DriftPoint]:
    """The share of right pseudo-labels by iteration and oracle, over the kept questions and over all that were voted
    on. What the oracle could not decide counts as not right, and is said apart."""
    queries.get_run(session, run)
    groups: dict[tuple[int, str], list[AuditCount]] = {}
    for count in queries.audit_counts(session, run):
        groups.setdefault((count.iteration, count.oracle), []).append(count)
    return [point for counts in groups.values() for point in (_over("kept", counts), _over("all", counts)) if point]


def _over(slice_: Literal["kept", "all"], counts: Sequence[AuditCount]) -> DriftPoint | None:
    said = Counter[OracleVerdict]()
    for each in counts:
        if slice_ == "all" or each.verdict == "kept":
            said[each.said] += each.count
    n = said.total()
    right, ill_posed = Estimate.of(share(said["right"], n)), Estimate.of(share(said["ill_posed"], n))
    if right is None or ill_posed is None:
        return None
    return DriftPoint(
        iteration=counts[0].iteration,
        oracle=counts[0].oracle,
        over=slice_,
        label_accuracy=right,
        ill_posed=ill_posed,
        unknown=said["unknown"],
    )


@router.get("/evaluations", responses=documented(404))
def list_evaluations(session: Reading, run: RunName) -> list[Evaluation]:
    """How the run's checkpoints did on benchmarks."""
    queries.get_run(session, run)
    return [
        _evaluation(checkpoint, benchmark, queries.evaluations_of(session, checkpoint, benchmark))
        for checkpoint, benchmark in queries.evaluated(session, run)
    ]


def _evaluation(checkpoint: str, benchmark: str, items: Sequence[Evaluated]) -> Evaluation:
    return Evaluation(
        checkpoint=checkpoint,
        benchmark=benchmark,
        samples=items[0].samples,
        pass_at_1=Estimate.of(mean_interval([item.correct / item.samples for item in items])),
        greedy=Estimate.of(share(sum(item.greedy_correct for item in items), len(items))),
        majority=Estimate.of(share(sum(item.majority_correct for item in items), len(items))),
    )


@router.get("/metrics", responses=documented(404))
def list_metrics(
    session: Reading,
    run: RunName,
    iteration: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    role: Role | None = None,
    name: Annotated[str | None, Query(pattern=r"^[A-Za-z0-9_./@-]{1,100}$", examples=["reward_mean"])] = None,
) -> list[Metric]:
    """Training metrics, by iteration, role, step and name."""
    queries.get_run(session, run)
    found = queries.train_metrics_of(session, run, iteration=iteration, role=role, name=name)
    return [Metric.model_validate(metric) for metric in found]
