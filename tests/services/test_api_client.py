"""The typed client against a served API: what a program does with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from api_examples import MADE, RUN, alert, fill
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from core.types import OracleLabel, question_id
from services.api.app import create_app
from services.api.client import ApiClient, ApiError
from services.api.keys import new_key
from storage import queries
from storage.session import Store
from tests.api_server import served


@pytest.fixture
def filled(sqlite: Store) -> Store:
    fill(sqlite)
    with sqlite.write() as session:
        queries.alerts.add_alerts(session, [alert("0123456789abcdef")])
    return sqlite


@pytest.fixture
def api(filled: Store, tmp_path: Path) -> Iterator[ApiClient]:
    with served(create_app(filled, tmp_path, ask_for_keys=False)) as url:
        yield ApiClient(url)


def test_reading_a_run(api: ApiClient) -> None:
    assert [run.name for run in api.runs()] == [RUN]
    assert [question.index for question in api.questions(RUN, 1, sort="-p_hat", limit=2)] == [2, 1, 0, 4]  # two pages
    detail = api.question(RUN, 1, 1)
    assert (len(detail.rollouts), detail.annotations, detail.cluster) == (4, [], None)
    [labelled, _] = api.iterations(RUN)[0].stages
    assert labelled.stage == "label_questions"


def test_reading_what_made_a_run(api: ApiClient) -> None:
    assert api.run(RUN).config["dataset"]["votes"] == 10
    assert [stage.stage for stage in api.stages(RUN)] == ["label_questions", "evaluate"]
    assert [(each.number, each.size) for each in api.clusters(RUN, 1)] == [(0, 1)]
    vote = api.vote(RUN, 1, 1, 3)
    assert (vote.sample_index, vote.answer, vote.text) == (3, "4", None)
    base, solver = api.checkpoints(RUN)
    detail = api.checkpoint(RUN, "base", 0)
    assert (detail.checkpoint, detail.children, detail.descendants) == (base, [solver], [solver])
    [evaluation] = api.evaluations(RUN)
    assert (evaluation.checkpoint, evaluation.samples) == (solver.id, 8)
    assert [(each.name, each.value) for each in api.metrics(RUN, role="solver", name="kl")] == [("kl", None)]
    assert api.pool() == []


def test_an_export_is_written_whole(api: ApiClient, tmp_path: Path) -> None:
    to = tmp_path / "rows.jsonl"
    manifest = api.export(RUN, 1, "jsonl", to, "kept")
    assert manifest == api.manifest(RUN, 1, "jsonl", "kept")
    assert (manifest.rows, manifest.bytes) == (2, to.stat().st_size)
    assert [json.loads(line)["index"] for line in to.read_text().splitlines()] == [0, 1]
    with pytest.raises(ApiError, match="HTTP 409: run demo, iteration 2: its questions are not all labelled yet"):
        api.export(RUN, 2, "jsonl", tmp_path / "none.jsonl")
    assert not (tmp_path / "none.jsonl").exists()


def test_an_export_that_broke_off_goes_on_where_it_was(filled: Store, tmp_path: Path) -> None:
    breaking = Breaking(create_app(filled, tmp_path / "exports", ask_for_keys=False))
    broken, whole = tmp_path / "broken.jsonl", tmp_path / "whole.jsonl"
    with served(breaking) as url:
        api = ApiClient(url)
        breaking.after = 100
        with pytest.raises(ApiError, match="no answer from the API"):
            api.export(RUN, 1, "jsonl", broken)
        assert not broken.exists()
        [part] = tmp_path.glob("broken.jsonl.*.part")
        assert part.stat().st_size == 100
        api.export(RUN, 1, "jsonl", broken)
        api.export(RUN, 1, "jsonl", whole)
    assert breaking.ranges == [None, "bytes=100-", None]
    assert broken.read_bytes() == whole.read_bytes()
    assert list(tmp_path.glob("*.part")) == []


def test_a_part_of_an_older_export_is_none_of_the_new_one(filled: Store, tmp_path: Path) -> None:
    breaking, to = Breaking(create_app(filled, tmp_path / "exports", ask_for_keys=False)), tmp_path / "rows.jsonl"
    with served(breaking) as url:
        api = ApiClient(url)
        breaking.after = 100
        with pytest.raises(ApiError):
            api.export(RUN, 1, "jsonl", to)
        with filled.write() as session:
            queries.questions.add_oracle_labels(session, [OracleLabel(question_id(RUN, 1, 0), "human", "right", None)])
        manifest = api.export(RUN, 1, "jsonl", to)
    assert breaking.ranges == [None, None]
    assert hashlib.sha256(to.read_bytes()).hexdigest() == manifest.sha256
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize("has", [b"x" * 5_000, b"x" * 10])  # more than there is, and as many bytes as there are not
def test_a_part_that_is_none_is_not_taken(api: ApiClient, tmp_path: Path, has: bytes) -> None:
    to = tmp_path / "rows.jsonl"
    part = tmp_path / f"rows.jsonl.{api.manifest(RUN, 1, 'jsonl').sha256}.part"
    part.write_bytes(has)
    if len(has) < 100:
        with pytest.raises(ApiError, match=r"rows\.jsonl: expected the sha256 [0-9a-f]{64}, got"):
            api.export(RUN, 1, "jsonl", to)
        assert not to.exists()
    api.export(RUN, 1, "jsonl", to)
    assert len(to.read_text().splitlines()) == len(MADE)


class Breaking:
    """The API, whose next export breaks off `after` so many bytes, once; and what ranges it was asked for."""

    def __init__(self, app: FastAPI) -> None:
        self.app, self.after, self.ranges = app, 0, list[str | None]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope.get("path", "").endswith("/exports/jsonl"):
            return await self.app(scope, receive, send)
        self.ranges.append(Headers(scope=scope).get("range"))

        async def cut(message: Message) -> None:
            if self.after and message["type"] == "http.response.body":
                await send({**message, "body": message["body"][: self.after], "more_body": True})
                self.after = 0
                raise ConnectionResetError
            await send(message)

        await self.app(scope, receive, cut)


def test_auditing_by_hand(api: ApiClient) -> None:
    assert api.next_to_label(RUN, 1, "ann").question is None
    assert api.draw(RUN, 1, 4).drawn == 4
    first = api.next_to_label(RUN, 1, "ann").question
    assert first is not None
    api.say(RUN, 1, first.index, "right", "ann", "plain")
    assert api.say(RUN, 1, first.index, "right", "bob").progress.settled == 1
    sample = api.sample(RUN, 1)
    assert (sample.settled, sample.annotators) == (1, {"ann": 1, "bob": 1})
    assert [(said.annotator, said.note) for said in api.question(RUN, 1, first.index).annotations] == [
        ("ann", "plain"),
        ("bob", ""),
    ]
    assert [point.n for point in api.series(RUN, name="label_accuracy", oracle="human", over="all")] == [1]
    [agreed] = api.agreement(RUN).annotators
    assert api.audits(RUN).annotators == [agreed]
    assert (agreed.first, agreed.second) == ("ann", "bob")


def test_an_alert_is_acknowledged_once(api: ApiClient) -> None:
    [found] = api.alerts(RUN, acknowledged=False)
    assert api.acknowledge(found.id, "ann", "seen").acknowledged_by == "ann"
    assert list(api.alerts(acknowledged=False)) == []
    assert api.alert(found.id).deliveries == []
    with pytest.raises(ApiError, match="HTTP 409"):
        api.acknowledge(found.id, "bob")


def test_what_is_not_there_is_said_in_the_apis_words(api: ApiClient) -> None:
    with pytest.raises(ApiError, match="HTTP 404: run nobody: no such run"):
        api.statistics("nobody", 1)
    with pytest.raises(ApiError, match=r"HTTP 422: body\.preset: expected one of none, got demo"):
        api.create_run("new", "demo")


def test_administering_keys(filled: Store, tmp_path: Path) -> None:
    admin = new_key(filled, "boss", ["admin"])
    with served(create_app(filled, tmp_path, ask_for_keys=True)) as url:
        boss = ApiClient(url, key=admin)
        made = boss.add_key("ann@example.org", ["read", "label"])
        ann = ApiClient(url, key=made.key)
        assert [run.name for run in ann.runs()] == [RUN]
        assert [(key.name, key.scopes) for key in boss.api_keys()] == [
            ("boss", ["admin"]),
            ("ann@example.org", ["read", "label"]),
        ]
        with pytest.raises(ApiError, match=r"HTTP 409: key 'ann@example\.org': there is one of this name already"):
            boss.add_key("ann@example.org")
        with pytest.raises(ApiError, match=r"HTTP 403: .* needs the scope admin, the key has read, label"):
            ann.api_keys()
        assert boss.revoke_key("ann@example.org").revoked_at is not None
        with pytest.raises(ApiError, match=r"HTTP 401: .* was revoked"):
            list(ann.runs())
        with pytest.raises(ApiError, match=r"HTTP 404: key 'ann@example\.org': there is none"):
            boss.revoke_key("ann@example.org")
        for name, scopes, field in [("no/name", ["read"], "name"), ("zoe", ["all"], "scopes"), ("zoe", [], "scopes")]:
            with pytest.raises(ApiError, match=f"HTTP 422: body.{field}"):
                boss.add_key(name, cast(Any, scopes))
        assert len(boss.api_keys()) == 2
