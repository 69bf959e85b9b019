"""The part of Prefect's REST API that starting, cancelling and resuming runs needs.

Deployments are named here by text, because their code is in the orchestrator, which no service imports.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

import httpx

from core.errors import CoevoError
from core.texts.unicode import from_json
from core.types import Flow
from services.prefect.flow_runs import ACTIVE, DEPLOYMENTS, EXISTING, FlowRun, tags_of
from services.prefect.server import PrefectServer
from storage.queries.runs import RUN_NAME

_EVALUATE = "evaluate"
_ALL_FLOWS = (*DEPLOYMENTS.values(), "iteration")  # `iteration` can also be started by itself
_UNFINISHED = ("FAILED", "CRASHED", "CANCELLED")
_LATELY = timedelta(days=7)
_PAGE = 200  # the most that Prefect returns at once
_TIMEOUT_S, _VIEW_TIMEOUT_S = 10.0, 3.0
_FRESH_S = 2.0  # how long an answer about all flow runs is used; many views ask, and Prefect's SQLite is slow
_OUR_FLOWS: dict[str, Any] = {"flows": {"name": {"any_": _ALL_FLOWS}}, "limit": _PAGE}
_EVALUATIONS: dict[str, Any] = {"flows": {"name": {"any_": [_EVALUATE]}}, "limit": _PAGE}


class PrefectError(CoevoError):
    """Prefect did not do what was asked; the message says why."""


class PrefectAway(PrefectError):
    """There is no Prefect server, or it does not answer as documented."""


class PrefectRefused(PrefectError):
    """Prefect, or another request that came first, refuses."""


@dataclass(frozen=True, slots=True)
class KnownFlowRuns:
    """Run -> its newest flow run that waits or is at work, or that failed or was cancelled lately."""

    by_run: Mapping[str, FlowRun] = field(default_factory=dict)
    problem: str | None = None  # why Prefect could not be asked
    server: PrefectServer | None = None

    def page_of(self, run: str) -> str | None:
        """The address of the run's flow run in Prefect's UI; None if it has none."""
        return self.server.page_of(self.by_run[run].id) if self.server and run in self.by_run else None


@dataclass(slots=True)
class Prefect:
    """Flow runs on a Prefect server; None if the API has no Prefect server. Threads may share it.

    Every method that sends a request raises `PrefectAway`, and `PrefectRefused` with Prefect's reason.
    """

    server: PrefectServer | None
    _known: KnownFlowRuns | None = field(default=None, init=False, repr=False)
    _known_until: float = field(default=0.0, init=False, repr=False)  # by time.monotonic
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def page_of(self, flow_run: FlowRun) -> str:
        """The address of a flow run in Prefect's UI."""
        return self._known_server().page_of(flow_run.id)

    def flow_runs(self, run: str) -> list[FlowRun]:
        """The flow runs of a run, without subflows: all active ones, and those past ones that have the run's name or
        tag."""
        return self._named(_OUR_FLOWS, run, {"run": run}, {"tags": {"all_": tags_of(run=run)}})

    def evaluations(self, model: str, parameters: Mapping[str, Any]) -> list[FlowRun]:
        """The flow runs that evaluate a model with these parameters: all active ones, and past ones."""
        return self._named(_EVALUATIONS, model, parameters)

    def _named(
        self,
        of_flows: Mapping[str, Any],
        name: str,
        parameters: Mapping[str, Any],
        or_with: Mapping[str, Any] = {},
    ) -> list[FlowRun]:
        """The flow runs with these parameters, among others, that are active or have this name, or for which the filter
        `or_with` is true; without subflows.

        A flow run that a person triggered has a name made by Prefect until it starts. So all active flow runs are
        fetched, and selected by their parameters.
        """
        named_or_active = {"operator": "or_", "name": {"any_": [name]}, "state": {"type": {"any_": ACTIVE}}}
        query = {**of_flows, "flow_runs": {**named_or_active, **or_with}, "sort": "ID_DESC"}
        flow_runs: list[FlowRun] = []
        offset = 0
        while True:
            rows = from_json(self._post("/flow_runs/filter", {**query, "offset": offset}).content)
            top_level = [row for row in rows if row["parent_task_run_id"] is None]
            flow_runs += [FlowRun.of(row) for row in top_level if parameters.items() <= row["parameters"].items()]
            offset += len(rows)
            if len(rows) < _PAGE:
                return flow_runs

    def newest(self) -> KnownFlowRuns:
        """The newest flow run of each run, as of at most two seconds ago, or since something was started, cancelled or
        answered here. Without an answer of Prefect there are none: a view of runs still has the store, and is not to
        wait for long."""
        with self._lock:
            if self._known is None or time.monotonic() > self._known_until:
                self._known = self._ask_newest()
                self._known_until = time.monotonic() + _FRESH_S
            return self._known

    def _ask_newest(self) -> KnownFlowRuns:
        """Of the flow runs that wait or are at work, and of those that failed or were cancelled lately, at most 200 of
        each kind are asked for, without subflows."""
        if self.server is None:
            return KnownFlowRuns()  # without Prefect no flow run was triggered
        since = (datetime.now(UTC) - _LATELY).isoformat()
        active = {"state": {"type": {"any_": ACTIVE}}}
        ended = {"state": {"type": {"any_": _UNFINISHED}}, "end_time": {"after_": since}}
        flow_runs: list[FlowRun] = []
        try:
            for kind in (active, ended):
                no_subflows = {**kind, "parent_task_run_id": {"is_null_": True}}
                query = {**_OUR_FLOWS, "flow_runs": no_subflows, "sort": "START_TIME_DESC"}
                answer = self._post("/flow_runs/filter", query, _VIEW_TIMEOUT_S)
                flow_runs += [FlowRun.of(row) for row in from_json(answer.content)]
        except PrefectError as error:
            return KnownFlowRuns(problem=str(error))
        # A flow run that was started in Prefect itself may have any parameters; under another name no run can be.
        named = [flow_run for flow_run in flow_runs if RUN_NAME.fullmatch(flow_run.run)]
        by_age = sorted(named, key=lambda flow_run: flow_run.created, reverse=True)
        return KnownFlowRuns({flow_run.run: flow_run for flow_run in reversed(by_age)}, server=self.server)

    def page_of_last(self, run: str, known: KnownFlowRuns) -> str | None:
        """The address of the run's newest flow run in Prefect's UI, also of one that is done, which `known` has not.
        None if the run has none, or if Prefect does not answer."""
        if known.server is None:
            return None
        named = {"name": {"any_": [run]}, "parent_task_run_id": {"is_null_": True}}
        query = {**_OUR_FLOWS, "flow_runs": named, "sort": "START_TIME_DESC"}
        try:
            rows = from_json(self._post("/flow_runs/filter", query, _VIEW_TIMEOUT_S).content)
        except PrefectError:
            return known.page_of(run)
        flow_runs = [*map(FlowRun.of, rows), *known.by_run.values()]
        of_run = [flow_run for flow_run in flow_runs if flow_run.run == run]
        return known.server.page_of(max(of_run, key=lambda flow_run: flow_run.created).id) if of_run else None

    def has_runner(self) -> bool:
        """Whether a flow runner has asked Prefect for work within the last minute; False without an answer."""
        query = {"deployments": {"name": {"any_": [*DEPLOYMENTS.values()]}}, "limit": _PAGE}
        try:
            rows = from_json(self._post("/deployments/filter", query, _VIEW_TIMEOUT_S).content)
        except PrefectError:
            return False
        return any(row["status"] == "READY" for row in rows)

    def start(self, flow: Flow, run: str, parameters: Mapping[str, Any], before: list[FlowRun]) -> FlowRun:
        """Trigger the deployment of a flow. `before` are the run's flow runs that the caller saw, none of them active.
        If two callers saw the same ones, one of them starts a flow run and the other is refused."""
        return self._create(DEPLOYMENTS[flow], run, tags_of(run=run), {"run": run, **parameters}, [run], before)

    def start_evaluation(self, model: str, parameters: Mapping[str, Any], before: list[FlowRun]) -> FlowRun:
        """Trigger the evaluation of a model. `before` are those with the same parameters, as in `start`."""
        return self._create(_EVALUATE, model, [], parameters, [json.dumps(parameters, sort_keys=True)], before)

    def _create(
        self,
        flow: str,
        name: str,
        tags: list[str],
        parameters: Mapping[str, Any],
        same: list[str],
        before: list[FlowRun],
    ) -> FlowRun:
        """Create a flow run of this name. Of several requests with equal `same` and `before`, one creates it."""
        of_flow = f"{flow}/{flow}"  # a deployment has the name of its flow
        found = self._send("GET", f"/deployments/name/{of_flow}")
        if found.status_code == httpx.codes.NOT_FOUND:
            raise PrefectAway(f"Prefect has no deployment {of_flow}; `coevo up` or the flow runner registers it")
        deployment: Mapping[str, Any] = _checked(found).json()
        # A preset that the form does not list, because its file is newer, goes into the field for others.
        fields = (deployment["parameter_openapi_schema"] or {}).get("properties", {})
        listed, preset = fields.get("preset", {}).get("enum"), parameters.get("preset")
        if listed is not None and preset is not None and preset not in listed:
            parameters = {**parameters, "preset": EXISTING, "preset_file": preset}
        key = hashlib.sha256("\n".join([*same, *sorted(flow_run.id for flow_run in before)]).encode()).hexdigest()
        body = {"name": name, "tags": tags, "parameters": parameters, "idempotency_key": key}
        created = self._post(f"/deployments/{deployment['id']}/create_flow_run", body)
        if created.status_code != httpx.codes.CREATED:
            raise PrefectRefused(f"{name}: another request has just started it")
        self._forget()
        return FlowRun.of(from_json(created.content))

    def cancel(self, flow_run: FlowRun, why: str | None) -> FlowRun:
        """Have the worker end the flow run's process, with the reason `why`. Without a worker it is only marked."""
        state_type = "CANCELLING" if flow_run.deployed else "CANCELLED"
        state = {"type": state_type, "message": why or "requested over the REST API of coevo"}
        answer = from_json(self._post(f"/flow_runs/{flow_run.id}/set_state", {"state": state}).content)
        # Prefect "rejects" the new state in two cases: a flow run that is only scheduled becomes CANCELLED, and one
        # that is being cancelled already keeps its state.
        new_type = (answer["state"] or {}).get("type")
        if new_type not in ("CANCELLING", "CANCELLED"):
            raise PrefectRefused(f"run {flow_run.run}: not cancelled: {_reason(answer)}")
        self._forget()
        return replace(flow_run, state=new_type)

    def delete(self, flow_run: FlowRun) -> None:
        """Delete a flow run with its subflows. No view shows it any more.

        Prefect would keep the subflows, as flow runs without a parent, and one that has failed would be listed.
        """
        subflows = {"flow_runs": {"parent_flow_run_id": {"any_": [flow_run.id]}}}
        while rows := from_json(self._post("/flow_runs/filter", subflows).content):
            for row in rows:
                self._delete(row["id"])
        self._delete(flow_run.id)
        self._forget()

    def _delete(self, flow_run_id: str) -> None:
        answer = self._send("DELETE", f"/flow_runs/{flow_run_id}")
        if answer.status_code != httpx.codes.NOT_FOUND:
            _checked(answer)

    def answer(self, flow_run: FlowRun, run_input: Mapping[str, str]) -> FlowRun:
        """Resume a paused flow run with a person's answer."""
        answer = from_json(self._post(f"/flow_runs/{flow_run.id}/resume", {"run_input": dict(run_input)}).content)
        if answer["status"] != "ACCEPT":
            raise PrefectRefused(f"run {flow_run.run}: not resumed: {_reason(answer)}")
        self._forget()
        return replace(flow_run, state=answer["state"]["type"])

    def _forget(self) -> None:
        """Have the next view ask Prefect again. An answer that is under way may be of before the change."""
        with self._lock:
            self._known = None

    def _post(self, path: str, body: Mapping[str, Any], timeout_s: float = _TIMEOUT_S) -> httpx.Response:
        return _checked(self._send("POST", path, body, timeout_s))

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = _TIMEOUT_S
    ) -> httpx.Response:
        server = self._known_server()
        try:
            return server.request(method, path, body, timeout_s)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise PrefectAway("Prefect did not answer; if it has ended, `coevo up` starts it again") from error

    def _known_server(self) -> PrefectServer:
        if self.server is None:
            raise PrefectAway("this API has no Prefect server: start one with `coevo up`, then restart the API")
        return self.server


def _checked(response: httpx.Response) -> httpx.Response:
    """Return the response if it is a success. Prefect answers 409 to parameters that the flow does not have."""
    if response.status_code == httpx.codes.CONFLICT:
        raise PrefectRefused(f"Prefect refused the request: {response.text[:500]}")
    if response.status_code == httpx.codes.UNAUTHORIZED:
        raise PrefectAway(
            "Prefect refused the password; PREFECT_API_AUTH_STRING of this API differs from that of the server"
        )
    if not response.is_success:
        raise PrefectAway(f"Prefect answered with HTTP {response.status_code}")
    return response


def _reason(answer: Mapping[str, Any]) -> str:
    return str((answer["details"] or {}).get("reason") or answer["status"])[:500]
