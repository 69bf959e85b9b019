from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError
from store_examples import fresh_run, label, question, reads, rollout, writes

from core.challenger.gates import Evidence
from core.types import Evaluated, LabelledQuestion, OracleLabel, PseudoLabel, question_id
from storage import queries
from storage.models import EvaluatedItems
from storage.rows import AnnotationRow, RolloutRow
from storage.session import Store
from tests.synthetic_run import add_evaluations

# All examples share one store, and each example creates its own run.
shared_store = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
# Texts that a model may write; among them are NUL and the character that the store escapes it with.
any_text = st.text() | st.sampled_from(["\0", "\ue0000000", "\\boxed{\0}"])


@shared_store
@given(text=any_text, raw=any_text, answer=any_text)
def test_any_text_of_a_model_is_read_back_unchanged(store: Store, text: str, raw: str, answer: str) -> None:
    run = fresh_run(store)
    stored_question = replace(question(run, 0), text=text, raw=raw)
    vote = replace(rollout(run, 0, 0), answer=answer)
    voted = PseudoLabel(answer, 1, 1, 1, 0, 1.0, "parsed", ((answer, 1),))
    labelled = LabelledQuestion(stored_question.id, text, voted, "too_easy")
    oracle = OracleLabel(stored_question.id, "exact", "wrong", answer)
    writes(store).questions.add_questions([stored_question])
    writes(store).questions.add_rollouts([vote])
    writes(store).questions.add_labels([labelled])
    writes(store).questions.add_oracle_labels([oracle])
    evidence = Evidence(stored_question.id, "reordered", "a/solver/1", text, (answer, None))
    writes(store).questions.add_evidence([evidence])
    assert reads(store).questions.evidence_of(run, 1, "reordered") == {stored_question.id: (evidence,)}
    assert reads(store).questions.evidence_of(run, 1, "solvers") == {}
    assert reads(store).questions.questions_of(run, 1) == [stored_question]
    assert reads(store).questions.rollouts_of_question(stored_question.id)[0].answer == answer
    assert reads(store).questions.labels_of(run, 1) == [labelled]
    assert reads(store).questions.oracle_labels_of(run, 1, "exact") == [oracle]


def test_lone_surrogates_are_replaced_in_every_column(store: Store) -> None:
    """UTF-8 cannot encode them, so no exported file and no answer of the API could contain them."""
    lone, replaced = "a\ud83d\0", "a\ufffd\0"
    run = fresh_run(store)
    question_row = replace(question(run, 0), text=lone, raw=lone)
    voted = PseudoLabel(lone, 1, 1, 1, 0, 1.0, "parsed", ((lone, 1),))
    annotation = AnnotationRow(question_row.id, lone, "right", lone, datetime.now(UTC))
    item = Evaluated(lone, lone, 8, 3, True, False)
    stage = {"run": run, "iteration": 1, "stage": "evaluate", "owner": "me"}
    with store.write() as session:
        queries.questions.add_questions(session, [question_row])
        queries.questions.add_labels(session, [LabelledQuestion(question_row.id, lone, voted, "too_easy")])
        queries.questions.add_oracle_labels(session, [OracleLabel(question_row.id, "judge", "wrong", lone)])
        queries.audits.add_annotation(session, annotation)
        add_evaluations(session, checkpoint=f"{run}/base/0", benchmark=lone, items=[item])
        queries.ledger.claim_stage(session, **stage, lease_seconds=60)
        queries.ledger.finish_stage(session, **stage, result={lone: [lone]})
    with store.read() as session:
        assert queries.questions.questions_of(session, run, 1) == [replace(question_row, text=replaced, raw=replaced)]
        stored_label = queries.questions.labels_of(session, run, 1)[0].label
        assert stored_label == replace(voted, answer=replaced, classes=((replaced, 1),))
        assert queries.questions.oracle_labels_of(session, run, 1, "judge")[0].truth == replaced
        assert queries.audits.annotations_of(session, [question_row.id]) == [
            replace(annotation, annotator=replaced, note=replaced)
        ]
        assert session.execute(select(EvaluatedItems.item_id, EvaluatedItems.level)).one() == (replaced, replaced)
        assert queries.ledger.stages_of(session, run)[0].result == {replaced: [replaced]}


_QUESTIONS, _VOTES = 4, 3


