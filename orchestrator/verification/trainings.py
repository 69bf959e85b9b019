"""Trainings: their checkpoints, the questions that they learned from, the metrics and the rollouts of their steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from core.settings.config import CoEvolution
from core.settings.trainers import LocalSettings
from core.settings.training import PlannedTraining, trained_rollouts
from core.types import Stage, TrainingRollout, checkpoint_id
from orchestrator.plan import TRAININGS
from orchestrator.stages.training.jobs import LABELLED
from orchestrator.verification.checks import Compared
from orchestrator.verification.subject import Subject
from storage import queries
from storage.queries.training_rollouts import Training

_ALL = 1 << 31  # rollouts: more than there are


def trained_checkpoints(subject: Subject) -> Iterator[Compared]:
    """Each finished training has the checkpoint of its stage's result, with the parent that the chain says. No other
    checkpoint is stored."""
    rows = {row.id: row for row in subject.checkpoints}
    # Read again, and later: a process may have finished a training since the verification began.
    done = [row for row in subject.read(queries.ledger.stages_of, subject.name) if row.result]
    made = {checkpoint_id(row.run, TRAININGS[row.stage][0], row.iteration) for row in done if row.stage in TRAININGS}
    yield from ((key, key if key in made or row.role == "base" else None, key) for key, row in rows.items())
    for t, stage, result in subject.done(*TRAININGS):
        made_role, role = TRAININGS[stage]
        begins_with, key = subject.playing(role, t, stage), checkpoint_id(subject.name, made_role, t)
        if result.get("trained") is False:  # a Challenger that is never trained
            yield f"result of {stage} {t}: checkpoint", begins_with, result["checkpoint"]
        else:
            row = rows.get(key)
            stored = {"id": row.id, "sha256": row.sha256, "parent": row.parent} if row else {}
            yield key, {"id": result["checkpoint"], "sha256": result["sha256"], "parent": begins_with}, stored


def questions_trained_on(subject: Subject) -> Iterator[Compared]:
    """A Solver was trained at every one of its steps, on kept questions of its iteration, with `dataset.replay` also of
    earlier ones, and with `labelled.share` on labelled ones, or on given prompts."""
    is_loop = isinstance(subject.config, CoEvolution)
    replays = isinstance(subject.config, CoEvolution) and subject.config.dataset.replay is not None
    has_anchors = isinstance(subject.config, CoEvolution) and subject.config.labelled is not None
    for t, _, result in subject.done("train_solver"):
        key = checkpoint_id(subject.name, "solver", t)
        iterations = range(1 if replays else t, t + 1) if is_loop else [0]
        makers = {i: subject.read(queries.forks.made_by, subject.name, i) for i in iterations}
        labels = [row for i in iterations for row in subject.read(queries.questions.labels_of, makers[i], i)]
        rows = subject.read(queries.traces.trained_on_by, key)
        usable = {row.question_id for row in labels if row.verdict == "kept" or not is_loop}
        usable -= {row.question_id for row in labels if row.verdict == "duplicate"}
        for row in rows:
            is_usable = row.question_id in usable or (has_anchors and row.question_id.startswith(LABELLED))
            yield f"{key} trained on {row.question_id}", True, is_usable
        steps = range(1, min(result["steps"], subject.config.solver.training.steps) + 1)
        yield f"{key}: steps with questions", [*steps], sorted({step for row in rows for step in row.steps})


def trainings_of(subject: Subject) -> Iterator[tuple[int, Stage, dict[int, PlannedTraining], list[TrainingRollout]]]:
    """(iteration, stage, the settings of each of its steps, its rollouts) of the stages that have trained.

    The steps are as the tables count them: those of a training on labelled data continue the Solver's, in a stage of
    its own or in the same.
    """
    planned = {training.table: training for training in subject.config.trainings}
    for t, stage, result in subject.done(*TRAININGS):
        if "steps" in result:
            own, before = planned[TRAININGS[stage][0]], 0
            later, key = planned.get("labelled", own), Training(subject.name, t, TRAININGS[stage][1])
            if stage == "train_labelled":
                before = subject.results[t, "train_solver"]["steps"]
            steps = {before + i: own if i <= own.training.steps else later for i in range(1, result["steps"] + 1)}
            rows = subject.read(queries.training_rollouts.list_rollouts, key, limit=_ALL)
            if subject.config.has_branch and stage != "train_challenger":  # they share a table
                rows = [row for row in rows if (row.step > before if before else row.step <= max(steps))]
            yield t, stage, steps, rows


def training_steps(subject: Subject) -> Iterator[Compared]:
    """A training has metrics of each of its steps, and rollouts of as many prompts of each step as the run's setting
    says, in whole groups and with finite rewards. Advantages that follow from a group's rewards are made again."""
    config = subject.config
    for t, stage, planned_at, rows in trainings_of(subject):
        name, role = f"{stage} of iteration {t}", TRAININGS[stage][1]
        metrics = subject.read(queries.figures.train_metrics_of, subject.name, iteration=t, role=role)
        if config.has_branch:  # its metrics have names of their own, all but the number of the step
            is_own = stage == "train_labelled"
            metrics = [row for row in metrics if row.name != "step" and row.name.startswith("labelled_") == is_own]
        yield f"{name}: steps with metrics", [*planned_at], sorted({row.step for row in metrics})
        by_step = {step: [*of_step] for step, of_step in groupby(rows, lambda row: row.step)}
        for step in sorted({*planned_at, *by_step}):
            groups = [[*group] for _, group in groupby(by_step.get(step, []), lambda row: row.prompt)]
            expected = list[list[int]]()
            if step in planned_at:
                most = min(config.rollout_prompts, planned_at[step].training.prompts_per_step)
                expected = [[*range(planned_at[step].rollouts)]] * most
            stored = [[rollout.rollout for rollout in group] for group in groups]
            yield f"{name}, step {step}: rollouts of each prompt", expected, stored
            for group in groups if stored == expected else ():
                row = f"{name}, step {step}, prompt {group[0].prompt}"
                are_finite = all(math.isfinite(rollout.reward) for rollout in group)
                yield f"{row}: rewards", "finite numbers", "finite numbers" if are_finite else "others"
                objective, advantages = planned_at[step].objective, [rollout.advantage for rollout in group]
                if not are_finite or not isinstance(config.trainer, LocalSettings):
                    continue
                # The KL and strategies, on which advantages may depend, are not stored; a dropped prompt has none.
                if objective.kl_in != "reward" and objective.advantage != "set" and {*advantages} != {None}:
                    trained = group[: trained_rollouts(len(group), objective)]
                    judged = [i for i, rollout in enumerate(trained) if "undecided" not in rollout.parts]
                    made = objective.advantages(np.array([group[i].reward for i in judged])).tolist()
                    again = dict(zip(judged, made, strict=True))
                    yield f"{row}: advantages", [again.get(i) for i in range(len(group))], advantages
