"""Where rows come from: the stages are done in order, what rows refer to exists, and the right models made it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from core.settings.config import CoEvolution
from core.types import checkpoint_id, question_id
from orchestrator.ledger import is_alive
from orchestrator.plan import plan
from orchestrator.verification.checks import Compared
from orchestrator.verification.subject import Subject
from storage import queries
from storage.queries.run_leases import process_of


def stages(subject: Subject) -> Iterator[Compared]:
    """A stage is of the run's plan, is done only after all stages before it, and then has a result and an end."""
    right = "one of the plan, with a result, done after all before it"
    planned = [key for key in plan(subject.config) if key[0] in subject.iterations]
    order = {key: number for number, key in enumerate(planned)}
    asked = {(t, "ask_a_person") for t, _, result in subject.done("check_health") if result.get("action") == "pause"}
    missing = next((key for key in order if key not in subject.results), None)
    ended: datetime | None = None  # the stage before
    stored = {(row.iteration, row.stage): row for row in subject.stages}
    for key in sorted(stored, key=lambda key: order.get(key, len(order))):
        row, found = stored[key], right
        if key not in order and key not in asked:
            found = "one that the plan does not have"
        elif row.status == "done":
            if row.result is None or row.finished_at is None:
                found = "one without a result"
            elif missing is not None and order.get(key, -1) > order[missing]:
                found = f"one that is done before {missing[1]} of iteration {missing[0]}"
            elif key in order:
                found = "one that ended before the one before it" if ended and row.finished_at < ended else right
                ended = row.finished_at
        yield f"{row.stage} of iteration {row.iteration}", right, found


def leases(subject: Subject) -> Iterator[Compared]:
    """No process that has ended holds a lease, on the run or on one of its stages. Such a lease does no harm: the next
    process that works on the run ends it."""
    now = subject.read(queries.tables.database_time)
    held = [(f"run {subject.name}", subject.lease.owner, subject.lease.expires)] if subject.lease else []
    running = [row for row in subject.stages if row.status == "running" and row.lease_expires > now]
    held += [(f"{row.stage} of iteration {row.iteration}", row.owner, row.lease_expires) for row in running]
    for name, owner, expires in held:
        is_dead = expires <= now or not is_alive(owner)
        right = "one of a process that lives"
        yield f"lease on {name}", right, f"one of {process_of(owner)}, which has ended" if is_dead else right


def references(subject: Subject) -> Iterator[Compared]:
    """Every question, vote, label, training and evaluation refers to questions and checkpoints that exist, and so does
    every checkpoint to its parent, up to the base model."""
    for missing in subject.read(queries.run_rows.references, subject.name)[1]:
        yield f"{missing.row}: {missing.column}", f"{missing.value} in {missing.table}", None
    roots = [row.id for row in subject.checkpoints if row.parent is None]
    base = [checkpoint_id(subject.name, "base", 0)] if 0 in subject.iterations else []  # a fork has another run's
    yield "checkpoints without a parent", base, roots


def questions(subject: Subject) -> Iterator[Compared]:
    """An iteration has all its candidates, with the indices 0 to N - 1 and the keys that these give.

    They were written by its Challenger, given prompts and those of a program by nobody. The votes were cast by the
    Solver before its training. With a shared model, both are of that model after the Challenger's training.
    """
    for t, stage, result in subject.done("generate_questions", "read_prompts"):
        count = subject.config.dataset.candidates if isinstance(subject.config, CoEvolution) else result["prompts"]
        rows = subject.read(queries.questions.questions_of, subject.name, t)
        stored = {row.index: row.id for row in rows}
        wrote, voted = subject.read(queries.questions.source_checkpoints, subject.name, t)
        for index in sorted({*range(count), *stored}):
            key = question_id(subject.name, t, index)
            yield key, key if index < count else None, stored.get(index)
        is_written = isinstance(subject.config, CoEvolution) and subject.config.challenger.source == "model"
        writers = [subject.playing("challenger", t, stage)] if is_written else []
        yield f"questions of iteration {t}: checkpoint", writers, wrote
        if (t, "label_questions") in subject.results and voted:
            yield f"votes of iteration {t}: checkpoint", [subject.playing("solver", t, "label_questions")], voted
