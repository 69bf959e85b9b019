"""Reads the rows of a file of questions: JSONL, Parquet or CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from core.errors import CoevoError
from core.unicode import from_json
from orchestrator.question_sets.parquet import parquet_rows

MOST_ROWS = 2_000_000  # all are in memory while a run uses them
_SHOWN = 500  # characters of what a message shows of a file
SUFFIXES = (".jsonl", ".parquet", ".csv")


def read_rows(path: Path, what: str, error: type[CoevoError]) -> Iterator[tuple[str, Any]]:
    """Each row of the file with its position, which is a text for messages: "`what` `path`, line 3".

    A file with another suffix is read as JSONL. Raises `error`, a class, for a file that cannot be read, or after
    `MOST_ROWS` rows.
    """
    for number, (position, row) in enumerate(_rows(path, what, error), 1):
        if number > MOST_ROWS:
            raise error(f"{what} {path}: expected at most {MOST_ROWS:,} rows, got more; keep those that you need")
        yield position, row


def _rows(path: Path, what: str, error: type[CoevoError]) -> Iterator[tuple[str, Any]]:
    try:
        if path.suffix in (".parquet", ".csv"):
            for number, row in enumerate(parquet_rows(path) if path.suffix == ".parquet" else _csv(path), 1):
                yield f"{what} {path}, row {number}", row
            return
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{what} {path}, line {number}", from_json(line)
    except json.JSONDecodeError as failure:
        raise error(f"{what} {path}, line {number}: not JSON: {shortened(failure)}") from failure
    except OSError as failure:
        raise error(f"{what} {path}: cannot be read: {failure.strerror or failure}") from failure
    except (UnicodeDecodeError, pa.ArrowException) as failure:
        raise error(f"{what} {path}: cannot be read as {path.suffix or 'JSONL'}: {shortened(failure)}") from failure


def columns_in(row: Mapping[str, Any]) -> str:
    """The names of a row's columns, for a message."""
    return shortened(", ".join(map(repr, row)))


def shortened(text: object) -> str:
    """A text for a message: a file may have names and values of any length."""
    whole = str(text)
    return whole if len(whole) <= _SHOWN else f"{whole[:_SHOWN]}…"


def _csv(path: Path) -> Iterator[dict[str, Any]]:
    """The rows with the text of every field: a number that pyarrow reads as a float may lose digits."""
    with pa.csv.open_csv(path, parse_options=_CSV) as file:
        texts = pa.csv.ConvertOptions(column_types=dict.fromkeys(file.schema.names, pa.string()))
    yield from pa.csv.read_csv(path, parse_options=_CSV, convert_options=texts).to_pylist()


_CSV = pa.csv.ParseOptions(newlines_in_values=True)
