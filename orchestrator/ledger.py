"""The ledger: which stages are done or running, which process runs them, and the lease of the process that has the run.

A stage stores its work in batches under natural keys and returns a last write. The ledger marks the stage done in the
transaction of that write. A stage that is done never runs again; an interrupted stage continues where it stopped.

- `run_held`: the lease of a run. `flows.py` holds it for as long as it works on the run.
- `run_once`: a stage under the ledger. `stage_write`: a transaction of a stage that this process still has.
- `is_alive`, `outlived`: whether the owner of a lease lives.

The ledger knows the store, the meter of `costs.py` and processes. It knows no stage, no flow and no Prefect.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from core.processes import identity as processes
from core.processes.faultpoints import faultpoint
from core.texts.redaction import without_secrets
from core.types import StageKey
from core.waiting.retries import Attempts
from orchestrator.costs import Meter
from storage import queries
from storage.errors import LeaseLost, RunHeld, StageHeld
from storage.rows import RunLease, StageRow
from storage.session import DATABASE_ERRORS, Store
from storage.trouble import in_words

Result = Mapping[str, Any]
LastWrite = Callable[[Session], Result]  # writes the stage's last rows and returns the stage's result

LEASE_S = 60.0
_POLL_S = 0.5
_RELEASE_S = 10.0  # PostgreSQL takes a second to start again after one of its processes was killed


def owner() -> str:
    """The name of this process, HOST@SPACE:PID:START, from which others can tell whether it is alive."""
    return f"{processes.space()}:{os.getpid()}:{processes.started(os.getpid()):.0f}"


@contextmanager
def run_held(store: Store, run: str) -> Iterator[None]:
    """Keep other processes from a run while the block runs, between its stages too. Nested blocks have no effect.

    Raises `RunHeld` and changes nothing if another live process works on the run.
    """
    me = owner()
    with store.write() as session:
        _live_holder(session, run)
        is_claimed = queries.run_leases.claim_run(session, run=run, owner=me, lease_seconds=LEASE_S)
    if not is_claimed:
        yield
        return
    faultpoint("run claimed")
    renew = partial(queries.run_leases.renew_run, run=run, owner=me, lease_seconds=LEASE_S)
    try:
        with repeated(store, renew, f"lease of run {run}"):
            yield
    finally:
        _release(store, run, me)


def _release(store: Store, run: str, me: str) -> None:
    """End this process's lease on the run. If the database cannot be used for seconds, the lease expires by itself."""
    attempts = Attempts(_RELEASE_S, most=5)
    while True:
        try:
            with store.write() as session:
                queries.run_leases.release_run(session, run=run, owner=me)
            return
        except DATABASE_ERRORS:
            if not attempts.pause():
                return


def refuse_held(store: Store, run: str) -> None:
    """Raise `RunHeld` if another live process works on the run. To be called before a process is started for it."""
    if (holder := other_holder(store, run)) is not None:
        process, how = queries.run_leases.process_of(holder.owner), queries.run_leases.interrupting(holder.owner)
        raise RunHeld(
            f"run {run}: {process} works on it; nothing was changed. Wait "
            f"until it ends, or end it: {how}, or with `coevo runs cancel {run}` if Prefect started it"
        )


def other_holder(store: Store, run: str) -> RunLease | None:
    """The lease of another live process on the run; None if there is none. A process that is known to be dead loses
    its leases."""
    with store.write() as session:
        holder = _live_holder(session, run)
    return None if holder is None or holder.owner == owner() else holder


def release_dead(store: Store) -> None:
    """End the leases of the processes that are known to be dead, so that every view of runs knows it at once."""
    with store.read() as session:
        dead = [lease.run for lease in queries.run_leases.leases(session).values() if not is_alive(lease.owner)]
    for run in dead:
        other_holder(store, run)


def _live_holder(session: Session, run: str) -> RunLease | None:
    holder = queries.run_leases.run_holder(session, run)
    if holder is None or is_alive(holder.owner):
        return holder
    # It was killed here, so there is no need to wait until its leases expire.
    queries.ledger.release_leases(session, run=run, owner=holder.owner)
    return None


def require_stage(session: Session, key: StageKey) -> None:
    """Raise `LeaseLost` unless this process has the stage. Until the transaction ends, no other process can claim it.

    To be called before the transaction writes anything, so that all transactions lock their rows in the same order.
    """
    queries.ledger.renew_lease(session, **asdict(key), owner=owner(), lease_seconds=LEASE_S)


