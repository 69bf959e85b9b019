"""What runs need of Prefect's REST API (https://docs.prefect.io/v3/api-ref/rest-api/server); written against 3.7.7.

The deployments are known by name: their code is the orchestrator's, which nothing imports.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import httpx
from fastapi import HTTPException

Flow = Literal["co_evolve", "self_train"]

_DEPLOYMENT = "coevo"
_FLOWS: dict[Flow, str] = {"co_evolve": "co-evolve", "self_train": "self-train"}
_ALL_FLOWS = (*_FLOWS.values(), "iteration")  # one of its own can be at work on a run too
_ACTIVE = ("SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING")
_PAGE = 200  # Prefect's largest
_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)  # it asks so to be asked again, as while its database is locked


@dataclass(frozen=True, slots=True)
class FlowRun:
    """A flow run of Prefect's, which works on one of our runs."""

    id: str
    run: str
    state: str  # its type: SCHEDULED, PENDING, RUNNING, PAUSED, CANCELLING; or that it has ended
    deployed: bool  # a worker of Prefect's has its process; otherwise `coevo run`, in somebody's terminal

    @property
    def active(self) -> bool:
        return self.state in _ACTIVE

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> FlowRun:
        run = row["parameters"].get("run", "")
        return cls(row["id"], run, row["state_type"] or "", row["deployment_id"] is not None)


@dataclass(frozen=True, slots=True)
class Prefect:
    """The server at `url`, below which its UI is, and its API at /api; None where nobody said.

    Every method that asks it raises `HTTPException`: 503 where it does not answer as documented, 409 with its reason
    where it refuses.
    """

    url: str | None
    ui_url: str | None = None  # as a browser reaches it, where that is elsewhere
    timeout_s: float = 10.0

    def page_of(self, flow_run: FlowRun) -> str:
        """The flow run's address in the UI."""
        return f"{self.ui_url or self.url}/runs/flow-run/{flow_run.id}"

    def flow_runs(self, run: str) -> list[FlowRun]:
        """The flow runs of a run, the subflows of others left out: all that are active, and the past ones by its name.

        One that waits to be started has a name of Prefect's own where a person triggered it: its parameter tells.
        """
        ours = {"operator": "or_", "name": {"any_": [run]}, "state": {"type": {"any_": _ACTIVE}}}
        wanted = {"flows": {"name": {"any_": _ALL_FLOWS}}, "flow_runs": ours, "sort": "ID_DESC", "limit": _PAGE}
        found: list[FlowRun] = []
        offset = 0
        while True:
            rows = self._post("/flow_runs/filter", {**wanted, "offset": offset}).json()
            found += [FlowRun.of(row) for row in rows if row["parent_task_run_id"] is None]
            offset += len(rows)
            if len(rows) < _PAGE:
                return [each for each in found if each.run == run]

    def start(self, flow: Flow, run: str, parameters: Mapping[str, Any], before: list[FlowRun]) -> FlowRun:
        """Trigger the deployment of a flow. `before` are the flow runs that the caller saw when it found none active:
        of two callers that saw the same, one starts a flow run and the other is refused."""
        deployment = self._deployment(_FLOWS[flow])
        key = hashlib.sha256("\n".join([run, *sorted(each.id for each in before)]).encode()).hexdigest()
        body = {"name": run, "tags": [run], "parameters": {"run": run, **parameters}, "idempotency_key": key}
        created = self._post(f"/deployments/{deployment}/create_flow_run", body)
        if created.status_code != httpx.codes.CREATED:
            raise HTTPException(409, f"run {run}: somebody else has just started it")
        return FlowRun.of(created.json())

    def cancel(self, flow_run: FlowRun, why: str | None) -> FlowRun:
        """Have its process ended, and `why` shown with it. One that no worker has is only marked, at once."""
        wanted = "CANCELLING" if flow_run.deployed else "CANCELLED"
        state = {"type": wanted, "message": why or "asked for over the REST API of coevo"}
        answer = self._post(f"/flow_runs/{flow_run.id}/set_state", {"state": state}).json()
        # What is scheduled only is "rejected" into CANCELLED, what is being cancelled into the state that it has.
        came = (answer["state"] or {}).get("type")
        if came not in ("CANCELLING", "CANCELLED"):
            raise HTTPException(409, f"run {flow_run.run}: not cancelled: {_reason(answer)}")
        return FlowRun(flow_run.id, flow_run.run, came, flow_run.deployed)

    def answer(self, flow_run: FlowRun, run_input: Mapping[str, str]) -> FlowRun:
        """Have one that is paused go on with what a person answered."""
        answer = self._post(f"/flow_runs/{flow_run.id}/resume", {"run_input": dict(run_input)}).json()
        if answer["status"] != "ACCEPT":
            raise HTTPException(409, f"run {flow_run.run}: does not go on: {_reason(answer)}")
        return FlowRun(flow_run.id, flow_run.run, answer["state"]["type"], flow_run.deployed)

    def _deployment(self, flow: str) -> str:
        answer = self._send("GET", f"/deployments/name/{flow}/{_DEPLOYMENT}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            missing = f"{flow}/{_DEPLOYMENT}"
            raise HTTPException(503, f"Prefect has no deployment {missing}; `coevo up`, or the runner, registers it")
        return str(_checked(answer).json()["id"])

    def _post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        return _checked(self._send("POST", path, body))

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        if self.url is None:
            raise HTTPException(503, "this API knows of no Prefect: `coevo up` starts one, then start the API again")
        try:
            for pause_s in _PAUSES_S:
                answer = httpx.request(
                    method, f"{self.url}/api{path}", json=body, timeout=self.timeout_s, trust_env=False
                )
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    break
                time.sleep(pause_s)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise HTTPException(503, "Prefect did not answer; `coevo status` says whether it is up") from error
        return answer


def _checked(answer: httpx.Response) -> httpx.Response:
    """It, where it is a success. 409 is Prefect's word for parameters that are not the flow's."""
    if answer.status_code == httpx.codes.CONFLICT:
        raise HTTPException(409, f"Prefect refused it: {answer.text[:500]}")
    if not answer.is_success:
        raise HTTPException(503, f"Prefect answered with HTTP {answer.status_code}")
    return answer


def _reason(answer: Mapping[str, Any]) -> str:
    return str((answer["details"] or {}).get("reason") or answer["status"])[:500]
