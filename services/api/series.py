"""A run's series: one figure an iteration, with its interval."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from services.api.dependencies import ReadSession, RunName
from services.api.problems import documented
from storage import queries
from storage.rows import Over, SeriesPoint

router = APIRouter(prefix="/runs/{run}", tags=["figures"])

_WORD = r"^[a-z0-9_]{0,100}$"


@router.get("/series", responses=documented(404))
def list_series(
    session: ReadSession,
    run: RunName,
    name: Annotated[str | None, Query(pattern=_WORD, examples=["label_accuracy"], description="Of this.")] = None,
    over: Annotated[Over | None, Query(description="Over these questions; empty: where there are none.")] = None,
    oracle: Annotated[str | None, Query(pattern=_WORD, examples=["exact"], description="By this oracle.")] = None,
) -> list[SeriesPoint]:
    """Points by name, over, oracle and iteration. `docs/alerts.md` says what each figure is, and what its n counts;
    without `lo` and `hi` it has no sound interval. An estimate from p_hat and earlier audits is `estimated`."""
    queries.runs.get_run(session, run)
    return queries.series.series_of(session, run, name, over=over, oracle=oracle)
