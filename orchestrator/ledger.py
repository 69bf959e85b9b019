"""The ledger: which stage of which iteration is done, by whom, and the leases of the process that works on a run.

A stage does its work in batches under natural keys and hands back a last write; the ledger marks the stage done in the
transaction of that write. A stage that is done is never run again, a stage that was cut off goes on where it was.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from core.types import Stage
from orchestrator.installation import processes
from storage import queries
from storage.errors import LeaseLost, RunHeld, StageHeld
from storage.rows import RunLease, StageRow
from storage.session import Store

Result = Mapping[str, Any]
LastWrite = Callable[[Session], Result]  # the stage's last rows; what it returns is stored as the stage's result

LEASE_S = 60.0


def owner() -> str:
    """This process, so that another one can tell whether it is still alive: host:pid:start time."""
    return f"{socket.gethostname()}:{os.getpid()}:{processes.started(os.getpid()):.0f}"


@contextmanager
def run_held(store: Store, run: str) -> Iterator[None]:
    """Work on a run alone while the block runs, between its stages too. A block within such a block changes nothing.

    Raises `RunHeld` when another live process works on the run; then nothing is changed.
    """
    me = owner()
    if not _claim_run(store, run, me):
        yield
        return
    renew = partial(queries.run_leases.renew_run, run=run, owner=me, lease_seconds=LEASE_S)
    try:
        with _renewed(store, renew, f"lease of run {run}"):
            yield
    finally:
        with suppress(DBAPIError), store.write() as session:  # otherwise it runs out
            queries.run_leases.release_run(session, run=run, owner=me)


def refuse_held(store: Store, run: str) -> None:
    """Raise `RunHeld` when another live process works on the run: for whoever is about to start one that would."""
    if (holder := other_holder(store, run)) is not None:
        raise RunHeld(
            f"run {run}: {queries.run_leases.process_of(holder.owner)} works on it; nothing was changed. Wait "
            f"until it ends, or end it: with Ctrl-C in its terminal, or with `coevo runs cancel {run}` where Prefect "
            "started it"
        )


def other_holder(store: Store, run: str) -> RunLease | None:
    """The other live process that works on a run. One that was killed on this machine loses its leases."""
    with store.write() as session:
        holder = _live_holder(session, run)
    return None if holder is None or holder.owner == owner() else holder


def _claim_run(store: Store, run: str, me: str) -> bool:
    with store.write() as session:
        _live_holder(session, run)
        return queries.run_leases.claim_run(session, run=run, owner=me, lease_seconds=LEASE_S)


def _live_holder(session: Session, run: str) -> RunLease | None:
    holder = queries.run_leases.run_holder(session, run)
    if holder is None or is_alive(holder.owner):
        return holder
    # Killed on this very machine: no need to wait until its leases run out.
    queries.ledger.release_leases(session, run=run, owner=holder.owner)
    return None


def run_once(store: Store, run: str, iteration: int, stage: Stage, body: Callable[[], LastWrite]) -> Result:
    """Run a stage unless it is done already; its stored result either way.

    Raises `StageHeld` when another live process is at it, and what `body` raises after noting it in the ledger.
    """
    me = owner()
    row = _claim(store, run, iteration, stage, me)
    if row.status == "done":
        return row.result or {}
    renew = partial(
        queries.ledger.renew_lease, run=run, iteration=iteration, stage=stage, owner=me, lease_seconds=LEASE_S
    )
    with _renewed(store, renew, f"lease of {stage}"):
        try:
            last_write = body()
            with store.write() as session:
                result = last_write(session)
                queries.ledger.finish_stage(
                    session, run=run, iteration=iteration, stage=stage, owner=me, result=dict(result)
                )
        except Exception as error:  # noted, then raised again
            with store.write() as session:
                why = f"{type(error).__name__}: {error}"
                queries.ledger.fail_stage(session, run=run, iteration=iteration, stage=stage, owner=me, error=why)
            raise
    return result


def note_progress(store: Store, run: str, iteration: int, stage: Stage, done: int, total: int, note: str) -> None:
    """Write how far a stage of this process is into the ledger."""
    with suppress(DBAPIError), store.write() as session:  # a busy database: the next report says it
        queries.ledger.note_progress(
            session, run=run, iteration=iteration, stage=stage, owner=owner(), done=done, total=total, note=note
        )


def _claim(store: Store, run: str, iteration: int, stage: Stage, me: str) -> StageRow:
    claim = partial(
        queries.ledger.claim_stage, run=run, iteration=iteration, stage=stage, owner=me, lease_seconds=LEASE_S
    )
    try:
        with store.write() as session:
            return claim(session)
    except StageHeld:
        with store.write() as session:
            row = queries.ledger.find_stage(session, run=run, iteration=iteration, stage=stage)
            if row is None or is_alive(row.owner):
                raise
            # Its owner was killed on this very machine: no need to wait until the lease runs out.
            queries.ledger.release_leases(session, run=run, owner=row.owner)
            return claim(session)


def is_alive(name: str) -> bool:
    """False only when `name` is a process of this machine that is gone."""
    host, pid, started = name.rsplit(":", 2)
    return host != socket.gethostname() or processes.is_running(int(pid), float(started))


@contextmanager
def _renewed(store: Store, renew: Callable[[Session], object], name: str) -> Iterator[None]:
    """Renew a lease from a thread while the block runs."""
    over = threading.Event()

    def keep() -> None:
        while not over.wait(LEASE_S / 4):
            try:
                with store.write() as session:
                    renew(session)
            except LeaseLost:
                return  # whoever claims or finishes a stage is told so
            except DBAPIError:
                continue  # the database may be back before the lease runs out

    thread = threading.Thread(target=keep, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
