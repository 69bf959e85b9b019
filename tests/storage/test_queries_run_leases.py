from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from store_examples import fresh_run, reads, writes

from storage import queries
from storage.errors import LeaseLost, RunHeld, StageHeld
from storage.session import Store

ANN, BOB = "node-1:7:100", "node-2:8:200"


def claim(store: Store, run: str, owner: str, lease_seconds: float = 600) -> bool:
    return writes(store).run_leases.claim_run(run=run, owner=owner, lease_seconds=lease_seconds)


def holder(store: Store, run: str) -> str | None:
    lease = reads(store).run_leases.run_holder(run)
    return None if lease is None else lease.owner


def test_only_one_owner_holds_a_run_until_it_releases_it(store: Store) -> None:
    assert claim(store, "r", ANN)
    assert not claim(store, "r", ANN)  # ANN holds the run already
    with pytest.raises(RunHeld, match=r"run r: .*process 7 on node-1"):
        claim(store, "r", BOB)
    writes(store).run_leases.release_run(run="r", owner=BOB)  # BOB does not hold it: nothing changes
    assert holder(store, "r") == ANN
    writes(store).run_leases.release_run(run="r", owner=ANN)
    assert holder(store, "r") is None
    assert claim(store, "r", BOB)


def test_an_expired_lease_can_be_taken_and_the_old_owner_cannot_renew_it(store: Store) -> None:
    claim(store, "r", ANN, lease_seconds=0)
    assert holder(store, "r") is None
    assert not claim(store, "r", ANN, lease_seconds=0)
    assert claim(store, "r", BOB)
    with store.write() as session, pytest.raises(LeaseLost, match="process 8 on node-2"):
        queries.run_leases.renew_run(session, run="r", owner=ANN, lease_seconds=600)
    writes(store).run_leases.renew_run(run="r", owner=BOB, lease_seconds=0)
    assert holder(store, "r") is None


def test_only_the_holder_of_a_run_can_claim_its_stages(store: Store) -> None:
    """Between two stages no stage has an owner, so the lease on the run itself must keep others out."""
    run, stage = fresh_run(store), {"iteration": 1, "stage": "evaluate", "lease_seconds": 600}
    claim(store, run, ANN)
    with store.write() as session, pytest.raises(StageHeld, match=rf"{run}.*process 7 on node-1"):
        queries.ledger.claim_stage(session, run=run, owner=BOB, **stage)
    assert writes(store).ledger.claim_stage(run=run, owner=ANN, **stage).attempt == 1


def test_releasing_an_owners_leases_releases_its_lease_on_the_run(store: Store) -> None:
    claim(store, "r", ANN)
    writes(store).ledger.release_leases(run="r", owner=ANN)
    assert claim(store, "r", BOB)


def test_exactly_one_of_several_simultaneous_claims_wins(store: Store) -> None:
    runs = [uuid4().hex for _ in range(10)]

    def claim_all(owner: str) -> list[str]:
        return [run for run in runs if try_to_claim(store, run, owner)]

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(claim_all, [f"node:{pid}:1" for pid in range(4)]))
    assert sorted(run for runs_of_owner in won for run in runs_of_owner) == sorted(runs)


def try_to_claim(store: Store, run: str, owner: str) -> bool:
    try:
        return claim(store, run, owner)
    except RunHeld:
        return False
