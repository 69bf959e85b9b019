"""Flow runs whose process is gone, which Prefect would show as running for ever, and REST refuse to start anew.

A flow notes in its flow run which process it runs in. When a runner starts, it ends the flow runs of processes of its
own machine that no longer live; those of other machines are not its to judge.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext
from prefect.runtime import flow_run as current
from prefect.states import Cancelled, Crashed

from orchestrator.ledger import is_alive, other_holder, owner
from storage import queries
from storage.errors import NotThere
from storage.session import Store

_PROCESS = "coevo.process"  # a label of ours: host:pid:start time
_WORKER = "prefect.worker.name"  # Prefect's label: who took the flow run from the work pool
_AT_WORK = [StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING]
_PAGE = 200  # Prefect's largest


def worker_name() -> str:
    """Of the Prefect worker of this machine's runner: after a restart its flow runs are known by it."""
    return socket.gethostname()


def is_subflow() -> bool:
    """Whether this is called in a flow run that another one started. Prefect's own way to know asks its server."""
    context = FlowRunContext.get()
    return bool(context and context.flow_run and context.flow_run.parent_task_run_id)


def note_process() -> None:
    """Say in the flow run that this is called from which process it runs in. A subflow's is its parent's."""
    if current.id is not None and not is_subflow():
        with get_client(sync_client=True) as client:
            client.update_flow_run_labels(current.id, {_PROCESS: owner()})


def end_orphans(store: Store, worker: str | None) -> list[str]:
    """End the flow runs of dead processes, and what they had started in turn, as Crashed, or as Cancelled where that
    was asked for; the runs that they were at are failed, or cancelled, and nobody has to wait for the dead processes'
    leases to run out. The ended flow runs' names.

    `worker` is the name of the Prefect worker that is about to start: what has it, and has not said its process, was
    taken by one that died. None: flow runs of deployments have no worker, and the caller alone starts them.
    """
    with get_client(sync_client=True) as client:
        ended = [flow_run for flow_run in _at_work(client) if _is_orphan(flow_run, worker)]
        for flow_run in ended:  # before it is shown as ended, when somebody may resume the run
            other_holder(store, str(flow_run.parameters.get("run")))
        family, young = ended, ended
        while young:
            young = list(_at_work(client, FlowRunFilterParentFlowRunId(any_=[flow_run.id for flow_run in young])))
            family = [*family, *young]
        for flow_run in reversed(family):  # a subflow before the flow that started it
            state = Cancelled if _was_cancelled(flow_run) else Crashed
            client.set_flow_run_state(flow_run.id, state(message="its process is gone"), force=True)
        going_on = {flow_run.parameters.get("run") for flow_run in _at_work(client)}
    for flow_run in ended:
        if flow_run.parameters.get("run") not in going_on:
            _end_run(store, flow_run)
    return [flow_run.name for flow_run in ended]


def _at_work(client: SyncPrefectClient, parents: FlowRunFilterParentFlowRunId | None = None) -> Iterator[FlowRun]:
    state = FlowRunFilterState(type=FlowRunFilterStateType(any_=_AT_WORK))
    wanted = FlowRunFilter(state=state, parent_flow_run_id=parents)
    offset = 0
    while True:
        rows = client.read_flow_runs(
            flow_run_filter=wanted, sort=FlowRunSort.START_TIME_ASC, limit=_PAGE, offset=offset
        )
        yield from rows
        offset += len(rows)
        if len(rows) < _PAGE:
            return


def _is_orphan(flow_run: FlowRun, worker: str | None) -> bool:
    process = flow_run.labels.get(_PROCESS)
    if process is not None:
        return not is_alive(str(process))
    return flow_run.deployment_id is not None and flow_run.labels.get(_WORKER) == worker


def _was_cancelled(flow_run: FlowRun) -> bool:
    return flow_run.state_type == StateType.CANCELLING


def _end_run(store: Store, flow_run: FlowRun) -> None:
    """What the flow's hooks would have done; they run in the process that is gone."""
    name = str(flow_run.parameters.get("run"))
    with store.write() as session:
        try:
            at_work = queries.runs.get_run(session, name).status in ("running", "paused")
        except NotThere:  # it ended before the run was made
            return
        if at_work:
            queries.runs.set_run_status(session, name, "cancelled" if _was_cancelled(flow_run) else "failed")
