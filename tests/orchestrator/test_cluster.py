"""The services of this machine, as `coevo up` records them."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from http import HTTPStatus
from typing import Any

import httpx
import psutil
import pytest

from core.processes import identity as processes
from orchestrator.installation import cluster
from orchestrator.installation.home import Home, NotUp, Services
from orchestrator.installation.ports import ANY_FREE, Ports, StartError, free_port
from orchestrator.ledger import run_held
from storage.session import Store
from tests.commands import coevo, refusal
from tests.http_server import Handler, listening
from tests.live import Live


class _Starting(Handler):
    """Services that answer only from the third request on."""

    requests = 0

    def do_GET(self) -> None:
        type(self).requests += 1
        self.send_response(HTTPStatus.OK if self.requests > 2 else HTTPStatus.INTERNAL_SERVER_ERROR)
        self.end_headers()


pytestmark = pytest.mark.usefixtures("home")


def recorded(home: Home, url: str, started: dict[int, str], api_url: str = "") -> Services:
    """Services at one address, of which these processes are the ones that `coevo up` started."""
    known = {pid: (name, processes.started(pid) if psutil.pid_exists(pid) else 1.0) for pid, name in started.items()}
    services = Services("a:1", url, "http://a:3", url, "0" * 64, known, api_url)
    home.save_services(services)
    return services


def test_services_that_are_still_starting_are_waited_for(home: Home) -> None:
    _Starting.requests = 0
    with listening(_Starting) as url:
        recorded(home, url, {os.getpid(): "ray"})
        cluster.wait_until_ready(home)
    assert _Starting.requests > 2


def test_a_port_that_is_taken_is_named_with_its_option_and_the_way_out() -> None:
    with listening(_Starting) as url:
        taken = int(url.rpartition(":")[2])
        with pytest.raises(StartError, match=rf"{taken} \(--api-port\).* --free-ports$"):
            Ports(0, 0, 0, taken).resolved()


def test_services_that_never_answer_or_have_ended_are_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_STARTING_S", 0.0)
    silent = f"http://127.0.0.1:{free_port()}"
    recorded(home, silent, {os.getpid(): "ray"})
    with pytest.raises(NotUp, match=rf" 0 s: ray: {silent} .*; prefect: {silent} "):
        cluster.wait_until_ready(home)
    recorded(home, silent, {2**22 + 1: "ray"})  # more than the largest pid
    with pytest.raises(NotUp, match=r"^ray .*`coevo up` .*/logs$"):
        cluster.needed(home)


def test_a_service_that_ended_stays_recorded_when_it_cannot_be_started_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the first of two is recorded."""
    spawned = list[subprocess.Popen[bytes]]()
    home.logs.mkdir()
    here = {os.getpid(): "prefect", 2**22 + 1: "ray", 2**22 + 2: "api"}
    recorded(home, "http://a:2", here, "http://a:5")
    spawn = cluster._spawn

    def watched(*arguments: Any) -> subprocess.Popen[bytes]:
        spawned.append(spawn(*arguments))
        return spawned[-1]

    def full(_home: Home, _services: Services | None) -> None:
        raise OSError(28, "No space left on device")

    sleeping = [cluster._Command(name, ["sleep", "1000"], None, lambda: True) for name in ("ray", "prefect", "api")]
    monkeypatch.setattr(cluster, "_commands", lambda *_: sleeping)
    monkeypatch.setattr(cluster, "_spawn", watched)
    with monkeypatch.context() as patched:
        patched.setattr(Home, "save_services", full)
        with pytest.raises(OSError, match="No space left"):
            cluster._start_again(home, ["prefect"], lambda _line: None)
    assert [process.wait(30) is not None for process in spawned] == [True]
    assert cluster.ended(home) == ["ray", "api"]


def test_a_service_that_ends_is_named_while_another_one_is_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.logs.mkdir()
    waits = cluster._Command("ray", ["sleep", "1000"], None, lambda: False)
    ends = cluster._Command("prefect", ["sh", "-c", "echo no module; exit 3"], None, lambda: True)
    monkeypatch.setattr(cluster, "_commands", lambda *_: [waits, ends])
    with pytest.raises(StartError, match=r"^prefect .*\b3\b"):
        cluster.up(home, ANY_FREE, lambda _line: None)


def test_a_process_that_has_gone_does_not_keep_others_from_being_ended() -> None:
    with subprocess.Popen(["true"]) as gone:
        ended = psutil.Process(gone.pid)
    with subprocess.Popen(["sleep", "1000"]) as process:
        cluster._end([ended, psutil.Process(process.pid)], 30)
        process.wait(30)


