"""Exports questions of runs with their labels, or the votes on them: JSONL, CSV, Parquet, or a zipped folder for
Hugging Face.

A file of questions contains the oracles' verdicts, so a later audit makes another file. The manifest beside the file
says which rows it has, what its columns mean, which checkpoints made the rows, under which configuration, and what the
file's sha256 is. The zip for Hugging Face also has a manifest inside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from storage import queries
from storage.exports.columns import SCHEMA_VERSION, arrow_schema, columns_of
from storage.exports.files import OF_RUNS, Export, Planned, Row, size_of, until, version_of, write_rows, written_once
from storage.exports.huggingface import write_folder
from storage.exports.rows import Page, pages_of
from storage.exports.selection import Selection, selected_runs
from storage.files.texts import texts_path
from storage.session import Store

Format = Literal["jsonl", "csv", "parquet", "huggingface"]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIXES: dict[Format, str] = {"jsonl": "jsonl", "csv": "csv", "parquet": "parquet", "huggingface": "zip"}
MOST_FILES = 200  # of a run, and of several runs; there are as many files as filters, so older ones are removed


def export(
    store: Store,
    root: Path,
    selection: Selection,
    kind: Format,
    texts: Path | None = None,
    is_ending: Callable[[], bool] = lambda: False,
) -> Export:
    """Return the export's file. Write it below `root`, unless the file and its manifest exist already: see `plan`."""
    return written_once(plan(store, root, selection, kind, texts, is_ending))


def plan(
    store: Store,
    root: Path,
    selection: Selection,
    kind: Format,
    texts: Path | None = None,
    is_ending: Callable[[], bool] = lambda: False,
) -> Planned:
    """The export's file below `root`, and what writes it.

    `texts` is the folder with the texts of rollouts. Raises `NotThere` when there is no such run or iteration, and
    `NotFinal` while some questions are not labelled yet. `is_ending` is asked before each page of rows: if the process
    ends, the file is given up with a `StoreError`.
    """
    with store.read() as session:
        runs, left_out = selected_runs(session, selection)
        iterations = [(run.run.name, iteration) for run in runs for iteration in run.iterations]
        audits = [queries.browse.audit_counts(session, *iteration) for iteration in iterations]
    oracles = sorted({count.oracle for counts in audits for count in counts})
    of_several = not isinstance(selection.runs, str)
    columns = columns_of(selection.what, oracles, texts=selection.texts, of_several=of_several)
    has_texts = [
        texts is not None and texts_path(texts, *iteration, "label_questions").exists()
        for iteration in (iterations if selection.texts else ())
    ]
    shown = audits if selection.depends_on_audits() else None
    # A run may be deleted, and another one made with its name.
    made = [(run.run.name, run.run.created_at.timestamp(), run.iterations, run.columns) for run in runs]
    filters = selection.described_filters()
    version = version_of(SCHEMA_VERSION, selection.what, made, left_out, filters, shown, has_texts)
    folder, name = OF_RUNS, f"{len(runs)}-runs"
    if not of_several:  # `run-2`, `run-1-3`, or `run-2of1-3` if they are two of these three
        folder, chosen = runs[0].run.name, runs[0].iterations
        span = f"{chosen[0]}" if len(chosen) == 1 else f"{chosen[0]}-{chosen[-1]}"
        has_all = len(chosen) == chosen[-1] - chosen[0] + 1
        name = f"{folder}-{span}" if has_all else f"{folder}-{len(chosen)}of{span}"
    path = root / folder / f"{name}-{selection.what}-{version}.{SUFFIXES[kind]}"
    about = [
        {
            **{"run": run.run.name, **run.columns, "iterations": list(run.iterations), "config": run.run.config},
            **({"inherited": run.inherited} if run.inherited else {}),
        }
        for run in runs
    ]

    def write(path: Path) -> dict[str, Any]:
        with store.read() as session:
            sources = [queries.questions.source_checkpoints(session, *iteration) for iteration in iterations]
            asked, voted = (
                {
                    key: queries.checkpoints.get_checkpoint(session, key).sha256
                    for key in sorted({checkpoint for source in sources for checkpoint in source[i]})
                }
                for i in (0, 1)
            )
        described = {
            **({"runs": about, "left_out": left_out} if of_several else about[0]),
            "what": selection.what,
            "filters": filters,
            "format": kind,
            "schema_version": SCHEMA_VERSION,
            "columns": [{"name": c.name, "type": c.type, "description": c.description} for c in columns],
            "asked_by": asked,  # the checkpoints that wrote the questions, with their sha256
            "voted_by": voted,
        }
        pages = until(is_ending, pages_of(store, selection, runs, oracles, texts))
        # The manifest is not written again after an audit on which no row depends, so it must not count verdicts.
        counted = oracles if selection.depends_on_audits() else []
        rows, schema = _CountedRows(pages, counted), arrow_schema(columns)
        with path.open("wb") as file:
            if kind == "huggingface":
                write_folder(file, schema, rows, lambda: {**described, **rows.counts()})
            else:
                write_rows(file, kind, schema, rows)
        return {**described, **rows.counts(), **size_of(path)}

    return Planned(path, write, MOST_FILES)


class _CountedRows:
    """The rows of pages. It counts rows, and questions by verdict and by oracle, while the pages are read."""

    def __init__(self, pages: Iterable[Page], oracles: Sequence[str]) -> None:
        self._pages, self._oracles, self._rows, self._texts = pages, oracles, 0, 0
        self._verdicts, self._audited = Counter[str](), Counter[str]()

    def __iter__(self) -> Iterator[list[Row]]:
        for questions, rows in self._pages:
            self._rows += len(rows)
            self._texts += sum(row.get("text") is not None for row in rows)
            self._verdicts.update(question.verdict for question in questions if question.verdict is not None)
            labels = [label.oracle for question in questions for label in question.oracles]
            self._audited.update(oracle for oracle in labels if oracle in self._oracles)
            if rows:
                yield rows

    def counts(self) -> dict[str, Any]:
        return {
            "rows": self._rows,
            "texts": self._texts,
            "questions": self._verdicts.total(),
            "verdicts": dict(self._verdicts),
            "audited": dict(self._audited),
        }
