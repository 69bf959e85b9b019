"""`coevo up` and `coevo down`: start and stop Ray, the Prefect server, the flow runner, and the REST API with the
dashboard.

Each is a separate process with a log in the home folder. It is recorded by pid and start time, so that `down` stops
what `up` started and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from core.errors import CoevoError
from core.processes import identity as processes
from core.waiting.polling import wait_until
from orchestrator.installation import prefect_command
from orchestrator.installation.environment import environment
from orchestrator.installation.home import Home, NotUp, Services, make_private
from orchestrator.installation.ports import Ports, StartError, free_port
from orchestrator.installation.reachable import (
    has_deployments,
    has_node,
    is_healthy,
    problem_of_each,
    problem_with_prefect,
    problems_of,
)
from services.listeners import stranger_at

_BIN = Path(sys.executable).parent
_PATIENCE_S = 300.0
_STARTING_S = 60.0  # how long a command waits for services that `coevo up` is still starting


@dataclass(frozen=True, slots=True)
class _Command:
    """How a service is started. It is ready once it listens at `port`, if it has one, and `answers` is true."""

    service: str
    arguments: list[str]
    port: int | None
    answers: Callable[[], bool]


_Starting = Sequence[tuple[_Command, subprocess.Popen[bytes]]]


def up(home: Home, ports: Ports, report: Callable[[str], None], only: Container[str] | None = None) -> Services:
    """Start all services at the same time, or those in `only`, and wait until they answer.

    If some of them are alive, those that have ended are started again, on the ports that they had; if all are, nothing
    is done. Raises `StartError` after stopping everything that it started. The passwords are new each time, so that one
    that became known cannot be used after `down`.
    """
    _refuse_elsewhere("up", StartError)
    make_private(home.path)
    with _alone(home, report):
        if alive := running(home):
            return _start_again(home, alive, report)
        ports = ports.resolved()
        make_private(home.ray_temp.parent)
        home.logs.mkdir(exist_ok=True)
        services = Services(
            ray_address="",  # Ray chooses it
            dashboard_url=f"http://127.0.0.1:{ports.dashboard}",
            serve_url=f"http://127.0.0.1:{ports.serve}",
            prefect_url=f"http://127.0.0.1:{ports.prefect}",
            ray_token=secrets.token_hex(32),
            processes={},
            api_url=f"http://127.0.0.1:{ports.api}",
            prefect_auth=f"coevo:{secrets.token_hex(32)}",
        )
        commands = [command for command in _commands(home, ports, services) if only is None or command.service in only]
        services = _start(home, services, commands, report)
        home.save_last_ports(asdict(ports))
        return services


def _start_again(home: Home, alive: Sequence[str], report: Callable[[str], None]) -> Services:
    """Start the services that have ended beside those that are alive."""
    services = home.services()
    again = ended(home)
    if not again:
        report(f"up already: {', '.join(alive)}")
        return services
    commands = [command for command in _commands(home, Ports.of(services), services) if command.service in again]
    return _start(home, services, commands, report)


def refuse_other_ports(home: Home, given: Mapping[str, int]) -> None:
    """Raise `StartError` if services run here and have other ports than the given ones. 0 stands for any port."""
    _refuse_elsewhere("up", StartError)
    if not running(home):
        return
    ports = asdict(Ports.of(home.services()))
    if other := {name: port for name, port in given.items() if port not in (0, ports[name])}:
        named = ", ".join(f"--{name}-port: expected {ports[name]}, got {port}" for name, port in other.items())
        raise StartError(f"{named}; services are running already on the ports of their start: `coevo down` stops them")


def _start(home: Home, services: Services, commands: Sequence[_Command], report: Callable[[str], None]) -> Services:
    """Start services and wait until they answer. Returns them with those that were recorded before.

    One that has ended stays recorded until it is started again, so that it is not forgotten if this fails.
    """
    before, starting = services, list[tuple[_Command, subprocess.Popen[bytes]]]()
    try:
        for command in commands:
            name = command.service
            if name == "ray":
                home.ray_address_file.unlink(missing_ok=True)  # of the Ray that ended
                services = replace(services, ray_address="")
            process = _spawn(home, name, command.arguments, environment(home, services))
            starting.append((command, process))
            others = {pid: recorded for pid, recorded in services.processes.items() if recorded[0] != name}
            services = replace(services, processes={**others, process.pid: (name, processes.started(process.pid))})
            home.save_services(services)
        report(f"starting {', '.join(command.service for command, _ in starting)}")
        for command, process in starting:
            _wait_until_ready(home, command, process, starting)
        _refuse_ended(home, starting)
    except BaseException:
        _end([psutil.Process(process.pid) for _, process in starting if process.poll() is None], 2)
        if not before.processes:
            _down(home)
        raise
    if any(command.service == "ray" for command in commands):
        services = home.services()
        home.save_services(services)  # with Ray's address: other processes have another folder of temporary files
    return services


def _commands(home: Home, ports: Ports, services: Services) -> list[_Command]:
    """The services to start."""
    # Ray chooses its own port, and says it in a private file. If it were told one, another user could take that port
    # first, and would get the token from Ray's own clients.
    ray = [str(_BIN / "ray"), "start", "--head", "--block", "--node-ip-address=127.0.0.1", "--port=0"]
    ray += [f"--dashboard-port={ports.dashboard}", f"--temp-dir={home.ray_temp}", "--disable-usage-stats"]
    ray += [f"--ray-client-server-port={free_port()}", f"--dashboard-agent-listen-port={free_port()}"]
    prefect = [sys.executable, "-m", prefect_command.__name__, "server", "start"]
    prefect += ["--host=127.0.0.1", f"--port={ports.prefect}"]
    runner = [sys.executable, "-m", "orchestrator.runner.process"]
    api = [str(_BIN / "coevo"), "store", "serve", f"--port={ports.api}"]
    return [
        _Command("ray", ray, ports.dashboard, lambda: has_node(services) and bool(home.services().ray_address)),
        _Command("prefect", prefect, ports.prefect, lambda: problem_with_prefect(services.prefect) is None),
        _Command("runner", runner, None, lambda: has_deployments(services.prefect)),
        _Command("api", api, ports.api, lambda: is_healthy(services.api_url)),
    ]


@contextmanager
def _alone(home: Home, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of `up` and `down`. Of two commands at once, the second one waits, and then sees what the first has
    done."""
    with (home.path / "services.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting, since another command starts or stops the services of {home.path}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def down(home: Home, report: Callable[[str], None] = lambda _line: None) -> list[str]:
    """Stop the services that `up` started, with all their child processes, and return the names of those that ran.

    Raises `NotUp` if the environment says that the services run elsewhere.
    """
    _refuse_elsewhere("down", NotUp)
    if not home.path.exists():
        return []
    with _alone(home, report):
        return _down(home)


def _down(home: Home) -> list[str]:
    try:
        services = home.services()
    except NotUp:
        return []
    alive = dict[str, psutil.Process]()
    for pid, (name, started) in services.processes.items():
        with suppress(psutil.NoSuchProcess):
            if processes.is_running(pid, started):
                alive[name] = psutil.Process(pid)
    _end(
        [process for name, process in alive.items() if name == "runner"], 20
    )  # it needs time to tell Prefect which flow runs it ended
    # Once Serve has been up, Ray does not end by itself within 20 s. Nothing is lost when it is killed.
    _end([process for name, process in alive.items() if name != "runner"], 2)
    shutil.rmtree(home.memory, ignore_errors=True)
    home.save_services(None)
    return [*alive]


def running(home: Home) -> list[str]:
    """The names of the services that are alive; if they are containers, of those that answer."""
    try:
        services = home.services()
    except NotUp:
        return []
    if services.processes:
        recorded = services.processes.items()
        return [name for pid, (name, started) in recorded if processes.is_running(pid, started)]
    return [name for name, problem in problem_of_each(services).items() if problem is None]


def ended(home: Home) -> list[str]:
    """The names of the services that `coevo up` started and that have ended since."""
    try:
        recorded = home.services().processes.items()
    except NotUp:
        return []
    return [name for pid, (name, started) in recorded if not processes.is_running(pid, started)]


def needed(home: Home) -> Services:
    """The services, after checking that all which a run needs are up. Raises `NotUp` naming those that are not, for
    instance after a reboot."""
    services = home.services()
    if not services.processes:
        problems = problems_of(services)
        if problems:
            raise NotUp(f"not ready at the addresses that the environment gives: {'; '.join(problems)}")
        return services
    if gone := [name for name in ended(home) if name != "api"]:
        raise NotUp(
            f"{', '.join(gone)} of {home.path} ended; `coevo up` starts what has ended. The logs are in {home.logs}"
        )
    return services


def wait_until_ready(home: Home) -> None:
    """Wait for services that `coevo up` is still starting. Raises `NotUp` naming those that do not answer."""
    if not wait_until(lambda: not problems_of(home.services()), _STARTING_S, 0.2):
        raise NotUp(
            f"not ready after {_STARTING_S:g} s: {'; '.join(problems_of(home.services()))}; `coevo up` starts "
            f"what has ended. The logs are in {home.logs}"
        )


def join(home: Home) -> Services:
    """The services, after `needed` and after putting their secrets and settings into this process's environment."""
    services = needed(home)
    os.environ.update(environment(home, services))
    return services


def _refuse_elsewhere(command: str, error: type[CoevoError]) -> None:
    """Raise `error` if the environment names services that run elsewhere.

    Services that `up` started would then use those instead of each other, and `down` would forget the processes in
    `services.json` without stopping them.
    """
    if address := os.environ.get("COEVO_RAY_ADDRESS"):
        raise error(
            f"COEVO_RAY_ADDRESS: expected it to be unset, since `coevo {command}` is for services of this machine; "
            f"got {address}, which is started and stopped elsewhere"
        )


def _end(services: list[psutil.Process], patience_s: float) -> None:
    """Ask processes to end, then kill those of them and of their descendants that are still alive."""
    family = [*services]
    for process in services:
        with suppress(psutil.NoSuchProcess):  # it has ended by itself
            family += process.children(recursive=True)
            process.terminate()
    psutil.wait_procs(services, timeout=patience_s)
    _, alive = psutil.wait_procs(family, timeout=1)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=patience_s)


