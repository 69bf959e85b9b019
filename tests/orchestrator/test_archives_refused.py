"""What keeps an archive from being written or restored. Nothing is changed then."""

from __future__ import annotations

import resource
import shutil
import stat
import zipfile
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import pytest

from orchestrator.disk.archived import destination
from orchestrator.disk.backup import back_up
from orchestrator.disk.restore import restore
from orchestrator.installation.home import Home
from storage import queries
from storage.archive import MANIFEST
from storage.errors import ArchiveError, NotThere, RunHeld, StoreError
from storage.session import Store
from tests.disk_files import write
from tests.orchestrator.archives import Members, add_evaluation, changed, files, new_home, rows
from tests.orchestrator.stored_runs import RUN, copy_of

Change = Callable[[Members, dict[str, Any]], None]
LABELS, WEIGHTS = f"runs/{RUN}/rows/pseudo_labels.jsonl", f"runs/{RUN}/checkpoints/solver/1/model.safetensors"


@pytest.fixture(scope="module")
def archive(loop_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a whole run, of which the Solver was also evaluated by hand, and of an evaluation of no run."""
    folder = tmp_path_factory.mktemp("archive")
    copied = copy_of(loop_home, folder / "home")
    add_evaluation(*copied, f"{RUN}/solver/1", f"{RUN}/solver/1")
    add_evaluation(*copied, "/models/other", None)
    back_up(*copied, folder / "run.zip")
    return folder / "run.zip"


@pytest.fixture
def new(tmp_path: Path) -> tuple[Home, Store]:
    return new_home(tmp_path / "new")


def refused(new: tuple[Home, Store], source: Path, *runs: str) -> str:
    """The message of a refused restoration, which has changed nothing."""
    before = files(new[0]), rows(*new)
    with pytest.raises(ArchiveError) as error:
        restore(*new, source, runs)
    assert (files(new[0]), rows(*new)) == before
    return str(error.value)


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
    assert "expected tables of version 0023, got 0022. Restore it with coevo 0.0.9" in message
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


def _in(name: str, old: str, other: str, count: int = -1) -> Change:
    """Replace a text in a member."""

    def change(members: Members, _manifest: dict[str, Any]) -> None:
        assert old.encode() in members[name]
        members[name] = members[name].replace(old.encode(), other.encode(), count)

    return change


def _without(name: str) -> Change:
    def change(members: Members, _manifest: dict[str, Any]) -> None:
        del members[name]

    return change


def _twice(table: str) -> Change:
    """A row that is there twice, and counted twice."""

    def change(members: Members, manifest: dict[str, Any]) -> None:
        name = f"runs/{RUN}/rows/{table}.jsonl"
        members[name] += members[name].splitlines(keepends=True)[0]
        manifest["rows"][f"runs/{RUN}"][table] += 1

    return change


def _with_rows(table: str, content: str) -> Change:
    def change(members: Members, manifest: dict[str, Any]) -> None:
        members[f"runs/{RUN}/rows/{table}.jsonl"] = content.encode()
        manifest["rows"][f"runs/{RUN}"][table] = content.count("\n")

    return change


def _renamed(old: str, name: str) -> Change:
    def change(members: Members, _manifest: dict[str, Any]) -> None:
        members[name] = members.pop(old)

    return change


OF_RUN = f"runs/{RUN}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without(LABELS), f"{LABELS} is missing"),
        (_without(WEIGHTS), f"checkpoint {RUN}/solver/1: model.safetensors: expected sha256"),
        (
            _in(WEIGHTS, "1/train_solver", "2/train_solver"),
            f"checkpoint {RUN}/solver/1: model.safetensors: expected sha256",
        ),
        (_in(LABELS, '"votes": 2', '"votes": "2"'), "rows of pseudo_labels: votes: Input should be a valid integer"),
        (_in(LABELS, '"votes": 2', f'"votes": {2**63}'), "rows of pseudo_labels: votes: Input should be less than"),
        (_in(LABELS, '"votes": 2,', ""), "rows of pseudo_labels: votes: Field required"),
        (_in(LABELS, '"votes": 2,', '"votes": 2, "more": 1,'), "more: Extra inputs are not permitted"),
        (_in(LABELS, "}", ""), "rows of pseudo_labels: : Invalid JSON"),
        (_in(LABELS, '"run": "whole"', '"run": "other"', 1), "expected rows of this run, got one of 'other'"),
        (_in(LABELS, "whole/1/000000", "other/1/000000"), "question_id: 'other/1/000000' is not in the archive"),
        (_in(LABELS, "whole/1/000000", "whole/000000"), "question_id: 'whole/000000' is not in the archive"),
        (_in(f"{OF_RUN}/rows/questions.jsonl", '"index": 0', '"index": 9', 1), "expected rows of this run"),
        (
            _in(f"{OF_RUN}/rows/questions.jsonl", '"checkpoint": "whole/', '"checkpoint": "other/'),
            "is not in the archive",
        ),
        (_in(f"{OF_RUN}/rows/checkpoints.jsonl", "whole/base/0", "other/base/0"), "expected rows of this run"),
        (
            _in(f"{OF_RUN}/rows/runs.jsonl", '"tags": []', '"tags": 5'),
            "rows of runs: tags: Input should be a valid array",
        ),
        (_in(f"{OF_RUN}/rows/runs.jsonl", "+00:00", ""), "Input should have timezone info"),
        (_in(f"{OF_RUN}/rows/benchmark_items.jsonl", "1 + 2", "1 + 3"), "questions of a benchmark: expected sha256"),
        (_with_rows("api_keys", ""), f"runs/{RUN}: expected the rows of one run, in tables of coevo's"),
        (_with_rows("runs", ""), f"runs/{RUN}: expected the rows of one run"),
        (_renamed(WEIGHTS, f"runs/{RUN}/checkpoints/solver/1/model.pt"), "expected a file of a checkpoint"),
        (_renamed(WEIGHTS, f"runs/{RUN}/checkpoints/solver/x/model.safetensors"), "expected a file of a checkpoint"),
        (_renamed(WEIGHTS, f"runs/{RUN}/work/solver/1/model.safetensors"), "expected a file of a checkpoint"),
        (_renamed(WEIGHTS, f"runs/{RUN}/texts/1/../../x.parquet"), "expected plain files with relative paths"),
        (_renamed(WEIGHTS, "/etc/cron.d/job"), "expected plain files with relative paths"),
        (_renamed(WEIGHTS, f"runs/{RUN}/checkpoints/solver/1/a\\..\\b.json"), "expected plain files"),
        (_renamed(WEIGHTS, f"runs/{RUN}/checkpoints/solver/1/{'a' * 1_000}.json"), "expected plain files"),
        (_renamed(WEIGHTS, f"runs/{RUN}/checkpoints/solver/1/"), "expected plain files"),
    ],
)
def test_a_crafted_archive(
    change: Change, message: str, new: tuple[Home, Store], archive: Path, tmp_path: Path
) -> None:
    assert message in refused(new, changed(archive, tmp_path / "crafted.zip", change))


def test_rows_that_are_there_twice(new: tuple[Home, Store], archive: Path, tmp_path: Path) -> None:
    """They are seen when they are added, and none is kept; the files are left, for `coevo gc`."""
    for table in ("pseudo_labels", "checkpoints"):
        crafted = changed(archive, tmp_path / "crafted.zip", _twice(table))
        with pytest.raises(ArchiveError, match=f"run {RUN}: expected the rows"):
            restore(*new, crafted)
        assert not any(rows(*new).values())


@pytest.mark.parametrize("section", ["runs/..", "runs/a/b", "runs/", "other"])
def test_a_section_of_no_run(section: str, new: tuple[Home, Store], archive: Path, tmp_path: Path) -> None:
    def rename(members: Members, manifest: dict[str, Any]) -> None:
        manifest["rows"][section] = manifest["rows"].pop(OF_RUN)

    with pytest.raises(StoreError, match=r"run name: expected at most 64 letters|expected the rows of one run"):
        restore(*new, changed(archive, tmp_path / "crafted.zip", rename))


def test_members_that_the_manifest_does_not_state(new: tuple[Home, Store], archive: Path, tmp_path: Path) -> None:
    more, link, twice, bomb = (tmp_path / f"{name}.zip" for name in ("more", "link", "twice", "bomb"))
    for copy in (more, link, twice):
        shutil.copyfile(archive, copy)
    with ZipFile(more, "a") as crafted:
        crafted.writestr("runs/whole/texts/1/label_questions.parquet.bak", "x")
    assert "label_questions.parquet.bak is not in its manifest" in refused(new, more)
    with ZipFile(link, "a") as crafted:
        info = ZipInfo("runs/whole/checkpoints/solver/1/link.json")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        crafted.writestr(info, "/etc/passwd")
    assert "expected plain files with relative paths, got 'runs/whole/checkpoints/solver/1/link.json'" in refused(
        new, link
    )
    with ZipFile(twice, "a") as crafted, pytest.warns(UserWarning, match="Duplicate name"):
        crafted.writestr(WEIGHTS, "x")
    assert "expected members with different names" in refused(new, twice)
    with ZipFile(archive) as source:
        members = {name: source.read(name) for name in source.namelist()}
    with ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as crafted:
        for name, content in {**members, WEIGHTS: b"0" * 10_000_000}.items():
            crafted.writestr(name, content)
    assert f"{WEIGHTS}: expected {len(members[WEIGHTS])} bytes, got 10,000,000" in refused(new, bomb)


def test_a_member_that_unpacks_to_more_than_it_states(new: tuple[Home, Store], archive: Path, tmp_path: Path) -> None:
    """Its header states the size that the manifest states. No byte more is read."""
    with ZipFile(archive) as source:
        members = {name: source.read(name) for name in source.namelist()}
    size = len(members[WEIGHTS])
    with ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as crafted:
        for name, content in {**members, WEIGHTS: b"0" * 10_000_000}.items():
            crafted.writestr(name, content)
        crafted.getinfo(WEIGHTS).file_size = size
    assert f"{WEIGHTS} is damaged" in refused(new, tmp_path / "bomb.zip")


@pytest.mark.parametrize("section", ["no_run", "runs/..", "runs/a/b"])
def test_only_a_run_has_checkpoints(section: str, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="expected a file of a checkpoint"):
        destination(Home(tmp_path), section, f"{section}/checkpoints/solver/1/model.safetensors")


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
            "overrides, tags, note, noted_by, noted_at FROM runs"
        )
        session.connection().exec_driver_sql(
            "UPDATE evaluations SET run = 'other' WHERE checkpoint_id = 'whole/base/0'"
        )
    message = "run: 'other' is not in the archive; if another run has it, name that run too"
    with pytest.raises(ArchiveError, match=message):
        back_up(home, store, tmp_path / "run.zip", [RUN])
    back_up(home, store, tmp_path / "run.zip", [RUN, "other"])
    restore(*new_home(tmp_path / "new"), tmp_path / "run.zip")
