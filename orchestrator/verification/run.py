"""All checks of a run, in order. Each is a function that counts what it looks at and adds the violations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlalchemy.exc import DBAPIError

from core.errors import CoevoError
from orchestrator.installation.home import Home
from orchestrator.ledger import is_alive
from orchestrator.verification import evaluations, figures, files, labels, ledger, lineage, texts, trainings
from orchestrator.verification.checks import Check, Verification, shown
from orchestrator.verification.subject import Subject, subject_of
from storage.queries.run_leases import process_of
from storage.session import DATABASE_ERRORS, Store

_CHECKS: dict[str, Callable[[Check, Subject], None]] = {
    "stages": ledger.stages,
    "leases": ledger.leases,
    "references": lineage.references,
    "questions": lineage.questions,
    "writers of questions and votes": lineage.writers,
    "votes": labels.votes,
    "pseudo-labels": labels.pseudo_labels,
    "verdicts": labels.verdicts,
    "filter statistics": labels.filter_statistics,
    "oracle's labels": figures.oracle_labels,
    "label accuracy": figures.label_accuracy,
    "estimated label accuracy": figures.estimates,
    "series": figures.series,
    "trained checkpoints": lineage.trainings,
    "questions trained on": lineage.trained_on,
    "training metrics": trainings.training_metrics,
    "training rollouts": trainings.training_rollouts,
    "evaluations": evaluations.evaluations,
    "evaluated questions": evaluations.evaluated_items,
    "texts": texts.texts,
    "checkpoints": files.checkpoints,
    "optimiser's moments": files.moments,
    "left over": files.left_over,
}
# What a check may raise if rows are damaged in a way that it does not look for: a result without a field, for instance.
_DAMAGED = (CoevoError, *DATABASE_ERRORS, LookupError, TypeError, ValueError)


def verify_run(home: Home, store: Store, run: str, *, quick: bool = False) -> Verification:
    """Compare what is stored of a run with what follows from its raw rows and files. Nothing is changed.

    Only stages that are done are looked at. With `quick`, the files of checkpoints and of moments are not read. Raises
    `NotThere` if there is no such run, and `UnreadableSettings`.
    """
    subject = subject_of(home, store, run, quick=quick)
    return Verification(run, [_result(name, check, subject) for name, check in _CHECKS.items()], [*_left_out(subject)])


def _result(name: str, check: Callable[[Check, Subject], None], subject: Subject) -> Check:
    result = Check(name)
    try:
        check(result, subject)
    except _DAMAGED as error:
        reason = error.orig if isinstance(error, DBAPIError) else error  # without the statement
        result.violate("the check itself", "rows that can be read", f"{type(reason).__name__}: {shown(str(reason))}")
    return result


def _left_out(subject: Subject) -> Iterator[str]:
    if subject.lease is not None and is_alive(subject.lease.owner):
        yield f"{process_of(subject.lease.owner)} works on the run"
    for row in subject.unfinished:
        yield f"{row.stage} of iteration {row.iteration} is {row.status}"
