"""Checkpoints on disk. A checkpoint is published whole or not at all, and it is verified before it is loaded.

A published checkpoint is the folder ROOT/RUN/ROLE/ITERATION with model files and `manifest.json`, which maps each
file's name to its sha256. The checkpoint's own sha256 is that of `manifest.json` (`sha256sum manifest.json` prints it).
Model files are safetensors, JSON, Jinja and text. A pickle is refused, because it can run code when it is loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from core.files import make_folder, sync
from core.processes.faultpoints import faultpoint
from core.types import Checkpoint, CheckpointRole, checkpoint_id
from storage.errors import CheckpointError

MANIFEST = "manifest.json"
MODEL_FILES = {".safetensors", ".json", ".jinja", ".txt"}
_PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CHUNK = 1 << 22  # bytes
_HASHES_AT_ONCE = 8  # hashing lets other threads run; a large model has many files


def manifest(folder: Path) -> dict[str, str]:
    """File name -> sha256 of the model files in `folder`, subfolders included; other files are left out.

    Raises `CheckpointError` when the folder contains a pickle, or no safetensors.
    """
    names = model_files(folder)
    with ThreadPoolExecutor(_HASHES_AT_ONCE) as threads:
        return dict(zip(names, threads.map(_sha256, (folder / name for name in names)), strict=True))


def digest(files: Mapping[str, str]) -> str:
    """The sha256 of a manifest, which covers every file that the manifest names."""
    return hashlib.sha256(_as_json(files)).hexdigest()


def publish(
    source: Path,
    root: Path,
    *,
    run: str,
    role: CheckpointRole,
    iteration: int,
    step: int,
    parent: str | None,
) -> Checkpoint:
    """Copy the model files of `source` to ROOT/RUN/ROLE/ITERATION. The folder appears only when it is complete.

    The files are copied and not moved, so that publishing can be repeated after a crash. Publishing the same bytes
    again returns the published checkpoint. Publishing other bytes under the same key raises `CheckpointError`.
    """
    if not _NAME.fullmatch(run):
        raise CheckpointError(f"run name: expected A-Z a-z 0-9 . _ -, the first a letter or digit, got {run!r}")
    final = root / run / role / str(iteration)
    key = checkpoint_id(run, role, iteration)
    if final.exists():
        sha256, offered = digest(published_manifest(final)), digest(manifest(source))
        if sha256 != offered:
            raise CheckpointError(
                f"checkpoint {key}: {final} is published with sha256 {sha256}, which never changes;"
                f" got {offered} from {source}"
            )
    else:
        sha256 = _publish(source, root, final, key)
    return Checkpoint(key, run, role, iteration, step, str(final), sha256, parent)


def link(source: Path, root: Path) -> tuple[Path, str]:
    """Make a model that nobody published servable: a folder of links to its files, with a manifest.

    Returns the folder, which is in `root`, and the manifest's sha256. The files must stay where they are; `verify`
    tells if one has changed. Raises `CheckpointError`.
    """
    files, source = manifest(source), source.resolve()
    # Named by the place too: the same files may be moved, or those of a copy may be gone.
    folder = root / hashlib.sha256(f"{source}\n{digest(files)}".encode()).hexdigest()[:16]
    if not folder.exists():
        make_folder(root)
        temporary = Path(tempfile.mkdtemp(prefix=".tmp-", dir=root))
        for name in files:
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).symlink_to((source / name).resolve())
        _write(temporary / MANIFEST, _as_json(files))
        try:
            os.rename(temporary, folder)
        except OSError:
            shutil.rmtree(temporary)
            if not folder.exists():  # else another process was first
                raise
    return folder, digest(files)


def verify(folder: Path, sha256: str) -> None:
    """Read every byte of a published checkpoint, and compare it with the manifest.

    Raises `CheckpointError`, which names a file that is missing, is not in the manifest, or has changed; or the
    manifest, if its own sha256 is not `sha256`.
    """
    files = published_manifest(folder)
    _require_sha256(folder / MANIFEST, sha256)
    paths = [path for path in folder.rglob("*") if path.exists() and not path.is_dir()]  # a link may lead nowhere
    present = {path.relative_to(folder).as_posix() for path in paths} - {MANIFEST}
    for name in sorted(files.keys() - present):
        raise CheckpointError(f"checkpoint {folder}: {name} is missing")
    for name in sorted(present - files.keys()):
        raise CheckpointError(f"checkpoint {folder}: {name} is not in its manifest")
    for name, expected in files.items():
        _require_sha256(folder / name, expected)


def published_manifest(folder: Path) -> dict[str, str]:
    """The manifest of a published checkpoint, as it was written. Raises `CheckpointError`."""
    try:
        files = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(f"checkpoint {folder}: {MANIFEST} is missing") from error
    except ValueError as error:
        raise CheckpointError(f"checkpoint {folder}: {MANIFEST} is not JSON: {error}") from error
    if not isinstance(files, dict) or not all(isinstance(value, str) for value in files.values()):
        raise CheckpointError(f"checkpoint {folder}: {MANIFEST}: expected file names and their sha256")
    return files


def _publish(source: Path, root: Path, final: Path, key: str) -> str:
    make_folder(final.parent)
    prefix = f".tmp-{key.replace('/', '-')}-"
    # A crash may have left these. The ledger's lease makes sure that no other process publishes this checkpoint now.
    for leftover in root.glob(f"{prefix}{'?' * 8}"):  # what `mkdtemp` adds; a run's name may begin with another's
        shutil.rmtree(leftover)
    temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
    try:
        files = {name: _copy(source / name, temporary / name) for name in model_files(source)}
        _write(temporary / MANIFEST, _as_json(files))
        for folder in (temporary, *(path for path in temporary.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
            sync(folder)
        faultpoint("checkpoint written")
        os.rename(temporary, final)
        faultpoint("checkpoint renamed")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync(final.parent)
    return digest(files)


def model_files(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise CheckpointError(f"checkpoint {folder}: there is no such folder")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in paths:
        if path.suffix.lower() in _PICKLES:
            raise CheckpointError(
                f"checkpoint {path}: a pickle can run code when loaded; expected safetensors and JSON"
            )
    names = [path.relative_to(folder).as_posix() for path in paths if path.suffix in MODEL_FILES]
    if not any(name.endswith(".safetensors") for name in names):
        raise CheckpointError(f"checkpoint {folder}: expected *.safetensors, found none")
    return sorted(name for name in names if name != MANIFEST)


def _copy(source: Path, target: Path) -> str:
    """Copy the file, and return the sha256 of the bytes that were copied."""
    hashed = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as source_file, target.open("xb") as target_file:
        while chunk := source_file.read(_CHUNK):
            hashed.update(chunk)
            target_file.write(chunk)
    sync(target)
    faultpoint("checkpoint file copied")
    return hashed.hexdigest()


def _write(target: Path, content: bytes) -> None:
    with target.open("xb") as file:
        file.write(content)
    sync(target)


def _as_json(files: Mapping[str, str]) -> bytes:
    return (json.dumps(dict(files), sort_keys=True, indent=1) + "\n").encode()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require_sha256(path: Path, sha256: str) -> None:
    actual = _sha256(path)
    if actual != sha256:
        raise CheckpointError(
            f"checkpoint {path.parent}: {path.name} has changed: expected sha256 {sha256}, got {actual}"
        )
