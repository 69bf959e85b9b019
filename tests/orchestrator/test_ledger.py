"""A stage is done once, by one owner, and its last write and its mark are one transaction."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from operator import gt
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from core.processes import identity as processes
from core.types import Stage, StageKey
from orchestrator import runs
from orchestrator.ledger import (
    LastWrite,
    Result,
    other_holder,
    outlived,
    owner,
    refuse_held,
    run_held,
    run_once,
)
from orchestrator.pool.slot import Demand, training_slot
from storage import queries
from storage.errors import LeaseLost, RunHeld, StageHeld
from storage.models import RunLeases, Stages
from storage.session import Store
from tests.fake_clock import fake_clock
from tests.live import wait_until
from tests.synthetic_run import context_of, create, run_of

STAGE: Stage = "generate_questions"
KEY = StageKey("r", 1, STAGE)


@pytest.fixture
def store(sqlite: Store) -> Store:
    with sqlite.write() as session:
        create(session, "r")
    return sqlite


@pytest.fixture
def other() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Another live process of this machine, and its name as an owner."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host = owner().rsplit(":", 2)[0]
    yield f"{host}:{process.pid}:{processes.started(process.pid):.0f}", process
    process.kill()
    process.wait()


def _claim(store: Store, name: str, lease_seconds: float = 600) -> None:
    with store.write() as session:
        queries.ledger.claim_stage(session, run="r", iteration=1, stage=STAGE, owner=name, lease_seconds=lease_seconds)


def _lose(store: Store) -> None:
    """Another process takes the stage over, as after a suspension that was longer than the lease."""
    with store.write() as session:
        queries.ledger.release_leases(session, run="r", owner=owner())
    _claim(store, "elsewhere:1:1")


def _holder(store: Store) -> str | None:
    holder = other_holder(store, "r")
    return holder and holder.owner


def _status(store: Store) -> tuple[str, str | None, str | None] | None:
    """The status, the owner and the error of the stage."""
    with store.read() as session:
        row = queries.ledger.find_stage(session, run="r", iteration=1, stage=STAGE)
    return row and (row.status, row.owner, row.error)


def _write_of(text: str) -> LastWrite:
    """A last write whose row shows whether it was committed."""

    def last_write(session: Session) -> Result:
        queries.figures.add_train_metrics(session, run="r", iteration=1, role="solver", step=1, metrics={text: 1.0})
        return {"wrote": text}

    return last_write


def _written_names(store: Store) -> list[str]:
    with store.read() as session:
        return [metric.name for metric in queries.figures.train_metrics_of(session, "r")]


def test_a_finished_stage_is_not_run_again(store: Store) -> None:
    assert run_once(store, KEY, lambda: _write_of("first")) == {"wrote": "first"}
    assert run_once(store, KEY, lambda: _write_of("second")) == {"wrote": "first"}
    assert _written_names(store) == ["first"]


def test_a_failure_is_stored_and_the_stage_can_be_run_again(store: Store) -> None:
    def fail() -> LastWrite:
        raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        run_once(store, KEY, fail)
    assert _status(store) == ("failed", owner(), "ValueError: no luck")
    assert run_once(store, KEY, lambda: _write_of("again")) == {"wrote": "again"}


def test_a_live_owner_keeps_its_stages_and_its_run_and_a_dead_one_loses_them_at_once(
    store: Store, other: tuple[str, subprocess.Popen[bytes]]
) -> None:
    name, process = other
    after = StageKey("r", 1, "label_questions")
    _claim(store, name)
    with pytest.raises(StageHeld, match=f"process {process.pid} on "):
        run_once(store, KEY, lambda: _write_of("x"))
    # A run is refused between its stages too.
    with store.write() as session:
        queries.run_leases.claim_run(session, run="r", owner=name, lease_seconds=600)
        queries.ledger.finish_stage(session, run="r", iteration=1, stage=STAGE, owner=name, result={})
    with pytest.raises(RunHeld, match=f"run r: process {process.pid} on "):
        refuse_held(store, "r")
    with pytest.raises(RunHeld, match=f"process {process.pid} on "), run_held(store, "r"):
        raise AssertionError("the block began")
    with pytest.raises(StageHeld, match=f"process {process.pid} on "):
        run_once(store, after, lambda: _write_of("x"))
    assert _written_names(store) == []
    with store.write() as session:
        key: dict[str, Any] = {"run": "r", "iteration": 1, "stage": after.stage}
        queries.ledger.claim_stage(session, **key, owner=name, lease_seconds=600)
    process.kill()
    process.wait()
    refuse_held(store, "r")
    with run_held(store, "r"):
        assert run_once(store, after, lambda: _write_of("mine")) == {"wrote": "mine"}


def test_an_owner_on_another_host_keeps_its_stage_while_the_lease_lasts(store: Store) -> None:
    _claim(store, "elsewhere:1:1")
    with pytest.raises(StageHeld, match="process 1 on elsewhere"):
        run_once(store, KEY, lambda: _write_of("x"))
    with store.write() as session:
        queries.ledger.release_leases(session, run="r", owner="elsewhere:1:1")
    assert run_once(store, KEY, lambda: _write_of("mine")) == {"wrote": "mine"}


def test_a_process_that_lost_its_stage_writes_nothing(store: Store) -> None:
    """The transaction of the last write and the mark is rolled back."""

    def slow() -> LastWrite:
        _lose(store)
        return _write_of("too late")

    with pytest.raises(LeaseLost):
        run_once(store, KEY, slow)
    assert _written_names(store) == []
    assert _status(store) == ("running", "elsewhere:1:1", None)


def test_a_batch_of_a_process_that_lost_its_stage_is_not_written(store: Store, tmp_path: Path) -> None:
    context = replace(context_of(store, "r", 1, home=tmp_path), stage=STAGE)

    def suspended() -> LastWrite:
        with context.write() as session:
            _write_of("first")(session)
        _lose(store)
        with context.write() as session:
            _write_of("too late")(session)
        raise AssertionError("it was written")

    with pytest.raises(LeaseLost):
        run_once(store, KEY, suspended)
    assert _written_names(store) == ["first"]
    with pytest.raises(LeaseLost):
        context.refuse_lost()


def test_a_process_that_has_lost_its_training_leaves_the_slot_to_the_one_that_has_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a campaign: a process that had been suspended took the slot of the one that had taken over."""
    monkeypatch.setattr("orchestrator.pool.slot._refuse_impossible", lambda *_: None)  # it asks Ray
    context = context_of(store, "r", 1)
    key: dict[str, Any] = {"run": "r", "iteration": 1, "stage": context.stage}
    with store.write() as session:
        queries.ledger.release_leases(session, run="r", owner=owner())
        queries.ledger.claim_stage(session, **key, owner="elsewhere:1:1", lease_seconds=600)
        queries.pool.join_pool(session, **key, owner="elsewhere:1:1", kind="CPU", units=1.0)
    slot = training_slot(context.run, context.key, Demand("CPU", 1.0), context.note, holds_applications=True)
    with pytest.raises(LeaseLost), slot:
        raise AssertionError("it has a slot")
    with store.read() as session:
        assert [row.owner for row in queries.pool.pool_jobs(session)] == ["elsewhere:1:1"]


