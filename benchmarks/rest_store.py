"""Fills a large store for `python -m benchmarks rest`: 25 runs of five iterations.

Each iteration has 8,000 questions that ten rollouts voted on, and 400 that were malformed or repeated. The same shape
gives the same questions, votes and labels. Large tables are filled by bulk paths, COPY on PostgreSQL and executemany on
SQLite, with every constraint and index in place; small ones by the store's own queries.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import psycopg
from sqlalchemy import insert, make_url
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import Session

from core.questions.filtering import band_verdict, statistics
from core.settings.config import CoEvolution
from core.types import (
    Checkpoint,
    Evaluated,
    LabelledQuestion,
    OracleLabel,
    PseudoLabel,
    Question,
    Role,
    checkpoint_id,
    question_id,
)
from orchestrator.plan import LOOP
from storage import queries
from storage.models import Base, OracleLabels, PseudoLabels, Questions, Rollouts, TrainMetrics
from storage.queries.tables import is_postgresql, table_of
from storage.rows import Over, RolloutRow, SeriesPoint
from storage.session import open_store

VOTES = 10
_BAND = (0.25, 0.75)  # R-Zero's, 2.3
_STAGES = LOOP[:-1]
_METRICS = ("reward_mean", "reward_std", "response_length", "entropy", "kl", "loss", "grad_norm", "clip_share")
_SERIES = ("label_accuracy", "p_hat", "vote_entropy", "unparsed", "tokens", "truncated", "ill_posed")
_OVERS: tuple[Over, ...] = ("kept", "all")
_STEPS, _ITEMS = 20, 100
_THINGS = ("apples", "boxes of 12 eggs", "train tickets", "marbles", "pages", "bricks", "coins", "candles")
_NAMES = ("Ada", "Bo", "Chen", "Dina", "Emil", "Farah", "Goro", "Hana")


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a store: an iteration has `voted` questions with votes, and 1/20 more that were never asked."""

    runs: int
    iterations: int
    voted: int

    @property
    def questions(self) -> int:
        """The questions of an iteration, including those that were never asked."""
        return self.voted + self.voted // 20

    @property
    def counts(self) -> dict[str, int]:
        """The rows of the store by kind."""
        iterations = self.runs * self.iterations
        return {"runs": self.runs, "questions": iterations * self.questions, "votes": iterations * self.voted * VOTES}

    def names(self) -> list[str]:
        return [f"bench-{number:02d}" for number in range(self.runs)]


FULL = Shape(runs=25, iterations=5, voted=8_000)


