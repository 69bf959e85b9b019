"""Experiments, and the comparison of their arms or of any runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from services.api.dependencies import ReadSession
from services.api.problems import documented
from services.api.schemas import ExperimentRuns
from services.comparison import Comparison, arms_named, compare
from storage import queries
from storage.errors import NotThere, StoreError
from storage.queries.runs import RUN_NAME

router = APIRouter(tags=["comparisons"])
_Name = Annotated[str, Query(pattern=f"^{RUN_NAME.pattern}$")]


@router.get("/experiments")
def list_experiments(session: ReadSession) -> list[ExperimentRuns]:
    """Experiments that have a run."""
    names = queries.experiments.list_experiments(session)
    return [ExperimentRuns(name=name, arms=queries.experiments.arms_of(session, name)) for name in names]


@router.get("/comparison", responses=documented(404, 409))
def get_comparison(
    session: ReadSession,
    name: Annotated[
        list[_Name],
        Query(max_length=20, description="An experiment, or two runs or more; the first run is the baseline."),
    ],
) -> Comparison:
    """Accuracy by iteration of each arm, over its seeds, and its difference to the baseline on the same questions."""
    try:
        return compare(session, *arms_named(session, name))
    except NotThere:
        raise
    except StoreError as error:
        raise HTTPException(409, str(error)) from error
