"""The training loop of one worker: sample, reward, update, from wherever the job was left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.seeds import seed_for
from core.settings.trainers import LocalSettings
from core.statistics.guard import ends_training, step_alarms
from services.inference.engines.base import Completion, Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.base import TrainError, TrainJob
from trainers.local.activations import checkpoint_layers, spare_attention
from trainers.local.checkpoints import load_optimiser, save_final, save_step
from trainers.local.ranks import Ranks
from trainers.local.rewards import Reward, Rewarded
from trainers.local.sharding import shard, whole
from trainers.local.state import Metrics, State, final_folder, fingerprint, newest_step, read_state
from trainers.local.update import Row, make_optimiser, update
from trainers.schedule import rollouts_at

# Nats a token. Rounding makes 1e-5 of it in float32; more than this means that the sampler's model is not the
# trainer's, as with an architecture that changes its logits after the output embedding.
_LARGEST_SAMPLER_GAP = 0.1
_DEFAULTS = LocalSettings()


@dataclass(frozen=True, slots=True)
class _Learner:
    """What one worker holds in memory."""

    job: TrainJob
    ranks: Ranks
    reward: Reward
    engine: TransformersEngine  # samples from the very weights that are trained
    reference: Any  # for the KL term
    optimiser: torch.optim.Optimizer


def train(
    job: TrainJob,
    reward: Reward,
    *,
    ranks: Ranks,
    device: str,
    report: Callable[[Metrics], None],
    stopped: Callable[[], bool],
    settings: LocalSettings = _DEFAULTS,
) -> None:
    """Bring `job` to its end and leave the result in `work_dir/final`, or return early once `stopped()`.

    Every rank calls it; rank 0 writes, reports each new step's metrics, and is asked whether to stop. Raises
    `TrainError`, and what sampling and the reward raise.
    """
    folder = ranks.agree(newest_step(job))
    learner = _learner(job, reward, settings, ranks, device, folder)
    done = read_state(folder) if folder else State(fingerprint(job), 0, ())
    metrics = list(done.metrics)
    while not _ended(job, metrics):
        if ranks.agree(stopped()):
            return
        step = len(metrics) + 1
        metrics.append(_step(learner, step))
        if ranks.rank == 0:
            report(metrics[-1])
        if step % job.training.checkpoint_every == 0 or _ended(job, metrics):
            state, engine = State(done.job, step, tuple(metrics)), learner.engine
            writes = ranks.rank == 0
            save_step(job.work_dir, state, engine.model, engine.tokenizer, learner.optimiser, writes=writes)
    if ranks.rank == 0 and not final_folder(job.work_dir).exists():
        save_final(job.work_dir, len(metrics))


def _ended(job: TrainJob, metrics: Sequence[Metrics]) -> bool:
    """After its last step, or the first at which the guard calls for an end: the same on every rank, and again when
    the job is resumed."""
    if not metrics or len(metrics) == job.training.steps or job.guard is None:
        return len(metrics) == job.training.steps
    return any(ends_training(alarm.action) for alarm in step_alarms(metrics, job.guard, job.history))


def _learner(
    job: TrainJob, reward: Reward, settings: LocalSettings, ranks: Ranks, device: str, folder: Path | None
) -> _Learner:
    start, referred = Path(job.start.path), Path((job.reference or job.start).path)
    engine = _engine(folder or start, device, job, settings, ranks)
    reference = _engine(referred, device, job, settings, ranks).model.requires_grad_(False)
    optimiser = make_optimiser(engine.model, job.training)
    if folder:
        load_optimiser(folder, optimiser)
    return _Learner(job, ranks, reward, engine, reference, optimiser)


def _engine(folder: Path, device: str, job: TrainJob, settings: LocalSettings, ranks: Ranks) -> TransformersEngine:
    """An engine in float32, whatever engines sample in: a step of 1e-6 vanishes in bfloat16's eight bits."""
    engine = TransformersEngine(folder, device, settings.sampling_rows)
    if engine.model.dtype != torch.float32:
        engine.model.float()
        engine.load(folder)  # again, for the bits that the narrow type took
    spare_attention(engine.model)
    if settings.checkpoint_activations:
        checkpoint_layers(engine.model)
    if job.training.sharded and ranks.size > 1:
        shard(engine.model, ranks.size)
    return engine


