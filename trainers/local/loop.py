"""The training loop of one worker: sample, reward, update. It resumes from the newest step folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.processes.faultpoints import faultpoint
from core.settings.trainers import LocalSettings
from core.statistics.guard import ends_training, step_alarms
from services.inference.encoding import encode_chat
from services.inference.engines.base import Completion, Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.base import LARGEST_SAMPLER_GAP, TrainError, TrainJob
from trainers.local.activations import checkpoint_layers, save_attention_memory
from trainers.local.checkpoints import load_optimiser, save_final, save_step
from trainers.local.ranks import Ranks
from trainers.local.rewards import Reward
from trainers.local.sampler import Sampler, make_sampler
from trainers.local.sharding import shard
from trainers.local.state import Metrics, State, final_folder, fingerprint, newest_step, read_state
from trainers.local.support import refuse_unsupported
from trainers.local.update import Row, make_optimiser, set_learning_rate, update
from trainers.rewards import Rewarded, group_seed
from trainers.rollouts import Sample, folder_in, sampled_prompts, write_step
from trainers.schedule import learning_rate_at, rollouts_at

_DEFAULTS = LocalSettings()


@dataclass(frozen=True, slots=True)
class _Learner:
    """What one worker keeps in memory during a job."""

    job: TrainJob
    ranks: Ranks
    reward: Reward
    engine: TransformersEngine  # holds the policy
    sampler: Sampler  # of the policy as it is before each step
    reference: Any  # the model of the KL term
    optimiser: torch.optim.Optimizer


def train(
    job: TrainJob,
    reward: Reward,
    *,
    ranks: Ranks,
    device: str,
    report: Callable[[Metrics], None],
    stopped: Callable[[], bool],
    beat: Callable[..., None] = lambda *_: None,
    settings: LocalSettings = _DEFAULTS,
) -> None:
    """Train `job` to its end and write the result to `work_dir/final`, or return early once `stopped()` is true.

    Every rank calls this. Rank 0 alone writes files and reports each new step's metrics, and its `stopped()` decides.
    `beat` is called, with any arguments, before each forward pass of the policy or the reference.
    Raises `TrainError`, and whatever sampling and the reward raise.
    """
    faultpoint("training begun", job.key)
    folder = ranks.agree(newest_step(job))
    start, reference_folder = Path(job.start.path), Path((job.reference or job.start).path)
    engine = _make_engine(folder or start, device, job, settings, ranks)
    reference = _make_engine(reference_folder, device, job, settings, ranks).model.requires_grad_(False)
    optimiser = make_optimiser(engine.model, job.training)
    if folder:
        load_optimiser(folder, optimiser)
    elif job.rounds and job.rounds.optimiser:
        load_optimiser(Path(job.rounds.optimiser.path), optimiser)
    learner = _Learner(job, ranks, reward, engine, make_sampler(job, engine, ranks), reference, optimiser)
    for model in (engine.model, reference):
        # The embedding takes part in every pass, whichever of the model's methods begins it.
        model.get_input_embeddings().register_forward_pre_hook(beat)
    saved = read_state(folder) if folder else State(fingerprint(job), 0, ())
    metrics = list(saved.metrics)
    while not _ended(job, metrics):
        if ranks.agree(stopped()):
            return
        step = len(metrics) + 1
        faultpoint("step begun", f"{job.key}/{step}")
        metrics.append(_step(learner, step))
        faultpoint("step ended", f"{job.key}/{step}")
        if ranks.rank == 0:
            report(metrics[-1])
        if step % job.training.checkpoint_every == 0 or _ended(job, metrics):
            learner.sampler.save(step)
            state, writes = State(saved.job, step, tuple(metrics)), ranks.rank == 0
            save_step(job.work_dir, state, engine.model, engine.tokenizer, optimiser, writes=writes)
    if ranks.rank == 0 and not final_folder(job.work_dir).exists():
        save_final(job.work_dir, len(metrics), with_optimiser=job.rounds is not None)
    learner.sampler.close()


def _ended(job: TrainJob, metrics: Sequence[Metrics]) -> bool:
    """Whether the job has done its last step, or the guard ends it at the newest step.

    It depends only on the job and its metrics, so every rank decides the same, and so does a resumed job.
    """
    if not metrics or len(metrics) == job.training.steps or job.guard is None:
        return len(metrics) == job.training.steps
    return any(ends_training(alarm.action) for alarm in step_alarms(metrics, job.guard, job.history))


def _make_engine(folder: Path, device: str, job: TrainJob, settings: LocalSettings, ranks: Ranks) -> TransformersEngine:
    """An engine whose model is in float32, because an update of 1e-6 would vanish in bfloat16's eight bits."""
    engine = TransformersEngine(folder, device, settings.sampling_rows)
    if engine.model.dtype != torch.float32:
        engine.model.float()
        engine.load(folder)  # load the weights again: the first time they were rounded to the narrower type
    save_attention_memory(engine.model)
    refuse_unsupported(engine.model)
    if settings.checkpoint_activations:
        checkpoint_layers(engine.model)
    if job.training.sharded and ranks.size > 1:
        shard(engine.model, ranks.size)
    return engine


