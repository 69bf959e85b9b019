"""Exports an iteration's questions with their labels: JSONL, CSV, Parquet, or a zipped folder for Hugging Face.

A file contains the oracles' verdicts, so a later audit makes another file. The manifest beside the file says which rows
it has, which checkpoints made them, under which configuration, and what the file's sha256 is. The zip for Hugging Face
also has a manifest inside.
"""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from core.types import Verdict
from storage import queries
from storage.export_files import (
    Export,
    NotFinal,
    Row,
    digest,
    size_of,
    version_of,
    without_nul,
    write_rows,
    written_once,
)
from storage.rows import QuestionSummary
from storage.session import Store

Format = Literal["jsonl", "csv", "parquet", "huggingface"]
FORMATS: tuple[Format, ...] = get_args(Format)
Only = Literal["all", "kept"]

_EDITION = 2  # raise it when the same rows are to give other bytes; files of an earlier edition are not served again
_PAGE = 1_000  # rows in memory at a time
SUFFIXES: dict[Format, str] = {"jsonl": "jsonl", "csv": "csv", "parquet": "parquet", "huggingface": "zip"}
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("run", pa.string(), nullable=False),
        pa.field("iteration", pa.int32(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
        pa.field("question", pa.string()),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("answer", pa.string()),  # the pseudo-label
        pa.field("votes", pa.int32()),
        pa.field("m", pa.int32()),
        pa.field("parsed", pa.int32()),
        pa.field("unknown", pa.int32()),
        pa.field("p_hat", pa.float64()),
        pa.field("denominator", pa.string()),
        pa.field("challenger", pa.string()),  # the checkpoint that wrote the question
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("oracles", pa.string(), nullable=False),  # JSON: oracle -> [verdict, truth]
    ]
)
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # fixed, so that the bytes are the same at any time; the earliest that a zip can hold
_ZIP_DATA = "data/train.parquet"  # path of the rows inside the zip


def export(store: Store, root: Path, run: str, iteration: int, only: Only, kind: Format) -> Export:
    """Return the export's file. Write it below `root`, unless the file and its manifest exist already.

    Raises `NotThere` when there is no such run, and `NotFinal` while some questions are not labelled yet.
    """
    with store.read() as session:
        config = queries.runs.get_run(session, run).config
        if not queries.questions.all_labelled(session, run, iteration):
            raise NotFinal(f"run {run}, iteration {iteration}: its questions are not all labelled yet")
        audit_counts = queries.browse.audit_counts(session, run, iteration)
    name = f"{run}-{iteration}-{only}-{version_of(_EDITION, audit_counts)}.{SUFFIXES[kind]}"

    def write(path: Path) -> dict[str, Any]:
        metadata = {"run": run, "iteration": iteration, "only": only, "format": kind, "columns": _SCHEMA.names}
        metadata |= {**_source_checkpoints(store, run, iteration), "config": config}
        return _write(path, _rows(store, run, iteration, only), metadata)

    return written_once(root / run / str(iteration) / name, write)


