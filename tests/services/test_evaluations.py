"""The figures of an evaluation, made from stored answers, compared with values by hand."""

from __future__ import annotations

import pytest

from core.grading.grader import Grader
from core.types import BenchmarkItem
from orchestrator.evaluation.answering import graded
from services.evaluations import results_of
from services.inference.client import Reply
from storage import queries
from storage.session import Store

ITEMS = (
    BenchmarkItem("a", "p", "7", "1", "algebra"),
    BenchmarkItem("b", "q", "5", "2", "algebra"),
    BenchmarkItem("c", "r", "3", "2", None),
)


def reply(answer: str) -> Reply:
    text = rf"\boxed{{{answer}}}" if answer else "hm"
    return Reply(text, 10 if answer else 40, "stop" if answer else "length", None, None, "m", 0)


def store_answers(store: Store, sampled: list[str], greedy: str) -> str:
    """Store one evaluation; an answer is a digit, or - for none. `sampled` has the answers to each item."""
    groups = [*sampled, *greedy]
    replies = [[reply(answer.strip("-")) for answer in group] for group in groups]
    with Grader() as grader, store.write() as session:
        manifest = {"benchmark": {"sha256": "s"}}
        row = queries.evaluations.begin_evaluation(session, model="m", benchmark="b", manifest=manifest)
        queries.evaluations.add_benchmark_items(session, "s", ITEMS)
        queries.evaluations.add_results(session, row.id, *graded(ITEMS, replies, grader), seconds=2.0)
    return row.id


def test_sampled_answers_by_hand(sqlite: Store) -> None:
    # a: 7 is right, 3 of 4; b: 5 is right, 1 of 4, and 8 has three votes; c: nothing is right, two have no answer.
    key = store_answers(sqlite, ["7747", "8588", "99--"], "751")
    with sqlite.read() as session:
        results = results_of(session, key)
    assert results is not None
    figures = results.as_json()
    assert (figures["questions"], figures["samples"], figures["finished"]) == (3, 4, False)
    assert figures["pass_at_1"]["value"] == pytest.approx((3 / 4 + 1 / 4 + 0) / 3)
    assert (figures["greedy"]["value"], figures["majority"]["value"]) == (2 / 3, 1 / 3)
    assert [*figures["pass_at_k"]] == [*figures["maj_at_k"]] == ["1", "2", "4"]
    # pass@2: a: all pairs but none; b: 3 of 6 pairs hold the 5.
    assert figures["pass_at_k"]["2"]["value"] == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert figures["pass_at_k"]["4"]["value"] == pytest.approx(2 / 3)
    # maj@2: a: 3 pairs of 7s, 3 ties; b: 3 ties.
    assert figures["maj_at_k"]["2"]["value"] == pytest.approx(((3 + 3 / 2) / 6 + (3 / 2) / 6 + 0) / 3)
    assert figures["maj_at_k"]["4"]["value"] == figures["majority"]["value"]
    assert figures["vote_share"]["value"] == pytest.approx((3 / 4 + 3 / 4 + 2 / 4) / 3)
    assert figures["truncated"]["value"] == figures["unparsed"]["value"] == pytest.approx((2 / 4) / 3)
    assert figures["mean_tokens"] == pytest.approx((10 * 10 + 2 * 40) / 12)
    assert figures["tokens"] == 10 * 10 + 2 * 40 + 3 * 10
    assert {level: e["value"] for level, e in figures["by_level"].items()} == {"1": 3 / 4, "2": 1 / 8}
    assert {subject: (e["value"], e["n"]) for subject, e in figures["by_subject"].items()} == {"algebra": (0.5, 2)}
    assert all(figures[name]["n"] == 3 for name in ("pass_at_1", "greedy", "majority", "vote_share", "unparsed"))
    assert (figures["seconds"], figures["manifest"]) == (2.0, {"benchmark": {"sha256": "s"}})


def test_greedy_answers_alone(sqlite: Store) -> None:
    key = store_answers(sqlite, [], "7-3")
    with sqlite.read() as session:
        results = results_of(session, key)
    assert results is not None
    assert (results.samples, results.vote_share) == (0, None)
    assert results.accuracy.pass_at_1.value == results.accuracy.greedy.value == 2 / 3
    [point] = results.curve
    assert (point.k, point.pass_at_k.value, point.maj_at_k.value) == (1, pytest.approx(2 / 3), pytest.approx(2 / 3))


def test_an_evaluation_without_answers_has_no_figures(sqlite: Store) -> None:
    with sqlite.write() as session:
        row = queries.evaluations.begin_evaluation(session, model="m", benchmark="b", manifest={})
        assert results_of(session, row.id) is None
