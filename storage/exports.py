"""Data sets as files: an iteration's questions with their labels, as JSONL, CSV, Parquet, or a folder for Hugging Face.

A file is written once, whole or not at all, a page of rows at a time; the same rows give the same bytes. What an oracle
said is part of it, so a later audit makes another file. Its manifest, beside it, says which rows, by which checkpoints,
under which configuration, and has the file's sha256; what is for Hugging Face has one inside too.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import uuid4

import pyarrow as pa
import pyarrow.json as arrow_json
import pyarrow.parquet as pq

from core.files import make_folder, put
from core.types import Verdict
from storage import queries
from storage.errors import StoreError
from storage.rows import QuestionSummary
from storage.session import Store

Format = Literal["jsonl", "csv", "parquet", "huggingface"]
FORMATS: tuple[Format, ...] = get_args(Format)
Only = Literal["all", "kept"]

_EDITION = 2  # raised when the same rows are to give other bytes: files of an earlier one are not served any more
_PAGE = 1_000  # rows: what is in memory at a time
_SUFFIX: dict[Format, str] = {"jsonl": "jsonl", "csv": "csv", "parquet": "parquet", "huggingface": "zip"}
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
# What a spreadsheet may take for a formula: full-width signs too, and whatever white space stands before them.
_FORMULA = re.compile(r"[\t\r\n]|[\s\x00-\x1f\ufeff]*(?:[=@\uff1d\uff20]|[-+\uff0b\uff0d](?![\d.]+$))")
_MADE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip knows: the same bytes at any time
_INSIDE = "data/train.parquet"  # the zip's

Row = dict[str, Any]


class NotFinal(StoreError):
    """The rows that were asked for may still change."""


@dataclass(frozen=True, slots=True)
class Export:
    path: Path
    manifest: dict[str, Any]


def export(store: Store, root: Path, run: str, iteration: int, only: Only, kind: Format) -> Export:
    """The file, written below `root` unless it is there with its manifest.

    Raises `NotThere`, and `NotFinal` before all is labelled.
    """
    with store.read() as session:
        config = queries.runs.get_run(session, run).config
        if not queries.questions.all_labelled(session, run, iteration):
            raise NotFinal(f"run {run}, iteration {iteration}: its questions are not all labelled yet")
        audited = queries.browse.audit_counts(session, run, iteration)
    state = hashlib.sha256(repr((_EDITION, audited)).encode()).hexdigest()[:12]
    path = root / run / str(iteration) / f"{run}-{iteration}-{only}-{state}.{_SUFFIX[kind]}"
    written = path.with_name(f"{path.name}.manifest.json")
    if not (path.exists() and written.exists()):  # whoever deletes old files may leave either
        make_folder(path.parent)
        temporary = path.with_name(f"{path.name}.{uuid4().hex}.part")  # two may make it at once: the same bytes
        try:
            about = {"run": run, "iteration": iteration, "only": only, "format": kind, "columns": _SCHEMA.names}
            about |= {**_makers(store, run, iteration), "config": config}
            manifest = _write(temporary, _rows(store, run, iteration, only), about)
            put(temporary, path)
            temporary.write_text(json.dumps(manifest, indent=1))
            put(temporary, written)
        finally:
            temporary.unlink(missing_ok=True)
    return Export(path, json.loads(written.read_text()))


def _write(path: Path, rows: Iterator[list[Row]], about: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of what was written."""
    counted = _Counted(rows)
    with path.open("w+b") as file:
        _WRITERS[about["format"]](file, counted, about)
    with path.open("rb") as file:
        return {**about, **counted.said(), "bytes": path.stat().st_size, "sha256": _digest(file)}


class _Counted:
    """Rows on their way, counted."""

    def __init__(self, rows: Iterator[list[Row]]) -> None:
        self._rows, self._verdicts, self._oracles = rows, Counter[str](), Counter[str]()

    def __iter__(self) -> Iterator[list[Row]]:
        for page in self._rows:
            self._verdicts.update(row["verdict"] for row in page)
            self._oracles.update(oracle for row in page for oracle in json.loads(row["oracles"]))
            yield page

    def said(self) -> dict[str, Any]:
        return {"rows": self._verdicts.total(), "verdicts": dict(self._verdicts), "audited": dict(self._oracles)}


def _rows(store: Store, run: str, iteration: int, only: Only) -> Iterator[list[Row]]:
    verdicts: tuple[Verdict, ...] = ("kept",) if only == "kept" else ()
    wanted, after = queries.browse.QuestionFilter(verdicts=verdicts), tuple[float, ...]()
    while True:
        with store.read() as session:  # one a page: on SQLite a long one would keep writers waiting
            page = queries.browse.list_questions(session, run, iteration, wanted, after=after, limit=_PAGE)
        if not page:
            return
        yield [_row(question) for question in page]
        after = queries.browse.sort_key_of(page[-1], "index")


