"""The rollouts of a training, and what they were rewarded for: pages of them, one with its text, and the steps."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass
from sqlalchemy.orm import Session

from core.types import Role, TrainingRollout
from services.api.dependencies import Index, InstallationDependency, Iteration, RunName, StoreDependency
from services.api.pages import cursor, position
from services.api.problems import documented
from services.api.routes.traces import text_of
from services.client import LARGEST_PAGE
from storage import queries
from storage.files.texts import training_texts_paths
from storage.queries.training_rollouts import Sort, Training
from storage.rows import TrainingStep

router = APIRouter(prefix="/runs/{run}/training/{role}/{iteration}", tags=["training"])
_LARGEST = 2**31 - 1
StepNumber = Annotated[int, Path(ge=0, le=_LARGEST, examples=[2])]


class TrainingRolloutPage(BaseModel):
    items: list[TrainingRollout]
    next: str | None  # the `after` of the next page; null on the last page
    graded: bool  # whether an oracle or the prompts' own answers tell of any question whether an answer is right


@dataclass(frozen=True)
class TrainingRolloutText(TrainingRollout):
    """One rollout of a training with what the model wrote; null where the run does not keep it (`rollout_text`)."""

    text: str | None


class RolloutQuery(BaseModel):
    """Which rollouts to list, and in which order."""

    step: int | None = Field(None, ge=0, le=_LARGEST, description="Rollouts of this step.")
    prompt: int | None = Field(None, ge=0, le=_LARGEST, description="Rollouts of the prompt at this position in steps.")
    question: str | None = Field(None, min_length=1, max_length=200, description="Rollouts of the question of this id.")
    rewarded_wrong: bool = Field(
        False,
        description="Only rollouts with a reward above 0 whose answer is known to be wrong: it agrees with a "
        "pseudo-label that an oracle calls wrong, or differs from one that an oracle calls right, or is not equal to "
        "the answer that came with the prompt, by its text or as a number.",
    )
    sort: Sort = Field(
        "step", description="A leading - sorts in descending order. Rollouts without the value are last."
    )
    limit: int = Field(50, ge=1, le=LARGEST_PAGE, description="Entries per page.")
    after: str | None = Field(None, max_length=200, description="`next` of the previous page.")


async def _training(run: RunName, role: Role, iteration: Iteration) -> Training:  # async, as it needs no thread
    return Training(run, iteration, role)


OfTraining = Annotated[Training, Depends(_training)]


def _as_made(session: Session, training: Training) -> Training:
    """The training under the name of the run that made its iteration. Raises `NotThere`."""
    queries.runs.refuse_missing_iteration(session, training.run, training.iteration)
    return replace(training, run=queries.forks.made_by(session, training.run, training.iteration))


@router.get("/steps", responses=documented(404))
def list_steps(store: StoreDependency, training: OfTraining) -> list[TrainingStep]:
    """The steps of a training of which rollouts are stored, those of 8 prompts a step: how many, and their rewards."""
    with store.read() as session:
        training = _as_made(session, training)
        return queries.training_rollouts.steps_of(session, training)


@router.get("/rollouts", responses=documented(400, 404))
def list_rollouts(
    store: StoreDependency, training: OfTraining, query: Annotated[RolloutQuery, Query()]
) -> TrainingRolloutPage:
    """A page of a training's stored rollouts, with their rewards and advantages.

    `parts` has the parts of the reward and the figures of the prompt's group. `advantage` is null for a rollout that
    was not trained on.
    """
    after = position(query.after, 3 if query.sort == "step" else 4)
    with store.read() as session:
        training = _as_made(session, training)
        rows = queries.training_rollouts.list_rollouts(
            session,
            training,
            step=query.step,
            prompt=query.prompt,
            question_id=query.question,
            rewarded_wrong=query.rewarded_wrong,
            sort=query.sort,
            after=after,
            limit=query.limit + 1,
        )
        graded = queries.training_rollouts.are_graded(session, training)
    page = rows[: query.limit]
    more = len(rows) > query.limit
    last = cursor(queries.training_rollouts.sort_key_of(page[-1], query.sort)) if more else None
    return TrainingRolloutPage(items=page, next=last, graded=graded)


@router.get("/rollouts/{step}/{prompt}/{rollout}", responses=documented(404))
def get_rollout(
    installation: InstallationDependency,
    store: StoreDependency,
    training: OfTraining,
    step: StepNumber,
    prompt: Index,
    rollout: Index,
) -> TrainingRolloutText:
    """One rollout of a training with the text that the model wrote."""
    with store.read() as session:
        training = _as_made(session, training)
        row = queries.training_rollouts.find(session, training, step, prompt, rollout)
    files = training_texts_paths(installation.texts, training.run, training.iteration, training.role)
    texts = (text_of(file, row.prompt_key, rollout) for file in files)
    return TrainingRolloutText(**asdict(row), text=next((text for text in texts if text is not None), None))