@contextmanager
def stage_write(store: Store, key: StageKey) -> Iterator[Session]:
    """One transaction for rows of a stage. It is `Store.write`, but refused if this process has lost the stage.

    A process that was suspended, or cut off from the database, for longer than its lease may go on after another one
    has taken over its stage. Raises `LeaseLost`; then nothing is written.
    """
    with store.write() as session:
        require_stage(session, key)
        yield session


def run_once(store: Store, key: StageKey, body: Callable[[], LastWrite]) -> Result:
    """Run a stage unless it is done, and return its result.

    Raises `StageHeld` if another live process runs the stage. An exception of `body` is recorded in the ledger and
    raised again, or a `StorageUnusable` in its place. If it cannot be recorded, the stage's lease ends by itself.
    """
    me, unit = owner(), f"{key.iteration}/{key.stage}"
    row = _claim(store, key, me)
    if row.status == "done":
        return row.result or {}
    faultpoint("stage claimed", unit)
    meter = Meter(key, "stage")

    def renew(session: Session) -> None:
        require_stage(session, key)
        meter.charge(session)

    with repeated(store, renew, f"lease of {key.stage}"):
        try:
            last_write = body()
            faultpoint("stage ready to end", unit)
            with stage_write(store, key) as session:
                result = last_write(session)
                meter.charge(session)
                queries.ledger.finish_stage(session, **asdict(key), owner=me, result=dict(result))
        except Exception as error:
            shown = in_words(error)
            with suppress(*DATABASE_ERRORS), store.write() as session:
                meter.charge(session)
                message = without_secrets(f"{type(shown).__name__}: {shown}")
                queries.ledger.fail_stage(session, **asdict(key), owner=me, error=message)
            if shown is not error:
                raise shown from error
            raise
    faultpoint("stage ended", unit)
    return result


def _claim(store: Store, key: StageKey, me: str) -> StageRow:
    def claim(session: Session) -> StageRow:
        return queries.ledger.claim_stage(session, **asdict(key), owner=me, lease_seconds=LEASE_S)

    try:
        with store.write() as session:
            return claim(session)
    except StageHeld:
        with store.write() as session:
            row = queries.ledger.find_stage(session, **asdict(key))
            if row is None or is_alive(row.owner):
                raise
            # The owner was killed here, so there is no need to wait until the lease expires.
            queries.ledger.release_leases(session, run=key.run, owner=row.owner)
            return claim(session)


def note_progress(store: Store, key: StageKey, done: int, total: int, note: str) -> None:
    """Store the progress of a stage that this process runs in the ledger."""
    with suppress(*DATABASE_ERRORS), store.write() as session:  # if the database is busy, the next report stores it
        queries.ledger.note_progress(session, **asdict(key), owner=owner(), done=done, total=total, note=note)


def is_alive(name: str) -> bool:
    """False only if this process would see the process `name`, and it has ended. `name` is of the form of `owner`.

    A process of another machine or of another PID namespace cannot be seen. It may live, so only its lease decides.
    """
    space, pid, started = name.rsplit(":", 2)
    return space != processes.space() or processes.is_running(int(pid), float(started))


def outlived(store: Store, run: str, name: str) -> bool:
    """Wait until the process `name` renews its lease on the run or loses it, and return whether it has lost it.

    This tells whether a process lives that cannot be seen from here. It takes `LEASE_S` seconds at most.
    """
    first = None
    while True:
        with store.read() as session:
            holder = queries.run_leases.run_holder(session, run)
        if holder is None or holder.owner != name:
            return True
        if first is not None and holder.expires > first:
            return False
        first = holder.expires
        time.sleep(_POLL_S)


@contextmanager
def repeated(store: Store, write: Callable[[Session], object], name: str) -> Iterator[None]:
    """Call `write` in a transaction again and again, from a thread, while the block runs: it may renew a lease."""
    ended = threading.Event()

    def write_until_ended() -> None:
        while not ended.wait(LEASE_S / 4):
            try:
                with store.write() as session:
                    write(session)
            except LeaseLost:
                return  # claiming or finishing a stage raises it again
            except DATABASE_ERRORS:
                continue  # the database may be back before the lease expires

    thread = threading.Thread(target=write_until_ended, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
