"""Ends flow runs whose process is dead. Prefect would show them as running for ever, and the REST API would refuse to
resume their runs.

A flow stores the name of its process in its flow run. When a runner starts, it ends the flow runs of dead processes of
its own host name. It leaves those of other host names alone. A process of an earlier container of this name cannot be
seen: it is dead if it does not renew its lease.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.states import Cancelled, Crashed

from core.processes import identity as processes
from orchestrator.ledger import is_alive, other_holder, outlived
from orchestrator.reporting.flow_process import PROCESS
from orchestrator.runs import ended_as, set_status, status_of
from storage.errors import NotThere
from storage.session import Store

_WORKER = "prefect.worker.name"  # label of Prefect: the worker that took the flow run from the work pool
_ACTIVE = [StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING]
_PAGE = 200  # flow runs in one response, the most that Prefect allows


def worker_name() -> str:
    """The name of the Prefect worker on this machine, by which its flow runs are found after a restart."""
    return socket.gethostname()


def end_orphans(store: Store, worker: str | None) -> list[str]:
    """End the flow runs of dead processes with their subflows, and return the names of the flow runs.

    They become Crashed, or Cancelled if their cancellation was requested. Their runs become failed or cancelled, and
    the leases of the dead processes are released.

    `worker` is the name of the Prefect worker that is about to start. A flow run with this worker and without a process
    was taken by an earlier worker of this name, which died. With None, only the caller starts flow runs of deployments,
    and none of them has a worker.
    """
    with get_client(sync_client=True) as client:
        ended = [flow_run for flow_run in _active(client) if _is_orphan(store, flow_run, worker)]
        for flow_run in ended:  # release the leases first, since the run may be resumed once its flow run has ended
            other_holder(store, str(flow_run.parameters.get("run")))
        with_subflows, parents = ended, ended
        while parents:
            subflows = list(_active(client, FlowRunFilterParentFlowRunId(any_=[parent.id for parent in parents])))
            with_subflows, parents = [*with_subflows, *subflows], subflows
        for flow_run in reversed(with_subflows):  # a subflow before the flow that started it
            state = Cancelled if _was_cancelled(flow_run) else Crashed
            client.set_flow_run_state(flow_run.id, state(message="its process is gone"), force=True)
        active_runs = {flow_run.parameters.get("run") for flow_run in _active(client)}
    for flow_run in ended:
        if flow_run.parameters.get("run") in active_runs:
            continue
        # Set the run's status as the flow's hooks would have done in the process that is gone.
        run = str(flow_run.parameters.get("run"))
        with suppress(NotThere):  # the flow run ended before it created the run
            if status_of(store, run) in ("running", "paused"):
                set_status(store, run, ended_as(store, run) or ("cancelled" if _was_cancelled(flow_run) else "failed"))
    return [flow_run.name for flow_run in ended]


def _active(client: SyncPrefectClient, parents: FlowRunFilterParentFlowRunId | None = None) -> Iterator[FlowRun]:
    state = FlowRunFilterState(type=FlowRunFilterStateType(any_=_ACTIVE))
    flow_run_filter = FlowRunFilter(state=state, parent_flow_run_id=parents)
    offset = 0
    while True:
        rows = client.read_flow_runs(
            flow_run_filter=flow_run_filter, sort=FlowRunSort.START_TIME_ASC, limit=_PAGE, offset=offset
        )
        yield from rows
        offset += len(rows)
        if len(rows) < _PAGE:
            return


def _is_orphan(store: Store, flow_run: FlowRun, worker: str | None) -> bool:
    process = flow_run.labels.get(PROCESS)
    if process is not None:
        space = str(process).rsplit(":", 2)[0]
        if space == processes.space() or space.partition("@")[0] != socket.gethostname():
            return not is_alive(str(process))
        return outlived(store, str(flow_run.parameters.get("run")), str(process))
    return flow_run.deployment_id is not None and flow_run.labels.get(_WORKER) == worker


def _was_cancelled(flow_run: FlowRun) -> bool:
    return flow_run.state_type == StateType.CANCELLING
