"""The figures of an evaluation, made from stored answers, compared with values by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from evaluation_examples import ABC, store_answers

from core.statistics.curves import Tally
from core.types import GREEDY, EvaluatedAnswer
from services.evaluations.figures import figures_of, record_of, records_of, tally_of
from storage import queries
from storage.errors import NotThere
from storage.files.texts import RolloutText, TextWriter, evaluation_path
from storage.session import Store


def test_sampled_answers_by_hand(sqlite: Store) -> None:
    # a: 7 is right, 3 of 4; b: 5 is right, 1 of 4, and 8 has three votes; c: nothing is right, two have no answer.
    key = store_answers(sqlite, ["7747", "8588", "99--"], "751")
    with sqlite.read() as session:
        figures = figures_of(session, key)
    assert figures is not None
    assert (figures.questions, figures.samples) == (3, 4)
    assert (figures.evaluation.seconds, figures.evaluation.finished_at) == (2.0, None)
    assert figures.pass_at_1.value == pytest.approx((3 / 4 + 1 / 4 + 0) / 3)
    assert (figures.greedy.value, figures.majority.value) == (2 / 3, 1 / 3)
    assert [point.k for point in figures.curve] == [1, 2, 4]
    _, at_2, at_4 = figures.curve
    # pass@2: a: all pairs but none; b: 3 of 6 pairs hold the 5.
    assert at_2.pass_at_k.value == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert at_4.pass_at_k.value == pytest.approx(2 / 3)
    # maj@2: a: 3 pairs of 7s, 3 ties; b: 3 ties.
    assert at_2.maj_at_k.value == pytest.approx(((3 + 3 / 2) / 6 + (3 / 2) / 6 + 0) / 3)
    assert at_4.maj_at_k.value == figures.majority.value
    # Of the answers, 3/4, 3/4 and 2/2 agree; of all replies, 3/4, 3/4 and 2/4.
    *_, at_0_7, at_0_8, _, _ = figures.by_majority_share
    assert at_0_7.answer
    assert at_0_8.answer
    assert at_0_8.majority
    assert (at_0_7.answer.value, at_0_7.left.value) == (pytest.approx((3 / 4 + 1 / 4 + 0) / 3), 2 / 3)
    assert (at_0_8.answer.value, at_0_8.majority.value, at_0_8.majority.n, at_0_8.left.value) == (0, 0, 1, 0)
    assert figures.vote_share.value == pytest.approx((3 / 4 + 3 / 4 + 2 / 4) / 3)
    assert figures.truncated.value == figures.unparsed.value == pytest.approx((2 / 4) / 3)
    assert figures.mean_tokens == pytest.approx((10 * 10 + 2 * 40) / 12)
    assert figures.tokens == 10 * 10 + 2 * 40 + 3 * 10
    assert {level: estimate.value for level, estimate in figures.by_level.items()} == {"1": 3 / 4, "2": 1 / 8}
    assert {name: (figure.value, figure.n) for name, figure in figures.by_subject.items()} == {"algebra": (0.5, 2)}
    assert figures.pass_at_1.n == figures.greedy.n == figures.majority.n == figures.vote_share.n == 3


def test_greedy_answers_alone(sqlite: Store) -> None:
    key = store_answers(sqlite, [], "7-3")
    with sqlite.read() as session:
        figures = figures_of(session, key)
    assert figures is not None
    assert (figures.samples, figures.vote_share, figures.by_majority_share) == (0, None, [])
    assert figures.pass_at_1.value == figures.greedy.value == 2 / 3
    [point] = figures.curve
    assert (point.k, point.pass_at_k.value, point.maj_at_k.value) == (1, pytest.approx(2 / 3), pytest.approx(2 / 3))


def test_an_evaluation_without_answers_has_no_figures(sqlite: Store) -> None:
    with sqlite.write() as session:
        row = queries.evaluations.begin_evaluation(session, model="m", benchmark="b", manifest={})
        assert figures_of(session, row.id) is None


def test_records_are_questions_with_their_answers_and_texts(sqlite: Store, tmp_path: Path) -> None:
    key = store_answers(sqlite, ["7747", "8588", "99--"], "751")
    with sqlite.read() as session:
        records = records_of(session, key)
        second = records_of(session, key, after="a", limit=1)
        assert record_of(session, key, "b", tmp_path) == records[1]
        with pytest.raises(NotThere, match=r"question 'x': evaluation .* has no answers to it"):
            record_of(session, key, "x", tmp_path)
    assert [record.question for record in records] == [*ABC]
    assert [[answer.answer for answer in record.answers] for record in records] == [
        ["7", "7", "7", "4", "7"],  # the greedy answer comes first
        ["5", "8", "5", "8", "8"],
        ["1", "9", "9", None, None],
    ]
    assert second == records[1:2]
    assert second[0].texts is None
    writer = TextWriter(evaluation_path(tmp_path, key))
    writer.add(0, [RolloutText("b", GREEDY, "five"), RolloutText("b", 0, "eight")])
    writer.finish()
    with sqlite.read() as session:
        record = record_of(session, key, "b", tmp_path)
    assert record.texts == ["five", "eight", "", "", ""]


def test_an_answer_that_says_nothing_is_in_no_class() -> None:
    """It did not vote, so it has no class; a greedy answer has none either, but counts."""
    rows = [("5", 0, "equal"), (".", None, "unequal"), ("()", None, "unequal")]
    sampled = [EvaluatedAnswer("i", index, *row, 3, "stop") for index, row in enumerate(rows)]
    assert tally_of(sampled) == Tally(((1, True),), 2)
    assert tally_of([EvaluatedAnswer("i", GREEDY, "5", None, "equal", 3, "stop")]) == Tally(((1, True),), 0)
