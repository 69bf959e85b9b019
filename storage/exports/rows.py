"""The rows of exported questions and votes, read from the store a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from core.questions.voting import agrees, classes_of
from storage import queries
from storage.exports.columns import QUESTION_COLUMNS
from storage.exports.files import Row, without_nul
from storage.exports.selection import SelectedRun, Selection
from storage.files.texts import read_texts, texts_path
from storage.rows import QuestionSummary, RolloutRow
from storage.session import Store

_QUESTIONS = 1_000  # rows in memory at a time
_VOTES = 2_000  # the same, but at least those of one question
_FROM_ROLLOUT = [field.name for field in fields(RolloutRow)]


class Page(NamedTuple):
    """Some of the questions, and the rows that an export has of them."""

    questions: list[QuestionSummary]
    rows: list[Row]


def pages_of(
    store: Store, selection: Selection, runs: Sequence[SelectedRun], oracles: Sequence[str], texts: Path | None
) -> Iterator[Page]:
    """The rows by run, iteration, index and sample. `texts` is the folder with the texts of rollouts."""
    for run, iteration in ((selected, iteration) for selected in runs for iteration in selected.iterations):
        file = None if texts is None else texts_path(texts, run.run.name, iteration, "label_questions")
        for questions in _questions(store, selection, run.run.name, iteration):
            rows = list[Row]()
            if selection.what == "votes":
                rows = _vote_rows(store, questions, file, with_text=selection.texts)
            for question in questions if selection.what == "questions" else ():
                row = {column.name: getattr(question, column.name) for column in QUESTION_COLUMNS}
                labels = {label.oracle: label for label in question.oracles}
                for oracle in oracles:
                    label = labels.get(oracle)
                    row |= {f"{oracle}_verdict": label and label.verdict, f"{oracle}_truth": label and label.truth}
                rows.append({name: without_nul(value) for name, value in row.items()})
            yield Page(questions, [{**run.columns, **row} for row in rows])


def _questions(store: Store, selection: Selection, run: str, iteration: int) -> Iterator[list[QuestionSummary]]:
    """An iteration's questions in pages of so many that their rows fit in memory."""
    after = tuple[float, ...]()
    # Of votes, the first page has one question, which shows how many votes the questions have.
    limit = _QUESTIONS if selection.what == "questions" else 1
    while True:
        with store.read() as session:  # a session per page: on SQLite, writers wait for a long one
            page = queries.browse.list_questions(session, run, iteration, selection.filters, after=after, limit=limit)
        if not page:
            return
        yield page
        after = queries.browse.sort_key_of(page[-1], "index")
        if selection.what == "votes":
            limit = min(_QUESTIONS, max(1, _VOTES // max(question.m or 1 for question in page)))


def _vote_rows(store: Store, questions: Sequence[QuestionSummary], file: Path | None, *, with_text: bool) -> list[Row]:
    by_id = {question.id: question for question in questions}
    with store.read() as session:
        votes = queries.votes.votes_of(session, list(by_id))
    stored = read_texts(file, list(by_id)) if with_text and file is not None and file.exists() else []
    texts = {(text.question_id, text.sample_index): text.text for text in stored}
    rows = []
    for key, (classes, rollouts) in votes.items():
        question = by_id[key]
        in_classes = classes_of([rollout.answer for rollout in rollouts], classes)
        for rollout, in_class in zip(rollouts, in_classes, strict=True):
            row = {name: getattr(rollout, name) for name in _FROM_ROLLOUT}
            row |= {"run": question.run, "iteration": question.iteration, "index": question.index}
            row |= {"in_class": in_class, "agrees": agrees(rollout.answer, in_class)}
            row["answer"] = without_nul(rollout.answer)
            if with_text:
                row["text"] = without_nul(texts.get((key, rollout.sample_index)))
            rows.append(row)
    return rows
