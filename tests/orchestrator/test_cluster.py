"""The services of this machine, as `coevo up` records them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from core.processes import identity as processes
from orchestrator.cli import app
from orchestrator.installation import cluster
from orchestrator.installation.home import Home, NotUp, Services
from orchestrator.installation.ports import ANY_FREE, Ports, StartError, free_port
from orchestrator.ledger import run_held
from storage.session import Store
from tests.http_server import Handler, listening
from tests.live import Live


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
        recorded(Home(tmp_path), url, os.getpid())
        cluster.wait_until_ready(Home(tmp_path))
    assert _Starting.requests > 2


def test_a_port_that_is_taken_is_named_with_its_option_and_the_way_out(tmp_path: Path) -> None:
    with listening(_Starting) as url:
        taken = int(url.rpartition(":")[2])
        with pytest.raises(StartError, match=rf"{taken} \(--api-port\); free it, .* or start with --free-ports$"):
            Ports(0, 0, 0, taken).resolved()


def test_services_that_never_answer_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_STARTING_S", 0.0)
    silent = f"http://127.0.0.1:{free_port()}"
    recorded(Home(tmp_path), silent, os.getpid())
    problems = rf"ray: {silent} .*; prefect: {silent} does not answer; `coevo up` starts what has ended"
    with pytest.raises(NotUp, match=rf"^not ready after 0 s: {problems}"):
        cluster.wait_until_ready(Home(tmp_path))


def test_services_that_ended_are_not_there(tmp_path: Path) -> None:
    recorded(Home(tmp_path), f"http://127.0.0.1:{free_port()}", 2**22 + 1)  # more than the largest pid
    with pytest.raises(NotUp, match=r"^ray of .* ended; `coevo up` starts what has ended. The logs are in .*/logs$"):
        cluster.needed(Home(tmp_path))


def test_a_service_that_ended_stays_recorded_when_it_cannot_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the first of two is recorded."""
    home, spawned = Home(tmp_path), list[subprocess.Popen[bytes]]()
    home.logs.mkdir()
    gone = {2**22 + 1: ("ray", 1.0), 2**22 + 2: ("api", 1.0)}
    alive = {os.getpid(): ("prefect", processes.started(os.getpid()))}
    addresses = ("a:1", "http://a:2", "http://a:3", "http://a:4")
    home.save_services(Services(*addresses, "0" * 64, {**alive, **gone}, api_url="http://a:5"))
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Home(tmp_path).logs.mkdir()
    waits = cluster._Command("ray", ["sleep", "1000"], None, lambda: False)
    ends = cluster._Command("prefect", ["sh", "-c", "echo no module; exit 3"], None, lambda: True)
    monkeypatch.setattr(cluster, "_commands", lambda *_: [waits, ends])
    with pytest.raises(StartError, match=r"^prefect .*\b3\b"):
        cluster.up(Home(tmp_path), ANY_FREE, lambda _line: None)


def test_a_process_that_has_gone_does_not_keep_others_from_being_ended() -> None:
    with subprocess.Popen(["true"]) as gone:
        ended = psutil.Process(gone.pid)
    with subprocess.Popen(["sleep", "1000"]) as process:
        cluster._end([ended, psutil.Process(process.pid)], 30)
        process.wait(30)


def test_services_are_not_stopped_while_a_run_is_at_work_unless_forced(
    sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    with subprocess.Popen(["sleep", "1000"]) as service:
        started = {service.pid: ("api", processes.started(service.pid))}
        Home(tmp_path).save_services(Services("a:1", "http://a:2", "http://a:3", "http://a:4", "0" * 64, started))
        with run_held(sqlite, "r"):
            refused = CliRunner().invoke(app, ["down"])
            assert (refused.exit_code, service.poll()) == (1, None)
            assert "runs are at work: r. Without the services they would be interrupted" in refused.stderr
            assert CliRunner().invoke(app, ["down", "--force"]).stdout == "stopped: api\n"
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


STARTS_API = """
import sys; from pathlib import Path; from orchestrator.installation import cluster
from orchestrator.installation.home import Home; from orchestrator.installation.ports import Ports
sys.stdin.read(1)
cluster.up(Home(Path({home!r})), Ports(0, 0, 0, {port}), print, only={{"api"}})
"""


def test_two_starts_at_once_are_one(sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ask the same port, so both would be content with one API, and one process would be known to nobody."""
    del sqlite  # it is the home's
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    tmp_path.chmod(0o700)
    home, port = Home(tmp_path), free_port()
    program = STARTS_API.format(home=str(tmp_path), port=port)
    with ExitStack() as started:
        starts = [
            started.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for _ in range(2)
        ]
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


def test_a_start_has_new_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_commands", lambda *_: [])
    services = [cluster.up(Home(tmp_path / "home"), ANY_FREE, lambda _line: None) for _ in range(2)]
    assert len({secret for of_start in services for secret in (of_start.ray_token, of_start.prefect_auth)}) == 4


def test_a_start_while_everything_is_up_prints_the_addresses(
    sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer may call it. Ports that differ from those in use are refused, since they cannot be had."""
    del sqlite  # it is the home's
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    tmp_path.chmod(0o700)
    urls = [f"http://127.0.0.1:{port}" for port in (2, 3, 4)]
    here = {os.getpid(): ("api", processes.started(os.getpid()))}
    services = Services("127.0.0.1:1", urls[0], urls[1], urls[2], "0" * 64, here, "http://127.0.0.1:5")
    Home(tmp_path).save_services(services)
    for ports in ((), ("--api-port", "5"), ("--api-port", "0")):
        done = CliRunner().invoke(app, ["up", *ports])
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith("up already: api\nDashboard       http://127.0.0.1:5/#key=")
    refused = CliRunner().invoke(app, ["up", "--api-port", "6"])
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "--api-port: expected 5, got 6; services are running already" in refused.stderr
    assert Home(tmp_path).services() == services


def test_the_ports_of_the_last_start_are_taken_again_if_they_are_free(tmp_path: Path) -> None:
    home, usual = Home(tmp_path), Ports()
    assert (usual.as_last_time(home), ANY_FREE.as_last_time(home)) == (usual, ANY_FREE)
    last = ANY_FREE.resolved()
    home.save_last_ports(asdict(last))
    assert (usual.as_last_time(home), ANY_FREE.as_last_time(home)) == (last, last)
    with listening(_Starting) as url:
        home.save_last_ports(asdict(replace(last, api=int(url.rpartition(":")[2]))))
        assert usual.as_last_time(home) == replace(last, api=usual.api)
        assert ANY_FREE.as_last_time(home) == replace(last, api=0)


def test_a_start_records_its_ports_for_the_next_one(live: Live) -> None:
    assert json.loads((live.home.path / "services.json").read_text())["ray_address"] == live.services.ray_address
    assert Ports(**live.home.last_ports()) == Ports.of(live.home.services())
