"""What lies in a GPU's memory, line by line, in GiB. Formulas, and no measurement: docs/sizing.md."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.check.size.assumptions import GIB, Assumptions
from orchestrator.check.size.layout import App, Trainer
from orchestrator.check.size.shapes import Shape

CONTEXT_GIB = 1.5  # of each process: CUDA's context and NCCL's buffers
ENGINE_GIB = 3.0  # of vLLM: CUDA's context, graphs, and the activations of a batch
USABLE = 0.95  # of a GPU's memory; the rest is what an allocator cannot hand out


@dataclass(frozen=True, slots=True)
class Line:
    """One part: what it is, how it is reckoned, GiB."""

    what: str
    how: str
    gib: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one holder on each of its GPUs, or in the machine's memory; `problem` says why it cannot work at all."""

    title: str
    lines: tuple[Line, ...]
    note: str = ""
    problem: str | None = None

    @property
    def gib(self) -> float:
        return sum(line.gib for line in self.lines)


def app_memory(app: App, shape: Shape, longest: int, assumed: Assumptions) -> Memory:
    """Of a replica, on each GPU of its own. `longest`: tokens of the longest answer and its prompt."""
    title = f"{app.name} application, {app.engine}" + (
        ", on each of its GPUs" if app.device == "gpu" else ", a replica"
    )
    if not app.swapped:
        share = app.memory_share or 1.0
        return Memory(
            title, (Line("a model of its own", f"{share:g} x {assumed.gpu_memory:g}", share * assumed.gpu_memory),)
        )
    width = 2 if app.device == "gpu" else 4
    number, ranks = power(shape.parameters), app.tensor_parallel
    weights = Line(_typed("weights", width), f"{width} x {number} / {ranks}", width * shape.parameters / ranks / GIB)
    if app.engine == "embedded":
        cache = app.sequences * longest * shape.kv_bytes(width) / GIB
        how = f"at most {app.sequences} answers x {longest:,} tokens x {shape.kv_bytes(width):,} bytes"
        return Memory(title, (weights, Line("KV cache", how, cache)))
    own = Line("context, graphs, activations", "assumed", ENGINE_GIB if app.device == "gpu" else 0.0)
    row = shape.kv_bytes(width) / ranks
    if app.kv_bytes is not None:
        cache, how = app.kv_bytes / GIB, "kv_cache_memory_bytes"
    else:
        share = app.memory_share or 1.0
        cache = share * assumed.gpu_memory - weights.gib - own.gib
        how = f"{share:g} x {assumed.gpu_memory:g} less the lines above"
    context = app.context or shape.max_position_embeddings
    fits = cache * GIB / row / context
    problem = None if fits >= 1 else f"its KV cache does not hold one answer of {context:,} tokens"
    note = (
        f"{row:,.0f} bytes a token: room for {max(cache, 0) * GIB / row:,.0f} tokens, which is {max(fits, 0):.1f} "
        f"answers as long as its context ({context:,}) of the {app.sequences} that it may take at once; "
        "the others wait"
    )
    return Memory(title, (weights, own, Line("KV cache", how, cache)), note, problem)


def trainer_memory(trainer: Trainer, shape: Shape, longest: int, rows: int, assumed: Assumptions) -> tuple[Memory, ...]:
    """Of the trainer on each of its GPUs: while it samples, and while it updates. `rows`: answers that one of them
    samples in a step."""
    return (
        _easyr1(trainer, shape, longest, assumed) if trainer.kind == "easyr1" else _local(trainer, shape, longest, rows)
    )


def _easyr1(trainer: Trainer, shape: Shape, longest: int, assumed: Assumptions) -> tuple[Memory, ...]:
    p, offload = shape.parameters, trainer.offload
    of_gpu = f"{power(p)} / {trainer.gpus} GPU{'s' * (trainer.gpus > 1)}"

    def shard(what: str, width: int, *, gone: bool = False) -> Line:
        if gone:
            return Line(what, "in the machine's memory (trainer.offload)", 0.0)
        return Line(what, f"{width} x {of_gpu}", width * p / trainer.gpus / GIB)

    weights, moments = "weights, float32", "AdamW's two moments, float32"
    reference = shard("reference, float32", 4, gone=offload)
    sampling = (shard(weights, 4, gone=offload), shard(moments, 8, gone=offload), reference)
    updating = (shard(weights, 4), shard("gradients, float32", 4), shard(moments, 8), reference)
    return (
        _easyr1_samples(trainer, shape, longest, assumed, sampling),
        _easyr1_updates(trainer, shape, longest, updating),
    )


def _easyr1_samples(
    trainer: Trainer, shape: Shape, longest: int, assumed: Assumptions, states: tuple[Line, ...]
) -> Memory:
    share, ranks = trainer.memory_share, trainer.tensor_parallel
    engine, weights = share * assumed.gpu_memory, 2 * shape.parameters / ranks / GIB
    answers = (engine - weights - ENGINE_GIB) * GIB / (shape.kv_bytes() / ranks) / longest
    return Memory(
        "trainer, on each of its GPUs, while it samples",
        (
            *states,
            Line("vLLM, for the rollouts", f"gpu_memory_share {share:g} x {assumed.gpu_memory:g}", engine),
            Line("context", "assumed", CONTEXT_GIB),
        ),
        f"in it weights of {weights:.1f} GiB, and a KV cache for {max(answers, 0):.1f} answers of {longest:,} tokens",
        None if answers >= 1 else f"trainer.gpu_memory_share: vLLM's KV cache does not hold {longest:,} tokens",
    )


