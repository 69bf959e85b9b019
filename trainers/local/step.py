"""One step of the embedded trainer: sample, reward, update."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from core.rollouts.scoring import learned_from
from core.settings.trainers import LocalSettings
from services.inference.encoding import encode_chat
from services.inference.engines.base import Completion, Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.base import LARGEST_SAMPLER_GAP, TrainError, TrainJob
from trainers.local.batches import Row
from trainers.local.ranks import Ranks
from trainers.local.rewards import Reward
from trainers.local.sampler import Sampler
from trainers.local.state import Metrics
from trainers.local.update import set_learning_rate, update
from trainers.rewards import Rewarded, group_seed
from trainers.rollouts import Sample, folder_in, sampled_prompts, write_step
from trainers.schedule import learning_rate_at, rollouts_at

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Learner:
    """What one worker keeps in memory during a job."""

    job: TrainJob
    settings: LocalSettings
    ranks: Ranks
    reward: Reward
    engine: TransformersEngine  # holds the policy
    sampler: Sampler  # of the policy as it is before each step
    reference: Any  # the model of the KL term
    optimiser: torch.optim.Optimizer


def take_step(learner: Learner, step: int) -> Metrics:
    """Do one step of the loop and return its metrics, which are the same on every rank."""
    job, ranks, size = learner.job, learner.ranks, learner.job.rollouts
    start = time.monotonic()
    prompts, completions, rewarded, sampling = _sample(learner, step)
    learned = _learned_from(job, rewarded)
    members = _with_advantage(job, step, rewarded, learned) if job.training.refill else learned
    indices = [group * size + member for group, of_group in members.items() for member in of_group]
    rows = _rows(learner.engine.tokenizer, [prompts[i] for i in indices], [completions[i] for i in indices])
    learning_rate = learning_rate_at(job, step)
    set_learning_rate(learner.optimiser, learning_rate)
    began = time.monotonic()
    figures, advantages = _update(learner, step, rows, rewarded, members) if rows else ({}, [])
    end = time.monotonic()
    if job.training.refill and learned:
        figures["zero_advantage_share"] = 1 - len(members) / len(learned)
    if ranks.rank == 0 and job.stored_prompts:
        advantage_of = dict(zip(indices, advantages, strict=True))
        samples = [
            Sample(c.text, len(c.tokens), c.finish_reason, c.mean_entropy, advantage_of.get(i))
            for i, c in enumerate(completions)
        ]
        stored = sampled_prompts(job.run_seed, job.key, rewarded.contents, job.stored_prompts)
        by_prompt = _by_prompt(samples, size)
        write_step(folder_in(job.work_dir), step, stored, rewarded.groups, rewarded.contents, by_prompt)
    rewards = [float(r) for scored in rewarded.groups for r in np.delete(scored.rewards, scored.undecided)]
    tokens, count = sum(len(completion.tokens) for completion in completions), len(completions)
    return {
        "step": step,
        "learning_rate": learning_rate,
        **({"reward_mean": sum(rewards) / len(rewards)} if rewards else {}),
        "dropped_share": 1 - len(learned) / len(rewarded.groups),
        **rewarded.metrics,
        **figures,
        "prompt_length": sum(completion.prompt_tokens for completion in completions) / count,
        "response_length": tokens / count,
        "truncated_share": sum(completion.finish_reason == "length" for completion in completions) / count,
        **sampling,
        "update_seconds": end - began,
        "tokens_per_second": tokens / (end - start),
    }


def _sample(learner: Learner, step: int) -> tuple[list[Prompt], list[Completion], Rewarded, Metrics]:
    """Sample and reward the rollouts of the step's prompts, and with `refill` those of further ones.

    The figures are the sampler's, the seconds of both, and with `refill` the number of further prompts.
    """
    job, size, times = learner.job, learner.job.rollouts, [time.monotonic()]
    prompts = rollouts_at(job, step)
    completions, figures = learner.sampler.sample(step, prompts)
    times.append(time.monotonic())
    rewarded = learner.reward(step, _by_prompt(completions, size))
    times.append(time.monotonic())
    wanted, most, refilled = job.training.prompts_per_step, job.training.refill, 0
    while refilled < most:
        missing = wanted - len(_with_advantage(job, step, rewarded, _learned_from(job, rewarded)))
        if missing <= 0:
            break
        refilled = min(most, refilled + missing)
        prompts = rollouts_at(job, step, refilled)
        completions = completions + learner.sampler.sample_more(prompts[len(completions) :])
        times.append(time.monotonic())
        rewarded = learner.reward(step, _by_prompt(completions, size))
        times.append(time.monotonic())
    seconds = np.diff(times)  # of sampling and rewarding, by turns
    figures = {**figures, **({"refilled": float(refilled)} if most else {})}
    figures["sample_seconds"] = float(seconds[::2].sum()) - figures.get("swap_seconds", 0.0)
    figures["reward_seconds"] = float(seconds[1::2].sum())
    return prompts, completions, rewarded, figures


def _by_prompt(rollouts: Sequence[T], size: int) -> list[Sequence[T]]:
    return [rollouts[start : start + size] for start in range(0, len(rollouts), size)]


def _learned_from(job: TrainJob, rewarded: Rewarded) -> dict[int, list[int]]:
    """Group -> the rollouts of it that a step can learn from."""
    chosen = (learned_from(scored, range(job.trained), job.reward) for scored in rewarded.groups)
    return {group: members for group, members in enumerate(chosen) if members}


def _with_advantage(
    job: TrainJob, step: int, rewarded: Rewarded, learned: Mapping[int, list[int]]
) -> dict[int, list[int]]:
    """The groups that teach something: not all of their rollouts have the advantage 0."""
    return {
        group: members
        for group, members in learned.items()
        if _advantages(job, step, rewarded, group, rewarded.groups[group].rewards[members], members).any()
    }


def _advantages(
    job: TrainJob, step: int, rewarded: Rewarded, group: int, rewards: NDArray[np.float64], members: Sequence[int]
) -> NDArray[np.float64]:
    """The advantages of a group's `members`, whose `rewards` may be less a KL."""
    clusters = rewarded.clusters[group] if rewarded.clusters else None
    seed = group_seed(job.run_seed, job.key, job.steps_before + step, group)
    return job.reward.advantages(rewards, [clusters[i] for i in members] if clusters else None, seed)


