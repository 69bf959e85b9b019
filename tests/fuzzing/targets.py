"""What must hold for any input: each target has strategies and a check, which raises if it does not hold."""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi.testclient import TestClient
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from core.errors import CoevoError
from core.grading import points
from core.grading.answers import answer_key, extract_boxed, is_words, normalise, number_of
from core.grading.equality import NEEDS_JUDGE, decide, no_judge
from core.grading.grader import Grader
from core.grading.kinds import AnswerKind, read_answer
from core.judging.replies import Case, Claimed, combine_replies, messages, parse_opinion, parse_yes_no
from core.questions.parsing import parse_question, refuse_question
from core.rollouts.strategies import DEGENERATE, parse_clusters, skeleton_clusters
from core.settings.audit import Judge
from core.settings.config import RunConfig
from core.settings.parsing import load_config, load_despite_faults, parse_config
from core.unicode import well_formed
from orchestrator.disk.backup import back_up
from orchestrator.disk.restore import restore
from orchestrator.experiments import read_experiment
from orchestrator.installation.home import EXPERIMENTS, PRESETS, Home
from orchestrator.question_sets.benchmarks import load, read_suite
from orchestrator.question_sets.prompts import PromptsError
from orchestrator.question_sets.rows import read_rows
from services.api.app import create_app
from services.oracles import exact
from services.oracles.judge import _read
from storage import queries
from storage.export_files import without_nul
from storage.export_selection import Selection
from storage.exports import FORMATS, Format, export
from storage.run_logs import events_in
from storage.session import Store, open_store
from storage.texts import TextWriter, texts_path
from tests.fuzzing import inputs
from tests.orchestrator.archives import add_everything, new_home
from tests.services.api_examples import RUN, fill
from tests.storage.store_examples import fresh_run, label, question, rollout

_LONGEST_MESSAGE = 20_000  # characters of an error
_MOST_QUESTION = 2_000
_FORMULA = re.compile(r"[\s\x00-\x20\ufeff]*[=@\uff1d\uff20+\uff0b-]")
_NUMBER = re.compile(r"-?[\d.]+")

Check = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Target:
    """`check` is called with one value of each strategy of `inputs`."""

    inputs: dict[str, SearchStrategy[Any]]
    check: Check


@dataclass(frozen=True, slots=True)
class Resources:
    """What targets share: a folder for files, a store with a run, and a client of its API, which has no Prefect."""

    folder: Path
    grader: Grader
    store: Store
    client: TestClient


@contextmanager
def resources() -> Iterator[Resources]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coevo-fuzzing-")))
        store = open_store(f"sqlite:///{folder}/coevo.db", create=True)
        stack.callback(store.close)
        fill(store)
        app = create_app(store, folder / "exports", ask_for_keys=False, presets=PRESETS)
        yield Resources(folder, stack.enter_context(Grader()), store, TestClient(app, "http://localhost"))


def _archives(shared: Resources) -> Target:
    """The restoration of a changed archive into an empty home; nothing is written."""
    archive, original, empty = shared.folder / "whole.zip", shared.folder / "original", shared.folder / "empty"
    home, store = new_home(original)
    add_everything(home, store)
    back_up(home, store, archive)
    store.close()
    restored = new_home(empty)
    with zipfile.ZipFile(archive) as whole:
        contents: dict[str | None, bytes] = {name: whole.read(name) for name in whole.namelist()}
    contents[None] = archive.read_bytes()
    member = st.sampled_from([*contents])
    changes = member.flatmap(lambda name: st.tuples(st.just(name), inputs.changed_bytes(contents[name])))
    return Target({"change": changes}, lambda change: _restored(archive, *restored, *change))


def _answers(a: str, b: str) -> None:
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


def _graded(grader: Grader, a: str, b: str) -> None:
    comparison = grader.compare(a, b)
    assert comparison.verdict in ("equal", "unequal", "unknown")
    assert (comparison.reason is None) == (comparison.verdict != "unknown")
    assert grader.compare(b, a).verdict == comparison.verdict