@shared_store
@given(cuts=st.sets(st.integers(1, _QUESTIONS * _VOTES - 1)), data=st.data())
def test_the_stored_rows_do_not_depend_on_batches_order_or_repetition(
    store: Store, cuts: set[int], data: st.DataObject
) -> None:
    run = fresh_run(store)
    votes = [rollout(run, index, sample) for index in range(_QUESTIONS) for sample in range(_VOTES)]
    edges = [0, *sorted(cuts), len(votes)]
    batches = [votes[start:end] for start, end in pairwise(edges)]
    repeated = data.draw(st.lists(st.sampled_from(batches), max_size=5), label="written again")
    order = data.draw(st.permutations([*batches, *repeated]), label="order")
    for batch in order:
        writes(store).questions.add_questions([question(run, index) for index in range(_QUESTIONS)])
        writes(store).questions.add_rollouts(batch)
        writes(store).questions.add_labels([label(run, index) for index in range(_QUESTIONS)])
    # A row that exists is not overwritten.
    writes(store).questions.add_rollouts([replace(vote, answer="other") for vote in votes])
    assert reads(store).questions.rollouts_of(run, 1) == [_row(vote) for vote in votes]
    assert len(reads(store).questions.questions_of(run, 1)) == _QUESTIONS
    assert len(reads(store).questions.labels_of(run, 1)) == _QUESTIONS


def test_every_kind_of_label_is_read_back_unchanged(store: Store, run: str) -> None:
    no_votes = PseudoLabel(None, 0, 10, 0, 0, 0.0, "all")
    tied = PseudoLabel("1/3", 3, 10, 9, 2, 1 / 3, "parsed", (("1/3", 3), ("2", 3), ("π", 1)))
    keys = [question_id(run, 1, index) for index in range(3)]
    labelled = [
        LabelledQuestion(keys[0], None, None, "malformed"),
        LabelledQuestion(keys[1], "What is 1 + 2?", no_votes, "no_majority"),
        LabelledQuestion(keys[2], "What is 1 + 2?", tied, "kept"),
    ]
    for name in (run, fresh_run(store)):
        writes(store).questions.add_questions([question(name, 0, None), question(name, 1), question(name, 2)])
    assert (reads(store).questions.count_questions(run, 1), reads(store).questions.count_questions(run, 2)) == (3, 0)
    writes(store).questions.add_labels(labelled)
    assert reads(store).questions.labels_of(run, 1) == labelled
    assert reads(store).questions.labels_of(run, 1, verdict="kept") == labelled[2:]
    assert reads(store).questions.count_verdicts(run, 1) == {"malformed": 1, "no_majority": 1, "kept": 1}


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_pages_together_contain_every_row_in_order(store: Store, run: str, size: int) -> None:
    # Out of order, and past the sixth digit, where the order of the ids is no longer that of the indices.
    indices = [3, 0, 1_000_000, 2, 999_999, 10]
    writes(store).questions.add_questions([question(run, index) for index in indices])
    writes(store).questions.add_rollouts([rollout(run, index, sample) for index in indices for sample in (1, 0)])
    writes(store).questions.add_labels([label(run, index) for index in indices])
    questions, votes, labelled, after = [], [], [], -1
    while page := reads(store).questions.questions_of(run, 1, after=after, limit=size):
        questions += page
        votes += reads(store).questions.rollouts_of(run, 1, after=after, limit=size)
        labelled += reads(store).questions.labels_of(run, 1, after=after, limit=size)
        after = page[-1].index
    assert [row.index for row in questions] == sorted(indices)
    assert questions == reads(store).questions.questions_of(run, 1)
    assert votes == reads(store).questions.rollouts_of(run, 1)
    assert labelled == reads(store).questions.labels_of(run, 1)
    assert [(vote.question_id, vote.sample_index) for vote in votes] == [
        (row.id, sample) for row in questions for sample in (0, 1)
    ]


def test_a_rollout_needs_a_stored_question_and_checkpoint(store: Store, run: str) -> None:
    with pytest.raises(IntegrityError), store.write() as session:
        queries.questions.add_rollouts(session, [rollout(run, 0, 0)])
    writes(store).questions.add_questions([question(run, 0)])
    with pytest.raises(IntegrityError), store.write() as session:
        queries.questions.add_rollouts(session, [replace(rollout(run, 0, 0), checkpoint="nobody/solver/1")])


def test_more_rows_than_fit_in_one_statement_can_be_added(store: Store, run: str) -> None:
    writes(store).questions.add_questions(question(run, index) for index in range(5_001))
    writes(store).questions.add_questions([])
    assert reads(store).questions.count_questions(run, 1) == 5_001


def _row(vote: object) -> RolloutRow:
    return RolloutRow(**{name: getattr(vote, name) for name in RolloutRow.__dataclass_fields__})


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_gathering_statistics_makes_a_new_run_known_to_the_query_planner(store: Store, run: str) -> None:
    writes(store).questions.add_questions([question(run, index) for index in range(20)])
    writes(store).questions.add_labels([label(run, index) for index in range(20)])
    writes(store).questions.gather_statistics()
    with store.read() as session:
        of_runs = "schemaname = current_schema() AND tablename = 'pseudo_labels' AND attname = 'run'"
        most_common_runs = session.scalar(text(f"SELECT most_common_vals::text FROM pg_stats WHERE {of_runs}"))
    assert most_common_runs == f"{{{run}}}"
