"""What keeps an archive from being written or restored. Nothing is changed then."""

from __future__ import annotations

import resource
import shutil
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from orchestrator.disk.backup import back_up
from orchestrator.disk.restore import restore
from orchestrator.installation.home import Home
from storage import queries
from storage.archive import MANIFEST
from storage.errors import ArchiveError, NotThere, RunHeld, StoreError
from storage.session import Store
from tests.disk_files import write
from tests.orchestrator.archives import (
    LABELS,
    WEIGHTS,
    Members,
    add_evaluation,
    changed,
    files,
    new_home,
    refused,
    rows,
)
from tests.orchestrator.stored_runs import RUN, copy_of


@pytest.fixture
def new(tmp_path: Path) -> tuple[Home, Store]:
    return new_home(tmp_path / "new")


def test_a_run_that_exists(new: tuple[Home, Store], archive: Path) -> None:
    restore(*new, archive, [RUN])
    assert f"the store has runs of these names already: {RUN}" in refused(new, archive)


def test_an_evaluation_that_exists(new: tuple[Home, Store], archive: Path) -> None:
    key = add_evaluation(*new, "/models/other", None)
    assert f"the store has some of its evaluations already: {key}" in refused(new, archive)
    restore(*new, archive, [RUN])


def test_a_run_that_the_archive_does_not_have(new: tuple[Home, Store], archive: Path) -> None:
    assert refused(new, archive, "other").endswith(f"has no run other; it has {RUN}")


def test_a_run_that_another_process_is_about_to_create(new: tuple[Home, Store], archive: Path) -> None:
    with new[1].write() as session:
        queries.run_leases.claim_run(session, run=RUN, owner="elsewhere:42:7", lease_seconds=60)
    with pytest.raises(RunHeld, match="process 42 on elsewhere"):
        restore(*new, archive)
    assert files(new[0]) == {}


@pytest.mark.parametrize(
    "left", ["texts/whole/1/label_questions.parquet", "work/whole/2/train_solver/step_5/state.json", "exports/whole/x"]
)
def test_files_of_another_run_of_this_name(left: str, new: tuple[Home, Store], archive: Path) -> None:
    write(new[0].path / left)
    assert f"{left}: this file is not the archive's" in refused(new, archive)


def test_a_part_of_the_run_s_own_files(new: tuple[Home, Store], archive: Path) -> None:
    """A killed restoration leaves all files of a folder, or none. So these are somebody's."""
    restore(*new, archive, [RUN])
    with new[1].write() as session:
        queries.runs.delete_run(session, RUN)
    next(new[0].checkpoints.glob(f"{RUN}/solver/1/*.safetensors")).unlink()
    assert f"{new[0].checkpoints / RUN}: expected 25 files of the archive or none, got 24" in refused(new, archive, RUN)


def test_a_link_in_the_way(new: tuple[Home, Store], archive: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    new[0].checkpoints.mkdir()
    (new[0].checkpoints / RUN).symlink_to(elsewhere)
    assert "this file is not the archive's" in refused(new, archive)
    assert [*elsewhere.iterdir()] == []
    with ZipFile(archive) as source:
        (elsewhere / "weights").write_bytes(source.read(WEIGHTS))
    (new[0].checkpoints / RUN).unlink()
    link = new[0].checkpoints / RUN / "solver" / "1" / "model.safetensors"
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere / "weights")
    assert f"{link}: this file is not the archive's" in refused(new, archive)


