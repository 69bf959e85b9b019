"""`coevo gc`: whatever the order in which runs, deletions and crashes happen, only what no row refers to is removed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from core.settings.config import CoEvolution
from core.types import Stage
from orchestrator.cli import app
from orchestrator.disk import deletion, garbage
from orchestrator.disk.files import KINDS, DiskError, folder_of
from orchestrator.installation.home import Home
from storage import queries
from storage.session import Store, open_store
from storage.texts import evaluation_path
from tests.disk_files import publish_checkpoint, write
from tests.stored_evaluations import store_answers_of

AT_ONCE = timedelta(0)
LONG = "demo-solver-1"  # a name that looks like the middle of a half-written folder's


def create(store: Store, home: Home, run: str) -> None:
    with store.write() as session:
        queries.runs.create_run(session, name=run, config=CoEvolution())
    publish_checkpoint(home, store, run, "base", 0)


def finish_stage(store: Store, run: str, iteration: int, stage: Stage, result: dict[str, Any] | None = None) -> None:
    with store.write() as session:
        key = {"run": run, "iteration": iteration, "stage": stage, "owner": "host:1:2"}
        queries.ledger.claim_stage(session, **key, lease_seconds=60)
        queries.ledger.finish_stage(session, **key, result=result or {})


def half_written(run: str, t: int) -> str:
    """The name of a folder into which a Solver is copied."""
    return f".tmp-{run}-solver-{t}-abc_1234"


def removed(home: Home, items: list[garbage.Garbage]) -> set[str]:
    return {item.path.relative_to(home.path).as_posix() for item in items}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    return Home(tmp_path)


def test_each_kind_of_garbage_is_removed_and_its_neighbours_stay(sqlite: Store, home: Home) -> None:
    for run in ("demo", "ended"):
        create(sqlite, home, run)
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
        "work/demo/1/train_solver": "step_5/state.json",
        "work/ended": "1/train_solver/step_5/state.json",
        "exports/gone": "1/file.csv",
        f"exports/demo/1/demo-1-all-{'a' * 12}.csv": "",
        f"exports/demo/1/demo-1-all-{'a' * 12}.csv.manifest.json": "",
        f"exports/demo/1/demo-1-all-{'b' * 12}.csv.0123.part": "",
        f"exports/_evaluations/{'0' * 16}": "file.csv",
        f"exports/_evaluations/{key}/{key}-{'a' * 12}.csv": "",
    }
    for folder, file in left.items():
        write(home.path / folder / file if file else home.path / folder)
    replaced = home.exports / f"demo/1/demo-1-all-{'a' * 12}.csv"
    for path in (*replaced.parent.glob(f"{replaced.name}*"), *home.exports.glob(f"_evaluations/{key}/*-aaa*")):
        os.utime(path, (1, 1))
    assert removed(home, garbage.garbage(home, sqlite, AT_ONCE)) == left.keys()
    assert removed(home, garbage.collect(home, sqlite, AT_ONCE)) == left.keys()
    assert all(path.exists() for path in kept)
    assert not any((home.path / path).exists() for path in left)
    assert garbage.collect(home, sqlite, AT_ONCE) == []


def test_what_changed_lately_and_what_a_live_process_may_write_stays(sqlite: Store, home: Home) -> None:
    create(sqlite, home, "demo")
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


def test_a_process_that_begins_between_the_list_and_the_removal_keeps_its_files(
    sqlite: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(sqlite, home, "demo")
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
    with pytest.raises(DiskError, match="got only files of other runs, such as mine: is COEVO_DATABASE right"):
        garbage.collect(home, sqlite, AT_ONCE)


def test_the_command_shows_then_removes(sqlite: Store, home: Home) -> None:
    create(sqlite, home, "demo")
    path = write(home.checkpoints / "gone/solver/1/model.safetensors")
    for changed in (path, *path.parents[:3]):
        os.utime(changed, (1, 1))

    def gc(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["gc", *arguments], env={"COLUMNS": "200"})
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


class World:
    """A home and its store, and what happens in them by chance."""

    def __init__(self, home: Home, store: Store) -> None:
        self.home, self.store = home, store

    def exists(self, run: str) -> bool:
        with self.store.read() as session:
            return run in queries.runs.runs_named(session, [run])

    def is_held(self, run: str) -> bool:
        with self.store.read() as session:
            return queries.run_leases.run_holder(session, run) is not None

    def create(self, run: str, t: int) -> None:
        if not self.is_held(run) and not self.exists(run):
            create(self.store, self.home, run)
            finish_stage(self.store, run, t, "train_solver", {"optimiser": "0" * 64})

    def publish(self, run: str, t: int) -> None:
        if self.exists(run):
            publish_checkpoint(self.home, self.store, run, "solver", t)

    def publish_without_row(self, run: str, t: int) -> None:
        write(self.home.checkpoints / run / "challenger" / str(t) / "model.safetensors")

    def half_write(self, run: str, t: int) -> None:
        write(self.home.checkpoints / half_written(run, t) / "model.safetensors")

    def write_others(self, run: str, t: int) -> None:
        for path in (
            self.home.texts / run / f"{t}/label_questions.parquet",
            self.home.texts / run / f"{t}/label_questions.parts/00000000.parquet",
            self.home.work / run / f"{t}/train_solver/step_1/state.json",
            self.home.optimisers / run / f"solver/{t}/moments.safetensors",
            self.home.exports / run / f"{t}/{run}-{t}-all-{t:012x}.csv",
        ):
            write(path)

    def evaluate(self, run: str, t: int) -> None:
        key = f"{t:016x}"
        if self.exists(run):
            model = f"{run}/base/0"
            key = store_answers_of(self.store, model, f"set{t}", ["R"], checkpoint=model)
        write(evaluation_path(self.home.texts, key))

    def hold(self, run: str, _t: int) -> None:
        if self.is_held(run):
            return
        with self.store.write() as session:
            queries.run_leases.claim_run(session, run=run, owner="elsewhere:42:7", lease_seconds=3600)

    def delete(self, run: str, _t: int) -> None:
        if self.exists(run) and not self.is_held(run):
            deletion.delete(self.home, self.store, run, evaluations=True)

    def delete_rows_only(self, run: str, _t: int) -> None:
        if self.exists(run) and not self.is_held(run):
            with self.store.write() as session:
                queries.runs.delete_run(session, run)

    def collect(self, _run: str, _t: int) -> None:
        before = {*self.files()}
        with_rows = {path for path in before if self.is_needed(path)}
        removed = garbage.collect(self.home, self.store, AT_ONCE) if self.is_its_database() else []
        assert with_rows <= {*self.files()}
        if removed:
            assert garbage.collect(self.home, self.store, AT_ONCE) == []

    def is_its_database(self) -> bool:
        try:
            garbage.refuse_other_database(self.home, self.store)
        except DiskError:
            return False
        return True

    def files(self) -> Iterator[Path]:
        return (path for kind in KINDS for path in folder_of(self.home, kind).rglob("*") if path.is_file())

    def is_needed(self, path: Path) -> bool:
        """Whether a row refers to the file, or a process works on its run: told from the path and the store alone."""
        kind, top, *rest = path.relative_to(self.home.path).parts
        with self.store.read() as session:
            known = {run.name for run in queries.runs.list_runs(session)}
            checkpoints = {row.id for run in known for row in queries.checkpoints.checkpoints_of(session, run)}
            evaluations = queries.run_rows.evaluation_ids(session)
            done = {
                (row.run, row.iteration) for run in known for row in queries.ledger.stages_of(session, run)
            }  # all these stages are done
        if top == "_evaluations":
            return path.stem in evaluations
        run = {half_written(name, t): name for name in ("demo", LONG, "other") for t in (1, 2)}.get(top, top)
        if self.is_held(run):
            return True
        if run != top or run not in known:
            return False
        if kind == "checkpoints":
            return f"{run}/{rest[0]}/{rest[1]}" in checkpoints
        t = int(rest[1] if kind == "optimisers" else rest[0])
        return {"optimisers": (run, t) in done, "work": (run, t) not in done}.get(kind, True)


ACTIONS: tuple[Callable[[World, str, int], None], ...] = (
    World.create,
    World.publish,
    World.publish_without_row,
    World.half_write,
    World.write_others,
    World.evaluate,
    World.hold,
    World.delete,
    World.delete_rows_only,
    World.collect,
)


@settings(max_examples=20)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(ACTIONS), st.sampled_from(["demo", LONG, "other"]), st.integers(1, 2)), max_size=25
    )
)
def test_nothing_that_a_row_refers_to_is_ever_removed_and_all_else_is(
    empty_sqlite: Path, steps: list[tuple[Callable[[World, str, int], None], str, int]]
) -> None:
    with TemporaryDirectory() as folder:
        home = Home(Path(folder))
        shutil.copyfile(empty_sqlite, home.path / "coevo.db")
        store = open_store(f"sqlite:///{home.path}/coevo.db")
        world = World(home, store)
        try:
            for act, run, t in [*steps, (World.collect, "demo", 1)]:
                act(world, run, t)
            if world.is_its_database():
                assert [path for path in world.files() if not world.is_needed(path)] == []
        finally:
            store.close()
