"""`coevo store du`: every file in the home is counted once, under the run that it belongs to."""

from __future__ import annotations

import os
import subprocess

import pytest

from orchestrator.disk.usage import usage
from orchestrator.installation.home import Home
from storage.queries.sizes import database_size
from storage.session import Store
from tests.commands import coevo, json_of
from tests.disk_files import create_run, publish_checkpoint, write
from tests.storage.store_examples import fill, fresh_run


@pytest.fixture
def home(home: Home, sqlite: Store) -> Home:
    """A home with the run `demo`, and files of a run that the store does not have."""
    create_run(sqlite, home, "demo")
    for iteration in (2, 10):
        publish_checkpoint(home, sqlite, "demo", "solver", iteration)
    write(home.texts / "demo/1/label_questions.parquet").write_bytes(os.urandom(50_000))
    write(home.checkpoints / ".tmp-demo-solver-11-abcdefgh/model.safetensors")
    write(home.work / "gone/1/train_solver/step_1/state.json")
    write(home.texts / "_evaluations/0123456789abcdef.parquet")
    write(home.logs / "ray.log")
    return home


def test_the_sum_is_what_the_system_counts(sqlite: Store, home: Home) -> None:
    os.link(home.checkpoints / "demo/base/0/model.safetensors", home.work / "gone/linked.safetensors")
    counted = int(subprocess.run(["du", "-s", "-B1", home.path], capture_output=True, check=True).stdout.split()[0])
    own = home.path.stat().st_blocks * 512
    shown = usage(home, sqlite)
    assert shown.total == counted - own
    demo, gone = shown.runs
    assert (demo.run, demo.stored, gone.run, gone.stored) == ("demo", True, "gone", False)
    assert [*demo.checkpoints] == ["base/0", "solver/2", "solver/10"]
    assert demo.kinds["texts"] > 50_000
    assert demo.kinds["checkpoints"] > sum(demo.checkpoints.values()) > 0
    assert gone.bytes == gone.kinds["work"]
    assert {"evaluations", "logs", "coevo.db"} <= shown.other.keys()


def test_the_command_prints_the_same_figures(sqlite: Store, home: Home) -> None:
    shown = json_of("store", "du")
    assert shown["total"] == sum(run["bytes"] for run in shown["runs"]) + sum(shown["other"].values())
    assert shown["database"]["total"] == (home.path / "coevo.db").stat().st_size
    printed = coevo("store", "du", COLUMNS="160").stdout
    assert "gone (not in the store)" in printed
    assert f"in {home.path}" in printed
    [demo] = [run for run in shown["runs"] if run["run"] == "demo"]
    assert json_of("store", "du", "demo") == {**demo, "rows": {"runs": 1, "checkpoints": 3}}
    assert "solver/10" in coevo("store", "du", "demo").stdout


def test_the_tables_of_both_databases_have_sizes(store: Store) -> None:
    run = fresh_run(store)
    with store.write() as session:
        fill(session, run)
    with store.read() as session:
        size = database_size(session)
    assert size.tables is not None
    assert {"rollouts", "questions", "evaluated_answers"} <= {
        name for name, of_table in size.tables.items() if of_table
    }
    assert [*size.tables.values()] == sorted(size.tables.values(), reverse=True)
    assert size.total >= sum(size.tables.values()) > 0
