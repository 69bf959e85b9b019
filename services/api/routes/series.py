"""The series of runs. A series is one figure of each iteration, with its interval."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from core.figures import unknown_series
from services.api.dependencies import RunName, StoreDependency
from services.api.problems import documented, invalid
from services.client import LARGEST_PAGE
from services.views.series import SeriesPoint
from storage import queries
from storage.queries.runs import RUN_NAME
from storage.rows import Over

router = APIRouter(tags=["figures"])

_WORD = r"^[a-z0-9_]{0,100}$"
_RunName = Annotated[str, Query(pattern=f"^{RUN_NAME.pattern}$")]
_Name = Annotated[str, Query(pattern=_WORD)]


class RunSeries(BaseModel):
    """The points of one run, by name, over, oracle and iteration."""

    run: str
    points: list[SeriesPoint]


@router.get("/series", responses=documented(404))
def list_series_of_runs(
    store: StoreDependency,
    run: Annotated[
        list[_RunName], Query(min_length=1, max_length=LARGEST_PAGE, description="The runs.", examples=[["demo"]])
    ],
    name: Annotated[
        list[_Name],
        Query(min_length=1, max_length=20, description="Which series.", examples=[["label_accuracy", "held_out"]]),
    ],
) -> list[RunSeries]:
    """Some series of several runs, such as a page of the list of runs, in the order in which the runs are named. A
    point is as in `/runs/{run}/series`."""
    with store.read() as session:
        for missing in sorted({*run} - queries.runs.runs_named(session, run).keys()):
            queries.runs.get_run(session, missing)  # which raises
        points = queries.series.series_of_runs(session, run, name)
        inherited = queries.forks.inherited_by(session, run)
    stored = [point for of_run in points.values() for point in of_run]
    for series in name:
        if fault := unknown_series(series, [point for point in stored if point.name == series]):
            raise invalid("name", fault, "query")
    return [
        RunSeries(run=known, points=SeriesPoint.all_of(points.get(known, []), inherited.get(known, {})))
        for known in dict.fromkeys(run)
    ]


@router.get("/runs/{run}/series", responses=documented(404))
def list_series(
    store: StoreDependency,
    run: RunName,
    name: Annotated[str | None, Query(pattern=_WORD, examples=["label_accuracy"], description="Its name.")] = None,
    over: Annotated[Over | None, Query(description="Questions that it is over; empty if it is not over any.")] = None,
    oracle: Annotated[str | None, Query(pattern=_WORD, examples=["exact"], description="Its oracle.")] = None,
) -> list[SeriesPoint]:
    """Points by name, over, oracle and iteration. `docs/alerts.md` says what each figure is and what its n counts. A
    figure without `lo` and `hi` has no valid interval; `interval` says what it is of: a `count` of n items, a `share`
    at its effective n, or a `mean`. A point is `estimated` if it was not measured, but comes from p_hat and the audits
    of other iterations; if only one was audited, its interval is 0 to 1."""
    with store.read() as session:
        queries.runs.get_run(session, run)
        points = queries.series.series_of(session, run, name, over=over, oracle=oracle)
        inherited = queries.forks.inherited(session, run)
    if name is not None and (fault := unknown_series(name, points)):
        raise invalid("name", fault, "query")
    return SeriesPoint.all_of(points, inherited)
