"""Questions, their votes and pseudo-labels, and the oracles' labels.

A stage may write its rows again: a row whose key exists already stays as it is. So a stage that continues after a crash
must read back what is stored, and must not rely on what it has in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from sqlalchemy import Select, bindparam, func, select, text, update
from sqlalchemy.orm import Session

from core.challenger.gates import Evidence
from core.types import LabelledQuestion, OracleLabel, PseudoLabel, Question, Rollout, Verdict, question_key
from storage.models import GateEvidence, OracleLabels, PseudoLabels, Questions, Rollouts, Runs, Stages
from storage.queries.ledger import find_stage
from storage.queries.tables import columns, find_rows, insert_dataclasses, insert_new, is_postgresql, table_of
from storage.rows import RolloutRow

_LABEL_FIELDS = ("answer", "votes", "m", "parsed", "unknown", "p_hat", "denominator", "classes")


def add_questions(session: Session, questions: Iterable[Question]) -> None:
    insert_dataclasses(session, Questions, questions, Question)


def questions_of(
    session: Session, run: str, iteration: int, *, after: int = -1, limit: int | None = None
) -> list[Question]:
    """The questions of an iteration by index, malformed ones included; `after` and `limit` select a page."""
    page = _page(select(*columns(Questions, Question)), run, iteration, after, limit)
    return [Question(*row) for row in session.execute(page)]


def count_questions(session: Session, run: str, iteration: int) -> int:
    of_iteration = [Questions.run == run, Questions.iteration == iteration]
    return session.scalar(select(func.count()).select_from(Questions).where(*of_iteration)) or 0


def add_rollouts(session: Session, rollouts: Iterable[Rollout | RolloutRow]) -> None:
    """Store votes without their texts, which `storage.files.texts` keeps."""
    insert_dataclasses(session, Rollouts, rollouts, RolloutRow)


def rollouts_of(
    session: Session, run: str, iteration: int, *, after: int = -1, limit: int | None = None
) -> list[RolloutRow]:
    """The votes of an iteration, by the index of the question and by `sample_index`; only those of at most `limit`
    questions after the index `after`."""
    questions = _page(select(Questions.id, Questions.index), run, iteration, after, limit).subquery()
    votes = select(*columns(Rollouts, RolloutRow)).join(questions, questions.c.id == Rollouts.question_id)
    return [RolloutRow(*row) for row in session.execute(votes.order_by(questions.c.index, Rollouts.sample_index))]


def rollouts_of_question(session: Session, question_id: str) -> list[RolloutRow]:
    return find_rows(session, Rollouts, RolloutRow, Rollouts.question_id == question_id, order=[Rollouts.sample_index])


def add_labels(session: Session, labelled: Iterable[LabelledQuestion]) -> None:
    """Store verdicts and pseudo-labels. The texts of the questions are stored with the questions only."""
    rows = (
        {
            **{"question_id": question.question_id, "verdict": question.verdict, "gate": question.gate},
            **_position(question.question_id),
            **{name: None if question.label is None else getattr(question.label, name) for name in _LABEL_FIELDS},
        }
        for question in labelled
    )
    insert_new(session, PseudoLabels, rows)


def _position(question_id: str) -> dict[str, Any]:
    return dict(zip(("run", "iteration", "index"), question_key(question_id), strict=True))


def labels_of(
    session: Session,
    run: str,
    iteration: int,
    verdict: Verdict | None = None,
    *,
    after: int = -1,
    limit: int | None = None,
) -> list[LabelledQuestion]:
    """The labelled questions of an iteration by index, with their texts; only those with `verdict` if it is given."""
    fields = [getattr(PseudoLabels, name) for name in _LABEL_FIELDS]
    labelled = select(Questions.id, Questions.text, PseudoLabels.verdict, PseudoLabels.gate, *fields).join(PseudoLabels)
    if verdict is not None:
        labelled = labelled.where(PseudoLabels.verdict == verdict)
    rows = session.execute(_page(labelled, run, iteration, after, limit))
    return [LabelledQuestion(key, text, label_of(label), stored, gate) for key, text, stored, gate, *label in rows]


def refuse_labels(session: Session, gates: Mapping[str, str]) -> None:
    """Give kept questions the verdict "refused". `gates` has the gate that refused each, by the question's id."""
    of_question = (PseudoLabels.question_id == bindparam("of_question"), PseudoLabels.verdict == "kept")
    refuse = update(table_of(PseudoLabels)).where(*of_question).values(verdict="refused", gate=bindparam("by_gate"))
    if gates:
        session.execute(refuse, [{"of_question": key, "by_gate": gate} for key, gate in gates.items()])


def add_evidence(session: Session, rows: Iterable[Evidence]) -> None:
    insert_dataclasses(session, GateEvidence, rows, Evidence)