def _questions(reply: str) -> None:
    for expected in ("tags", "tags_and_answer"):
        asked = parse_question(reply, _MOST_QUESTION, expected)
        if asked is not None:
            assert refuse_question(asked, _MOST_QUESTION) is None
            assert asked == asked.strip()
            assert 0 < len(asked) <= _MOST_QUESTION
            assert asked in reply
    exact.audit("q", reply, reply)
    exact.difficulty(reply)


def _judged(grader: Grader, reply: str, question: str, label: str) -> None:
    parse_yes_no(reply)
    parse_opinion(reply, question)
    case = Case("q", question, Claimed(label))
    for prompt in ("annotate", "equivalence"):
        messages(prompt, case)
        assert combine_replies(prompt, case, [reply, None], grader).verdict == "unknown"  # one of two is no majority
    clusters = parse_clusters(reply, 2)
    assert clusters is None or all(cluster in (1, 2, DEGENERATE) for cluster in clusters)
    skeleton_clusters([reply, question])


def _reply(reply: Any) -> None:
    _ok_or(CoevoError, lambda: _read(Judge(url="http://localhost:1/v1", model="m"), reply))


def _preset(path: Path) -> None:
    config = _ok_or(CoevoError, lambda: load_config(path))
    if config is not None:
        assert _again(config) == config
    _ok_or(CoevoError, lambda: load_despite_faults(path, {"seed": 3}))


def _overridden(overrides: dict[str, Any]) -> None:
    config = _ok_or(CoevoError, lambda: load_config(PRESETS / "demo.toml", overrides))
    if config is not None:
        assert _again(config) == config


def _again(config: RunConfig) -> RunConfig:
    """The configuration as it is read from the store."""
    return parse_config(json.loads(json.dumps(config.model_dump(mode="json"))), "store")


def _other(path: Path) -> None:
    _ok_or(CoevoError, lambda: read_experiment(str(path)))
    _ok_or(CoevoError, lambda: read_suite(str(path)))
    _ok_or(CoevoError, lambda: load(str(path)))


def _rows(path: Path) -> None:
    rows = _ok_or(PromptsError, lambda: [*read_rows(path, "prompts", PromptsError)])
    for _, row in rows or []:
        json.dumps(row, default=str, ensure_ascii=False).encode()
    _ok_or(CoevoError, lambda: load(str(path)))


def _log_lines(lines: list[str]) -> None:
    for event in events_in(lines):
        assert event.time is not None


def _answered(
    client: TestClient, request: tuple[str, str], query: dict[str, str], body: bytes, json_type: bool
) -> None:
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


def _exported(store: Store, folder: Path, texts: list[str], answer: str) -> None:
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


def _restored(archive: Path, home: Home, store: Store, member: str | None, content: bytes) -> None:
    """A member has this content, or with None the archive."""
    file = archive.with_name("changed.zip")
    if member is None:
        file.write_bytes(content)
    else:
        with zipfile.ZipFile(archive) as source, zipfile.ZipFile(file, "w") as copy:
            for name in source.namelist():
                copy.writestr(name, content if name == member else source.read(name))
    _ok_or(CoevoError, lambda: restore(home, store, file, dry_run=True))


def _ok_or(error: type[CoevoError], call: Callable[[], Any]) -> Any:
    """What the call returns; None if it raises this error, whose message must not be too long to read."""
    message = "a message"
    try:
        return call()
    except error as caught:
        message = str(caught)
    assert 0 < len(message) < _LONGEST_MESSAGE
    return None


def _in_file(path: Path, check: Callable[[Path], None]) -> Check:
    def with_content(content: bytes) -> None:
        path.write_bytes(content)
        check(path)

    return with_content


def _toml(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.toml"))


def _other_toml() -> list[Path]:
    deploy = PRESETS.parent
    return [*_toml(EXPERIMENTS), *_toml(deploy / "suites"), *_toml(deploy / "benchmarks")]


def _overrides() -> SearchStrategy[dict[str, Any]]:
    parts = st.sampled_from(("solver", "training", "dataset", "evaluation", "type", "steps", "seed", "reward", "x", ""))
    names = st.lists(parts, min_size=1, max_size=4).map(".".join)
    return st.dictionaries(names, inputs.json_values("type", "steps"), max_size=4)


def _files_of_questions() -> SearchStrategy[bytes]:
    row = {"id": "a", "problem": "What is 1 + 2?", "answer": "3", "level": 1, "options": ["3", "4"]}
    lines = "".join(json.dumps({**row, "id": str(i)}) + "\n" for i in range(3)).encode()
    table = b'id,problem,answer\n1,What is 1?,1\n2,"What, 2?",2\n'
    parquet = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row]), parquet)
    return st.one_of([inputs.changed_bytes(content) for content in (lines, table, parquet.getvalue())])