def _row(question: QuestionSummary) -> Row:
    oracles = {label.oracle: [label.verdict, label.truth and _without_nul(label.truth)] for label in question.oracles}
    return {
        "id": question.id,
        "run": question.run,
        "iteration": question.iteration,
        "index": question.index,
        "question": question.text and _without_nul(question.text),
        **{name: getattr(question, name) for name in _SCHEMA.names[5:13]},
        "answer": question.answer and _without_nul(question.answer),
        "challenger": question.checkpoint,
        "seed": question.seed,
        "oracles": json.dumps(oracles),
    }


def _without_nul(text: str) -> str:
    """What a model wrote as every format's readers take it: a CSV file cannot hold NUL."""
    return text.replace("\0", "\ufffd")


def _jsonl(file: Any, pages: _Counted, _about: Mapping[str, Any]) -> None:
    for page in pages:
        for row in page:
            file.write(json.dumps({**row, "oracles": json.loads(row["oracles"])}, ensure_ascii=False).encode() + b"\n")


def _csv(file: Any, pages: _Counted, _about: Mapping[str, Any]) -> None:
    """With an apostrophe before a text that a spreadsheet would take for a formula."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text)
    writer.writerow(_SCHEMA.names)
    for page in pages:
        writer.writerows([_cell(row[name]) for name in _SCHEMA.names] for row in page)
    text.flush()
    text.detach()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _parquet(file: Any, pages: _Counted, _about: Mapping[str, Any]) -> None:
    with pq.ParquetWriter(file, _SCHEMA, compression="zstd") as writer:
        for page in pages:
            writer.write_table(_table(page))


def _table(page: list[Row]) -> pa.Table:
    """By way of JSON: of Python's own values Arrow makes a table only after it has imported pandas, 60 MB of memory."""
    lines = "\n".join(json.dumps(row) for row in page).encode()
    read = arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    parse = arrow_json.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="error")
    return arrow_json.read_json(io.BytesIO(lines), read, parse).select(_SCHEMA.names).cast(_SCHEMA)


def _huggingface(file: Any, pages: _Counted, about: Mapping[str, Any]) -> None:
    """A zip of the folder that `datasets.load_dataset` takes: one Parquet file, its manifest, and a card."""
    with zipfile.ZipFile(file, "w") as archive:
        with archive.open(zipfile.ZipInfo(_INSIDE, _MADE), "w", force_zip64=True) as inside:
            _parquet(inside, pages, about)
        with archive.open(_INSIDE) as written:
            facts = {**about, **pages.said(), "files": {_INSIDE: _digest(written)}}
        # A run that goes on for longer has the same rows, which are to give the same bytes.
        facts["config"] = {name: value for name, value in about["config"].items() if name != "iterations"}
        archive.writestr(zipfile.ZipInfo("manifest.json", _MADE), json.dumps(facts, indent=1, sort_keys=True))
        archive.writestr(zipfile.ZipInfo("README.md", _MADE), _card(facts))


def _card(facts: Mapping[str, Any]) -> str:
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(facts["verdicts"].items()))
    return f"""---
configs:
- config_name: default
  data_files: {_INSIDE}
---
# {facts["run"]}, iteration {facts["iteration"]}

Questions that a model posed and labels that models voted for: nobody checked them but the oracles in `oracles`, a JSON
object of oracle to [verdict, true answer]. `p_hat` is `votes` by `m`, or by `parsed`, as `denominator` says.

- rows: {facts["rows"]}, of {"all questions" if facts["only"] == "all" else "the kept questions"} ({verdicts or "none"})
- written by: {_named(facts["asked_by"], "nobody here: the prompts were given")}
- voted on by: {_named(facts["voted_by"], "nobody")}
- `{_INSIDE}`: sha256 {facts["files"][_INSIDE]}

`manifest.json` has this for programs, and the run's configuration.
"""


def _named(checkpoints: Mapping[str, str], none: str) -> str:
    return "; ".join(f"`{name}` (sha256 {sha256})" for name, sha256 in checkpoints.items()) or none


_WRITERS: dict[Format, Callable[[Any, _Counted, Mapping[str, Any]], None]] = {
    "jsonl": _jsonl,
    "csv": _csv,
    "parquet": _parquet,
    "huggingface": _huggingface,
}


def _digest(file: Any) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _makers(store: Store, run: str, iteration: int) -> dict[str, Any]:
    """Checkpoint -> sha256 of those that wrote the questions and the votes."""
    with store.read() as session:
        wrote, voted = queries.questions.makers(session, run, iteration)
        digests = {
            checkpoint: queries.checkpoints.get_checkpoint(session, checkpoint).sha256
            for checkpoint in {*wrote, *voted}
        }
    return {
        "asked_by": {checkpoint: digests[checkpoint] for checkpoint in wrote},
        "voted_by": {checkpoint: digests[checkpoint] for checkpoint in voted},
    }
