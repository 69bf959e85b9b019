"""A made-up run that a judge has graded in samples, and people, and no program: what the dashboard draws otherwise than
a run that `exact` has graded whole. The rows are made, no model involved."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import delete
from sqlalchemy.orm import Session

from core.types import (
    Evaluated,
    LabelledQuestion,
    OracleLabel,
    OracleVerdict,
    PseudoLabel,
    Question,
    Rollout,
    question_id,
)
from services.drift.series import refresh
from services.oracles import human
from services.oracles.samples import draw_sample
from storage import queries
from storage.models import OracleLabels
from storage.rows import AnnotationRow, SampleRow
from storage.session import Store
from tests.synthetic_run import CONFIG, fill_run

JUDGE = "judge_gpt"
HALF = CONFIG.dataset.candidates  # the index of a question whose votes spell one answer in three ways
SPELLINGS = ("0.50", "0.5", r"\frac{1}{2}", "2")
_AUDITED = (1, 2)  # iterations; the third has an estimate


def fill_judged_run(store: Store, run: str) -> None:
    """Three iterations, two with a judge's sample, the first with two people's; every Solver on every question set."""
    fill_run(store, run, per_level=10, seed=2)
    with store.write() as session:
        known = {each.question_id: each.verdict for t in _AUDITED for each in _exact(session, run, t)}
        session.execute(delete(OracleLabels).where(OracleLabels.run == run))
        _add_half(session, run)
    rng = random.Random(3)
    drawn = {t: [row.question_id for row in draw_sample(store, run, t, JUDGE, 60)] for t in _AUDITED}
    for_people = draw_sample(store, run, 1, human.ORACLE, 30)
    with store.write() as session:
        for t in _AUDITED:
            said = [OracleLabel(key, JUDGE, _said(rng, known.get(key, "right")), None) for key in drawn[t]]
            queries.questions.add_oracle_labels(session, said)
        _annotate(session, for_people, known, rng)
        _ask_solvers(session, run, rng)
        for t in (1, 2, 3):
            refresh(session, run, t)


def _exact(session: Session, run: str, t: int) -> Sequence[OracleLabel]:
    return queries.questions.oracle_labels_of(session, run, t, "exact")


def _said(rng: random.Random, truth: OracleVerdict) -> OracleVerdict:
    """One in ten is mistaken."""
    if rng.random() > 0.1:
        return truth
    return "wrong" if truth == "right" else "right"


def _add_half(session: Session, run: str) -> None:
    key, text = question_id(run, 1, HALF), "What is 1 / 2?"
    vote = PseudoLabel(SPELLINGS[1], 3, 4, 4, 0, 0.75, "all", ((SPELLINGS[1], 3), (SPELLINGS[3], 1)))
    queries.questions.add_questions(session, [Question(key, run, 1, HALF, text, text, f"{run}/base/0", 0)])
    queries.questions.add_labels(session, [LabelledQuestion(key, text, vote, "too_easy")])
    queries.questions.add_rollouts(
        session, [_rollout(key, run, place, answer) for place, answer in enumerate(SPELLINGS)]
    )


def _rollout(key: str, run: str, place: int, answer: str) -> Rollout:
    return Rollout(key, place, "", answer, 7, "stop", None, None, f"{run}/base/0", place)


def _annotate(
    session: Session, drawn: Sequence[SampleRow], known: dict[str, OracleVerdict], rng: random.Random
) -> None:
    for row in drawn:
        for who in ("ann", "bob"):
            said = _said(rng, known.get(row.question_id, "right"))
            human.annotate(session, AnnotationRow(row.question_id, who, said, "", datetime.now(UTC)))


def _ask_solvers(session: Session, run: str, rng: random.Random) -> None:
    for solver in (1, 2, 3):
        for asked in (1, 2, 3):
            right = [rng.random() < 0.4 + 0.1 * solver - 0.05 * asked for _ in range(80)]
            items = [Evaluated(f"{i}", None, 1, int(one), one, one) for i, one in enumerate(right)]
            queries.figures.add_evaluations(
                session, checkpoint=f"{run}/solver/{solver}", benchmark=f"questions/{asked}/exact", items=items
            )
