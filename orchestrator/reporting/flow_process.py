"""The process of a flow: what it does before anything else, so that Prefect knows it, waits for it, and gets no secret
from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.runtime import flow_run

from core import logs
from orchestrator.installation.home import home
from orchestrator.ledger import owner
from orchestrator.reporting import run_log

PROCESS = "coevo.process"  # label of a flow run in Prefect: the name of its process, HOST@SPACE:PID:START


@contextmanager
def flow_process() -> Iterator[None]:
    """What every flow does first. Its errors lose their secrets, because Prefect stores and shows them."""
    note_process()
    retry_connecting()
    if not logs.is_configured():  # as it is in `coevo run`
        logs.configure("flow", home().secrets(), flow_run.get_parameters().get("run"))
    run_log.tidy_prefect()
    with run_log.errors_without_secrets():
        yield


def is_subflow() -> bool:
    """Whether this is called in a flow run that another flow run started. Prefect's own check sends a request."""
    context = FlowRunContext.get()
    return bool(context and context.flow_run and context.flow_run.parent_task_run_id)


def note_process() -> None:
    """Store the name of this process in the current flow run. A subflow stores none: it is in its parent's process."""
    if flow_run.id is not None and not is_subflow():
        with get_client(sync_client=True) as client:
            client.update_flow_run_labels(flow_run.id, {PROCESS: owner()})


def retry_connecting() -> None:
    """Have all of Prefect's clients in this process repeat a request when no connection can be made, as often as
    PREFECT_CLIENT_MAX_RETRIES says.

    A client does so only once it has been connected. A flow makes many clients, and it would fail if Prefect was away
    when a new one sends its first request.
    """
    always = property(lambda _client: True, lambda _client, _connected: None)
    for kind in (PrefectHttpxAsyncClient, PrefectHttpxSyncClient):
        type.__setattr__(kind, "_has_connected", always)
