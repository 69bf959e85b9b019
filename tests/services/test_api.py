"""The REST API on real databases: what each route answers, and how it refuses."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from api_examples import ODD, QUESTIONS, RUN, SHOWN
from fastapi.testclient import TestClient

from core.settings.config import CoEvolution
from core.settings.parsing import parse_config
from core.statistics.estimates import wilson
from core.types import LabelledQuestion, Question, Rollout, question_id
from services.api.app import PREFIX
from services.oracles.samples import draw_sample
from storage import queries
from storage.files.texts import TextWriter, texts_path
from storage.rows import AnnotationRow
from storage.session import Store
from tests.api_server import api_of, get, post, refused

ITERATION = f"/runs/{RUN}/iterations/1"


def test_runs_are_described_and_listed_in_pages(api: TestClient, store: Store) -> None:
    [run] = get(api, "/runs")["items"]
    assert (run["name"], run["preset"], run["iterations"], run["flow_run"]) == (RUN, "demo", 2, None)
    assert get(api, f"/runs/{RUN}")["config"]["dataset"]["votes"] == 10
    with store.write() as session:
        for name in ("a", "b"):
            queries.runs.create_run(session, name=name, config=CoEvolution(seed=2**63 - 1))
    first = get(api, "/runs", limit=2)
    rest = get(api, "/runs", limit=2, after=first["next"])
    assert ([item["name"] for item in first["items"] + rest["items"]], rest["next"]) == (["b", "a", RUN], None)
    # Numbers of JSON have fewer bits than a seed.
    assert {get(api, "/runs/b")["seed"], first["items"][0]["seed"]} == {str(2**63 - 1)}


def test_iterations_are_listed_with_their_figures_and_stages(api: TestClient, store: Store) -> None:
    with store.write() as session:
        queries.run_leases.claim_run(session, run=RUN, owner="me", lease_seconds=60)
        for stage, lease in (("read_prompts", 0), ("generate_questions", 60)):
            queries.ledger.claim_stage(session, run=RUN, iteration=2, stage=stage, owner="me", lease_seconds=lease)
    stages = get(api, f"/runs/{RUN}/stages")
    first, second = get(api, f"/runs/{RUN}/iterations")
    assert (first["iteration"], first["questions"], first["now"]) == (1, 5, None)
    assert (first["kept"]["value"], first["kept"]["n"], first["mean_p_hat"]) == (0.4, 5, 0.625)
    assert [stage["stage"] for stage in first["stages"]] == ["label_questions", "evaluate"]
    assert first["seconds"] == pytest.approx(sum(stage["seconds"] for stage in first["stages"]))
    assert first["seconds"] >= 0
    listed = [tuple(stage[name] for name in ("stage", "iteration", "status", "attempt")) for stage in stages]
    assert listed[:2] == [("label_questions", 1, "done", 1), ("evaluate", 1, "done", 1)]
    # The first stage of iteration 2 was cut off: its lease has expired. The second is the one that runs now.
    assert [stage["status"] for stage in second["stages"]] == ["running", "running"]
    assert (second["now"], second["questions"], second["kept"]) == ("generate_questions", None, None)


def test_questions_can_be_filtered_sorted_and_read_in_pages(api: TestClient) -> None:
    whole_page = get(api, f"{ITERATION}/questions")
    assert [row["text"] for row in whole_page["items"]] == [text and text.replace(ODD, SHOWN) for text, *_ in QUESTIONS]
    assert whole_page["next"] is None
    first = whole_page["items"][0]
    assert (first["verdict"], first["answer"], first["votes"], first["m"], first["p_hat"]) == ("kept", "3", 2, 4, 0.5)
    assert (first["denominator"], first["parsed"]) == ("all", 4)
    verdict = {"question_id": f"{RUN}/1/000000", "oracle": "exact", "verdict": "right", "truth": "3"}
    assert first["oracles"] == [verdict]
    malformed = whole_page["items"][3]
    assert (malformed["verdict"], malformed["p_hat"], malformed["oracles"]) == ("malformed", None, [])

    def indices(**parameters: Any) -> list[int]:
        return [row["index"] for row in get(api, f"{ITERATION}/questions", **parameters)["items"]]

    assert indices(verdict=["kept", "too_easy"]) == [0, 1, 2]
    assert indices(sort="-p_hat") == [2, 1, 0, 4]
    assert indices(p_hat_min=0.5, p_hat_max=0.75) == [0, 1]
    assert indices(text="<B>7") == [4]
    assert indices(oracle="exact", oracle_verdict="right") == [0, 2]
    page = get(api, f"{ITERATION}/questions", sort="p_hat", limit=3)
    rest = get(api, f"{ITERATION}/questions", sort="p_hat", limit=3, after=page["next"])
    assert [row["index"] for row in page["items"] + rest["items"]] == [4, 0, 1, 2]
    [later] = get(api, f"/runs/{RUN}/iterations/2/questions")["items"]
    assert (later["text"], later["verdict"]) == ("later", None)


def test_one_question_is_answered_with_every_vote(api: TestClient) -> None:
    question = get(api, f"{ITERATION}/questions/1")
    assert [vote["answer"] for vote in question["rollouts"]] == ["3", "3", "3", "4"]
    assert question["rollouts"][0] == {
        "question_id": f"{RUN}/1/000001",
        "sample_index": 0,
        "answer": "3",
        "in_class": 0,
        "agrees": True,
        "tokens": 7,
        "finish_reason": "stop",
        "mean_entropy": 0.25,
        "entropy_error": 0.0,
        "checkpoint": f"{RUN}/base/0",
        "seed": "0",
    }
    assert question["classes"] == [{"answer": "3", "votes": 3}, {"answer": "4", "votes": 1}]
    assert [vote["in_class"] for vote in question["rollouts"]] == [0, 0, 0, 1]
    vote = get(api, f"{ITERATION}/questions/1/votes/3")
    assert (vote["sample_index"], vote["answer"], vote["in_class"], vote["text"]) == (3, "4", 1, None)
    assert (question["raw"], question["checkpoint"]) == ("<question>What is 3 + 4?</question>", f"{RUN}/base/0")
    assert get(api, f"{ITERATION}/questions/3")["rollouts"] == []


def test_texts_of_a_model_are_answered_whatever_characters_they_contain(filled: Store, tmp_path: Path) -> None:
    """Lone surrogates, which UTF-8 cannot encode, are replaced by every route that answers with such texts."""
    odd = len(QUESTIONS) - 1
    key, shown_text, wrong_answer = question_id(RUN, 1, odd), f"What is <b>7</b> of 8?{SHOWN}", f"4{SHOWN}"
    writer = TextWriter(texts_path(tmp_path, RUN, 1, "label_questions"))
    writer.add(0, [Rollout(key, 3, f"so{ODD}", f"4{ODD}", 7, "stop", 0.25, 0.0, f"{RUN}/base/0", 3)])
    writer.finish()
    draw_sample(filled, RUN, 1, "human", 4)
    with filled.write() as session:
        for index in range(odd):  # so that the question with odd characters is the annotator's next one
            annotation = AnnotationRow(question_id(RUN, 1, index), "ann", "unknown", "", datetime.now(UTC))
            queries.audits.add_annotation(session, annotation)
        stage = {"run": RUN, "iteration": 2, "stage": "generate_questions", "owner": "me"}
        queries.ledger.claim_stage(session, **stage, lease_seconds=60)
        queries.ledger.fail_stage(session, **stage, error=f"a reply of{ODD}")
    api = api_of(filled, tmp_path / "exports", texts=tmp_path)
    assert get(api, f"{ITERATION}/questions", text="<b>7")["items"][0]["answer"] == f"3{SHOWN}"
    detail = get(api, f"{ITERATION}/questions/{odd}")
    assert (detail["text"], detail["raw"]) == (shown_text, f"<question>{shown_text}</question>")
    assert (detail["classes"][0]["answer"], detail["rollouts"][3]["answer"]) == (f"3{SHOWN}", wrong_answer)
    [cluster] = get(api, f"{ITERATION}/clusters", limit=20)
    assert (cluster["number"], cluster["size"], cluster["example"]) == (0, 1, shown_text)
    vote = get(api, f"{ITERATION}/questions/{odd}/votes/3")
    assert (vote["text"], vote["answer"]) == (f"so{SHOWN}", wrong_answer)
    next_question = get(api, f"{ITERATION}/labelling/next", annotator="ann")["question"]
    assert (next_question["text"], next_question["label"]) == (shown_text, f"3{SHOWN}")
    assert next_question["answers"] == [f"3{SHOWN}", wrong_answer]
    for stage in (get(api, f"/runs/{RUN}/stages")[-1], get(api, f"/runs/{RUN}/iterations")[-1]["stages"][0]):
        assert stage["error"] == f"a reply of{SHOWN}"


def test_statistics_have_verdict_counts_and_a_histogram_of_p_hat(api: TestClient) -> None:
    statistics = get(api, f"{ITERATION}/statistics")
    assert statistics["verdicts"] == get(api, f"/runs/{RUN}/iterations")[-1]["verdicts"]
    assert statistics["verdicts"] == {
        "kept": 2,
        "too_easy": 1,
        "malformed": 1,
        "too_hard": 1,
        "no_majority": 0,
        "refused": 0,
        "duplicate": 0,
    }
    assert statistics["gates"] == {}
    lo, hi = wilson(2, 5) or (0, 0)
    assert statistics["kept"] == pytest.approx({"value": 0.4, "lo": lo, "hi": hi, "n": 5})
    assert statistics["mean_p_hat"] == pytest.approx((0.5 + 0.75 + 1 + 0.25) / 4)
    assert [(bar["p_hat"], bar["verdict"], bar["questions"]) for bar in statistics["histogram"]] == [
        (0.25, "too_hard", 1),
        (0.5, "kept", 1),
        (0.75, "kept", 1),
        (1.0, "too_easy", 1),
    ]


def test_evaluations_and_metrics_are_answered_and_the_pool_is_empty(api: TestClient) -> None:
    [evaluation] = get(api, f"/runs/{RUN}/evaluations")
    assert (evaluation["checkpoint"], evaluation["benchmark"], evaluation["samples"]) == (f"{RUN}/solver/1", "micro", 8)
    # Of the 8 samples of each of the 4 items 0, 2, 4 and 6 are correct.
    assert (evaluation["pass_at_1"]["value"], evaluation["pass_at_1"]["n"]) == (pytest.approx(0.375), 4)
    assert (evaluation["greedy"]["value"], evaluation["majority"]["value"]) == (0.5, 0.75)
    assert [(metric["name"], metric["value"]) for metric in get(api, f"/runs/{RUN}/metrics", role="solver")] == [
        ("kl", None),
        ("majority_share", 0.75),
        ("reward_mean", 0.5),
    ]
    assert get(api, f"/runs/{RUN}/metrics", name="nosuch") == []
    assert get(api, f"/runs/{RUN}/training-labels") == []  # this run makes its labels before training, not during it
    assert get(api, "/pool") == []


def test_a_checkpoint_is_answered_with_its_ancestors_and_children(api: TestClient) -> None:
    listed = get(api, f"/runs/{RUN}/checkpoints")
    base, solver = (get(api, f"/runs/{RUN}/checkpoints/{key}") for key in ("base/0", "solver/1"))
    assert [checkpoint["id"] for checkpoint in listed] == [f"{RUN}/base/0", f"{RUN}/solver/1"]
    assert (base["checkpoint"], base["manifest"]) == (listed[0], {"model.safetensors": "00"})
    assert (solver["ancestors"], base["children"], base["descendants"]) == (listed[:1], listed[1:], listed[1:])
    assert (base["ancestors"], solver["children"]) == ([], [])


def test_a_deleted_export_is_written_again(api: TestClient, tmp_path: Path) -> None:
    path = f"{PREFIX}/runs/{RUN}/export"
    first = api.get(path)
    for name in ("demo-1-questions-*.jsonl", "demo-1-questions-*.manifest.json"):
        [file] = tmp_path.rglob(name)
        file.unlink()
        again = api.get(path)
        assert (again.status_code, again.content, again.headers["etag"]) == (200, first.content, first.headers["etag"])
        assert file.exists()


def test_exports_are_files_with_a_manifest(api: TestClient) -> None:
    path = f"{PREFIX}/runs/{RUN}/export"
    whole = api.get(path)
    manifest = get(api, f"/runs/{RUN}/export/manifest")
    assert hashlib.sha256(whole.content).hexdigest() == manifest["sha256"] == whole.headers["etag"].strip('"')
    assert whole.headers["content-disposition"].startswith('attachment; filename="demo-1-questions-')
    assert (manifest["rows"], manifest["bytes"]) == (len(QUESTIONS), len(whole.content))
    rest = api.get(path, headers={"Range": "bytes=100-", "If-Range": whole.headers["etag"]})
    assert (rest.status_code, rest.content) == (206, whole.content[100:])
    assert [json.loads(line)["index"] for line in api.get(f"{path}?verdict=kept").text.splitlines()] == [0, 1]


def test_prompts_without_votes_are_exported_but_cannot_be_audited(api: TestClient, store: Store) -> None:
    with store.write() as session:
        config = parse_config({"prompts": {"file": "benchmark"}, "solver": {"reward": {"type": "srt"}}}, "a test")
        queries.runs.create_run(session, name="given", config=config)
        prompt = Question(question_id("given", 0, 0), "given", 0, 0, "What is 1 + 2?", "What is 1 + 2?", None, 0, "3")
        queries.questions.add_questions(session, [prompt])
        queries.questions.add_labels(session, [LabelledQuestion(prompt.id, prompt.text, None, "kept")])
        stage = {"run": "given", "iteration": 0, "stage": "read_prompts", "owner": "me"}
        queries.ledger.claim_stage(session, **stage, lease_seconds=60)
        queries.ledger.finish_stage(session, **stage, result={})
    [row] = map(json.loads, api.get(f"{PREFIX}/runs/given/export?iterations=0").text.splitlines())
    assert (row["text"], row["verdict"], row["answer"], row["p_hat"]) == ("What is 1 + 2?", "kept", None, None)
    problem = post(api, "/runs/given/iterations/0/samples", 409, oracle="human", size=1)
    assert "run given, iteration 0: no question has a pseudo-label" in problem["detail"]


TRAINING = f"/runs/{RUN}/training/solver/1"
# path, status, words of the answer: beside the table of test_problems.py, which has what the routes share
REFUSED = (
    ("/runs/nobody/export?iterations=2", 404, "run nobody"),
    ("/runs/nobody/training/solver/1/steps", 404, "run nobody"),
    ("/runs/nobody/training/solver/1/rollouts", 404, "run nobody"),
    ("/evaluations?run=nobody", 404, "run nobody"),
    ("/alerts?run=nobody", 404, "run nobody"),
    (f"/alerts/{'9' * 16}", 404, "alert '9999999999999999'"),
    (f"/evaluations/{'0' * 16}", 404, "evaluation 0000000000000000"),
    (f"/evaluations/{'0' * 16}/records", 404, "evaluation 0000000000000000"),
    (f"{TRAINING}/rollouts/1/0/9", 404, "rollout 9 of prompt 0 of step 1"),
    # The base model has no questions and no training.
    (f"/runs/{RUN}/iterations/0/questions", 404, "iteration 0"),
    (f"/runs/{RUN}/iterations/0/statistics", 404, "iteration 0"),
    (f"/runs/{RUN}/iterations/0/clusters", 404, "iteration 0"),
    (f"/runs/{RUN}/iterations/0/samples/human", 404, "iteration 0"),
    (f"/runs/{RUN}/export?iterations=0", 404, "iteration 0"),
    (f"/runs/{RUN}/export?iterations=0-1", 404, "iteration 0"),
    (f"/runs/{RUN}/export/rows?iterations=0-1", 404, "iteration 0"),
    (f"/runs/{RUN}/training/solver/0/steps", 404, "iteration 0"),
    (f"/runs/{RUN}/export?iterations=2&format=csv", 409, f"run {RUN}, iteration 2"),
    (f"{ITERATION}/questions?p_hat_min=0.8&p_hat_max=0.2", 422, "query.p_hat_max"),
    (f"/runs/{RUN}/export/rows?p_hat_min=0.8&p_hat_max=0.2", 422, "query.p_hat_max"),
    (f"/runs/{RUN}/series?name=label_acuracy", 422, "did you mean label_accuracy"),
    (f"{TRAINING}/rollouts?sort=best", 422, "query.sort"),
    (f"/runs/{RUN}/training/base/1/rollouts", 422, "path.role"),
    (f"{TRAINING}/rollouts?sort=reward&after=WzEsMCwwXQ", 400, "after"),
    (f"/alerts?after={'f' * 16}", 400, "after"),
)


def test_what_is_not_there_or_not_understood_is_named(api: TestClient) -> None:
    for path, status, words in REFUSED:
        refused(api, path, status, words)
