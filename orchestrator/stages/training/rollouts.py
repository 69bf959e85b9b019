"""Stores the rollouts that a training hands back (`trainers.rollouts`): rows, and the texts that the run keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sqlalchemy.orm import Session

from core.settings.config import RunConfig
from core.types import Role, TrainingRollout
from orchestrator.stages.context import Context
from storage import queries
from storage.files.texts import RolloutText, TextWriter, texts_path
from storage.queries.training_rollouts import Training
from trainers.rollouts import folder_in, read_step


@dataclass(frozen=True, slots=True)
class StoredTraining:
    """A training of a stage that has ended. Its steps are stored after the `steps_before` of trainings before it."""

    work_dir: Path
    steps: int
    steps_before: int = 0


def store_rollouts(context: Context, role: Role, trainings: Sequence[StoredTraining]) -> Callable[[Session], None]:
    """Write the texts of a stage's rollouts, and return what adds their rows in the stage's last write.

    The texts are written first, so that each row that is committed has its text, if the run keeps it.
    """
    run, t = context.run, context.iteration
    writer = TextWriter(texts_path(run.home.texts, run.name, t, context.stage), context.refuse_lost)
    rows = list[TrainingRollout]()
    for training in trainings:
        for step in range(1, training.steps + 1):
            stored = [
                (replace(rollout, step=training.steps_before + step), text)
                for rollout, text in read_step(folder_in(training.work_dir), step)
            ]
            step_rows = [rollout for rollout, _ in stored]
            prompts = prompts_with_text(context.config, step_rows)
            texts = (
                RolloutText(row.prompt_key, row.rollout, text) for row, text in stored if row.prompt_key in prompts
            )
            writer.add(training.steps_before + step, texts)
            rows += step_rows
    writer.finish()
    return partial(queries.training_rollouts.add, training=Training(run.name, t, role), rollouts=rows)


def prompts_with_text(config: RunConfig, rollouts: Sequence[TrainingRollout]) -> set[str]:
    """The keys of the prompts whose texts the setting `rollout_text` says to store; "kept": that were learned from."""
    return {row.prompt_key for row in rollouts if config.keeps_text(kept=row.advantage is not None)}
