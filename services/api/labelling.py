"""Labelling by people: a question at a time, without what anybody or anything else has said of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from core.types import OracleVerdict, question_id
from services.api.dependencies import Index, Iteration, ReadSession, RunName
from services.api.origins import same_site
from services.api.problems import documented
from services.drift.alerts import look
from services.drift.series import refresh_labels
from services.oracles import human
from storage import queries
from storage.queries.audits import AlreadyAnnotated
from storage.rows import AnnotationRow, QuestionEntry

router = APIRouter(prefix="/runs/{run}/iterations/{iteration}/labelling", tags=["labelling"])

_NAME = r"^[^\x00-\x1f\x7f]{1,100}$"
_WHO = "Who labels. Where keys are asked for it is the name of the key, whatever is given here."


class ToLabel(BaseModel):
    """A question and its pseudo-label, for an annotator: no votes, no p_hat, no other verdicts."""

    id: str
    index: int
    text: str | None
    label: str | None  # the pseudo-label: what is right, or not
    answers: list[str]  # all answers that were given, the label too, by spelling

    @classmethod
    def of(cls, entry: QuestionEntry) -> ToLabel:
        label, asked = entry.label, entry.question
        answers = sorted(answer for answer, _ in label.classes) if label else []
        return cls(
            id=asked.id, index=asked.index, text=asked.text, label=label.answer if label else None, answers=answers
        )


class Progress(BaseModel):
    """Of an iteration's human sample."""

    drawn: int
    settled: int  # enough annotators agree
    said: int  # by this annotator, skipped ones too
    skipped: int


class Labelling(BaseModel):
    annotator: str
    question: ToLabel | None  # none: there is nothing left for this annotator
    progress: Progress


class Word(BaseModel):
    """What an annotator says of a pseudo-label."""

    model_config = ConfigDict(extra="forbid")

    verdict: OracleVerdict = Field(description="`unknown` skips the question, and never settles it.")
    note: str = Field("", pattern=r"^[^\x00]{0,2000}$", examples=["The units are missing."])
    annotator: str | None = Field(None, pattern=_NAME, examples=["ann"], description=_WHO)


@router.get("/next", responses=documented(404))
def next_question(
    request: Request,
    session: ReadSession,
    run: RunName,
    iteration: Iteration,
    annotator: Annotated[str | None, Query(pattern=_NAME, examples=["ann"], description=_WHO)] = None,
) -> Labelling:
    """The next question of the iteration's human sample, in the order of the draw: not settled, and nothing said of it
    by this annotator."""
    who = _annotator(request, annotator, "query")
    queries.runs.get_run(session, run)
    return _labelling(session, run, iteration, who)


@router.post("/{index}", status_code=201, responses=documented(404, 409), dependencies=[Depends(same_site)])
def say(request: Request, run: RunName, iteration: Iteration, index: Index, word: Word) -> Labelling:
    """Say whether a question's pseudo-label is right, once; the next question comes back. Two annotators who agree
    settle it, a third decides where they differ."""
    who = _annotator(request, word.annotator, "body")
    row = AnnotationRow(question_id(run, iteration, index), who, word.verdict, word.note, datetime.now(UTC))
    with request.app.state.store.write() as session:
        queries.runs.get_run(session, run)
        try:
            counts = human.annotate(session, row)
        except AlreadyAnnotated as error:
            raise HTTPException(409, str(error)) from error
        if counts:
            refresh_labels(session, run, iteration)
            # Once when the sample is over, not at every label; then whenever a third decides what was disputed.
            if human.is_over(session, run, iteration):
                look(session, run, iteration)
        return _labelling(session, run, iteration, who)


def _annotator(request: Request, given: str | None, where: str) -> str:
    name: str | None = getattr(request.state, "key_name", given)
    if name is None:
        message = "expected a name, since no keys are asked for; got none"
        raise RequestValidationError([{"loc": (where, "annotator"), "msg": message}])
    return name


def _labelling(session: Session, run: str, iteration: int, annotator: str) -> Labelling:
    entry = queries.audits.next_to_label(session, run, iteration, annotator)
    drawn, settled = queries.audits.sample_progress(session, run, iteration, human.ORACLE)
    counts = queries.audits.annotation_counts(session, run, iteration).get(annotator, {})
    return Labelling(
        annotator=annotator,
        question=ToLabel.of(entry) if entry else None,
        progress=Progress(drawn=drawn, settled=settled, said=sum(counts.values()), skipped=counts.get("unknown", 0)),
    )
