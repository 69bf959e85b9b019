"""What lies in a GPU's memory and on the disk, line by line, in GiB. docs/presets.md says it in words."""

from __future__ import annotations

from dataclasses import dataclass

from core.settings.config import RunConfig, SelfTraining
from core.settings.trainers import EasyR1Settings, LocalSettings
from orchestrator.check.layout import App
from orchestrator.check.size.shapes import Shape, shape_of
from trainers.base import LARGEST_LOGITS

GIB = 1024**3
USABLE = 0.95  # of a GPU's memory; the rest is what an allocator cannot hand out
OTHER_FILES = 2 * GIB  # an allowance for the database, the texts and the logs
_CONTEXT = 1.5 * GIB  # of each process: CUDA's context and NCCL's buffers
_ENGINE = 3.0 * GIB  # of vLLM: CUDA's context, graphs, and the activations of a batch
# Step folders on the disk while the newest is written; iterations that are a best one; moments of rounds.
_STEPS_KEPT, _BEST_KEPT, _MOMENTS_KEPT = 3, 3, 3
Lines = dict[str, float]  # what -> GiB


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one holder on each of its GPUs. `problem` says why it cannot work at all."""

    holder: str  # "trainer", twice: while it samples and while it updates; or an application
    title: str
    lines: Lines
    problem: str | None = None

    @property
    def gib(self) -> float:
        return sum(self.lines.values())


def app_memory(app: App, shape: Shape, longest: int, gpu_memory: float) -> Memory:
    """Of a replica, on each GPU of its own. `longest`: tokens of the longest answer and its prompt."""
    title = f"{app.name} application, {app.engine}"
    if not app.swapped:
        return Memory(app.name, title, {"a model of its own": app.memory_share * gpu_memory})
    weights, row = 2 * shape.parameters / app.tensor_parallel, shape.kv_bytes() / app.tensor_parallel
    if app.engine == "embedded":
        return Memory(app.name, title, _gib({"weights, bfloat16": weights, "KV cache": app.rows * longest * row}))
    cache = app.memory_share * gpu_memory * GIB - weights - _ENGINE if app.kv_bytes is None else app.kv_bytes
    context = app.context or shape.max_position_embeddings
    problem = None if cache >= row * context else f"its KV cache does not hold one answer of {context:,} tokens"
    lines = {"weights, bfloat16": weights, "context, graphs, activations": _ENGINE, "KV cache": cache}
    return Memory(app.name, title, _gib(lines), problem)


def trainer_memory(
    config: RunConfig, gpus: int, shape: Shape, longest: int, gpu_memory: float
) -> tuple[Memory, Memory]:
    """Of the trainer on each of its GPUs: while it samples, and while it updates."""
    settings, training = config.trainer, config.solver.training
    layers, hidden, inside = shape.num_hidden_layers, shape.hidden_size, shape.intermediate_size
    sharded = isinstance(settings, EasyR1Settings) or (training.sharded and training.workers > 1)
    share = shape.parameters / gpus if sharded else shape.parameters
    context = {"context": _CONTEXT}
    lora = settings.lora if isinstance(settings, LocalSettings) else None
    learned = shape.adapters(lora.rank) if lora else share
    states = {"weights, float32": 4 * share, "AdamW's moments, float32": 8 * learned, "reference, float32": 4 * share}
    if lora:
        states["weights, float32"] += 4 * learned
        if not (isinstance(config, SelfTraining) and config.iterations > 1):
            del states["reference, float32"]  # it is the model without its adapters
    updating = {**states, **context, "gradients, float32": 4 * learned}
    if isinstance(settings, EasyR1Settings):
        engine, ranks = settings.gpu_memory_share * gpu_memory * GIB, settings.tensor_parallel
        sampling = {**context, "vLLM, for the rollouts": engine}
        if settings.offload:  # to the machine's memory: all while it samples, the reference always
            del updating["reference, float32"]
        else:
            sampling |= states
        tokens = settings.update_micro_batch * longest
        updating["gathered, bfloat16"] = 4 * (shape.embedding + 2 * shape.layer)
        updating["activations, bfloat16"] = 2 * tokens * (layers * hidden + 8 * hidden + 4 * inside)
        updating["logits and their gradient"] = 4 * tokens * shape.vocab_size
        updating["vLLM asleep"] = 1.0 * GIB
        fits = engine - 2 * shape.parameters / ranks - _ENGINE >= shape.kv_bytes() / ranks * longest
        problem = None if fits else f"trainer.gpu_memory_share: vLLM's KV cache does not hold {longest:,} tokens"
    else:
        rows = min(-(-training.prompts_per_step * config.solver.rollouts // gpus), settings.sampling_rows)
        width = 2 if settings.precision == "bfloat16" else 4
        one_layer = width * (16 * hidden + 6 * inside)
        tokens = max(settings.tokens_per_micro_batch or training.micro_batch * longest, longest)
        kept = 4 * layers * hidden + one_layer if settings.checkpoint_activations else layers * one_layer
        if width == 2 and not settings.checkpoint_activations:
            updating["weights, bfloat16"] = 2 * shape.parameters
        copies = 5 if any(planned.objective.entropy_coefficient > 0 for planned in config.trainings) else 3
        sampling, problem = {**states, **context}, None
        if sharded:  # all weights and one part of them on its way; while it updates, a layer at a time
            if not config.application_samples:
                sampling["gathered, float32"] = 4 * (shape.parameters + max(shape.outside, shape.layer))
            updating["gathered, float32"] = 8 * shape.outside + 20 * shape.layer
        if not config.application_samples:  # the cache is copied a layer at a time as it grows by a token
            sampling[f"KV cache, {settings.precision}"] = (
                rows * longest * (shape.kv_bytes(width) // layers * (layers + 1))
            )
        updating[f"activations, {settings.precision}"] = tokens * kept
        logits = min(tokens * shape.vocab_size, LARGEST_LOGITS)
        updating["logits, float32"] = 4 * copies * logits  # more with an entropy's gradient
    return (
        Memory("trainer", "trainer, while it samples", _gib(sampling), problem),
        Memory("trainer", "trainer, while it updates", _gib(updating)),
    )


def checkpoint_bytes(config: RunConfig) -> int:
    """The bytes of a published checkpoint that was trained: EasyR1's merger writes bfloat16. Raises `SizingError`."""
    return (2 if isinstance(config.trainer, EasyR1Settings) else 4) * shape_of(config.base_model).parameters


