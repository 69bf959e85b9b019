"""Evaluations: what models were asked, their figures, and every question with its answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from services.api.dependencies import After, InstallationDependency, Limit, StoreDependency
from services.api.problems import documented
from services.evaluations.figures import (
    EvaluationFigures,
    ListedEvaluation,
    Record,
    figures_of,
    record_of,
    records_of,
    with_accuracy,
)
from storage import queries
from storage.errors import NotThere
from storage.queries.runs import RUN_NAME

router = APIRouter(prefix="/evaluations", tags=["evaluations"])
_LONGEST = 100_000  # characters of a reply that are returned

Key = Annotated[str, Path(pattern="^[0-9a-f]{16}$", examples=["5f0c3d1e9a7b2468"])]
Item = Annotated[str, Query(max_length=1_000, description="The question's id.", examples=["aime24/0"])]
Run = Annotated[
    str | None,
    Query(pattern=f"^{RUN_NAME.pattern}$", description="Evaluations that this run made; by default, that no run made."),
]


class RecordPage(BaseModel):
    items: list[Record]
    next: str | None  # the `after` of the next page; null on the last page


@router.get("", responses=documented(404))
def list_all_evaluations(store: StoreDependency, run: Run = None) -> list[ListedEvaluation]:
    """What models were asked and how many answers were right: evaluations of `coevo evaluate`, the newest first, or
    those of a run in their order."""
    with store.read() as session:
        if run is None:
            return with_accuracy(session, queries.evaluations.list_evaluations(session))
        queries.runs.get_run(session, run)
        return with_accuracy(session, queries.evaluations.of_run(session, run))


@router.get("/{evaluation}", responses=documented(404))
def get_evaluation(store: StoreDependency, evaluation: Key) -> EvaluationFigures:
    """The figures of one evaluation, and its manifest: all that its answers depend on."""
    with store.read() as session:
        figures = figures_of(session, evaluation)
    if figures is None:
        raise NotThere(f"evaluation {evaluation}: it has no answers yet")
    return figures


@router.get("/{evaluation}/records", responses=documented(404))
def list_records(store: StoreDependency, evaluation: Key, limit: Limit = 50, after: After = None) -> RecordPage:
    """Every question by its id, with the answers to it and their verdicts, without the whole replies."""
    with store.read() as session:
        records = records_of(session, evaluation, after=after or "", limit=limit + 1)
    page = records[:limit]
    return RecordPage(items=page, next=page[-1].result.item_id if len(records) > limit else None)


@router.get("/{evaluation}/record", responses=documented(404))
def get_record(installation: InstallationDependency, store: StoreDependency, evaluation: Key, item: Item) -> Record:
    """One question with the answers to it and, where they are kept, the whole replies."""
    with store.read() as session:
        record = record_of(session, evaluation, item, installation.texts)
    texts = None if record.texts is None else [text[:_LONGEST] for text in record.texts]
    return replace(record, texts=texts)