def evidence_of(session: Session, run: str, iteration: int, gate: str) -> dict[str, tuple[Evidence, ...]]:
    """Question id -> what a gate was told about it, by voter, of an iteration's questions."""
    rows = select(*columns(GateEvidence, Evidence)).join(Questions).where(GateEvidence.gate == gate)
    told: dict[str, list[Evidence]] = {}
    for row in session.execute(_page(rows, run, iteration, -1, None).order_by(GateEvidence.voter)):
        evidence = Evidence(*row)
        told.setdefault(evidence.question_id, []).append(replace(evidence, answers=tuple(evidence.answers)))
    return {key: tuple(rows) for key, rows in told.items()}


def label_of(fields: Sequence[Any]) -> PseudoLabel | None:
    """Make a label of its columns, in the order of `PseudoLabel`'s fields. None if the question was never asked."""
    answer, votes, m, parsed, unknown, p_hat, denominator, classes = fields
    if classes is None:
        return None
    ranked = tuple((representative, count) for representative, count in classes)
    return PseudoLabel(answer, votes, m, parsed, unknown, p_hat, denominator, ranked)


def source_checkpoints(session: Session, run: str, iteration: int) -> tuple[list[str], list[str]]:
    """The checkpoints that wrote an iteration's questions, and the checkpoints that voted on them."""
    of_iteration = [Questions.run == run, Questions.iteration == iteration]
    wrote = select(Questions.checkpoint).where(*of_iteration, Questions.checkpoint.is_not(None)).distinct()
    voted = select(Rollouts.checkpoint).join(Questions, Questions.id == Rollouts.question_id).where(*of_iteration)
    return sorted(filter(None, session.scalars(wrote))), sorted(session.scalars(voted.distinct()))


def count_verdicts(session: Session, run: str, iteration: int) -> dict[Verdict, int]:
    """Verdict -> number of questions; verdicts without questions are left out."""
    counted = select(PseudoLabels.verdict, func.count())
    of_iteration = [PseudoLabels.run == run, PseudoLabels.iteration == iteration]
    rows = session.execute(counted.where(*of_iteration).group_by(PseudoLabels.verdict))
    return {cast(Verdict, verdict): count for verdict, count in rows}


def all_labelled(session: Session, run: str, iteration: int) -> bool:
    """Whether every question of an iteration has its final verdict.

    This is so when `label_questions` is done, and `admit_questions` if the run has gates. A run that does not vote on
    its given prompts has no such stage; then `read_prompts` must be done, and must have given every question a verdict.
    """
    voted = find_stage(session, run=run, iteration=iteration, stage="label_questions")
    if voted is not None:
        config = session.scalar(select(Runs.config).where(Runs.name == run)) or {}
        if config.get("dataset", {}).get("gates"):
            voted = find_stage(session, run=run, iteration=iteration, stage="admit_questions")
        return voted is not None and voted.status == "done"
    read = find_stage(session, run=run, iteration=iteration, stage="read_prompts")
    if read is None or read.status != "done":
        return False
    return sum(count_verdicts(session, run, iteration).values()) == count_questions(session, run, iteration)


def labelled_iterations(session: Session, run: str) -> list[int]:
    """The iterations of a run whose questions all have their final verdicts, in order."""
    begun = select(Stages.iteration).where(
        Stages.run == run, Stages.stage.in_(("label_questions", "read_prompts")), Stages.status == "done"
    )
    iterations = session.scalars(begun.distinct().order_by(Stages.iteration))
    return [iteration for iteration in iterations.all() if all_labelled(session, run, iteration)]


def gather_statistics(session: Session) -> None:
    """Update the statistics of PostgreSQL's planner on questions, votes and labels. Does nothing on SQLite.

    PostgreSQL itself analyses a table only once a tenth of it has changed. Until then its planner assumes that a new
    run has a single row, and compares each of 8,000 labels with each of as many verdicts: 26 s instead of 0.2.
    """
    if is_postgresql(session):
        tables = ", ".join(table_of(model).name for model in (Questions, Rollouts, PseudoLabels))
        session.execute(text(f"ANALYZE (SKIP_LOCKED) {tables}"))  # it skips a locked table: a later call will do


def add_oracle_labels(session: Session, labels: Iterable[OracleLabel]) -> None:
    insert_new(session, OracleLabels, ({**asdict(label), **_position(label.question_id)} for label in labels))


def oracle_labels_of(session: Session, run: str, iteration: int, oracle: str) -> list[OracleLabel]:
    """The labels of an oracle in an iteration, by index."""
    labels = select(*columns(OracleLabels, OracleLabel)).join(Questions).where(OracleLabels.oracle == oracle)
    return [OracleLabel(*row) for row in session.execute(_page(labels, run, iteration, -1, None))]


def _page(
    statement: Select[*tuple[Any, ...]], run: str, iteration: int, after: int, limit: int | None
) -> Select[*tuple[Any, ...]]:
    """Select a page by index. It begins after a key and skips no rows, so the last page costs as much as the first."""
    conditions = [Questions.run == run, Questions.iteration == iteration, Questions.index > after]
    return statement.where(*conditions).order_by(Questions.index).limit(limit)
