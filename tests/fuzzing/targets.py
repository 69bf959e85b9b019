"""What is tried: for each target, the strategies of its inputs and the check that must hold."""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi.testclient import TestClient
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from core.grading.grader import Grader
from core.texts.unicode import well_formed
from orchestrator.installation.home import EXPERIMENTS, PRESETS
from services.api.app import create_app
from services.api.installation import Installation
from storage.session import Store, open_store
from tests.fuzzing import checks, inputs
from tests.services.api_examples import RUN, fill

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
        app = create_app(store, folder / "exports", ask_for_keys=False, installation=Installation(presets=PRESETS))
        yield Resources(folder, stack.enter_context(Grader()), store, TestClient(app, "http://localhost"))


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
    "answers": lambda _: Target({"a": inputs.answers, "b": inputs.answers}, checks.answers),
    "graded answers": lambda shared: Target(
        {"a": inputs.answers, "b": inputs.answers}, lambda a, b: checks.graded(shared.grader, a, b)
    ),
    "questions": lambda _: Target({"reply": inputs.questions}, checks.questions),
    "judge's replies": lambda shared: Target(
        {"reply": inputs.replies, "question": inputs.questions, "label": inputs.answers},
        lambda reply, question, label: checks.judged(shared.grader, reply, question, label),
    ),
    "services' replies": lambda _: Target(
        {"reply": inputs.json_values("choices", "message", "usage")}, checks.service_reply
    ),
    "presets": lambda shared: Target(
        {"content": inputs.changed_toml(_toml(PRESETS))}, _in_file(shared.folder / "preset.toml", checks.preset)
    ),
    "overrides": lambda _: Target({"overrides": _overrides()}, checks.overridden),
    "other TOML": lambda shared: Target(
        {"content": inputs.changed_toml(_other_toml())}, _in_file(shared.folder / "other.toml", checks.other_toml)
    ),
    "files of questions": lambda shared: Target(
        {
            "content": _files_of_questions(),
            "suffix": st.sampled_from((".jsonl", ".json", ".jsonl.gz", ".csv", ".parquet", ".arrow")),
        },
        lambda content, suffix: _in_file(shared.folder / f"rows{suffix}", checks.rows)(content),
    ),
    "run logs": lambda _: Target({"lines": st.lists(inputs.text(_EVENT, "{", "}"), max_size=4)}, checks.log_lines),
    "API": lambda shared: Target(_requests(shared.client), lambda **request: checks.answered(shared.client, **request)),
    "exports": lambda shared: Target(
        {"texts": st.lists(inputs.questions, min_size=1, max_size=3), "answer": inputs.answers},
        lambda texts, answer: checks.exported(shared.store, shared.folder, texts, answer),
    ),
}
