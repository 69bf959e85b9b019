"""Blind labelling by people: one question at a time, without the votes and without the verdicts of others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from core.types import OracleVerdict, question_id
from services.api.access.keys import OF_KEY, PERSON, person
from services.api.dependencies import Index, Iteration, RunName, StoreDependency
from services.api.problems import documented
from services.drift.alerts import raise_alerts
from services.drift.series import refresh_labels
from services.oracles import human
from storage import queries
from storage.rows import AnnotationRow, QuestionEntry

router = APIRouter(prefix="/runs/{run}/iterations/{iteration}/labelling", tags=["labelling"])

_ANNOTATOR = f"Who labels. {OF_KEY}"


class ToLabel(BaseModel):
    """A question and its pseudo-label, for an annotator: no votes, no p_hat, no other verdicts."""

    id: str
    index: int
    text: str | None
    label: str | None  # the pseudo-label, which is to be judged
    answers: list[str]  # all answers of the votes, the pseudo-label included, sorted alphabetically

    @classmethod
    def of(cls, entry: QuestionEntry) -> ToLabel:
        label, question = entry.label, entry.question
        return cls(
            id=question.id,
            index=question.index,
            text=question.text,
            label=label.answer if label else None,
            answers=sorted(answer for answer, _ in label.classes) if label else [],
        )


class SampleProgress(BaseModel):
    """The progress of an iteration's human sample, in questions."""

    drawn: int
    settled: int  # enough annotators agree
    annotated: int  # questions annotated by this annotator, including skipped ones
    skipped: int  # by this annotator


class Labelling(BaseModel):
    annotator: str
    question: ToLabel | None  # null: there is no question left for this annotator
    progress: SampleProgress


class AnnotationRequest(BaseModel):
    """An annotator's verdict on a pseudo-label."""

    model_config = ConfigDict(extra="forbid")

    verdict: OracleVerdict = Field(description="`unknown` skips the question, and never settles it.")
    note: str = Field("", pattern=r"^[^\x00]{0,2000}$", examples=["The units are missing."])
    annotator: str | None = Field(None, pattern=PERSON, examples=["ann"], description=_ANNOTATOR)


@router.get("/next", responses=documented(404))
def next_question(
    request: Request,
    store: StoreDependency,
    run: RunName,
    iteration: Iteration,
    annotator: Annotated[str | None, Query(pattern=PERSON, examples=["ann"], description=_ANNOTATOR)] = None,
) -> Labelling:
    """The next question of the iteration's human sample, in the order in which it was drawn. Questions that are
    settled, or that this annotator has annotated, are left out."""
    name = person(request, annotator, "annotator", "query")
    with store.read() as session:
        queries.runs.refuse_missing_iteration(session, run, iteration)
        return _labelling(session, queries.forks.made_by(session, run, iteration), iteration, name)


@router.post("/{index}", status_code=201, responses=documented(404, 409))
def say(
    request: Request,
    store: StoreDependency,
    run: RunName,
    iteration: Iteration,
    index: Index,
    body: AnnotationRequest,
) -> Labelling:
    """Say whether a question's pseudo-label is right. The response has the next question. An annotator can annotate a
    question once. Two annotators who agree settle it; if they disagree, a third one decides."""
    name = person(request, body.annotator, "annotator")
    with store.write() as session:
        queries.runs.refuse_missing_iteration(session, run, iteration)
        run = queries.forks.made_by(session, run, iteration)
        row = AnnotationRow(question_id(run, iteration, index), name, body.verdict, body.note, datetime.now(UTC))
        if human.annotate(session, row):
            refresh_labels(session, run, iteration)
            # The figures are tested once the sample is over, not at every label. They are tested again when a question
            # is settled after that.
            if human.is_over(session, run, iteration):
                raise_alerts(session, run, iteration)
        return _labelling(session, run, iteration, name)


def _labelling(session: Session, run: str, iteration: int, annotator: str) -> Labelling:
    entry = queries.audits.next_to_label(session, run, iteration, annotator)
    drawn, settled = queries.audits.sample_progress(session, run, iteration, human.ORACLE)
    counts = queries.audits.annotation_counts(session, run, iteration).get(annotator, {})
    return Labelling(
        annotator=annotator,
        question=ToLabel.of(entry) if entry else None,
        progress=SampleProgress(
            drawn=drawn, settled=settled, annotated=sum(counts.values()), skipped=counts.get("unknown", 0)
        ),
    )
