"""`coevo verify`: what it prints, what it leaves out, and that it changes nothing."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from core.types import OracleLabel
from orchestrator.cli import app
from orchestrator.installation import processes
from orchestrator.installation.home import Home
from orchestrator.ledger import LEASE_S, owner
from orchestrator.verification.checks import Check, Violation
from orchestrator.verification.run import verify_run
from services.drift.series import refresh_estimates, refresh_labels
from storage import queries
from storage.session import Store
from tests.orchestrator.stored_runs import RUN, copy_of


@pytest.fixture
def copied(loop_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Home, Store]:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    return copy_of(loop_home, tmp_path)


def verify(*options: str, code: int) -> str:
    result = CliRunner().invoke(app, ["verify", *options])
    assert result.exit_code == code, result.output
    return result.output


def test_a_run_without_violations(copied: tuple[Home, Store]) -> None:
    home, _ = copied
    database = (home.path / "coevo.db").read_bytes()
    printed = verify(RUN, code=0).splitlines()
    assert len(printed) == 24
    assert "pseudo-labels                          10 checked, no violations" in printed
    assert printed[-1] == "run whole: no violations"
    answer = json.loads(verify(RUN, "--json", "--quick", code=0))
    assert answer["violations"] == 0
    assert {"name": "stages", "checked": 19, "violations": [], "notes": []} in answer["checks"]
    assert (home.path / "coevo.db").read_bytes() == database


def test_violations_are_named_and_the_exit_code_is_1(copied: tuple[Home, Store]) -> None:
    _, store = copied
    with store.write() as session:
        session.connection().exec_driver_sql("UPDATE rollouts SET answer = char(27) || '[7m[red]' || sample_index")
        session.connection().exec_driver_sql("UPDATE train_metrics SET step = 7 WHERE step = 2 AND iteration = 1")
    printed = verify(RUN, code=1)
    line = "training metrics: train_challenger of iteration 1: steps with metrics: expected [1, 2], stored is [1, 7]"
    assert line in printed.splitlines()
    assert "\x1b" not in printed
    assert "texts: 20 more violations; --json prints all" in printed
    answer = json.loads(verify(RUN, "--json", code=1))
    of_check = {check["name"]: check["violations"] for check in answer["checks"]}
    assert answer["violations"] == sum(map(len, of_check.values()))
    assert len(of_check["texts"]) == 40
    row = "train_challenger of iteration 1: steps with metrics"
    assert of_check["training metrics"][0] == {"row": row, "expected": "[1, 2]", "stored": "[1, 7]"}


def test_an_unknown_run_is_refused(copied: tuple[Home, Store]) -> None:
    assert "run other: no such run; the store has whole" in verify("other", code=1)


def test_what_is_not_finished_is_left_out_and_named(copied: tuple[Home, Store]) -> None:
    """A process works on the labelling of iteration 2: a batch of its votes is stored, and nothing after it is done."""
    home, store = copied
    with store.write() as session:
        queries.run_leases.claim_run(session, run=RUN, owner=owner(), lease_seconds=LEASE_S)
        for statement in (
            "DELETE FROM stages WHERE iteration = 2 AND stage NOT IN "
            "('train_challenger', 'generate_questions', 'label_questions')",
            "UPDATE stages SET status = 'running', result = NULL WHERE iteration = 2 AND stage = 'label_questions'",
            "DELETE FROM rollouts WHERE question_id >= 'whole/2/000002'",
            "DELETE FROM pseudo_labels WHERE question_id >= 'whole/2/000002'",
            "DELETE FROM evaluations WHERE checkpoint_id IN ('whole/solver/2', 'whole/labelled/2')",
            "DELETE FROM trained_on WHERE checkpoint = 'whole/solver/2'",
            "DELETE FROM checkpoints WHERE id = 'whole/labelled/2'",
            "DELETE FROM checkpoints WHERE id = 'whole/solver/2'",
        ):
            session.connection().exec_driver_sql(statement)
    verification = verify_run(home, store, RUN)
    assert [check.name for check in verification.checks if check.violations] == []
    assert verification.left_out == [
        f"process {os.getpid()} on {socket.gethostname()} works on the run",
        "label_questions of iteration 2 is running",
    ]
    [votes] = [check for check in verification.checks if check.name == "votes"]
    assert votes.checked == 8  # those of iteration 1


def test_the_lease_of_a_process_that_was_killed_is_named(copied: tuple[Home, Store]) -> None:
    home, store = copied
    with psutil.Popen(["cat"], stdin=-1) as process:
        me = f"{processes.space()}:{process.pid}:{processes.started(process.pid):.0f}"
        process.kill()
    with store.write() as session:
        queries.run_leases.claim_run(session, run=RUN, owner=me, lease_seconds=LEASE_S)
    [violation] = _check(home, store, "leases").violations
    stored = f"process {process.pid} on {socket.gethostname()}"
    assert violation == Violation("lease on run whole", "none of a process that has ended", stored)
    with store.read() as session:
        assert RUN in queries.run_leases.leases(session)  # nothing is changed


def test_estimates_are_those_of_the_audits_of_other_iterations(copied: tuple[Home, Store]) -> None:
    home, store = copied
    labels = [OracleLabel(f"whole/1/{i:06d}", "judge", "right" if i else "wrong", None) for i in range(4)]
    with store.write() as session:
        queries.questions.add_oracle_labels(session, labels)
        refresh_labels(session, RUN, 1)
    assert {row.expected == "nothing" for row in _check(home, store, "estimated label accuracy").violations} == {False}
    with store.write() as session:
        refresh_estimates(session, RUN)
    check = _check(home, store, "estimated label accuracy")
    assert check.checked > 0
    assert check.violations == []


def test_a_benchmark_that_is_gone_is_a_note(copied: tuple[Home, Store]) -> None:
    home, store = copied
    with store.write() as session:
        session.connection().exec_driver_sql(
            "UPDATE runs SET config = replace(config, 'benchmark.jsonl', 'gone.jsonl')"
        )
    check = _check(home, store, "verdicts")
    assert check.violations == []
    assert check.notes == ["a benchmark cannot be read here, so it is not checked which questions repeat one of it"]


def test_a_result_without_its_fields_is_a_violation_and_no_crash(copied: tuple[Home, Store]) -> None:
    home, store = copied
    with store.write() as session:
        session.connection().exec_driver_sql("UPDATE stages SET result = '{}' WHERE stage = 'train_solver'")
    [violation] = _check(home, store, "training metrics").violations
    assert violation == Violation("the check itself", "rows that can be read", "KeyError: \"'steps'\"")


def test_a_damaged_page_of_the_database_is_a_violation_and_no_crash(copied: tuple[Home, Store]) -> None:
    home, store = copied
    store.close()
    file = home.path / "coevo.db"
    with sqlite3.connect(file) as connection:
        [(page, size)] = connection.execute(
            "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size WHERE name = 'rollouts'"
        )
    content = bytearray(file.read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    file.write_bytes(content)
    [violation] = _check(home, store, "votes").violations
    assert violation.row == "the check itself"
    assert violation.stored == "DatabaseError: 'database disk image is malformed'"


def _check(home: Home, store: Store, name: str) -> Check:
    return next(check for check in verify_run(home, store, RUN).checks if check.name == name)
