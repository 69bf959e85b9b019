"""Stored series, and the sums that they are computed from, compared with sums computed by hand."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from store_examples import fresh_run

from core.statistics.estimates import Sums
from core.types import (
    LabelledQuestion,
    OracleLabel,
    OracleVerdict,
    PseudoLabel,
    Question,
    Rollout,
    Verdict,
    question_id,
)
from storage import queries
from storage.rows import ClusterRow, SampleRow, SeriesPoint
from storage.session import Store

# For each question: verdict, votes of 4 for the label, rollouts with an answer, tokens of each rollout, finish reason.
VALUES_OF_QUESTIONS: tuple[tuple[Verdict, int, int, tuple[int, ...], str], ...] = (
    ("kept", 2, 4, (10, 10, 20, 20), "stop"),
    ("kept", 2, 2, (5, 5, 5, 5), "length"),
    ("too_easy", 4, 4, (1, 1, 1, 1), "stop"),
    ("no_majority", 0, 0, (9, 9, 9, 9), "length"),
)


def fill(store: Store) -> str:
    run = fresh_run(store)
    with store.write() as session:
        keys = [question_id(run, 1, i) for i in range(len(VALUES_OF_QUESTIONS) + 1)]
        questions = [Question(key, run, 1, i, "q", "q", f"{run}/base/0", i) for i, key in enumerate(keys)]
        queries.questions.add_questions(session, questions)
        queries.questions.add_labels(
            session, [_label(key, *values[:3]) for key, values in zip(keys, VALUES_OF_QUESTIONS, strict=False)]
        )
        queries.questions.add_labels(session, [LabelledQuestion(keys[-1], None, None, "malformed")])
        votes = [
            Rollout(key, i, "", None, tokens, "length" if i == 0 and end == "length" else "stop", None, None, x, i)
            for key, (*_, lengths, end) in zip(keys, VALUES_OF_QUESTIONS, strict=False)
            for i, tokens in enumerate(lengths)
            for x in [f"{run}/base/0"]
        ]
        queries.questions.add_rollouts(session, votes)
    return run


def _label(key: str, verdict: Verdict, votes: int, parsed: int) -> LabelledQuestion:
    classes = (("3", votes), ("4", parsed - votes)) if parsed > votes else (("3", votes),) if votes else ()
    label = PseudoLabel("3" if votes else None, votes, 4, parsed, 0, votes / 4, "all", classes)
    return LabelledQuestion(key, "q", label, verdict)


def test_label_sums_and_vote_sums_are_those_computed_by_hand(store: Store) -> None:
    run = fill(store)
    with store.read() as session:
        labels, votes = queries.series.label_sums(session, run, 1), queries.series.vote_sums(session, run, 1)
        assert labels["p_hat"] == {True: Sums(2, 1.0, 0.5), False: Sums(2, 1.0, 1.0)}
        assert labels["unparsed"] == {True: Sums(2, 0.5, 0.25), False: Sums(2, 1.0, 1.0)}
        assert votes["tokens"] == {True: Sums(2, 20.0, 250.0), False: Sums(2, 10.0, 82.0)}
        assert votes["truncated"] == {True: Sums(2, 0.25, 0.0625), False: Sums(2, 0.25, 0.0625)}
        assert list(queries.series.vote_classes(session, run, 1)) == [(True, [2, 2]), (True, [2]), (False, [4])]
        assert queries.series.vote_sums(session, run, 2) == {"tokens": {}, "truncated": {}}


def test_the_digits_of_sums_do_not_depend_on_the_order_in_which_rows_were_written(store: Store) -> None:
    sums = list[object]()
    for order in (range(40), reversed(range(40)), sorted(range(40), key=lambda i: i % 7)):
        run = fresh_run(store)
        with store.write() as session:
            keys = [question_id(run, 1, i) for i in range(40)]
            queries.questions.add_questions(
                session, [Question(key, run, 1, i, "q", "q", f"{run}/base/0", i) for i, key in enumerate(keys)]
            )
            for i in order:
                label = PseudoLabel("3", i, 41, 40 - i % 3, 0, i / 41, "all", (("3", i),))
                queries.questions.add_labels(session, [LabelledQuestion(keys[i], "q", label, "kept")])
            session.execute(text("ANALYZE"))  # PostgreSQL then reads a table of few rows as it lies on the disk
        with store.read() as session:
            sums.append(queries.series.label_sums(session, run, 1))
    assert sums[1:] == sums[:1] * 2


def test_vote_classes_do_not_depend_on_the_page_size(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fill(store)
    with store.read() as session:
        whole = list(queries.series.vote_classes(session, run, 1))
        for size in (1, 2, 3):
            monkeypatch.setattr("storage.queries.series._PAGE", size)
            assert list(queries.series.vote_classes(session, run, 1)) == whole


def test_ill_posed_questions_are_counted_within_the_sample(store: Store) -> None:
    run = fill(store)
    keys = [question_id(run, 1, i) for i in range(3)]
    verdicts: tuple[OracleVerdict, ...] = ("ill_posed", "right", "ill_posed")
    with store.write() as session:
        rows = [OracleLabel(key, "judge", verdict, None) for key, verdict in zip(keys, verdicts, strict=True)]
        queries.questions.add_oracle_labels(session, rows)
    with store.read() as session:
        assert queries.series.oracles_at(session, run, 1) == ["judge"]
        assert queries.series.oracles_at(session, run, 2) == []
        assert queries.series.ill_posed_by_stratum(session, run, 1, "judge") == {
            "kept 0.4-0.6": 1,
            "not kept 0.8-1.0": 1,
        }
    with store.write() as session:
        queries.audits.add_samples(session, [SampleRow(keys[0], "judge", run, 1, "kept 0.4-0.6", 0)])
    with store.read() as session:
        assert queries.series.ill_posed_by_stratum(session, run, 1, "judge") == {"kept 0.4-0.6": 1}


def test_ill_posed_questions_are_counted_in_the_oracles_own_sample(store: Store) -> None:
    """A judge and people call questions 0 and 2 ill-posed; the judge drew the first, people the second."""
    run = fill(store)
    with store.write() as session:
        for oracle, index, stratum in (("judge", 0, "kept 0.4-0.6"), ("human", 2, "not kept 0.8-1.0")):
            queries.audits.add_samples(session, [SampleRow(question_id(run, 1, index), oracle, run, 1, stratum, 0)])
            labels = [OracleLabel(question_id(run, 1, i), oracle, "ill_posed", None) for i in (0, 2)]
            queries.questions.add_oracle_labels(session, labels)
    with store.read() as session:
        assert queries.series.ill_posed_by_stratum(session, run, 1, "judge") == {"kept 0.4-0.6": 1}
        assert queries.series.ill_posed_by_stratum(session, run, 1, "human") == {"not kept 0.8-1.0": 1}


def test_cluster_sizes_are_the_largest_cluster_and_the_number_of_questions(store: Store) -> None:
    run = fill(store)
    with store.read() as session:
        assert queries.series.cluster_sizes(session, run, 1) is None
    with store.write() as session:
        rows = [ClusterRow(question_id(run, 1, i), run, 1, int(i == 2), 2 - int(i == 2)) for i in range(3)]
        queries.traces.add_clusters(session, rows)
    with store.read() as session:
        assert queries.series.cluster_sizes(session, run, 1) == (2, 3)


def test_a_point_is_replaced_by_a_measurement_but_not_by_an_estimate(store: Store) -> None:
    run = fresh_run(store)
    measured = SeriesPoint(1, "label_accuracy", "kept", "judge", 0.8, 0.7, 0.9, 100, interval="count")
    later = SeriesPoint(1, "label_accuracy", "kept", "judge", 0.75, 0.7, 0.8, 200, interval="share")
    estimated_point = SeriesPoint(1, "label_accuracy", "kept", "judge", 0.5, 0.4, 0.6, 300, estimated=True)
    other_series = SeriesPoint(2, "kl", "", "", 0.1, None, None, 3)
    with store.write() as session:
        queries.series.put_series(session, run, [])
        for point in (estimated_point, measured, other_series, estimated_point):
            queries.series.put_series(session, run, [point])
    with store.read() as session:
        assert queries.series.series_of(session, run) == [other_series, measured]
    with store.write() as session:
        queries.series.put_series(session, run, [later])
    with store.read() as session:
        assert queries.series.series_of(session, run, "label_accuracy") == [later]
        assert queries.series.series_of(session, run, oracle="") == [other_series]
        assert queries.series.series_of(session, run, over="kept") == [later]
        assert queries.series.series_of(session, "no such run") == []
