"""The ledger: stages in order, each with its result, and no lease of a process that has ended."""

from __future__ import annotations

from itertools import pairwise

from core.types import Stage
from orchestrator.ledger import is_alive
from orchestrator.plan import plan
from orchestrator.verification.checks import Check
from orchestrator.verification.subject import Subject
from storage import queries
from storage.queries.run_leases import process_of
from storage.rows import StageRow


def stages(check: Check, subject: Subject) -> None:
    """A stage is of the run's plan, is done only after all stages before it, and then has a result and an end."""
    done = {(row.iteration, row.stage): row for row in subject.stages if row.status == "done"}
    planned = [*plan(subject.config)]
    first_missing = next((key for key in planned if key not in done), None)
    for row in subject.stages:
        check.checked += 1
        if (row.iteration, row.stage) not in planned and not _asked(row, done):
            check.violate(_name(row), "a stage of the run's plan", f"a stage that is {row.status}")
    for key, row in done.items():
        if row.result is None or row.finished_at is None:
            check.violate(_name(row), "a result and the time of its end, as it is done", "none")
        if first_missing and key in planned and planned.index(key) > planned.index(first_missing):
            check.violate(_name(row), f"{first_missing[1]} of iteration {first_missing[0]} done before it", "not done")
    for before, row in pairwise([done[key] for key in planned if key in done]):
        if before.finished_at and row.finished_at and before.finished_at > row.finished_at:
            check.violate(_name(row), f"an end after that of {_name(before)}", f"{row.finished_at:%F %H:%M:%S} UTC")


def _asked(row: StageRow, done: dict[tuple[int, Stage], StageRow]) -> bool:
    """Whether a person was to be asked after the iteration, which is the only stage that no plan has."""
    health = done.get((row.iteration, "check_health"))
    return row.stage == "ask_a_person" and health is not None and (health.result or {}).get("action") == "pause"


def leases(check: Check, subject: Subject) -> None:
    """No process that has ended holds a lease, on the run or on one of its stages. Such a lease does no harm: the next
    process that works on the run ends it."""
    with subject.store.read() as session:
        now = queries.tables.database_time(session)
    lease = subject.lease
    held = [(f"lease on run {subject.name}", lease.owner, lease.expires)] if lease else []
    running = (row for row in subject.stages if row.status == "running" and row.lease_expires > now)
    held += [(f"lease on {_name(row)}", row.owner, row.lease_expires) for row in running]
    for name, owner, expires in held:
        check.checked += 1
        if expires <= now or not is_alive(owner):
            check.violate(name, "none of a process that has ended", process_of(owner))


def _name(row: StageRow) -> str:
    return f"{row.stage} of iteration {row.iteration}"
