"""`python crashes.py SCENARIO FOLDER`: for each point where a process touches FOLDER, it ends a process at this point,
checks what the process left, lets another process do the work again, and checks again. It prints the number of points.

The process ends by `os._exit`, as abruptly as by `kill -9`. All work is done in child processes: this process starts no
threads, so that it can fork.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow.dataset  # noqa: F401 - imported here so that the children need not import it
from store_examples import rollout

from storage.checkpoints import digest, manifest, publish, verify
from storage.texts import TextWriter, read_texts, texts_path

_CRASHED = 137
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


def main(scenario: str, folder: Path) -> None:
    work, check = {"publish": (publish_checkpoint, check_checkpoint), "texts": (write_texts, check_texts)}[scenario]

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