def _spawn(home: Home, name: str, command: list[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with (home.logs / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(env), start_new_session=True
        )


def _refuse_ended(home: Home, starting: _Starting) -> None:
    """Raise `StartError` if one of the processes has ended."""
    for command, process in starting:
        if process.poll() is not None:
            log = home.logs / f"{command.service}.log"
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise StartError(
                f"{command.service} ended with exit code {process.returncode} while starting; see {log}:\n{tail}"
            )


def _wait_until_ready(home: Home, command: _Command, process: subprocess.Popen[bytes], starting: _Starting) -> None:
    """Wait until the process that was started listens at its port, and then until it answers: another process at this
    port gets no request, since requests contain secrets. Raises `StartError`, also if another one of `starting` ends
    meanwhile."""
    name, port = command.service, command.port
    log = home.logs / f"{name}.log"

    def ready_or_ended() -> bool:
        _refuse_ended(home, starting)
        if port is not None and (problem := stranger_at("127.0.0.1", port)):
            raise StartError(f"{name}: {problem}; `coevo up` takes another port with --free-ports")
        return (port is None or processes.listens(process.pid, port)) and command.answers()

    if not wait_until(ready_or_ended, _PATIENCE_S, 0.2):
        raise StartError(f"{name} did not answer within {_PATIENCE_S:g} s; see {log}")
