from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from store_examples import fresh_run, question, reads, writes

from core.statistics.audits import Stratum
from core.statistics.calibration import Cell
from core.types import LabelledQuestion, OracleLabel, OracleVerdict, PseudoLabel, Verdict, question_id
from storage import queries
from storage.errors import NotThere
from storage.queries.audits import AlreadyAnnotated
from storage.rows import AnnotationRow, SampleRow
from storage.session import Store

# For each question: verdict, votes of 10 for the label (None: nobody voted on it), whether any vote had an answer.
VALUES_OF_QUESTIONS: tuple[tuple[Verdict, int | None, bool], ...] = (
    ("kept", 5, True),
    ("kept", 5, True),
    ("kept", 4, True),
    ("too_easy", 10, True),
    ("too_easy", 9, True),
    ("too_hard", 1, True),
    ("too_hard", 0, False),
    ("malformed", None, False),
)
STRATA = ["not kept 0.0-0.2", "kept 0.4-0.6", "not kept 0.8-1.0"]


@pytest.fixture
def run(store: Store) -> str:
    """A run whose first iteration has the questions of VALUES_OF_QUESTIONS."""
    name = fresh_run(store)
    writes(store).questions.add_questions([question(name, index) for index in range(len(VALUES_OF_QUESTIONS))])
    writes(store).questions.add_labels([_labelled(name, index) for index in range(len(VALUES_OF_QUESTIONS))])
    return name


def test_only_questions_with_votes_and_a_label_can_be_audited(store: Store, run: str) -> None:
    rows = reads(store).audits.auditable(run, 1)
    assert reads(store).audits.auditable(run, 2) == []
    expected = [(votes / 10, verdict) for verdict, votes, _ in VALUES_OF_QUESTIONS[:6]]  # those that have a label
    assert rows == [(question_id(run, 1, index), *values) for index, values in enumerate(expected)]


def test_a_sample_can_grow_and_its_questions_keep_their_positions(store: Store, run: str) -> None:
    first, more = _sample(run, [2, 0]), _sample(run, [2, 0, 3])
    writes(store).audits.add_samples(first)
    writes(store).audits.add_samples(more)
    writes(store).audits.add_samples(_sample(run, [5], oracle="judge"))
    assert reads(store).audits.samples_of(run, 1, "human") == more
    assert reads(store).audits.samples_of(run, 1, "judge") == _sample(run, [5], oracle="judge")
    assert reads(store).audits.samples_of(run, 2, "human") == []
    assert reads(store).audits.drawn_by_stratum(run, 1, "human") == {"a": 3}
    with store.write() as session, pytest.raises(NotThere, match="human"):
        queries.audits.lock_sample(session, question_id(run, 1, 5), "human")


def test_an_annotator_can_annotate_a_question_only_once(store: Store, run: str) -> None:
    annotation = _annotation(run, 0, "ann", "right")
    writes(store).audits.add_annotation(annotation)
    writes(store).audits.add_annotation(_annotation(run, 0, "bob", "wrong", minutes=-1))
    with store.write() as session:
        with pytest.raises(AlreadyAnnotated, match="'ann'"):
            queries.audits.add_annotation(session, _annotation(run, 0, "ann", "wrong"))
        # The refused annotation does not end the transaction.
        queries.audits.add_annotation(session, _annotation(run, 2, "ann", "unknown"))
    annotations = reads(store).audits.annotations_of([question_id(run, 1, 0)])
    assert [(row.annotator, row.verdict) for row in annotations] == [("bob", "wrong"), ("ann", "right")]
    assert annotations[1] == annotation
    counts = {"ann": {"right": 1, "unknown": 1}, "bob": {"wrong": 1}}
    assert reads(store).audits.annotation_counts(run, 1) == counts
    assert reads(store).audits.annotator_agreement(run) == {("ann", "bob"): Counter({("right", "wrong"): 1})}


