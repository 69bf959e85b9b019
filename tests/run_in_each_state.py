"""A store with a run in each state that the store alone can tell; each is named after its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from core.types import Stage
from orchestrator.ledger import owner
from services.views.reasons import turn_note
from storage import queries
from storage.rows import RunStatus
from storage.session import Store
from tests.synthetic_run import create, finish

DEAD = "another-host:1:1"  # a process whose lease has expired
# name of the run -> its state, and a regular expression for the whole reason
_RUNS = {
    "created": ("created", r"nothing has begun it yet; `coevo resume created` does"),
    "prepares-again": ("preparing", "its flow has begun, and its first stage has not"),
    "queued": ("queued", r"iteration 2, train_solver: waits for 2 GPUs; running trains on 1 GPU since \d\d:\d\d UTC"),
    "queued-for-its-turn": (
        "queued",
        "iteration 1, evaluate: waiting for running's train_solver 2 to finish with the inference applications",
    ),
    "running": ("running", "iteration 2, train_solver: 3 of 20 steps, reward 0.500"),
    "between-stages": ("running", "between two stages"),
    "paused": ("paused", "paused after iteration 1 until somebody decides"),
    **{
        name: ("interrupted", rf"no process has worked on it since \d\d:\d\d UTC; `coevo resume {name}` continues it")
        for name in ("interrupted", "interrupted-while-paused")
    },
    "cancelled": ("cancelled", "cancelled during label_questions 1"),
    "failed": ("failed", r"evaluate 3 failed: BenchmarkError: no \[red\]such\[/\] <b>file</b>"),
    "crashed": ("failed", "its flow failed during label_questions 1; Prefect has its log"),
    "out_of_budget": ("out_of_budget", r"budget\.hours: 2 of 1 are spent, so the run ends here"),
    "stopped": ("stopped", "the guard stopped it after iteration 2"),
    "stopped-by-a-person": ("stopped", "a person stopped it after iteration 1"),
    "stopped-early": ("stopped", "early stopping ended it after iteration 3"),
    "done": ("done", "all 3 iterations are done"),
}
STATES = {name: state for name, (state, _) in _RUNS.items()}
REASONS = {name: reason for name, (_, reason) in _RUNS.items()}


def store_each_state(store: Store) -> None:
    """Store the runs of `STATES`."""
    with store.write() as session:
        _store_at_work(session)
        _store_ended(session)


def _store_at_work(session: Session) -> None:
    _create(session, "prepares-again", "failed", held=True)
    for name, units in (("running", 1.0), ("queued", 2.0)):
        _create(session, name, "running", held=True)
        _claim(session, name, 2, "train_solver")
        job: dict[str, Any] = {"run": name, "iteration": 2, "stage": "train_solver", "owner": owner()}
        queries.pool.join_pool(session, **job, kind="GPU", units=units)
    [first, _] = queries.pool.pool_jobs(session)
    queries.pool.start_job(session, first)
    _note(session, "running", 2, "train_solver", 3, 20, "steps, reward 0.500")
    _note(session, "queued", 2, "train_solver", 0, 0, "waiting for 2 GPU of 2; running: running (1)")
    _create(session, "queued-for-its-turn", "running", held=True)
    _claim(session, "queued-for-its-turn", 1, "evaluate")
    _note(session, "queued-for-its-turn", 1, "evaluate", 0, 0, turn_note("running's train_solver 2"))
    _create(session, "between-stages", "running", held=True)
    _claim(session, "between-stages", 1, "evaluate")
    key: dict[str, Any] = {"run": "between-stages", "iteration": 1, "stage": "evaluate", "owner": owner()}
    queries.ledger.finish_stage(session, **key, result={})
    _create(session, "paused", "paused", held=False)
    finish(session, "paused", 1, "check_health", {"action": "pause"}, 1)
    queries.run_leases.claim_run(session, run="paused", owner=owner(), lease_seconds=3600)


def _store_ended(session: Session) -> None:
    create(session, "created")
    for name, status in (("interrupted", "running"), ("interrupted-while-paused", "paused")):
        _create(session, name, status, held=False)
        queries.run_leases.claim_run(session, run=name, owner=DEAD, lease_seconds=0)
    _claim(session, "interrupted", 1, "label_questions", DEAD)
    # Their stage stays "running" in the ledger, and its lease lives for up to a minute after its process has ended.
    for name, status in (("cancelled", "cancelled"), ("crashed", "failed")):
        _create(session, name, "running", held=False)
        _claim(session, name, 1, "label_questions", DEAD)
        queries.runs.set_run_status(session, name, status)
    _create(session, "failed", "failed", held=False)
    _fail(session, "failed", 3, "evaluate", "BenchmarkError: no [red]such[/] <b>file</b>")
    _create(session, "out_of_budget", "out_of_budget", held=False)
    spent = "BudgetSpent: run out_of_budget: budget.hours: 2 of 1 are spent, so the run ends here"
    _fail(session, "out_of_budget", 1, "train_solver", spent)
    results: Mapping[str, tuple[int, Stage, Mapping[str, Any]]] = {
        "stopped": (2, "check_health", {"action": "stop", "alarms": [{"action": "stop"}]}),
        "stopped-by-a-person": (1, "ask_a_person", {"action": "stop"}),
        "stopped-early": (3, "check_health", {"action": "stop", "alarms": [{"action": "warn"}]}),
    }
    for name, (iteration, stage, result) in results.items():
        _create(session, name, "stopped", held=False)
        finish(session, name, iteration, stage, dict(result), 1)
    _create(session, "done", "done", held=False)


def _create(session: Session, name: str, status: RunStatus, *, held: bool) -> None:
    create(session, name)
    queries.runs.set_run_status(session, name, status)
    if held:
        queries.run_leases.claim_run(session, run=name, owner=owner(), lease_seconds=3600)


def _claim(session: Session, run: str, iteration: int, stage: Stage, process: str | None = None) -> None:
    key: dict[str, Any] = {"run": run, "iteration": iteration, "stage": stage}
    queries.ledger.claim_stage(session, **key, owner=process or owner(), lease_seconds=3600)


def _note(session: Session, run: str, iteration: int, stage: Stage, done: int, total: int, note: str) -> None:
    key: dict[str, Any] = {"run": run, "iteration": iteration, "stage": stage, "owner": owner()}
    queries.ledger.note_progress(session, **key, done=done, total=total, note=note)


def _fail(session: Session, run: str, iteration: int, stage: Stage, error: str) -> None:
    _claim(session, run, iteration, stage, DEAD)
    queries.ledger.fail_stage(session, run=run, iteration=iteration, stage=stage, owner=DEAD, error=error)
