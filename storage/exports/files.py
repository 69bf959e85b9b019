"""Files of exported rows: JSONL, CSV and Parquet. The modules `storage.exports.rows` and `services.evaluations.exports`
make the rows.

A file is written once, a page of rows at a time, and appears only when it is complete, with its manifest beside it. The
same rows give the same bytes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import pyarrow as pa
import pyarrow.json as arrow_json
import pyarrow.parquet as pq

from core.files import make_folder, replacing
from storage.errors import StoreError

PlainFormat = Literal["jsonl", "csv", "parquet"]
MANIFEST = ".manifest.json"  # with which the name of a file's manifest ends
OF_RUNS = "_runs"  # the folder with the exports of several runs, beside the runs' own folders
PLAIN_FORMATS: tuple[PlainFormat, ...] = get_args(PlainFormat)

# Text that a spreadsheet may take for a formula. The signs may be full-width ones, and white space may precede them.
_FORMULA = re.compile(r"[\t\r\n]|[\s\x00-\x1f\ufeff]*(?:[=@\uff1d\uff20]|[-+\uff0b\uff0d](?![\d.]+$))")

Row = dict[str, Any]  # values of JSON
Page = TypeVar("Page")
Write = Callable[[Path], dict[str, Any]]


class NotFinal(StoreError):
    """The requested rows may still change."""


@dataclass(frozen=True, slots=True)
class Export:
    """A written file, and what its manifest says."""

    path: Path
    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Planned:
    """An export before it is written: the path of its file; and `write`, which writes the file from its beginning to
    its end to the path that it is given, and returns the manifest. Its folder keeps `most` files, None: all."""

    path: Path
    write: Write
    most: int | None = None

    def find(self) -> Export | None:
        """The file, if it is written already."""
        manifest_path = manifest_path_of(self.path)
        if not (self.path.exists() and manifest_path.exists()):  # a clean-up may have left only one of them
            return None
        return Export(self.path, json.loads(manifest_path.read_text()))


def written_once(planned: Planned) -> Export:
    """The file and its manifest, which are written if either is missing."""
    if (written := planned.find()) is not None:
        return written
    make_folder(planned.path.parent)
    with replacing(planned.path) as temporary:
        manifest = planned.write(temporary)
    with replacing(manifest_path_of(planned.path)) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1))
    if planned.most is not None:
        remove_old(planned.path.parent, planned.most)
    return Export(planned.path, manifest)


def until(is_ending: Callable[[], bool], pages: Iterable[Page]) -> Iterator[Page]:
    """The pages, unless the process ends before the last one: then the file is given up with a `StoreError`."""
    for page in pages:
        if is_ending():
            raise StoreError("the export was given up, since the server ends; ask again")
        yield page


def remove_old(folder: Path, most: int) -> None:
    """Remove the files of a folder that were written first, until there are at most this many. They are written again
    when they are requested."""
    written: dict[Path, int] = {}
    for path in folder.iterdir():
        if path.suffix != ".part" and manifest_path_of(path).exists():
            with suppress(FileNotFoundError):  # another request has just removed it
                written[path] = path.stat().st_mtime_ns
    for path in sorted(written, key=written.__getitem__)[: max(0, len(written) - most)]:
        path.unlink(missing_ok=True)
        manifest_path_of(path).unlink(missing_ok=True)


def manifest_path_of(path: Path) -> Path:
    return path.with_name(f"{path.name}{MANIFEST}")


def size_of(path: Path) -> dict[str, Any]:
    """A file's size and sha256, for its manifest."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": digest(file)}


def version_of(*parts: Any) -> str:
    """A text for the name of a file that differs if any part does."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def digest(file: Any) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def without_nul(value: Any) -> Any:
    """Replace NUL by U+FFFD in all texts of a value of JSON. This is done in every format, because a CSV file cannot
    hold NUL."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, list):
        return [without_nul(item) for item in value]
    return {name: without_nul(item) for name, item in value.items()} if isinstance(value, dict) else value


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value)
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def write_rows(file: Any, kind: PlainFormat, schema: pa.Schema, pages: Iterable[list[Row]]) -> None:
    """Write pages of rows with the columns of `schema`, in this format.

    In JSONL, 64-bit integers, such as seeds, are texts as in the REST API, since many readers of JSON would round them.
    In CSV, a text that a spreadsheet would take for a formula gets an apostrophe before it. In Parquet, an object whose
    column has texts becomes its JSON.
    """
    if kind == "jsonl":
        large = [field.name for field in schema if pa.types.is_int64(field.type)]
        for row in chain.from_iterable(pages):
            values = {name: row[name] for name in schema.names} | {name: str(row[name]) for name in large}
            file.write(json.dumps(values, ensure_ascii=False).encode() + b"\n")
    elif kind == "csv":
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(schema.names)
        for page in pages:
            writer.writerows([_cell(row[name]) for name in schema.names] for row in page)
        text.flush()
        text.detach()
    else:  # by way of JSON: to convert Python values, Arrow would import pandas, which takes 60 MB of memory
        parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        objects = [field.name for field in schema if pa.types.is_string(field.type)]
        with pq.ParquetWriter(file, schema, compression="zstd") as parquet:
            for page in pages:
                rows = (
                    {**row, **{name: json.dumps(row[name]) for name in objects if isinstance(row[name], dict)}}
                    for row in page
                )
                lines = "\n".join(map(json.dumps, rows)).encode()
                read = arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
                table = arrow_json.read_json(io.BytesIO(lines), read, parse)
                parquet.write_table(table.select(schema.names).cast(schema))
