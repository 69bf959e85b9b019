"""Exports the records of an evaluation: JSONL, CSV or Parquet, one row for each question.

A file contains judges' verdicts, so a later recheck makes another file. The manifest beside the file says which rows it
has, has the evaluation's own manifest, and says what the file's sha256 is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from services.evaluations.figures import Record, records_of
from storage import queries
from storage.exports.files import (
    Export,
    NotFinal,
    PlainFormat,
    Planned,
    Row,
    size_of,
    until,
    version_of,
    without_nul,
    write_rows,
    written_once,
)
from storage.files.texts import evaluation_path, read_texts
from storage.session import Store

_EDITION = 1  # raise it when the same rows are to give other bytes
_ANSWERS = 2_000  # answers in memory at a time, of at least one question
_JUDGED = pa.struct([pa.field("judge", pa.string()), pa.field("verdict", pa.string())])
_ANSWER = pa.struct(
    [
        pa.field("sample_index", pa.int32()),  # -1: the greedy answer
        pa.field("answer", pa.string()),
        pa.field("answer_class", pa.int32()),  # 0: the majority
        pa.field("verdict", pa.string()),
        pa.field("tokens", pa.int32()),
        pa.field("truncated", pa.bool_()),
        pa.field("judged", pa.list_(_JUDGED)),
        pa.field("text", pa.string()),
    ]
)
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("question", pa.string()),
        pa.field("reference", pa.string()),  # the true answer
        pa.field("level", pa.string()),
        pa.field("subject", pa.string()),
        pa.field("samples", pa.int32(), nullable=False),
        pa.field("correct", pa.int32(), nullable=False),  # of the samples
        pa.field("greedy_correct", pa.bool_()),
        pa.field("majority_correct", pa.bool_(), nullable=False),
        pa.field("answers", pa.list_(_ANSWER)),
    ]
)


def export_records(store: Store, root: Path, texts: Path | None, key: str, kind: PlainFormat) -> Export:
    """Return the file with an evaluation's records. Write it below `root`, unless the file and its manifest exist: see
    `plan`."""
    return written_once(plan(store, root, texts, key, kind))


def plan(
    store: Store,
    root: Path,
    texts: Path | None,
    key: str,
    kind: PlainFormat,
    is_ending: Callable[[], bool] = lambda: False,
) -> Planned:
    """The file with an evaluation's records below `root`, and what writes it.

    `texts` is the folder with the texts of rollouts; the whole replies are in the file if they are kept there. Raises
    `NotThere`, and `NotFinal` while some questions are not answered yet.
    """
    with store.read() as session:
        row = queries.evaluations.get_evaluation(session, key)
        judged = queries.evaluations.judged_counts(session, key)
    if row.finished_at is None:
        raise NotFinal(f"evaluation {key}: its questions are not all answered yet")
    replies = evaluation_path(texts, key) if texts is not None else None
    replies = replies if replies is not None and replies.exists() else None
    version = version_of(_EDITION, row.finished_at.timestamp(), judged, replies is not None)

    def write(path: Path) -> dict[str, Any]:
        rows = answers = 0
        verdicts = Counter[str]()  # a recheck may have added some since the file was named

        def counted() -> Iterator[list[Row]]:
            nonlocal rows, answers
            for page in until(is_ending, _pages(store, key, replies)):
                of_page = [answer for row in page for answer in row["answers"]]
                rows, answers = rows + len(page), answers + len(of_page)
                verdicts.update(verdict["judge"] for answer in of_page for verdict in answer["judged"])
                yield page

        with path.open("wb") as file:
            write_rows(file, kind, _SCHEMA, counted())
        named = {"evaluation": key, "model": row.model, "benchmark": row.benchmark, "run": row.run, "format": kind}
        counts = {"rows": rows, "answers": answers, "judged": {**verdicts}, "texts": replies is not None}
        return {**named, **counts, "columns": _SCHEMA.names, **size_of(path), "manifest": row.manifest}

    return Planned(root / "_evaluations" / key / f"{key}-{version}.{kind}", write)


def _pages(store: Store, key: str, replies: Path | None) -> Iterator[list[Row]]:
    """The rows by item id, in pages of about `_ANSWERS` answers."""
    after, limit = "", 1  # the first one says how many samples a question has
    while True:
        with store.read() as session:  # a session per page: on SQLite, writers wait for a long one
            page = records_of(session, key, after=after, limit=limit)
        if not page:
            return
        texts: dict[tuple[str, int], str] = {}
        if replies is not None:
            stored = read_texts(replies, [record.result.item_id for record in page])
            texts = {(text.question_id, text.sample_index): text.text for text in stored}
        yield [without_nul(_row(record, texts)) for record in page]
        after = page[-1].result.item_id
        limit = max(1, _ANSWERS // (page[-1].result.samples + 1))


def _row(record: Record, texts: dict[tuple[str, int], str]) -> Row:
    question, result = record.question, record.result
    judged = {
        index: [{"judge": judgement.judge, "verdict": judgement.verdict} for judgement in group]
        for index, group in groupby(record.judged, lambda judgement: judgement.sample_index)
    }
    return {
        "id": result.item_id,
        "question": question and question.problem,
        "reference": question and question.answer,
        "level": result.level,
        "subject": question and question.subject,
        **{name: getattr(result, name) for name in _SCHEMA.names[5:9]},
        "answers": [
            {
                **{name: getattr(answer, name) for name in ("sample_index", "answer", "answer_class", "verdict")},
                "tokens": answer.tokens,
                "truncated": answer.finish_reason == "length",
                "judged": judged.get(answer.sample_index, []),
                "text": texts.get((result.item_id, answer.sample_index)),
            }
            for answer in record.answers
        ],
    }
