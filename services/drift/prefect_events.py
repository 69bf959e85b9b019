"""Alerts as Prefect events, which its automations react to (deploy/prefect/automations.yaml)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import httpx
from pydantic import BaseModel, TypeAdapter

from services.drift.outbox import TIMEOUT_S
from services.prefect_server import PrefectServer
from storage.rows import AlertRow

EVENT = "coevo.alert.raised"
_TIMEOUT_S = TIMEOUT_S / 2  # an attempt is three requests


class _Events(BaseModel):
    """What is needed of an answer with events."""

    total: int


class _FlowRun(BaseModel):
    """What is needed of one."""

    parameters: dict[str, Any]
    deployment_id: UUID | None


_FLOW_RUNS = TypeAdapter(list[_FlowRun])


@dataclass(frozen=True, slots=True)
class PrefectEvents:
    """The target of the outbox that is a Prefect server."""

    server: PrefectServer

    @property
    def name(self) -> str:
        """The same wherever it listens, which may be elsewhere after each `coevo up`: there is one."""
        return "prefect"

    def send(self, alert: AlertRow) -> httpx.Response:
        """What it answered to the event, or to a question before it: whether it has the event already, and where the
        run was started from, when that is no success. Raises as `outbox.Target` has it.

        It is asked first because it stores an id once, but for an event that comes again after five minutes, or after
        it was restarted, it runs the automations again: they would pause what a person has resumed.
        """
        known = self._post("/events/filter", {"filter": {"id": {"id": [_id_of(alert)]}}, "limit": 1})
        if not known.is_success or _Events.model_validate_json(known.content).total:
            return known
        flow_runs = self._flow_runs(alert)
        if not flow_runs.is_success:
            return flow_runs
        rows = _FLOW_RUNS.validate_json(flow_runs.content)
        deployment = next((row.deployment_id for row in rows if row.parameters.get("run") == alert.run), None)
        return self._post("/events", [event_of(alert, deployment)])

    def _flow_runs(self, alert: AlertRow) -> httpx.Response:
        """Those that work on the run or did, the last that began first: a flow run is named by its run, or, where one
        iteration was started by itself, by both. Subflows have no deployment of their own."""
        wanted = {
            "name": {"any_": [alert.run, f"{alert.run}/{alert.iteration}"]},
            "parent_task_run_id": {"is_null_": True},
        }
        return self._post("/flow_runs/filter", {"flow_runs": wanted, "sort": "START_TIME_DESC"})

    def _post(self, path: str, body: object) -> httpx.Response:
        return self.server.request("POST", path, body, _TIMEOUT_S)


def event_of(alert: AlertRow, started_from: UUID | None) -> dict[str, Any]:
    """What `POST /api/events` takes a list of. The id follows from the alert's, so that what is sent again is the same
    event; the deployment that the run was started from, if any, is related, so that an automation can act on it."""
    return {
        "event": EVENT,
        "occurred": alert.raised_at.isoformat(),
        "resource": {
            "prefect.resource.id": f"coevo.run.{alert.run}",
            "prefect.resource.name": alert.run,
            "coevo.alert.severity": alert.severity,
            "coevo.alert.rule": alert.rule,
        },
        "related": [
            {"prefect.resource.id": f"prefect.deployment.{deployment}", "prefect.resource.role": "deployment"}
            for deployment in (started_from,)
            if deployment
        ],
        "payload": {"alert": alert.id, "iteration": alert.iteration, "series": alert.series, "text": alert.text},
        "id": _id_of(alert),
    }


def _id_of(alert: AlertRow) -> str:
    return str(uuid5(NAMESPACE_URL, f"{EVENT}/{alert.id}"))
