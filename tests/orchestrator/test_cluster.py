"""The services of this machine, as `coevo up` records them."""

from __future__ import annotations

import os
from http import HTTPStatus
from pathlib import Path

import pytest

from orchestrator.installation import cluster, processes
from orchestrator.installation.home import Home, NotUp, Services
from tests.http_server import Handler, listening


class _Starting(Handler):
    """Services that answer only from the third request on."""

    requests = 0

    def do_GET(self) -> None:
        type(self).requests += 1
        self.send_response(HTTPStatus.OK if self.requests > 2 else HTTPStatus.INTERNAL_SERVER_ERROR)
        self.end_headers()


@pytest.fixture(autouse=True)
def no_services_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COEVO_RAY_ADDRESS", raising=False)


def recorded(home: Home, url: str, pid: int) -> Services:
    """Services at one address, of which this process is the one that `coevo up` started."""
    services = Services("a:1", url, "http://a:3", url, "0" * 64, {pid: ("ray", processes.started(os.getpid()))})
    home.save_services(services)
    return services


def test_services_that_are_still_starting_are_waited_for(tmp_path: Path) -> None:
    _Starting.requests = 0
    with listening(_Starting) as url:
        services = recorded(Home(tmp_path), url, os.getpid())
        cluster.wait_until_ready(Home(tmp_path), services)
    assert _Starting.requests > 2


def test_a_port_that_is_taken_is_named_with_its_option_and_the_way_out(tmp_path: Path) -> None:
    with listening(_Starting) as url:
        taken = int(url.rpartition(":")[2])
        with pytest.raises(
            cluster.StartError, match=rf"{taken} \(--api-port\); free it, .* or start with --free-ports$"
        ):
            cluster.Ports(0, 0, 0, 0, taken).resolved()


def test_services_that_never_answer_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_STARTING_S", 0.0)
    silent = f"http://127.0.0.1:{cluster.free_port()}"
    services = recorded(Home(tmp_path), silent, os.getpid())
    with pytest.raises(NotUp, match=rf"^not ready after 0 s: ray: {silent} .*; prefect: {silent} does not answer; see"):
        cluster.wait_until_ready(Home(tmp_path), services)


def test_services_that_ended_are_not_there(tmp_path: Path) -> None:
    recorded(Home(tmp_path), f"http://127.0.0.1:{cluster.free_port()}", 2**22 + 1)  # more than the largest pid
    with pytest.raises(
        NotUp, match=r"^ray of .* ended; the logs are in .*/logs: restart with `coevo down` and `coevo up`$"
    ):
        cluster.needed(Home(tmp_path))
