"""`coevo store serve` as a process, and the keys that it needs."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter
from sqlalchemy import update

from core.settings.config import CoEvolution
from core.types import question_id
from orchestrator.cli.questions import show
from orchestrator.installation.home import Home
from orchestrator.installation.ports import free_port
from services.api.access.keys import accept_home_key
from services.api.app import create_app
from services.api.question_schemas import QuestionDetail
from storage import queries
from storage.errors import StoreError
from storage.models import Questions
from storage.rows import ClusterRow
from storage.session import Store
from tests.commands import coevo
from tests.live import COEVO, terminated, wait_until
from tests.storage.store_examples import checkpoint, fill
from tests.synthetic_run import fill_run

ODD = "\x9b2J\u202e"  # a control sequence for a terminal, and a character that reverses the text after it


@pytest.fixture
def filled(home: Home, sqlite: Store) -> Store:
    fill_run(sqlite, "demo", per_level=2)
    with sqlite.write() as session:
        queries.traces.add_clusters(session, [ClusterRow(question_id("demo", 1, 7), "demo", 1, 0, 2)])
        session.execute(update(Questions).where(Questions.id == "demo/1/000007").values(text=f"What?{ODD}"))
    return sqlite


@pytest.mark.usefixtures("filled")
def test_the_api_and_its_commands_work_with_a_key_and_not_without(home: Home) -> None:
    key = coevo("store", "keys", "add", "me", "--scope", "read", "--scope", "run").stdout.strip()
    assert key[:6] == "coevo_"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [COEVO, "store", "serve", "--port", str(port), "--access-log"]

    def said(*arguments: str, status: int = 0, key: str = key) -> str:
        result = coevo(*arguments, status=status, COEVO_API_URL=url, COEVO_API_KEY=key)
        return result.stderr if status else result.stdout

    def questions(*arguments: str, status: int = 0) -> str:
        return said("show", "questions", "demo", "1", *arguments, status=status)

    webhook = {"COEVO_WEBHOOK_URL": "http://127.0.0.1:9/hook?token=secret", "COEVO_WEBHOOK_SECRET": f"whsec_{'A' * 32}"}
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env={**os.environ, **webhook}, text=True, **piped) as process, terminated(process):
        wait_until(lambda: _answers(url), "the API to answer")
        assert httpx.get(f"{url}/api/v1/runs").status_code == 401
        own_key = {"Authorization": f"Bearer {home.api_key}"}
        assert httpx.get(f"{url}/api/v1/keys", headers=own_key).status_code == 200  # the home's own key has every scope
        response = httpx.get(f"{url}/api/v1/runs", headers={"Authorization": f"Bearer {key}"})
        assert [run["name"] for run in response.json()["items"]] == ["demo"]
        shown = questions("--verdict", "kept", "--limit", "3", "--json")
        assert [json.loads(line)["verdict"] for line in shown.splitlines()] == ["kept"] * 3
        assert len(questions("--limit", "0", "--json").splitlines()) == 320  # the command reads two pages
        assert "p_hat" in questions("--sort", "-p_hat", "--limit", "1")
        compared = [questions("--cluster", "0", "--oracle", oracle, "--json") for oracle in ("exact", "human")]
        assert [[json.loads(line)["index"] for line in lines.splitlines()] for lines in compared] == [[7], []]
        assert "demo/1/000007" in questions("--index", "7")
        assert json.loads(questions("--index", "7", "--json"))["id"] == "demo/1/000007"
        for selection in (("--limit", "0"), ("--index", "7")):
            printed = questions(*selection, "--json")
            assert (printed.isascii(), json.dumps(ODD)[1:-1] in printed) == (True, True)
        assert [json.loads(line)["name"] for line in said("runs", "list", "--json").splitlines()] == ["demo"]
        asked = ("show", "questions", "demo", "1")
        for arguments, words in (
            ((*asked, "--index", "999"), "HTTP 404: question 'demo/1/000999'"),
            ((*asked, "--index", "7", "--oracle", "exact"), "--index: expected no filter besides it"),
            ((*asked, "--verdict", "nice"), "HTTP 422: query.verdict: expected 'kept'"),
            (("runs", "start", "demo", "--name", "new"), "HTTP 503: this API has no Prefect server"),
            (("runs", "start", "demo", "--set", "base_model=/models/x"), "HTTP 422: body.overrides.base_model: "),
            (("runs", "resume", "nobody"), "HTTP 404: run nobody: no such run"),
            (("runs", "decide", "demo", "no"), "HTTP 422: body.decision: expected 'go on'"),
        ):
            assert words in said(*arguments, status=1)
        assert "HTTP 401: Authorization" in said("runs", "list", status=1, key="guess")
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=30)[0]
    events = [json.loads(line) for line in output.splitlines()]
    [beginning] = [event for event in events if event["logger"] == "orchestrator.cli.api"]
    assert {event["message"].partition(" - ")[2] for event in events if event["logger"] == "uvicorn.access"} >= {
        '"GET /api/v1/runs HTTP/1.1" 401',
        '"GET /api/v1/runs HTTP/1.1" 200',
    }
    assert (beginning["process"], beginning["level"]) == ("api", "INFO")
    addresses = f"dashboard {url}, API {url}/api/v1, described at {url}/api/docs"
    assert beginning["message"].startswith(f"{addresses}; requests need a key")
    assert home.api_key not in output
    assert "alerts go to 127.0.0.1#" in output
    assert "token=secret" not in output
    assert "runs cannot be started, since no Prefect server is known" in output
    shown_keys = coevo("store", "keys", "list").stdout
    assert ("me" in shown_keys, key in shown_keys) == (True, False)
    assert coevo("store", "keys", "revoke", "me").stdout == "revoked: me\n"


def test_a_home_s_key_is_stored_once_and_refused_after_it_was_revoked(sqlite: Store) -> None:
    accept_home_key(sqlite, "coevo_1")
    accept_home_key(sqlite, "coevo_1")
    with sqlite.read() as session:
        [row] = queries.keys.list_keys(session)
    with sqlite.write() as session:
        queries.keys.revoke_key(session, row.name)
    with pytest.raises(StoreError, match=row.name):
        accept_home_key(sqlite, "coevo_1")


def test_a_question_s_texts_are_shown_without_markup_or_control_characters(
    sqlite: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither Rich nor the terminal interprets what a model or an annotator wrote."""
    odd = "[red]7[/] :cat:\x1b[2J\u202e"
    with sqlite.write() as session:
        queries.runs.create_run(session, name="demo", config=CoEvolution())
        queries.checkpoints.add_checkpoint(session, checkpoint("demo"), {})
        fill(session, "demo")
    api = TestClient(create_app(sqlite, tmp_path, ask_for_keys=False), "http://localhost")
    question = TypeAdapter(QuestionDetail).validate_python(api.get("/api/v1/runs/demo/iterations/1/questions/0").json())
    annotation = replace(question.annotations[0], note=odd)
    show(replace(question, text=f"{odd}\nmore", answer=odd, annotations=[annotation]))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:4] == ["demo/1/000000  kept", "", "[red]7[/] :cat: [2J", "more"]
    facts = [line.split(maxsplit=1) for line in lines[5:] if line]
    for name, fact in (
        ("label", "[red]7[/] :cat: [2J , with 6 of 10 votes; 9 votes have an answer"),
        ("answers", "3 (6); 4 (2)"),
        ("exact", "says     right: the answer is 3"),
        ("ann", "says       right: [red]7[/] :cat: [2J"),
    ):
        assert [name, fact] in facts
    assert any(line.split() == ["0", "3", "7", "stop", "demo/base/0"] for line in lines)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library is not glibc")
def test_the_threads_of_the_api_share_two_arenas() -> None:
    """`malloc_info` lists the arenas as heaps. Each thread allocates below the size that glibc maps by itself."""
    program = """if True:
        import ctypes, sys, threading
        from orchestrator.cli.api import limit_arenas
        c = ctypes.CDLL(None)
        c.malloc.restype, c.fopen.restype = ctypes.c_void_p, ctypes.c_void_p
        limit_arenas()
        all_allocate = threading.Barrier(12)
        def allocate():
            all_allocate.wait()
            c.malloc(ctypes.c_size_t(10_000))
            all_allocate.wait()
        threads = [threading.Thread(target=allocate) for _ in range(all_allocate.parties)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        out = ctypes.c_void_p(c.fopen(b"/dev/stdout", b"w"))
        c.malloc_info(0, out)
        c.fclose(out)
    """
    described = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert 1 <= described.count("<heap nr=") <= 2, described
