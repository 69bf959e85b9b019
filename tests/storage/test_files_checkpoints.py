from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from crashes import crash_points
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.types import Checkpoint
from storage.errors import CheckpointError
from storage.files.checkpoints import digest, link, manifest, publish, published_manifest, verify

FILES = {
    "model.safetensors": b"weights" * 100,
    "config.json": b'{"model_type": "qwen3"}',
    "chat_template.jinja": b"{{ messages }}",
    "sub/merges.txt": b"a b",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "README.md").write_text("not a model file")
    return folder


def publish_solver(source: Path, root: Path) -> Checkpoint:
    return publish(source, root, run="demo", role="solver", iteration=2, step=20, parent="demo/solver/1")


def test_a_checkpoint_is_published_with_its_manifest(source: Path, tmp_path: Path) -> None:
    checkpoint = publish_solver(source, tmp_path / "models")
    folder = tmp_path / "models/demo/solver/2"
    assert checkpoint == Checkpoint(
        "demo/solver/2", "demo", "solver", 2, 20, str(folder), digest(manifest(source)), "demo/solver/1"
    )
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    assert not (folder / "README.md").exists()
    assert json.loads((folder / "manifest.json").read_bytes()) == manifest(source) == published_manifest(folder)
    assert checkpoint.sha256 == hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    assert manifest(source)["config.json"] == hashlib.sha256(FILES["config.json"]).hexdigest()
    verify(folder, checkpoint.sha256)
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["demo"]
    # Published again elsewhere: its manifest does not count as a model file.
    assert publish_solver(folder, tmp_path / "two").sha256 == checkpoint.sha256


def test_publishing_the_same_files_again_changes_nothing_and_other_files_are_refused(
    source: Path, tmp_path: Path
) -> None:
    first = publish_solver(source, tmp_path / "models")
    assert publish_solver(source, tmp_path / "models") == first
    (source / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=f"checkpoint demo/solver/2: .*{first.sha256}"):
        publish_solver(source, tmp_path / "models")
    verify(Path(first.path), first.sha256)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted([*FILES, "manifest.json"])), position=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_detected_and_its_file_is_named(
    source: Path, tmp_path: Path, name: str, position: int, bit: int
) -> None:
    checkpoint = publish_solver(source, tmp_path / "models")
    path = Path(checkpoint.path) / name
    intact = path.read_bytes()
    damaged = bytearray(intact)
    damaged[position % len(damaged)] ^= 1 << bit
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match=Path(name).name.replace(".", r"\.")):
        verify(Path(checkpoint.path), checkpoint.sha256)
    path.write_bytes(intact)
    verify(Path(checkpoint.path), checkpoint.sha256)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"pytorch_model.bin": b""}, "pytorch_model.bin"),  # which is not in the manifest
        ({"sub/merges.txt": None}, "sub/merges.txt"),
        *(
            ({"manifest.json": content}, "manifest.json")
            for content in (None, b"", b"[]", b'{"config.json": 1}', b"\xff")
        ),
    ],
)
def test_a_folder_that_is_not_as_published_is_refused(
    source: Path, tmp_path: Path, changes: dict[str, bytes | None], named: str
) -> None:
    checkpoint = publish_solver(source, tmp_path / "models")
    change(Path(checkpoint.path), changes)
    with pytest.raises(CheckpointError, match=re.escape(named)):
        verify(Path(checkpoint.path), checkpoint.sha256)


def change(folder: Path, changes: dict[str, bytes | None]) -> None:
    """Write files; those whose content is None are removed."""
    for name, content in changes.items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("changes", "run", "named"),
    [
        *(({name: b"cos\nsystem\n"}, "demo", name) for name in ("pytorch_model.bin", "optimizer.pt", "sub/rng.PKL")),
        ({"model.safetensors": None}, "demo", "*.safetensors"),
        ({}, "../out", "run name: "),
    ],
)
def test_what_is_no_model_is_refused_and_nothing_is_published(
    source: Path, tmp_path: Path, changes: dict[str, bytes | None], run: str, named: str
) -> None:
    """A pickle, a folder without weights, a name that points outside the root."""
    change(source, changes)
    with pytest.raises(CheckpointError, match=re.escape(named)):
        publish(source, tmp_path / "models", run=run, role="solver", iteration=1, step=1, parent=None)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {*source.rglob("*")} - {source / "sub"}
    with pytest.raises(CheckpointError, match="nowhere"):
        publish_solver(tmp_path / "nowhere", tmp_path / "models")


def test_changed_files_with_a_matching_manifest_are_still_refused(source: Path, tmp_path: Path) -> None:
    checkpoint = publish_solver(source, tmp_path / "models")
    (source / "config.json").write_text("{}")
    forged = publish_solver(source, tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        verify(Path(forged.path), checkpoint.sha256)


def test_a_crash_at_any_point_leaves_no_incomplete_checkpoint(source: Path, tmp_path: Path) -> None:
    assert crash_points("publish", tmp_path) > 15


def test_checkpoints_can_be_verified_without_torch_sqlalchemy_or_pyarrow() -> None:
    program = "import sys, storage.files.checkpoints; print(*{'torch', 'sqlalchemy', 'pyarrow'} & sys.modules.keys())"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == ""


def test_a_model_that_was_moved_is_linked_again_and_the_links_to_where_it_was_are_refused(
    source: Path, tmp_path: Path
) -> None:
    before, sha256 = link(source, tmp_path / "links")
    verify(before, sha256)
    moved = source.rename(tmp_path / "moved")
    after, same = link(moved, tmp_path / "links")
    assert same == sha256
    verify(after, sha256)
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja is missing"):
        verify(before, sha256)


def test_publishing_removes_what_a_crash_has_left_but_not_what_another_run_is_publishing(
    source: Path, tmp_path: Path
) -> None:
    """The other run is `demo-solver-2`, which publishes its own `solver/3`."""
    root = tmp_path / "models"
    left, of_another_run = root / ".tmp-demo-solver-2-abcd_123", root / ".tmp-demo-solver-2-solver-3-abcd_123"
    for folder in (left, of_another_run):
        folder.mkdir(parents=True)
    publish_solver(source, root)
    assert {path.name for path in root.iterdir()} == {"demo", of_another_run.name}


def test_a_folder_of_links_that_another_process_made_first_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, root = tmp_path / "model", tmp_path / "links"
    source.mkdir()
    (source / "model.safetensors").write_bytes(b"weights")
    rename = os.rename

    def second(temporary: Path, folder: Path) -> None:
        shutil.copytree(temporary, folder, symlinks=True)
        rename(temporary, folder)

    monkeypatch.setattr(os, "rename", second)
    folder, sha256 = link(source, root)
    verify(folder, sha256)
    assert [*root.iterdir()] == [folder]
