"""Before the tables of a SQLite database are upgraded, it is copied."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from core.settings.config import CoEvolution
from storage import queries, upgrade_copy
from storage.errors import StoreError
from storage.schema import alembic_config
from storage.session import open_store
from tests.storage.test_migrations import database_of_version, insert_run


def test_a_database_is_copied_before_its_tables_are_upgraded(tmp_path: Path) -> None:
    file, url = tmp_path / "coevo.db", f"sqlite:///{tmp_path}/coevo.db"
    with database_of_version(url, "0019") as connection:
        insert_run(connection, CoEvolution().model_dump(mode="json"))
    file.chmod(0o640)
    open_store(url, create=True).close()
    [copy] = tmp_path.glob("coevo.db.before-*")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o640
    engine = create_engine(f"sqlite:///{copy}")
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "0019"
        assert connection.scalar(text("SELECT name FROM runs")) == "old"
    engine.dispose()
    shutil.copyfile(copy, file)  # as somebody does who goes back, and later upgrades again
    upgraded = open_store(url, create=True)
    with upgraded.read() as session:
        assert [run.name for run in queries.runs.list_runs(session)] == ["old"]
    upgraded.close()
    assert [*tmp_path.glob("coevo.db.before-*")] == [copy]


def test_a_new_database_and_one_that_is_up_to_date_are_not_copied(tmp_path: Path) -> None:
    for _ in range(2):
        open_store(f"sqlite:///{tmp_path}/coevo.db", create=True).close()
    assert [path.name for path in tmp_path.iterdir()] == ["coevo.db"]


def test_the_newest_copies_are_kept(tmp_path: Path, empty_sqlite: Path) -> None:
    database = tmp_path / "coevo[1].db"  # `glob` would read this as a pattern
    shutil.copyfile(empty_sqlite, database)
    (tmp_path / "other.db.before-0001").touch()
    for version in ("0018", "0019", "0020"):
        upgrade_copy.copy_before_upgrade(database, version)
    copies = {path.name for path in tmp_path.iterdir()} - {database.name}
    assert copies == {"coevo[1].db.before-0019", "coevo[1].db.before-0020", "other.db.before-0001"}


def test_without_a_copy_nothing_is_upgraded(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/coevo.db"
    with database_of_version(url, "0019"):
        pass
    version = ScriptDirectory.from_config(alembic_config()).get_current_head()
    (tmp_path / f"coevo.db.before-{version}").mkdir()  # so that the copy cannot be renamed to this
    with pytest.raises(StoreError, match=rf"a copy is made before that: .*before-{version} cannot be written"):
        open_store(url, create=True)
    engine = create_engine(url)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "0019"
    engine.dispose()
