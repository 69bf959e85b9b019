"""`python crashes.py SCENARIO FOLDER`: for each point where a process touches FOLDER, it ends a process at this point,
checks what the process left, lets another process do the work again, and checks again. It prints the number of points.

The process ends by `os._exit`, as abruptly as by `kill -9`. All work is done in child processes: this process starts no
threads, so that it can fork.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow.dataset  # noqa: F401 - imported here so that the children need not import it
from store_examples import fresh_run, label, question, rollout

from storage import queries
from storage.exports.runs import Format, export
from storage.exports.selection import Selection
from storage.files.checkpoints import digest, manifest, publish, verify
from storage.files.texts import TextWriter, read_texts, texts_path
from storage.session import open_store

_CRASHED = 137
_FORMATS: tuple[Format, ...] = ("jsonl", "huggingface")
_TOUCHES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod"}


def publish_checkpoint(folder: Path) -> None:
    publish(folder.parent / "source", folder, run="demo", role="solver", iteration=1, step=9, parent=None)


def check_checkpoint(folder: Path, done: bool) -> None:
    final = folder / "demo/solver/1"
    if done or final.exists():
        verify(final, digest(manifest(folder.parent / "source")))
    if done:
        assert [path.name for path in folder.iterdir()] == ["demo"], "a temporary folder is left"


def write_texts(folder: Path) -> None:
    writer = TextWriter(texts_path(folder, "demo", 1, "label_questions"))
    for batch in (0, 1):
        writer.add(batch, [rollout("demo", batch, sample) for sample in (0, 1)])
    writer.finish()


def check_texts(folder: Path, done: bool) -> None:
    path = texts_path(folder, "demo", 1, "label_questions")
    if done or path.exists():
        assert len(read_texts(texts_path(folder, "demo", 1, "label_questions"))) == 4
    if done:
        assert [file.name for file in path.parent.iterdir()] == [path.name], "temporary files are left"


def export_rows(folder: Path) -> None:
    """A file of lines and an archive. Another process has stored the rows."""
    store = open_store(f"sqlite:///{folder.parent}/coevo.db")
    with store.read() as session:
        [run] = [run.name for run in queries.runs.list_runs(session)]
    for kind in _FORMATS:
        export(store, folder, Selection(run, "1"), kind)
        export(store, folder, Selection((run,), "1"), kind)
    store.close()


def check_exports(folder: Path, done: bool) -> None:
    """Each file is whole, and has the bytes of an export that nothing has interrupted."""
    whole = folder.parent / "whole"
    if not whole.exists():
        export_rows(whole)
    expected = {path.name: path.read_bytes() for path in whole.rglob("*.*")}
    written = {path.name: path.read_bytes() for path in folder.rglob("*.*") if path.suffix != ".part"}
    assert written.items() <= expected.items()
    assert not done or written.keys() == expected.keys()


def store_rows(folder: Path) -> None:
    store = open_store(f"sqlite:///{folder.parent}/coevo.db", create=True)
    run = fresh_run(store)
    with store.write() as session:
        queries.questions.add_questions(session, [question(run, index) for index in range(3)])
        queries.questions.add_rollouts(session, [rollout(run, index, 0) for index in range(3)])
        queries.questions.add_labels(session, [label(run, index) for index in range(3)])
        queries.ledger.claim_stage(session, run=run, iteration=1, stage="label_questions", owner="me", lease_seconds=60)
        queries.ledger.finish_stage(session, run=run, iteration=1, stage="label_questions", owner="me", result={})
    store.close()


def in_child(work: Callable[[Path], None], folder: Path, crash_at: int = 0) -> int:
    """The exit status of a child that does `work` in `folder`; it ends at touch number `crash_at`."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    touches = count(1)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in _TOUCHES:
            return
        path = Path(str(arguments[0]))  # while a tree is removed, paths are relative to an open folder
        inside = path.is_relative_to(folder) or not path.is_absolute()
        if inside and next(touches) == crash_at:
            os._exit(_CRASHED)

    sys.addaudithook(hook)
    status = 1
    try:
        work(folder)
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def crash_points(scenario: str, folder: Path) -> int:
    """The number of points at which `main`, in a process of its own, ended a process; fails if the files after any of
    them were not whole."""
    here = Path(__file__)
    search = os.pathsep.join([str(here.parent), str(here.parents[2])])
    command = [sys.executable, str(here), scenario, str(folder / "root")]
    environment = {**os.environ, "PYTHONPATH": search}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def main(scenario: str, folder: Path) -> None:
    work, check = {
        "publish": (publish_checkpoint, check_checkpoint),
        "texts": (write_texts, check_texts),
        "exports": (export_rows, check_exports),
    }[scenario]
    if scenario == "exports" and in_child(store_rows, folder) != 0:
        sys.exit("exports: the rows could not be stored")

    def recover(folder: Path) -> None:
        check(folder, done=False)
        work(folder)
        check(folder, done=True)

    for point in count(1):
        folder.mkdir()
        crashed = in_child(work, folder, crash_at=point)
        if crashed not in {0, _CRASHED} or in_child(recover, folder) != 0:
            sys.exit(f"{scenario}: the files after point {point} were not whole, or could not be repaired")
        shutil.rmtree(folder)
        if crashed == 0:
            print(point - 1)
            return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
