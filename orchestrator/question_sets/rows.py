"""Reads the rows of a file of questions, or of a folder that `datasets` has saved: JSON lines, JSON, Parquet, CSV or
Arrow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from core.errors import CoevoError
from core.texts.unicode import from_json
from orchestrator.question_sets.parquet import parquet_batches

MOST_ROWS = 2_000_000  # all are in memory while a run uses them
_ROWS_AT_ONCE = 256
_LONGEST_LINE = 2**24  # characters; a compressed file of a few bytes can have a line of any length
_LONGEST_JSON = 2**30
_SHOWN = 500  # characters of what a message shows of a file
SUFFIXES = (".jsonl", ".parquet", ".csv")  # of the files of named benchmarks
_TEXTS = (".jsonl", ".ndjson", ".json", ".csv")
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}  # a text only; the other formats compress by themselves


def is_path(name: str) -> bool:
    """Whether a benchmark's or a prompt set's name is the path of a file or of a folder with questions."""
    return _ending(Path(name)) is not None or ("/" in name and Path(name).is_dir())


def read_rows(path: Path, what: str, error: type[CoevoError]) -> Iterator[tuple[str, Any]]:
    """Each row of the file, or of the files of a folder, with its position, which is a text for messages: "`what`
    `path`, line 3".

    Raises `error`, a class, for a file that cannot be read, or after `MOST_ROWS` rows.
    """
    number = 0
    for file in _files(path, what, error):
        for position, row in _rows(file, what, error):
            number += 1
            if number > MOST_ROWS:
                raise error(f"{what} {path}: expected at most {MOST_ROWS:,} rows, got more; keep those that you need")
            yield position, row


def shortened(text: object) -> str:
    """A text for a message: a file may have names and values of any length."""
    whole = str(text)
    return whole if len(whole) <= _SHOWN else f"{whole[:_SHOWN]}…"


def _ending(path: Path) -> tuple[str, str | None] | None:
    """The ending of a file's name in small letters, and how it is compressed; None if such files cannot be read."""
    suffix, compression = path.suffix.lower(), None
    if suffix in _COMPRESSED:
        suffix, compression = Path(path.stem).suffix.lower(), _COMPRESSED[suffix]
    return (suffix, compression) if suffix in (_ENDINGS if compression is None else _TEXTS) else None


def _files(path: Path, what: str, error: type[CoevoError]) -> list[Path]:
    """The file itself, or the shards of a folder in their order."""
    if not path.is_dir():
        return [path]
    for ending in (".arrow", ".parquet"):
        if files := sorted(file for file in path.iterdir() if _ending(file) == (ending, None)):
            return files
    inside = ", ".join(sorted(entry.name for entry in path.iterdir())) or "nothing"
    expected = "expected a folder of Arrow or Parquet files, such as one split of a saved dataset"
    raise error(f"{what} {path}: {expected}, got {shortened(inside)}")


def _rows(path: Path, what: str, error: type[CoevoError]) -> Iterator[tuple[str, Any]]:
    if (kind := _ending(path)) is None:
        endings = f"{', '.join(_ENDINGS)}, or one of {', '.join(_TEXTS)} with {', '.join(_COMPRESSED)}"
        raise error(f"{what} {path}: cannot be read: expected a name that ends in {endings}")
    ending, compression = kind
    unit = "line" if ending in (".jsonl", ".ndjson") else "row"
    number = 1
    try:
        path.open("rb").close()  # says in few words why a file cannot be opened
        for number, row in _READERS[ending](path, compression):
            yield f"{what} {path}, {unit} {number}", from_json(row) if isinstance(row, str) else row
    except json.JSONDecodeError as failure:
        raise error(f"{what} {path}, {unit} {number}: not JSON: {shortened(failure)}") from failure
    except OSError as failure:
        raise error(f"{what} {path}: cannot be read: {failure.strerror or shortened(failure)}") from failure
    except (UnicodeDecodeError, pa.ArrowException) as failure:
        raise error(f"{what} {path}: cannot be read as {ending}: {shortened(failure)}") from failure