def _answer(status: int) -> httpx.HTTPStatusError:
    response = httpx.Response(status, request=httpx.Request("GET", "http://127.0.0.1:1/api"))
    return httpx.HTTPStatusError(f"HTTP {status}", request=response.request, response=response)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (httpx.ConnectError("no Prefect"), "running"),
        (httpx.ReadTimeout("no Prefect"), "running"),
        (_answer(503), "running"),
        (_answer(422), "failed"),
        (httpx.InvalidURL("?"), "failed"),
    ],
)
def test_a_run_has_not_failed_when_prefect_is_away(store: Store, error: Exception, status: str) -> None:
    with pytest.raises(type(error)), run_held(store, "r"), runs.status_kept(run_of(store, "r")):
        raise error
    assert runs.status_of(store, "r") == status


@pytest.mark.parametrize("other_process", ["none", "works on it", "has ended it"])
def test_a_run_that_was_taken_over_keeps_the_status_that_its_new_process_set(store: Store, other_process: str) -> None:
    def fail() -> None:
        with run_held(store, "r"), runs.status_kept(run_of(store, "r")):
            with store.write() as session:
                session.execute(update(RunLeases).values(expires=datetime(2000, 1, 1, tzinfo=UTC)))  # it was suspended
                if other_process != "none":
                    queries.run_leases.claim_run(session, run="r", owner="elsewhere:1:1", lease_seconds=60)
                if other_process == "has ended it":
                    queries.runs.set_run_status(session, "r", "done")
                    queries.run_leases.release_run(session, run="r", owner="elsewhere:1:1")
            raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        fail()
    expected = {"none": "failed", "works on it": "running", "has ended it": "done"}
    assert runs.status_of(store, "r") == expected[other_process]