def _easyr1_updates(trainer: Trainer, shape: Shape, longest: int, states: tuple[Line, ...]) -> Memory:
    tokens, layers, hidden = trainer.micro_batch * longest, shape.num_hidden_layers, shape.hidden_size
    inside = 8 * hidden + 4 * shape.intermediate_size
    gathered = f"2 x 2 x ({shape.embedding / 1e6:,.0f}e6 embeddings + 2 x {shape.layer / 1e6:,.0f}e6 layers)"
    kept = f"2 x {tokens:,} tokens x ({layers} x {hidden:,} + one layer's {inside:,})"
    logits = f"2 x 2 x {tokens:,} tokens x {shape.vocab_size:,}"
    return Memory(
        "trainer, on each of its GPUs, while it updates",
        (
            *states,
            Line("gathered, bfloat16", gathered, 4 * (shape.embedding + 2 * shape.layer) / GIB),
            Line("activations, bfloat16", kept, 2 * tokens * (layers * hidden + inside) / GIB),
            Line("logits and their gradient", logits, 4 * tokens * shape.vocab_size / GIB),
            Line("context, and vLLM asleep", "assumed", CONTEXT_GIB + 1.0),
        ),
        _micro_batch(trainer, longest),
    )


def _local(trainer: Trainer, shape: Shape, longest: int, rows: int) -> tuple[Memory, ...]:
    """All of it in float32; each worker holds the whole, or its share (trainers/local/sharding.py)."""
    p, number = shape.parameters, power(shape.parameters)
    workers = trainer.gpus if trainer.sharded else 1
    shard = f"{number} / {workers} workers" if trainer.sharded else number
    where = "on each of its GPUs" if trainer.device == "gpu" else "a worker"

    def share(what: str, width: int) -> Line:
        return Line(f"{what}, float32", f"{width} x {shard}", width * p / workers / GIB)

    held = (share("weights", 4), share("AdamW's two moments", 8), share("reference", 4))
    context = (Line("context", "assumed", CONTEXT_GIB),) if trainer.device == "gpu" else ()
    sampling = (*held, *_gathered_to_sample(trainer, shape), _growing_cache(trainer, shape, longest, rows), *context)
    updating = (
        *held,
        share("gradients", 4),
        *_gathered_to_update(trainer, shape),
        *_activations(trainer, shape, longest),
        *context,
    )
    return (
        Memory(f"trainer, {where}, while it samples", sampling, _batches_of(trainer, rows)),
        Memory(f"trainer, {where}, while it updates", updating, _micro_batch(trainer, longest)),
    )


def _gathered_to_sample(trainer: Trainer, shape: Shape) -> tuple[Line, ...]:
    """What sharded workers hold whole beside their shares: all weights, and one part of them on its way."""
    if not trainer.sharded:
        return ()
    part = max(shape.outside, shape.layer)
    how = f"4 x {power(shape.parameters)} + 4 x {part / 1e6:,.0f}e6 (the largest part again)"
    return (Line("gathered weights, float32", how, 4 * (shape.parameters + part) / GIB),)


def _gathered_to_update(trainer: Trainer, shape: Shape) -> tuple[Line, ...]:
    if not trainer.sharded:
        return ()
    how = f"8 x {shape.outside / 1e6:,.0f}e6 outside the layers + 20 x {shape.layer / 1e6:,.0f}e6 of a layer"
    return (Line("gathered, float32", how, (8 * shape.outside + 20 * shape.layer) / GIB),)


def _growing_cache(trainer: Trainer, shape: Shape, longest: int, rows: int) -> Line:
    """A cache that is copied a layer at a time as it grows by a token."""
    at_once, layers = min(rows, trainer.sampling_rows), shape.num_hidden_layers
    row = shape.kv_bytes(4) // layers * (layers + 1)
    how = f"at most {at_once} answers x {longest:,} tokens x {row:,} bytes, of {layers} layers and a copy of one"
    return Line("KV cache, float32", how, at_once * longest * row / GIB)


def _activations(trainer: Trainer, shape: Shape, longest: int) -> tuple[Line, ...]:
    tokens, layers = trainer.micro_batch * longest, shape.num_hidden_layers
    inside = 16 * shape.hidden_size + 6 * shape.intermediate_size
    if trainer.checkpointed:
        numbers = layers * shape.hidden_size + inside
        how = f"4 x {tokens:,} tokens x ({layers} x {shape.hidden_size:,} + one layer's {inside:,})"
    else:
        numbers, how = layers * inside, f"4 x {tokens:,} tokens x {layers} layers x {inside:,}"
    copies, word = (5, "five times") if trainer.entropy_bonus else (3, "three times")
    return (
        Line("activations, float32", how, 4 * tokens * numbers / GIB),
        Line(
            f"logits, float32, {word}",
            f"{4 * copies} x {tokens:,} tokens x {shape.vocab_size:,}",
            4 * copies * tokens * shape.vocab_size / GIB,
        ),
    )


def _batches_of(trainer: Trainer, rows: int) -> str:
    if rows <= trainer.sampling_rows:
        return ""
    count = -(-rows // trainer.sampling_rows)
    return f"a worker's {rows} answers of a step are sampled {trainer.sampling_rows} at a time, {count} times"


def _micro_batch(trainer: Trainer, longest: int) -> str:
    return f"a micro batch of {trainer.micro_batch} x {longest:,} tokens at most"


def power(value: float) -> str:
    """4.02e9"""
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _typed(what: str, width: int) -> str:
    return f"{what}, {'bfloat16' if width == 2 else 'float32'}"
