"""What Prefect has of runs that the store cannot tell yet: what waits to begin, and what failed before it began."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from services.api.prefect import FlowRun
from services.api.problems import documented
from services.api.schemas import FlowRunState
from services.api.triggers import ReadSession, Triggering
from storage import queries
from storage.queries.runs import RUN_NAME

router = APIRouter(tags=["runs"])

# A flow's first steps take seconds until the store has the run's status, and two machines' clocks differ a little.
_TOLERANCE = timedelta(seconds=10)


@router.get("/flow-runs", responses=documented(503))
def list_flow_runs(
    store: ReadSession,
    prefect: Triggering,
    run: Annotated[
        str | None, Query(pattern=f"^{RUN_NAME.pattern}$", description="Only of this run, be it in the store or not.")
    ] = None,
) -> list[FlowRunState]:
    """Of each run the newest flow run that waits or is at work, or failed or was cancelled in the last seven days; the
    newest first. With `begun` the store has the rest: the run's status and its stages."""
    if prefect.server is None:
        return []  # so nothing was triggered either
    newest: dict[str, FlowRun] = {}
    for flow_run in prefect.unfinished():
        newest.setdefault(flow_run.run, flow_run)
    if run is not None:
        newest = {name: flow_run for name, flow_run in newest.items() if name == run}
    with store.read() as session:
        changed = queries.runs.runs_changed(session, newest)
    return [
        FlowRunState(
            run=flow_run.run,
            flow_run=flow_run.id,
            state=flow_run.state,
            name=flow_run.name,
            message=flow_run.message,
            since=flow_run.since,
            begun=_begun(flow_run, changed.get(flow_run.run)),
            url=prefect.page_of(flow_run),
        )
        for flow_run in newest.values()
    ]


def _begun(flow_run: FlowRun, changed: datetime | None) -> bool:
    """Whether the flow run has got as far as to change the run's status in the store."""
    return changed is not None and flow_run.started is not None and changed >= flow_run.started - _TOLERANCE
