"""`coevo backup` and `coevo restore` that are killed: everything is there or nothing, and the same command goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from core.faultpoints import FaultPoint, arm
from orchestrator.disk.backup import back_up
from orchestrator.disk.files import discard
from orchestrator.disk.garbage import garbage
from orchestrator.disk.restore import restore
from orchestrator.installation.home import ROOT, Home
from storage.models import Base
from storage.session import Store
from tests.chaos.contents import differences
from tests.orchestrator.archives import add_evaluation, contents, files, new_home, rows, violations
from tests.orchestrator.killed_restore import KILLED
from tests.orchestrator.stored_runs import RUN, copy_of

OF_RESTORE = {"run claimed", "folder written", "folder renamed", "transaction complete", "transaction committed"}
OF_FILES = {"file written", "file renamed"}


class _Killed(BaseException):
    """Not an Exception, which might be caught."""


def killed_at(point: int, work: Callable[[], object]) -> str:
    """Do the work, and end it at its nth fault point. Returns the point's name; empty if the work has fewer points."""
    reached = list[str]()

    def kill(name: FaultPoint, _unit: str) -> None:
        reached.append(name)
        if len(reached) == point:
            raise _Killed

    arm(kill)
    try:
        work()
    except _Killed:
        return reached[point - 1]
    finally:
        arm(None)
    return ""


@pytest.fixture
def original(loop_home: Home, tmp_path: Path) -> tuple[Home, Store]:
    """A run whose Solver was also evaluated by hand, with its texts."""
    copied = copy_of(loop_home, tmp_path / "original")
    add_evaluation(*copied, f"{RUN}/solver/1", f"{RUN}/solver/1")
    return copied


def test_a_restoration_that_is_killed_anywhere_leaves_all_or_nothing_and_can_be_repeated(
    original: tuple[Home, Store], store: Store, tmp_path: Path
) -> None:
    back_up(*original, archive := tmp_path / "run.zip")
    expected, expected_files = contents(*original, RUN), files(original[0])
    names = set[str]()
    for point in count(1):
        home = Home(tmp_path / f"killed-{point}")
        name = killed_at(point, partial(restore, home, store, archive))
        if not any(rows(home, store).values()):
            restore(home, store, archive)
        assert differences(expected, contents(home, store, RUN)) == []
        complete = {path: sha256 for path, sha256 in files(home).items() if ".part" not in path}
        assert complete == expected_files
        if not name:
            break
        names.add(name)
        _remove_rows(store)
    assert names == OF_RESTORE | OF_FILES
    assert violations(home, store, RUN) == []


def _remove_rows(store: Store) -> None:
    with store.write() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(table.delete())


def test_what_a_killed_restoration_leaves_is_garbage(original: tuple[Home, Store], tmp_path: Path) -> None:
    back_up(*original, archive := tmp_path / "run.zip")
    empty = new_home(tmp_path / "empty")[1]
    for point in count(1):
        home = Home(tmp_path / f"killed-{point}")
        name = killed_at(point, partial(restore, home, empty, archive))
        if any(rows(home, empty).values()):
            assert name == "transaction committed"
            return
        for item in garbage(home, empty, timedelta(0)):
            discard(item.path)
        assert files(home) == {}


@pytest.mark.parametrize("point", ["folder renamed", "transaction complete"])
def test_a_restoration_whose_process_ends_at_once_can_be_repeated(
    point: str, original: tuple[Home, Store], tmp_path: Path
) -> None:
    """On SQLite the transaction's journal is left, and the dead process still has the lease."""
    back_up(*original, archive := tmp_path / "run.zip")
    home, store = new_home(tmp_path / "new")
    command = [sys.executable, "-m", "tests.orchestrator.killed_restore", home.path, archive, point]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == KILLED
    assert not any(rows(home, store).values())
    restore(home, store, archive)
    assert differences(contents(*original, RUN), contents(home, store, RUN)) == []
    assert violations(home, store, RUN) == []


def test_a_backup_that_is_killed_leaves_the_whole_archive_or_none(original: tuple[Home, Store], tmp_path: Path) -> None:
    before, target = files(original[0]), tmp_path / "run.zip"
    assert killed_at(1, partial(back_up, *original, target)) == "file written"
    assert not target.exists()
    assert killed_at(2, partial(back_up, *original, target)) == "file renamed"
    assert violations(*restored(target, tmp_path / "new"), RUN) == []
    assert killed_at(3, partial(back_up, *original, tmp_path / "another.zip")) == ""
    assert files(original[0]) == before


def restored(archive: Path, folder: Path) -> tuple[Home, Store]:
    new = new_home(folder)
    restore(*new, archive)
    return new
