"""Reads the rows of a Parquet file, whose few bytes may stand for very many: a file says a long text once for a million
rows, and compresses a page of equal bytes to almost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_ROWS_AT_ONCE = 256
_BYTES_AT_ONCE = 1 << 24
_LONGEST_TEXT = 1 << 20  # bytes
_MOST_VALUES = 10_000  # of a list in one row, on average
# A part of a column may be so many times as large as in the file, or so many bytes.
_EXPANSION, _SMALL = 200, 1 << 26


def parquet_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows, a few at a time. Raises `pa.ArrowInvalid` before a text or a page is decoded that is too large for a
    question, and other `pa.ArrowException`s for a file that is none."""
    with pq.ParquetFile(path) as file:
        _refuse_expanding(file.metadata)
        texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
    # In a dictionary, a text that is in all rows is in memory once. Arrow cannot do this within lists and structures,
    # of which only the number of values is limited.
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            row_bytes = 0
            for column in batch.columns:
                values = column.dictionary if isinstance(column, pa.DictionaryArray) else column
                longest = int(pc.max(pc.binary_length(values)).as_py() or 0) if _is_text(values.type) else 0
                if longest > _LONGEST_TEXT:
                    raise pa.ArrowInvalid(f"expected texts of at most {_LONGEST_TEXT:,} bytes, got {longest:,}")
                row_bytes += longest
            rows = max(1, _BYTES_AT_ONCE // max(1, row_bytes))
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _refuse_expanding(metadata: pq.FileMetaData) -> None:
    for position in range(metadata.num_row_groups):
        group = metadata.row_group(position)
        for number in range(group.num_columns):
            column = group.column(number)
            size, stored = column.total_uncompressed_size, column.total_compressed_size
            if size > max(_SMALL, _EXPANSION * stored):
                raise pa.ArrowInvalid(
                    f"{column.path_in_schema}: expected a column that can be held, got {size:,} bytes"
                )
            if column.num_values > _MOST_VALUES * group.num_rows:
                raise pa.ArrowInvalid(f"{column.path_in_schema}: expected at most {_MOST_VALUES:,} values in a row")
