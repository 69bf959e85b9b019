"""The application that samples a training's rollouts, if `trainer.sampler` says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import ray

from core.settings.config import RunConfig
from core.settings.trainers import EasyR1Settings
from core.types import Checkpoint, Role
from orchestrator.installation.home import make_private
from orchestrator.serving.applications import dtype_of, is_vllm, read_applications
from orchestrator.stages.context import Context
from trainers.base import SamplerService, TrainJob

_ROOM = 6  # times the start's files: three folders are there at once, and may be of the wider type


def samples(config: RunConfig, role: Role, start: Checkpoint) -> dict[Role, Checkpoint]:
    """What the trained role's application holds when the training begins; empty if the trainer samples itself."""
    return {role: start} if config.application_samples else {}


def sampler_of(context: Context, job: TrainJob) -> SamplerService | None:
    """What the trainer must know of the application that samples; None if it samples itself."""
    config, services = context.config, context.run.services
    if isinstance(config.trainer, EasyR1Settings) or not config.application_samples:
        return None
    name = config.application(job.role)
    application = read_applications(config.serving.applications)[name]
    vllm = is_vllm(application)
    return SamplerService(
        url=services.endpoint(name),
        application=name,
        dashboard_url=services.dashboard_url,
        run=context.run.name,
        dtype=dtype_of(application),
        memory=_memory(context, job),
        logprobs_comparable=not vllm or job.training.sampling.temperature == 1,
        same_engine=not vllm,
        ahead=config.trainer.ahead,
    )


def _memory(context: Context, job: TrainJob) -> Path | None:
    """The home's folder in the memory of this machine, if all processes are here and there is room for the weights."""
    folder = context.run.home.memory
    nodes = [node for node in ray.nodes() if node["Alive"]]
    is_one_machine = len(nodes) == 1 and context.run.services.processes
    if not is_one_machine or not folder.parents[1].is_dir():
        return None
    weights = sum(file.stat().st_size for file in Path(job.start.path).glob("*.safetensors"))
    if shutil.disk_usage(folder.parents[1]).free < _ROOM * weights:
        return None
    make_private(folder.parent)
    make_private(folder)
    return folder
