"""Experiments, and the comparison of their arms, of any runs, and of models on several benchmarks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from services.api.dependencies import InstallationDependency, StoreDependency, in_own_threads
from services.api.problems import documented, invalid
from services.api.schemas import ExperimentRuns
from services.comparison.models import METRIC, ModelComparison, compare_models, models_named
from services.comparison.runs import Comparison, arms_named, compare
from storage import queries
from storage.queries.runs import RUN_NAME

router = APIRouter(tags=["comparisons"])
_MOST_FIGURES = 1_000  # of one comparison of models: each takes about 10 ms
_Model = Annotated[str, Query(min_length=1, max_length=1_000)]
_Set = Annotated[str, Query(max_length=100)]  # a benchmark or a suite
_Metric = Annotated[str, Query(pattern=f"^({METRIC.pattern})$")]
_Name = Annotated[str, Query(pattern=f"^{RUN_NAME.pattern}$")]

# Some comparisons take seconds of processor time. Beyond two at once, they wait without a connection to the database,
# which other routes need.
_comparison = in_own_threads("comparisons", 2)


@router.get("/experiments")
def list_experiments(store: StoreDependency) -> list[ExperimentRuns]:
    """Experiments that have a run."""
    with store.read() as session:
        names = queries.experiments.list_experiments(session)
        return [ExperimentRuns(name=name, arms=queries.experiments.arms_of(session, name)) for name in names]


@router.get("/comparison", responses=documented(404, 409))
@_comparison
def get_comparison(
    store: StoreDependency,
    name: Annotated[
        list[_Name],
        Query(max_length=20, description="An experiment, or two runs or more; the first run is the baseline."),
    ],
) -> Comparison:
    """Accuracy by iteration of each arm, over its seeds, and its difference to the baseline on the same questions."""
    with store.read() as session:
        return compare(session, *arms_named(session, name))


@router.get("/comparison/models", responses=documented(404, 409))
@_comparison
def get_model_comparison(
    installation: InstallationDependency,
    store: StoreDependency,
    model: Annotated[
        list[_Model],
        Query(
            max_length=20,
            description="RUN:3, RUN:base, RUN:best or RUN:labelled/3, RUN or RUN/labelled for all iterations, or a "
            "model's name as its evaluations have it. The others are compared with the first.",
            examples=[["demo:base", "demo:3"]],
        ),
    ],
    benchmark: Annotated[
        list[_Set], Query(max_length=20, default_factory=list, description="Benchmarks, beside or without a suite.")
    ],
    metric: Annotated[
        list[_Metric],
        Query(max_length=5, default_factory=list, description="By default mean@k, or greedy where nothing is sampled."),
    ],
    suite: _Set | None = None,
) -> ModelComparison:
    """Models on several benchmarks and on their average, from stored evaluations, and the difference to the first model
    on the same questions."""
    sets = installation.question_sets
    sets.refuse_unknown(benchmark, suite, "query", "benchmark")
    of_suite = sets.suites[suite].protocols() if suite is not None else {}
    protocols = {**dict.fromkeys(benchmark), **of_suite}
    with store.read() as session:
        models = [name for group in models_named(session, model, [*protocols]).values() for name in group]
        figures = len(models) * len(protocols) * max(1, len(metric))
        if figures > _MOST_FIGURES:
            expected = f"expected at most {_MOST_FIGURES:,} figures, of models on benchmarks in metrics"
            raise invalid("model", f"{expected}, got {figures:,}", "query")
        return compare_models(session, models, protocols, metric or [None])
