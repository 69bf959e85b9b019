"""Scores a step's rollouts in the embedded trainer: `trainers.rewards`, with the work divided among the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from core.grading.grader import Grader
from core.seeds import seed_for
from services.inference.client import InferenceClient
from services.inference.engines.base import Completion
from trainers.base import ChallengerJob, SolverJob, TrainError, TrainJob
from trainers.local.ranks import Ranks
from trainers.rewards import Ask, Graded, PromptRollouts, Rewarded, group_seed, reward_challenger, reward_solver
from trainers.schedule import questions_at

Completions = Sequence[Sequence[Completion]]  # group by group
Reward = Callable[[int, Completions], Rewarded]


def make_reward(job: TrainJob, ranks: Ranks, grader: Grader) -> Reward:
    """The reward function of `job`.

    Every rank calls it with the rollouts of the whole step and gets the same result; the work is divided among them.
    """
    if isinstance(job, SolverJob):
        return SolverReward(job, ranks, grader)
    if isinstance(job, ChallengerJob):
        ask = partial(InferenceClient(job.solver.url, "solver").generate, checkpoint=job.solver.checkpoint)
        return partial(challenger_reward, job, ranks, grader=grader, ask=ask)
    raise TrainError(f"{job.key}: expected a Challenger's or a Solver's job, got {type(job).__name__}")


class SolverReward:
    """The reward of a Solver's job. A step may call it again, with further groups after the same ones."""

    def __init__(self, job: SolverJob, ranks: Ranks, grader: Grader) -> None:
        self._job, self._ranks, self._grader = job, ranks, grader
        self._step, self._graded = 0, list[Graded]()  # of the step's last call

    def __call__(self, step: int, completions: Completions) -> Rewarded:
        job = self._job
        if step != self._step:
            self._step, self._graded = step, []
        done = len(self._graded)
        questions = questions_at(job, step, max(0, len(completions) - job.training.prompts_per_step))
        prompts = [
            PromptRollouts(
                questions[position],
                [completion.text for completion in completions[position]],
                group_seed(job.run_seed, job.key, job.steps_before + step, position),
                [completion.mean_entropy for completion in completions[position]],
            )
            for position in range(done, len(completions))
        ]
        rewarded = reward_solver(prompts, job.reward, job.signals, self._grader, self._ranks.map, self._graded)
        self._graded = rewarded.graded
        return rewarded


def challenger_reward(
    job: ChallengerJob, ranks: Ranks, step: int, completions: Completions, *, grader: Grader, ask: Ask
) -> Rewarded:
    texts = [[completion.text for completion in group] for group in completions]
    seed = partial(seed_for, job.run_seed, job.key, job.steps_before + step)
    return reward_challenger(
        texts,
        job.reward,
        job.solver,
        partial(seed, "vote"),
        ask,
        grader,
        ranks.map,
        draw=seed("reward"),
        earlier=job.earlier,
        exact=job.exact,
    )
