"""The texts of rollouts: one compressed Parquet file a (run, iteration, stage), ROOT/RUN/ITERATION/STAGE.parquet.

While a stage goes on, each batch is a part file of its own, written BEFORE the batch's SQL rows are committed: every
vote in SQL has its text, and a text without a vote, which a crash between the two leaves, is rewritten with its batch.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from core.types import Rollout
from storage.columns import from_stored, to_stored
from storage.errors import StoreError
from storage.files import make_folder, put, sync

_SCHEMA = pa.schema(
    [
        pa.field("question_id", pa.string(), nullable=False),
        pa.field("sample_index", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)
_ROW_GROUP = 8_192  # rows: what a reader holds in memory at a time


class RolloutText(NamedTuple):
    question_id: str
    sample_index: int
    text: str


def texts_path(root: Path, run: str, iteration: int, stage: str) -> Path:
    return root / run / str(iteration) / f"{stage}.parquet"


class TextWriter:
    """The texts of one stage, batch by batch. The caller chooses which: none, those of kept questions, or all."""

    def __init__(self, root: Path, run: str, iteration: int, stage: str) -> None:
        self.path = texts_path(root, run, iteration, stage)
        self._parts = self.path.with_suffix(".parts")

    def add(self, batch_index: int, rollouts: Iterable[Rollout]) -> None:
        """Write a batch, in place of what an earlier attempt wrote for it. `batch_index` (from 0) numbers the batches
        of the stage, and is the same when it is resumed. After `finish` the texts are complete: this does nothing."""
        if self.path.exists():
            return
        make_folder(self._parts)
        temporary = self._parts / f"{batch_index:08d}.tmp"
        with _writer(temporary) as writer:
            writer.write_table(_table(rollouts))
        put(temporary, temporary.with_suffix(".parquet"))

    def finish(self) -> Path:
        """Merge the parts, in order of their batches, into the one file, and remove them. Again is the same as once."""
        if not self.path.exists():
            make_folder(self.path.parent)
            temporary = self.path.with_suffix(".tmp")
            with _writer(temporary) as writer:
                for table in _regrouped(sorted(self._parts.glob("*.parquet"))):
                    writer.write_table(table, row_group_size=_ROW_GROUP)
            put(temporary, self.path)
        if self._parts.exists():
            shutil.rmtree(self._parts)
            sync(self.path.parent)
        return self.path


def read_texts(
    root: Path, run: str, iteration: int, stage: str, question_ids: Sequence[str] | None = None
) -> list[RolloutText]:
    """The texts of a finished stage in the order they were written; those of some questions when they are given.

    Raises `StoreError` when there is no such file, or it is damaged.
    """
    path = texts_path(root, run, iteration, stage)
    chosen = None if question_ids is None else pc.field("question_id").isin(pa.array(question_ids, pa.string()))
    try:
        table = pq.read_table(path, schema=_SCHEMA, filters=chosen)
    except FileNotFoundError as error:
        raise StoreError(f"texts {path}: no such file: the stage is not finished, or it keeps no texts") from error
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"texts {path}: cannot be read: {error}") from error
    rows = zip(*(table[name].to_pylist() for name in _SCHEMA.names), strict=True)
    return [RolloutText(question_id, sample_index, from_stored(text)) for question_id, sample_index, text in rows]


def _table(rollouts: Iterable[Rollout]) -> Any:
    rows = [(rollout.question_id, rollout.sample_index, to_stored(rollout.text)) for rollout in rollouts]
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def _regrouped(parts: Iterable[Path]) -> Iterator[Any]:
    """The rows of `parts` in tables of `_ROW_GROUP` rows: the bytes depend on the rows and not on the batches."""
    waiting = _SCHEMA.empty_table()
    for part in parts:
        waiting = pa.concat_tables([waiting, pq.read_table(part, schema=_SCHEMA)])
        while waiting.num_rows >= _ROW_GROUP:
            yield waiting.slice(0, _ROW_GROUP).combine_chunks()
            waiting = waiting.slice(_ROW_GROUP)
    if waiting.num_rows:
        yield waiting.combine_chunks()


def _writer(path: Path) -> Any:
    # Ids repeat and texts do not: only the former gain from a dictionary.
    return pq.ParquetWriter(path, _SCHEMA, compression="zstd", use_dictionary=["question_id"])