def _update(
    learner: Learner, step: int, rows: Sequence[Row], rewarded: Rewarded, trained: Mapping[int, list[int]]
) -> tuple[Metrics, list[float]]:
    """Turn the rewards of the rollouts `trained`, members of each group, into advantages, and update the policy with
    them.

    Returns the figures of the update, and the advantage of each row.
    """
    job, sizes = learner.job, [len(members) for members in trained.values()]
    objective, groups_without_advantage, advantages = job.reward, 0, list[float]()

    def row_advantages(kl: Sequence[float]) -> list[float]:
        """The advantages of all rows, given each row's KL to the reference."""
        nonlocal groups_without_advantage, advantages
        for group, members in trained.items():
            rewards, first = rewarded.groups[group].rewards[members], len(advantages)
            if objective.kl_in == "reward":
                rewards = rewards - objective.kl_coefficient * np.array(kl[first : first + len(members)])
            group_advantages = _advantages(job, step, rewarded, group, rewards, members)
            groups_without_advantage += not group_advantages.any()
            advantages += group_advantages.tolist()
        return advantages

    model, prompts = learner.engine.model, job.training.prompts_per_update
    service = job.sampler
    is_stale = service is not None and service.ahead > 0 and step > 1  # by another policy
    differs = service is not None and service.logprobs_comparable and (is_stale or not service.same_engine)
    figures = update(
        model,
        learner.reference,
        learner.optimiser,
        rows,
        job.training,
        objective,
        row_advantages,
        ranks=learner.ranks,
        rows_per_update=[sum(sizes[i : i + prompts]) for i in range(0, len(sizes), prompts)] if prompts else None,
        tokens_per_micro_batch=learner.settings.tokens_per_micro_batch,
        importance_cap=learner.settings.importance_cap if differs else None,
    )
    learner.optimiser.zero_grad()  # frees the gradients' memory for sampling
    if service and not service.logprobs_comparable:  # they are the trainer's own
        figures = {name: value for name, value in figures.items() if not name.startswith("sampler_gap")}
    elif figures["sampler_gap"] > LARGEST_SAMPLER_GAP and not is_stale:
        raise TrainError(
            f"{job.key}: the log-probabilities of trainer and sampler differ by {figures['sampler_gap']:.3f} nats per "
            f"token, expected at most {LARGEST_SAMPLER_GAP}: {type(model).__name__} cannot be trained"
        )
    return {**figures, "zero_advantage_share": groups_without_advantage / len(trained)}, advantages


def _rows(tokenizer: Any, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Row]:
    prompt_ids: dict[str, list[int]] = {}
    rows = []
    for prompt, completion in zip(prompts, completions, strict=True):
        question = prompt.messages[-1]["content"]  # the messages before it are the same for all prompts of a role
        if question not in prompt_ids:
            prompt_ids[question] = encode_chat(tokenizer, prompt.messages)
        rows.append(Row(prompt_ids[question], completion.tokens, completion.logprobs))
    return rows