def test_the_next_question_is_the_first_of_the_sample_still_to_be_annotated(store: Store, run: str) -> None:
    def next_index(annotator: str) -> int | None:
        entry = reads(store).audits.next_to_label(run, 1, annotator)
        return None if entry is None else entry.question.index

    assert next_index("ann") is None
    writes(store).audits.add_samples(_sample(run, [4, 0, 2]))
    _grade(store, run, "exact", {4: "right"})
    assert (next_index("ann"), next_index("bob")) == (4, 4)  # a label of another oracle does not settle the question
    writes(store).audits.add_annotation(_annotation(run, 4, "ann", "unknown"))
    assert (next_index("ann"), next_index("bob")) == (0, 4)
    _grade(store, run, "human", {0: "right"})
    assert (next_index("ann"), next_index("bob")) == (2, 4)
    assert reads(store).audits.sample_progress(run, 1, "human") == (3, 1)
    assert reads(store).audits.sample_progress(run, 1, "judge") == (0, 0)


def test_a_sample_is_over_when_each_question_has_a_label_or_enough_annotations(store: Store, run: str) -> None:
    def is_over(needed: int = 2) -> bool:
        return reads(store).audits.sample_is_over(run, 1, "human", needed)

    assert not is_over()  # nothing was drawn
    writes(store).audits.add_samples([*_sample(run, [0, 2]), *_sample(run, [4], oracle="judge")])
    _grade(store, run, "human", {0: "right"})
    _grade(store, run, "judge", {2: "right"})
    writes(store).audits.add_annotation(_annotation(run, 2, "ann", "wrong"))
    assert writes(store).audits.has_label(question_id(run, 1, 0), "human")
    assert not writes(store).audits.has_label(question_id(run, 1, 2), "human")
    assert (is_over(), is_over(1)) == (False, True)
    writes(store).audits.add_annotation(_annotation(run, 2, "bob", "unknown"))
    assert (is_over(), is_over(3)) == (True, False)


def test_strata_count_only_the_sampled_questions_of_an_oracle_with_a_sample(store: Store, run: str) -> None:
    """The samples of people and of a judge share question 0; both graded questions that they did not draw."""
    writes(store).audits.add_samples([*_sample(run, [0, 3]), *_sample(run, [0, 5], oracle="judge")])
    _grade(store, run, "human", {0: "right", 1: "right", 3: "unknown", 4: "right", 5: "right"})
    _grade(store, run, "judge", {0: "wrong", 3: "right", 5: "right"})
    assert reads(store).audits.named_strata_of(run, 1, "human") == _strata((1, 0, 0), (3, 1, 1), (2, 1, 0))
    assert reads(store).audits.named_strata_of(run, 1, "judge") == _strata((1, 1, 1), (3, 1, 0), (2, 0, 0))
    over = reads(store).audits.strata_of(run, 1, "human")
    assert over["kept"] == {"kept 0.4-0.6": Stratum(3, 1, 1)}
    assert [*over["all"]] == STRATA
    cells = [Cell(1, 0.1, 1, 1), Cell(1, 0.5, 2, 2), Cell(1, 0.9, 1, 1), Cell(1, 1.0, 1, 0)]  # drawn or not
    assert reads(store).audits.audited_cells(run, "human") == cells


def test_strata_of_an_oracle_without_a_sample_count_every_question(store: Store, run: str) -> None:
    verdicts: list[OracleVerdict] = ["right", "wrong", "ill_posed", "right", "right", "wrong", "unknown"]
    _grade(store, run, "exact", dict(enumerate(verdicts)))
    # The first is without the question that no vote answered.
    assert reads(store).audits.named_strata_of(run, 1, "exact") == _strata((1, 1, 0), (3, 3, 1), (2, 2, 2))
    with_unanswered = _strata((2, 2, 0), (3, 3, 1), (2, 2, 2))
    assert reads(store).audits.named_strata_of(run, 1, "exact", unanswered=True) == with_unanswered
    assert reads(store).audits.named_strata_of(run, 2, "exact") == {}
    assert reads(store).audits.oracles_of(run) == {"exact": [1]}
    kept = [Cell(1, 0.4, 1, 0), Cell(1, 0.5, 2, 1)]
    assert reads(store).audits.audited_cells(run, "exact", kept_only=True) == kept
    assert reads(store).audits.audited_cells(run, "exact")[0] == Cell(1, 0.1, 1, 0)


