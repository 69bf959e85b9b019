"""Secrets are planted wherever coevo knows any, and things fail in ways that carry them. They must be nowhere: not in
logs, the store, Prefect, REST's answers, error bodies, or pages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import delete, update

from core.asking.judge import Judge
from core.errors import CoevoError
from core.settings.audit import Audit
from orchestrator.installation.environment import environment
from orchestrator.installation.home import PRESETS, Home, Services
from services.api.app import create_app
from services.api.installation import Installation
from services.drift.outbox import deliver_one
from services.prefect.server import PrefectServer
from storage import queries
from storage.models import Runs, Stages
from storage.rows import AlertRow
from storage.session import Store
from tests.api_server import served
from tests.fake_service import fake_service
from tests.live import wait_until
from tests.logging_process import console
from tests.services.prefect_server import AUTH, post
from tests.synthetic_run import CONFIG, fill_run

# None of them looks like a secret, so that each must be known from the place where it is kept.
JUDGE, DATABASE, RAY = "plain words for the judge", "plain-words-for-the-database", "plain words for Ray"
WEBHOOK_URL, WEBHOOK = "http://127.0.0.1:1/plain/words/of/a/webhook", "cGxhaW4gd29yZHMgb2YgYSB3ZWJob29rIGFnYWlu"
PATHS = (
    "/runs",
    "/runs/demo",
    "/runs/demo/stages",
    "/runs/demo/log",
    "/runs/demo/iterations",
    "/runs/demo/audits",
    "/alerts",
)


@dataclass(frozen=True)
class Planted:
    """A home with a run, the secrets of its processes, and the environment that they are in."""

    home: Home
    store: Store
    environment: dict[str, str]

    @property
    def secrets(self) -> list[str]:
        return [JUDGE, DATABASE, RAY, WEBHOOK_URL, WEBHOOK, AUTH.partition(":")[2], self.home.api_key]

    @property
    def stored(self) -> str:
        """The files of the database and of all logs."""
        files = [*self.home.logs.rglob("*"), *self.home.path.glob("coevo.db*")]
        return "".join(file.read_bytes().decode(errors="replace") for file in files if file.is_file())

    def leaked(self, **texts: str) -> list[str]:
        """The secrets that are in one of the texts, with the text's name and what is before and after."""
        return [
            f"{name}: {text[max(0, start - 80) : start + 80]!r}"
            for name, text in texts.items()
            for secret in self.secrets
            if (start := text.find(secret)) >= 0
        ]


