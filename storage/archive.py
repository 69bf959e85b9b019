"""The archive of `coevo backup`: a zip file with the rows and files of runs, and a manifest. docs/backup.md has its
layout.

An archive may come from anywhere, so nothing in it is trusted: `open_archive` refuses members that are not plain files
with safe names and with the size that the manifest states, and `Archive.chunks` reads no byte more than that.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo
from zlib import error as ZlibError

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.unicode import to_json
from storage.errors import ArchiveError

FORMAT = 1
MANIFEST = "manifest.json"
NO_RUN = "no_run"  # the section of the evaluations of models that are no run's
_RUNS = "runs"
_CHUNK = 1 << 20  # bytes that are in memory at a time
_LONGEST_LINE = 1 << 26  # bytes of a row
_LARGEST_MANIFEST = 1 << 24  # bytes
_OF_A_MEMBER, _OF_NO_MEMBER = 2_048, 1 << 20  # bytes of a manifest for each member, and beside them
_LONGEST_NAME = 1_000  # characters


class Member(BaseModel):
    """A file of the archive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int = Field(ge=0)
    sha256: str


class Manifest(BaseModel):
    """What an archive has. `rows` has the number of rows by section and table; a section is `runs/RUN` or
    `no_run`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1]
    coevo: str
    schema_version: str
    made_at: datetime
    rows: dict[str, dict[str, int]]
    members: dict[str, Member]


def section_of(run: str | None) -> str:
    """The folder of a run in the archive; None stands for the evaluations of models that are no run's."""
    return NO_RUN if run is None else f"{_RUNS}/{run}"


def run_of(section: str) -> str | None:
    """The inverse of `section_of`."""
    return section.removeprefix(f"{_RUNS}/") if section != NO_RUN else None


def rows_name(section: str, table: str) -> str:
    """The member with a section's rows of a table, as lines of JSON."""
    return f"{section}/rows/{table}.jsonl"


class ArchiveWriter:
    """Adds members to a new zip file; `finish` adds the manifest of them."""

    def __init__(self, archive: ZipFile) -> None:
        self._archive = archive
        self.members: dict[str, Member] = {}

    def add_file(self, name: str, path: Path) -> None:
        """Add a file as it is. Raises `OSError`."""
        with path.open("rb") as file, self._member(name, ZIP_STORED) as write:
            while chunk := file.read(_CHUNK):
                write(chunk)

    def add_rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> int:
        """Add rows as lines of JSON, compressed, and return how many they are."""
        count = 0
        with self._member(name, ZIP_DEFLATED) as write:
            for row in rows:
                write(f"{to_json(dict(row))}\n".encode())
                count += 1
        return count

    def finish(self, manifest: Manifest) -> None:
        """Add the manifest, which is the last member."""
        self._archive.writestr(MANIFEST, manifest.model_dump_json(indent=1), ZIP_DEFLATED)

    @contextmanager
    def _member(self, name: str, compression: int) -> Iterator[Callable[[bytes], None]]:
        info = ZipInfo(name, datetime.now().timetuple()[:6])
        info.compress_type = compression
        hashed, size = hashlib.sha256(), 0
        with self._archive.open(info, "w", force_zip64=True) as stream:

            def write(chunk: bytes) -> None:
                nonlocal size
                hashed.update(chunk)
                size += len(chunk)
                stream.write(chunk)

            yield write
        self.members[name] = Member(bytes=size, sha256=hashed.hexdigest())


