"""Measures how fast the store writes and reads one iteration, 8,000 questions with 10 votes each, on both databases.

The rows are written as `label_questions` writes them: in batches, with one durable transaction for every batch.
"""

from __future__ import annotations

import tempfile
import time
from statistics import median
from typing import Any
from uuid import uuid4

from benchmarks.postgres import temporary_postgresql
from core.settings.config import CoEvolution
from core.types import Checkpoint, LabelledQuestion, PseudoLabel, Question, Rollout, checkpoint_id, question_id
from storage import queries
from storage.session import open_store

QUESTIONS, VOTES, BATCH, PAGE = 8_000, 10, 500, 200


def run(postgresql_url: str | None = None) -> dict[str, object]:
    """Measure on a SQLite file and on PostgreSQL: the empty database at `postgresql_url`, or a temporary server.

    The figures are seconds to write the run, and milliseconds to read a page of labels.
    """
    with tempfile.TemporaryDirectory() as folder:
        figures: dict[str, object] = {"sqlite": _measure(f"sqlite:///{folder}/coevo.db")}
    if postgresql_url is not None:
        return {**figures, "postgresql": _measure(postgresql_url)}
    with temporary_postgresql(fsync=True) as url:
        skipped = {"skipped": "no PostgreSQL server programs (initdb, pg_ctl) on this machine"}
        return {**figures, "postgresql": skipped if url is None else _measure(url)}


def _measure(url: str) -> dict[str, Any]:
    store, name = open_store(url, create=True), f"bench-{uuid4().hex}"
    base = checkpoint_id(name, "base", 0)
    with store.write() as session:
        queries.runs.create_run(session, name=name, config=CoEvolution())
        queries.checkpoints.add_checkpoint(session, Checkpoint(base, name, "base", 0, 0, "/base", "0" * 64, None), {})
    batches = [_batch(name, base, start) for start in range(0, QUESTIONS, BATCH)]
    start = time.perf_counter()
    for questions, rollouts, labels in batches:
        with store.write() as session:
            queries.questions.add_questions(session, questions)
            queries.questions.add_rollouts(session, rollouts)
            queries.questions.add_labels(session, labels)
    ingest_s, pages = time.perf_counter() - start, []
    for after in range(-1, QUESTIONS - 1, PAGE):
        start = time.perf_counter()
        with store.read() as session:
            queries.questions.labels_of(session, run=name, iteration=1, after=after, limit=PAGE)
        pages.append(1000 * (time.perf_counter() - start))
    with store.write() as session:
        queries.runs.delete_run(session, name)
    store.close()
    figures = {"ingest_s": round(ingest_s, 3), "read_page_ms": round(median(pages), 2)}
    return {"questions": QUESTIONS, "votes": QUESTIONS * VOTES, **figures}


Batch = tuple[list[Question], list[Rollout], list[LabelledQuestion]]


def _batch(name: str, base: str, start: int) -> Batch:
    indices = range(start, start + BATCH)
    ids = {index: question_id(name, 1, index) for index in indices}
    text = "A farmer has {} boxes of 12 eggs and sells 7 of them each day for a week. How many eggs are left?"
    questions = [
        Question(ids[i], name, 1, i, text.format(i), f"<question>{text.format(i)}</question>", base, i) for i in indices
    ]
    rollouts = [
        Rollout(ids[i], sample, "", str(i % 7), 200, "stop", 0.25, 0.0, base, i * VOTES + sample)
        for i in indices
        for sample in range(VOTES)
    ]
    vote = PseudoLabel("3", 6, VOTES, VOTES, 0, 0.6, "all", (("3", 6), ("4", 3), ("5", 1)))
    return questions, rollouts, [LabelledQuestion(ids[i], text.format(i), vote, "kept") for i in indices]
