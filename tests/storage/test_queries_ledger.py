from __future__ import annotations

import multiprocessing
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest
from store_examples import fresh_run, reads, writes

from storage.errors import LeaseLost, StageHeld, StoreError
from storage.rows import StageRow
from storage.session import Store, open_store


def claim(store: Store, run: str, owner: str, stage: str = "label_questions", lease_seconds: float = 600) -> StageRow:
    return writes(store).ledger.claim_stage(run=run, iteration=1, stage=stage, owner=owner, lease_seconds=lease_seconds)


def key_of(run: str) -> dict[str, Any]:
    """The key of the stage that Ann holds."""
    return {"run": run, "iteration": 1, "stage": "label_questions", "owner": "ann"}


def test_a_claimed_stage_is_running_and_a_finished_one_is_done(store: Store) -> None:
    run, before = fresh_run(store), datetime.now(UTC)
    claimed = claim(store, run, "ann", lease_seconds=600)
    assert before <= claimed.started_at <= datetime.now(UTC)
    assert (claimed.status, claimed.owner, claimed.attempt, claimed.result) == ("running", "ann", 1, None)
    assert claimed.lease_expires - claimed.started_at == timedelta(seconds=600)
    done = writes(store).ledger.finish_stage(**key_of(run), result={"kept": 3})
    assert (done.status, done.result, done.attempt) == ("done", {"kept": 3}, 1)
    assert done.finished_at is not None
    assert done.finished_at >= done.started_at
    assert claim(store, run, "bob") == done  # a finished stage is returned as it is


def test_a_stage_with_a_live_lease_is_refused_and_its_owner_named(store: Store, run: str) -> None:
    claim(store, run, "ann")
    with pytest.raises(StageHeld, match=f"stage {run}/1/label_questions: .* in ann"):
        claim(store, run, "bob")
    assert claim(store, run, "ann").attempt == 2


def test_an_expired_lease_can_be_taken_and_the_old_owner_is_refused(store: Store, run: str) -> None:
    claim(store, run, "ann", lease_seconds=0)
    writes(store).ledger.renew_lease(**key_of(run), lease_seconds=600)  # nobody has taken it yet
    with pytest.raises(StageHeld):
        claim(store, run, "bob")
    writes(store).ledger.renew_lease(**key_of(run), lease_seconds=0)
    assert claim(store, run, "bob").attempt == 2
    late = {"renew_lease": {"lease_seconds": 600}, "finish_stage": {"result": {}}, "fail_stage": {"error": "late"}}
    for name, more in late.items():
        with pytest.raises(LeaseLost, match=r"\bann\b.*\bbob\b"):
            getattr(writes(store).ledger, name)(**key_of(run), **more)
    assert reads(store).ledger.find_stage(run=run, iteration=1, stage="label_questions").owner == "bob"


def test_a_failed_stage_keeps_its_error_and_progress_until_it_is_claimed(store: Store, run: str) -> None:
    claim(store, run, "ann")
    writes(store).ledger.note_progress(**key_of(run), done=128, total=300, note="questions labelled")
    writes(store).ledger.fail_stage(**key_of(run), error="nul \0 in it")
    failed = reads(store).ledger.find_stage(run=run, iteration=1, stage="label_questions")
    assert failed is not None
    assert (failed.status, failed.error) == ("failed", "nul \0 in it")
    again = claim(store, run, "bob")
    assert (again.status, again.attempt, again.error, again.finished_at) == ("running", 2, None, None)
    assert (again.progress_done, again.progress_total, again.progress_note) == (None, None, None)


def test_releasing_an_owners_leases_frees_its_stages_of_one_run_only(store: Store) -> None:
    run, other = fresh_run(store), fresh_run(store)
    claim(store, run, "dead", stage="evaluate")
    claim(store, run, "alive", stage="audit_labels")
    claim(store, other, "dead", stage="evaluate")
    released = writes(store).ledger.release_leases(run=run, owner="dead")
    assert [(row.stage, row.owner) for row in released] == [("evaluate", "dead")]
    assert claim(store, run, "bob", stage="evaluate").owner == "bob"
    for held_run, stage in ((run, "audit_labels"), (other, "evaluate")):
        with pytest.raises(StageHeld):
            claim(store, held_run, "bob", stage=stage)


def test_the_stages_of_a_run_are_listed_in_the_order_of_their_claims(store: Store, run: str) -> None:
    for stage in ("train_solver", "evaluate", "audit_labels"):
        claim(store, run, "ann", stage=stage)
    assert [row.stage for row in reads(store).ledger.stages_of(run)] == ["train_solver", "evaluate", "audit_labels"]
    assert reads(store).ledger.find_stage(run=run, iteration=2, stage="evaluate") is None


def test_a_stage_of_an_unknown_run_cannot_be_claimed(store: Store) -> None:
    with pytest.raises(StoreError, match="run nobody: "):
        claim(store, "nobody", "ann")


_STAGES, _CLAIMANTS = 25, 3


def _claim_all(url: str, run: str, owner: str, barrier: Barrier, won: multiprocessing.Queue[list[str]]) -> None:
    store = open_store(url)
    claimed = []
    barrier.wait()
    for number in range(_STAGES):
        try:
            claimed.append(claim(store, run, owner, stage=f"stage {number}").stage)
        except StageHeld:
            continue
    won.put(claimed)


def test_exactly_one_of_several_processes_gets_each_stage(store: Store, run: str, database_url: str) -> None:
    forkserver = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(["pytest", "psycopg", "storage.queries", "storage.session"])
    barrier, won = forkserver.Barrier(_CLAIMANTS), forkserver.Queue()
    claimants = [
        forkserver.Process(target=_claim_all, args=(database_url, run, f"owner {number}", barrier, won))
        for number in range(_CLAIMANTS)
    ]
    for claimant in claimants:
        claimant.start()
    stages = [stage for _ in claimants for stage in won.get(timeout=120)]
    for claimant in claimants:
        claimant.join()
    assert sorted(stages) == sorted(f"stage {number}" for number in range(_STAGES))
