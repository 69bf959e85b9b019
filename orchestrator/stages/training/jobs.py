"""Makes the jobs of a run's trainings from its settings: for its stages, and for `coevo methods easyr1`.

What a job does not get here belongs to a run that is under way: its history, its rounds and its own applications.
"""

from __future__ import annotations

from pathlib import Path

from core.settings.config import CoEvolution, RunConfig
from core.settings.training import Labelled
from core.types import Checkpoint
from orchestrator.question_sets.held_out import trained_on
from services.inference.encoding import control_tokens
from trainers.base import ChallengerJob, SolverJob, SolverService, TrainQuestion


def challenger_job(
    config: CoEvolution,
    key: str,
    start: Checkpoint,
    solver: Checkpoint,
    solver_url: str,
    work_dir: Path,
    earlier: tuple[str, ...] = (),
) -> ChallengerJob:
    """The training of the Challenger from `start`, rewarded by the answers of `solver`, whose service has the URL.
    `earlier` are questions of earlier iterations, if the reward needs them."""
    challenger, dataset = config.challenger, config.dataset
    return ChallengerJob(
        key=key,
        run_seed=config.seed,
        start=start,
        training=challenger.training,
        reward=challenger.reward,
        solver=SolverService(
            solver_url,
            solver.id,
            dataset.sampling,
            dataset.denominator,
            dataset.max_question_chars,
            config.solver.template,
            control_tokens(Path(solver.path)),
        ),
        earlier=earlier,
        exact="well_posed" in challenger.reward.needs and config.audit.oracle == "exact",
        template=challenger.template,
        vocabulary_retention=challenger.vocabulary_retention,
        work_dir=work_dir,
        stored_prompts=config.rollout_prompts,
    )


def solver_job(
    config: RunConfig, key: str, start: Checkpoint, questions: tuple[TrainQuestion, ...], work_dir: Path
) -> SolverJob:
    solver = config.solver
    return SolverJob(
        key=key,
        run_seed=config.seed,
        start=start,
        training=solver.training,
        reward=solver.reward,
        questions=questions,
        template=solver.template,
        work_dir=work_dir,
        signals=solver.signals,
        guard=config.guard,
        stored_prompts=config.rollout_prompts,
    )


def labelled_job(config: RunConfig, labelled: Labelled, key: str, start: Checkpoint, work_dir: Path) -> SolverJob:
    """The training of the Solver `start` on labelled data (R-Zero B.3). Held-out questions are left out."""
    questions = tuple(
        TrainQuestion(f"labelled/{index:06d}", prompt.text, prompt.answer, prompt.answer)
        for index, prompt in trained_on(config, labelled.prompts)
    )
    return SolverJob(
        key=key,
        run_seed=config.seed,
        start=start,
        training=labelled.training(config.solver),
        reward=labelled.reward(config.solver),
        questions=questions,
        template=config.solver.template,
        work_dir=work_dir,
        stored_prompts=config.rollout_prompts,
    )