def disk_lines(config: RunConfig) -> Lines:
    """What the disk has to hold for a run at its fullest, the training in progress included. Raises `SizingError`."""
    parameters, keep = shape_of(config.base_model).parameters, config.checkpoints.keep
    # A training on labelled data publishes a checkpoint of its own only if it is a branch.
    roles = [planned.table for planned in config.trainings if planned.table != "labelled" or config.has_branch]
    every = config.iterations // keep if isinstance(keep, int) else 0
    iterations = config.iterations if keep == "all" else min(config.iterations, every + _BEST_KEPT + 2)
    lora = config.trainer.lora if isinstance(config.trainer, LocalSettings) else None
    trained = shape_of(config.base_model).adapters(lora.rank) if lora else parameters
    lines = {
        "checkpoints": checkpoint_bytes(config) * (1 + len(roles) * iterations),
        "the training at work": _STEPS_KEPT * 12 * trained,  # weights and AdamW's moments, in float32
    }
    if config.rounds_are_one_training:
        lines["AdamW's moments of rounds"] = _MOMENTS_KEPT * 8 * parameters
    return _gib({**lines, "database, texts and logs": OTHER_FILES})


def _gib(lines: dict[str, float]) -> Lines:
    return {what: size / GIB for what, size in lines.items()}
