"""docker-compose.yml, checked by the Compose specification's schema, by Compose itself where it is installed, and by
our own rules."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from sqlalchemy import make_url

from benchmarks.postgres import server_folder
from benchmarks.rest import SHARED_BUFFERS
from orchestrator.installation.home import ROOT
from orchestrator.pool.slot import LIMIT
from services.drift.webhook import webhook_from

FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
UIS = {"api": 8080, "prefect": 4200, "ray-head": 8265, "prometheus": 9090, "grafana": 3000}
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:[?-])?([^}]*)\}")
NETWORKS: dict[str, Any] = COMPOSE["networks"]
PROFILES = ("cpu", "gpu", "easyr1")
RUNNERS = ("runner", "runner-easyr1")
ONE_OFF = "migrate"
each_service = pytest.mark.parametrize("name", sorted(SERVICES))


def test_the_file_follows_the_compose_specification() -> None:
    schema = json.loads((Path(__file__).parent / "schemas" / "compose-spec.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(COMPOSE)


def test_compose_itself_accepts_the_file(tmp_path: Path) -> None:
    command = _compose()
    if command is None:
        pytest.skip("no Docker Compose on this machine")
    secrets = {name: "x" for name, kind, _ in VARIABLE.findall(FILE.read_text()) if kind == ":?"}
    environment = {**os.environ, **secrets, "DOCKER_CONFIG": os.environ.get("DOCKER_CONFIG", str(tmp_path))}
    arguments = [*command, "--project-directory", str(ROOT), "--file", str(FILE), "--profile", "*", "config", "--quiet"]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _compose() -> list[str] | None:
    for command in (["docker", "compose"], ["docker-compose"]):
        try:
            version = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        if version.returncode == 0 and version.stdout.startswith("2"):
            return command
    return None


@each_service
def test_every_service_is_confined_limited_pinned_and_restarted(name: str) -> None:
    service = SERVICES[name]
    assert int(str(service["user"]).partition(":")[0]) > 0
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert not service.keys() & {"privileged", "cap_add", "pid", "ipc", "network_mode", "devices"}
    assert service["read_only"] is True
    assert re.fullmatch(r"\$\{COEVO_\w+:-\d+g\}|1g", service["mem_limit"])
    assert re.fullmatch(r"\$\{COEVO_\w+:-\d+\}|\d+", str(service["pids_limit"]))
    # Compose would write a config's content into the root file system when it makes the container, and it is read-only.
    assert not service.keys() & {"configs", "secrets"}
    repository, _, tag = service["image"].partition(":")
    assert re.match(r"v?\d+\.\d+", tag), tag
    assert repository != "coevo" or "build" in service or service["pull_policy"] in ("never", "missing")
    assert service["restart"] == ("no" if name == ONE_OFF else "unless-stopped")
    if name != ONE_OFF:
        check = service["healthcheck"]
        assert check["test"][0] == "CMD"
        assert {"interval", "timeout", "retries", "start_period"} <= check.keys()


def test_a_service_is_on_the_networks_that_it_needs_and_the_database_has_no_way_out() -> None:
    members = {network: {name for name, s in SERVICES.items() if network in s["networks"]} for network in NETWORKS}
    nodes = {*RUNNERS, "ray-head", "ray-cpu", "ray-gpu", "ray-easyr1"}
    assert members == {
        "database": {"postgres", ONE_OFF, "prefect", "api", "grafana", *RUNNERS},
        "prefect": {"prefect", "api", *RUNNERS},
        "ray": {"prometheus", *nodes},
        "monitoring": {"prometheus", "api", "grafana"},
    }
    assert [name for name, network in NETWORKS.items() if network] == ["database"]
    assert NETWORKS["database"] == {"internal": True}


def test_prefect_asks_for_a_password_and_allows_requests_of_its_own_pages_only() -> None:
    server = SERVICES["prefect"]["environment"]
    assert server["PREFECT_SERVER_API_AUTH_STRING"].startswith("coevo:${PREFECT_PASSWORD:?")
    assert server["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == f"http://127.0.0.1:{UIS['prefect']}"
    for name in ("api", *RUNNERS):
        client = SERVICES[name]["environment"]
        assert client["PREFECT_API_AUTH_STRING"] == server["PREFECT_SERVER_API_AUTH_STRING"]
        assert client["PREFECT_UI_URL"] == server["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"]


def test_the_tables_are_made_before_the_services_that_use_them_start() -> None:
    assert SERVICES[ONE_OFF]["command"] == ["coevo", "store", "migrate"]
    users = {name for name, service in SERVICES.items() if "COEVO_DATABASE" in service.get("environment", {})}
    assert users == {ONE_OFF, "api", *RUNNERS}
    for name in users - {ONE_OFF}:
        assert SERVICES[name]["depends_on"][ONE_OFF] == {"condition": "service_completed_successfully"}


def test_a_service_waits_until_those_that_it_needs_are_healthy() -> None:
    for service in SERVICES.values():
        for needed, condition in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if needed == ONE_OFF else "service_healthy"
            assert (needed in SERVICES, condition) == (True, {"condition": expected})


def test_one_service_builds_each_image() -> None:
    """If several services built the same tag, each would export it anew and leave the earlier image without a name."""
    assert {name for name, service in SERVICES.items() if "build" in service} == {ONE_OFF, "runner-easyr1"}


def test_only_the_uis_are_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {name: [f"127.0.0.1:{port}:{port}"] for name, port in UIS.items()}


def test_our_images_have_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = [service["image"] for service in SERVICES.values() if service["image"].startswith("coevo:")]
    assert {image.partition("-")[0] for image in images} == {f"coevo:{version}"}


def test_every_volume_is_declared_and_used() -> None:
    mounted = {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    files = {source for source in mounted if source.startswith("./")}
    assert mounted - files == COMPOSE["volumes"].keys()
    assert all((ROOT / file).exists() for file in files)


def test_ray_nodes_share_the_home_the_token_and_the_name_that_prometheus_asks() -> None:
    nodes = {name: service for name, service in SERVICES.items() if name.startswith(("runner", "ray-"))}
    assert set(nodes) == {*RUNNERS, "ray-head", "ray-cpu", "ray-gpu", "ray-easyr1"}
    for service in nodes.values():
        assert service["volumes"] == ["home:/var/lib/coevo"]
        assert service["networks"]["ray"] == {"aliases": ["ray-node"]}
        assert "RAY_AUTH_TOKEN" in service["environment"]


def in_profile(profile: str) -> dict[str, dict[str, Any]]:
    """The services that start in this profile only; services without a profile start in all of them."""
    return {name: service for name, service in SERVICES.items() if profile in service.get("profiles", [])}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_has_a_runner_and_a_worker_of_one_image(profile: str) -> None:
    """The runner starts trainings that the worker runs: it looks for EasyR1's sources and runs EasyR1's merger."""
    runner, worker = (
        [service for name, service in in_profile(profile).items() if name.startswith(kind)]
        for kind in ("runner", "ray-")
    )
    assert (len(runner), len(worker)) == (1, 1)
    assert runner[0]["image"] == worker[0]["image"]


def test_runners_differ_in_their_image_and_memory_only() -> None:
    """The host's name is the same: by it the ledger knows that the process that held a lease is dead."""
    own = {"profiles", "image", "build", "pull_policy", "mem_limit"}
    runner, *others = ({k: v for k, v in SERVICES[name].items() if k not in own} for name in RUNNERS)
    assert all(other == runner for other in others)
    assert runner["hostname"] == "runner"


