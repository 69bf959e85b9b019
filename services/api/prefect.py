"""What runs need of Prefect's REST API.

The deployments are known by name: their code is the orchestrator's, which nothing imports.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from fastapi import HTTPException

from core.types import Flow
from core.unicode import from_json
from services.prefect_server import PrefectServer

_DEPLOYMENT = "coevo"
_FLOWS: dict[Flow, str] = {"co_evolve": "co-evolve", "self_train": "self-train"}
_ALL_FLOWS = (*_FLOWS.values(), "iteration")  # one of its own can be at work on a run too
_ACTIVE = ("SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING")
_UNFINISHED = ("FAILED", "CRASHED", "CANCELLED")
_LATELY = timedelta(days=7)
_PAGE = 200  # Prefect's largest
_OURS: dict[str, Any] = {"flows": {"name": {"any_": _ALL_FLOWS}}, "limit": _PAGE}
_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)  # it asks so to be asked again, as while its database is locked


@dataclass(frozen=True, slots=True)
class FlowRun:
    """A flow run of Prefect's, which works on one of our runs."""

    id: str
    run: str
    state: str  # its type: SCHEDULED, PENDING, RUNNING, PAUSED, CANCELLING; or that it has ended
    deployed: bool  # a worker of Prefect's has its process; otherwise `coevo run`, in somebody's terminal
    name: str  # of the state: that of its type, or more, as Late and AwaitingRetry are of SCHEDULED
    message: str | None  # of the state; why it failed
    since: datetime  # in this state
    created: datetime
    started: datetime | None

    @property
    def active(self) -> bool:
        return self.state in _ACTIVE

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> FlowRun:
        state, started = row["state"] or {}, row["start_time"]
        created = datetime.fromisoformat(row["created"])
        return cls(
            id=row["id"],
            run=row["parameters"].get("run", ""),
            state=row["state_type"] or "",
            deployed=row["deployment_id"] is not None,
            name=row["state_name"] or "",
            message=state.get("message"),
            since=datetime.fromisoformat(state["timestamp"]) if state else created,
            created=created,
            started=datetime.fromisoformat(started) if started else None,
        )