def test_services_are_not_stopped_while_a_run_is_at_work_unless_forced(sqlite: Store, home: Home) -> None:
    with subprocess.Popen(["sleep", "1000"]) as service:
        recorded(home, "http://a:2", {service.pid: "api"})
        with run_held(sqlite, "r"):
            assert "runs are at work: r. Without the services they would be interrupted" in refusal("down")
            assert service.poll() is None
            assert coevo("down", "--force").stdout == "stopped: api\n"
    assert service.returncode is not None


def test_a_service_that_was_killed_is_started_again_beside_the_others(live: Live) -> None:
    before = live.home.services()
    pids = {name: pid for pid, (name, _) in before.processes.items()}
    api = psutil.Process(pids["api"])
    api.kill()
    api.wait()
    done = live.coevo("up")
    assert done.returncode == 0, done.stdout + done.stderr
    after = live.home.services()
    again = {name: pid for pid, (name, _) in after.processes.items()}
    assert {name for name in pids if again[name] != pids[name]} == {"api"}
    assert (after.api_url, after.ray_token) == (before.api_url, before.ray_token)
    assert httpx.get(f"{after.api_url}/healthz", trust_env=False).status_code == 200
    assert Ports(**live.home.last_ports()) == Ports.of(after)  # for the next start


STARTS_API = """
import sys; from pathlib import Path; from orchestrator.installation import cluster
from orchestrator.installation.home import Home; from orchestrator.installation.ports import Ports
sys.stdin.read(1)
cluster.up(Home(Path({home!r})), Ports(0, 0, 0, {port}), print, only={{"api"}})
"""


@pytest.mark.usefixtures("sqlite")
def test_two_starts_at_once_are_one(home: Home) -> None:
    """Both ask the same port, so both would be content with one API, and one process would be known to nobody."""
    port = free_port()
    command = [sys.executable, "-c", STARTS_API.format(home=str(home.path), port=port)]
    piped: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with ExitStack() as started:
        starts = [started.enter_context(subprocess.Popen(command, text=True, **piped)) for _ in range(2)]
        for start in starts:
            assert start.stdin is not None
            start.stdin.write("go")
            start.stdin.flush()
        printed = [start.communicate()[0] for start in starts]
    try:
        assert {start.returncode for start in starts} == {0}
        assert sorted("up already: api" in text for text in printed) == [False, True]
        assert cluster.running(home) == ["api"]
        assert processes.listens(next(iter(home.services().processes)), port)
    finally:
        assert cluster.down(home) == ["api"]
    assert not Ports(0, 0, 0, port).taken(), "a process is left that nothing knows"


def test_a_start_has_new_passwords(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_commands", lambda *_: [])
    services = [cluster.up(home, ANY_FREE, lambda _line: None) for _ in range(2)]
    assert len({secret for of_start in services for secret in (of_start.ray_token, of_start.prefect_auth)}) == 4


@pytest.mark.usefixtures("sqlite")
def test_a_start_while_everything_is_up_prints_the_addresses(home: Home) -> None:
    """A timer may call it. Ports that differ from those in use are refused, since they cannot be had."""
    services = recorded(home, "http://127.0.0.1:2", {os.getpid(): "api"}, "http://127.0.0.1:5")
    for ports in ((), ("--api-port", "5"), ("--api-port", "0")):
        printed = coevo("up", *ports).stdout
        assert printed.startswith("up already: api\nDashboard       http://127.0.0.1:5/#key=")
    refused = coevo("up", "--api-port", "6", status=1)
    assert refused.stdout == ""
    assert "--api-port: expected 5, got 6; services are running already" in refused.stderr
    assert home.services() == services


def test_the_ports_of_the_last_start_are_taken_again_if_they_are_free(home: Home) -> None:
    usual = Ports()
    assert (usual.as_last_time(home), ANY_FREE.as_last_time(home)) == (usual, ANY_FREE)
    last = ANY_FREE.resolved()
    home.save_last_ports(asdict(last))
    assert (usual.as_last_time(home), ANY_FREE.as_last_time(home)) == (last, last)
    with listening(_Starting) as url:
        home.save_last_ports(asdict(replace(last, api=int(url.rpartition(":")[2]))))
        assert usual.as_last_time(home) == replace(last, api=usual.api)
        assert ANY_FREE.as_last_time(home) == replace(last, api=0)