def test_the_leases_are_renewed_while_the_block_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the run's and the stage's lease are renewed."""
    monkeypatch.setattr("orchestrator.ledger.LEASE_S", 1.0)

    def expiries() -> list[datetime]:
        with store.read() as session:
            return [*session.scalars(select(Stages.lease_expires)), *session.scalars(select(RunLeases.expires))]

    def slow() -> LastWrite:
        before = expiries()
        assert len(before) == 2
        wait_until(lambda: all(map(gt, expiries(), before)), "both leases to be renewed", 60)
        return _write_of("in time")

    with run_held(store, "r"):
        assert run_once(store, KEY, slow) == {"wrote": "in time"}


def _claim_run(store: Store, name: str) -> None:
    with store.write() as session:
        queries.run_leases.claim_run(session, run="r", owner=name, lease_seconds=600)


def test_a_run_s_lease_is_released_when_the_outermost_block_ends(store: Store) -> None:
    with run_held(store, "r"), pytest.raises(ValueError, match="inner"), run_held(store, "r"):
        raise ValueError("inner")
    with run_held(store, "r"):
        with run_held(store, "r"):
            pass
        with store.write() as session, pytest.raises(RunHeld):
            queries.run_leases.claim_run(session, run="r", owner="elsewhere:1:1", lease_seconds=600)
        refuse_held(store, "r")  # it refuses other processes' runs only, and this process has the lease
    _claim_run(store, "elsewhere:1:1")
    assert _holder(store) == "elsewhere:1:1"


@pytest.mark.parametrize(("failures", "remains"), [(0, False), (4, False), (5, True)])
def test_a_run_s_lease_is_released_even_if_connections_are_cut_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch, failures: int, remains: bool
) -> None:
    release, cut = queries.run_leases.release_run, [OperationalError("release", None, Exception("cut"))] * failures

    def cut_at_first(session: Session, **lease: str) -> None:
        if cut:
            raise cut.pop()
        release(session, **lease)

    with run_held(store, "r"):
        monkeypatch.setattr(queries.run_leases, "release_run", cut_at_first)
        clock = fake_clock(monkeypatch)
    with store.read() as session:
        assert ("r" in queries.run_leases.leases(session)) == remains
    assert len(clock.pauses) == min(failures, 4)


# Claims the run as another container with this host name does, and says so.
_IN_ANOTHER_SPACE = """
import sys
from orchestrator.ledger import owner, run_held
from storage.session import open_store
with run_held(open_store(sys.argv[1]), "r"):
    print(owner(), flush=True)
    input()
"""
_SPACES = [[], ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]]


@pytest.mark.parametrize("prefix", _SPACES, ids=["here", "another PID namespace"])
def test_a_live_holder_keeps_its_run_in_every_pid_namespace(store: Store, tmp_path: Path, prefix: list[str]) -> None:
    if prefix and subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make a PID namespace")
    command = [*prefix, sys.executable, "-c", _IN_ANOTHER_SPACE, store.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert _holder(store) == name
        with pytest.raises(RunHeld), run_held(store, "r"):
            pass
        process.stdin.close()


@pytest.mark.parametrize("lives", [True, False])
def test_a_process_that_cannot_be_seen_lives_if_it_renews_its_lease(
    store: Store, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    unseen = "host@other.1:7:1"
    _claim_run(store, unseen)

    def renew_or_expire(_seconds: float) -> None:
        with store.write() as session:
            queries.run_leases.renew_run(session, run="r", owner=unseen, lease_seconds=700 if lives else 0)

    monkeypatch.setattr("orchestrator.ledger.time.sleep", renew_or_expire)
    assert outlived(store, "r", unseen) is not lives
