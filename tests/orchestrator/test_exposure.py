"""What `coevo up` starts, attacked by a page at a foreign name in a real browser, and by another user of the machine.

Who gets through to Prefect can run programs here; who gets through to the API, start runs; to the applications, ask the
models. Who may write where Ray and PyTorch keep their files can run code in their processes.
"""

from __future__ import annotations

import os
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
# What answers without a secret: pages that ask for one, whether a service is well, and Ray's figures about itself
# (docs/security.md).
OPEN = {
    "api": {"/", "/healthz", "/api/openapi.json"},
    "ray": {"/", "/metrics"},
    "prefect": {"/", "/api/health", "/ui-settings"},
    "runner": set[str](),
}
# What is worth having, by the service that has it. A GET may be written as a path alone.
WORTH = {
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
    """With an application behind Serve's proxy."""
    serve_checkpoints(live.services, {"solver": base_checkpoint(live)})
    return live


def family(live: Live) -> Iterator[tuple[str, psutil.Process]]:
    """Every process that belongs to the services, with its service's name."""
    for pid, (name, _) in live.services.processes.items():
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            yield name, process


@dataclass(frozen=True)
class Listening:
    """A port, the address that it is bound to, and who listens there."""

    port: int
    address: str
    service: str
    title: str


def listening(live: Live) -> list[Listening]:
    return [
        Listening(found.laddr.port, found.laddr.ip.removeprefix("::ffff:"), name, " ".join(process.cmdline()))
        for name, process in family(live)
        for found in process.net_connections("tcp")
        if found.status == psutil.CONN_LISTEN
    ]


def asked(worth: str) -> tuple[HTTPMethod, str]:
    method, _, path = worth.rpartition(" ")
    return HTTPMethod(method or "GET"), path


def test_nothing_listens_beyond_this_machine_but_what_asks_for_rays_token(served: Live) -> None:
    """Serve's replicas do, for each other, and Ray has no setting for it."""
    everything = listening(served)
    assert {one.service for one in everything} >= {"api", "ray", "prefect"}
    wide = [one for one in everything if one.address != "127.0.0.1"]
    assert wide
    assert [one.title for one in wide if not one.title.startswith("ray::ServeReplica:")] == []
    for one in wide:
        with grpc.insecure_channel(f"127.0.0.1:{one.port}") as channel, pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/ray.serve.ASGIService/HandleRequest")(b"", timeout=10)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_every_port_asks_for_a_secret(served: Live) -> None:
    """Any user of the machine reaches a port of 127.0.0.1."""
    for one in listening(served):
        with httpx.Client(base_url=f"http://127.0.0.1:{one.port}", trust_env=False, timeout=10) as http:
            for method, path in map(asked, WORTH[one.service]):
                try:
                    answer = http.request(method, path, json={} if method != "GET" else None)
                except httpx.TransportError:
                    continue  # it does not speak HTTP: gRPC, which Ray's own token guards
                assert not answer.is_success or is_open(one, path, answer.text), (one, method, path, answer.text[:200])


def is_open(one: Listening, path: str, text: str) -> bool:
    """Ray's metrics answer every path with the same."""
    return path in OPEN[one.service] or (one.service == "ray" and text.startswith("# HELP"))


@pytest.fixture
def page_of_a_stranger() -> Iterator[Page]:
    """A tab of a browser where a foreign name resolves to this machine, and which does not ask its user before a page
    from elsewhere reaches the local network, as newer ones do."""
    rebound = f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1"
    with opened_browser(rebound, "--disable-features=LocalNetworkAccessChecks") as browser:
        yield browser.new_page()


# What a page can read of the answer to its request: status and text. None where the browser kept it from that.
_FETCH = """async ([url, method, kind, mode]) => {
  const body = method === "GET" ? undefined : "{}";
  try {
    const answer = await fetch(url, { method, mode, body, headers: body ? { "Content-Type": kind } : {} });
    return answer.type === "opaque" ? null : [answer.status, await answer.text()];
  } catch { return null; }
}"""


def test_a_page_at_a_foreign_name_gets_nothing(served: Live, page_of_a_stranger: Page) -> None:
    """By asking across origins, and by its own name, which it makes resolve to 127.0.0.1."""
    page = page_of_a_stranger
    for one in listening(served):
        if not speaks_http(one.port):
            continue
        page.goto(f"http://{FOREIGN}:{one.port}/", wait_until="commit")
        assert page.evaluate(_FETCH, ["/", "GET", JSON, "cors"]) is not None  # so it could read what it is given
        for method, path in map(asked, WORTH[one.service]):
            status, text = page.evaluate(_FETCH, [path, method, JSON, "cors"])
            assert status >= 400 or is_open(one, path, text), (one, method, path, text[:200])
            across = page.evaluate(_FETCH, [f"http://127.0.0.1:{one.port}{path}", method, JSON, "cors"])
            assert across is None or across[0] >= 400, (one, method, path, across)


def test_a_page_at_a_foreign_name_starts_no_program_over_prefect(served: Live, page_of_a_stranger: Page) -> None:
    """What it did before Prefect had a password: a deployment's steps rewritten, and its flow started."""
    page, before = page_of_a_stranger, known_to_prefect(served)
    own = f"http://{FOREIGN}:{served.services.prefect_url.rpartition(':')[2]}"
    page.goto(f"{own}/", wait_until="commit")
    for deployment in before:
        route = f"/api/deployments/{deployment['id']}"
        for method, path in (("PATCH", route), ("POST", f"{route}/create_flow_run"), ("DELETE", route)):
            status, _ = page.evaluate(_FETCH, [own + path, method, JSON, "cors"])
            assert status == 401
            for kind, mode in ((JSON, "cors"), ("text/plain", "cors"), ("text/plain", "no-cors")):
                assert page.evaluate(_FETCH, [served.services.prefect_url + path, method, kind, mode]) is None
    assert known_to_prefect(served) == before


def known_to_prefect(live: Live) -> list[dict[str, Any]]:
    """The deployments, and how many flow runs each has."""
    ask = partial(live.services.prefect.request, "POST")
    known = []
    for row in ask("/deployments/filter", {"sort": "NAME_ASC"}).json():
        count = ask("/flow_runs/count", {"deployments": {"id": {"any_": [row["id"]]}}}).json()
        known.append({"id": row["id"], "steps": row["pull_steps"], "paused": row["paused"], "flow_runs": count})
    assert known
    return known


def speaks_http(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/", trust_env=False, timeout=10)
    except httpx.TransportError:
        return False
    return True


def test_no_process_shows_a_secret_among_its_arguments(served: Live) -> None:
    """Another user of the machine sees the arguments of every process."""
    services = served.services
    secrets = [served.home.api_key, services.ray_token, services.prefect_auth, access.key_of(services.ray_token)]
    shown = "\n".join(" ".join(process.cmdline()) for _, process in family(served))
    assert "raylet" in shown
    assert not [secret for secret in secrets if secret in shown]


def test_no_log_has_a_secret(served: Live) -> None:
    services = served.services
    secrets = [served.home.api_key, services.ray_token, services.prefect_auth, access.key_of(services.ray_token)]
    logs = [path.read_text(errors="replace") for path in served.home.logs.iterdir()]
    assert logs
    assert not [secret for secret in secrets if any(secret in text for text in logs)]


def test_no_other_user_may_touch_a_file_or_a_socket(served: Live) -> None:
    """Of those that a process writes or listens at, each lies below a folder that is closed to others."""
    paths = {path for _, process in family(served) for path in touched(process)}
    below_home = {path for path in paths if path.is_relative_to(served.home.path)}
    assert len(below_home) > 3
    assert any("sockets" in path.parts for path in paths)
    assert {path for path in paths if not closed(path)} == set()


def touched(process: psutil.Process) -> Iterator[Path]:
    """What it has open to write, and the paths of its Unix sockets."""
    for file in process.open_files():
        if file.mode != "r" and file.path.startswith("/") and not file.path.startswith(("/dev/", "/proc/")):
            yield Path(file.path)
    for connection in process.net_connections("unix"):
        if connection.laddr and connection.laddr.startswith("/"):
            yield Path(connection.laddr)


def closed(path: Path) -> bool:
    """Another user may neither enter one of the folders above it, nor take that folder's place."""
    for folder in path.parents:
        status = folder.stat()
        if status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077:
            return True
    return False
