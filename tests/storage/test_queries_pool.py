"""The worker pool's queue: who is in it, what they used, and how those who are gone leave it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import update
from store_examples import fresh_run

from storage import queries
from storage.models import PoolJobs
from storage.queries.tables import table_of
from storage.rows import PoolRow
from storage.session import Store

STAGE = "train_solver"


def join(store: Store, run: str, owner: str, *, lease_seconds: float = 600, units: float = 2) -> None:
    with store.write() as session:
        claim = {"run": run, "iteration": 1, "stage": STAGE, "owner": owner}
        queries.ledger.claim_stage(session, **claim, lease_seconds=lease_seconds)
        queries.pool.join_pool(session, **claim, kind="GPU", units=units)


def job(store: Store, run: str) -> PoolRow:
    with store.read() as session:
        [found] = [row for row in queries.pool.pool_jobs(session) if row.run == run]
        return found


def start(store: Store, run: str) -> None:
    with store.write() as session:
        queries.pool.lock_pool(session)
        queries.pool.start_job(session, job(store, run))


def leave(store: Store, run: str, owner: str) -> None:
    with store.write() as session:
        queries.pool.leave_pool(session, run=run, iteration=1, stage=STAGE, owner=owner)


def begun_earlier(store: Store, run: str, seconds: float) -> None:
    with store.write() as session:
        earlier = job(store, run).since - timedelta(seconds=seconds)
        session.execute(update(table_of(PoolJobs)).where(PoolJobs.run == run).values(since=earlier))


def test_a_job_from_its_queue_to_its_end(store: Store) -> None:
    run = fresh_run(store)
    join(store, run, "ann")
    waiting = job(store, run)
    assert (waiting.kind, waiting.units, waiting.status) == ("GPU", 2, "queued")
    start(store, run)
    assert (job(store, run).status, job(store, run).since >= waiting.since) == ("running", True)
    begun_earlier(store, run, 100)
    leave(store, run, "ann")
    done = job(store, run)
    assert done.status == "done"
    took = (done.since - waiting.since).total_seconds()
    assert 200 <= done.used <= 2 * (100 + took)  # 2 units for 100 s, and for what the test took
    leave(store, run, "ann")  # again, by whoever cleans up
    assert job(store, run) == done


def test_a_job_that_queues_again_keeps_what_it_used_and_waiting_costs_nothing(store: Store) -> None:
    run = fresh_run(store)
    join(store, run, "ann")
    start(store, run)
    begun_earlier(store, run, 50)
    leave(store, run, "ann")
    used = job(store, run).used
    join(store, run, "ann")
    begun_earlier(store, run, 1000)
    leave(store, run, "ann")
    assert job(store, run).used == used > 0


def test_what_a_job_used_is_kept_when_it_queues_again_in_the_middle(store: Store) -> None:
    """As one that goes on in another process, after its own was killed."""
    run = fresh_run(store)
    join(store, run, "ann", lease_seconds=0)
    start(store, run)
    begun_earlier(store, run, 50)
    join(store, run, "bob")
    assert job(store, run).status == "queued"
    assert job(store, run).used >= 100


@pytest.mark.parametrize("how", ["its lease ran out", "its stage failed", "another took it over"])
def test_whoever_no_longer_holds_the_stage_is_dropped(store: Store, how: str) -> None:
    run, other = fresh_run(store), fresh_run(store)
    join(store, run, "ann", lease_seconds=0 if how != "its stage failed" else 600)
    join(store, other, "eve")
    start(store, run)
    key = {"run": run, "iteration": 1, "stage": STAGE}
    with store.write() as session:
        if how == "its stage failed":
            queries.ledger.fail_stage(session, **key, owner="ann", error="x")
        if how == "another took it over":
            queries.ledger.claim_stage(session, **key, owner="bob", lease_seconds=600)
    with store.write() as session:
        queries.pool.drop_abandoned(session)
    assert job(store, run).status == "done"
    assert job(store, other).status == "queued"
    if how == "another took it over":
        join(store, run, "bob")
        leave(store, run, "ann")  # late, and no longer hers
        assert job(store, run).status == "queued"


def test_the_queue_goes_with_its_run(store: Store) -> None:
    run = fresh_run(store)
    join(store, run, "ann")
    with store.write() as session:
        queries.runs.delete_run(session, run)
    with store.read() as session:
        assert queries.pool.pool_jobs(session) == []
