"""Clusters of similar questions of an iteration, and the text of a vote."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel
from pydantic.dataclasses import dataclass

from core.types import question_id
from services.api.dependencies import Index, InstallationDependency, Iteration, RunName, StoreDependency
from services.api.problems import documented
from services.api.question_schemas import Vote
from storage import queries
from storage.errors import NotThere, StoreError
from storage.files.texts import read_texts, texts_path

router = APIRouter(prefix="/runs/{run}/iterations/{iteration}", tags=["questions"])
_LONGEST = 100_000  # characters of a rollout's text that are returned
SampleIndex = Annotated[int, Path(ge=0, le=2**31 - 1, examples=[3])]


class ClusterSummary(BaseModel):
    number: int  # 0 is the largest
    size: int
    example: str  # text of its first question


@dataclass(frozen=True)
class VoteText(Vote):
    """One rollout of the Solver with what it wrote; null where the run does not keep it (`rollout_text`)."""

    text: str | None


@router.get("/clusters", responses=documented(404))
def list_clusters(
    store: StoreDependency, run: RunName, iteration: Iteration, limit: Annotated[int, Query(ge=1, le=200)] = 20
) -> list[ClusterSummary]:
    """Clusters of questions that are similar by BLEU, the largest first. There are none for given prompts, or if an
    iteration has too many questions to compare."""
    with store.read() as session:
        queries.runs.refuse_missing_iteration(session, run, iteration)
        maker = queries.forks.made_by(session, run, iteration)
        clusters = queries.traces.largest_clusters(session, maker, iteration, limit)
        return [ClusterSummary(number=number, size=size, example=example) for number, size, example in clusters]


@router.get("/questions/{index}/votes/{sample_index}", responses=documented(404))
def get_vote(
    installation: InstallationDependency,
    store: StoreDependency,
    run: RunName,
    iteration: Iteration,
    index: Index,
    sample_index: SampleIndex,
) -> VoteText:
    """One vote with the text that the Solver wrote."""
    with store.read() as session:
        run = queries.forks.made_by(session, run, iteration)
        key = question_id(run, iteration, index)
        label = queries.browse.get_question(session, key).label
        votes = Vote.all_of(queries.questions.rollouts_of_question(session, key), label)
    for vote in votes:
        if vote.sample_index == sample_index:
            root = installation.texts
            file = None if root is None else texts_path(root, run, iteration, "label_questions")
            return VoteText(**asdict(vote), text=text_of(file, key, sample_index))
    raise NotThere(f"vote {sample_index} of question {key!r}: the question has no vote of this number")


def text_of(file: FilePath | None, key: str, sample_index: int) -> str | None:
    """The text of a rollout in a file of texts, as far as the API returns it; None if it is not stored there."""
    if file is None:
        return None
    try:
        texts = read_texts(file, [key])
    except StoreError:  # the stage is not finished, or its texts are on another machine
        return None
    return next((row.text[:_LONGEST] for row in texts if row.sample_index == sample_index), None)
