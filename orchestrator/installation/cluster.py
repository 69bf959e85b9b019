"""`coevo up` and `coevo down`: Ray with the two Serve applications, the Prefect server, the flow runner, and the REST
API with the dashboard.

Each is a process of its own with its log in the home folder, known by pid and start time, so that `down` ends what
`up` started and nothing else.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import psutil

from core.errors import CoevoError
from core.waiting import wait_until
from orchestrator.installation import processes
from orchestrator.installation.environment import environment
from orchestrator.installation.home import Home, NotUp, Services, make_private
from services.prefect_server import PrefectServer

_BIN = Path(sys.executable).parent
_PATIENCE_S = 300.0
_ANSWER_S = 2.0


class StartError(CoevoError):
    """A service did not come up; the message names it and its log."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Loopback ports of the services. 0 takes a free one."""

    serve: int = 8000
    dashboard: int = 8265
    prefect: int = 4200
    ray: int = 6379
    api: int = 8080

    def resolved(self) -> Ports:
        """With every 0 replaced by a free port. Raises `StartError` when one is taken."""
        taken = {name: port for name, port in self._items() if port and _busy(port)}
        if taken:
            listed = ", ".join(f"{port} (--{name}-port)" for name, port in taken.items())
            raise StartError(f"port in use on 127.0.0.1: {listed}; free it, or give another one (0 takes any)")
        return Ports(**{name: port or free_port() for name, port in self._items()})

    def _items(self) -> list[tuple[str, int]]:
        ports = [("serve", self.serve), ("dashboard", self.dashboard), ("prefect", self.prefect), ("ray", self.ray)]
        return [*ports, ("api", self.api)]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now, and that no program takes by chance: Ray's workers have 10002 to
    19999, and the system deals out those from 32768 on (Linux; on other systems from higher ones)."""
    while True:
        port = random.randrange(20_000, 32_768)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def up(home: Home, ports: Ports, say: Callable[[str], None], only: Container[str] | None = None) -> Services:
    """Start everything at once, or what `only` names, and wait until all of it answers. Raises `StartError`; then
    nothing is left running."""
    _refuse_elsewhere("up", StartError)
    alive = running(home)
    if alive:
        raise StartError(f"services are running already for {home.path} ({', '.join(alive)}): `coevo down` ends them")
    ports = ports.resolved()
    make_private(home.path)
    make_private(home.ray_temp.parent)
    home.logs.mkdir(exist_ok=True)
    services = Services(
        ray_address=f"127.0.0.1:{ports.ray}",
        dashboard_url=f"http://127.0.0.1:{ports.dashboard}",
        serve_url=f"http://127.0.0.1:{ports.serve}",
        prefect_url=f"http://127.0.0.1:{ports.prefect}",
        ray_token=secrets.token_hex(32),
        processes={},
        api_url=f"http://127.0.0.1:{ports.api}",
        prefect_auth=f"coevo:{home.secret('prefect')}",
    )
    try:
        starting = []
        for name, command, ready in _plan(home, ports, services):
            if only is not None and name not in only:
                continue
            process = _spawn(home, name, command, environment(home, services))
            services = replace(
                services, processes={**services.processes, process.pid: (name, processes.started(process.pid))}
            )
            home.save_services(services)
            starting.append((name, process, ready))
        say(f"starting {', '.join(name for name, _, _ in starting)}")
        for name, process, ready in starting:
            _wait(home, name, process, ready)
    except BaseException:
        down(home)
        raise
    return services


def _plan(home: Home, ports: Ports, services: Services) -> list[tuple[str, list[str], Callable[[], bool]]]:
    """What to start: its name, its command, and how to tell that it is up."""
    ray = [str(_BIN / "ray"), "start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={ports.ray}"]
    ray += [f"--dashboard-port={ports.dashboard}", f"--temp-dir={home.ray_temp}", "--disable-usage-stats"]
    ray += [f"--ray-client-server-port={free_port()}", f"--dashboard-agent-listen-port={free_port()}"]
    prefect = [str(_BIN / "prefect"), "server", "start", "--host=127.0.0.1", f"--port={ports.prefect}"]
    api = [str(_BIN / "coevo"), "api", f"--port={ports.api}"]
    return [
        ("ray", ray, lambda: _trouble_with_ray(services) is None),
        ("prefect", prefect, lambda: trouble_with_prefect(services.prefect) is None),
        ("runner", [sys.executable, "-m", "orchestrator.installation.runner"], lambda: _deployed(services.prefect)),
        ("api", api, lambda: _is_healthy(services.api_url)),
    ]


def down(home: Home) -> list[str]:
    """End what `up` started, and whatever that started in turn; the names of what was running. Raises `NotUp` where
    the services are elsewhere."""
    _refuse_elsewhere("down", NotUp)
    try:
        services = home.services()
    except NotUp:
        return []
    alive = {
        name: psutil.Process(pid)
        for pid, (name, started) in services.processes.items()
        if processes.is_running(pid, started)
    }
    _end([process for name, process in alive.items() if name == "runner"], 20)  # it tells Prefect what it has ended
    # Once Serve has been up, Ray does not end within 20 s by itself. It has nothing to lose.
    _end([process for name, process in alive.items() if name != "runner"], 5)
    home.save_services(None)
    return [*alive]


def running(home: Home) -> list[str]:
    """The names of the services that are alive, or, where they are containers, that answer."""
    try:
        services = home.services()
    except NotUp:
        return []
    if services.processes:
        recorded = services.processes.items()
        return [name for pid, (name, started) in recorded if processes.is_running(pid, started)]
    return [name for name, trouble in _elsewhere(services).items() if trouble is None]


def needed(home: Home) -> Services:
    """The services, all that a run needs of which run. Raises `NotUp` naming those that are gone, after a reboot,
    say."""
    services = home.services()
    if not services.processes:
        troubles = [f"{name}: {trouble}" for name, trouble in _elsewhere(services).items() if trouble]
        if troubles:
            raise NotUp(f"not ready at the addresses that the environment gives: {'; '.join(troubles)}")
        return services
    alive = running(home)
    gone = [name for name, _ in services.processes.values() if name not in (*alive, "api")]
    if gone or not alive:
        raise NotUp(f"{', '.join(gone) or 'no services'} of {home.path} ended: `coevo down` and `coevo up` start anew")
    return services


def join(home: Home) -> Services:
    """The services that are `needed`, whose secrets and settings this process has from now on."""
    services = needed(home)
    os.environ.update(environment(home, services))
    return services


def _refuse_elsewhere(command: str, error: type[CoevoError]) -> None:
    """Raise where the environment names services that others run. What was started here would take its own services to
    be there, and what `services.json` knows would be forgotten, not ended."""
    if address := os.environ.get("COEVO_RAY_ADDRESS"):
        raise error(
            f"COEVO_RAY_ADDRESS: expected it not to be set, since `coevo {command}` is for services of this machine; "
            f"it names {address}, which others start and end"
        )


def _elsewhere(services: Services) -> dict[str, str | None]:
    """What keeps services that have no pid here from being used, by their names; None where nothing does."""
    return {"ray": _trouble_with_ray(services), "prefect": trouble_with_prefect(services.prefect)}


def _end(services: list[psutil.Process], patience_s: float) -> None:
    """Ask processes to end, then end them and every descendant they had."""
    family = [*services, *(child for process in services for child in process.children(recursive=True))]
    for process in services:
        process.terminate()
    psutil.wait_procs(services, timeout=patience_s)
    _, alive = psutil.wait_procs(family, timeout=1)
    for one in alive:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=patience_s)


def _spawn(home: Home, name: str, command: list[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with (home.logs / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(env), start_new_session=True
        )


def _wait(home: Home, name: str, process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
    log = home.logs / f"{name}.log"

    def ready_or_over() -> bool:
        if ready():
            return True
        if process.poll() is not None:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise StartError(f"{name} ended with exit code {process.returncode} while starting; see {log}:\n{tail}")
        return False

    if not wait_until(ready_or_over, _PATIENCE_S, 0.2):
        raise StartError(f"{name} did not answer within {_PATIENCE_S:g} s; see {log}")


def _busy(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _get(url: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    return httpx.get(url, headers=headers, timeout=_ANSWER_S, trust_env=False)


def _is_healthy(api_url: str) -> bool:
    try:
        return _get(f"{api_url}/healthz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _trouble(url: str, ask: Callable[[], httpx.Response], secret: str) -> str | None:
    """What is wrong with the service at `url`, whose secret is in the variable `secret`; None where it answers."""
    try:
        status = ask().status_code
    except httpx.TransportError:
        return f"{url} does not answer"
    if status == httpx.codes.UNAUTHORIZED:
        return f"{url} answers with HTTP 401: {secret} is not its own"
    return None if status == httpx.codes.OK else f"{url} answers with HTTP {status}"


def _trouble_with_ray(services: Services) -> str | None:
    url = services.dashboard_url
    return _trouble(url, lambda: _get(f"{url}/api/version", services.ray_headers), "RAY_AUTH_TOKEN")


def trouble_with_prefect(server: PrefectServer) -> str | None:
    """What keeps the Prefect server from being used; None where nothing does."""

    def ask() -> httpx.Response:  # unlike /health this asks for the password
        return server.request("GET", "/admin/version", timeout_s=_ANSWER_S)

    return _trouble(server.url, ask, "PREFECT_API_AUTH_STRING")


def _deployed(server: PrefectServer) -> bool:
    """The runner has registered its deployments with Prefect."""
    try:
        answer = server.request("POST", "/deployments/count", {}, _ANSWER_S)
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and answer.json() > 0