def test_the_p_hats_of_a_run_are_counted_by_iteration(store: Store, run: str) -> None:
    assert reads(store).audits.p_hats_of(run) == {1: {0.1: 1, 0.4: 1, 0.5: 2, 0.9: 1, 1.0: 1}}
    assert reads(store).audits.p_hats_of(run, kept_only=True) == {1: {0.4: 1, 0.5: 2}}


def test_agreement_counts_only_the_questions_that_both_oracles_graded(store: Store, run: str) -> None:
    _grade(store, run, "judge", {0: "right", 1: "right", 2: "wrong"})
    _grade(store, run, "exact", {0: "right", 1: "right", 2: "right", 3: "wrong"})
    assert reads(store).audits.agreement(run, "judge", "exact") == {("right", "right"): 2, ("wrong", "right"): 1}
    assert reads(store).audits.agreement(run, "exact", "judge") == {("right", "right"): 2, ("right", "wrong"): 1}
    assert reads(store).audits.agreement(run, "exact", "human") == {}
    assert reads(store).audits.oracles_of(run) == {"exact": [1], "judge": [1]}


def test_a_locked_question_of_a_sample_makes_the_next_annotator_wait(store: Store, run: str) -> None:
    """The second transaction waits at the lock until the first has committed, and then sees its annotation."""
    key, locked, annotations = question_id(run, 1, 0), threading.Event(), []
    writes(store).audits.add_samples(_sample(run, [0]))

    def annotate_later() -> None:
        locked.wait(timeout=30)
        with store.write() as session:
            queries.audits.lock_sample(session, key, "human")
            annotations.extend(queries.audits.annotations_of(session, [key]))

    other = threading.Thread(target=annotate_later)
    other.start()
    with store.write() as session:
        queries.audits.lock_sample(session, key, "human")
        locked.set()
        queries.audits.add_annotation(session, _annotation(run, 0, "ann", "right"))
    other.join(timeout=60)
    assert [row.annotator for row in annotations] == ["ann"]


def _labelled(run: str, index: int) -> LabelledQuestion:
    verdict, votes, answered = VALUES_OF_QUESTIONS[index]
    answer, classes = ("3", (("3", votes or 0),)) if answered else (None, ())
    label = None if votes is None else PseudoLabel(answer, votes, 10, votes, 0, votes / 10, "all", classes)
    return LabelledQuestion(question_id(run, 1, index), "What is 1 + 2?", label, verdict)


def _grade(store: Store, run: str, oracle: str, verdicts: dict[int, OracleVerdict]) -> None:
    labels = [OracleLabel(question_id(run, 1, index), oracle, verdict, None) for index, verdict in verdicts.items()]
    writes(store).questions.add_oracle_labels(labels)


def _strata(*counts: tuple[int, int, int]) -> dict[str, Stratum]:
    return {name: Stratum(*of_stratum) for name, of_stratum in zip(STRATA, counts, strict=True)}


def _sample(run: str, indices: list[int], oracle: str = "human") -> list[SampleRow]:
    return [SampleRow(question_id(run, 1, i), oracle, run, 1, "a", position) for position, i in enumerate(indices)]


def _annotation(run: str, index: int, annotator: str, verdict: OracleVerdict, minutes: int = 0) -> AnnotationRow:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    return AnnotationRow(question_id(run, 1, index), annotator, verdict, "a note", at)
