"""The worker pool's queue: the jobs in it, what each has used, and how abandoned jobs are removed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import update
from store_examples import fresh_run, reads, writes

from storage import queries
from storage.models import PoolJobs
from storage.queries.tables import table_of
from storage.rows import PoolRow
from storage.session import Store

STAGE = "train_solver"


def join(store: Store, run: str, owner: str, *, lease_seconds: float = 600, units: float = 2) -> None:
    claim = {"run": run, "iteration": 1, "stage": STAGE, "owner": owner}
    writes(store).ledger.claim_stage(**claim, lease_seconds=lease_seconds)
    writes(store).pool.join_pool(**claim, kind="GPU", units=units)


def job(store: Store, run: str) -> PoolRow:
    [pool_job] = [row for row in reads(store).pool.pool_jobs() if row.run == run]
    return pool_job


def start(store: Store, run: str) -> None:
    with store.write() as session:
        queries.pool.lock_pool(session)
        queries.pool.start_job(session, job(store, run))


def leave(store: Store, run: str, owner: str) -> None:
    writes(store).pool.leave_pool(run=run, iteration=1, stage=STAGE, owner=owner)


def charge(store: Store, run: str, owner: str) -> None:
    writes(store).pool.charge_job(run=run, iteration=1, stage=STAGE, owner=owner)


def move_start_back(store: Store, run: str, seconds: float) -> None:
    """Make the job's current state look as if it began, and was charged last, `seconds` earlier."""
    with store.write() as session:
        row, back = job(store, run), timedelta(seconds=seconds)
        charged = row.charged and row.charged - back
        values = {"since": row.since - back, "charged": charged}
        session.execute(update(table_of(PoolJobs)).where(PoolJobs.run == run).values(**values))


def test_a_job_is_queued_then_running_then_done(store: Store, run: str) -> None:
    join(store, run, "ann")
    waiting = job(store, run)
    assert (waiting.kind, waiting.units, waiting.status) == ("GPU", 2, "queued")
    start(store, run)
    assert (job(store, run).status, job(store, run).since >= waiting.since) == ("running", True)
    move_start_back(store, run, 100)
    leave(store, run, "ann")
    done = job(store, run)
    assert done.status == "done"
    duration = (done.since - waiting.since).total_seconds()
    assert 200 <= done.used <= 2 * (100 + duration)  # 2 units for 100 s and for the duration of the test
    leave(store, run, "ann")  # cleaning up may leave the pool a second time: nothing changes
    assert job(store, run) == done


def test_a_job_that_queues_again_keeps_its_use_and_waiting_adds_nothing(store: Store, run: str) -> None:
    join(store, run, "ann")
    start(store, run)
    move_start_back(store, run, 50)
    leave(store, run, "ann")
    used = job(store, run).used
    join(store, run, "ann")
    move_start_back(store, run, 1000)
    leave(store, run, "ann")
    assert job(store, run).used == used > 0


def test_a_killed_job_has_used_what_was_charged_until_it_was_killed(store: Store, run: str) -> None:
    """The time until the run goes on in another process, here 1,000 s, is not counted."""
    join(store, run, "ann", lease_seconds=0)
    start(store, run)
    move_start_back(store, run, 50)
    charge(store, run, "bob")  # not his job
    assert job(store, run).used == 0
    charge(store, run, "ann")
    used = job(store, run).used
    assert 100 <= used < 1000
    charge(store, run, "ann")
    assert job(store, run).used < 1000  # the same time is not counted twice
    used = job(store, run).used
    move_start_back(store, run, 1000)
    join(store, run, "bob")
    assert (job(store, run).status, job(store, run).used) == ("queued", used)


def test_a_job_that_queues_again_in_the_same_process_is_charged_until_then(store: Store, run: str) -> None:
    join(store, run, "ann")
    start(store, run)
    move_start_back(store, run, 50)
    join(store, run, "ann")
    assert job(store, run).status == "queued"
    assert job(store, run).used >= 100


@pytest.mark.parametrize("cause", ["its lease ran out", "its stage failed", "another took it over"])
def test_a_job_whose_owner_lost_its_stage_is_dropped(store: Store, cause: str) -> None:
    run, other = fresh_run(store), fresh_run(store)
    join(store, run, "ann", lease_seconds=0 if cause != "its stage failed" else 600)
    join(store, other, "eve")
    start(store, run)
    key = {"run": run, "iteration": 1, "stage": STAGE}
    if cause == "its stage failed":
        writes(store).ledger.fail_stage(**key, owner="ann", error="x")
    if cause == "another took it over":
        writes(store).ledger.claim_stage(**key, owner="bob", lease_seconds=600)
    writes(store).pool.drop_abandoned()
    assert job(store, run).status == "done"
    assert job(store, other).status == "queued"
    if cause == "another took it over":
        join(store, run, "bob")
        leave(store, run, "ann")  # too late: the job is bob's now
        assert job(store, run).status == "queued"
