"""`coevo backup` and `coevo restore`: what comes back, between SQLite and PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.disk.backup import back_up
from orchestrator.disk.restore import restore
from orchestrator.installation.home import Home
from orchestrator.verification.run import verify_run
from storage.contents import Contents, contents_of, differences
from storage.session import Store, open_store
from tests.orchestrator.stored_runs import RUN, copy_of


def contents(home: Home, store: Store, run: str) -> Contents:
    with store.read() as session:
        return contents_of(session, home.texts, run)


def violations(home: Home, store: Store, run: str) -> list[object]:
    return [violation for check in verify_run(home, store, run).checks for violation in check.violations]


def new_home(folder: Path) -> tuple[Home, Store]:
    folder.mkdir(mode=0o700)
    return Home(folder), open_store(f"sqlite:///{folder / 'coevo.db'}", create=True)


@pytest.mark.parametrize("kind", ["loop", "rounds"])
def test_a_run_comes_back_from_sqlite_through_the_other_database(
    kind: str, store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    original, source = copy_of(request.getfixturevalue(f"{kind}_home"), tmp_path / "original")
    back_up(original, source, tmp_path / "first.zip")
    between, last = Home(tmp_path / "between"), new_home(tmp_path / "last")
    restore(between, store, tmp_path / "first.zip")
    back_up(between, store, tmp_path / "second.zip", [RUN])
    restore(*last, tmp_path / "second.zip")
    expected = contents(original, source, RUN)
    for home, restored in ((between, store), last):
        assert differences(expected, contents(home, restored, RUN)) == []
        assert violations(home, restored, RUN) == []
