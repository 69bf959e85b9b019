"""The verdicts of an oracle on pseudo-labels, kept or not. No training uses them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Any

from core.grading.grader import process_grader
from core.judging.replies import Case, Claimed, Truth
from core.seeds import seed_for
from core.settings.audit import Audit, Judge
from core.statistics.estimates import share
from core.types import LabelledQuestion, OracleLabel, OracleVerdict, Question, StageKey
from orchestrator.evaluation.answering import Write
from orchestrator.stages.context import Context, Progress
from services.inference.client import InferenceError
from services.oracles import exact, given, judge, program
from services.oracles.samples import draw_sample
from storage import queries
from storage.session import Store

log = logging.getLogger(__name__)


def audited_labels(store: Store, run: str, iteration: int, audit: Audit) -> list[OracleLabel]:
    """The labels of the run's oracle, which grades all pseudo-labels at once. Raises `ProgramError`, `GradingError`."""
    rows, questions = _labelled(store, run, iteration)
    labels = [(row.question_id, row.text, row.label.answer) for row in rows if row.text is not None and row.label]
    if audit.oracle == "exact":
        return [exact.audit(*label) for label in labels]
    if audit.program is not None:
        return program.audit([(i, text, answer) for i, text, answer in labels if answer is not None], audit.program)
    truths = _truths(questions)
    return given.audit([(i, truths[i], answer) for i, _, answer in labels if i in truths], process_grader())


def judged_labels(context: Context, settings: Judge) -> dict[str, Any]:
    """The result of asking the run's judge, as of `ask_judge`. If its service does not answer, and the run shall go on
    without it, the result has the error as `unreachable`; what was stored before it stays.
    """
    audit, run, t = context.config.audit, context.run, context.iteration
    try:
        return ask_judge(context.store, run, t, settings, audit.sample, context.batch_done, write=context.write)
    except InferenceError as error:
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
        audited = _verdicts(context.store, run, t, settings.oracle).total()
        return {"oracle": settings.oracle, "unreachable": str(error), "audited": audited}


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
    cases = _cases(store, run, iteration)

    def save(batch: judge.JudgedBatch) -> None:
        with (write or store.write)() as session:
            queries.questions.add_oracle_labels(session, batch.labels)
            queries.usage.add_usage(session, key, "judge", batch.spent)

    drawn_cases = [cases[row.question_id] for row in drawn]
    cost = ask_in_batches(drawn_cases, done, settings, seed, save, progress, f"pseudo-labels, by {oracle}")
    verdicts = _verdicts(store, run, iteration, oracle)
    audited = {"population": population, "audited": verdicts.total(), "verdicts": dict(verdicts)}
    return {"oracle": oracle, **audited, **cost}


def _verdicts(store: Store, run: str, iteration: int, oracle: str) -> Counter[OracleVerdict]:
    """How often an oracle gave each verdict on an iteration's pseudo-labels."""
    with store.read() as session:
        return Counter(label.verdict for label in queries.questions.oracle_labels_of(session, run, iteration, oracle))


def ask_in_batches(
    cases: Sequence[Case],
    done: Container[str],
    settings: Judge,
    seed: int,
    save: Callable[[judge.JudgedBatch], None],
    progress: Progress,
    what: str,
) -> dict[str, Any]:
    """Ask a judge about the cases whose keys are not in `done`, and `save` each batch before the next.

    The result says what this took, with the judge's accuracy on sentinels. Raises as `judge.audit`.
    """
    remaining = [case for case in cases if case.key not in done]
    batches: list[judge.JudgedBatch] = []
    for start in range(0, len(remaining), settings.batch):
        progress(len(cases) - len(remaining) + start, len(cases), what)
        batches.append(judge.audit(remaining[start : start + settings.batch], settings, process_grader(), seed))
        save(batches[-1])
    progress(len(cases), len(cases), what)
    return _cost(batches)


def _cases(store: Store, run: str, iteration: int) -> dict[str, Case]:
    rows, questions = _labelled(store, run, iteration)
    truths = _truths(questions)
    return {
        row.question_id: Case(
            row.question_id,
            row.text,
            Claimed(row.label.answer),
            Truth(truths[row.question_id]) if row.question_id in truths else None,
        )
        for row in rows
        if row.text is not None and row.label is not None and row.label.answer is not None
    }


def _labelled(store: Store, run: str, iteration: int) -> tuple[list[LabelledQuestion], list[Question]]:
    with store.read() as session:
        return queries.questions.labels_of(session, run, iteration), queries.questions.questions_of(
            session, run, iteration
        )


def _truths(questions: Sequence[Question]) -> dict[str, str]:
    return {question.id: question.answer for question in questions if question.answer is not None}


def _cost(batches: Sequence[judge.JudgedBatch]) -> dict[str, Any]:
    """What the batches of this call took, with the accuracy on sentinels. Verdicts stored before are not included."""
    tallies = [tally for batch in batches for tally in (batch.sentinels, *batch.thrown_away)]
    accuracy = share(sum(tally.right for tally in tallies), sum(tally.n for tally in tallies))
    return {
        "asked": sum(len(batch.labels) for batch in batches),
        "batches": len(batches),
        "thrown_away": sum(len(batch.thrown_away) for batch in batches),
        "sentinels": accuracy and {"value": accuracy.value, "ci95": [accuracy.lo, accuracy.hi], "n": accuracy.n},
        "prompt_tokens": sum(batch.spent.prompt_tokens for batch in batches),
        "reply_tokens": sum(batch.spent.reply_tokens for batch in batches),
    }
