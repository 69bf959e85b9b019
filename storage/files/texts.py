"""The texts of rollouts, in compressed Parquet files: ROOT/RUN/ITERATION/STAGE.parquet for each stage that samples, and
ROOT/_evaluations/ID.parquet for each evaluation whose texts are kept.

While a stage runs, each batch is a part file, which is written BEFORE the batch's SQL rows are committed. So every vote
in SQL has its text, if its text is kept at all. A crash between the two leaves texts without votes; they are rewritten
with their batch.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from core.files import make_folder, replacing, sync
from core.types import Role, Rollout, Stage
from storage.errors import StoreError
from storage.models.columns import from_stored, to_stored

_SCHEMA = pa.schema(
    [
        pa.field("question_id", pa.string(), nullable=False),
        pa.field("sample_index", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)
_ROW_GROUP = 8_192  # rows that a reader holds in memory at a time


class RolloutText(NamedTuple):
    question_id: str
    sample_index: int
    text: str


def texts_path(root: Path, run: str, iteration: int, stage: Stage) -> Path:
    return root / run / str(iteration) / f"{stage}.parquet"


def training_texts_paths(root: Path | None, run: str, iteration: int, role: Role) -> list[Path]:
    """The files with the texts of a role's trainings in an iteration; no two of them have the same step."""
    stages: tuple[Stage, ...] = ("train_challenger",) if role == "challenger" else ("train_solver", "train_labelled")
    return [] if root is None else [texts_path(root, run, iteration, stage) for stage in stages]


def evaluation_path(root: Path, evaluation: str) -> Path:
    """The file of an evaluation's texts. No run's name begins with an underscore."""
    return root / "_evaluations" / f"{evaluation}.parquet"


class TextWriter:
    """Writes the texts of one stage by batches. The caller chooses them: none, those of kept questions, or all.

    The key of a training's text is not that of a question but that of its prompt (`TrainingRollout.prompt_key`).
    """

    def __init__(self, path: Path, before_writing: Callable[[], None] = lambda: None) -> None:
        """`before_writing` is called before any file is written or removed; it raises if this process must not."""
        self.path = path
        self._before_writing = before_writing
        self._parts = path.with_suffix(".parts")

    def add(self, batch_index: int, rollouts: Iterable[Rollout | RolloutText]) -> None:
        """Write a batch, and replace what an earlier attempt wrote for it.

        `batch_index` numbers the stage's batches from 0. A resumed stage must number them in the same way. After
        `finish` the texts are complete, and this does nothing.
        """
        self._before_writing()
        if self.path.exists():
            return
        make_folder(self._parts)
        with replacing(self._parts / f"{batch_index:08d}.parquet") as temporary, _writer(temporary) as writer:
            rows = [(rollout.question_id, rollout.sample_index, to_stored(rollout.text)) for rollout in rollouts]
            columns = zip(*rows, strict=True) if rows else ([], [], [])
            arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
            writer.write_table(pa.table(arrays, schema=_SCHEMA))

    def finish(self) -> Path:
        """Merge the parts into one file, in order of their batches, and remove them. A second call changes nothing."""
        self._before_writing()
        if not self.path.exists():
            make_folder(self.path.parent)
            with replacing(self.path) as temporary, _writer(temporary) as writer:
                # The row groups have `_ROW_GROUP` rows each, so that the bytes do not depend on the batches.
                pending = _SCHEMA.empty_table()
                for part in sorted(self._parts.glob("*.parquet")):
                    pending = pa.concat_tables([pending, pq.read_table(part, schema=_SCHEMA)])
                    while pending.num_rows >= _ROW_GROUP:
                        table = pending.slice(0, _ROW_GROUP).combine_chunks()
                        writer.write_table(table, row_group_size=_ROW_GROUP)
                        pending = pending.slice(_ROW_GROUP)
                if pending.num_rows:
                    writer.write_table(pending.combine_chunks(), row_group_size=_ROW_GROUP)
        self._before_writing()  # this process may have been suspended while it merged, and another one merges now
        for half_written in self.path.parent.glob(f"{self.path.name}.*.part"):
            half_written.unlink()
        if self._parts.exists():
            shutil.rmtree(self._parts)
            sync(self.path.parent)
        return self.path


def read_texts(path: Path, question_ids: Sequence[str] | None = None) -> list[RolloutText]:
    """The texts of `iterate_texts` as a list. Raises `StoreError`."""
    return [*iterate_texts(path, question_ids)]


def iterate_texts(path: Path, question_ids: Sequence[str] | None = None) -> Iterator[RolloutText]:
    """The texts of a finished stage in the order in which they were written, or only those of `question_ids`.

    Raises `StoreError` when there is no such file, or it is damaged. Row groups that cannot contain one of the
    questions are not read, and only one is in memory. Arrow's own filters are not used, because they import pandas,
    which costs the API memory, and its first request a second.
    """
    only_ids = None if question_ids is None else frozenset(question_ids)
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                ids = file.metadata.row_group(group).column(0).statistics
                is_bounded = only_ids is not None and ids is not None and ids.has_min_max
                if is_bounded and not any(ids.min <= key <= ids.max for key in only_ids or ()):
                    continue
                table = file.read_row_group(group)
                keys, samples, texts = (table[name] for name in _SCHEMA.names)
                for i, question_id in enumerate(keys.to_pylist()):
                    if only_ids is None or question_id in only_ids:
                        yield RolloutText(question_id, samples[i].as_py(), from_stored(texts[i].as_py()))
    except FileNotFoundError as error:
        raise StoreError(f"texts {path}: no such file: the stage is not finished, or it keeps no texts") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise StoreError(f"texts {path}: cannot be read: {error}") from error


def _writer(path: Path) -> Any:
    # Dictionary encoding helps for the ids, which repeat, but not for the texts.
    return pq.ParquetWriter(path, _SCHEMA, compression="zstd", use_dictionary=["question_id"])
