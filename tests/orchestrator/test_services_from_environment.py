"""Services in containers: their addresses come from the environment, and are checked by requests, not by a pid."""

from __future__ import annotations

import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from core.processes import identity as processes
from orchestrator.installation import cluster
from orchestrator.installation.home import Home, NotUp, Services
from orchestrator.installation.ports import ANY_FREE, StartError, free_port
from tests.http_server import Handler, listening

TOKEN = "0123abcd" * 8
AUTH = "coevo:a-password"


class _Ray(Handler):
    """The routes of Ray's dashboard and of Prefect's API that `needed` requests, with Ray's token and Prefect's
    password."""

    def do_GET(self) -> None:
        credentials = {
            "/api/version": f"Bearer {TOKEN}",
            "/api/admin/version": f"Basic {b64encode(AUTH.encode()).decode()}",
        }
        allowed = credentials.get(self.path) == self.headers.get("Authorization")
        self.send_response(200 if allowed else 401)
        self.end_headers()


@pytest.fixture
def address() -> Iterator[str]:
    with listening(_Ray) as url:
        yield url


@pytest.fixture
def environment(address: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    variables = {
        "COEVO_RAY_ADDRESS": "ray-head:6379",
        "COEVO_RAY_DASHBOARD_URL": address,
        "COEVO_SERVE_URL": "http://ray-head:8000/",
        "PREFECT_API_URL": f"{address}/api",
        "RAY_AUTH_TOKEN": TOKEN,
        "PREFECT_API_AUTH_STRING": AUTH,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


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


def test_without_the_variable_the_services_are_those_of_coevo_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COEVO_RAY_ADDRESS", raising=False)
    with pytest.raises(NotUp, match="coevo up"):
        Home(tmp_path).services()


@pytest.mark.parametrize(
    ("variable", "value", "running", "named"),
    [
        ("PREFECT_API_URL", "SILENT/api", ["ray"], "prefect: SILENT does not answer"),
        ("RAY_AUTH_TOKEN", "another", None, r"ray: \S+ .*401.* RAY_AUTH_TOKEN"),
        ("PREFECT_API_AUTH_STRING", "another:password", None, r"prefect: \S+ .*401.* PREFECT_API_AUTH_STRING"),
    ],
)
@pytest.mark.usefixtures("environment")
def test_services_that_answer_are_up_and_one_that_does_not_or_refuses_a_secret_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, running: list[str] | None, named: str
) -> None:
    home, silent = Home(tmp_path), f"http://127.0.0.1:{free_port()}"
    assert cluster.running(home) == ["ray", "prefect"]
    assert cluster.needed(home) == home.services()
    monkeypatch.setenv(variable, value.replace("SILENT", silent))
    assert running in (None, cluster.running(home))
    with pytest.raises(NotUp, match=named.replace("SILENT", silent) + "$"):
        cluster.needed(home)


@pytest.fixture
def home_with_process(tmp_path: Path) -> Iterator[tuple[Home, subprocess.Popen[bytes]]]:
    """A home whose services.json names a process that runs, as `coevo up` leaves it."""
    process = subprocess.Popen(["sleep", "600"])
    recorded = {process.pid: ("ray", processes.started(process.pid))}
    home = Home(tmp_path)
    home.save_services(Services("a:1", "http://a:2", "http://a:3", "http://a:4", TOKEN, recorded))
    yield home, process
    process.kill()
    process.wait()


def test_down_is_refused_while_the_environment_names_services_elsewhere(
    home_with_process: tuple[Home, subprocess.Popen[bytes]],
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home, process = home_with_process
    with pytest.raises(NotUp, match=r"^COEVO_RAY_ADDRESS: .*ray-head:6379"):
        cluster.down(home)
    assert process.poll() is None
    monkeypatch.delenv("COEVO_RAY_ADDRESS")
    assert cluster.running(home) == ["ray"]
    assert cluster.down(home) == ["ray"]
    assert not psutil.pid_exists(process.pid)


def test_up_is_refused_while_the_environment_names_services_elsewhere(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COEVO_RAY_DASHBOARD_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")  # so that no service answers
    lines = list[str]()
    with pytest.raises(StartError, match=r"^COEVO_RAY_ADDRESS: .*ray-head:6379"):
        cluster.up(Home(tmp_path), ANY_FREE, lines.append)
    assert lines == []
    assert not any(tmp_path.iterdir())