class Archive:
    """An archive that is open for reading."""

    def __init__(self, path: Path, archive: ZipFile, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._archive = archive

    def names(self, section: str) -> list[str]:
        """The members of a section, in the order of their names."""
        return sorted(name for name in self.manifest.members if name.startswith(f"{section}/"))

    def member(self, name: str) -> Member:
        """Size and sha256 of a member. Raises `ArchiveError` if there is no such member."""
        try:
            return self.manifest.members[name]
        except KeyError as error:
            raise ArchiveError(f"{self.path}: {name} is missing") from error

    def chunks(self, name: str) -> Iterator[bytes]:
        """The content of a member. Raises `ArchiveError` at its end if it is not what the manifest states, and
        `OSError`."""
        member, hashed, size = self.member(name), hashlib.sha256(), 0
        try:
            with self._archive.open(name) as stream:
                while chunk := stream.read(min(_CHUNK, member.bytes - size + 1)):
                    size += len(chunk)
                    hashed.update(chunk)
                    yield chunk
        except (BadZipFile, EOFError, ZlibError, NotImplementedError) as error:
            raise ArchiveError(f"{self.path}: {name} is damaged: {error}") from error
        if hashed.hexdigest() != member.sha256:
            raise ArchiveError(
                f"{self.path}: {name} is damaged: expected sha256 {member.sha256}, got {hashed.hexdigest()}"
            )

    def lines(self, name: str) -> Iterator[bytes]:
        """The lines of a member, without their ends. Raises what `chunks` raises, and `ArchiveError` if one is too
        long."""
        rest = b""
        for chunk in self.chunks(name):
            *complete, rest = (rest + chunk).split(b"\n")
            yield from complete
            if len(rest) > _LONGEST_LINE:
                raise ArchiveError(f"{self.path}: {name}: expected lines of at most {_LONGEST_LINE:,} bytes")
        if rest:
            yield rest


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive. Raises `ArchiveError` if it is none, or if a member is not what the manifest states."""
    try:
        with ZipFile(path) as archive:
            yield Archive(path, archive, _manifest_of(archive, path))
    except FileNotFoundError as error:
        raise ArchiveError(f"{path}: no such file") from error
    except BadZipFile as error:
        raise ArchiveError(f"{path}: expected an archive that `coevo backup` made: {error}") from error


def _manifest_of(archive: ZipFile, path: Path) -> Manifest:
    infos = {info.filename: info for info in archive.infolist()}
    if len(infos) != len(archive.infolist()):
        raise ArchiveError(f"{path}: expected members with different names")
    for info in infos.values():
        _refuse_unsafe(info, path)
    # It takes some twenty times as much memory as bytes, so it must not name members that are not there.
    largest = min(_LARGEST_MANIFEST, _OF_NO_MEMBER + _OF_A_MEMBER * len(infos))
    if MANIFEST not in infos or infos[MANIFEST].file_size > largest:
        raise ArchiveError(
            f"{path}: expected an archive that `coevo backup` made, with a {MANIFEST} of at most {largest:,} bytes"
        )
    try:
        manifest = Manifest.model_validate_json(archive.read(MANIFEST))
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise ArchiveError(f"{path}: {MANIFEST}: {where}: {fault['msg']}") from error
    _refuse_other_members(infos, manifest, path)
    return manifest


def _refuse_unsafe(info: ZipInfo, path: Path) -> None:
    """Only plain files whose names stay within a folder are accepted: no folders, links, or absolute paths."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    parts = info.filename.split("/")
    is_safe = all(part not in ("", ".", "..") and part.isprintable() and "\\" not in part for part in parts)
    if kind not in (0, stat.S_IFREG) or not is_safe or len(info.filename) > _LONGEST_NAME:
        raise ArchiveError(f"{path}: expected plain files with relative paths, got {info.filename[:200]!r}")
    if info.flag_bits & 1 or info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise ArchiveError(f"{path}: {info.filename}: expected a file that is not encrypted, stored or deflated")


def _refuse_other_members(infos: Mapping[str, ZipInfo], manifest: Manifest, path: Path) -> None:
    actual, stated = infos.keys() - {MANIFEST}, manifest.members.keys()
    for name in sorted(actual ^ stated)[:1]:
        which = "is not in its manifest" if name in actual else "is missing"
        raise ArchiveError(f"{path}: {name} {which}")
    for name, member in manifest.members.items():
        if infos[name].file_size != member.bytes:
            raise ArchiveError(f"{path}: {name}: expected {member.bytes:,} bytes, got {infos[name].file_size:,}")
