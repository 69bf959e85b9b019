"""Evaluations over REST: the list, the figures, the questions with their answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from api_examples import RUN
from evaluation_examples import ITEMS, ODD, store_evaluation, store_recheck
from fastapi.testclient import TestClient

from storage import queries
from storage.session import Store
from tests.api_server import api_of, get, refused


@pytest.fixture
def key(filled: Store, tmp_path: Path) -> str:
    return store_evaluation(filled, tmp_path / "texts")


@pytest.fixture
def api(filled: Store, tmp_path: Path, key: str) -> TestClient:
    return api_of(filled, tmp_path, texts=tmp_path / "texts")


def test_evaluations_are_listed_apart_from_those_of_runs(api: TestClient, key: str) -> None:
    [row] = get(api, "/evaluations")
    assert (row["id"], row["benchmark"], row["run"], row["seconds"]) == (key, "/data/sums.jsonl", None, 75)
    [of_run] = get(api, "/evaluations", run=RUN)
    assert (of_run["run"], of_run["model"], of_run["benchmark"]) == (RUN, f"{RUN}/solver/1", "micro")


def test_the_list_has_the_accuracy_of_each_evaluation(store: Store, api: TestClient, key: str) -> None:
    with store.write() as session:
        empty = queries.evaluations.begin_evaluation(session, model="/models/new", benchmark="micro", manifest={})
    listed = {row["id"]: row for row in [*get(api, "/evaluations"), *get(api, "/evaluations", run=RUN)]}
    assert len(listed) == 3
    for name in ("pass_at_1", "greedy", "majority"):
        for id_ in listed.keys() - {empty.id}:
            assert listed[id_][name] == pytest.approx(get(api, f"/evaluations/{id_}")[name]), (id_, name)
        assert listed[empty.id][name] is None
    assert listed[key]["pass_at_1"]["n"] == 8


def test_figures_have_their_intervals_and_the_manifest(api: TestClient, key: str) -> None:
    figures = get(api, f"/evaluations/{key}")
    assert (figures["questions"], figures["samples"]) == (8, 4)
    # 4, 4, 3, 3, 2, 2, 1, 1 of 4 samples are right.
    assert (figures["pass_at_1"]["value"], figures["pass_at_1"]["n"]) == (20 / 32, 8)
    assert (figures["greedy"]["value"], figures["majority"]["value"]) == (0.5, 1.0)
    assert [point["k"] for point in figures["curve"]] == [1, 2, 4]
    assert figures["curve"][-1]["pass_at_k"]["value"] == 1
    assert figures["unparsed"]["value"] == figures["truncated"]["value"] == 12 / 32
    assert {level: figure["value"] for level, figure in figures["by_level"].items()} == {
        "easy": 14 / 16,
        "hard": 6 / 16,
    }
    assert {*figures["by_subject"]} == {"subject 0", "subject 1"}
    assert figures["evaluation"]["manifest"]["engine"] == {"name": "openai"}


def test_a_run_s_evaluation_has_figures_though_its_answers_were_stored_by_an_earlier_version(api: TestClient) -> None:
    [of_run] = get(api, "/evaluations", run=RUN)
    figures = get(api, f"/evaluations/{of_run['id']}")
    assert (figures["questions"], figures["pass_at_1"]["value"], figures["curve"]) == (4, 0.375, [])
    assert (figures["samples"], figures["unparsed"], figures["mean_tokens"]) == (8, None, 0)


def test_records_come_in_pages_and_one_at_a_time_with_the_whole_replies(api: TestClient, key: str) -> None:
    first = get(api, f"/evaluations/{key}/records", limit=5)
    rest = get(api, f"/evaluations/{key}/records", limit=5, after=first["next"])
    records = first["items"] + rest["items"]
    assert ([record["question"]["id"] for record in records], rest["next"]) == ([item.id for item in ITEMS], None)
    assert {len(record["answers"]) for record in records} == {5}
    assert all(record["texts"] is None for record in records)
    record = get(api, f"/evaluations/{key}/record", item="sums/7")
    assert record["result"] == {
        "item_id": "sums/7",
        "level": "hard",
        "samples": 4,
        "correct": 1,
        "greedy_correct": False,
        "majority_correct": True,
    }
    assert record["answers"][0] == {
        "item_id": "sums/7",
        "sample_index": -1,
        "answer": ODD,
        "answer_class": None,
        "verdict": "unequal",
        "tokens": 9,
        "finish_reason": "stop",
    }
    assert record["texts"] == [f"so {ODD}"] * 5
    refused(api, f"/evaluations/{key}/record", 404, "x", item="x")


def test_a_judge_s_recheck_is_beside_the_grader_s_figures_and_verdicts(api: TestClient, store: Store, key: str) -> None:
    assert get(api, f"/evaluations/{key}")["rechecks"] == []
    assert get(api, f"/evaluations/{key}/record", item="sums/4")["judged"] == []
    store_recheck(store, key, "judge_m")
    figures = get(api, f"/evaluations/{key}")
    assert (figures["pass_at_1"]["value"], figures["greedy"]["value"]) == (20 / 32, 4 / 8)
    [recheck] = figures["rechecks"]
    # 8 questions have one right answer each, and 4 a wrong one; all samples without an answer are wrong.
    assert (recheck["judge"], recheck["answers"], recheck["judged"], recheck["unclear"]) == ("judge_m", 12, 12, 0)
    counted = {name: recheck[name] for name in ("failures_rechecked", "judge_alone")}
    assert {name: (recount["pass_at_1"]["value"], recount["greedy"]["value"]) for name, recount in counted.items()} == {
        "failures_rechecked": (20 / 32, 5 / 8),
        "judge_alone": (16 / 32, 4 / 8),
    }
    shares = [recheck[name] for name in ("passes_called_wrong", "failures_called_right", "disagreements")]
    assert [(share["value"], share["n"]) for share in shares] == [(1 / 8, 8), (1 / 4, 4), (2 / 12, 12)]
    of_fifth = [{"item_id": "sums/4", "sample_index": i, "judge": "judge_m", "verdict": "right"} for i in (-1, 0, 1)]
    assert get(api, f"/evaluations/{key}/record", item="sums/4")["judged"] == of_fifth
    assert [record["judged"] for record in get(api, f"/evaluations/{key}/records")["items"]][4] == of_fifth