def test_workers_are_in_profiles_and_those_on_gpus_reserve_them() -> None:
    assert {name: s["profiles"] for name, s in SERVICES.items() if "profiles" in s} == {
        "runner": ["cpu", "gpu"],
        "runner-easyr1": ["easyr1"],
        "ray-cpu": ["cpu"],
        "ray-gpu": ["gpu"],
        "ray-easyr1": ["easyr1"],
    }
    for name in ("ray-gpu", "ray-easyr1"):
        (device,) = SERVICES[name]["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}


def test_the_runner_has_every_address() -> None:
    runner = SERVICES["runner"]["environment"]
    for_browsers = {"PREFECT_UI_URL", "COEVO_DASHBOARD_URL"}
    elsewhere = {"RAY_AUTH_TOKEN", "PREFECT_API_AUTH_STRING", "PREFECT_WORKER_WEBSERVER_PORT", LIMIT, *for_browsers}
    addresses = {name: value for name, value in runner.items() if name not in elsewhere}
    for variable, value in addresses.items():
        assert {*re.findall(r"(?:@|//|^)([a-z-]+):\d+", value)[:1]} & SERVICES.keys(), variable
    assert {"COEVO_RAY_ADDRESS", "COEVO_RAY_DASHBOARD_URL", "COEVO_SERVE_URL", "PREFECT_API_URL"} <= addresses.keys()


def test_the_runner_gets_the_limit_of_the_pool_and_the_keys_of_a_file_that_need_not_exist() -> None:
    assert SERVICES["runner"]["environment"][LIMIT] == f"${{{LIMIT}:-}}"
    assert SERVICES["runner"]["env_file"] == [{"path": "runner.env", "required": False}]
    assert "runner.env" in (ROOT / ".gitignore").read_text().split()


def test_the_api_gets_the_webhook_and_sends_no_alerts_without_one() -> None:
    given = {name: value for name, value in SERVICES["api"]["environment"].items() if "WEBHOOK" in name}
    assert given == {name: f"${{{name}:-}}" for name in ("COEVO_WEBHOOK_SECRET", "COEVO_WEBHOOK_URL")}
    assert webhook_from(dict.fromkeys(given, "")) is None


def test_variables_are_documented_and_secrets_have_no_default() -> None:
    documented = (ROOT / "docs" / "deploying.md").read_text()
    variables = VARIABLE.findall(FILE.read_text())
    assert variables
    assert [name for name, _, _ in variables if f"`{name}`" not in documented] == []
    required = {name for name, kind, _ in variables if kind == ":?"}
    assert required == {name for name, _, _ in variables if re.search(r"PASSWORD|TOKEN", name)}
    assert all(message for _, kind, message in variables if kind == ":?")


def test_the_database_has_the_memory_that_the_api_was_measured_with() -> None:
    assert SERVICES["postgres"]["command"] == ["postgres", "-c", f"shared_buffers={SHARED_BUFFERS}"]


@pytest.fixture
def psql(postgresql_server: str) -> Iterator[list[str]]:
    """The command that connects to a real server, without user and database; the test's databases are dropped later."""
    folder, socket = server_folder(), make_url(postgresql_server).query["host"]
    assert folder is not None
    command = [str(folder / "psql"), "--no-psqlrc", f"--host={socket}"]
    yield command
    created = ("DATABASE ours", "DATABASE prefect", "ROLE ours", "ROLE prefect", "ROLE grafana_reader")
    drops = [part for name in created for part in ("--command", f"DROP {name}")]
    subprocess.run([*command, "--username=coevo", "--dbname=postgres", *drops], check=True)


def test_neither_database_s_owner_can_read_the_other_database(psql: list[str]) -> None:
    [mounted] = [volume for volume in SERVICES["postgres"]["volumes"] if volume.endswith("/databases.sh:ro")]
    script = (ROOT / mounted.partition(":")[0]).read_text()
    script = script.replace("coevo", "ours")  # the test server's own user is already called coevo
    passwords = {"COEVO_DATABASE_PASSWORD": "it's", "PREFECT_DATABASE_PASSWORD": "b", "GRAFANA_DATABASE_PASSWORD": "c"}
    connection = {"PATH": f"{Path(psql[0]).parent}:/usr/bin:/bin", "PGHOST": psql[-1].removeprefix("--host=")}
    environment = {**connection, "POSTGRES_USER": "coevo", **passwords}
    subprocess.run(["bash", "-eu", "-c", script], env=environment, check=True)

    def may(user: str, database: str, *statements: str) -> bool:
        """Whether the last statement succeeds."""
        commands = [f"--command={statement}" for statement in statements]
        arguments = [*psql, f"--username={user}", f"--dbname={database}", *commands]
        return subprocess.run(arguments, capture_output=True, check=False).returncode == 0

    create_table = "CREATE TABLE t AS SELECT 1 AS x"
    assert may("ours", "ours", create_table)
    assert may("prefect", "prefect", create_table)
    assert not may("ours", "prefect", "SELECT 1")
    assert not may("prefect", "ours", "SELECT 1")
    # Grafana can read a table that coevo makes later, in coevo's database only, and cannot write even where it turns
    # read-only transactions off.
    assert may("grafana_reader", "ours", "SELECT * FROM t")
    assert not may("grafana_reader", "prefect", "SELECT 1")
    for statement in ("INSERT INTO t VALUES (2)", "DELETE FROM t", "CREATE TABLE u ()", "CREATE TEMPORARY TABLE u ()"):
        assert not may("grafana_reader", "ours", "SET default_transaction_read_only = off", statement)
