"""A program's use of the typed client, with a served API."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from api_examples import QUESTIONS, RUN, alert, fill
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from core.settings.config import CoEvolution
from core.types import OracleLabel, question_id
from services.api.access.keys import new_key
from services.api.app import create_app
from services.api.client import ApiClient, ApiError
from storage import queries
from storage.rows import ExperimentRun
from storage.session import Store
from tests.api_server import served
from tests.http_server import Handler, listening


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


def test_the_client_reads_a_run_s_questions_and_stages(api: ApiClient) -> None:
    assert [run.name for run in api.runs()] == [RUN]
    # The client reads two pages.
    assert [question.index for question in api.questions(RUN, 1, sort="-p_hat", limit=2)] == [
        2,
        1,
        0,
        4,
    ]
    detail = api.question(RUN, 1, 1)
    assert (len(detail.rollouts), detail.annotations, detail.cluster) == (4, [], None)
    [labelled, _] = api.iterations(RUN)[0].stages
    assert labelled.stage == "label_questions"


def test_the_client_reads_a_run_s_configuration_votes_checkpoints_and_metrics(api: ApiClient) -> None:
    assert api.run(RUN).config["dataset"]["votes"] == 10
    assert [stage.stage for stage in api.stages(RUN)] == ["label_questions", "evaluate"]
    assert [(cluster.number, cluster.size) for cluster in api.clusters(RUN, 1)] == [(0, 1)]
    vote = api.vote(RUN, 1, 1, 3)
    assert (vote.sample_index, vote.answer, vote.text) == (3, "4", None)
    base, solver = api.checkpoints(RUN)
    detail = api.checkpoint(RUN, "base", 0)
    assert (detail.checkpoint, detail.children, detail.descendants) == (base, [solver], [solver])
    [evaluation] = api.evaluations(RUN)
    assert (evaluation.checkpoint, evaluation.samples) == (solver.id, 8)
    assert [(metric.name, metric.value) for metric in api.metrics(RUN, role="solver", name="kl")] == [("kl", None)]
    assert api.pool() == []


def test_an_export_is_written_completely_or_not_at_all(api: ApiClient, tmp_path: Path) -> None:
    target = tmp_path / "rows.jsonl"
    manifest = api.export(RUN, target, verdict=["kept"])
    assert manifest == api.manifest(RUN, verdict=["kept"])
    assert (manifest.rows, manifest.bytes) == (2, target.stat().st_size)
    assert [json.loads(line)["index"] for line in target.read_text().splitlines()] == [0, 1]
    with pytest.raises(ApiError, match="HTTP 409: run demo, iteration 2: its questions are not all labelled yet"):
        api.export(RUN, tmp_path / "none.jsonl", iterations=2)
    assert not (tmp_path / "none.jsonl").exists()


def test_an_export_of_several_runs_or_of_an_experiment_is_one_file(
    api: ApiClient, filled: Store, tmp_path: Path
) -> None:
    with filled.write() as session:
        queries.runs.create_run(session, name="later", config=CoEvolution())
        queries.experiments.add_run(session, ExperimentRun(RUN, "ablation", "ours", 0, 1))
    one, several = api.export(RUN, tmp_path / "one.jsonl"), api.export([RUN, "later"], tmp_path / "several.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "several.jsonl").read_text().splitlines()]
    place = {"experiment": "ablation", "arm": "ours", "run_seed": str(several.runs[0].run_seed)}
    assert rows == [{**place, **json.loads(line)} for line in (tmp_path / "one.jsonl").read_text().splitlines()]
    assert ([run.run for run in several.runs], several.left_out, several.rows) == ([RUN], ["later"], one.rows)
    experiment = api.export(None, tmp_path / "kept.parquet", experiment="ablation", verdict=["kept"], format="parquet")
    assert (experiment.rows, experiment.runs[0].arm) == (2, "ours")
    for runs, parameters, words in (
        ([RUN, "nobody"], {}, "HTTP 404: run nobody: no such run"),
        (None, {"experiment": "none"}, "HTTP 404: experiment none: no such experiment"),
        (None, {}, "HTTP 422: query.run: expected runs or an experiment, got neither"),
        ([RUN], {"experiment": "ablation"}, "HTTP 422: query.run: expected runs or an experiment, got both"),
        (["later"], {}, "HTTP 409: runs later: "),
        ([RUN, "later"], {"iterations": "1"}, "HTTP 409: run later, iteration 1: "),
    ):
        with pytest.raises(ApiError, match=words):
            api.export(runs, tmp_path / "none.jsonl", **parameters)
    assert not (tmp_path / "none.jsonl").exists()


def test_an_interrupted_export_resumes_where_it_stopped(filled: Store, tmp_path: Path) -> None:
    interrupting = Interrupting(create_app(filled, tmp_path / "exports", ask_for_keys=False))
    broken, whole = tmp_path / "broken.jsonl", tmp_path / "whole.jsonl"
    with served(interrupting) as url:
        api = ApiClient(url)
        interrupting.interrupt_after = 100
        with pytest.raises(ApiError, match="no answer from the API"):
            api.export(RUN, broken)
        assert not broken.exists()
        [part] = tmp_path.glob("broken.jsonl.*.part")
        assert part.stat().st_size == 100
        api.export(RUN, broken)
        api.export(RUN, whole)
    assert interrupting.ranges == [None, "bytes=100-", None]
    assert broken.read_bytes() == whole.read_bytes()
    assert list(tmp_path.glob("*.part")) == []


def test_a_part_of_an_older_export_is_not_used_for_a_new_one(filled: Store, tmp_path: Path) -> None:
    interrupting, target = (
        Interrupting(create_app(filled, tmp_path / "exports", ask_for_keys=False)),
        tmp_path / "rows.jsonl",
    )
    with served(interrupting) as url:
        api = ApiClient(url)
        interrupting.interrupt_after = 100
        with pytest.raises(ApiError):
            api.export(RUN, target)
        with filled.write() as session:
            queries.questions.add_oracle_labels(session, [OracleLabel(question_id(RUN, 1, 0), "human", "right", None)])
        manifest = api.export(RUN, target)
    assert interrupting.ranges == [None, None]
    assert hashlib.sha256(target.read_bytes()).hexdigest() == manifest.sha256
    assert list(tmp_path.glob("*.part")) == []


@pytest.mark.parametrize("content", [b"x" * 5_000, b"x" * 10])  # more bytes than the export has, and fewer
def test_a_damaged_part_is_not_used(api: ApiClient, tmp_path: Path, content: bytes) -> None:
    target = tmp_path / "rows.jsonl"
    part = tmp_path / f"rows.jsonl.{api.manifest(RUN).sha256}.part"
    part.write_bytes(content)
    if len(content) < 100:
        with pytest.raises(ApiError, match=r"rows\.jsonl: expected the sha256 [0-9a-f]{64}, got"):
            api.export(RUN, target)
        assert not target.exists()
    api.export(RUN, target)
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


def test_the_client_draws_a_sample_and_labels_it(api: ApiClient) -> None:
    assert api.next_to_label(RUN, 1, "ann").question is None
    assert api.draw(RUN, 1, 4).drawn == 4
    first = api.next_to_label(RUN, 1, "ann").question
    assert first is not None
    api.say(RUN, 1, first.index, "right", "ann", "plain")
    assert api.say(RUN, 1, first.index, "right", "bob").progress.settled == 1
    sample = api.sample(RUN, 1)
    assert (sample.settled, sample.annotators) == (1, {"ann": 1, "bob": 1})
    assert [(row.annotator, row.note) for row in api.question(RUN, 1, first.index).annotations] == [
        ("ann", "plain"),
        ("bob", ""),
    ]
    assert [point.n for point in api.series(RUN, name="label_accuracy", oracle="human", over="all")] == [1]
    [agreed] = api.agreement(RUN).annotators
    assert api.audits(RUN).annotators == [agreed]
    assert (agreed.first, agreed.second) == ("ann", "bob")


def test_an_alert_is_acknowledged_once(api: ApiClient) -> None:
    [alert_row] = api.alerts(RUN, acknowledged=False)
    assert api.acknowledge(alert_row.id, "ann", "seen").acknowledged_by == "ann"
    assert list(api.alerts(acknowledged=False)) == []
    assert api.alert(alert_row.id).deliveries == []
    with pytest.raises(ApiError, match="HTTP 409"):
        api.acknowledge(alert_row.id, "bob")


def test_the_client_s_errors_have_the_api_s_messages(api: ApiClient) -> None:
    with pytest.raises(ApiError, match="HTTP 404: run nobody: no such run"):
        api.statistics("nobody", 1)
    with pytest.raises(ApiError, match=r"HTTP 422: body\.preset: demo: no such preset; expected one of none"):
        api.create_run("new", "demo")


def test_an_answer_that_is_not_json_is_an_error_of_the_client() -> None:
    """As from a portal that asks for a password in front of every server."""

    class Portal(Handler):
        def do_GET(self) -> None:
            self.answer(200, b"<html>sign in</html>")

    with listening(Portal) as url, pytest.raises(ApiError, match="expected JSON, from a server that is not coevo's"):
        ApiClient(url).run(RUN)


def test_an_administrator_can_add_list_and_revoke_keys(filled: Store, tmp_path: Path) -> None:
    admin = new_key(filled, "boss", ["admin"])
    with served(create_app(filled, tmp_path, ask_for_keys=True)) as url:
        boss = ApiClient(url, key=admin)
        added = boss.add_key("ann@example.org", ["read", "label"])
        ann = ApiClient(url, key=added.key)
        assert [run.name for run in ann.runs()] == [RUN]
        assert [(key.name, key.scopes) for key in boss.api_keys()] == [
            ("boss", ["admin"]),
            ("ann@example.org", ["read", "label"]),
        ]
        with pytest.raises(ApiError, match=r"HTTP 409: key 'ann@example\.org': a key of this name exists already"):
            boss.add_key("ann@example.org")
        with pytest.raises(ApiError, match=r"HTTP 403: .* needs the scope admin, the key has read, label"):
            ann.api_keys()
        assert boss.revoke_key("ann@example.org").revoked_at is not None
        with pytest.raises(ApiError, match=r"HTTP 401: .* was revoked"):
            list(ann.runs())
        with pytest.raises(ApiError, match=r"HTTP 404: key 'ann@example\.org': no key of this name is in use"):
            boss.revoke_key("ann@example.org")
        for name, scopes, field in [("no/name", ["read"], "name"), ("zoe", ["all"], "scopes"), ("zoe", [], "scopes")]:
            with pytest.raises(ApiError, match=f"HTTP 422: body.{field}"):
                boss.add_key(name, cast(Any, scopes))
        assert len(boss.api_keys()) == 2
