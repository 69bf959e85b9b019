"""`coevo store verify`: what it prints, what it leaves out, and that it changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from core.processes import identity as processes
from core.types import OracleLabel
from orchestrator.cli import app
from orchestrator.installation.home import Home
from orchestrator.ledger import LEASE_S, owner
from orchestrator.verification.checks import Check
from orchestrator.verification.run import verify_run
from services.drift.series import refresh_estimates, refresh_labels
from storage import queries
from storage.session import Store
from tests.orchestrator.stored_runs import RUN, copy_of, flip_bit, store_loop, store_rounds, violations

SOLVER = "checkpoints/whole/solver/2"


@pytest.fixture
def copied(loop_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Home, Store]:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    return copy_of(loop_home, tmp_path)


def verify(*options: str, code: int) -> str:
    result = CliRunner().invoke(app, ["store", "verify", *options])
    assert result.exit_code == code, result.output
    return result.output


def execute(store: Store, *statements: str) -> None:
    with store.write() as session:
        for statement in statements:
            session.connection().exec_driver_sql(statement)


def test_a_run_without_violations(copied: tuple[Home, Store]) -> None:
    home, _ = copied
    database = (home.path / "coevo.db").read_bytes()
    printed = verify(RUN, code=0).splitlines()
    assert len(printed) == 18
    assert f"{'labels':<20}  {36:>9} checked, no violations" in printed
    assert printed[-1] == "run whole: no violations"
    answer = json.loads(verify(RUN, "--json", "--quick", code=0))
    assert answer["violations"] == 0
    assert {"name": "stages", "checked": 19, "violations": [], "notes": []} in answer["checks"]
    assert (home.path / "coevo.db").read_bytes() == database


def test_violations_are_named_and_the_exit_code_is_1(copied: tuple[Home, Store]) -> None:
    _, store = copied
    execute(
        store,
        "UPDATE rollouts SET answer = char(27) || '[7m[red]' || sample_index",
        "UPDATE train_metrics SET step = 7 WHERE step = 2 AND iteration = 1",
        f"INSERT INTO run_leases VALUES ('whole', '{processes.space()}:1:2', '2999-01-01')",  # process 1 began later
    )
    printed = verify(RUN, code=1)
    line = "training steps: train_challenger of iteration 1: steps with metrics: expected [1, 2], stored is [1, 7]"
    assert line in printed.splitlines()
    assert f"one of process 1 on {socket.gethostname()}" in printed
    assert "\x1b" not in printed
    assert "texts: 20 more violations; --json prints all" in printed
    answer = json.loads(verify(RUN, "--json", code=1))
    of_check = {check["name"]: check["violations"] for check in answer["checks"]}
    assert answer["violations"] == sum(map(len, of_check.values()))
    assert len(of_check["texts"]) == 40
    row = "train_challenger of iteration 1: steps with metrics"
    assert of_check["training steps"][0] == {"row": row, "expected": "[1, 2]", "stored": "[1, 7]"}


def test_an_unknown_run_is_refused(copied: tuple[Home, Store]) -> None:
    assert "run other: no such run; the store has whole" in verify("other", code=1)


def test_what_is_not_finished_is_left_out_and_named(copied: tuple[Home, Store]) -> None:
    """A process works on the labelling of iteration 2: a batch of its votes is stored, and nothing after it is done."""
    home, store = copied
    with store.write() as session:
        queries.run_leases.claim_run(session, run=RUN, owner=owner(), lease_seconds=LEASE_S)
    execute(
        store,
        "DELETE FROM stages WHERE iteration = 2 AND stage NOT IN "
        "('train_challenger', 'generate_questions', 'label_questions')",
        "UPDATE stages SET status = 'running', result = NULL WHERE iteration = 2 AND stage = 'label_questions'",
        "DELETE FROM rollouts WHERE question_id >= 'whole/2/000002'",
        "DELETE FROM pseudo_labels WHERE question_id >= 'whole/2/000002'",
        "DELETE FROM evaluations WHERE checkpoint_id IN ('whole/solver/2', 'whole/labelled/2')",
        "DELETE FROM trained_on WHERE checkpoint = 'whole/solver/2'",
        "DELETE FROM checkpoints WHERE id = 'whole/labelled/2'",
        "DELETE FROM checkpoints WHERE id = 'whole/solver/2'",
    )
    verification = verify_run(home, store, RUN)
    assert [check.name for check in verification.checks if check.violations] == []
    assert verification.left_out == [
        f"process {os.getpid()} on {socket.gethostname()} works on the run",
        "label_questions of iteration 2 is running",
    ]
    assert _check(home, store, "labels").checked == 18  # those of iteration 1


def test_estimates_are_those_of_the_audits_of_other_iterations(copied: tuple[Home, Store]) -> None:
    home, store = copied
    labels = [OracleLabel(f"whole/1/{i:06d}", "judge", "right" if i else "wrong", None) for i in range(4)]
    with store.write() as session:
        queries.questions.add_oracle_labels(session, labels)
        refresh_labels(session, RUN, 1)
    [missing, *others] = _check(home, store, "series").violations
    assert missing.row.endswith("by judge, estimated, iteration 2")
    assert {row.stored for row in (missing, *others)} == {"nothing"}
    with store.write() as session:
        refresh_estimates(session, RUN)
    assert _check(home, store, "series").violations == []


def test_a_benchmark_that_is_gone_is_a_note(copied: tuple[Home, Store]) -> None:
    home, store = copied
    execute(store, "UPDATE runs SET config = replace(config, 'benchmark.jsonl', 'gone.jsonl')")
    check = _check(home, store, "labels")
    assert check.violations == []
    assert ["benchmark" in note for note in check.notes] == [True]


def test_a_result_without_its_fields_is_a_violation_and_no_crash(copied: tuple[Home, Store]) -> None:
    home, store = copied
    execute(store, "UPDATE stages SET result = '{}' WHERE stage = 'train_solver'")
    [violation] = _check(home, store, "questions trained on").violations
    assert (violation.row, "KeyError" in violation.stored) == ("the check itself", True)


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
    [violation] = _check(home, store, "labels").violations
    assert violation.row == "the check itself"
    assert "database disk image is malformed" in violation.stored


@pytest.mark.parametrize(
    "settings",
    [
        {"shared": True},
        {"labelled__chained": True},
        {"challenger__trained": False},
        {"rollout_text": "kept"},
        {"rollout_text": "none", "dataset__denominator": "parsed"},
        {"guard__actions__ill_posed": "roll_back"},
        {"evaluation__samples": 0, "dataset__filtered": False},
    ],
    ids=str,
)
def test_no_kind_of_loop_has_violations(sqlite: Store, tmp_path: Path, settings: dict[str, Any]) -> None:
    home = Home(tmp_path)
    store_loop(sqlite, home, **settings)
    assert violations(home, sqlite) == {}


def test_given_prompts_in_rounds_have_no_violations(store: Store, tmp_path: Path) -> None:
    home = Home(tmp_path)
    store_rounds(store, home)
    assert violations(home, store) == {}
    for name in ("labels", "oracle labels", "questions trained on", "moments"):
        assert _check(home, store, name).checked > 0


def test_prompts_that_nobody_votes_on_have_no_violations(sqlite: Store, tmp_path: Path) -> None:
    home = Home(tmp_path)
    store_rounds(sqlite, home, prompts__labels="none", solver__reward__labels="online")
    assert violations(home, sqlite) == {}
    assert _check(home, sqlite, "labels").checked == 11  # each prompt's votes, of which there are none, and verdict


def test_quick_reads_manifests_only(copied: tuple[Home, Store]) -> None:
    home, store = copied
    flip_bit(home.path / SOLVER / "model.safetensors")
    assert violations(home, store, quick=True) == {}
    manifest = home.path / SOLVER / "manifest.json"
    manifest.write_text(manifest.read_text().replace("config.json", "other.json"))
    [violation] = violations(home, store, quick=True)["checkpoints"]
    assert violation.row == "whole/solver/2: sha256 of its manifest"


def test_files_that_were_removed_on_purpose_are_not_missing(copied: tuple[Home, Store]) -> None:
    home, store = copied
    with store.write() as session:
        queries.checkpoints.note_removed(session, ["whole/solver/2", "whole/challenger/1"])
    shutil.rmtree(home.checkpoints / RUN / "challenger" / "1")
    assert violations(home, store) == {}
    assert len(_check(home, store, "checkpoints").notes) == 1
    [left_over] = _check(home, store, "left over").notes  # its row says that its files are removed, but they are there
    assert left_over.startswith(f"{home.path / SOLVER}: no row refers to its files")


def test_the_moments_of_the_last_round_are_unchanged_and_there_while_a_round_may_follow(
    rounds_home: Home, tmp_path: Path
) -> None:
    home, store = copy_of(rounds_home, tmp_path)
    moments = home.optimisers / RUN / "solver" / "2"
    flip_bit(moments / "model.safetensors")
    [violation] = violations(home, store)["moments"]
    assert violation.row == "files of moments of whole/solver/2"
    moments.rename(tmp_path / "elsewhere")
    [violation] = violations(home, store)["moments"]
    assert (violation.row, violation.stored) == ("moments of whole/solver/2", "nothing")
    with store.write() as session:
        queries.runs.set_run_status(session, RUN, "stopped")
    assert violations(home, store) == {}


def _check(home: Home, store: Store, name: str) -> Check:
    return next(check for check in verify_run(home, store, RUN).checks if check.name == name)
