"""Archives that somebody has crafted to leave the home, to change other runs, or to fill the disk: they are refused."""

from __future__ import annotations

import json
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest

from orchestrator.disk.archived import destination
from orchestrator.disk.restore import restore
from orchestrator.installation.home import Home
from storage.archive import MANIFEST, Manifest, open_archive
from storage.errors import ArchiveError, StoreError
from storage.session import Store
from tests.orchestrator.archives import LABELS, WEIGHTS, Members, changed, new_home, refused, rows
from tests.orchestrator.stored_runs import RUN

Change = Callable[[Members, dict[str, Any]], None]


@pytest.fixture
def new(tmp_path: Path) -> tuple[Home, Store]:
    return new_home(tmp_path / "new")


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


def _copied(old: str, name: str) -> Change:
    def change(members: Members, _manifest: dict[str, Any]) -> None:
        members[name] = members[old]

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
        (_renamed(WEIGHTS, WEIGHTS.replace("solver/1", "solver/9")), f"checkpoint {RUN}/solver/1: model.safetensors"),
        (_copied(WEIGHTS, WEIGHTS.replace("solver/1", "solver/9")), f"checkpoint {RUN}/solver/9: has files and no row"),
        (_renamed(WEIGHTS, f"runs/{RUN}/scratch/solver/1/model.safetensors"), "expected a file of a checkpoint"),
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
    with pytest.raises(ArchiveError, match=f"run {RUN}: expected the rows"):
        restore(*new, changed(archive, tmp_path / "crafted.zip", _twice("pseudo_labels")))
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


def test_a_manifest_that_names_what_is_not_there_is_not_read(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes some twenty times as much memory as bytes, and compresses well."""
    monkeypatch.setattr(Manifest, "model_validate_json", lambda _text: pytest.fail("the manifest was read"))
    with ZipFile(tmp_path / "large.zip", "w", ZIP_DEFLATED) as target:
        with ZipFile(archive) as source:
            manifest = json.loads(source.read(MANIFEST))
        for index in range(40_000):
            manifest["members"][f"runs/{RUN}/texts/{index}"] = {"bytes": 1, "sha256": "0" * 64}
        target.writestr(MANIFEST, json.dumps(manifest))
    with pytest.raises(ArchiveError), open_archive(tmp_path / "large.zip"):
        pass
