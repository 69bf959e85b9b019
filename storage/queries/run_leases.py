"""Which process works on a run, and when its lease expires.

The lease covers the whole run, including the time between two stages, when no stage has an owner. There is a row only
while a process works on the run. The row may exist before the run does, so that only one process creates the run.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, or_, select, update
from sqlalchemy.orm import Session

from storage.errors import LeaseLost, RunHeld
from storage.models import RunLeases
from storage.queries.tables import database_time, find_row, find_rows, insert_into, table_of
from storage.rows import RunLease


def claim_run(session: Session, *, run: str, owner: str, lease_seconds: float) -> bool:
    """Claim a run that has no lease, or whose lease has expired. If `owner` held it already, renew it and return False.

    Raises `RunHeld` when another owner's lease is live.
    """
    now = database_time(session)
    previous_owner = session.scalar(select(table_of(RunLeases).c.owner).where(RunLeases.run == run))
    lease = {"owner": owner, "expires": now + timedelta(seconds=lease_seconds)}
    # A single statement decides, so if two owners claim at once, one of them wins.
    claimed = session.execute(
        insert_into(session, RunLeases)
        .values(run=run, **lease)
        .on_conflict_do_update(
            index_elements=["run"], set_=lease, where=or_(RunLeases.owner == owner, RunLeases.expires <= now)
        )
        .returning(table_of(RunLeases).c.owner)
    ).one_or_none()
    if claimed is None:
        holder = run_holder(session, run)
        raise RunHeld(f"run {run}: expected nobody to work on it, but {holder_text(holder)}")
    return previous_owner != owner


def renew_run(session: Session, *, run: str, owner: str, lease_seconds: float) -> None:
    """Extend the lease to `lease_seconds` from now. Raises `LeaseLost` when `owner` no longer has it."""
    expires = database_time(session) + timedelta(seconds=lease_seconds)
    held = update(table_of(RunLeases)).where(RunLeases.run == run, RunLeases.owner == owner).values(expires=expires)
    if session.execute(held.returning(table_of(RunLeases).c.run)).one_or_none() is None:
        raise LeaseLost(f"run {run}: expected {owner} to work on it, but {holder_text(run_holder(session, run))}")


def release_run(session: Session, *, run: str, owner: str) -> None:
    """End the lease of an owner that stops or is known to be dead. The lease of another owner stays."""
    session.execute(delete(table_of(RunLeases)).where(RunLeases.run == run, RunLeases.owner == owner))


def run_holder(session: Session, run: str) -> RunLease | None:
    """The live lease on a run; None if there is none."""
    live = [RunLeases.run == run, RunLeases.expires > database_time(session)]
    return find_row(session, RunLeases, RunLease, *live)


def leases(session: Session) -> dict[str, RunLease]:
    """Run -> its lease, which has expired if its process was killed; runs that nobody works on are left out."""
    return {lease.run: lease for lease in find_rows(session, RunLeases, RunLease)}


def holder_text(holder: RunLease | None) -> str:
    """The second half of a message, which says who works on a run: "process 4242 on node-1 does"."""
    return "nobody does" if holder is None else f"{process_of(holder.owner)} does"


def interrupting(owner: str) -> str:
    """For a message: how a person ends a process that was started in a terminal, so that it ends in order."""
    host, pid, started = _parts(owner)
    return "with Ctrl-C in its terminal" + (f", or with `kill -INT {pid}` on {host}" if started else "")


def process_of(owner: str) -> str:
    """An owner for a message: "process 4242 on node-1"."""
    host, pid, started = _parts(owner)
    return f"process {pid} on {host}" if started else owner


def _parts(owner: str) -> tuple[str, str, str]:
    """The host, pid and start time of an owner, which `orchestrator.ledger` writes as host@space:pid:start time."""
    space, _, process = owner.partition(":")
    pid, _, started = process.partition(":")
    return space.partition("@")[0], pid, started