def _step(learner: _Learner, step: int) -> Metrics:
    """One step of the loop; its metrics are the same on every rank."""
    job, ranks, size = learner.job, learner.ranks, learner.job.rollouts
    times = [time.monotonic()]
    prompts = rollouts_at(job, step)
    with whole(learner.engine.model):
        completions = ranks.map(prompts, lambda own: [group[0] for group in learner.engine.generate(own)])
    times.append(time.monotonic())
    rewarded = learner.reward(step, [completions[at : at + size] for at in range(0, len(completions), size)])
    times.append(time.monotonic())
    learned = [group for group, scored in enumerate(rewarded.groups) if scored.learn]
    places = [group * size + member for group in learned for member in range(job.trained)]
    rows = _rows(learner.engine.tokenizer, [prompts[i] for i in places], [completions[i] for i in places])
    figures = _update(learner, step, rows, rewarded, learned) if rows else {}
    times.append(time.monotonic())
    rewards = [float(reward) for scored in rewarded.groups for reward in scored.rewards]
    return {
        "step": step,
        "reward_mean": sum(rewards) / len(rewards),
        "dropped_share": 1 - len(learned) / len(rewarded.groups),
        **rewarded.metrics,
        **figures,
        **_lengths(completions),
        **_timings(times, sum(len(completion.tokens) for completion in completions)),
    }


def _update(learner: _Learner, step: int, rows: Sequence[Row], rewarded: Rewarded, learned: Sequence[int]) -> Metrics:
    """Turn the rewards of the groups that are learned from into advantages, and update the policy with them."""
    job, count = learner.job, learner.job.trained
    objective, silent = job.reward, 0

    def of_rows(kl: Sequence[float]) -> list[float]:
        nonlocal silent
        norms: list[float] = []
        for at, group in enumerate(learned):
            rewards = rewarded.groups[group].rewards[:count]
            if objective.kl_in == "reward":
                rewards = rewards - objective.kl_coefficient * np.array(kl[at * count : (at + 1) * count])
            clusters = rewarded.clusters[group] if rewarded.clusters else None
            seed = seed_for(job.run_seed, job.key, job.steps_before + step, "sets", group)
            made = objective.advantages(rewards, clusters[:count] if clusters else None, seed)
            silent += not made.any()
            norms += made.tolist()
        return norms

    model, prompts = learner.engine.model, job.training.prompts_per_update
    figures = update(
        model,
        learner.reference,
        learner.optimiser,
        rows,
        job.training,
        objective,
        of_rows,
        ranks=learner.ranks,
        rows_per_update=None if prompts is None else prompts * count,
    )
    learner.optimiser.zero_grad()  # their memory is the sampler's now
    if figures["sampler_gap"] > _LARGEST_SAMPLER_GAP:
        raise TrainError(
            f"{job.key}: the trainer's log-probabilities and the sampler's differ by {figures['sampler_gap']:.3f} nats "
            f"a token, expected at most {_LARGEST_SAMPLER_GAP}: {type(model).__name__} cannot be trained"
        )
    return {**figures, "zero_advantage_share": silent / len(learned)}


def _rows(tokenizer: Any, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Row]:
    encoded: dict[str, list[int]] = {}
    rows = []
    for prompt, completion in zip(prompts, completions, strict=True):
        question = prompt.messages[-1]["content"]  # what comes before it is the same for all of a role
        if question not in encoded:
            chat = tokenizer.apply_chat_template(list(prompt.messages), add_generation_prompt=True, return_dict=True)
            encoded[question] = chat["input_ids"]
        rows.append(Row(encoded[question], completion.tokens, completion.logprobs))
    return rows


def _lengths(completions: Sequence[Completion]) -> Metrics:
    return {
        "response_length": sum(len(completion.tokens) for completion in completions) / len(completions),
        "truncated_share": sum(completion.finish_reason == "length" for completion in completions) / len(completions),
    }


def _timings(times: Sequence[float], tokens: int) -> Metrics:
    """`times` are the begin, and the ends of sampling, reward and update."""
    begin, sampled, rewarded, end = times
    return {
        "sample_seconds": sampled - begin,
        "reward_seconds": rewarded - sampled,
        "update_seconds": end - rewarded,
        "tokens_per_second": tokens / (end - begin),
    }
