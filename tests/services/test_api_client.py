"""A program's use of the client, with a served API."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_examples import QUESTIONS, RUN
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from core.settings.config import CoEvolution
from core.types import OracleLabel, question_id
from services.api.access.keys import new_key
from services.api.app import create_app
from services.client import ApiError, Client
from storage import queries
from storage.rows import ExperimentRun
from storage.session import Store
from tests.api_server import served, serving
from tests.http_server import Handler, listening

EXPORT = f"/runs/{RUN}/export"
QUESTIONS_OF = f"/runs/{RUN}/iterations/1/questions"


@pytest.fixture
def store(sqlite: Store) -> Store:
    """The client does not know what database the API has."""
    return sqlite


@pytest.fixture
def api(filled: Store, tmp_path: Path) -> Iterator[Client]:
    with serving(filled, tmp_path / "exports") as url:
        yield Client(url)


def test_the_client_reads_a_run_s_questions_and_stages(api: Client) -> None:
    assert [run["name"] for run in api.items("/runs")] == [RUN]
    # The client reads two pages.
    assert [question["index"] for question in api.items(QUESTIONS_OF, sort="-p_hat", limit=2)] == [2, 1, 0, 4]
    detail = api.get(f"{QUESTIONS_OF}/1")
    assert (len(detail["rollouts"]), detail["annotations"], detail["cluster"]) == (4, [], None)
    [labelled, _] = api.get(f"/runs/{RUN}/iterations")[0]["stages"]
    assert labelled["stage"] == "label_questions"
    with pytest.raises(ApiError, match="HTTP 404: run nobody"):
        api.get("/runs/nobody/iterations/1/statistics")
    with pytest.raises(ApiError, match=r"HTTP 422: body\.preset: demo"):
        api.send("POST", "/runs", json={"name": "new", "preset": "demo"})


def test_an_export_is_written_completely_or_not_at_all(api: Client, tmp_path: Path) -> None:
    target = tmp_path / "rows.jsonl"
    manifest = api.export(EXPORT, target, verdict=["kept"])
    assert manifest == api.get(f"{EXPORT}/manifest", verdict=["kept"])
    assert (manifest["rows"], manifest["bytes"]) == (2, target.stat().st_size)
    assert [json.loads(line)["index"] for line in target.read_text().splitlines()] == [0, 1]
    with pytest.raises(ApiError, match="HTTP 409: run demo, iteration 2"):
        api.export(EXPORT, tmp_path / "none.jsonl", iterations=2)
    assert not (tmp_path / "none.jsonl").exists()


def test_an_export_of_several_runs_or_of_an_experiment_is_one_file(api: Client, filled: Store, tmp_path: Path) -> None:
    with filled.write() as session:
        queries.runs.create_run(session, name="later", config=CoEvolution())
        queries.experiments.add_run(session, ExperimentRun(RUN, "ablation", "ours", 0, 1))
    one = api.export(EXPORT, tmp_path / "one.jsonl")
    several = api.export("/export", tmp_path / "several.jsonl", run=[RUN, "later"])
    rows = [json.loads(line) for line in (tmp_path / "several.jsonl").read_text().splitlines()]
    place = {"experiment": "ablation", "arm": "ours", "run_seed": str(several["runs"][0]["run_seed"])}
    assert rows == [{**place, **json.loads(line)} for line in (tmp_path / "one.jsonl").read_text().splitlines()]
    assert ([run["run"] for run in several["runs"]], several["left_out"]) == ([RUN], ["later"])
    assert several["rows"] == one["rows"]
    parameters = {"experiment": "ablation", "verdict": ["kept"], "format": "parquet"}
    experiment = api.export("/export", tmp_path / "kept.parquet", **parameters)
    assert (experiment["rows"], experiment["runs"][0]["arm"]) == (2, "ours")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"run": [RUN, "nobody"]}, "HTTP 404: run nobody"),
        ({"experiment": "none"}, "HTTP 404: experiment none"),
        ({}, "HTTP 422: query.run: .* neither"),
        ({"run": [RUN], "experiment": "ablation"}, "HTTP 422: query.run: .* both"),
        ({"run": ["later"]}, "HTTP 409: runs later: "),
        ({"run": [RUN, "later"], "iterations": "1"}, "HTTP 409: run later, iteration 1: "),
    ]
    for parameters, words in refused:
        with pytest.raises(ApiError, match=words):
            api.export("/export", tmp_path / "none.jsonl", **parameters)
    assert not (tmp_path / "none.jsonl").exists()


def test_an_interrupted_export_resumes_where_it_stopped_unless_there_is_a_newer_one(
    filled: Store, tmp_path: Path
) -> None:
    interrupting = Interrupting(create_app(filled, tmp_path / "exports", ask_for_keys=False))
    broken, whole, newer = (tmp_path / f"{name}.jsonl" for name in ("broken", "whole", "newer"))
    with served(interrupting) as url:
        api = Client(url)
        interrupting.interrupt_after = 100
        with pytest.raises(ApiError, match="no answer from the API"):
            api.export(EXPORT, broken)
        assert not broken.exists()
        [part] = tmp_path.glob("broken.jsonl.*.part")
        assert part.stat().st_size == 100
        api.export(EXPORT, broken)
        api.export(EXPORT, whole)
        interrupting.interrupt_after = 100
        with pytest.raises(ApiError):
            api.export(EXPORT, newer)
        with filled.write() as session:
            queries.questions.add_oracle_labels(session, [OracleLabel(question_id(RUN, 1, 0), "human", "right", None)])
        manifest = api.export(EXPORT, newer)
    assert interrupting.ranges == [None, "bytes=100-", None, None, None]
    assert broken.read_bytes() == whole.read_bytes()
    assert hashlib.sha256(newer.read_bytes()).hexdigest() == manifest["sha256"]
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize("content", [b"x" * 5_000, b"x" * 10])  # more bytes than the export has, and fewer
def test_a_damaged_part_is_not_used(api: Client, tmp_path: Path, content: bytes) -> None:
    target = tmp_path / "rows.jsonl"
    part = tmp_path / f"rows.jsonl.{api.get(f'{EXPORT}/manifest')['sha256']}.part"
    part.write_bytes(content)
    if len(content) < 100:
        with pytest.raises(ApiError, match="sha256"):
            api.export(EXPORT, target)
        assert not target.exists()
    api.export(EXPORT, target)
    assert len(target.read_text().splitlines()) == len(QUESTIONS)


class Interrupting:
    """The API, whose next export is interrupted once, after `interrupt_after` bytes; it records the requested
    ranges."""

    def __init__(self, app: FastAPI) -> None:
        self.app, self.interrupt_after, self.ranges = app, 0, list[str | None]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope.get("path", "").endswith("/export"):
            return await self.app(scope, receive, send)
        self.ranges.append(Headers(scope=scope).get("range"))

        async def cut(message: Message) -> None:
            if self.interrupt_after and message["type"] == "http.response.body":
                await send({**message, "body": message["body"][: self.interrupt_after], "more_body": True})
                self.interrupt_after = 0
                raise ConnectionResetError
            await send(message)

        await self.app(scope, receive, cut)


def test_the_client_draws_a_sample_and_labels_it(api: Client) -> None:
    iteration = f"/runs/{RUN}/iterations/1"
    assert api.get(f"{iteration}/labelling/next", annotator="ann")["question"] is None
    assert api.send("POST", f"{iteration}/samples", json={"oracle": "human", "size": 4})["drawn"] == 4
    first = api.get(f"{iteration}/labelling/next", annotator="ann")["question"]["index"]
    said = {"verdict": "right", "note": "plain", "annotator": "ann"}
    api.send("POST", f"{iteration}/labelling/{first}", json=said)
    by_bob = api.send("POST", f"{iteration}/labelling/{first}", json={**said, "note": "", "annotator": "bob"})
    assert by_bob["progress"]["settled"] == 1
    sample = api.get(f"{iteration}/samples/human")
    assert (sample["settled"], sample["annotators"]) == (1, {"ann": 1, "bob": 1})
    annotations = api.get(f"{QUESTIONS_OF}/{first}")["annotations"]
    assert [(row["annotator"], row["note"]) for row in annotations] == [("ann", "plain"), ("bob", "")]
    points = api.get(f"/runs/{RUN}/series", name="label_accuracy", oracle="human", over="all")
    assert [point["n"] for point in points] == [1]
    [agreed] = api.get(f"/runs/{RUN}/agreement")["annotators"]
    assert api.get(f"/runs/{RUN}/audits")["annotators"] == [agreed]
    assert (agreed["first"], agreed["second"]) == ("ann", "bob")


def test_an_answer_that_is_not_json_is_an_error_of_the_client() -> None:
    """As from a portal that asks for a password in front of every server."""

    class Portal(Handler):
        def do_GET(self) -> None:
            self.answer(200, b"<html>sign in</html>")

    with listening(Portal) as url, pytest.raises(ApiError, match="JSON"):
        Client(url).get(f"/runs/{RUN}")


def test_an_administrator_can_add_list_and_revoke_keys(filled: Store, tmp_path: Path) -> None:
    admin = new_key(filled, "boss", ["admin"])
    with served(create_app(filled, tmp_path, ask_for_keys=True)) as url:
        boss = Client(url, key=admin)
        ann_s = {"name": "ann@example.org", "scopes": ["read", "label"]}
        ann = Client(url, key=boss.send("POST", "/keys", json=ann_s)["key"])
        assert [run["name"] for run in ann.items("/runs")] == [RUN]
        keys = [(key["name"], key["scopes"]) for key in boss.get("/keys")]
        assert keys == [("boss", ["admin"]), ("ann@example.org", ["read", "label"])]
        with pytest.raises(ApiError, match=r"HTTP 409: key 'ann@example\.org'"):
            boss.send("POST", "/keys", json=ann_s)
        with pytest.raises(ApiError, match=r"HTTP 403: .*admin.*read, label"):
            ann.get("/keys")
        assert boss.send("DELETE", "/keys/ann@example.org")["revoked_at"] is not None
        with pytest.raises(ApiError, match=r"HTTP 401: .*revoked"):
            list(ann.items("/runs"))
        with pytest.raises(ApiError, match=r"HTTP 404: key 'ann@example\.org'"):
            boss.send("DELETE", "/keys/ann@example.org")
        for name, scopes, field in [("no/name", ["read"], "name"), ("zoe", ["all"], "scopes"), ("zoe", [], "scopes")]:
            with pytest.raises(ApiError, match=f"HTTP 422: body.{field}"):
                boss.send("POST", "/keys", json={"name": name, "scopes": scopes})
        assert len(boss.get("/keys")) == 2
