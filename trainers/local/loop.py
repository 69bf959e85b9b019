"""The training loop of one worker: sample, reward, update. It resumes from the newest step folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from core.processes.faultpoints import faultpoint
from core.seeds import seed_for
from core.settings.trainers import LocalSettings
from core.statistics.guard import ends_training, step_alarms
from services.inference.engines.embedded import TransformersEngine
from trainers.base import TrainJob
from trainers.local.activations import checkpoint_layers, save_attention_memory
from trainers.local.checkpoints import load_optimiser, save_final, save_step
from trainers.local.lora import ADAPTER, add_adapters, load_adapters
from trainers.local.precision import compute_in_bfloat16
from trainers.local.ranks import Ranks
from trainers.local.rewards import Reward
from trainers.local.sampler import make_sampler
from trainers.local.sharding import shard
from trainers.local.state import Metrics, State, final_folder, fingerprint, newest_step, read_state
from trainers.local.step import Learner, take_step
from trainers.local.support import refuse_unsupported
from trainers.local.update import make_optimiser

_DEFAULTS = LocalSettings()


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
    folder = ranks.agree(newest_step(job, settings))
    start, reference_folder = Path(job.start.path), Path((job.reference or job.start).path)
    engine = _make_engine(start if settings.lora else folder or start, device, job, settings, ranks)
    if settings.lora:
        add_adapters(engine.model, settings.lora, seed_for(job.run_seed, job.key, "adapters"))
        if folder:
            load_adapters(engine.model, folder / ADAPTER)
    if settings.lora and job.reference in (None, job.start):
        reference = engine.model  # without its adapters it is the start
    else:
        reference = _make_engine(reference_folder, device, job, settings, ranks).model.requires_grad_(False)
    optimiser = make_optimiser(engine.model, job.training)
    if folder:
        load_optimiser(folder, optimiser)
    elif job.rounds and job.rounds.optimiser:
        load_optimiser(Path(job.rounds.optimiser.path), optimiser)
    learner = Learner(
        job, settings, ranks, reward, engine, make_sampler(job, settings, engine, ranks), reference, optimiser
    )
    for model in {engine.model, reference}:
        # The embedding takes part in every pass, whichever of the model's methods begins it.
        model.get_input_embeddings().register_forward_pre_hook(beat)
    saved = read_state(folder) if folder else State(fingerprint(job, settings), 0, ())
    metrics = list(saved.metrics)
    while not _ended(job, metrics):
        if ranks.agree(stopped()):
            return
        step = len(metrics) + 1
        faultpoint("step begun", f"{job.key}/{step}")
        metrics.append(take_step(learner, step))
        faultpoint("step ended", f"{job.key}/{step}")
        if ranks.rank == 0:
            report(metrics[-1])
        if step % job.training.checkpoint_every == 0 or _ended(job, metrics):
            learner.sampler.save(step)
            state, writes = State(saved.job, step, tuple(metrics)), ranks.rank == 0
            save_step(job.work_dir, state, engine.model, engine.tokenizer, optimiser, writes=writes)
    if ranks.rank == 0 and not final_folder(job.work_dir).exists():
        save_final(job.work_dir, len(metrics), engine.model, with_optimiser=job.rounds is not None)
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
    if settings.precision == "bfloat16":
        compute_in_bfloat16(engine.model)
    if settings.checkpoint_activations:
        checkpoint_layers(engine.model)
    if job.training.sharded and ranks.size > 1:
        shard(engine.model, ranks.size)
    return engine
