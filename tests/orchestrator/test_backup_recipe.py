"""The commands of docs/deploying.md for a backup, run as they are there: a run goes on from it in another folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, make_url, text

from benchmarks.postgres import server_folder
from core.processes.faultpoints import FaultPoint, arm
from orchestrator.installation.home import ROOT, Home
from orchestrator.verification.run import verify_run
from storage import queries
from storage.session import Store, open_store
from tests.chaos.contents import Contents, contents_of, differences
from tests.orchestrator.stored_runs import RUN, go_on, store_loop

_PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
_SECTION = re.split(r"^#+ ", _PAGE.partition("\n### Backups without containers\n")[2], flags=re.M)[0]
BACK_UP, RESTORE, DUMP, RESTORE_DUMP = re.findall(r"^```\n(.*?)^```$", _SECTION, re.M | re.S)
IN_PYTHON = re.search(r"`(sqlite3\.connect.*?)`", _SECTION)
CUT_OFF = "label_questions"  # of iteration 2, after its first batch


class _Killed(BaseException):
    """Not an Exception, so that it is not recorded as the failure of a stage."""


def _run(commands: str, folder: Path, database: str) -> None:
    """Run documented commands in a folder whose home is `.coevo`."""
    programs = [str(Path(sys.executable).parent), *([str(server_folder())] if server_folder() else [])]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COEVO_")}
    environment |= {"PATH": ":".join([*programs, environment["PATH"]]), "PYTHONPATH": str(ROOT)}
    if database:
        environment["COEVO_DATABASE"] = database
    shell = ["bash", "-euo", "pipefail", "-c", commands.replace(" demo", f" {RUN}")]
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"


def _contents(home: Home, store: Store) -> Contents:
    with store.read() as session:
        return contents_of(session, home.texts, RUN)


def _cut_off_run(home: Home, store: Store) -> None:
    def kill(name: FaultPoint, unit: str) -> None:
        if name == "batch stored" and unit.startswith(f"2/{CUT_OFF}/"):
            raise _Killed

    arm(kill)
    try:
        with pytest.raises(_Killed):
            store_loop(store, home)
    finally:
        arm(None)


@pytest.fixture(params=["sqlite", "postgresql"])
def databases(request: pytest.FixtureRequest) -> list[str]:
    """The values of COEVO_DATABASE of two homes: none, or the addresses of two empty databases."""
    if request.param == "sqlite":
        if shutil.which("sqlite3") is None:
            pytest.skip("sqlite3: no such program on this machine")
        return ["", ""]
    server = make_url(request.getfixturevalue("postgresql_server"))
    names = [f"backup_{uuid4().hex}" for _ in range(2)]
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for name in names:
            connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return [server.set(drivername="postgresql", database=name).render_as_string(False) for name in names]


def test_a_run_that_was_cut_off_goes_on_from_a_backup_in_another_folder(databases: list[str], tmp_path: Path) -> None:
    old, new = Home(tmp_path / "old" / ".coevo"), Home(tmp_path / "new" / ".coevo")
    old.path.mkdir(mode=0o700, parents=True)
    new.path.parent.mkdir()
    store = open_store(databases[0] or f"sqlite:///{old.path}/coevo.db", create=True)
    _cut_off_run(old, store)
    back_up = BACK_UP.splitlines()
    assert back_up[2].startswith("sqlite3 ")
    if databases[0]:
        back_up[2] = DUMP
    _run("\n".join(back_up), old.path.parent, databases[0])
    go_on(store, old)
    expected = _contents(old, store)
    store.close()
    for folder in (old.checkpoints, old.optimisers, old.texts):  # settings name files that are beside these
        shutil.rmtree(folder, ignore_errors=True)
    shutil.move(old.path.parent / "backup", new.path.parent / "backup")
    _run(RESTORE_DUMP if databases[1] else RESTORE, new.path.parent, databases[1])

    restored = open_store(databases[1] or f"sqlite:///{new.path}/coevo.db")
    assert verify_run(new, restored, RUN, quick=True).left_out == [f"{CUT_OFF} of iteration 2 is running"]
    with restored.read() as session:
        paths = [checkpoint.path for checkpoint in queries.checkpoints.checkpoints_of(session, RUN)]
    assert all(Path(path).is_relative_to(new.checkpoints) for path in paths)
    go_on(restored, new)
    assert differences(expected, _contents(new, restored)) == []
    assert [violation for check in verify_run(new, restored, RUN).checks for violation in check.violations] == []
    restored.close()


def test_without_the_program_sqlite3_python_copies_the_database(
    sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite.close()
    assert IN_PYTHON is not None
    for folder in (".coevo", "backup"):
        (tmp_path / folder).mkdir()
    (tmp_path / "coevo.db").rename(tmp_path / ".coevo" / "coevo.db")
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-c", f"import sqlite3; {IN_PYTHON[1]}"], check=True)
    open_store(f"sqlite:///{tmp_path}/backup/coevo.db").close()
