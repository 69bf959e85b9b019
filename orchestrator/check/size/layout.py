"""Who holds which GPU: the trainer and the Serve applications of a preset, and what could be had of other GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from core.settings.config import RunConfig
from core.settings.trainers import EasyR1Settings
from core.types import Role, Stage
from orchestrator.check.size.assumptions import GIB, Assumptions
from orchestrator.check.size.shapes import SizingError
from orchestrator.serving.applications import ROLES, Application, is_vllm, read_applications
from services.inference.engines.base import MAX_ROWS, WAITING_ROWS
from trainers.base import TrainError
from trainers.easyr1.fit import refuse_layout

Device = Literal["gpu", "cpu"]
TRAINING: tuple[Stage, ...] = ("train_challenger", "train_solver", "train_labelled")
ASKED: Mapping[Stage, tuple[Role, ...]] = {
    "train_challenger": ("solver",),
    "generate_questions": ("challenger",),
    "label_questions": ("solver",),
    "evaluate": ("solver",),
    "evaluate_labelled": ("solver",),
}
_LARGE = 10**8  # parameters from which on the embedded trainer is taken to have a GPU
_VLLM_SHARE, _VLLM_SEQUENCES = 0.92, 256  # what the engines do where a file does not say
_SMALL_CACHE = 4 * GIB  # bytes, where an application shares its GPU with the trainer
_NO_SET = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class App:
    """A Serve application. `gpus`: what a replica reserves of Ray, over its tensor-parallel ranks; 0 of a GPU that it
    uses all the same is `unreserved`."""

    name: str
    engine: Literal["vllm", "embedded"]
    device: Device
    replicas: int
    gpus: float
    tensor_parallel: int = 1
    memory_share: float | None = None  # of each GPU; None: as much as it takes
    kv_bytes: int | None = None  # of the KV cache, where it is given
    context: int | None = None  # tokens of a prompt and its answer
    sequences: int = _VLLM_SEQUENCES  # at once
    swapped: bool = True  # between checkpoints; else it holds a model of its own

    @property
    def unreserved(self) -> bool:
        return self.device == "gpu" and self.gpus == 0

    @property
    def devices(self) -> int:
        """GPUs that work for it."""
        return self.replicas * self.tensor_parallel if self.device == "gpu" else 1


@dataclass(frozen=True, slots=True)
class Trainer:
    """Who trains, and on what; some settings are EasyR1's, some the embedded trainer's."""

    kind: Literal["easyr1", "local"]
    device: Device
    gpus: int  # or workers, on a CPU
    nodes: int = 1
    tensor_parallel: int = 1
    memory_share: float = 0.0
    micro_batch: int = 1
    offload: bool = False
    sharded: bool = False
    sampling_rows: int = MAX_ROWS
    checkpointed: bool = False  # activations
    entropy_bonus: bool = False

    @property
    def in_float32(self) -> bool:
        """On a GPU, whose other work is in bfloat16."""
        return self.kind == "local" and self.device == "gpu"


@dataclass(frozen=True, slots=True)
class Layout:
    """All of it. `release`: a stage stops the applications that it does not ask."""

    trainer: Trainer
    apps: tuple[App, ...]
    release: bool

    def app(self, name: str) -> App:
        return next(app for app in self.apps if app.name == name)

    def resident(self, stage: Stage, config: RunConfig) -> tuple[App, ...]:
        """The applications that are up in a stage, from the second iteration on."""
        if self.release:
            served = config.solver.signals.served(config.solver.reward) if stage == "train_solver" else {}
            asked = {config.application(role) for role in ASKED.get(stage, ())}
            return tuple(app for app in self.apps if app.name in (*asked, *served))
        swapped = {config.application(role) for role in config.roles}
        return tuple(app for app in self.apps if app.name in swapped or not app.swapped)

    def places(self, stage: Stage, config: RunConfig) -> dict[str, list[int]]:
        """Holder -> the GPUs it has in a stage, one place a replica's rank.

        As Ray gives them out on one node: whole ones in order, a share to the fullest GPU that has it left. Ray may
        number them otherwise; how many there are does not depend on that.
        """
        left: list[float] = []
        holders: dict[str, list[int]] = {}
        if stage in TRAINING and self.trainer.device == "gpu":
            holders["trainer"] = list(range(self.trainer.gpus))
            left = [0.0] * self.trainer.gpus
        for app in sorted(self.resident(stage, config), key=lambda app: -app.gpus):
            if app.device == "cpu":
                continue
            ranks = app.replicas * app.tensor_parallel
            share = app.gpus / app.tensor_parallel
            holders[app.name] = list(range(ranks)) if share == 0 else [_take(left, share) for _ in range(ranks)]
        return holders

    def needed(self, config: RunConfig, stages: tuple[Stage, ...]) -> int:
        """GPUs that the stages need, the one with the most."""
        return max((max(gpus) + 1 for s in stages for gpus in self.places(s, config).values() if gpus), default=0)


def _take(left: list[float], share: float) -> int:
    """Give out `share` of the fullest GPU that has it, or of a new one."""
    fitting = [at for at, free in enumerate(left) if free >= share - 1e-9]
    at = min(fitting, key=lambda at: left[at]) if fitting else len(left)
    if at == len(left):
        left.append(1.0)
    left[at] -= share
    return at


def layout_of(config: RunConfig, parameters: int) -> Layout:
    """What the preset and its Serve file say. Raises `ConfigError`."""
    apps = tuple(
        _app(name, application) for name, application in read_applications(config.serving.applications).items()
    )
    on_gpu = parameters >= _LARGE or any(app.device == "gpu" for app in apps)
    return Layout(_trainer(config, on_gpu), apps, config.serving.release)


def _trainer(config: RunConfig, on_gpu: bool) -> Trainer:
    settings = config.trainer
    if not isinstance(settings, EasyR1Settings):
        training = config.solver.training
        return Trainer(
            "local",
            "gpu" if on_gpu and settings.device == "auto" else "cpu",
            training.workers,
            micro_batch=training.micro_batch,
            sharded=training.sharded and training.workers > 1,
            sampling_rows=settings.sampling_rows,
            checkpointed=settings.checkpoint_activations,
            entropy_bonus=any(planned.objective.entropy_coefficient > 0 for planned in config.trainings),
        )
    return Trainer(
        "easyr1",
        "gpu",
        settings.nodes * settings.gpus_per_node,
        settings.nodes,
        settings.tensor_parallel,
        settings.gpu_memory_share,
        settings.update_micro_batch,
        settings.offload,
    )


def _app(name: str, application: Application) -> App:
    if not is_vllm(application):
        deployment = (application.get("deployments") or [{}])[0]
        args = application.get("args", {})
        device: Device = "cpu" if args.get("device", "cpu") == "cpu" else "gpu"
        rows = args.get("max_rows", MAX_ROWS) + args.get("waiting_rows", WAITING_ROWS)
        gpus = float(deployment.get("ray_actor_options", {}).get("num_gpus", 0))
        return App(name, "embedded", device, int(deployment.get("num_replicas", 1)), gpus, sequences=rows)
    llm: dict[str, Any] = application["args"]["llm_configs"][0]
    engine, deployment = llm.get("engine_kwargs", {}), llm.get("deployment_config", {})
    ranks = engine.get("tensor_parallel_size", 1) * engine.get("pipeline_parallel_size", 1)
    gpus = _vllm_gpus(llm.get("placement_group_config"), ranks)
    hidden = gpus == 0 and _NO_SET not in llm.get("runtime_env", {}).get("env_vars", {})
    scaled = deployment.get("autoscaling_config", {}).get("max_replicas", 1)
    return App(
        name,
        "vllm",
        "cpu" if hidden else "gpu",
        deployment.get("num_replicas", scaled),
        gpus,
        ranks,
        engine.get("gpu_memory_utilization", _VLLM_SHARE),
        engine.get("kv_cache_memory_bytes"),
        engine.get("max_model_len"),
        engine.get("max_num_seqs", _VLLM_SEQUENCES),
        "deployments" in application,
    )


def _vllm_gpus(placement: dict[str, Any] | None, ranks: int) -> float:
    if placement is None:
        return float(ranks)
    if per_worker := placement.get("bundle_per_worker"):
        return float(per_worker.get("GPU", 0)) * ranks
    return float(sum(bundle.get("GPU", 0) for bundle in placement.get("bundles", [])))


def proposals(config: RunConfig, base: Layout, gpus: int, assumed: Assumptions) -> Iterator[Layout]:
    """Layouts of up to `gpus` GPUs for a preset that EasyR1 trains and vLLM serves, whether they fit or not.

    `release` is on, so the Challenger may have all GPUs in its one stage. The trainer and the Solver are at work
    together in `train_challenger`: they share the GPUs out between them, and one GPU they share. Memory settings are
    tried from the fastest to the most careful.
    """
    if base.trainer.kind != "easyr1" or any(app.device == "cpu" for app in base.apps):
        raise SizingError(
            "--gpus: expected a preset that EasyR1 trains and vLLM serves, as rzero-qwen3-4b; this one has trainer "
            f"{base.trainer.kind} and the applications {config.serving.applications}"
        )
    if gpus == 1:
        shared = tuple(replace(app, replicas=1, gpus=0.0, kv_bytes=app.kv_bytes or _SMALL_CACHE) for app in base.apps)
        yield from (Layout(trainer, shared, True) for trainer in _careful(config, base.trainer, 1, 1))
        return
    for count in range(1, gpus + 1):
        nodes = -(-count // assumed.gpus_per_node)
        if nodes > assumed.trainer_nodes or (nodes > 1 and count % assumed.gpus_per_node):
            continue
        beside = gpus - count if any(planned.table == "challenger" for planned in config.trainings) else gpus
        for trainer in _careful(config, base.trainer, count, nodes):
            apps = tuple(_spread(app, beside if app.name == "solver" else gpus) for app in base.apps)
            if all(app.replicas for app in apps):
                yield Layout(trainer, apps, True)


def _spread(app: App, gpus: int) -> App:
    if not app.swapped:
        return app
    return replace(app, replicas=gpus // app.tensor_parallel, gpus=float(app.tensor_parallel))


def _careful(config: RunConfig, base: Trainer, gpus: int, nodes: int) -> Iterator[Trainer]:
    """With less and less memory in use, of those that EasyR1 can deal its batches out to."""
    for offload in sorted({base.offload, True}):
        for micro_batch in sorted({base.micro_batch, 2, 1} - set(range(base.micro_batch + 1, 3)), reverse=True):
            trainer = replace(base, gpus=gpus, nodes=nodes, offload=offload, micro_batch=micro_batch)
            if _deals_out(config, trainer):
                yield trainer


def _deals_out(config: RunConfig, trainer: Trainer) -> bool:
    if not isinstance(config.trainer, EasyR1Settings):
        return False
    changed = {
        "nodes": trainer.nodes,
        "gpus_per_node": trainer.gpus // trainer.nodes,
        "update_micro_batch": trainer.micro_batch,
    }
    settings = config.trainer.model_copy(update=changed)
    try:
        for planned in config.trainings:
            refuse_layout(planned.training, planned.rollouts, settings)
    except TrainError:
        return False
    return True


__all__ = ["ASKED", "ROLES", "TRAINING", "App", "Layout", "Trainer", "layout_of", "proposals"]