@pytest.fixture
def planted(home: Home, sqlite: Store, prefect_url: str, monkeypatch: pytest.MonkeyPatch) -> Planted:
    variables = {
        "COEVO_OTHER_DATABASE": f"postgresql://coevo:{DATABASE}@127.0.0.1/coevo",
        "COEVO_WEBHOOK_URL": WEBHOOK_URL,
        "COEVO_WEBHOOK_SECRET": WEBHOOK,
        "MY_JUDGE": JUDGE,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    services = Services("", "", "", prefect_url, RAY, {}, prefect_auth=AUTH)
    home.save_services(services)
    processes_environment = environment(home, services)
    for name in ("RAY_AUTH_TOKEN", "PREFECT_API_AUTH_STRING"):
        monkeypatch.setenv(name, processes_environment[name])
    assert home.api_key  # it is made now
    fill_run(sqlite, "demo", per_level=1)
    return Planted(home, sqlite, processes_environment)


def run_failing_flow(planted: Planted) -> str:
    """Run the flow of `failing_flow.py`, with a judge that answers with the key that it got. Returns its output."""
    with fake_service(lambda *_: (401, {"error": f"this key is wrong: {JUDGE}"})) as (service, requests):
        judge = Judge(url=service.url, model="m", name="m", key_variable="MY_JUDGE")
        config = CONFIG.model_copy(update={"audit": Audit(oracle="judge", sample=4, judge=judge)})
        with planted.store.write() as session:
            session.execute(update(Runs).values(config=config.model_dump(mode="json")))
            session.execute(delete(Stages).where(Stages.stage.in_(("evaluate", "audit_labels"))))
        command = [sys.executable, "-m", "tests.orchestrator.failing_flow", *planted.secrets]
        done = subprocess.run(command, env=planted.environment, capture_output=True, text=True, check=False)
    assert {key for *_, key in requests} == {f"Bearer {JUDGE}"}, done.stderr
    assert done.returncode == 1
    return done.stdout + done.stderr


def in_prefect(url: str) -> str:
    """What Prefect has of the flow runs: their states, logs and artifacts."""
    names = ("flow_runs", "task_runs", "logs", "artifacts")

    def rows() -> dict[str, Any]:
        return {name: post(url, f"/{name}/filter") for name in names}

    wait_until(lambda: "the flow itself" in json.dumps(rows()["logs"]), "Prefect to store the last line", 60)
    return json.dumps(rows())


def test_a_run_that_fails_with_secrets_leaves_none(planted: Planted, api: httpx.Client, prefect_url: str) -> None:
    output = run_failing_flow(planted)
    for line in output.splitlines():
        json.loads(line)  # nothing else is written
    last_lines = "the last lines of easyr1.log:\\n[secret] [secret]"
    shown = in_prefect(prefect_url)
    assert "RuntimeError: not accepted: [secret]" in shown
    assert last_lines in shown
    assert planted.stored.count("CoevoError: not accepted: [secret]") >= 1
    answers = {path: api.get(f"/api/v1{path}") for path in PATHS}
    assert {answer.status_code for answer in answers.values()} == {200}
    stages, log = (answers[f"/runs/demo/{name}"].text for name in ("stages", "log"))
    assert "RuntimeError: not accepted: [secret]" in stages
    assert "this key is wrong: [secret]" in log
    assert last_lines in log
    places = {"output": output, "prefect": shown, "stored": planted.stored, "page": api.get("/runs/demo").text}
    assert planted.leaked(**places, **{path: answer.text for path, answer in answers.items()}) == []


class Unreachable:
    """A target that nothing reaches, and whose library quotes its address."""

    name = "webhook"

    def send(self, alert: AlertRow) -> httpx.Response:
        raise httpx.ConnectError(f"no answer from {WEBHOOK_URL}")


def test_an_alert_that_is_not_delivered_leaves_no_secret(planted: Planted) -> None:
    fall = (0.7, 0.6, 0.8, 320, 0.9, 0.1, "label accuracy fell", datetime.now(UTC))
    alert = AlertRow("0123456789abcdef", "demo", 1, "level_fall", "label_accuracy", "kept", "exact", "critical", *fall)
    with planted.store.write() as session:
        queries.alerts.add_alerts(session, [alert])
    assert deliver_one(planted.store, Unreachable())
    assert "ConnectError: no answer from [secret]" in planted.stored
    assert planted.leaked(stored=planted.stored) == []


@pytest.fixture
def api(planted: Planted) -> Iterator[httpx.Client]:
    """A client of an API whose checks and plans fail with all secrets that its process knows."""
    known = " ".join(secret for secret in planted.secrets if secret != JUDGE)

    def refuse(*_: object) -> None:
        raise CoevoError(f"not accepted: {known}")

    def fail(*_: object) -> Any:
        raise RuntimeError(f"not accepted: {known}")

    app = create_app(
        planted.store,
        planted.home.exports,
        ask_for_keys=False,
        installation=Installation(
            prefect=PrefectServer("http://127.0.0.1:1", AUTH),
            presets=PRESETS,
            run_logs=planted.home.run_logs,
            planned=fail,
            refuse_unready=refuse,
        ),
    )
    with console("api", planted.home.secrets()), served(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def test_errors_of_the_api_have_no_secret(
    planted: Planted, api: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    at = {"audit.judge.url": f"https://ann:{DATABASE}@127.0.0.1/v1", "audit.judge.model": RAY, "audit.oracle": RAY}
    requests: list[dict[str, Any]] = [
        {"name": "new", "preset": "demo"},
        {"name": "new", "preset": AUTH},
        {"name": RAY, "preset": "demo"},
        {"name": "new", "preset": "demo", "iterations": DATABASE},
        {"name": "new", "preset": "demo", "overrides": {"dataset.votes": WEBHOOK, "seed": planted.home.api_key}},
        {"name": "new", "preset": "demo", "overrides": at},
    ]
    answers = [api.post("/api/v1/runs", json=body) for body in requests]
    assert {answer.status_code for answer in answers} <= {404, 422}
    answers.append(api.get(f"/api/v1/runs/{DATABASE}"))
    answers.append(api.get("/api/v1/runs/demo/remaining"))
    assert answers[-1].status_code == 500
    logged = capsys.readouterr().err
    ours, *_of_uvicorn = map(json.loads, logged.splitlines())
    assert (ours["run"], ours["process"], ours["level"]) == ("demo", "api", "ERROR")
    assert "RuntimeError: not accepted: [secret]" in ours["message"]
    assert "[secret]" in answers[0].text
    assert planted.leaked(logged=logged, **{str(i): answer.text for i, answer in enumerate(answers)}) == []
