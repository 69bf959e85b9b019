"""Pages of an iteration's questions: for any filter and order, each matching question is listed exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_examples import fresh_run, label, question, writes

from core.types import LabelledQuestion, OracleLabel, OracleVerdict, PseudoLabel, Question, Verdict
from storage import queries
from storage.errors import StoreError
from storage.queries.browse import QuestionFilter, Sort, get_question, list_questions, sort_key_of, vote_counts
from storage.rows import QuestionEntry, QuestionSummary
from storage.session import Store

shared_store = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
VOTED: tuple[Verdict, ...] = ("kept", "too_easy", "too_hard", "no_majority", "refused")
TEXTS = ("What is 3 + 4?", "WHAT is 100% of _x_?", "Say \\backslash", "100 of x", "\0 and \ufffd", None)


@st.composite
def entries(draw: st.DrawFn) -> list[tuple[str | None, Verdict | None, int | None, tuple[str, str] | None]]:
    """(text, verdict, votes of 4, (oracle, its verdict)) of each question; without a verdict it has no label yet."""
    entry_values = st.tuples(
        st.sampled_from(TEXTS),
        st.sampled_from([*VOTED, "malformed", "duplicate", None]),
        st.integers(0, 4),
        st.none() | st.tuples(st.sampled_from(["exact", "judge"]), st.sampled_from(["right", "wrong"])),
    )
    drawn = draw(st.lists(entry_values, max_size=12))
    return [(t, v, n if v in VOTED else None, o if v in VOTED else None) for t, v, n, o in drawn]


filters = st.builds(
    QuestionFilter,
    verdicts=st.lists(st.sampled_from([*VOTED, "malformed"]), max_size=2).map(tuple),
    p_hat_min=st.none() | st.sampled_from([0.25, 0.5]),
    p_hat_max=st.none() | st.sampled_from([0.5, 0.75]),
    text=st.none() | st.sampled_from(["what", "100%", "_x_", "\\", "\0", "\ufffd"]),
    oracle=st.none() | st.just("exact"),
    oracle_verdict=st.none() | st.just("right"),
)


@shared_store
@given(values_of_entries=entries(), filter_=filters, sort=st.sampled_from(get_args(Sort)), limit=st.integers(1, 5))
def test_pages_list_the_matching_questions_in_the_order_asked_for(
    store: Store, values_of_entries: list[Any], filter_: QuestionFilter, sort: Sort, limit: int
) -> None:
    run = fresh_run(store)
    entries_of_run = [_entry(run, index, *values) for index, values in enumerate(values_of_entries)]
    _write(store, entries_of_run)
    matching = [entry for entry in entries_of_run if matches(entry, filter_)]
    if sort.endswith("p_hat"):
        matching = [entry for entry in matching if entry.label]
    summaries = [_summary(entry) for entry in matching]
    expected = sorted(summaries, key=lambda summary: sort_key_of(summary, sort), reverse=sort.startswith("-"))
    listed, after = list[QuestionSummary](), ()
    with store.read() as session:
        while page := list_questions(session, run, 1, filter_, sort=sort, after=after, limit=limit):
            assert len(page) <= limit
            listed += page
            after = sort_key_of(page[-1], sort)
        assert list_questions(session, run, 2, filter_, sort=sort) == []
        assert [get_question(session, entry.question.id) for entry in entries_of_run] == entries_of_run
        counts = Counter((e.verdict, e.label.p_hat if e.label else None) for e in entries_of_run if e.verdict)
        assert {(verdict, p_hat): count for verdict, p_hat, count in vote_counts(session, run, 1)} == counts
    assert listed == expected


def test_an_unknown_question_is_an_error_that_names_it(store: Store) -> None:
    with store.read() as session, pytest.raises(StoreError, match="nobody/1/000000"):
        get_question(session, "nobody/1/000000")


def _entry(
    run: str, index: int, text: str | None, verdict: Verdict | None, votes: int | None, oracle: Sequence[str] | None
) -> QuestionEntry:
    row: Question = question(run, index, text)
    vote = None if votes is None else PseudoLabel("7", votes, 4, 4, 0, votes / 4, "all", (("7", votes),))
    oracle_labels = () if oracle is None else (OracleLabel(row.id, oracle[0], cast(OracleVerdict, oracle[1]), "7"),)
    return QuestionEntry(row, verdict, "lead" if verdict == "refused" else None, vote, oracle_labels)


def _summary(entry: QuestionEntry) -> QuestionSummary:
    row, empty_label = entry.question, dict.fromkeys(asdict(label("r", 0).label))
    label_values = asdict(entry.label) if entry.label else empty_label
    question_values = {
        name: getattr(row, name) for name in ("id", "run", "iteration", "index", "text", "checkpoint", "seed")
    }
    del label_values["classes"]
    return QuestionSummary(
        **question_values,
        given_answer=row.answer,
        **label_values,
        verdict=entry.verdict,
        gate=entry.gate,
        oracles=entry.oracles,
    )


def _write(store: Store, entries: Sequence[QuestionEntry]) -> None:
    writes(store).questions.add_questions([entry.question for entry in entries])
    labels = [
        LabelledQuestion(entry.question.id, entry.question.text, entry.label, entry.verdict, entry.gate)
        for entry in entries
        if entry.verdict
    ]
    writes(store).questions.add_labels(labels)
    writes(store).questions.add_oracle_labels([oracle_label for entry in entries for oracle_label in entry.oracles])


def matches(entry: QuestionEntry, filter_: QuestionFilter) -> bool:
    p_hat = entry.label.p_hat if entry.label else None
    low, high = filter_.p_hat_min, filter_.p_hat_max
    of_oracle = [label for label in entry.oracles if filter_.oracle in (None, label.oracle)]
    with_verdict = [label for label in of_oracle if filter_.oracle_verdict in (None, label.verdict)]
    return (
        (not filter_.verdicts or entry.verdict in filter_.verdicts)
        and (low is None or (p_hat is not None and p_hat >= low))
        and (high is None or (p_hat is not None and p_hat <= high))
        and (filter_.text is None or (entry.question.text is not None and contains(filter_.text, entry.question.text)))
        and (with_verdict != [] or (filter_.oracle is None and filter_.oracle_verdict is None))
    )


def contains(part: str, text: str) -> bool:
    return part.lower() in text.lower()


@pytest.mark.parametrize(
    ("text", "part", "is_in_it"),
    [
        ("Évaluer x", "évaluer", True),
        ("évaluer x", "ÉVALUER", True),
        ("Ωmega", "ωmega", True),
        ("Москва", "москва", True),
        ("ΟΔΟΣ", "οδος", True),
        ("die Größe", "GRÖSSE", True),
        ("Σx", "σX", True),
        ("Évaluer", "evaluer", False),
        ("50 %", "50%", False),
        ("ÉÉ", "_", False),
        ("Что", "чт", True),
        ("三角形", "角", True),
    ],
)
def test_the_case_of_letters_does_not_matter_in_any_alphabet(
    text: str, part: str, is_in_it: bool, store: Store, run: str
) -> None:
    writes(store).questions.add_questions([question(run, 0, text=text)])
    with store.read() as session:
        listed = list_questions(session, run, 1, QuestionFilter(text=part))
        count = queries.browse.count_rows(session, run, 1, QuestionFilter(text=part))[0]
    assert (len(listed), count) == (int(is_in_it), int(is_in_it))
