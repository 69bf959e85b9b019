"""A run's series. A series is one figure of each iteration, with its interval."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from services.api.dependencies import RunName, StoreDependency
from services.api.figure_metrics import unknown_series
from services.api.problems import documented, invalid
from storage import queries
from storage.rows import Over, SeriesPoint

router = APIRouter(prefix="/runs/{run}", tags=["figures"])

_WORD = r"^[a-z0-9_]{0,100}$"


@router.get("/series", responses=documented(404))
def list_series(
    store: StoreDependency,
    run: RunName,
    name: Annotated[str | None, Query(pattern=_WORD, examples=["label_accuracy"], description="Its name.")] = None,
    over: Annotated[Over | None, Query(description="Questions that it is over; empty if it is not over any.")] = None,
    oracle: Annotated[str | None, Query(pattern=_WORD, examples=["exact"], description="Its oracle.")] = None,
) -> list[SeriesPoint]:
    """Points by name, over, oracle and iteration. `docs/alerts.md` says what each figure is and what its n counts. A
    figure without `lo` and `hi` has no valid interval. A point is `estimated` if it was not measured, but comes from
    p_hat and the audits of other iterations; if only one was audited, its interval is 0 to 1."""
    with store.read() as session:
        queries.runs.get_run(session, run)
        points = queries.series.series_of(session, run, name, over=over, oracle=oracle)
    if name is not None and (fault := unknown_series(name, points)):
        raise invalid("name", fault, "query")
    return points
