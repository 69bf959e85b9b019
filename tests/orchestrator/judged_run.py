"""A synthetic run whose samples were graded by a judge and by people, and by no program. The dashboard shows it
otherwise than a run that `exact` has graded completely. No model is involved."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
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
from services.evaluations.matrix import set_name
from services.oracles import human
from services.oracles.samples import draw_sample
from storage import queries
from storage.models import OracleLabels
from storage.rows import AnnotationRow, SampleRow
from storage.session import Store
from tests.synthetic_run import CONFIG, add_evaluations, fill_run

JUDGE = "judge_gpt"
HALF = CONFIG.dataset.candidates  # the index of a question whose votes have three spellings of one answer
SPELLINGS = ("0.50", "0.5", r"\frac{1}{2}", "2")
_AUDITED = (1, 2)  # these iterations have audits; the third has an estimate


def fill_judged_run(store: Store, run: str) -> None:
    """Store a run of three iterations: two have a judge's sample, the first also two people's. Every Solver has
    answered every question set."""
    fill_run(store, run, per_level=10, seed=2)
    with store.write() as session:
        known = {row.question_id: row.verdict for t in _AUDITED for row in _exact(session, run, t)}
        session.execute(delete(OracleLabels).where(OracleLabels.run == run))
        _add_half(session, run)
    rng = random.Random(3)
    drawn = {t: [row.question_id for row in draw_sample(store, run, t, JUDGE, 60)] for t in _AUDITED}
    for_people = draw_sample(store, run, 1, human.ORACLE, 30)
    with store.write() as session:
        for t in _AUDITED:
            labels = [
                OracleLabel(key, JUDGE, _verdict_with_errors(rng, known.get(key, "right")), "1") for key in drawn[t]
            ]
            queries.questions.add_oracle_labels(session, labels)
        _annotate(session, for_people, known, rng)
        _ask_solvers(session, drawn, run, rng)
        for t in (1, 2, 3):
            refresh(session, run, t)


def _exact(session: Session, run: str, t: int) -> Sequence[OracleLabel]:
    return queries.questions.oracle_labels_of(session, run, t, "exact")


def _verdict_with_errors(rng: random.Random, truth: OracleVerdict) -> OracleVerdict:
    """The true verdict, or a wrong one in one of ten cases."""
    if rng.random() > 0.1:
        return truth
    return "wrong" if truth == "right" else "right"


def _add_half(session: Session, run: str) -> None:
    key, text = question_id(run, 1, HALF), "What is 1 / 2?"
    vote = PseudoLabel(SPELLINGS[1], 3, 4, 4, 0, 0.75, "all", ((SPELLINGS[1], 3), (SPELLINGS[3], 1)))
    queries.questions.add_questions(session, [Question(key, run, 1, HALF, text, text, f"{run}/base/0", 0)])
    queries.questions.add_labels(session, [LabelledQuestion(key, text, vote, "too_easy")])
    queries.questions.add_rollouts(
        session, [_rollout(key, run, sample, answer) for sample, answer in enumerate(SPELLINGS)]
    )


def _rollout(key: str, run: str, sample: int, answer: str) -> Rollout:
    return Rollout(key, sample, "", answer, 7, "stop", None, None, f"{run}/base/0", sample)


def _annotate(
    session: Session, drawn: Sequence[SampleRow], known: dict[str, OracleVerdict], rng: random.Random
) -> None:
    for row in drawn:
        for annotator in ("ann", "bob"):
            verdict = _verdict_with_errors(rng, known.get(row.question_id, "right"))
            human.annotate(session, AnnotationRow(row.question_id, annotator, verdict, "", datetime.now(UTC)))


def _ask_solvers(session: Session, drawn: Mapping[int, Sequence[str]], run: str, rng: random.Random) -> None:
    for solver in (1, 2, 3):
        for t, keys in drawn.items():
            verdicts = {row.question_id: row.verdict for row in queries.questions.labels_of(session, run, t)}
            right = {key: rng.random() < 0.4 + 0.1 * solver - 0.05 * t for key in keys}
            items = [
                Evaluated(key, verdicts[key], 1, int(is_right), is_right, is_right) for key, is_right in right.items()
            ]
            add_evaluations(session, checkpoint=f"{run}/solver/{solver}", benchmark=set_name(t, JUDGE), items=items)
