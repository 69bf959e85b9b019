"""Exports the metrics of a run: JSONL, CSV or Parquet, one row for each value, with a manifest beside the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from services.views.metrics import metrics_of
from storage import queries
from storage.exports.files import Export, PlainFormat, Planned, size_of, version_of, write_rows, written_once
from storage.exports.runs import MOST_FILES
from storage.session import Store

_EDITION = 1  # raise it when the same rows are to give other bytes
_ROWS = 10_000  # in memory as text at a time
_SCHEMA = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),  # training, series or evaluation
        pa.field("name", pa.string(), nullable=False),
        pa.field("role", pa.string()),
        pa.field("iteration", pa.int32(), nullable=False),
        pa.field("step", pa.int32()),  # of the iteration's training
        pa.field("x", pa.int32(), nullable=False),  # the step over all iterations, or the iteration
        pa.field("value", pa.float64()),
        pa.field("lower", pa.float64()),
        pa.field("upper", pa.float64()),
        pa.field("n", pa.int32()),
    ]
)


def export_metrics(store: Store, root: Path, run: str, kind: PlainFormat) -> Export:
    """Return the file with what a run has of metrics now. Write it below `root`, unless the file and its manifest
    exist. Raises `NotThere`."""
    with store.read() as session:
        stored, inherited = queries.runs.get_run(session, run), queries.forks.by_maker(session, run)
    metrics = [*metrics_of(store, run)]
    version = version_of(_EDITION, stored.created_at.timestamp(), metrics)

    def write(path: Path) -> dict[str, Any]:
        pages = (metrics[start : start + _ROWS] for start in range(0, len(metrics), _ROWS))
        with path.open("wb") as file:
            write_rows(file, kind, _SCHEMA, ([{"run": run, **metric._asdict()} for metric in page] for page in pages))
        counts = {of: sum(metric.kind == of for metric in metrics) for of in ("training", "series", "evaluation")}
        named = {"run": run, "what": "metrics", "format": kind, "config": stored.config}
        if inherited:  # the rows of these iterations are those of other runs
            named["inherited"] = inherited
        return {**named, "rows": len(metrics), "kinds": counts, "columns": _SCHEMA.names, **size_of(path)}

    return written_once(Planned(root / run / f"{run}-metrics-{version}.{kind}", write, MOST_FILES))