def _step(learner: _Learner, step: int) -> Metrics:
    """Do one step of the loop and return its metrics, which are the same on every rank."""
    job, ranks, size = learner.job, learner.ranks, learner.job.rollouts
    times = [time.monotonic()]
    prompts = rollouts_at(job, step)
    completions, sampling = learner.sampler.sample(step, prompts)
    times.append(time.monotonic())
    rewarded = learner.reward(step, [completions[start : start + size] for start in range(0, len(completions), size)])
    times.append(time.monotonic())
    trained_groups = [group for group, scored in enumerate(rewarded.groups) if scored.learn]
    indices = [group * size + member for group in trained_groups for member in range(job.trained)]
    rows = _rows(learner.engine.tokenizer, [prompts[i] for i in indices], [completions[i] for i in indices])
    learning_rate = learning_rate_at(job, step)
    set_learning_rate(learner.optimiser, learning_rate)
    figures, advantages = _update(learner, step, rows, rewarded, trained_groups) if rows else ({}, [])
    times.append(time.monotonic())
    if ranks.rank == 0 and job.stored_prompts:
        advantage_of = dict(zip(indices, advantages, strict=True))
        samples = [
            Sample(c.text, len(c.tokens), c.finish_reason, c.mean_entropy, advantage_of.get(i))
            for i, c in enumerate(completions)
        ]
        by_prompt = [samples[start : start + size] for start in range(0, len(samples), size)]
        stored = sampled_prompts(job.run_seed, job.key, rewarded.contents, job.stored_prompts)
        write_step(folder_in(job.work_dir), step, stored, rewarded.groups, rewarded.contents, by_prompt)
    rewards = [float(reward) for scored in rewarded.groups for reward in scored.rewards]
    start, sampled, scored_at, end = times
    tokens, count = sum(len(completion.tokens) for completion in completions), len(completions)
    return {
        "step": step,
        "learning_rate": learning_rate,
        "reward_mean": sum(rewards) / len(rewards),
        "dropped_share": 1 - len(trained_groups) / len(rewarded.groups),
        **rewarded.metrics,
        **figures,
        "prompt_length": sum(completion.prompt_tokens for completion in completions) / count,
        "response_length": tokens / count,
        "truncated_share": sum(completion.finish_reason == "length" for completion in completions) / count,
        **sampling,
        "sample_seconds": sampled - start - sampling.get("swap_seconds", 0.0),
        "reward_seconds": scored_at - sampled,
        "update_seconds": end - scored_at,
        "tokens_per_second": tokens / (end - start),
    }


def _update(
    learner: _Learner, step: int, rows: Sequence[Row], rewarded: Rewarded, trained_groups: Sequence[int]
) -> tuple[Metrics, list[float]]:
    """Turn the rewards of the groups `trained_groups` into advantages, and update the policy with them.

    Returns the figures of the update, and the advantage of each row.
    """
    job, count = learner.job, learner.job.trained
    objective, groups_without_advantage, advantages = job.reward, 0, list[float]()

    def row_advantages(kl: Sequence[float]) -> list[float]:
        """The advantages of all rows, given each row's KL to the reference."""
        nonlocal groups_without_advantage, advantages
        for position, group in enumerate(trained_groups):
            rewards = rewarded.groups[group].rewards[:count]
            if objective.kl_in == "reward":
                rewards = rewards - objective.kl_coefficient * np.array(kl[position * count : (position + 1) * count])
            clusters = rewarded.clusters[group] if rewarded.clusters else None
            seed = group_seed(job.run_seed, job.key, job.steps_before + step, group)
            group_advantages = objective.advantages(rewards, clusters[:count] if clusters else None, seed)
            groups_without_advantage += not group_advantages.any()
            advantages += group_advantages.tolist()
        return advantages

    model, prompts = learner.engine.model, job.training.prompts_per_update
    figures = update(
        model,
        learner.reference,
        learner.optimiser,
        rows,
        job.training,
        objective,
        row_advantages,
        ranks=learner.ranks,
        rows_per_update=None if prompts is None else prompts * count,
    )
    learner.optimiser.zero_grad()  # frees the gradients' memory for sampling
    is_stale = job.sampler is not None and job.sampler.ahead > 0 and step > 1  # by another policy
    if job.sampler and not job.sampler.logprobs_comparable:  # they are the trainer's own
        figures = {name: value for name, value in figures.items() if not name.startswith("sampler_gap")}
    elif figures["sampler_gap"] > LARGEST_SAMPLER_GAP and not is_stale:
        raise TrainError(
            f"{job.key}: the log-probabilities of trainer and sampler differ by {figures['sampler_gap']:.3f} nats per "
            f"token, expected at most {LARGEST_SAMPLER_GAP}: {type(model).__name__} cannot be trained"
        )
    return {**figures, "zero_advantage_share": groups_without_advantage / len(trained_groups)}, advantages


def _rows(tokenizer: Any, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Row]:
    prompt_ids: dict[str, list[int]] = {}
    rows = []
    for prompt, completion in zip(prompts, completions, strict=True):
        question = prompt.messages[-1]["content"]  # the messages before it are the same for all prompts of a role
        if question not in prompt_ids:
            prompt_ids[question] = encode_chat(tokenizer, prompt.messages)
        rows.append(Row(prompt_ids[question], completion.tokens, completion.logprobs))
    return rows