def _text(path: Path, compression: str | None) -> TextIOWrapper:
    """The text of a file; a byte order mark at its beginning is no part of it."""
    return TextIOWrapper(pa.input_stream(str(path), compression=compression), encoding="utf-8-sig")


def _json_lines(path: Path, compression: str | None) -> Iterator[tuple[int, Any]]:
    """The numbers and the texts of the lines that are not blank."""
    with _text(path, compression) as text:
        for number, line in enumerate(iter(lambda: text.readline(_LONGEST_LINE), ""), 1):
            if len(line) == _LONGEST_LINE:
                raise OSError(f"line {number} has {_LONGEST_LINE:,} characters or more")
            if line.strip():
                yield number, line


def _json(path: Path, compression: str | None) -> Iterator[tuple[int, Any]]:
    """The rows of a list. A file that is no list has JSON lines, which many files of the hub are called `.json` for."""
    with _text(path, compression) as text:
        is_list = text.read(1_000).lstrip().startswith("[")
    if not is_list:
        yield from _json_lines(path, compression)
        return
    with _text(path, compression) as text:
        whole = text.read(_LONGEST_JSON)
    if len(whole) == _LONGEST_JSON:
        raise OSError(f"it has {_LONGEST_JSON:,} characters or more; JSON lines are read a line at a time")
    yield from enumerate(from_json(whole), 1)


def _arrow(path: Path, _compression: str | None) -> Iterator[tuple[int, Any]]:
    """The rows of a stream, as `datasets` saves it, or of a file, as Feather is."""
    with pa.memory_map(str(path)) as source:
        if source.read(6) == b"ARROW1":
            file = pa.ipc.open_file(source)
            batches: Iterable[pa.RecordBatch] = (file.get_batch(index) for index in range(file.num_record_batches))
        else:
            source.seek(0)
            batches = pa.ipc.open_stream(source)
        yield from _numbered(
            batch.slice(begin, _ROWS_AT_ONCE) for batch in batches for begin in range(0, len(batch), _ROWS_AT_ONCE)
        )


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
    rows = 0
    for batch in batches:
        _refuse_twice(batch.schema.names)
        short = {field.name: field.type for field in batch.schema if "float" in str(field.type)}  # 64 bits are a double
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            rows += 1
            yield rows, row | {name: _shortest(row[name], kind) for name, kind in short.items()}


def _refuse_twice(names: Sequence[str]) -> None:
    """Of two columns with one name, a row would have the last one only. Empty columns at the end have no names."""
    if twice := [name for name, count in Counter(names).items() if count > 1 and name]:
        raise pa.ArrowInvalid(f"expected each column once, got {twice[0]!r} twice")


def _shortest(value: Any, kind: pa.DataType) -> Any:
    """A value whose floats of 32 or 16 bits have no more digits than they need: else 0.1 is 0.10000000149011612."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _shortest(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {key: _shortest(part, kind.item_type) for key, part in value.items()}
    if isinstance(value, list):
        return [_shortest(part, kind.value_type) for part in value]
    if pa.types.is_dictionary(kind):
        return _shortest(value, kind.value_type)
    is_short = pa.types.is_floating(kind) and kind.bit_width < 64
    return float(str(kind.to_pandas_dtype()(value))) if is_short else value


def _csv(path: Path, compression: str | None) -> Iterator[tuple[int, Any]]:
    """The rows with the text of every field: a number that pyarrow reads as a float may lose digits."""
    with pa.input_stream(str(path), compression=compression) as stream:
        names = pa.csv.open_csv(stream, parse_options=_CSV).schema.names
    _refuse_twice(names)
    texts = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    with pa.input_stream(str(path), compression=compression) as stream:
        table = pa.csv.read_csv(stream, parse_options=_CSV, convert_options=texts)
    yield from enumerate(table.to_pylist(), 1)


_CSV = pa.csv.ParseOptions(newlines_in_values=True)
_READERS: dict[str, Callable[[Path, str | None], Iterator[tuple[int, Any]]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": _csv,
    ".parquet": lambda path, _compression: _numbered(parquet_batches(path)),
    ".arrow": _arrow,
}
_ENDINGS = tuple(_READERS)
