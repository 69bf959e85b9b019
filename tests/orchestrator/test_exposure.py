"""Attacks on the services that `coevo up` starts: by a foreign site's page in a real browser, and by another user of
the machine.

An attacker who reaches Prefect can run programs here, one who reaches the API can start runs, and one who reaches the
applications can use the models. One who can write where Ray and PyTorch keep their files can run code in their
processes.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http import HTTPMethod
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest
from playwright.sync_api import Page

from orchestrator.serving.checkpoints import serve_checkpoints
from services.inference import access
from tests.conftest import opened_browser
from tests.live import Live
from tests.served import base_checkpoint

FOREIGN = "evil.example"
JSON = "application/json"
# The paths that answer without a secret: pages that ask for one, health checks, and Ray's metrics (docs/security.md).
OPEN = {
    "api": {"/", "/healthz", "/api/openapi.json"},
    "ray": {"/", "/metrics"},
    "prefect": {"/", "/api/health", "/ui-settings"},
    "runner": set[str](),
}
# The requests that an attacker would try, by service. A GET is written as a path alone.
ATTACKS = {
    "api": ["/api/v1/runs", "/api/v1/keys", "/api/v1/presets", "/metrics", "POST /api/v1/runs"],
    "prefect": ["/api/admin/version", "/api/admin/settings", "POST /api/deployments/filter", "POST /api/flows/"],
    "ray": [
        "/api/version",
        "/api/jobs/",
        "/api/serve/applications/",
        "/api/v0/actors",
        "/nodes?view=summary",
        "/logs/",
        "/solver/v1/models",
        "POST /api/jobs/",
        "PUT /api/serve/applications/",
        "POST /solver/v1/chat/completions",
        "POST /solver/v1/chat/completions/batch",
    ],
    "runner": ["/"],
}


@pytest.fixture(scope="module")
def served(live: Live) -> Live:
    """Running services with an application behind Serve's proxy."""
    serve_checkpoints(live.services, {"solver": base_checkpoint(live)})
    return live


def service_processes(live: Live) -> Iterator[tuple[str, psutil.Process]]:
    """Every process that belongs to the services, with its service's name."""
    for pid, (name, _) in live.services.processes.items():
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            yield name, process


@dataclass(frozen=True)
class ListeningPort:
    """A port, the address that it is bound to, and the process that listens at it."""

    port: int
    address: str
    service: str
    title: str


def listening_ports(live: Live) -> list[ListeningPort]:
    return [
        ListeningPort(
            connection.laddr.port, connection.laddr.ip.removeprefix("::ffff:"), name, " ".join(process.cmdline())
        )
        for name, process in service_processes(live)
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]


def parse_attack(attack: str) -> tuple[HTTPMethod, str]:
    method, _, path = attack.rpartition(" ")
    return HTTPMethod(method or "GET"), path


def test_only_ports_that_ask_for_ray_s_token_are_bound_to_other_addresses(served: Live) -> None:
    """Serve's replicas listen at all addresses, for each other, and Ray has no setting to change that."""
    ports = listening_ports(served)
    assert {port.service for port in ports} >= {"api", "ray", "prefect"}
    exposed = [port for port in ports if port.address != "127.0.0.1"]
    assert exposed
    assert [port.title for port in exposed if not port.title.startswith("ray::ServeReplica:")] == []
    for port in exposed:
        with grpc.insecure_channel(f"127.0.0.1:{port.port}") as channel, pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/ray.serve.ASGIService/HandleRequest")(b"", timeout=10)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_every_port_asks_for_a_secret(served: Live) -> None:
    """Any user of the machine can connect to a port of 127.0.0.1."""
    answered = set[str]()
    for listener in listening_ports(served):
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.port}", trust_env=False, timeout=10) as http:
            for method, path in map(parse_attack, ATTACKS[listener.service]):
                try:
                    response = http.request(method, path, json={} if method != "GET" else None)
                except httpx.TransportError:
                    continue  # the port uses gRPC and not HTTP, and Ray's own token protects it
                answered.add(listener.service)
                allowed = is_open(listener, path, response.text)
                assert not response.is_success or allowed, (listener, method, path, response.text[:200])
    assert answered >= {"api", "ray", "prefect"}


def test_no_port_takes_large_headers(served: Live) -> None:
    """They are read before anybody is asked for a secret, so anybody could fill the memory with them."""
    refused = set[str]()
    for listener in listening_ports(served):
        if not speaks_http(listener.port):
            continue
        with socket.create_connection(("127.0.0.1", listener.port), timeout=30) as connection:
            try:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-Many: header\r\n" * 600_000 + b"\r\n")
                answer = connection.recv(100)
            except (BrokenPipeError, ConnectionResetError):
                answer = b""
        assert answer[9:10] in (b"", b"4"), (listener, answer)
        refused.add(listener.service)
    assert refused >= {"api", "ray", "prefect"}


def is_open(listener: ListeningPort, path: str, text: str) -> bool:
    """Whether the response is one that needs no secret; Ray's metrics give the same response for every path."""
    return path in OPEN[listener.service] or (listener.service == "ray" and text.startswith("# HELP"))


