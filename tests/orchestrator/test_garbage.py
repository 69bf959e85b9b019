"""`coevo store gc`: what is garbage, what is left alone, and the command."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from core.processes import identity as processes
from orchestrator.cli import app
from orchestrator.disk import garbage
from orchestrator.disk.files import DiskError
from orchestrator.installation.home import Home
from storage import queries
from storage.files.texts import evaluation_path
from storage.session import Store
from tests.disk_files import create_run, finish_stage, publish_checkpoint, write
from tests.stored_evaluations import store_answers_of

AT_ONCE = timedelta(0)


def removed(home: Home, items: list[garbage.Garbage]) -> set[str]:
    return {item.path.relative_to(home.path).as_posix() for item in items}


def test_each_kind_of_garbage_is_removed_and_its_neighbours_stay(sqlite: Store, home: Home) -> None:
    for run in ("demo", "ended"):
        create_run(sqlite, home, run)
    with sqlite.write() as session:
        queries.runs.set_run_status(session, "ended", "done")
    publish_checkpoint(home, sqlite, "demo", "solver", 1)
    finish_stage(sqlite, "demo", 1, "train_solver", {"optimiser": "0" * 64})
    finish_stage(sqlite, "demo", 1, "label_questions")
    key = store_answers_of(sqlite, "demo/solver/1", "micro", ["R"], checkpoint="demo/solver/1")
    kept = [
        write(home.checkpoints / "demo/solver/notes.txt"),
        write(home.checkpoints / "lost+found/file"),
        write(home.optimisers / "demo/solver/1/moments.safetensors"),
        write(home.texts / "demo/1/label_questions.parquet"),
        write(home.texts / "demo/2/label_questions.parts/00000000.parquet"),
        write(home.work / "demo/2/train_solver/step_5/state.json"),
        write(home.work / "_models/0123456789abcdef/manifest.json"),
        write(evaluation_path(home.texts, key)),
        write(home.exports / f"_evaluations/{key}/{key}-{'b' * 12}.csv"),
        write(home.exports / f"demo/1/demo-1-all-{'b' * 12}.csv"),
        write(home.exports / f"demo/1/demo-1-all-{'b' * 12}.csv.manifest.json"),
        write(home.exports / f"demo/1/demo-1-kept-{'a' * 12}.csv"),
        write(home.exports / f"_runs/2-runs-votes-{'b' * 12}.csv"),
        write(home.exports / f"_runs/2-runs-votes-{'b' * 12}.csv.manifest.json"),
        write(home.reports / "gone.html"),
        write(home.path / "models/own/model.safetensors"),
    ]
    left = {
        "checkpoints/gone": "solver/1/model.safetensors",
        "checkpoints/demo/solver/2": "model.safetensors",
        "checkpoints/.tmp-demo-solver-2-abcdefgh": "model.safetensors",
        f"checkpoints/.gone-{'0' * 32}.part": "base/0/model.safetensors",
        f"optimisers/demo/solver/.1-{'0' * 32}.part": "moments.safetensors",
        "optimisers/demo/solver/2": "moments.safetensors",
        "texts/gone": "1/label_questions.parquet",
        "texts/demo/1/label_questions.parts": "00000000.parquet",
        f"texts/_evaluations/{'0' * 16}.parquet": "",
        f"texts/_evaluations/{key}.parquet.{'0' * 32}.part": "",
        f"texts/_evaluations/.{key}.parts-{'0' * 32}.part": "00000000.parquet",
        "work/demo/1/train_solver": "step_5/state.json",
        "work/ended": "1/train_solver/step_5/state.json",
        "exports/gone": "1/file.csv",
        f"exports/demo/1/demo-1-all-{'a' * 12}.csv": "",
        f"exports/demo/1/demo-1-all-{'a' * 12}.csv.manifest.json": "",
        f"exports/demo/1/demo-1-all-{'b' * 12}.csv.0123.part": "",
        f"exports/demo/demo-1-questions-{'b' * 12}.csv.0123.part": "",
        f"exports/_runs/2-runs-votes-{'b' * 12}.csv.0123.part": "",
        "exports/_runs/2-runs-votes-cccccccccccc.jsonl": "",
        "exports/_runs/2-runs-votes-dddddddddddd.jsonl": "",
        "exports/_runs/2-runs-votes-cccccccccccc.jsonl.manifest.json": "",
        f"exports/_evaluations/{'0' * 16}": "file.csv",
        f"exports/_evaluations/.{key}-{'0' * 32}.part": "file.csv",
        f"exports/_evaluations/{key}/{key}-{'a' * 12}.csv": "",
    }
    for folder, file in left.items():
        write(home.path / folder / file if file else home.path / folder)
    for name, runs in ((f"{'b' * 12}.csv", ["demo", "ended"]), (f"{'c' * 12}.jsonl", ["demo", "gone"])):
        manifest = home.exports / f"_runs/2-runs-votes-{name}.manifest.json"
        manifest.write_text(json.dumps({"runs": [{"run": run} for run in runs]}))
    replaced = home.exports / f"demo/1/demo-1-all-{'a' * 12}.csv"
    for path in (*replaced.parent.glob(f"{replaced.name}*"), *home.exports.glob(f"_evaluations/{key}/*-aaa*")):
        os.utime(path, (1, 1))
    assert removed(home, garbage.garbage(home, sqlite, AT_ONCE)) == left.keys()
    assert removed(home, garbage.collect(home, sqlite, AT_ONCE)) == left.keys()
    assert all(path.exists() for path in kept)
    assert not any((home.path / path).exists() for path in left)
    assert garbage.collect(home, sqlite, AT_ONCE) == []


def test_what_changed_lately_and_what_a_live_process_may_write_stays(sqlite: Store, home: Home) -> None:
    create_run(sqlite, home, "demo")
    with sqlite.write() as session:
        for run in ("demo", "being-created"):
            queries.run_leases.claim_run(session, run=run, owner="elsewhere:42:7", lease_seconds=60)
    held = [
        home.checkpoints / "demo/solver/1/model.safetensors",
        home.checkpoints / ".tmp-demo-solver-2-abcdefgh/model.safetensors",
        home.checkpoints / "being-created/base/0/model.safetensors",
    ]
    for path in held:
        write(path)
    write(home.texts / "gone/1/label_questions.parquet")
    assert garbage.collect(home, sqlite) == []
    assert removed(home, garbage.garbage(home, sqlite, AT_ONCE)) == {"texts/gone"}
    assert removed(home, garbage.collect(home, sqlite, AT_ONCE)) == {"texts/gone"}
    assert all(path.exists() for path in held)


def test_the_lease_of_a_process_that_was_killed_protects_nothing_and_stays_until_something_is_removed(
    sqlite: Store, home: Home
) -> None:
    create_run(sqlite, home, "demo")
    write(home.checkpoints / "demo/solver/1/model.safetensors")
    with sqlite.write() as session:
        killed = f"{processes.space()}:1:2"  # process 1 has another start time
        queries.run_leases.claim_run(session, run="demo", owner=killed, lease_seconds=60)
    assert removed(home, garbage.garbage(home, sqlite, AT_ONCE)) == {"checkpoints/demo/solver/1"}
    with sqlite.read() as session:
        assert "demo" in queries.run_leases.leases(session)
    assert removed(home, garbage.collect(home, sqlite, AT_ONCE)) == {"checkpoints/demo/solver/1"}


def test_a_process_that_begins_between_the_list_and_the_removal_keeps_its_files(
    sqlite: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_run(sqlite, home, "demo")
    path = write(home.checkpoints / "demo/solver/1/model.safetensors")
    find = garbage.garbage

    def then_a_process_begins(*arguments: Any) -> list[garbage.Garbage]:
        result = find(*arguments)
        with sqlite.write() as session:
            queries.run_leases.claim_run(session, run="demo", owner="elsewhere:42:7", lease_seconds=60)
        return result

    def then_it_registers_it(*arguments: Any) -> list[garbage.Garbage]:
        result = find(*arguments)
        publish_checkpoint(home, sqlite, "demo", "solver", 1)
        return result

    for between in (then_a_process_begins, then_it_registers_it):
        monkeypatch.setattr(garbage, "garbage", between)
        assert garbage.collect(home, sqlite, AT_ONCE) == []
        with sqlite.write() as session:
            queries.run_leases.release_run(session, run="demo", owner="elsewhere:42:7")
    assert path.exists()


def test_with_another_database_nothing_is_removed(sqlite: Store, home: Home) -> None:
    write(home.checkpoints / "mine/solver/1/model.safetensors")
    with pytest.raises(DiskError, match="COEVO_DATABASE"):
        garbage.collect(home, sqlite, AT_ONCE)


def test_the_command_shows_then_removes(sqlite: Store, home: Home) -> None:
    create_run(sqlite, home, "demo")
    path = write(home.checkpoints / "gone/solver/1/model.safetensors")
    for changed in (path, *path.parents[:3]):
        os.utime(changed, (1, 1))

    def gc(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["store", "gc", *arguments], env={"COLUMNS": "200"})
        assert result.exit_code == code, result.output
        return result.output

    [shown] = json.loads(gc("--dry-run", "--json"))
    assert (shown["path"], shown["removed"]) == (str(home.checkpoints / "gone"), False)
    assert "the store has no such run" in gc("--dry-run")
    assert "expected --yes" in gc(code=1)
    assert path.exists()
    assert "removed 1: " in gc("--yes")
    assert not path.exists()
    assert gc() == "nothing to remove\n"
