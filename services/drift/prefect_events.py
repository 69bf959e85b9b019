"""Sends alerts as Prefect events, to which Prefect's automations react (deploy/prefect/automations.yaml)."""

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
_TIMEOUT_S = TIMEOUT_S / 3  # of a request; an attempt takes up to three, and each may be repeated for as long


class _Events(BaseModel):
    """The part of a response with events that is used here."""

    total: int


class _FlowRun(BaseModel):
    """The part of a flow run that is used here."""

    parameters: dict[str, Any]
    deployment_id: UUID | None


_FLOW_RUNS = TypeAdapter(list[_FlowRun])


@dataclass(frozen=True, slots=True)
class PrefectEvents:
    """A Prefect server as a target of the outbox."""

    server: PrefectServer

    @property
    def name(self) -> str:
        """A fixed name: there is one server, although its address may change with each `coevo up`."""
        return "prefect"

    def send(self, alert: AlertRow) -> httpx.Response:
        """Send the event, and return Prefect's response. Raises the errors of `outbox.Target.send`.

        Before that, two requests ask whether Prefect has the event already, and from which deployment the run was
        started. If Prefect has the event, or if one of these requests fails, their response is returned instead.

        The first request is needed because Prefect stores an event of the same id only once, but runs its automations
        again if the event comes again after five minutes or after a restart. They would pause a run that a person has
        resumed.
        """
        known = self._post("/events/filter", {"filter": {"id": {"id": [_event_id(alert)]}}, "limit": 1})
        if not known.is_success or _Events.model_validate_json(known.content).total:
            return known
        flow_runs = self._flow_runs(alert)
        if not flow_runs.is_success:
            return flow_runs
        rows = _FLOW_RUNS.validate_json(flow_runs.content)
        deployment_id = next((row.deployment_id for row in rows if row.parameters.get("run") == alert.run), None)
        return self._post("/events", [event_of(alert, deployment_id)])

    def _flow_runs(self, alert: AlertRow) -> httpx.Response:
        """Request the flow runs of the alert's run, the latest start first, without subflows, which have no deployment.

        A flow run has the name of its run, or of run and iteration if a single iteration was started by itself.
        """
        conditions = {
            "name": {"any_": [alert.run, f"{alert.run}/{alert.iteration}"]},
            "parent_task_run_id": {"is_null_": True},
        }
        return self._post("/flow_runs/filter", {"flow_runs": conditions, "sort": "START_TIME_DESC"})

    def _post(self, path: str, body: object) -> httpx.Response:
        return self.server.request("POST", path, body, _TIMEOUT_S)


def event_of(alert: AlertRow, deployment_id: UUID | None) -> dict[str, Any]:
    """The event of an alert, for the list that `POST /api/events` takes.

    Its id is derived from the alert's id, so an alert that is sent again is the same event. The deployment from which
    the run was started, if there is one, is a related resource, so that an automation can act on it.
    """
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
            {"prefect.resource.id": f"prefect.deployment.{related_id}", "prefect.resource.role": "deployment"}
            for related_id in (deployment_id,)
            if related_id
        ],
        "payload": {"alert": alert.id, "iteration": alert.iteration, "series": alert.series, "text": alert.text},
        "id": _event_id(alert),
    }


def _event_id(alert: AlertRow) -> str:
    return str(uuid5(NAMESPACE_URL, f"{EVENT}/{alert.id}"))