@pytest.fixture
def page_of_a_stranger() -> Iterator[Page]:
    """A tab of a browser where a foreign name resolves to this machine. The browser does not ask its user before
    another site's page connects to the local network, as newer browsers do."""
    rebound = f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1"
    with opened_browser(rebound, "--disable-features=LocalNetworkAccessChecks") as browser:
        yield browser.new_page()


# The status and text that a page can read of the response to its request; null where the browser does not let it read.
_FETCH = """async ([url, method, kind, mode]) => {
  const body = method === "GET" ? undefined : "{}";
  try {
    const answer = await fetch(url, { method, mode, body, headers: body ? { "Content-Type": kind } : {} });
    return answer.type === "opaque" ? null : [answer.status, await answer.text()];
  } catch { return null; }
}"""


def test_another_site_s_page_gets_nothing(served: Live, page_of_a_stranger: Page) -> None:
    """The page tries requests across origins, and requests to its own name, which it makes resolve to 127.0.0.1."""
    page = page_of_a_stranger
    for listener in listening_ports(served):
        if not speaks_http(listener.port):
            continue
        page.goto(f"http://{FOREIGN}:{listener.port}/", wait_until="commit")
        # The page can read a response from its own name.
        assert page.evaluate(_FETCH, ["/", "GET", JSON, "cors"]) is not None
        for method, path in map(parse_attack, ATTACKS[listener.service]):
            status, text = page.evaluate(_FETCH, [path, method, JSON, "cors"])
            assert status >= 400 or is_open(listener, path, text), (listener, method, path, text[:200])
            across = page.evaluate(_FETCH, [f"http://127.0.0.1:{listener.port}{path}", method, JSON, "cors"])
            assert across is None or across[0] >= 400, (listener, method, path, across)


def test_another_site_s_page_cannot_start_a_program_with_prefect(served: Live, page_of_a_stranger: Page) -> None:
    """Without Prefect's password a page could rewrite a deployment's steps and start its flow."""
    page, before = page_of_a_stranger, deployments_in_prefect(served)
    own = f"http://{FOREIGN}:{served.services.prefect_url.rpartition(':')[2]}"
    page.goto(f"{own}/", wait_until="commit")
    for deployment in before:
        route = f"/api/deployments/{deployment['id']}"
        for method, path in (("PATCH", route), ("POST", f"{route}/create_flow_run"), ("DELETE", route)):
            status, _ = page.evaluate(_FETCH, [own + path, method, JSON, "cors"])
            assert status == 401
            for kind, mode in ((JSON, "cors"), ("text/plain", "cors"), ("text/plain", "no-cors")):
                assert page.evaluate(_FETCH, [served.services.prefect_url + path, method, kind, mode]) is None
    assert deployments_in_prefect(served) == before


def deployments_in_prefect(live: Live) -> list[dict[str, Any]]:
    """Prefect's deployments, and the number of flow runs of each."""
    ask = partial(live.services.prefect.request, "POST")
    deployments = []
    for row in ask("/deployments/filter", {"sort": "NAME_ASC"}).json():
        count = ask("/flow_runs/count", {"deployments": {"id": {"any_": [row["id"]]}}}).json()
        deployments.append({"id": row["id"], "steps": row["pull_steps"], "paused": row["paused"], "flow_runs": count})
    assert deployments
    return deployments


def speaks_http(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/", trust_env=False, timeout=10)
    except httpx.TransportError:
        return False
    return True


def test_no_process_has_a_secret_in_its_arguments_and_no_log_has_one(served: Live) -> None:
    """Another user of the machine can see the arguments of every process."""
    services = served.services
    secrets = [served.home.api_key, services.ray_token, services.prefect_auth, access.key_of(services.ray_token)]
    arguments = [" ".join(process.cmdline()) for _, process in service_processes(served)]
    logs = [path.read_text(errors="replace") for path in served.home.logs.rglob("*") if path.is_file()]
    assert "raylet" in "".join(arguments)
    assert logs
    assert not [secret for secret in secrets if any(secret in text for text in (*arguments, *logs))]


def test_other_users_cannot_reach_the_files_and_sockets_of_the_services(served: Live) -> None:
    """Every file that a process writes and every socket at which it listens is in a folder that others cannot enter."""
    paths = {path for _, process in service_processes(served) for path in written_files_and_sockets(process)}
    below_home = {path for path in paths if path.is_relative_to(served.home.path)}
    assert len(below_home) > 3
    assert any("sockets" in path.parts for path in paths)
    assert {path for path in paths if not is_closed_to_others(path)} == set()


def written_files_and_sockets(process: psutil.Process) -> Iterator[Path]:
    """The files that the process has open for writing, and the paths of its Unix sockets."""
    for file in process.open_files():
        if file.mode != "r" and file.path.startswith("/") and not file.path.startswith(("/dev/", "/proc/")):
            yield Path(file.path)
    for connection in process.net_connections("unix"):
        if connection.laddr and connection.laddr.startswith("/"):
            yield Path(connection.laddr)


def is_closed_to_others(path: Path) -> bool:
    """Whether a folder above the path belongs to this user and cannot be entered by others, so that others cannot
    replace it either."""
    for folder in path.parents:
        status = folder.stat()
        if status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077:
            return True
    return False
