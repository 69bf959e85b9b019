"""All checks of a run, in order. Each yields what it compares, or a note."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from core.errors import CoevoError
from orchestrator.installation.home import Home
from orchestrator.ledger import is_alive
from orchestrator.verification import figures, files, lineage, trainings
from orchestrator.verification.checks import Check, Compared, Verification, differences, shown
from orchestrator.verification.subject import Subject
from storage import queries
from storage.errors import StoreError
from storage.queries.run_leases import process_of
from storage.session import DATABASE_ERRORS, Store

_CHECKS: tuple[Callable[[Subject], Iterator[Compared | str]], ...] = (
    *(lineage.stages, lineage.leases, lineage.references, lineage.questions),
    *(
        figures.labels,
        figures.admissions,
        figures.oracle_labels,
        figures.series,
        figures.evaluations,
        figures.evaluated_questions,
    ),
    *(trainings.trained_checkpoints, trainings.questions_trained_on, trainings.training_steps),
    *(files.texts, files.checkpoints, files.moments, files.left_over),
)
# What a check may raise if rows are damaged in a way that it does not look for: a result without a field, for instance.
_DAMAGED = (CoevoError, *DATABASE_ERRORS, LookupError, TypeError, ValueError)


def verify_run(home: Home, store: Store, run: str, *, quick: bool = False) -> Verification:
    """Compare what is stored of a run with what follows from its raw rows and files. Nothing is changed.

    Only stages that are done are looked at. The iterations that a fork has inherited are looked at where they are, with
    the settings that they were made with. With `quick`, the files of checkpoints and of moments are not read. Raises
    `NotThere` if there is no such run, `UnreadableSettings`, and `StoreError` if the database is damaged.
    """
    try:
        with store.read() as session:
            subjects = [*_subjects(session, home, store, run, quick)]
    except DATABASE_ERRORS as error:
        raise StoreError(f"run {run}: its rows cannot be read: {error}") from error
    *_, subject = subjects
    stages, lease = subject.stages, subject.lease
    left_out = [f"{row.stage} of iteration {row.iteration} is {row.status}" for row in stages if row.status != "done"]
    if lease is not None and is_alive(lease.owner):
        left_out.insert(0, f"{process_of(lease.owner)} works on the run")
    verification = Verification(run, [], left_out)
    for check in _CHECKS:
        result = Check(check.__name__.replace("_", " "))
        verification.checks.append(result)
        try:
            for compared in chain.from_iterable(check(of) for of in subjects):
                if isinstance(compared, str):
                    result.notes.append(compared)
                else:
                    result.checked += 1
                    result.violations += differences(*compared)
        except _DAMAGED as error:
            reason = error.orig if isinstance(error, DBAPIError) else error  # without the statement
            got = f"{type(reason).__name__}: {shown(str(reason))}"
            result.violations += differences("the check itself", "rows that can be read", got)
    return verification


def _subjects(session: Session, home: Home, store: Store, run: str, quick: bool) -> Iterator[Subject]:
    """The runs that have made a run's iterations, each with these; the run itself comes last."""
    stages, leases = queries.ledger.stages_of(session, run), queries.run_leases.leases(session)
    begins_at = queries.forks.begins_at(session, run)
    for name, part in {**queries.forks.by_maker(session, run), run: []}.items():
        detail = queries.runs.get_run(session, name)
        config, rows = queries.runs.config_from(detail), tuple(row for row in stages if row.run == name)
        iterations = range(part[0], part[-1] + 1) if part else range(begins_at, config.iterations + 1)
        lease = None if part else leases.get(name)
        yield Subject(home, store, detail, config, rows, lease, quick, iterations, run)
