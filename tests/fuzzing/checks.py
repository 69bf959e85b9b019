"""What must hold whatever the input is: each function raises if it does not."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
from fastapi.testclient import TestClient

from core import worlds
from core.asking.service import Service
from core.errors import CoevoError
from core.grading import points
from core.grading.answers import answer_key, extract_boxed, normalise, number_of
from core.grading.equality import decide, no_judge
from core.grading.grader import Grader
from core.grading.kinds import AnswerKind, read_answer
from core.grading.outcomes import NEEDS_JUDGE
from core.grading.words import is_words
from core.judging.replies import Case, Claimed, combine_replies, messages, parse_opinion, parse_yes_no
from core.questions.parsing import parse_question, refuse_question
from core.rollouts.strategies import parse_clusters, skeleton_clusters
from core.settings.config import RunConfig
from core.settings.parsing import load_config, load_despite_faults, parse_config
from core.texts.unicode import well_formed
from core.types import DEGENERATE
from orchestrator.experiments import read_experiment
from orchestrator.installation.home import PRESETS
from orchestrator.question_sets.benchmarks import load, read_suite
from orchestrator.question_sets.prompts import PromptsError
from orchestrator.question_sets.rows import read_rows
from services.inference.external_chats import read_chat
from services.oracles import exact
from storage import queries
from storage.exports.files import without_nul
from storage.exports.runs import FORMATS, Format, export
from storage.exports.selection import Selection
from storage.files.run_logs import events_in
from storage.files.texts import TextWriter, texts_path
from storage.session import Store
from tests.storage.store_examples import fresh_run, label, question, rollout

_LONGEST_MESSAGE = 20_000  # characters of an error
_MOST_QUESTION = 2_000
_FORMULA = re.compile(r"[\s\x00-\x20\ufeff]*[=@\uff1d\uff20+\uff0b-]")
_NUMBER = re.compile(r"-?[\d.]+")


def answers(a: str, b: str) -> None:
    for kind in get_args(AnswerKind):
        read_answer(kind, a)
    x, y = normalise(a), normalise(b)
    answer_key(a)
    extract_boxed(a)
    number_of(a)
    is_words(a)
    outcome = decide(x, y, no_judge)
    assert outcome == decide(y, x, no_judge)
    assert outcome == NEEDS_JUDGE or (outcome.reason is None) == (outcome.verdict != "unknown")
    if points.is_curve(x) or points.is_curve(y):
        points.compare(x, y)


def graded(grader: Grader, a: str, b: str) -> None:
    comparison = grader.compare(a, b)
    assert comparison.verdict in ("equal", "unequal", "unknown")
    assert (comparison.reason is None) == (comparison.verdict != "unknown")
    assert grader.compare(b, a).verdict == comparison.verdict


def questions(reply: str) -> None:
    for expected in ("tags", "tags_and_answer"):
        asked = parse_question(reply, _MOST_QUESTION, expected)
        if asked is not None:
            assert refuse_question(asked, _MOST_QUESTION) is None
            assert asked == asked.strip()
            assert 0 < len(asked) <= _MOST_QUESTION
            assert asked in reply
    exact.audit("q", reply, reply)
    worlds.difficulty(reply)


def judged(grader: Grader, reply: str, question: str, label: str) -> None:
    parse_yes_no(reply)
    parse_opinion(reply, question)
    case = Case("q", question, Claimed(label))
    for prompt in ("annotate", "equivalence"):
        messages(prompt, case)
        assert combine_replies(prompt, case, [reply, None], grader).verdict == "unknown"  # one of two is no majority
    clusters = parse_clusters(reply, 2)
    assert clusters is None or all(cluster in (1, 2, DEGENERATE) for cluster in clusters)
    skeleton_clusters([reply, question])


def service_reply(reply: Any) -> None:
    _ok_or(CoevoError, lambda: read_chat(Service(url="http://localhost:1/v1", model="m"), reply))


def preset(path: Path) -> None:
    config = _ok_or(CoevoError, lambda: load_config(path))
    if config is not None:
        assert _again(config) == config
    _ok_or(CoevoError, lambda: load_despite_faults(path, {"seed": 3}))


def overridden(overrides: dict[str, Any]) -> None:
    config = _ok_or(CoevoError, lambda: load_config(PRESETS / "demo.toml", overrides))
    if config is not None:
        assert _again(config) == config


def _again(config: RunConfig) -> RunConfig:
    """The configuration as it is read from the store."""
    return parse_config(json.loads(json.dumps(config.model_dump(mode="json"))), "store")


def other_toml(path: Path) -> None:
    _ok_or(CoevoError, lambda: read_experiment(str(path)))
    _ok_or(CoevoError, lambda: read_suite(str(path)))
    _ok_or(CoevoError, lambda: load(str(path)))


def rows(path: Path) -> None:
    rows = _ok_or(PromptsError, lambda: [*read_rows(path, "prompts", PromptsError)])
    for _, row in rows or []:
        json.dumps(row, default=str, ensure_ascii=False).encode()
    _ok_or(CoevoError, lambda: load(str(path)))


def log_lines(lines: list[str]) -> None:
    for event in events_in(lines):
        assert event.time is not None


def answered(client: TestClient, request: tuple[str, str], query: dict[str, str], body: bytes, json_type: bool) -> None:
    (method, path), headers = request, {"Content-Type": "application/json" if json_type else "text/plain"}
    if method == "GET":
        response = client.get(path, params=query)
    else:
        response = client.request(method, path, params=query, content=body, headers=headers)
    assert response.status_code < 500 or _without_prefect(response.json()), response.text
    assert len(response.text) < 1_000_000
    if response.status_code >= 400:
        assert response.headers["content-type"] == "application/problem+json"
        assert len(response.json()["detail"]) < _LONGEST_MESSAGE


def _without_prefect(problem: dict[str, Any]) -> bool:
    """Whether a request was good, and would have started a run if this API had a Prefect server."""
    return problem["status"] == 503 and "no Prefect server" in problem["detail"]


def exported(store: Store, folder: Path, texts: list[str], answer: str) -> None:
    """All formats give back what was stored, as a file can hold it; a CSV file has no formula."""
    run = fresh_run(store)
    with store.write() as session:
        queries.questions.add_questions(session, [question(run, i, text) for i, text in enumerate(texts)])
        votes = [rollout(run, i, 0, answer, text) for i, text in enumerate(texts)]
        queries.questions.add_rollouts(session, votes)
        queries.questions.add_labels(session, [replace(label(run, i), text=text) for i, text in enumerate(texts)])
        stage: dict[str, Any] = {"run": run, "iteration": 1, "stage": "label_questions", "owner": "me"}
        queries.ledger.claim_stage(session, **stage, lease_seconds=60)
        queries.ledger.finish_stage(session, **stage, result={})
    writer = TextWriter(texts_path(folder / "texts", run, 1, "label_questions"))
    writer.add(0, votes)
    writer.finish()
    expected = [without_nul(well_formed(text)) for text in texts]
    for selection in (Selection(run, "1"), Selection(run, "1", what="votes", texts=True)):
        for kind in FORMATS:
            exported = export(store, folder / "exports", selection, kind, folder / "texts")
            written = [row["text"] for row in _read_back(exported.path, kind)]
            if kind == "csv":
                assert not any(_FORMULA.match(text) and not _NUMBER.fullmatch(text) for text in written)
                assert [text.removeprefix("'") for text in written] == [text.removeprefix("'") for text in expected]
            else:
                assert written == expected


def _read_back(path: Path, kind: Format) -> list[dict[str, Any]]:
    if kind == "jsonl":
        return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    if kind == "csv":
        csv.field_size_limit(1_000_000)
        return [*csv.DictReader(io.StringIO(path.read_bytes().decode(), newline=""))]
    file: Any = path
    if kind == "huggingface":
        with zipfile.ZipFile(path) as archive:
            file = io.BytesIO(archive.read("data/train.parquet"))
    rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


def _ok_or(error: type[CoevoError], call: Callable[[], Any]) -> Any:
    """What the call returns; None if it raises this error, whose message must not be too long to read."""
    message = "a message"
    try:
        return call()
    except error as caught:
        message = str(caught)
    assert 0 < len(message) < _LONGEST_MESSAGE
    return None
