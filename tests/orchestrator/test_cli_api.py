"""`coevo api` as a process, and the keys that it asks for."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest
from synthetic_run import fill_run
from typer.testing import CliRunner

from orchestrator.cli import app
from storage.session import open_store
from tests.live import COEVO, wait_until


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    store = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    fill_run(store, "demo", per_level=2)
    store.close()
    return tmp_path


def test_it_serves_whoever_has_a_key(place: Path) -> None:
    made = CliRunner().invoke(app, ["keys", "add", "me"])
    key = made.stdout.strip()
    assert (made.exit_code, key[:6]) == (0, "coevo_")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [COEVO, "api", "--port", str(port), "--keys"]
    with subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: _answers(url), "the API to answer")
        assert httpx.get(f"{url}/api/v1/runs").status_code == 401
        asked = httpx.get(f"{url}/api/v1/runs", headers={"Authorization": f"Bearer {key}"})
        assert [run["name"] for run in asked.json()["items"]] == ["demo"]
        shown = _questions(url, key, "--verdict", "kept", "--limit", "3", "--json")
        assert [json.loads(line)["verdict"] for line in shown.stdout.splitlines()] == ["kept"] * 3
        assert len(_questions(url, key, "--limit", "0", "--json").stdout.splitlines()) == 320  # two pages
        assert "p_hat" in _questions(url, key, "--sort", "-p_hat", "--limit", "1").stdout
        refused = _questions(url, key, "--verdict", "nice")
        assert (refused.returncode, "HTTP 422: query.verdict.0: Input should be" in refused.stderr) == (1, True)
        assert "HTTP 401: Authorization" in _questions(url, "guess").stderr
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[0]
    assert said.startswith(f"{url}/api/v1/runs, described at {url}/api/openapi.json; keys are asked for")
    listed = CliRunner().invoke(app, ["keys", "list"]).stdout
    assert "me" in listed
    assert key not in listed
    assert CliRunner().invoke(app, ["keys", "revoke", "me"]).stdout == "revoked: me\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("api", "--host", "0.0.0.0", "--no-keys"), "--no-keys: expected a loopback address as --host, got 0.0.0.0"),
        (("keys", "add", "me", "--scope", "all"), "--scope: expected one of read, run, label, admin, got 'all'"),
        (("questions", "demo", "1", "--url", "http://127.0.0.1:9"), "no answer from the API (coevo api serves it)"),
        (("keys", "revoke", "you"), "key 'you': there is none of this name that is in use"),
    ],
)
def test_what_cannot_be_done_is_said(place: Path, arguments: tuple[str, ...], complaint: str) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert (result.exit_code, complaint in result.stderr) == (1, True)


def _questions(url: str, key: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COEVO_API_URL": url, "COEVO_API_KEY": key}
    command = [COEVO, "questions", "demo", "1", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False