def test_a_disk_that_is_too_small(new: tuple[Home, Store], archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = namedtuple("disk", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk(100_000, 95_000, 5_000))
    assert "bytes that are free, for files and rows, got 5,000" in refused(new, archive)


def test_tables_of_another_version(new: tuple[Home, Store], archive: Path, tmp_path: Path) -> None:
    def older(_members: Members, manifest: dict[str, Any]) -> None:
        manifest.update(schema_version="0022", coevo="0.0.9")

    message = refused(new, changed(archive, tmp_path / "older.zip", older))
    assert "expected tables of version 0025, got 0022. Restore it with coevo 0.0.9" in message
    assert "coevo migrate" in message


def test_a_flipped_bit_anywhere_in_a_file_or_a_row(new: tuple[Home, Store], archive: Path, tmp_path: Path) -> None:
    with ZipFile(archive) as source:
        offsets = {name: source.getinfo(name).header_offset + 200 + len(name) for name in (LABELS, WEIGHTS)}
        offsets[WEIGHTS] = source.getinfo(WEIGHTS).header_offset + 51 + len(WEIGHTS)
    for name, offset in offsets.items():
        content = bytearray(archive.read_bytes())
        content[offset] ^= 1
        (tmp_path / "damaged.zip").write_bytes(content)
        assert f"{name} is damaged" in refused(new, tmp_path / "damaged.zip")


def test_a_member_of_the_right_size_with_another_content(
    new: tuple[Home, Store], archive: Path, tmp_path: Path
) -> None:
    """Its checksum in the zip file is right, but it is not the member that the manifest states."""
    with ZipFile(archive) as source, ZipFile(tmp_path / "other.zip", "w") as other:
        for name in source.namelist():
            content = source.read(name)
            other.writestr(name, content.replace(b"kept", b"lost") if name == LABELS else content)
    assert f"{LABELS} is damaged: expected sha256" in refused(new, tmp_path / "other.zip")


@pytest.mark.parametrize("length", [0, 100, -1, -100_000])
def test_an_archive_that_was_cut_off(length: int, new: tuple[Home, Store], archive: Path, tmp_path: Path) -> None:
    (tmp_path / "short.zip").write_bytes(archive.read_bytes()[:length])
    assert "expected an archive that `coevo backup` made" in refused(new, tmp_path / "short.zip")


def test_what_is_no_archive(new: tuple[Home, Store], tmp_path: Path) -> None:
    assert refused(new, tmp_path / "missing.zip").endswith("missing.zip: no such file")
    assert "cannot be restored: " in refused(new, tmp_path)
    with ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("notes.txt", "hello")
    assert "expected an archive that `coevo backup` made, with a manifest.json" in refused(new, tmp_path / "other.zip")
    with ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr(MANIFEST, '{"format": 2}')
    assert "manifest.json: format: Input should be 1" in refused(new, tmp_path / "other.zip")


def test_a_backup_of_a_damaged_or_missing_checkpoint(loop_home: Home, tmp_path: Path) -> None:
    home, store = copy_of(loop_home, tmp_path / "home")
    weights = home.checkpoints / RUN / "solver" / "1" / "model.safetensors"
    weights.write_bytes(b"damaged")
    with pytest.raises(ArchiveError, match=r"checkpoint whole/solver/1: model\.safetensors: expected sha256"):
        back_up(home, store, tmp_path / "run.zip")
    weights.unlink()
    with pytest.raises(ArchiveError, match=r"solver/1/model\.safetensors is missing; `coevo verify RUN` says more"):
        back_up(home, store, tmp_path / "run.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_backup_that_cannot_be_written(loop_home: Home, tmp_path: Path) -> None:
    home, store = copy_of(loop_home, tmp_path / "home")
    with pytest.raises(ArchiveError, match="cannot be written: "):
        back_up(home, store, tmp_path / "missing" / "run.zip")
    write(tmp_path / "run.zip")
    with pytest.raises(ArchiveError, match="exists already"):
        back_up(home, store, tmp_path / "run.zip")
    with pytest.raises(NotThere, match="run other: no such run; the store has whole"):
        back_up(home, store, tmp_path / "other.zip", ["other"])


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """This process cannot write beyond this size in any file, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # in another process, which has no such limit
def test_files_that_cannot_be_written(store: Store, archive: Path, tmp_path: Path) -> None:
    new = Home(tmp_path / "new")
    with small_files(1_000), pytest.raises(ArchiveError, match=r"cannot be restored: .*File too large"):
        restore(new, store, archive)
    assert not any(rows(new, store).values())
    assert [path for path in files(new) if ".part" in path or "texts" in path] == []
    restore(new, store, archive)
    before = files(new)
    with small_files(1_000), pytest.raises(ArchiveError, match=r"cannot be written: .*File too large"):
        back_up(new, store, tmp_path / "again.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert files(new) == before


def test_a_copy_of_the_database_that_cannot_be_written(loop_home: Home, tmp_path: Path) -> None:
    home, store = copy_of(loop_home, tmp_path / "home")
    with small_files(100_000), pytest.raises(StoreError, match="cannot be copied to "):
        back_up(home, store, tmp_path / "run.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_backup_of_a_run_that_refers_to_another_one(loop_home: Home, tmp_path: Path) -> None:
    home, store = copy_of(loop_home, tmp_path / "home")
    with store.write() as session:
        session.connection().exec_driver_sql(
            "INSERT INTO runs SELECT 'other', preset, seed, status, config, created_at, updated_at, preset_settings, "
            "overrides, tags, note, noted_by, noted_at, unconfirmed FROM runs"
        )
        session.connection().exec_driver_sql(
            "UPDATE evaluations SET run = 'other' WHERE checkpoint_id = 'whole/base/0'"
        )
    message = "run: 'other' is not in the archive; if another run has it, name that run too"
    with pytest.raises(ArchiveError, match=message):
        back_up(home, store, tmp_path / "run.zip", [RUN])
    back_up(home, store, tmp_path / "run.zip", [RUN, "other"])
    restore(*new_home(tmp_path / "new"), tmp_path / "run.zip")
