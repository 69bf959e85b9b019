"""Evaluations started over REST; Prefect's server is real and has no worker."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from local_api import local_api
from prefect_server import post, prefect_at

from core.settings.parsing import parse_config
from core.types import Checkpoint
from orchestrator.question_sets.benchmarks import read_suite
from services.api.app import PREFIX
from services.api.installation import QuestionSets
from storage import queries
from storage.session import Store

Send = Callable[..., Any]


@pytest.fixture
def send(sqlite: Store, tmp_path: Path, prefect_url: str) -> Send:
    """Send a request for an evaluation, expect a status, and return what came back."""
    config = parse_config({"iterations": 1}, "test")
    with sqlite.write() as session:
        queries.runs.create_run(session, name=tmp_path.name, config=config)
        queries.checkpoints.add_checkpoint(
            session, Checkpoint(f"{tmp_path.name}/base/0", tmp_path.name, "base", 0, 0, "/nowhere", "0" * 64, None), {}
        )
    names = QuestionSets(("micro", "aime24"), {"srt": read_suite("srt")})
    api = local_api(sqlite, tmp_path, prefect=prefect_at(prefect_url), question_sets=names)

    def sent(expected: int = 202, **body: Any) -> Any:
        response = api.post(f"{PREFIX}/evaluations", json={"model": f"{tmp_path.name}:base", **body})
        assert response.status_code == expected, response.text
        return response.json()

    return sent


def test_an_evaluation_is_started_as_a_flow_run(send: Send, tmp_path: Path, prefect_url: str) -> None:
    asked = {"benchmarks": ["aime24"], "suite": "srt", "samples": 4, "max_tokens": 512, "limit": 2, "seed": 3}
    started = send(**asked)
    [row] = post(prefect_url, "/flow_runs/filter", flow_runs={"id": {"any_": [started["flow_run"]]}})
    model = f"{tmp_path.name}:base"
    assert row["parameters"] == {"model": model, "temperature": 1.0, "top_p": 1.0, "top_k": None, **asked}
    assert (row["name"], row["state_type"]) == (model, "SCHEDULED")
    page = f"{prefect_url}/runs/flow-run/{started['flow_run']}"
    assert started == {"model": model, "flow_run": row["id"], "state": "SCHEDULED", "url": page}
    again = send(409, **asked)
    assert again["detail"] == f"{model}: this evaluation is SCHEDULED: {page}"
    assert send(**{**asked, "seed": 4})["flow_run"] != started["flow_run"]  # another evaluation
    cut = send(**asked, top_k=20)
    [row] = post(prefect_url, "/flow_runs/filter", flow_runs={"id": {"any_": [cut["flow_run"]]}})
    assert row["parameters"]["top_k"] == 20


def test_one_of_several_simultaneous_requests_starts_the_evaluation(send: Send, prefect_url: str) -> None:
    def status(_: int) -> bool:
        try:
            return bool(send(benchmarks=["micro"])["flow_run"])
        except AssertionError as error:
            assert "another request has just started it" in str(error) or "is SCHEDULED" in str(error)  # noqa: PT017
            return False

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(status, range(4))) == 1


@pytest.mark.parametrize(
    ("body", "field", "expected"),
    [
        ({"benchmarks": ["/etc/passwd.jsonl"]}, "benchmarks", "expected one of micro, aime24, got '/etc/passwd.jsonl'"),
        ({"suite": "../secret.toml"}, "suite", "expected one of srt, got '../secret.toml'"),
        ({}, "benchmarks", "expected a benchmark's name or a suite, got none"),
        ({"model": "http://10.0.0.7/v1", "benchmarks": ["micro"]}, "model", "a text that matches"),
        ({"model": "/models/mine", "benchmarks": ["micro"]}, "model", "a text that matches"),
        ({"model": "nosuch:base", "benchmarks": ["micro"]}, "model", "nosuch"),
        ({"top_k": 0, "benchmarks": ["micro"]}, "top_k", "more than 0"),
        ({"samples": -1, "benchmarks": ["micro"]}, "samples", "at least 0"),
        ({"applications": "x", "benchmarks": ["micro"]}, "applications", "no such field"),
    ],
)
def test_what_a_caller_must_not_choose_is_refused(send: Send, body: dict[str, Any], field: str, expected: str) -> None:
    problem = send(422, **body)
    assert any(field in error["field"] and expected in error["message"] for error in problem["errors"]), problem


def test_a_model_that_a_run_does_not_have_is_refused(send: Send, sqlite: Store, tmp_path: Path) -> None:
    def refusal(which: str) -> str:
        problem = send(422, model=f"{tmp_path.name}:{which}", benchmarks=["micro"])
        return str(problem["errors"][0]["message"])

    assert f"{tmp_path.name}/solver/7" in refusal("7")
    assert refusal("best") == f"model: {tmp_path.name}:best: the run has no evaluation yet; name an iteration"
    with sqlite.write() as session:
        queries.checkpoints.note_removed(session, [f"{tmp_path.name}/base/0"])
    assert f"the files of {tmp_path.name}/base/0 were removed, as checkpoints.keep says" in refusal("base")
