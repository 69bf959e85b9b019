"""Stores the verdicts of the run's oracle on pseudo-labels, kept or not. No training uses them.

A program grades all labels at once, a judge a sample in batches.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from sqlalchemy.orm import Session

from core.asking.judge import Judge
from core.grading.grader import process_grader
from core.judging.replies import Case, Claimed, Truth
from core.seeds import seed_for
from core.settings.audit import Audit
from core.types import LabelledQuestion, OracleLabel, OracleVerdict, StageKey
from orchestrator.evaluation.answering import Write
from orchestrator.evaluation.judging import ask_in_batches
from orchestrator.ledger import LastWrite
from orchestrator.run import Progress
from orchestrator.stages.context import Context
from services.inference.client import InferenceError
from services.oracles import exact, given, judge, program
from services.oracles.samples import draw_sample
from storage import queries
from storage.session import Store

log = logging.getLogger(__name__)


def audit_labels(context: Context) -> LastWrite:
    audit, store, run, t = context.config.audit, context.store, context.run.name, context.iteration
    if audit.oracle is None:
        return lambda _session: {"oracle": None}
    if audit.judge is None:
        labels = audited_labels(store, run, t, audit)

        def last_write(session: Session) -> dict[str, Any]:
            queries.questions.add_oracle_labels(session, labels)
            return {"oracle": audit.oracle, "audited": len(labels)}

        return last_write
    oracle = audit.judge.oracle
    try:
        result = ask_judge(store, run, t, audit.judge, audit.sample, context.batch_done, write=context.write)
    except InferenceError as error:  # what was stored before it stays
        if audit.if_unreachable == "stop":
            raise
        log.warning(
            "run %s, iteration %d: the judge does not answer, so the run goes on without its verdicts; `coevo audit "
            "judge %s %d` asks it afterwards: %s",
            run,
            t,
            run,
            t,
            error,
        )
        result = {"oracle": oracle, "unreachable": str(error), "audited": _verdicts(store, run, t, oracle).total()}
    return lambda _session: result


def audited_labels(store: Store, run: str, iteration: int, audit: Audit) -> list[OracleLabel]:
    """The labels of the run's oracle, which grades all pseudo-labels at once. Raises `ProgramError`, `GradingError`."""
    rows, truths = _labelled(store, run, iteration)
    labels = [(row.question_id, row.text, row.label.answer) for row in rows if row.text is not None and row.label]
    if audit.oracle == "exact":
        return [exact.audit(*label) for label in labels]
    if audit.program is not None:
        return program.audit([(i, text, answer) for i, text, answer in labels if answer is not None], audit.program)
    return given.audit([(i, truths[i], answer) for i, _, answer in labels if i in truths], process_grader())


def ask_judge(
    store: Store,
    run: str,
    iteration: int,
    settings: Judge,
    sample: int | None,
    progress: Progress,
    *,
    kept_only: bool = False,
    write: Write | None = None,
) -> dict[str, Any]:
    """Ask a judge about a sample of an iteration's pseudo-labels, or about all if `sample` is None. With `kept_only`,
    only the labels of kept questions are meant.

    Its verdicts are stored batch by batch, and labels with a stored verdict are not asked again. The result includes
    the judge's accuracy on sentinels, which are questions of known answer. Raises `AuditError`, `JudgeError`,
    `InferenceError`, `GradingError`.
    """
    oracle, key = settings.oracle, StageKey(run, iteration, "audit_labels")
    with store.read() as session:
        auditable = queries.audits.auditable(session, run, iteration)
        population = sum(verdict == "kept" or not kept_only for _, _, verdict in auditable)
        done = {label.question_id for label in queries.questions.oracle_labels_of(session, run, iteration, oracle)}
        seed = seed_for(queries.runs.get_run(session, run).seed, "judge", iteration)
    size = sample or population
    drawn = draw_sample(store, run, iteration, oracle, size, kept_only=kept_only) if population else []
    rows, truths = _labelled(store, run, iteration)
    cases = {
        row.question_id: Case(
            row.question_id,
            row.text,
            Claimed(row.label.answer),
            Truth(truths[row.question_id]) if row.question_id in truths else None,
        )
        for row in rows
        if row.text is not None and row.label is not None and row.label.answer is not None
    }

    def save(batch: judge.JudgedBatch) -> None:
        with (write or store.write)() as session:
            queries.questions.add_oracle_labels(session, batch.labels)
            queries.usage.add_usage(session, key, "judge", batch.spent)

    drawn_cases = [cases[row.question_id] for row in drawn]
    cost = ask_in_batches(drawn_cases, done, settings, seed, save, progress, f"pseudo-labels, by {oracle}")
    verdicts = _verdicts(store, run, iteration, oracle)
    audited = {"population": population, "audited": verdicts.total(), "verdicts": dict(verdicts)}
    return {"oracle": oracle, **audited, **cost}


def _labelled(store: Store, run: str, iteration: int) -> tuple[list[LabelledQuestion], dict[str, str]]:
    """The labels of an iteration, and the true answers that questions came with, by the question's id."""
    with store.read() as session:
        questions = queries.questions.questions_of(session, run, iteration)
        truths = {question.id: question.answer for question in questions if question.answer is not None}
        return queries.questions.labels_of(session, run, iteration), truths


def _verdicts(store: Store, run: str, iteration: int, oracle: str) -> Counter[OracleVerdict]:
    """How often an oracle gave each verdict on an iteration's pseudo-labels."""
    with store.read() as session:
        return Counter(label.verdict for label in queries.questions.oracle_labels_of(session, run, iteration, oracle))