@dataclass(frozen=True, slots=True)
class Prefect:
    """Flow runs on a server; None where nobody said which.

    Every method that asks it raises `HTTPException`: 503 where it does not answer as documented, 409 with its reason
    where it refuses.
    """

    server: PrefectServer | None

    def page_of(self, flow_run: FlowRun) -> str:
        """The flow run's address in the UI."""
        return self._known_server().page_of(flow_run.id)

    def flow_runs(self, run: str) -> list[FlowRun]:
        """The flow runs of a run, the subflows of others left out: all that are active, and the past ones by its name.

        One that waits to be started has a name of Prefect's own where a person triggered it: its parameter tells.
        """
        ours = {"operator": "or_", "name": {"any_": [run]}, "state": {"type": {"any_": _ACTIVE}}}
        wanted = {**_OURS, "flow_runs": ours, "sort": "ID_DESC"}
        flow_runs: list[FlowRun] = []
        offset = 0
        while True:
            rows = from_json(self._post("/flow_runs/filter", {**wanted, "offset": offset}).content)
            flow_runs += [FlowRun.of(row) for row in rows if row["parent_task_run_id"] is None]
            offset += len(rows)
            if len(rows) < _PAGE:
                return [flow_run for flow_run in flow_runs if flow_run.run == run]

    def unfinished(self) -> list[FlowRun]:
        """The flow runs of all runs that wait or are at work, and those that failed or were cancelled lately, the
        newest first; at most 200 of each, the subflows of others left out."""
        since = (datetime.now(UTC) - _LATELY).isoformat()
        active = {"state": {"type": {"any_": _ACTIVE}}}
        ended = {"state": {"type": {"any_": _UNFINISHED}}, "end_time": {"after_": since}}
        flow_runs: list[FlowRun] = []
        for wanted in (active, ended):
            of_runs = {**wanted, "parent_task_run_id": {"is_null_": True}}
            answer = self._post("/flow_runs/filter", {**_OURS, "flow_runs": of_runs, "sort": "START_TIME_DESC"})
            flow_runs += [FlowRun.of(row) for row in from_json(answer.content)]
        named = [flow_run for flow_run in flow_runs if flow_run.run]
        return sorted(named, key=lambda flow_run: flow_run.created, reverse=True)

    def start(self, flow: Flow, run: str, parameters: Mapping[str, Any], before: list[FlowRun]) -> FlowRun:
        """Trigger the deployment of a flow. `before` are the flow runs that the caller saw when it found none active:
        of two callers that saw the same, one starts a flow run and the other is refused."""
        deployment = self._deployment(_FLOWS[flow])
        key = hashlib.sha256("\n".join([run, *sorted(flow_run.id for flow_run in before)]).encode()).hexdigest()
        body = {"name": run, "tags": [run], "parameters": {"run": run, **parameters}, "idempotency_key": key}
        created = self._post(f"/deployments/{deployment}/create_flow_run", body)
        if created.status_code != httpx.codes.CREATED:
            raise HTTPException(409, f"run {run}: somebody else has just started it")
        return FlowRun.of(from_json(created.content))

    def cancel(self, flow_run: FlowRun, why: str | None) -> FlowRun:
        """Have its process ended, and `why` shown with it. One that no worker has is only marked, at once."""
        wanted = "CANCELLING" if flow_run.deployed else "CANCELLED"
        state = {"type": wanted, "message": why or "asked for over the REST API of coevo"}
        answer = from_json(self._post(f"/flow_runs/{flow_run.id}/set_state", {"state": state}).content)
        # What is scheduled only is "rejected" into CANCELLED, what is being cancelled into the state that it has.
        came = (answer["state"] or {}).get("type")
        if came not in ("CANCELLING", "CANCELLED"):
            raise HTTPException(409, f"run {flow_run.run}: not cancelled: {_reason(answer)}")
        return replace(flow_run, state=came)

    def answer(self, flow_run: FlowRun, run_input: Mapping[str, str]) -> FlowRun:
        """Have one that is paused go on with what a person answered."""
        answer = from_json(self._post(f"/flow_runs/{flow_run.id}/resume", {"run_input": dict(run_input)}).content)
        if answer["status"] != "ACCEPT":
            raise HTTPException(409, f"run {flow_run.run}: does not go on: {_reason(answer)}")
        return replace(flow_run, state=answer["state"]["type"])

    def _deployment(self, flow: str) -> str:
        answer = self._send("GET", f"/deployments/name/{flow}/{_DEPLOYMENT}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            missing = f"{flow}/{_DEPLOYMENT}"
            raise HTTPException(503, f"Prefect has no deployment {missing}; `coevo up`, or the runner, registers it")
        return str(_checked(answer).json()["id"])

    def _post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        return _checked(self._send("POST", path, body))

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        server = self._known_server()
        try:
            for pause_s in _PAUSES_S:
                answer = server.request(method, path, body)
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    break
                time.sleep(pause_s)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise HTTPException(503, "Prefect did not answer; `coevo status` says whether it is up") from error
        return answer

    def _known_server(self) -> PrefectServer:
        if self.server is None:
            raise HTTPException(503, "this API knows of no Prefect: `coevo up` starts one, then start the API again")
        return self.server


def _checked(answer: httpx.Response) -> httpx.Response:
    """It, where it is a success. 409 is Prefect's word for parameters that are not the flow's."""
    if answer.status_code == httpx.codes.CONFLICT:
        raise HTTPException(409, f"Prefect refused it: {answer.text[:500]}")
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise HTTPException(503, "Prefect refused this API's password: PREFECT_API_AUTH_STRING is not the server's")
    if not answer.is_success:
        raise HTTPException(503, f"Prefect answered with HTTP {answer.status_code}")
    return answer


def _reason(answer: Mapping[str, Any]) -> str:
    return str((answer["details"] or {}).get("reason") or answer["status"])[:500]
