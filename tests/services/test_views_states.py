"""What a run's state derives from: its status, its stages, its lease, the worker pool and Prefect's flow runs."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from services.prefect.flow_runs import FlowRun
from services.views.states import MEANINGS, RunState, states_of
from storage import queries
from storage.rows import Run, RunStatus
from storage.session import Store
from tests.run_in_each_state import REASONS, STATES, store_each_state
from tests.synthetic_run import create

DOCS = Path(__file__).parents[2] / "docs" / "dashboard.md"
NOW = datetime.now(UTC)  # when the tests were collected, which may be long before they run
DAY = 24 * 60  # minutes
FUTURE = datetime(2226, 5, 1, 6, 30, tzinfo=UTC)
ACCEPTED, LATE = "Prefect has accepted it; no flow runner has taken it", "whether one is up"


def flow_run(state: str, minutes: float = 5, **changes: Any) -> FlowRun:
    """A flow run that was created so many minutes ago and has this state since then."""
    created = NOW - timedelta(minutes=minutes)
    started = None if state in ("SCHEDULED", "PENDING") else created
    plain = FlowRun("id", "r", "demo", state, True, state.title(), None, created, created, started)
    return replace(plain, **changes)


def state_with(store: Store, flow_run: FlowRun | None, name: str = "r") -> RunState:
    with store.read() as session:
        runs: dict[str, Run | None] = {name: None, **queries.runs.runs_named(session, [name])}
        return states_of(session, runs, {} if flow_run is None else {name: flow_run})[name]


def test_each_state_and_its_reason(store: Store) -> None:
    store_each_state(store)
    with store.read() as session:
        runs: dict[str, Run | None] = {run.name: run for run in queries.runs.list_runs(session)}
        states = states_of(session, runs, {})
    assert {name: state.state for name, state in states.items()} == STATES
    for name, state in states.items():
        assert re.fullmatch(REASONS[name], state.reason), (name, state.reason)
    active = {name for name, state in states.items() if state.active}
    assert active == {name for name, state in STATES.items() if state in ("preparing", "queued", "running", "paused")}
    assert {(states[name].iteration, states[name].stage) for name in ("running", "queued")} == {(2, "train_solver")}
    assert (states["interrupted"].iteration, states["interrupted"].stage) == (1, "label_questions")


@pytest.mark.parametrize(
    ("known", "state", "reason"),
    [
        (flow_run("SCHEDULED", 0.1), "waiting", f"{ACCEPTED} yet"),
        (flow_run("SCHEDULED", 3.2), "waiting", f"{ACCEPTED} for 3 min"),
        (flow_run("SCHEDULED", 3.2, name="Late"), "waiting", f"{ACCEPTED} for 3 min; `coevo status` shows {LATE}"),
        (flow_run("PENDING"), "preparing", "a flow runner has taken it and starts its process"),
        (flow_run("RUNNING"), "preparing", "its flow has begun, and its first stage has not"),
        (flow_run("SCHEDULED", scheduled=FUTURE), "waiting", "scheduled in Prefect for 2226-05-01 06:30 UTC"),
        (flow_run("FAILED", message="no vLLM"), "failed", "failed before its first stage began: no vLLM"),
        (flow_run("CRASHED"), "failed", "failed before its first stage began: Prefect gave no reason"),
        (flow_run("CANCELLED", message="enough"), "cancelled", "cancelled: enough"),
    ],
)
def test_a_run_that_only_prefect_knows(
    sqlite: Store, monkeypatch: pytest.MonkeyPatch, known: FlowRun, state: str, reason: str
) -> None:
    monkeypatch.setattr(queries.tables, "database_time", lambda _session: NOW)  # the tests may begin a minute later
    seen = state_with(sqlite, known)
    assert (seen.state, seen.reason, seen.since) == (state, reason, known.since)
    assert seen.active == (state in ("waiting", "preparing"))


KILLED = r"no process has worked on it since \d\d:\d\d UTC; .*"


@pytest.mark.parametrize(
    ("name", "known", "state", "reason", "active"),
    [
        ("paused", flow_run("PAUSED"), "paused", REASONS["paused"], True),
        ("paused", flow_run("RUNNING"), "running", ".*", True),  # Prefect has the decision
        ("running", flow_run("CANCELLING"), "running", "its cancellation has been requested; .*: iteration 2.*", True),
        ("cancelled", None, "cancelled", REASONS["cancelled"], False),
        ("cancelled", flow_run("CANCELLING"), "cancelled", REASONS["cancelled"], True),  # until its flow run has ended
        ("cancelled", flow_run("CANCELLED", message="enough"), "cancelled", f"{REASONS['cancelled']}: enough", False),
        # It is resumed.
        ("cancelled", flow_run("SCHEDULED"), "waiting", f"{ACCEPTED}.*", True),
        ("cancelled", flow_run("RUNNING"), "cancelled", REASONS["cancelled"], True),  # which has set this status
        # A flow that failed before it changed anything counts until the run changes.
        ("cancelled", flow_run("FAILED", -DAY, message="no vLLM"), "failed", ".* first stage began: no vLLM", False),
        ("cancelled", flow_run("FAILED", 5, started=None), "cancelled", REASONS["cancelled"], False),
        # Somebody suspended it in Prefect.
        ("interrupted-while-paused", flow_run("PAUSED", name="Suspended"), "interrupted", "it was susp.*", True),
        ("interrupted-while-paused", flow_run("FAILED"), "interrupted", KILLED, False),  # it waited too long
    ],
)
def test_a_stored_run_with_a_flow_run(
    sqlite: Store, name: str, known: FlowRun | None, state: str, reason: str, active: bool
) -> None:
    store_each_state(sqlite)
    seen = state_with(sqlite, known, name)
    assert (seen.state, seen.active) == (state, active)
    assert re.fullmatch(reason, seen.reason), seen.reason


CUT = "rzero-1.5b, " * 41 + "…"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("RunError: preset: expected one of demo", "preset: expected one of demo"),
        ("KeyError: 'x'", "KeyError: 'x'"),
        ("RunError: " + "rzero-1.5b, " * 50, CUT),
        ("RunError: " + "x" * 600, "x" * 500 + " …"),
    ],
)
def test_the_error_of_a_flow_is_shown_without_prefect_s_words_and_cut_at_a_word(
    sqlite: Store, message: str, shown: str
) -> None:
    failed = flow_run("FAILED", message=f"Flow run encountered an exception: {message}")
    assert state_with(sqlite, failed).reason == f"failed before its first stage began: {shown}"


def test_the_error_of_a_stage_is_cut_at_a_word(sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, "r")
        key: dict[str, Any] = {"run": "r", "iteration": 1, "stage": "evaluate", "owner": "me"}
        queries.ledger.claim_stage(session, **key, lease_seconds=60)
        queries.ledger.fail_stage(session, **key, error="rzero-1.5b, " * 50)
        queries.runs.set_run_status(session, "r", "failed")
    assert state_with(sqlite, None).reason == f"evaluate 1 failed: {CUT}"


@pytest.mark.parametrize("status", ["done", "stopped"])
def test_a_refused_request_does_not_make_a_run_that_has_ended_fail(sqlite: Store, status: RunStatus) -> None:
    with sqlite.write() as session:
        create(session, "r")
        queries.runs.set_run_status(session, "r", status)
    before = state_with(sqlite, None)
    refused = state_with(sqlite, flow_run("FAILED", -DAY, message="t: expected an iteration from 1 to 2, got 9"))
    because = "; a later request was refused: t: expected an iteration from 1 to 2, got 9"
    assert refused == replace(before, reason=before.reason + because)


def test_a_process_that_is_killed_while_it_prepares_a_run_leaves_it_interrupted(sqlite: Store) -> None:
    with sqlite.write() as session:
        queries.run_leases.claim_run(session, run="r", owner="host:1:1", lease_seconds=3600)
    assert state_with(sqlite, flow_run("RUNNING")).state == "preparing"
    with sqlite.write() as session:
        queries.run_leases.claim_run(session, run="r", owner="host:1:1", lease_seconds=0)
    assert state_with(sqlite, flow_run("RUNNING")).state == "interrupted"
    assert state_with(sqlite, flow_run("RUNNING", -DAY)).state == "preparing"  # a later flow run, which goes on


def test_a_run_that_was_left_between_two_stages_was_worked_on_until_the_last_one_ended(sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, "r")
        queries.runs.set_run_status(session, "r", "running")
        key: dict[str, Any] = {"run": "r", "iteration": 1, "stage": "label_questions", "owner": "host:1:1"}
        queries.ledger.claim_stage(session, **key, lease_seconds=60)
        queries.ledger.finish_stage(session, **key, result={})
        [stage] = queries.ledger.stages_of(session, "r")
        [run] = queries.runs.list_runs(session)
    assert stage.finished_at is not None
    assert stage.finished_at > run.updated_at
    assert (state_with(sqlite, None).state, state_with(sqlite, None).since) == ("interrupted", stage.finished_at)


def test_the_documentation_has_every_state() -> None:
    assert {*re.findall(r"^\| `([a-z_]+)` \| ", DOCS.read_text(), re.MULTILINE)} == MEANINGS.keys()