def _write(path: Path, rows: Iterator[list[Row]], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Write the rows in the format that `metadata` names, and return the manifest."""
    pages, kind = _CountedPages(rows), metadata["format"]
    with path.open("w+b") as file:
        if kind == "huggingface":
            _huggingface(file, pages, metadata)
        else:
            write_rows(file, kind, _SCHEMA, pages)
    return {**metadata, **pages.counts(), **size_of(path)}


class _CountedPages:
    """The pages of rows. It counts verdicts and oracles while the pages are read."""

    def __init__(self, rows: Iterator[list[Row]]) -> None:
        self._rows, self._verdicts, self._oracles = rows, Counter[str](), Counter[str]()

    def __iter__(self) -> Iterator[list[Row]]:
        for page in self._rows:
            self._verdicts.update(row["verdict"] for row in page)
            self._oracles.update(oracle for row in page for oracle in row["oracles"])
            yield page

    def counts(self) -> dict[str, Any]:
        return {"rows": self._verdicts.total(), "verdicts": dict(self._verdicts), "audited": dict(self._oracles)}


def _rows(store: Store, run: str, iteration: int, only: Only) -> Iterator[list[Row]]:
    verdicts: tuple[Verdict, ...] = ("kept",) if only == "kept" else ()
    filters, after = queries.browse.QuestionFilter(verdicts=verdicts), tuple[float, ...]()
    while True:
        with store.read() as session:  # a session per page: on SQLite, writers wait for a long one
            page = queries.browse.list_questions(session, run, iteration, filters, after=after, limit=_PAGE)
        if not page:
            return
        yield [_row(question) for question in page]
        after = queries.browse.sort_key_of(page[-1], "index")


def _row(question: QuestionSummary) -> Row:
    row = {
        "id": question.id,
        "run": question.run,
        "iteration": question.iteration,
        "index": question.index,
        "question": question.text,
        **{name: getattr(question, name) for name in _SCHEMA.names[5:13]},
        "challenger": question.checkpoint,
        "seed": question.seed,
        "oracles": {label.oracle: [label.verdict, label.truth] for label in question.oracles},
    }
    return {name: without_nul(value) for name, value in row.items()}


def _huggingface(file: Any, pages: _CountedPages, metadata: Mapping[str, Any]) -> None:
    """Write a zip of the folder that `datasets.load_dataset` takes: one Parquet file, its manifest, and a card."""
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open(zipfile.ZipInfo(_ZIP_DATA, _ZIP_TIME), "w", force_zip64=True) as inside:
            write_rows(inside, "parquet", _SCHEMA, pages)
        with archive.open(_ZIP_DATA) as written:
            manifest = {**metadata, **pages.counts(), "files": {_ZIP_DATA: digest(written)}}
        # `iterations` is left out: a run that continues for longer has the same rows, which must give the same bytes.
        manifest["config"] = {name: value for name, value in metadata["config"].items() if name != "iterations"}
        archive.writestr(zipfile.ZipInfo("manifest.json", _ZIP_TIME), json.dumps(manifest, indent=1, sort_keys=True))
        archive.writestr(zipfile.ZipInfo("README.md", _ZIP_TIME), _card(manifest))


def _card(manifest: Mapping[str, Any]) -> str:
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(manifest["verdicts"].items()))
    rows = f"{manifest['rows']}, of {'all questions' if manifest['only'] == 'all' else 'the kept questions'}"
    return f"""---
configs:
- config_name: default
  data_files: {_ZIP_DATA}
---
# {manifest["run"]}, iteration {manifest["iteration"]}

Questions that a model posed and labels that models voted for: nobody checked them but the oracles in `oracles`, a JSON
object of oracle to [verdict, true answer]. `p_hat` is `votes` by `m`, or by `parsed`, as `denominator` says.

- rows: {rows} ({verdicts or "none"})
- written by: {_named(manifest["asked_by"], "nobody here: the prompts were given")}
- voted on by: {_named(manifest["voted_by"], "nobody")}
- `{_ZIP_DATA}`: sha256 {manifest["files"][_ZIP_DATA]}

`manifest.json` has this for programs, and the run's configuration.
"""


def _named(checkpoints: Mapping[str, str], none: str) -> str:
    return "; ".join(f"`{name}` (sha256 {sha256})" for name, sha256 in checkpoints.items()) or none


def _source_checkpoints(store: Store, run: str, iteration: int) -> dict[str, Any]:
    """The checkpoints that wrote the questions, and those that voted on them: checkpoint -> sha256."""
    with store.read() as session:
        wrote, voted = queries.questions.source_checkpoints(session, run, iteration)
        digests = {
            checkpoint: queries.checkpoints.get_checkpoint(session, checkpoint).sha256
            for checkpoint in {*wrote, *voted}
        }
    return {
        "asked_by": {checkpoint: digests[checkpoint] for checkpoint in wrote},
        "voted_by": {checkpoint: digests[checkpoint] for checkpoint in voted},
    }
