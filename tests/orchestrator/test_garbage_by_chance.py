"""In whatever order runs, deletions and crashes happen, `coevo store gc` removes only what no row refers to."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.disk import deletion, garbage
from orchestrator.disk.files import KINDS, DiskError, folder_of
from orchestrator.installation.home import Home
from storage import queries
from storage.files.texts import evaluation_path
from storage.session import Store, open_store
from tests.disk_files import create_run, finish_stage, half_written, publish_checkpoint, write
from tests.stored_evaluations import store_answers_of

AT_ONCE = timedelta(0)
LONG = "demo-solver-1"  # a name that looks like the middle of a half-written folder's


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
            create_run(self.store, self.home, run)
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
