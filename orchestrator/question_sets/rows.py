"""Reads the rows of a file of questions: JSONL, Parquet or CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from core.errors import CoevoError
from core.unicode import from_json

SUFFIXES = (".jsonl", ".parquet", ".csv")


def read_rows(path: Path, what: str, error: type[CoevoError]) -> Iterator[tuple[str, Any]]:
    """Each row of the file with its position, which is a text for messages: "`what` `path`, line 3".

    A file with another suffix is read as JSONL. Raises `error`, a class, for a file that cannot be read.
    """
    try:
        if path.suffix in (".parquet", ".csv"):
            table = pq.read_table(path) if path.suffix == ".parquet" else pa.csv.read_csv(path, parse_options=_CSV)
            for number, row in enumerate(table.to_pylist(), 1):
                yield f"{what} {path}, row {number}", row
            return
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{what} {path}, line {number}", from_json(line)
    except json.JSONDecodeError as failure:
        raise error(f"{what} {path}, line {number}: not JSON: {failure}") from failure
    except OSError as failure:
        raise error(f"{what} {path}: cannot be read: {failure.strerror or failure}") from failure
    except (UnicodeDecodeError, pa.ArrowException) as failure:
        raise error(f"{what} {path}: cannot be read as {path.suffix or 'JSONL'}: {failure}") from failure


_CSV = pa.csv.ParseOptions(newlines_in_values=True)
