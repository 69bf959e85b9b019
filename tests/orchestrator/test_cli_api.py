"""`coevo store serve` as a process, and the keys that it needs."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from pydantic import TypeAdapter
from sqlalchemy import update
from typer.testing import CliRunner

from core.types import question_id
from orchestrator.cli import app
from orchestrator.cli.questions import show
from orchestrator.installation.home import Home
from services.api.access.keys import accept_home_key
from services.api.question_schemas import QuestionDetail
from storage import queries
from storage.errors import StoreError
from storage.models import Questions
from storage.rows import ClusterRow
from storage.session import open_store
from tests.live import COEVO, terminated, wait_until
from tests.synthetic_run import fill_run

ODD = "\x9b2J\u202e"  # a control sequence for a terminal, and a character that reverses the text after it
QUESTION_ID = "demo/1/000042"
QUESTION = {
    "id": QUESTION_ID,
    "run": "demo",
    "iteration": 1,
    "index": 42,
    "text": "What is 7 + 5 * 3?",
    "checkpoint": "demo/challenger/1",
    "seed": "421",
    "given_answer": None,
    "verdict": "kept",
    "answer": "22",
    "votes": 6,
    "m": 10,
    "parsed": 10,
    "unknown": 0,
    "p_hat": 0.6,
    "denominator": "all",
    "oracles": [{"question_id": QUESTION_ID, "oracle": "exact", "verdict": "right", "truth": "22"}],
    "raw": "<question>What is 7 + 5 * 3?</question>\n\\boxed{22}",
    "classes": [{"answer": "22", "votes": 6}, {"answer": "36", "votes": 4}],
    "rollouts": [
        {
            "question_id": QUESTION_ID,
            "sample_index": sample,
            "answer": "22" if sample < 6 else "36",
            "in_class": int(sample >= 6),
            "agrees": sample < 6,
            "tokens": 24 + sample,
            "finish_reason": "stop",
            "mean_entropy": 0.31,
            "entropy_error": 0.0,
            "checkpoint": "demo/base/0",
            "seed": str(7421 + sample),
        }
        for sample in range(10)
    ],
    "annotations": [
        {
            "question_id": QUESTION_ID,
            "annotator": "ann",
            "verdict": "right",
            "note": "",
            "made_at": "2026-03-01T09:14:30Z",
        }
    ],
    "cluster": {"number": 3, "size": 5},
    "trained_on": [{"question_id": QUESTION_ID, "checkpoint": "demo/solver/1", "steps": [2, 9]}],
}


@pytest.fixture
def home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    for name in ("COEVO_DATABASE", "COEVO_RAY_ADDRESS", "PREFECT_API_URL", "PREFECT_API_AUTH_STRING"):
        monkeypatch.delenv(name, raising=False)
    store = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    fill_run(store, "demo", per_level=2)
    with store.write() as session:
        queries.traces.add_clusters(session, [ClusterRow(question_id("demo", 1, 7), "demo", 1, 0, 2)])
        session.execute(update(Questions).where(Questions.id == "demo/1/000007").values(text=f"What?{ODD}"))
    store.close()
    return tmp_path


def test_the_api_and_its_commands_work_with_a_key_and_not_without(home_folder: Path) -> None:
    added = CliRunner().invoke(app, ["store", "keys", "add", "me", "--scope", "read", "--scope", "run"])
    key = added.stdout.strip()
    assert (added.exit_code, key[:6]) == (0, "coevo_")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [COEVO, "store", "serve", "--port", str(port), "--access-log"]
    webhook = {"COEVO_WEBHOOK_URL": "http://127.0.0.1:9/hook?token=secret", "COEVO_WEBHOOK_SECRET": f"whsec_{'A' * 32}"}
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env={**os.environ, **webhook}, text=True, **piped) as process, terminated(process):
        wait_until(lambda: _answers(url), "the API to answer")
        assert httpx.get(f"{url}/api/v1/runs").status_code == 401
        own_key = {"Authorization": f"Bearer {Home(home_folder).api_key}"}
        assert httpx.get(f"{url}/api/v1/keys", headers=own_key).status_code == 200  # the home's own key has every scope
        response = httpx.get(f"{url}/api/v1/runs", headers={"Authorization": f"Bearer {key}"})
        assert [run["name"] for run in response.json()["items"]] == ["demo"]
        shown = _questions(url, key, "--verdict", "kept", "--limit", "3", "--json")
        assert [json.loads(line)["verdict"] for line in shown.stdout.splitlines()] == ["kept"] * 3
        # The command reads two pages.
        assert len(_questions(url, key, "--limit", "0", "--json").stdout.splitlines()) == 320
        assert "p_hat" in _questions(url, key, "--sort", "-p_hat", "--limit", "1").stdout
        compared = [
            _questions(url, key, "--cluster", "0", "--oracle", oracle, "--json") for oracle in ("exact", "human")
        ]
        indices = [[json.loads(line)["index"] for line in result.stdout.splitlines()] for result in compared]
        assert indices == [[7], []]
        assert "demo/1/000007" in _questions(url, key, "--index", "7").stdout
        assert json.loads(_questions(url, key, "--index", "7", "--json").stdout)["id"] == "demo/1/000007"
        for selection in (("--limit", "0"), ("--index", "7")):
            printed = _questions(url, key, *selection, "--json").stdout
            assert (printed.isascii(), json.dumps(ODD)[1:-1] in printed) == (True, True)
        assert "HTTP 404: question 'demo/1/000999'" in _questions(url, key, "--index", "999").stderr
        both = _questions(url, key, "--index", "7", "--oracle", "exact")
        assert "--index: expected no filter besides it, since it names one question; got --oracle" in both.stderr
        refused = _questions(url, key, "--verdict", "nice")
        assert (refused.exit_code, "HTTP 422: query.verdict: expected 'kept'" in refused.stderr) == (1, True)
        assert "HTTP 401: Authorization" in _questions(url, "guess").stderr
        listed = _coevo(url, key, "runs", "list", "--json")
        assert [json.loads(line)["name"] for line in listed.stdout.splitlines()] == ["demo"]
        started = _coevo(url, key, "runs", "start", "demo", "--name", "new", "--set", "dataset.candidates=8")
        assert (started.exit_code, "HTTP 503: this API has no Prefect server" in started.stderr) == (1, True)
        unnamed = _coevo(url, key, "runs", "start", "demo", "--set", "base_model=/models/x")
        assert "HTTP 422: body.overrides.base_model: expected a number or a word" in unnamed.stderr
        assert "HTTP 404: run nobody: no such run" in _coevo(url, key, "runs", "resume", "nobody").stderr
        assert "HTTP 422: body.decision: expected 'go on'" in _coevo(url, key, "runs", "decide", "demo", "no").stderr
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
    assert Home(home_folder).api_key not in output
    assert "alerts go to 127.0.0.1#" in output
    assert "token=secret" not in output
    assert "runs cannot be started, since no Prefect server is known" in output
    shown_keys = CliRunner().invoke(app, ["store", "keys", "list"]).stdout
    assert "me" in shown_keys
    assert key not in shown_keys
    assert CliRunner().invoke(app, ["store", "keys", "revoke", "me"]).stdout == "revoked: me\n"


def test_a_home_s_key_is_stored_once_and_refused_after_it_was_revoked(home_folder: Path) -> None:
    store = open_store(f"sqlite:///{home_folder}/coevo.db")
    accept_home_key(store, "coevo_1")
    accept_home_key(store, "coevo_1")
    with store.read() as session:
        [row] = queries.keys.list_keys(session)
    with store.write() as session:
        queries.keys.revoke_key(session, row.name)
    with pytest.raises(StoreError, match=row.name):
        accept_home_key(store, "coevo_1")


def test_a_question_s_texts_are_shown_without_markup_or_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither Rich nor the terminal interprets what a model or an annotator wrote."""
    shown = TypeAdapter(QuestionDetail).validate_python(QUESTION)
    odd = "[red]7[/] :cat:\x1b[2J\u202e"
    annotation = replace(shown.annotations[0], note=odd)
    show(replace(shown, text=f"{odd}\nmore", answer=odd, annotations=[annotation]))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:4] == ["demo/1/000042  kept", "", "[red]7[/] :cat: [2J", "more"]
    facts = [line.split(maxsplit=1) for line in lines[5:] if line]
    assert ["label", "[red]7[/] :cat: [2J , with 6 of 10 votes; 10 votes have an answer"] in facts
    for name, fact in (("answers", "22 (6); 36 (4)"), ("exact", "says     right: the answer is 22")):
        assert [name, fact] in facts
    assert ["ann", "says       right: [red]7[/] :cat: [2J"] in facts
    assert ["0", "22       24       stop     demo/base/0"] in facts


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("store", "serve", "--host", "0.0.0.0", "--no-keys"), "--no-keys: "),
        (("store", "keys", "add", "me", "--scope", "all"), "--scope: "),
        (("show", "questions", "demo", "1", "--url", "http://127.0.0.1:9"), "http://127.0.0.1:9: "),
        (("runs", "cancel", "demo", "--url", "http://127.0.0.1:9"), "http://127.0.0.1:9: "),
        (("store", "keys", "revoke", "you"), "key 'you': "),
    ],
)
def test_a_command_that_fails_prints_the_reason(home_folder: Path, arguments: tuple[str, ...], complaint: str) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert (result.exit_code, complaint in result.stderr) == (1, True)


def _questions(url: str, key: str, *arguments: str) -> Result:
    return _coevo(url, key, "show", "questions", "demo", "1", *arguments)


def _coevo(url: str, key: str, *arguments: str) -> Result:
    """Run the command in this process, because its imports take seconds."""
    return CliRunner().invoke(app, arguments, env={"COEVO_API_URL": url, "COEVO_API_KEY": key})


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