def shape_of(rows: int) -> Shape:
    """The shape with about `rows` questions that were voted on. `FULL` has 1,000,000."""
    runs = min(FULL.runs, max(1, rows // 1_000))
    return Shape(runs, FULL.iterations, rows // (runs * FULL.iterations))


def fill(url: str, shape: Shape) -> None:
    """Create the tables in the empty database at `url` and fill them, with one transaction per iteration."""
    store = open_store(url, create=True)
    for number, run in enumerate(shape.names()):
        base = Checkpoint(checkpoint_id(run, "base", 0), run, "base", 0, 0, "/m/base", "0" * 64, None)
        with store.write() as session:
            config = CoEvolution(iterations=shape.iterations)
            queries.runs.create_run(session, name=run, config=config, preset="bench")
            queries.checkpoints.add_checkpoint(session, base, {"model.safetensors": "0" * 64})
        for iteration in range(1, shape.iterations + 1):
            rng = random.Random(number * 1_000 + iteration)
            with store.write() as session:
                _add_iteration(session, rng, run, iteration, shape)
    store.close()
    if make_url(url).get_backend_name() == "postgresql":
        target = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(target, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")  # the server would do it before anybody reads a real run's store
            connection.execute("CHECKPOINT")


def _add_iteration(session: Session, rng: random.Random, run: str, iteration: int, shape: Shape) -> None:
    challenger, solver = _add_checkpoints(session, run, iteration)
    voter = checkpoint_id(run, "solver", iteration - 1) if iteration > 1 else checkpoint_id(run, "base", 0)
    generated = [_generate(rng, run, iteration, index, challenger, voter) for index in range(shape.questions)]
    _copy(session, Questions, _field_names(Question), (astuple(item.question) for item in generated))
    _copy(session, Rollouts, _field_names(RolloutRow), (vote for item in generated for vote in item.votes))
    label_columns = ("question_id", "run", "iteration", "index", "verdict", *_field_names(PseudoLabel))
    _copy(session, PseudoLabels, label_columns, (_label_row(item) for item in generated))
    oracle_columns = ("question_id", "oracle", "run", "iteration", "index", "verdict", "truth")
    oracle_rows = (
        (of.id, label.oracle, of.run, of.iteration, of.index, label.verdict, label.truth)
        for of, label in ((item.question, item.oracle_label) for item in generated)
        if label
    )
    _copy(session, OracleLabels, oracle_columns, oracle_rows)
    stats = statistics([item.labelled for item in generated])
    queries.figures.add_filter_stats(session, run=run, iteration=iteration, stats=stats)
    _add_figures(session, rng, run, iteration, solver)
    for stage in _STAGES:
        queries.ledger.claim_stage(session, run=run, iteration=iteration, stage=stage, owner="bench", lease_seconds=60)
        queries.ledger.finish_stage(session, run=run, iteration=iteration, stage=stage, owner="bench", result={})


def _add_checkpoints(session: Session, run: str, iteration: int) -> tuple[str, str]:
    """Add an iteration's checkpoints; returns the ids of the Challenger's and the Solver's."""
    roles: tuple[Role, ...] = ("challenger", "solver")
    ids = []
    for role in roles:
        parent = checkpoint_id(run, role, iteration - 1) if iteration > 1 else checkpoint_id(run, "base", 0)
        key = checkpoint_id(run, role, iteration)
        checkpoint = Checkpoint(key, run, role, iteration, _STEPS, f"/m/{key}", "0" * 64, parent)
        queries.checkpoints.add_checkpoint(session, checkpoint, {"model.safetensors": "0" * 64})
        ids.append(key)
    return ids[0], ids[1]


def _add_figures(session: Session, rng: random.Random, run: str, iteration: int, solver: str) -> None:
    steps = range(1, _STEPS + 1)
    columns = ("run", "iteration", "role", "step", "name", "value")
    metrics = ((role, step, name) for role in ("challenger", "solver") for step in steps for name in _METRICS)
    _copy(session, TrainMetrics, columns, ((run, iteration, *metric, rng.random()) for metric in metrics))
    points = [
        SeriesPoint(iteration, name, over, "exact" if name == "label_accuracy" else "", rng.random(), 0.0, 1.0, 8_000)
        for name in _SERIES
        for over in _OVERS
    ]
    queries.series.put_series(session, run, points)
    items = [
        Evaluated(f"{i:04d}", None, 8, rng.randint(0, 8), rng.random() < 0.5, rng.random() < 0.6) for i in range(_ITEMS)
    ]
    names = {"run": run, "model": solver, "checkpoint": solver, "benchmark": "micro"}
    key = queries.evaluations.begin_evaluation(session, manifest={}, **names).id
    queries.evaluations.add_results(session, key, items)


@dataclass(frozen=True, slots=True)
class _Generated:
    """A question with the rows that belong to it."""

    question: Question
    labelled: LabelledQuestion
    votes: Sequence[tuple[Any, ...]]  # in the order of RolloutRow's fields
    oracle_label: OracleLabel | None


def _generate(rng: random.Random, run: str, iteration: int, index: int, challenger: str, voter: str) -> _Generated:
    key = question_id(run, iteration, index)
    if index % 21 == 20:  # a question that was never asked
        malformed = index % 2 == 0
        text = None if malformed else "What is 1 + 1?"
        question = Question(key, run, iteration, index, text, "What is 1 + 1?", challenger, index)
        labelled = LabelledQuestion(key, text, None, "malformed" if malformed else "duplicate")
        return _Generated(question, labelled, (), None)
    count, days, truth = rng.randint(2, 60), rng.randint(2, 9), rng.randint(1, 400)
    text = (
        f"{rng.choice(_NAMES)} has {truth + count * days} {rng.choice(_THINGS)} and gives {count} of them away on each"
        f" of {days} days. How many are left after day {days}, if nobody gives any back?"
    )
    raw = f"<question>{text}</question>\n\n\\boxed{{{truth}}}"
    question = Question(key, run, iteration, index, text, raw, challenger, index)
    answers = _answers(rng, truth)
    label = _vote(answers)
    oracle_label = None
    if label.answer is not None:
        if rng.random() < 0.02:
            oracle_label = OracleLabel(key, "exact", "ill_posed", None)
        else:
            oracle_label = OracleLabel(key, "exact", "right" if label.answer == str(truth) else "wrong", str(truth))
    votes = [
        (key, sample, answer, 150 + len(text) + sample, "stop", 0.25, 0.0, voter, index * VOTES + sample)
        for sample, answer in enumerate(answers)
    ]
    labelled = LabelledQuestion(key, text, label, band_verdict(label, _BAND))
    return _Generated(question, labelled, votes, oracle_label)


def _answers(rng: random.Random, truth: int) -> list[str | None]:
    """Ten votes, each right with a probability that is drawn for the question.

    A wrong vote is one of a few near misses, or sometimes no answer.
    """
    accuracy = rng.betavariate(1.3, 1.0)
    wrong = [None, *(str(truth + error) for error in (1, 1, 1, -1, 10, 10, 2, 100))]
    return [str(truth) if rng.random() < accuracy else rng.choice(wrong) for _ in range(VOTES)]


def _vote(answers: Sequence[str | None]) -> PseudoLabel:
    """The result of `core.questions.voting` for plain numbers, without its grader, which would take hours here."""
    classes = tuple(Counter(answer for answer in answers if answer is not None).most_common())
    top, votes = classes[0] if classes else (None, 0)
    tied = len(classes) > 1 and classes[1][1] == votes
    parsed = sum(count for _, count in classes)
    return PseudoLabel(None if tied else top, votes, VOTES, parsed, 0, votes / VOTES, "all", classes)


def _label_row(item: _Generated) -> tuple[Any, ...]:
    question, label = item.question, item.labelled.label
    key = (question.id, question.run, question.iteration, question.index, item.labelled.verdict)
    if label is None:
        return (*key, *(None for _ in _field_names(PseudoLabel)))
    return (*key, *(getattr(label, name) for name in _field_names(PseudoLabel)[:-1]), json.dumps(label.classes))


def _field_names(carrier: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(carrier))


def _copy(session: Session, model: type[Base], columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Insert rows in the session's transaction, in the fastest way of the database's driver.

    `columns` must be in the table's order.
    """
    driver: Any = session.connection().connection.driver_connection
    if is_postgresql(session):
        quoted = ", ".join(f'"{name}"' for name in columns)
        with driver.cursor().copy(f"COPY {model.__tablename__} ({quoted}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    else:
        statement = insert(table_of(model)).compile(dialect=sqlite.dialect(), column_keys=list(columns))
        driver.executemany(str(statement), rows)
