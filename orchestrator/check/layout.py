"""Who holds which GPU: the trainer and the Serve applications of a preset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from core.settings.config import RunConfig
from core.settings.trainers import EasyR1Settings
from core.types import Role, Stage
from orchestrator.check.size.shapes import Shape
from orchestrator.serving.applications import gpu_left_by, gpus_of, is_vllm, ranks_of, read_applications
from services.inference.engines.base import MAX_ROWS, WAITING_ROWS
from services.inference.serve import Application

_ASKED: Mapping[Stage, tuple[Role, ...]] = {
    "train_challenger": ("solver",),
    "generate_questions": ("challenger",),
    "label_questions": ("solver",),
    "admit_questions": ("solver",),
    "evaluate": ("solver",),
    "evaluate_labelled": ("solver",),
}
# Stage -> the role whose application samples the rollouts, if `trainer.sampler` says so.
_TRAINED: Mapping[Stage, Role] = {
    "train_challenger": "challenger",
    "train_solver": "solver",
    "train_labelled": "solver",
}
TRAINING: tuple[Stage, ...] = (*_TRAINED,)
_LARGE = 10**8  # parameters from which on the embedded trainer is taken to have a GPU
_VLLM_SHARE = 0.92  # what vLLM takes of a GPU where a file does not say
_NO_SET = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class App:
    """A Serve application. `gpus`: what a replica reserves of Ray, over its tensor-parallel ranks. It may be 0 for an
    application that uses a GPU all the same, that of the trainer."""

    name: str
    engine: Literal["vllm", "embedded"]
    on_gpu: bool
    replicas: int
    gpus: float
    tensor_parallel: int = 1
    memory_share: float = 1.0  # of each GPU
    kv_bytes: int | None = None  # of the KV cache, where it is given
    context: int | None = None  # tokens of a prompt and its answer
    rows: int = 0  # answers at once, of the embedded engine
    swapped: bool = True  # between checkpoints; else it holds a model of its own

    @property
    def devices(self) -> int:
        """GPUs that work for it."""
        return self.replicas * self.tensor_parallel if self.on_gpu else 1


@dataclass(frozen=True, slots=True)
class Layout:
    """`trainer_gpus`: those of the trainer in all, 0 if it trains on CPUs, or then `workers` processes. It reserves
    `trainer_share` of each."""

    trainer_gpus: int
    workers: int
    apps: tuple[App, ...]
    trainer_share: float = 1.0

    def places(self, stage: Stage, config: RunConfig) -> dict[str, list[int]]:
        """Holder -> the GPUs it has in a stage from the second iteration on, one place a replica's rank.

        As Ray gives them out on one node: whole ones in order, a share to the fullest GPU that has it left. Ray may
        number them otherwise; how many there are does not depend on that.
        """
        if config.serving.release:  # a stage stops the applications that it does not ask
            served = config.solver.signals.served(config.solver.reward) if stage == "train_solver" else ()
            sampling = [_TRAINED[stage]] if stage in TRAINING and config.application_samples else []
            up = {*map(config.application, [*_ASKED.get(stage, ()), *sampling]), *served}
        else:
            up = {*map(config.application, config.roles), *(app.name for app in self.apps if not app.swapped)}
        places = {"trainer": [*range(self.trainer_gpus)]} if stage in TRAINING and self.trainer_gpus else {}
        left = [1.0 - self.trainer_share] * len(places.get("trainer", []))  # the share of each GPU that nobody has
        for app in sorted((app for app in self.apps if app.on_gpu and app.name in up), key=lambda app: -app.gpus):
            ranks, share = app.replicas * app.tensor_parallel, app.gpus / app.tensor_parallel
            if not share:  # on the trainer's GPUs
                places[app.name] = [*range(ranks)]
                continue
            for _ in range(ranks):
                left += [] if any(free >= share - 1e-9 for free in left) else [1.0]
                at = min((free, at) for at, free in enumerate(left) if free >= share - 1e-9)[1]
                left[at] -= share
                places.setdefault(app.name, []).append(at)
        return places


def layout_of(config: RunConfig, shape: Shape) -> Layout:
    """What the preset and its Serve file say. Raises `ConfigError`."""
    applications = read_applications(config.serving.applications)
    apps = tuple(_app(name, application) for name, application in applications.items())
    settings, workers = config.trainer, config.solver.training.workers
    if isinstance(settings, EasyR1Settings):
        return Layout(settings.nodes * settings.gpus_per_node, 1, apps)
    on_gpu = settings.device == "auto" and (shape.parameters >= _LARGE or any(app.on_gpu for app in apps))
    share = gpu_left_by(applications, config.roles) if config.application_samples else 1.0
    return Layout(workers if on_gpu else 0, workers, apps, share)


def undivided(config: RunConfig, shape: Shape) -> Iterator[tuple[str, int]]:
    """Settings of tensor parallelism, with their values, that do not divide the model's attention heads."""
    ranks = [("serving.applications", app.tensor_parallel) for app in layout_of(config, shape).apps if app.swapped]
    if isinstance(config.trainer, EasyR1Settings):
        ranks.append(("trainer.tensor_parallel", config.trainer.tensor_parallel))
    yield from dict.fromkeys((name, count) for name, count in ranks if shape.num_attention_heads % count)


def _app(name: str, application: Application) -> App:
    if not is_vllm(application):
        deployment = (application.get("deployments") or [{}])[0]
        args = application.get("args", {})
        rows = args.get("max_rows", MAX_ROWS) + args.get("waiting_rows", WAITING_ROWS)
        on_gpu = args.get("device", "cpu") != "cpu"
        return App(name, "embedded", on_gpu, int(deployment.get("num_replicas", 1)), gpus_of(application), rows=rows)
    llm = application["args"]["llm_configs"][0]
    engine, deployment = llm.get("engine_kwargs", {}), llm.get("deployment_config", {})
    gpus, ranks = gpus_of(application), ranks_of(application)
    return App(
        name,
        "vllm",
        gpus > 0 or _NO_SET in llm.get("runtime_env", {}).get("env_vars", {}),
        deployment.get("num_replicas", deployment.get("autoscaling_config", {}).get("max_replicas", 1)),
        gpus,
        ranks,
        engine.get("gpu_memory_utilization", _VLLM_SHARE),
        engine.get("kv_cache_memory_bytes"),
        engine.get("max_model_len"),
        swapped="deployments" in application,
    )
