"""Prefect's flow runs, for what the store does not know: runs that wait to begin, or failed before they began."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from services.api.dependencies import StoreDependency
from services.api.prefect import FlowRun
from services.api.problems import documented
from services.api.routes.triggers import PrefectDependency
from services.api.schemas import FlowRunState
from storage import queries
from storage.queries.runs import RUN_NAME

router = APIRouter(tags=["runs"])

# It takes a flow seconds until the store has the run's status, and the clocks of two machines may differ slightly.
_TOLERANCE = timedelta(seconds=10)


@router.get("/flow-runs", responses=documented(503))
def list_flow_runs(
    store: StoreDependency,
    prefect: PrefectDependency,
    run: Annotated[
        str | None, Query(pattern=f"^{RUN_NAME.pattern}$", description="Only of this run, in the store or not.")
    ] = None,
) -> list[FlowRunState]:
    """For each run the newest flow run that waits or is at work, or failed or was cancelled in the last seven days; the
    newest first. If a flow run has `begun`, the store has the rest: the run's status and its stages."""
    if prefect.server is None:
        return []  # without Prefect no flow run was triggered
    newest: dict[str, FlowRun] = {}
    for flow_run in prefect.unfinished():
        newest.setdefault(flow_run.run, flow_run)
    if run is not None:
        newest = {name: flow_run for name, flow_run in newest.items() if name == run}
    with store.read() as session:
        changed = queries.runs.last_changes(session, newest)
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
    """Whether the flow run has changed the run's status in the store."""
    return changed is not None and flow_run.started is not None and changed >= flow_run.started - _TOLERANCE
