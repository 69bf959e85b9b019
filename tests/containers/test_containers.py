"""docker-compose.yml, brought up on fresh volumes as docs/deploying.md says: the tests check what that page promises.
They run in the order of the file, on one set of containers (`make containers`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
import pytest
import yaml

from orchestrator.runner.process import DEPLOYMENTS
from services.client import ApiError, Client
from tests.containers.composed import Composed
from tests.live import SMALL, wait_until

pytestmark = pytest.mark.timeout(2400)

RUN = "first"
ENDED = ("COMPLETED", "CRASHED", "FAILED", "CANCELLED")
UIS = {"api": 8080, "prefect": 4200, "ray-head": 8265, "prometheus": 9090, "grafana": 3000}
API = "http://127.0.0.1:8080"
STAND_INS = "stand-ins" in os.environ.get("COEVO_CONTAINERS_COMPOSE_FILE", "")


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """The containers, brought up by the first commands of the documentation; removed afterwards, with their volumes."""
    project = Composed.copy_into(tmp_path_factory.mktemp("checkout"))
    try:
        project.run_documented("## One machine: Docker Compose")
        yield project
    finally:
        if (project.folder / ".env").exists():
            print(project.compose("logs", "--no-color", "--tail=15"))
            project.compose("down", "--volumes", "--timeout=30")


@pytest.fixture(scope="module")
def api(composed: Composed) -> Client:
    return Client(API, composed.add_key("test", "read", "run"))


def test_everything_is_up_after_the_documented_commands(composed: Composed) -> None:
    assert composed.healthy()
    assert composed.containers()["migrate"]["State"]["ExitCode"] == 0
    assert composed.containers().keys() >= {*UIS, "postgres", "migrate", "runner", "ray-cpu"}
    output = composed.run_documented("## One machine: Docker Compose", 1)
    assert "services: ray, prefect" in output
    assert (composed.folder / ".env").stat().st_mode & 0o077 == 0


def test_prefect_s_ui_is_served_and_its_api_asks_for_the_password(composed: Composed) -> None:
    page = httpx.get("http://127.0.0.1:4200/", trust_env=False, follow_redirects=True)
    assert page.status_code == 200
    script = re.search(r'src="([^"]+\.js)"', page.text)
    assert script is not None, page.text
    assert httpx.get(f"http://127.0.0.1:4200/{script[1].lstrip('./')}", trust_env=False).status_code == 200
    refused = httpx.post("http://127.0.0.1:4200/api/deployments/filter", json={}, trust_env=False)
    assert refused.status_code == 401
    with composed.prefect() as prefect:
        deployments = prefect.post("/deployments/filter", json={}).raise_for_status().json()
        assert {deployment["status"] for deployment in deployments} == {"READY"}
        expected = {deployment["name"] for deployment in yaml.safe_load(DEPLOYMENTS.read_text())["deployments"]}
        assert {deployment["name"] for deployment in deployments} == expected
        for origin, allowed in (("http://127.0.0.1:4200", True), ("http://elsewhere.example", False)):
            response = prefect.get("/admin/version", headers={"Origin": origin})
            assert (response.headers.get("access-control-allow-origin") == origin) is allowed


def test_the_api_asks_for_keys(api: Client) -> None:
    with pytest.raises(ApiError, match="Authorization"):
        list(Client(API).items("/runs"))
    assert list(api.items("/runs")) == []


def test_every_container_is_confined_and_limited(composed: Composed) -> None:
    for service, container in composed.containers().items():
        host, user = container["HostConfig"], container["Config"]["User"]
        assert int(user.partition(":")[0]) > 0, service
        assert host["ReadonlyRootfs"], service
        assert host["CapDrop"] == ["ALL"], service
        assert host["SecurityOpt"] == ["no-new-privileges:true"], service
        assert host["Memory"] > 0, service
        assert host["PidsLimit"] > 0, service
    for service in set(composed.containers()) - {"migrate"}:
        with pytest.raises(AssertionError, match="Read-only file system"):
            composed.compose("exec", "-T", service, "touch", "/etc/written")


def test_a_container_has_only_the_secrets_that_it_needs(composed: Composed) -> None:
    secrets = {name: value for name, value in composed.secrets.items() if re.search("PASSWORD|TOKEN", name)}
    secrets_of: dict[str, set[str]] = {}
    for service, container in composed.containers().items():
        environment = "\n".join(container["Config"]["Env"])
        secrets_of[service] = {name for name, value in secrets.items() if value in environment}
    ray, database, prefect = "RAY_AUTH_TOKEN", "COEVO_DATABASE_PASSWORD", "PREFECT_PASSWORD"
    assert secrets_of == {
        "postgres": {"POSTGRES_PASSWORD", database, "PREFECT_DATABASE_PASSWORD", "GRAFANA_DATABASE_PASSWORD"},
        "migrate": {database},
        "prefect": {"PREFECT_DATABASE_PASSWORD", prefect},
        "ray-head": {ray},
        "ray-cpu": {ray},
        "runner": {ray, database, prefect},
        "api": {database, prefect},
        "prometheus": set(),
        "grafana": {"GRAFANA_PASSWORD", "GRAFANA_DATABASE_PASSWORD"},
    }


def test_only_the_uis_are_published_and_only_on_loopback(composed: Composed) -> None:
    published = {}
    for service, container in composed.containers().items():
        ports = container["NetworkSettings"]["Ports"].values()
        bindings = [binding for port_bindings in ports for binding in port_bindings or []]
        if bindings:
            published[service] = {(binding["HostIp"], int(binding["HostPort"])) for binding in bindings}
    assert published == {service: {("127.0.0.1", port)} for service, port in UIS.items()}


@pytest.mark.parametrize(
    ("service", "host", "port", "expected"),
    [
        ("api", "postgres", 5432, True),
        ("api", "prefect", 4200, True),
        ("api", "ray-head", 6379, False),
        ("runner", "ray-head", 8000, True),
        ("runner", "postgres", 5432, True),
        ("ray-cpu", "postgres", 5432, False),
        ("ray-cpu", "prefect", 4200, False),
        ("ray-cpu", "api", 8080, False),
        ("prefect", "ray-head", 8265, False),
    ],
)
def test_services_reach_what_they_need_and_no_more(
    composed: Composed, service: str, host: str, port: int, expected: bool
) -> None:
    assert composed.reaches(service, host, port) is expected


def test_a_missing_secret_is_named_in_the_error(composed: Composed) -> None:
    required = [name for name in composed.secrets if re.search("PASSWORD|TOKEN", name)]
    for missing in required:
        lines = "".join(f"{name}=x\n" for name in required if name != missing)
        (composed.folder / "incomplete.env").write_text(lines)
        with pytest.raises(AssertionError, match=rf'required variable "?{missing}"? is missing'):
            composed.compose("--env-file", "incomplete.env", "config", "--quiet")


def _start(composed: Composed) -> str:
    """Start a run of one iteration by Prefect's API, from outside the containers; returns the flow run's id."""
    overrides = {**yaml.safe_load("\n".join(setting.replace("=", ": ", 1) for setting in SMALL))}
    del overrides["iterations"]
    parameters = {"run": RUN, "preset": "demo", "iterations": 1, "overrides": overrides}
    with composed.prefect() as prefect:
        deployment = prefect.get("/deployments/name/co-evolve/co-evolve").raise_for_status().json()["id"]
        created = prefect.post(
            f"/deployments/{deployment}/create_flow_run", json={"name": RUN, "parameters": parameters}
        )
        return str(created.raise_for_status().json()["id"])


def _state(composed: Composed, flow_run: str) -> str:
    try:
        with composed.prefect() as prefect:
            return str(prefect.get(f"/flow_runs/{flow_run}").raise_for_status().json()["state_type"])
    except httpx.HTTPError:  # Prefect or its database is being restarted
        return "no answer"


def _stages_done(api: Client) -> int:
    try:
        return sum(stage["status"] == "done" for stage in api.get(f"/runs/{RUN}/stages"))
    except ApiError:  # there is no such run yet, or the API is being restarted
        return 0


def _running_flow_run(composed: Composed, api: Client, flow_run: str) -> str:
    """The id of a flow run that is running: this one, or, if it has ended, a new one that resumes the run, with one
    more iteration if the run is done."""
    if _state(composed, flow_run) in ENDED:
        longer = len(api.get(f"/runs/{RUN}/iterations")) if _is_done(api) else None
        resumed: list[str] = []

        def resumes() -> bool:
            """A process whose database went away could not give its lease back; the lease lasts a minute."""
            with suppress(ApiError):
                resumed.append(api.send("POST", f"/runs/{RUN}/resume", json={"iterations": longer})["flow_run"])
            return bool(resumed)

        wait_until(resumes, "the run to be resumed", 120)
        [flow_run] = resumed
    wait_until(lambda: _state(composed, flow_run) == "RUNNING", "the flow run to begin", 300)
    return flow_run


def test_a_run_started_from_outside_survives_the_restart_of_every_service(composed: Composed, api: Client) -> None:
    flow_run = _start(composed)
    wait_until(lambda: _stages_done(api) > 0, "a stage to be done", 300)
    for service in ("prometheus", "grafana", "prefect", "postgres", "api", "ray-cpu", "runner", "ray-head"):
        while True:
            flow_run = _running_flow_run(composed, api, flow_run)
            stages_before = _stages_done(api)
            composed.restart(service)
            if service not in ("runner", "ray-head"):
                break
            # The flow run's process was in this container, and only the runner reports that it is gone.
            wait_until(partial(_has_ended, composed, flow_run), "the orphaned flow run to be ended", 300)
            # A flow run whose Ray restarts may have the time to fail before its process is gone.
            if _state(composed, flow_run) in {"runner": ["CRASHED"], "ray-head": ["CRASHED", "FAILED"]}[service]:
                break
            # The flow run completed before the restart: try again with another one.
            assert _state(composed, flow_run) == "COMPLETED"
        assert _stages_done(api) >= stages_before
        print(
            f"{service} restarted: stages done {_stages_done(api)}, flow run {_state(composed, flow_run)}", flush=True
        )
    while not _is_done(api):
        flow_run = _running_flow_run(composed, api, flow_run)
        wait_until(partial(_has_ended, composed, flow_run), "the flow run to end", 900)
        assert _state(composed, flow_run) == "COMPLETED"


def _has_ended(composed: Composed, flow_run: str) -> bool:
    return _state(composed, flow_run) in ENDED


def _is_done(api: Client) -> bool:
    return [run["state"] for run in api.items("/runs") if run["name"] == RUN] == ["done"]


def _query_prometheus(query: str) -> list[dict[str, Any]]:
    response = httpx.get("http://127.0.0.1:9090/api/v1/query", params={"query": query}, trust_env=False, timeout=30)
    result: list[dict[str, Any]] = response.raise_for_status().json()["data"]["result"]
    return result


def test_the_run_s_label_accuracy_is_in_prometheus_after_it_got_a_key(composed: Composed) -> None:
    composed.run_documented("### Prometheus and Grafana")
    accuracy = f'coevo_pseudo_label_accuracy_ratio{{run="{RUN}", slice="kept"}}'
    wait_until(lambda: bool(_query_prometheus(accuracy)), "Prometheus to have the label accuracy", 180)
    [sample, *_] = _query_prometheus(accuracy)
    assert 0 <= float(sample["value"][1]) <= 1
    print(f"label accuracy in Prometheus: {sample}")
    wait_until(
        lambda: {target["value"][1] for target in _query_prometheus("up")} == {"1"}, "every target to be up", 180
    )
    assert len(_query_prometheus('up{job="ray"}')) == 3  # head, worker, runner


def test_down_and_up_lose_no_data(composed: Composed, api: Client) -> None:
    before = composed.contents()
    composed.compose("down")
    composed.compose("up", "--detach", "--wait")
    assert composed.contents() == before
    assert _is_done(api)


def test_a_backup_is_restored_on_fresh_volumes(composed: Composed, api: Client) -> None:
    before = composed.contents()
    composed.run_documented("## Backups", 0)
    composed.compose("down", "--volumes")
    composed.run_documented("## Backups", 1)
    assert composed.contents() == before
    assert _is_done(api)
    assert composed.healthy()


@pytest.mark.skipif(STAND_INS, reason="a stand-in replaces Grafana, so Grafana cannot be tested")
def test_grafana_reads_the_runs(composed: Composed) -> None:
    grafana = httpx.Client(
        base_url="http://127.0.0.1:3000",
        auth=("admin", composed.secrets["GRAFANA_PASSWORD"]),
        trust_env=False,
        timeout=60,
    )
    with grafana:
        assert {dashboard["title"] for dashboard in grafana.get("/api/search").raise_for_status().json()} >= {
            "coevo: runs"
        }
        for source in grafana.get("/api/datasources").raise_for_status().json():
            assert grafana.get(f"/api/datasources/uid/{source['uid']}/health").json()["status"] == "OK", source["name"]
