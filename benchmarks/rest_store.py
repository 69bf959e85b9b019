"""A large store for `coevo bench rest`: the rows of 25 runs of five iterations, each with 8,000 questions that ten
rollouts voted on, and 400 that were malformed or repeated. The same shape gives the same questions, votes and labels.

The millions go in by bulk paths, COPY on PostgreSQL and executemany on SQLite, with every constraint and index in
place; the few by the store's own queries.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import psycopg
from sqlalchemy import insert, make_url
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import Session

from core.questions.filtering import judge, statistics
from core.settings.config import CoEvolution
from core.types import (
    STAGES,
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
from storage import queries
from storage.models import Base, OracleLabels, PseudoLabels, Questions, Rollouts, TrainMetrics
from storage.queries.tables import is_postgresql, table_of
from storage.rows import Over, RolloutRow, SeriesPoint
from storage.session import Store, open_store

VOTES = 10
_BAND = (0.25, 0.75)  # R-Zero's, 2.3
_STAGES = STAGES[:6]
_METRICS = ("reward_mean", "reward_std", "response_length", "entropy", "kl", "loss", "grad_norm", "clip_share")
_SERIES = ("label_accuracy", "p_hat", "vote_entropy", "unparsed", "tokens", "truncated", "ill_posed")
_OVERS: tuple[Over, ...] = ("kept", "all")
_STEPS, _ITEMS = 20, 100
_THINGS = ("apples", "boxes of 12 eggs", "train tickets", "marbles", "pages", "bricks", "coins", "candles")
_NAMES = ("Ada", "Bo", "Chen", "Dina", "Emil", "Farah", "Goro", "Hana")


@dataclass(frozen=True, slots=True)
class Shape:
    """How many of what there are: `voted` questions an iteration have votes, and one in 20 more was never asked."""

    runs: int
    iterations: int
    voted: int

    @property
    def questions(self) -> int:
        """Of an iteration, those that were never asked too."""
        return self.voted + self.voted // 20

    @property
    def counts(self) -> dict[str, int]:
        """Rows of the store."""
        iterations = self.runs * self.iterations
        return {"runs": self.runs, "questions": iterations * self.questions, "votes": iterations * self.voted * VOTES}

    def names(self) -> list[str]:
        return [f"bench-{number:02d}" for number in range(self.runs)]


FULL = Shape(runs=25, iterations=5, voted=8_000)


def shape_of(rows: int) -> Shape:
    """The shape with about `rows` questions that were voted on; the full one has 1,000,000."""
    runs = min(FULL.runs, max(1, rows // 1_000))
    return Shape(runs, FULL.iterations, rows // (runs * FULL.iterations))


def fill(url: str, shape: Shape) -> None:
    """Make the tables in the empty database at `url`, and fill them: one transaction an iteration."""
    store = open_store(url, create=True)
    for number, run in enumerate(shape.names()):
        _start(store, run, shape.iterations)
        for iteration in range(1, shape.iterations + 1):
            rng = random.Random(number * 1_000 + iteration)
            with store.write() as session:
                _iteration(session, rng, run, iteration, shape)
    store.close()
    if make_url(url).get_backend_name() == "postgresql":
        _vacuum(url)


def _start(store: Store, run: str, iterations: int) -> None:
    base = Checkpoint(checkpoint_id(run, "base", 0), run, "base", 0, 0, "/m/base", "0" * 64, None)
    with store.write() as session:
        queries.runs.create_run(session, name=run, config=CoEvolution(iterations=iterations), preset="bench")
        queries.checkpoints.add_checkpoint(session, base, {"model.safetensors": "0" * 64})


def _iteration(session: Session, rng: random.Random, run: str, iteration: int, shape: Shape) -> None:
    challenger, solver = _checkpoints(session, run, iteration)
    voter = checkpoint_id(run, "solver", iteration - 1) if iteration > 1 else checkpoint_id(run, "base", 0)
    made = [_question(rng, run, iteration, index, challenger, voter) for index in range(shape.questions)]
    _bulk(session, Questions, Question, (question.question for question in made))
    _copy(session, Rollouts, _names(RolloutRow), (vote for question in made for vote in question.votes))
    label_columns = ("question_id", "run", "iteration", "index", "verdict")
    _copy(session, PseudoLabels, (*label_columns, *_names(PseudoLabel)), (_label_row(question) for question in made))
    columns = ("question_id", "oracle", "run", "iteration", "index", "verdict", "truth")
    _copy(
        session,
        OracleLabels,
        columns,
        (_oracle_row(question.question, question.said) for question in made if question.said),
    )
    stats = statistics([question.labelled for question in made])
    queries.figures.add_filter_stats(session, run=run, iteration=iteration, stats=stats)
    _figures(session, rng, run, iteration, solver)
    for stage in _STAGES:
        queries.ledger.claim_stage(session, run=run, iteration=iteration, stage=stage, owner="bench", lease_seconds=60)
        queries.ledger.finish_stage(session, run=run, iteration=iteration, stage=stage, owner="bench", result={})


def _checkpoints(session: Session, run: str, iteration: int) -> tuple[str, str]:
    roles: tuple[Role, ...] = ("challenger", "solver")
    ids = []
    for role in roles:
        parent = checkpoint_id(run, role, iteration - 1) if iteration > 1 else checkpoint_id(run, "base", 0)
        key = checkpoint_id(run, role, iteration)
        written = Checkpoint(key, run, role, iteration, _STEPS, f"/m/{key}", "0" * 64, parent)
        queries.checkpoints.add_checkpoint(session, written, {"model.safetensors": "0" * 64})
        ids.append(key)
    return ids[0], ids[1]


def _figures(session: Session, rng: random.Random, run: str, iteration: int, solver: str) -> None:
    steps = range(1, _STEPS + 1)
    key = ("run", "iteration", "role", "step", "name", "value")
    of = ((role, step, name) for role in ("challenger", "solver") for step in steps for name in _METRICS)
    _copy(session, TrainMetrics, key, ((run, iteration, *metric, rng.random()) for metric in of))
    points = [
        SeriesPoint(iteration, name, over, "exact" if name == "label_accuracy" else "", rng.random(), 0.0, 1.0, 8_000)
        for name in _SERIES
        for over in _OVERS
    ]
    queries.series.put_series(session, run, points)
    items = [
        Evaluated(f"{i:04d}", None, 8, rng.randint(0, 8), rng.random() < 0.5, rng.random() < 0.6) for i in range(_ITEMS)
    ]
    queries.figures.add_evaluations(session, checkpoint=solver, benchmark="micro", items=items)


@dataclass(frozen=True, slots=True)
class _Made:
    question: Question
    labelled: LabelledQuestion
    votes: Sequence[tuple[Any, ...]]  # in the order of RolloutRow's fields
    said: OracleLabel | None


def _question(rng: random.Random, run: str, iteration: int, index: int, challenger: str, voter: str) -> _Made:
    key = question_id(run, iteration, index)
    if index % 21 == 20:  # never asked
        malformed = index % 2 == 0
        text = None if malformed else "What is 1 + 1?"
        asked = Question(key, run, iteration, index, text, "What is 1 + 1?", challenger, index)
        return _Made(asked, LabelledQuestion(key, text, None, "malformed" if malformed else "duplicate"), (), None)
    n, days, truth = rng.randint(2, 60), rng.randint(2, 9), rng.randint(1, 400)
    text = (
        f"{rng.choice(_NAMES)} has {truth + n * days} {rng.choice(_THINGS)} and gives {n} of them away on each of"
        f" {days} days. How many are left after day {days}, if nobody gives any back?"
    )
    raw = f"<question>{text}</question>\n\n\\boxed{{{truth}}}"
    asked = Question(key, run, iteration, index, text, raw, challenger, index)
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
    return _Made(asked, LabelledQuestion(key, text, label, judge(label, _BAND)), votes, oracle_label)


def _answers(rng: random.Random, truth: int) -> list[str | None]:
    """Ten votes on a question that the Solver knows with a chance of its own; a wrong one is one of a few near misses,
    or, seldom, not there."""
    chance = rng.betavariate(1.3, 1.0)
    wrong = [None, *(str(truth + miss) for miss in (1, 1, 1, -1, 10, 10, 2, 100))]
    return [str(truth) if rng.random() < chance else rng.choice(wrong) for _ in range(VOTES)]


def _vote(answers: Sequence[str | None]) -> PseudoLabel:
    """What `core.questions.voting` makes of plain numbers, without its grader, which would take hours here."""
    classes = tuple(Counter(answer for answer in answers if answer is not None).most_common())
    top, votes = classes[0] if classes else (None, 0)
    tied = len(classes) > 1 and classes[1][1] == votes
    parsed = sum(count for _, count in classes)
    return PseudoLabel(None if tied else top, votes, VOTES, parsed, 0, votes / VOTES, "all", classes)


def _oracle_row(asked: Question, oracle_label: OracleLabel) -> tuple[Any, ...]:
    return (
        asked.id,
        oracle_label.oracle,
        asked.run,
        asked.iteration,
        asked.index,
        oracle_label.verdict,
        oracle_label.truth,
    )


def _label_row(made: _Made) -> tuple[Any, ...]:
    asked, label = made.question, made.labelled.label
    key = (asked.id, asked.run, asked.iteration, asked.index, made.labelled.verdict)
    if label is None:
        return (*key, *(None for _ in _names(PseudoLabel)))
    return (*key, *(getattr(label, name) for name in _names(PseudoLabel)[:-1]), json.dumps(label.classes))


def _names(carrier: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(carrier))


def _bulk(session: Session, model: type[Base], carrier: type[Any], carriers: Iterable[Any]) -> None:
    _copy(session, model, _names(carrier), map(attrgetter(*_names(carrier)), carriers))


def _copy(session: Session, model: type[Base], names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Rows as the database's driver has them fastest, in the session's transaction; `names` in the table's order."""
    driver: Any = session.connection().connection.driver_connection
    if is_postgresql(session):
        listed = ", ".join(f'"{name}"' for name in names)
        with driver.cursor().copy(f"COPY {model.__tablename__} ({listed}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    else:
        statement = insert(table_of(model)).compile(dialect=sqlite.dialect(), column_keys=list(names))
        driver.executemany(str(statement), rows)


def _vacuum(url: str) -> None:
    """What the server would have done by itself by the time that somebody reads."""
    target = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")
