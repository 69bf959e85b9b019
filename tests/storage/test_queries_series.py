"""Stored series, and the sums that they are computed from, compared with sums computed by hand."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from store_examples import fresh_run, reads, writes

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
    keys = [question_id(run, 1, i) for i in range(len(VALUES_OF_QUESTIONS) + 1)]
    questions = [Question(key, run, 1, i, "q", "q", f"{run}/base/0", i) for i, key in enumerate(keys)]
    writes(store).questions.add_questions(questions)
    writes(store).questions.add_labels(
        [_label(key, *values[:3]) for key, values in zip(keys, VALUES_OF_QUESTIONS, strict=False)]
    )
    writes(store).questions.add_labels([LabelledQuestion(keys[-1], None, None, "malformed")])
    votes = [
        Rollout(key, i, "", None, tokens, "length" if i == 0 and end == "length" else "stop", None, None, x, i)
        for key, (*_, lengths, end) in zip(keys, VALUES_OF_QUESTIONS, strict=False)
        for i, tokens in enumerate(lengths)
        for x in [f"{run}/base/0"]
    ]
    writes(store).questions.add_rollouts(votes)
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
        assert labels["split"] == {True: Sums(2, 2.0, 2.0), False: Sums(2, 0.0, 0.0)}  # all four votes agree, or none
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
        sums.append(reads(store).series.label_sums(run, 1))
    assert sums[1:] == sums[:1] * 2


def test_vote_classes_do_not_depend_on_the_page_size(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fill(store)
    with store.read() as session:
        whole = list(queries.series.vote_classes(session, run, 1))
        for size in (1, 2, 3):
            monkeypatch.setattr("storage.queries.series._PAGE", size)
            assert list(queries.series.vote_classes(session, run, 1)) == whole


def test_ill_posed_questions_are_counted_within_the_oracle_s_own_sample(store: Store) -> None:
    """A judge and people call questions 0 and 2 ill-posed; later the judge draws the first, and people the second."""
    run = fill(store)
    keys = [question_id(run, 1, i) for i in range(3)]
    verdicts: tuple[OracleVerdict, ...] = ("ill_posed", "right", "ill_posed")
    strata = {"judge": "kept 0.4-0.6", "human": "not kept 0.8-1.0"}
    for oracle in strata:
        rows = [OracleLabel(key, oracle, verdict, None) for key, verdict in zip(keys, verdicts, strict=True)]
        writes(store).questions.add_oracle_labels(rows)
        assert reads(store).series.ill_posed_by_stratum(run, 1, oracle) == dict.fromkeys(strata.values(), 1)
    assert (reads(store).series.oracles_at(run, 1), reads(store).series.oracles_at(run, 2)) == (["human", "judge"], [])
    for key, (oracle, stratum) in zip((keys[0], keys[2]), strata.items(), strict=True):
        writes(store).audits.add_samples([SampleRow(key, oracle, run, 1, stratum, 0)])
    for oracle, stratum in strata.items():
        assert reads(store).series.ill_posed_by_stratum(run, 1, oracle) == {stratum: 1}


def test_questions_with_rollouts_that_disagree_have_their_classes_and_their_truth_if_the_label_is_wrong(
    store: Store,
) -> None:
    """Question 0 has a wrong label, question 1 a right one; all rollouts agree on question 2, and 3 has no label."""
    run = fill(store)
    answers: tuple[tuple[OracleVerdict, str | None], ...] = (("wrong", "4"), ("right", "3"), ("right", "3"))
    labels = [OracleLabel(question_id(run, 1, i), "exact", *answer) for i, answer in enumerate(answers)]
    labels += [OracleLabel(question_id(run, 1, 3), "exact", "unknown", "5")]
    labels += [OracleLabel(question_id(run, 1, i), "human", "wrong", None) for i in range(2)]  # truth not known
    writes(store).questions.add_oracle_labels(labels)
    rows = reads(store).series.disagreeing(run, 1, "exact")
    assert sorted(rows, key=str) == [(True, [("3", 2), ("4", 2)], 4, "4"), (True, [("3", 2)], 4, None)]
    assert reads(store).series.disagreeing(run, 1, "human") == reads(store).series.disagreeing(run, 2, "exact") == []


def test_the_texts_of_well_formed_questions_say_whether_they_were_kept(store: Store) -> None:
    run = fill(store)
    malformed = Question(question_id(run, 1, 9), run, 1, 9, None, "q", f"{run}/base/0", 9)
    writes(store).questions.add_questions([malformed])
    writes(store).questions.add_labels([LabelledQuestion(malformed.id, None, None, "malformed")])
    assert sorted(reads(store).series.question_texts(run, 1)) == [(False, "q")] * 3 + [(True, "q")] * 2
    assert reads(store).series.question_texts(run, 2) == []


def test_cluster_sizes_are_the_largest_cluster_and_the_number_of_questions(store: Store) -> None:
    run = fill(store)
    assert reads(store).series.cluster_sizes(run, 1) is None
    rows = [ClusterRow(question_id(run, 1, i), run, 1, int(i == 2), 2 - int(i == 2)) for i in range(3)]
    writes(store).traces.add_clusters(rows)
    assert reads(store).series.cluster_sizes(run, 1) == (2, 3)


def test_a_point_is_replaced_by_a_measurement_but_not_by_an_estimate(store: Store, run: str) -> None:
    measured = SeriesPoint(1, "label_accuracy", "kept", "judge", 0.8, 0.7, 0.9, 100, interval="count")
    later = SeriesPoint(1, "label_accuracy", "kept", "judge", 0.75, 0.7, 0.8, 200, interval="share")
    estimated_point = SeriesPoint(1, "label_accuracy", "kept", "judge", 0.5, 0.4, 0.6, 300, estimated=True)
    other_series = SeriesPoint(2, "kl", "", "", 0.1, None, None, 3)
    writes(store).series.put_series(run, [])
    for point in (estimated_point, measured, other_series, estimated_point):
        writes(store).series.put_series(run, [point])
    assert reads(store).series.series_of(run) == [other_series, measured]
    writes(store).series.put_series(run, [later])
    assert reads(store).series.series_of(run, "label_accuracy") == [later]
    assert reads(store).series.series_of(run, oracle="") == [other_series]
    assert reads(store).series.series_of(run, over="kept") == [later]
    assert reads(store).series.series_of("no such run") == []
