"""Pages of an iteration's questions: whatever is asked for, in whatever order, each once and none left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_examples import fresh_run, label, question

from core.types import LabelledQuestion, OracleLabel, OracleVerdict, PseudoLabel, Question, Verdict
from storage import queries
from storage.errors import StoreError
from storage.queries.browse import QuestionFilter, Sort, get_question, list_questions, sort_key_of, vote_counts
from storage.rows import QuestionEntry, QuestionSummary
from storage.session import Store

shared_store = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
VOTED: tuple[Verdict, ...] = ("kept", "too_easy", "too_hard", "no_majority")
TEXTS = ("What is 3 + 4?", "WHAT is 100% of _x_?", "Say \\backslash", "100 of x", "\0 and \ufffd", None)


@st.composite
def entries(draw: st.DrawFn) -> list[tuple[str | None, Verdict | None, int | None, tuple[str, str] | None]]:
    """(text, verdict, votes of 4, (oracle, its verdict)) of each question; without a verdict it has no label yet."""
    one = st.tuples(
        st.sampled_from(TEXTS),
        st.sampled_from([*VOTED, "malformed", "duplicate", None]),
        st.integers(0, 4),
        st.none() | st.tuples(st.sampled_from(["exact", "judge"]), st.sampled_from(["right", "wrong"])),
    )
    found = draw(st.lists(one, max_size=12))
    return [(t, v, n if v in VOTED else None, o if v in VOTED else None) for t, v, n, o in found]


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
@given(made=entries(), wanted=filters, sort=st.sampled_from(get_args(Sort)), limit=st.integers(1, 5))
def test_pages_are_what_was_asked_for_in_order(
    store: Store, made: list[Any], wanted: QuestionFilter, sort: Sort, limit: int
) -> None:
    run = fresh_run(store)
    every = [_entry(run, index, *what) for index, what in enumerate(made)]
    _write(store, every)
    fits = [entry for entry in every if _fits(entry, wanted)]
    if sort.endswith("p_hat"):
        fits = [entry for entry in fits if entry.label]
    summaries = [_summary(entry) for entry in fits]
    expected = sorted(summaries, key=lambda each: sort_key_of(each, sort), reverse=sort.startswith("-"))
    found, after = list[QuestionSummary](), ()
    with store.read() as session:
        while page := list_questions(session, run, 1, wanted, sort=sort, after=after, limit=limit):
            assert len(page) <= limit
            found += page
            after = sort_key_of(page[-1], sort)
        assert list_questions(session, run, 2, wanted, sort=sort) == []
        assert [get_question(session, entry.question.id) for entry in every] == every
        counted = Counter((e.verdict, e.label.p_hat if e.label else None) for e in every if e.verdict)
        assert {(verdict, p_hat): count for verdict, p_hat, count in vote_counts(session, run, 1)} == counted
    assert found == expected


def test_a_question_that_is_not_there_is_said(store: Store) -> None:
    with store.read() as session, pytest.raises(StoreError, match="'nobody/1/000000': there is none"):
        get_question(session, "nobody/1/000000")


def test_labels_are_where_their_questions_are(store: Store) -> None:
    run = fresh_run(store)
    with store.write() as session:
        queries.questions.add_questions(session, [question(run, 0), question(run, 1)])
        queries.questions.add_labels(session, [label(run, 1)])
    with store.read() as session:
        [entry] = list_questions(session, run, 1, QuestionFilter(), sort="p_hat")
        assert entry == _summary(QuestionEntry(question(run, 1), "kept", label(run, 1).label, ()))


def _entry(
    run: str, index: int, text: str | None, verdict: Verdict | None, votes: int | None, oracle: Sequence[str] | None
) -> QuestionEntry:
    asked: Question = question(run, index, text)
    vote = None if votes is None else PseudoLabel("7", votes, 4, 4, 0, votes / 4, "all", (("7", votes),))
    said = () if oracle is None else (OracleLabel(asked.id, oracle[0], cast(OracleVerdict, oracle[1]), "7"),)
    return QuestionEntry(asked, verdict, vote, said)


def _summary(entry: QuestionEntry) -> QuestionSummary:
    asked, none = entry.question, dict.fromkeys(asdict(label("r", 0).label))
    made = asdict(entry.label) if entry.label else none
    given = {name: getattr(asked, name) for name in ("id", "run", "iteration", "index", "text", "checkpoint", "seed")}
    del made["classes"]
    return QuestionSummary(**given, **made, verdict=entry.verdict, oracles=entry.oracles)


def _write(store: Store, made: Sequence[QuestionEntry]) -> None:
    with store.write() as session:
        queries.questions.add_questions(session, [entry.question for entry in made])
        labels = [
            LabelledQuestion(entry.question.id, entry.question.text, entry.label, entry.verdict)
            for entry in made
            if entry.verdict
        ]
        queries.questions.add_labels(session, labels)
        queries.questions.add_oracle_labels(session, [said for entry in made for said in entry.oracles])


def _fits(entry: QuestionEntry, wanted: QuestionFilter) -> bool:
    p_hat = entry.label.p_hat if entry.label else None
    low, high = wanted.p_hat_min, wanted.p_hat_max
    named = [said for said in entry.oracles if wanted.oracle in (None, said.oracle)]
    judged = [said for said in named if wanted.oracle_verdict in (None, said.verdict)]
    return (
        (not wanted.verdicts or entry.verdict in wanted.verdicts)
        and (low is None or (p_hat is not None and p_hat >= low))
        and (high is None or (p_hat is not None and p_hat <= high))
        and (wanted.text is None or (entry.question.text is not None and _in(wanted.text, entry.question.text)))
        and (judged != [] or (wanted.oracle is None and wanted.oracle_verdict is None))
    )


def _in(part: str, text: str) -> bool:
    return part.lower() in text.lower()
