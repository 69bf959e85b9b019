"""The REST API on real databases: what each route answers, and how it refuses."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from api_examples import MADE, ODD, RUN, SHOWN, fill
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from core.settings.config import CoEvolution
from core.settings.parsing import parse_config
from core.statistics.estimates import wilson
from core.types import LabelledQuestion, Question, Rollout, question_id
from services.api.app import PREFIX, create_app
from services.oracles.samples import draw_sample
from storage import queries
from storage.rows import AnnotationRow, PoolRow
from storage.session import Store
from storage.texts import TextWriter

ITERATION = f"/runs/{RUN}/iterations/1"


@pytest.fixture
def api(store: Store, tmp_path: Path) -> TestClient:
    fill(store)
    return TestClient(create_app(store, tmp_path, ask_for_keys=False), "http://localhost", raise_server_exceptions=True)


def get(api: TestClient, path: str, **parameters: Any) -> Any:
    response = api.get(PREFIX + path, params=parameters)
    assert response.status_code == 200, response.text
    return response.json()


def test_runs(api: TestClient, store: Store) -> None:
    [run] = get(api, "/runs")["items"]
    assert (run["name"], run["preset"], run["status"], run["iterations"]) == (RUN, "demo", "created", 2)
    assert get(api, f"/runs/{RUN}")["config"]["dataset"]["votes"] == 10
    with store.write() as session:
        config = queries.runs.get_run(session, RUN).config
        for name in ("a", "b"):
            queries.runs.create_run(session, name=name, config=parse_config(config, "a test"))
    first = get(api, "/runs", limit=2)
    rest = get(api, "/runs", limit=2, after=first["next"])
    assert ([each["name"] for each in first["items"] + rest["items"]], rest["next"]) == (["b", "a", RUN], None)


def test_stages_and_their_times(api: TestClient) -> None:
    first, second = get(api, f"/runs/{RUN}/stages")
    assert (first["stage"], second["stage"]) == ("label_questions", "evaluate")
    assert (second["iteration"], second["status"], second["attempt"]) == (1, "done", 1)
    assert second["seconds"] >= 0


def test_iterations_and_what_became_of_them(api: TestClient, store: Store) -> None:
    with store.write() as session:
        for stage, lease in (("read_prompts", 0), ("generate_questions", 60)):
            queries.ledger.claim_stage(session, run=RUN, iteration=2, stage=stage, owner="me", lease_seconds=lease)
    first, second = get(api, f"/runs/{RUN}/iterations")
    assert (first["iteration"], first["questions"], first["now"]) == (1, 5, None)
    assert (first["kept"]["value"], first["kept"]["n"], first["mean_p_hat"]) == (0.4, 5, 0.625)
    assert [stage["stage"] for stage in first["stages"]] == ["label_questions", "evaluate"]
    assert first["seconds"] == pytest.approx(sum(stage["seconds"] for stage in first["stages"]))
    # The first of the second iteration was cut off: its lease has run out.
    assert [stage["status"] for stage in second["stages"]] == ["running", "running"]
    assert (second["now"], second["questions"], second["kept"]) == ("generate_questions", None, None)


def test_questions_filtered_sorted_and_in_pages(api: TestClient) -> None:
    every = get(api, f"{ITERATION}/questions")
    assert [each["text"] for each in every["items"]] == [asked and asked.replace(ODD, SHOWN) for asked, *_ in MADE]
    assert every["next"] is None
    first = every["items"][0]
    assert (first["verdict"], first["answer"], first["votes"], first["m"], first["p_hat"]) == ("kept", "3", 2, 4, 0.5)
    assert (first["denominator"], first["parsed"]) == ("all", 4)
    verdict = {"question_id": f"{RUN}/1/000000", "oracle": "exact", "verdict": "right", "truth": "3"}
    assert first["oracles"] == [verdict]
    malformed = every["items"][3]
    assert (malformed["verdict"], malformed["p_hat"], malformed["oracles"]) == ("malformed", None, [])

    def indices(**wanted: Any) -> list[int]:
        return [each["index"] for each in get(api, f"{ITERATION}/questions", **wanted)["items"]]

    assert indices(verdict=["kept", "too_easy"]) == [0, 1, 2]
    assert indices(sort="-p_hat") == [2, 1, 0, 4]
    assert indices(p_hat_min=0.5, p_hat_max=0.75) == [0, 1]
    assert indices(text="<B>7") == [4]
    assert indices(oracle="exact", oracle_verdict="right") == [0, 2]
    page = get(api, f"{ITERATION}/questions", sort="p_hat", limit=3)
    rest = get(api, f"{ITERATION}/questions", sort="p_hat", limit=3, after=page["next"])
    assert [each["index"] for each in page["items"] + rest["items"]] == [4, 0, 1, 2]
    [later] = get(api, f"/runs/{RUN}/iterations/2/questions")["items"]
    assert (later["text"], later["verdict"]) == ("later", None)


def test_one_question_with_every_vote(api: TestClient) -> None:
    found = get(api, f"{ITERATION}/questions/1")
    assert [vote["answer"] for vote in found["rollouts"]] == ["3", "3", "3", "4"]
    assert found["rollouts"][0] == {
        "question_id": f"{RUN}/1/000001",
        "sample_index": 0,
        "answer": "3",
        "in_class": 0,
        "tokens": 7,
        "finish_reason": "stop",
        "mean_entropy": 0.25,
        "entropy_error": 0.0,
        "checkpoint": f"{RUN}/base/0",
        "seed": "0",
    }
    assert found["classes"] == [{"answer": "3", "votes": 3}, {"answer": "4", "votes": 1}]
    assert [vote["in_class"] for vote in found["rollouts"]] == [0, 0, 0, 1]
    assert get(api, f"{ITERATION}/questions/1/votes/3")["in_class"] == 1
    assert (found["raw"], found["checkpoint"]) == ("<question>What is 3 + 4?</question>", f"{RUN}/base/0")
    assert get(api, f"{ITERATION}/questions/3")["rollouts"] == []


def test_what_a_model_wrote_is_shown_whatever_characters_are_in_it(store: Store, tmp_path: Path) -> None:
    """Lone surrogates, which no UTF-8 has, by every route that has such texts."""
    fill(store)
    odd, exports = len(MADE) - 1, tmp_path / "exports"
    key, asked, wrong = question_id(RUN, 1, odd), f"What is <b>7</b> of 8?{SHOWN}", f"4{SHOWN}"
    writer = TextWriter(tmp_path, RUN, 1, "label_questions")
    writer.add(0, [Rollout(key, 3, f"so{ODD}", f"4{ODD}", 7, "stop", 0.25, 0.0, f"{RUN}/base/0", 3)])
    writer.finish()
    draw_sample(store, RUN, 1, "human", 4)
    with store.write() as session:
        for index in range(odd):  # who labels has seen all but this one
            said = AnnotationRow(question_id(RUN, 1, index), "ann", "unknown", "", datetime.now(UTC))
            queries.audits.add_annotation(session, said)
        place = {"run": RUN, "iteration": 2, "stage": "generate_questions", "owner": "me"}
        queries.ledger.claim_stage(session, **place, lease_seconds=60)
        queries.ledger.fail_stage(session, **place, error=f"a reply of{ODD}")
    api = TestClient(create_app(store, exports, ask_for_keys=False, texts=tmp_path), "http://localhost")
    assert get(api, f"{ITERATION}/questions", text="<b>7")["items"][0]["answer"] == f"3{SHOWN}"
    detail = get(api, f"{ITERATION}/questions/{odd}")
    assert (detail["text"], detail["raw"]) == (asked, f"<question>{asked}</question>")
    assert (detail["classes"][0]["answer"], detail["rollouts"][3]["answer"]) == (f"3{SHOWN}", wrong)
    [cluster] = get(api, f"{ITERATION}/clusters")
    assert cluster["example"] == asked
    vote = get(api, f"{ITERATION}/questions/{odd}/votes/3")
    assert (vote["text"], vote["answer"]) == (f"so{SHOWN}", wrong)
    following = get(api, f"{ITERATION}/labelling/next", annotator="ann")["question"]
    assert (following["text"], following["label"], following["answers"]) == (asked, f"3{SHOWN}", [f"3{SHOWN}", wrong])
    assert get(api, f"/runs/{RUN}/stages")[-1]["error"] == get(api, f"/runs/{RUN}/iterations")[-1]["stages"][0]["error"]


def test_a_seed_is_text_since_json_numbers_have_fewer_bits(store: Store, tmp_path: Path) -> None:
    largest = 2**63 - 1
    with store.write() as session:
        queries.runs.create_run(session, name=RUN, config=CoEvolution(seed=largest))
    api = TestClient(create_app(store, tmp_path, ask_for_keys=False), "http://localhost")
    assert get(api, f"/runs/{RUN}")["seed"] == str(largest)
    assert get(api, "/runs")["items"][0]["seed"] == str(largest)


def test_statistics_and_the_histogram(api: TestClient) -> None:
    found = get(api, f"{ITERATION}/statistics")
    assert found["verdicts"] == {"kept": 2, "too_easy": 1, "malformed": 1, "too_hard": 1}
    lo, hi = wilson(2, 5) or (0, 0)
    assert found["kept"] == pytest.approx({"value": 0.4, "lo": lo, "hi": hi, "n": 5})
    assert found["mean_p_hat"] == pytest.approx((0.5 + 0.75 + 1 + 0.25) / 4)
    assert [(each["p_hat"], each["verdict"], each["questions"]) for each in found["histogram"]] == [
        (0.25, "too_hard", 1),
        (0.5, "kept", 1),
        (0.75, "kept", 1),
        (1.0, "too_easy", 1),
    ]


def test_evaluations_metrics_and_the_pool(api: TestClient) -> None:
    [found] = get(api, f"/runs/{RUN}/evaluations")
    assert (found["checkpoint"], found["benchmark"], found["samples"]) == (f"{RUN}/solver/1", "micro", 8)
    assert (found["pass_at_1"]["value"], found["pass_at_1"]["n"]) == (pytest.approx(0.375), 4)  # 0, 2, 4, 6 of 8
    assert (found["greedy"]["value"], found["majority"]["value"]) == (0.5, 0.75)
    assert [(each["name"], each["value"]) for each in get(api, f"/runs/{RUN}/metrics", role="solver")] == [
        ("kl", None),
        ("reward_mean", 0.5),
    ]
    assert get(api, f"/runs/{RUN}/metrics", name="nosuch") == []
    assert get(api, f"/runs/{RUN}/training-labels") == []  # its labels were made before
    assert get(api, "/pool") == []


def test_checkpoints_and_where_they_come_from(api: TestClient) -> None:
    assert [each["id"] for each in get(api, f"/runs/{RUN}/checkpoints")] == [f"{RUN}/base/0", f"{RUN}/solver/1"]
    solver = get(api, f"/runs/{RUN}/checkpoints/solver/1")
    assert ([each["id"] for each in solver["ancestors"]], solver["children"]) == ([f"{RUN}/base/0"], [])
    base = get(api, f"/runs/{RUN}/checkpoints/base/0")
    assert ([each["id"] for each in base["children"]], base["manifest"]) == (
        [f"{RUN}/solver/1"],
        {"model.safetensors": "00"},
    )
    assert base["descendants"] == base["children"]


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("/runs/nobody", 404, "run nobody: no such run; the store has demo"),
        ("/runs/nobody/series", 404, "run nobody: no such run"),
        (f"{ITERATION}/questions/99", 404, f"question '{RUN}/1/000099': no question has this id"),
        (f"/runs/{RUN}/checkpoints/solver/7", 404, f"checkpoint {RUN}/solver/7: no such checkpoint"),
        (f"{ITERATION}/questions?limit=201", 422, "query.limit: Input should be less than or equal to 200"),
        (f"{ITERATION}/questions?verdict=nice", 422, "query.verdict.0: Input should be 'kept'"),
        (f"{ITERATION}/questions?p_hat_min=nan", 422, "query.p_hat_min: Input should be a finite number"),
        (f"{ITERATION}/questions?colour=red", 422, "query.colour: Extra inputs are not permitted"),
        (f"{ITERATION}/questions?after=%00x", 400, "after: expected `next` of a page in the same order"),
        (f"{ITERATION}/questions?after=WzAuNSwxXQ", 400, "after: expected `next` of a page in the same order"),
        (f"{ITERATION}/questions?sort=p_hat&after=WzAuNSwgMC41XQ", 400, "after: expected `next`"),
        (f"{ITERATION}/questions?after=WzFlOTk5XQ", 400, "after: expected `next`"),
        ("/runs?after=WzFlMzAsICJkZW1vIl0", 400, "after: expected `next` of a previous page"),  # [1e30, "demo"]
        ("/runs?after=nobody", 400, "after: expected `next` of a previous page, got 'nobody'"),
        ("/runs/%00", 422, "path.run: String should match pattern"),
        ("/runs/demo/iterations/99999999999/questions", 422, "path.iteration: Input should be less than or equal to"),
        ("/nothing", 404, "Not Found"),
    ],
)
def test_what_cannot_be_answered_is_said_as_a_problem(api: TestClient, path: str, status: int, detail: str) -> None:
    response = api.get(PREFIX + path)
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (response.status_code, problem["status"]) == (status, status)
    assert detail in problem["detail"]
    if status == 422:
        assert problem["errors"][0]["field"] == problem["detail"].split(": ")[0]


def test_a_database_that_does_not_answer_is_no_secret_of_ours(sqlite: Store, tmp_path: Path) -> None:
    with sqlite.write() as session:
        session.execute(text("DROP TABLE pool_jobs"))
    response = TestClient(create_app(sqlite, tmp_path, ask_for_keys=False), "http://localhost").get(f"{PREFIX}/pool")
    assert (response.status_code, response.headers["content-type"]) == (503, "application/problem+json")
    assert response.json()["detail"] == "the database did not answer; the reason is in the API's log"


def test_a_process_without_a_free_connection_says_so(
    sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_connection(_session: object) -> list[PoolRow]:
        raise PoolTimeoutError("QueuePool limit of size 20 overflow 0 reached")

    monkeypatch.setattr(queries.pool, "pool_jobs", no_connection)
    response = TestClient(create_app(sqlite, tmp_path, ask_for_keys=False), "http://localhost").get(f"{PREFIX}/pool")
    assert response.status_code == 503
    assert response.json()["detail"] == "the database did not answer; the reason is in the API's log"


def test_what_nobody_foresaw_is_a_problem_too_and_its_traceback_in_the_log(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store)
    (tmp_path / "exports").write_text("a file where a folder should be")
    api = TestClient(
        create_app(store, tmp_path / "exports", ask_for_keys=False), "http://localhost", raise_server_exceptions=False
    )
    response = api.get(f"{PREFIX}{ITERATION}/exports/jsonl")
    assert (response.status_code, response.headers["content-type"]) == (500, "application/problem+json")
    assert response.json() == {
        "type": "about:blank",
        "title": "Internal Server Error",
        "status": 500,
        "detail": "unexpected error; its traceback is in the API's log",
        "errors": [],
    }
    assert f"GET {PREFIX}{ITERATION}/exports/jsonl: unexpected error" in caplog.text
    assert "NotADirectoryError" in caplog.text


def test_an_export_that_somebody_deleted_is_made_anew(api: TestClient, tmp_path: Path) -> None:
    path = f"{PREFIX}{ITERATION}/exports/jsonl"
    first = api.get(path)
    for name in ("demo-1-all-*.jsonl", "demo-1-all-*.manifest.json"):
        [file] = tmp_path.rglob(name)
        file.unlink()
        again = api.get(path)
        assert (again.status_code, again.content, again.headers["etag"]) == (200, first.content, first.headers["etag"])
        assert file.exists()


def test_exports_are_files_with_a_manifest(api: TestClient) -> None:
    path = f"{PREFIX}{ITERATION}/exports"
    whole = api.get(f"{path}/jsonl")
    manifest = get(api, f"{ITERATION}/exports/jsonl/manifest")
    assert hashlib.sha256(whole.content).hexdigest() == manifest["sha256"] == whole.headers["etag"].strip('"')
    assert whole.headers["content-disposition"].startswith('attachment; filename="demo-1-all-')
    assert (manifest["rows"], manifest["bytes"]) == (len(MADE), len(whole.content))
    rest = api.get(f"{path}/jsonl", headers={"Range": "bytes=100-", "If-Range": whole.headers["etag"]})
    assert (rest.status_code, rest.content) == (206, whole.content[100:])
    assert [json.loads(line)["index"] for line in api.get(f"{path}/jsonl?only=kept").text.splitlines()] == [0, 1]
    later = api.get(f"{PREFIX}/runs/{RUN}/iterations/2/exports/csv")
    assert (later.status_code, later.json()["detail"]) == (
        409,
        "run demo, iteration 2: its questions are not all labelled yet",
    )
    assert api.get(f"{PREFIX}/runs/nobody/iterations/2/exports/csv").status_code == 404


def test_prompts_that_nobody_votes_on_are_exported_and_have_nothing_to_audit(api: TestClient, store: Store) -> None:
    with store.write() as session:
        queries.runs.create_run(session, name="given", config=CoEvolution())
        prompt = Question(question_id("given", 0, 0), "given", 0, 0, "What is 1 + 2?", "What is 1 + 2?", None, 0, "3")
        queries.questions.add_questions(session, [prompt])
        queries.questions.add_labels(session, [LabelledQuestion(prompt.id, prompt.text, None, "kept")])
        place = {"run": "given", "iteration": 0, "stage": "read_prompts", "owner": "me"}
        queries.ledger.claim_stage(session, **place, lease_seconds=60)
        queries.ledger.finish_stage(session, **place, result={})
    [row] = map(json.loads, api.get(f"{PREFIX}/runs/given/iterations/0/exports/jsonl").text.splitlines())
    assert (row["question"], row["verdict"], row["answer"], row["p_hat"]) == ("What is 1 + 2?", "kept", None, None)
    refused = api.post(f"{PREFIX}/runs/given/iterations/0/samples", json={"oracle": "human", "size": 1})
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "run given, iteration 0: no question has a pseudo-label to be audited",
    )


def test_the_description_names_every_error(store: Store, tmp_path: Path) -> None:
    described = create_app(store, tmp_path, ask_for_keys=True).openapi()
    for path, methods in described["paths"].items():
        if path.startswith(PREFIX):
            for method in methods.values():
                assert {"401", "403", "422"} <= method["responses"].keys(), path
                assert {"200", "201", "202"} & method["responses"].keys(), path
                assert method["summary"]
                assert method["description"]