_EVENT = json.dumps(
    {"time": "2026-01-01T00:00:00+00:00", "level": "INFO", "process": "p", "pid": 1, "logger": "x", "run": "r"}
    | {"iteration": 1, "stage": "evaluate", "message": "m"}
)


def _requests(client: TestClient) -> dict[str, SearchStrategy[Any]]:
    """Requests to all routes, with bodies that may be no JSON at all."""
    described = client.get("/api/openapi.json").json()
    routes = [(method.upper(), path) for path, methods in described["paths"].items() for method in methods]
    names = sorted(
        {
            parameter["name"]
            for methods in described["paths"].values()
            for operation in methods.values()
            for parameter in operation.get("parameters", [])
            if parameter["in"] == "query"
        }
    )
    schemas = described["components"]["schemas"].values()
    fields = sorted({name for schema in schemas for name in schema.get("properties", {})})
    segment = st.sampled_from((RUN, "1", "0", "solver", "..", "%2e%2e", "-1", "9" * 30)) | inputs.text(RUN, "/", "?")

    @st.composite
    def paths(draw: st.DrawFn) -> tuple[str, str]:
        method, path = draw(st.sampled_from(routes))
        return method, re.sub(r"\{[a-z_]+\}", lambda _: quote(draw(segment)[:200], errors="replace", safe="/%.?"), path)

    values = inputs.text(RUN, "1", "-p_hat", "all").map(lambda text: well_formed(text)[:200])
    body = inputs.json_values(*fields).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=200)
    return {
        "request": paths(),
        "query": st.dictionaries(st.sampled_from(names), values, max_size=3),
        "body": body,
        "json_type": st.booleans(),
    }


TARGETS: dict[str, Callable[[Resources], Target]] = {
    "answers": lambda _: Target({"a": inputs.answers, "b": inputs.answers}, _answers),
    "graded answers": lambda shared: Target(
        {"a": inputs.answers, "b": inputs.answers}, lambda a, b: _graded(shared.grader, a, b)
    ),
    "questions": lambda _: Target({"reply": inputs.questions}, _questions),
    "judge's replies": lambda shared: Target(
        {"reply": inputs.replies, "question": inputs.questions, "label": inputs.answers},
        lambda reply, question, label: _judged(shared.grader, reply, question, label),
    ),
    "services' replies": lambda _: Target({"reply": inputs.json_values("choices", "message", "usage")}, _reply),
    "presets": lambda shared: Target(
        {"content": inputs.changed_toml(_toml(PRESETS))}, _in_file(shared.folder / "preset.toml", _preset)
    ),
    "overrides": lambda _: Target({"overrides": _overrides()}, _overridden),
    "other TOML": lambda shared: Target(
        {"content": inputs.changed_toml(_other_toml())}, _in_file(shared.folder / "other.toml", _other)
    ),
    "files of questions": lambda shared: Target(
        {"content": _files_of_questions(), "suffix": st.sampled_from((".jsonl", ".csv", ".parquet"))},
        lambda content, suffix: _in_file(shared.folder / f"rows{suffix}", _rows)(content),
    ),
    "run logs": lambda _: Target({"lines": st.lists(inputs.text(_EVENT, "{", "}"), max_size=4)}, _log_lines),
    "archives": _archives,
    "API": lambda shared: Target(_requests(shared.client), lambda **request: _answered(shared.client, **request)),
    "exports": lambda shared: Target(
        {"texts": st.lists(inputs.questions, min_size=1, max_size=3), "answer": inputs.answers},
        lambda texts, answer: _exported(shared.store, shared.folder, texts, answer),
    ),
}
