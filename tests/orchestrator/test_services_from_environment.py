"""Services in containers: their addresses come from the environment, and they are asked, not looked up by pid."""

from __future__ import annotations

import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.installation import cluster, processes
from orchestrator.installation.home import Home, NotUp, Services
from tests.http_server import Handler, listening

TOKEN = "0123abcd" * 8
AUTH = "coevo:a-password"


class _Ray(Handler):
    """Ray's dashboard and Prefect's API, as far as `needed` asks them: the one for its token, the other for its
    password."""

    def do_GET(self) -> None:
        wanted = {"/api/version": f"Bearer {TOKEN}", "/api/admin/version": f"Basic {b64encode(AUTH.encode()).decode()}"}
        allowed = wanted.get(self.path) == self.headers.get("Authorization")
        self.send_response(200 if allowed else 401)
        self.end_headers()


@pytest.fixture
def address() -> Iterator[str]:
    with listening(_Ray) as url:
        yield url


@pytest.fixture
def environment(address: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found = {
        "COEVO_RAY_ADDRESS": "ray-head:6379",
        "COEVO_RAY_DASHBOARD_URL": address,
        "COEVO_SERVE_URL": "http://ray-head:8000/",
        "PREFECT_API_URL": f"{address}/api",
        "RAY_AUTH_TOKEN": TOKEN,
        "PREFECT_API_AUTH_STRING": AUTH,
    }
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.mark.usefixtures("environment")
def test_the_environment_names_the_services(tmp_path: Path, address: str) -> None:
    services = Home(tmp_path).services()
    assert (services.ray_address, services.dashboard_url) == ("ray-head:6379", address)
    assert services.endpoint("solver") == "http://ray-head:8000/solver/v1"
    assert services.prefect_url == address
    assert services.ray_headers == {"Authorization": f"Bearer {TOKEN}"}
    assert services.processes == {}


@pytest.mark.parametrize("name", ["COEVO_RAY_DASHBOARD_URL", "COEVO_SERVE_URL", "PREFECT_API_URL", "RAY_AUTH_TOKEN"])
def test_a_missing_variable_is_named(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert name in environment
    monkeypatch.setenv(name, "")
    with pytest.raises(NotUp, match=f"^{name}: expected a value"):
        Home(tmp_path).services()


def test_without_the_variable_it_is_what_coevo_up_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COEVO_RAY_ADDRESS", raising=False)
    with pytest.raises(NotUp, match="coevo up"):
        Home(tmp_path).services()


@pytest.mark.usefixtures("environment")
def test_services_that_answer_are_up(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert cluster.running(home) == ["ray", "prefect"]
    assert cluster.needed(home) == home.services()


@pytest.mark.usefixtures("environment")
def test_a_service_that_does_not_answer_is_named_with_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = f"http://127.0.0.1:{cluster.free_port()}"
    monkeypatch.setenv("PREFECT_API_URL", f"{silent}/api")
    assert cluster.running(Home(tmp_path)) == ["ray"]
    with pytest.raises(NotUp, match=rf"prefect: {silent} does not answer$"):
        cluster.needed(Home(tmp_path))


@pytest.mark.usefixtures("environment")
def test_a_wrong_secret_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another")
    with pytest.raises(NotUp, match=r"ray: \S+ answers with HTTP 401: RAY_AUTH_TOKEN is not its own$"):
        cluster.needed(Home(tmp_path))
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    monkeypatch.delenv("PREFECT_API_AUTH_STRING")
    with pytest.raises(NotUp, match=r"prefect: \S+ answers with HTTP 401: PREFECT_API_AUTH_STRING is not its own$"):
        cluster.needed(Home(tmp_path))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Home, subprocess.Popen[bytes]]]:
    """A home whose services.json names a process that runs, as `coevo up` leaves it."""
    process = subprocess.Popen(["sleep", "600"])
    recorded = {process.pid: ("ray", processes.started(process.pid))}
    home = Home(tmp_path)
    home.save_services(Services("a:1", "http://a:2", "http://a:3", "http://a:4", TOKEN, recorded))
    yield home, process
    process.kill()
    process.wait()


def test_down_forgets_and_ends_nothing_while_the_services_are_elsewhere(
    started: tuple[Home, subprocess.Popen[bytes]], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, process = started
    with pytest.raises(NotUp, match=r"^COEVO_RAY_ADDRESS: .*`coevo down`.* names ray-head:6379"):
        cluster.down(home)
    assert process.poll() is None
    monkeypatch.delenv("COEVO_RAY_ADDRESS")
    assert cluster.running(home) == ["ray"]
    assert cluster.down(home) == ["ray"]
    assert not psutil.pid_exists(process.pid)


def test_up_starts_nothing_while_the_services_are_elsewhere(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COEVO_RAY_DASHBOARD_URL", f"http://127.0.0.1:{cluster.free_port()}")
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{cluster.free_port()}/api")  # so that nothing answers
    said = list[str]()
    with pytest.raises(cluster.StartError, match=r"^COEVO_RAY_ADDRESS: .*`coevo up`.* names ray-head:6379"):
        cluster.up(Home(tmp_path), cluster.Ports(0, 0, 0, 0, 0), said.append)
    assert said == []
    assert not any(tmp_path.iterdir())
