"""From a configuration to GPUs by stage, memory, tokens and hours.

What follows from the configuration alone is exact: parameters, answers, which stage needs which application. The hours
are FLOPs divided by assumed speeds; `measured` has those of finished runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.settings.config import RunConfig
from core.settings.trainers import EasyR1Settings, LocalSettings
from core.types import Stage
from orchestrator.check.layout import TRAINING, Layout, layout_of
from orchestrator.check.size.memory import USABLE, Memory, app_memory, trainer_memory
from orchestrator.check.size.shapes import Shape, shape_of
from orchestrator.check.size.work import work_of
from orchestrator.plan import stages_of

GPU_MEMORY = 80.0  # GiB, of one GPU, where the machine has none
# Assumed. The peak is the data sheet's of an H100 SXM, dense, in bfloat16; a trainer may compute in float32.
_PEAK, _FLOAT32, _TRAINING, _SAMPLING = 989e12, 67 / 989, 0.3, 0.1
_SWAP = 1.5e9  # bytes a second in which a trainer's weights, in bfloat16, get to an application that samples
# From one token of an answer to the next, on a GPU: assumed for vLLM; measured for transformers with 28 layers, which
# starts many small operations (docs/gpu.md).
_TOKEN_S, _EMBEDDED_TOKEN_S = 0.01, 0.07
_TYPICAL = 0.25  # of its max_tokens that an answer has
_PROMPT, _LONGEST_PROMPT = 256, 1024  # tokens
Range = tuple[float, float]  # typical, and at most, if all answers have their max_tokens


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """`gpus`: holder -> the GPUs that it has."""

    stage: Stage
    gpus: dict[str, list[int]]
    fullest_gib: float  # on its fullest GPU
    million_tokens: Range  # that are sampled
    hours: Range


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run takes. `problems` is empty if it fits."""

    config: RunConfig
    shape: Shape
    layout: Layout
    gpu_memory: float  # GiB, of one GPU
    before: tuple[StageEstimate, ...]  # iteration 0
    stages: tuple[StageEstimate, ...]  # of each iteration from 1 on
    memory: tuple[Memory, ...]
    problems: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """Those of the stage that needs most; 0: the run needs none."""
        places = [places for stage in (*self.before, *self.stages) for places in stage.gpus.values()]
        return max((max(gpus) + 1 for gpus in places), default=0)

    @property
    def hours(self) -> Range:
        """Of one iteration."""
        return sum(stage.hours[0] for stage in self.stages), sum(stage.hours[1] for stage in self.stages)

    @property
    def run_hours(self) -> Range:
        """Of the whole run. Without GPUs they are off by far, and good only to compare settings."""
        typical, most = (sum(stage.hours[end] for stage in self.before) for end in (0, 1))
        count = self.config.iterations
        return typical + count * self.hours[0], most + count * self.hours[1]


def estimate(config: RunConfig, gpu_memory: float = GPU_MEMORY) -> Estimate:
    """What a run takes on GPUs of `gpu_memory` GiB. Raises `SizingError`, `ConfigError`, `BenchmarkError`."""
    shape = shape_of(config.base_model)
    layout, parameters = layout_of(config, shape), shape.parameters
    stages = {t: stages_of(config, t) for t in (0, 1)}
    work = {stage: [*work_of(config, stage)] for t in stages for stage in stages[t]}
    places = {stage: layout.places(stage, config) if work[stage] or stage not in TRAINING else {} for stage in work}

    memory = list[Memory]()
    for holder in dict.fromkeys(["trainer", *(app.name for app in layout.apps)]):
        limits = [part.max_tokens for parts in work.values() for part in parts if part.holder == holder]
        longest = min(max(limits, default=0) + _LONGEST_PROMPT, shape.max_position_embeddings)
        if holder == "trainer" and layout.trainer_gpus:
            memory += trainer_memory(config, layout.trainer_gpus, shape, longest, gpu_memory)
        for app in layout.apps:  # those that are up in some stage
            if app.name == holder and any(holder in held for held in places.values()) and (limits or not app.swapped):
                memory.append(app_memory(app, shape, longest, gpu_memory))
    gib = {part.holder: max(other.gib for other in memory if other.holder == part.holder) for part in memory}

    devices = {"trainer": layout.trainer_gpus or layout.workers, **{app.name: app.devices for app in layout.apps}}
    embedded = {"trainer": isinstance(config.trainer, LocalSettings)}
    embedded |= {app.name: app.engine == "embedded" for app in layout.apps}
    on_gpu = {"trainer": layout.trainer_gpus > 0, **{app.name: app.on_gpu for app in layout.apps}}
    found = dict[Stage, StageEstimate]()
    for stage, parts in work.items():
        tokens, seconds = [0.0, 0.0], [0.0, 0.0]
        for part in parts:
            speed = devices[part.holder] * _PEAK * (_TRAINING if part.passes else _SAMPLING)
            if part.holder == "trainer" and getattr(config.trainer, "precision", "") == "float32":
                speed *= _FLOAT32
            token_s = _EMBEDDED_TOKEN_S if embedded[part.holder] else _TOKEN_S
            waiting = part.rounds * part.max_tokens * token_s * on_gpu[part.holder]
            swapping = part.swaps * 2 * parameters / _SWAP
            for end, share in enumerate((_TYPICAL, 1.0)):
                answered, read = part.answers * part.max_tokens * share, part.answers if part.passes else part.prompts
                tokens[end] += 0.0 if part.passes else answered / 1e6
                flops = 2.0 * parameters * (part.passes or 1) * (answered + read * _PROMPT)
                seconds[end] += max(flops / speed, waiting) + swapping
        on_each = [
            sum(gib.get(holder, 0.0) for holder, gpus in places[stage].items() if at in gpus)
            for at in {gpu for gpus in places[stage].values() for gpu in gpus}
        ]
        hours = seconds[0] / 3600, seconds[1] / 3600
        found[stage] = StageEstimate(stage, places[stage], max(on_each, default=0.0), (tokens[0], tokens[1]), hours)

    problems = [f"{part.title}: {part.problem}" for part in memory if part.problem] + [
        f"{stage}: {row.fullest_gib:.1f} GiB on its fullest GPU, of {USABLE * gpu_memory:.1f} that can be used"
        for stage, row in found.items()
        if row.fullest_gib > USABLE * gpu_memory
    ]
    before, later = (tuple(found[stage] for stage in stages[t]) for t in stages)
    return Estimate(config, shape, layout, gpu_memory, before, later, tuple(memory), tuple(problems))


def advice(found: Estimate) -> list[str]:
    """If it does not fit: the settings that would make it need less memory."""
    settings, training = found.config.trainer, found.config.solver.training
    offers = {"serving.release = true": not found.config.serving.release}
    if isinstance(settings, EasyR1Settings):
        offers["trainer.offload = true"] = not settings.offload
        offers["trainer.update_micro_batch = 1"] = settings.update_micro_batch > 1
    else:
        offers["trainer.lora"] = settings.lora is None and not found.config.rounds_are_one_training
        offers["sharded = true and several workers in [….training]"] = not (training.sharded or settings.lora)
        offers["trainer.checkpoint_activations = true"] = not settings.checkpoint_activations
        offers["a smaller trainer.sampling_rows"] = settings.sampling_rows > 1 and settings.sampler == "embedded"
        budget = settings.tokens_per_micro_batch is not None
        offers["a smaller trainer.tokens_per_micro_batch"] = budget
        offers["micro_batch = 1 in [….training]"] = training.micro_batch > 1 and not budget
    given = any(app.kv_bytes is not None for app in found.layout.apps)
    offers["a smaller kv_cache_memory_bytes in the file of serving.applications"] = given
    offers["more GPUs for the trainer, a smaller base model or shorter answers (max_tokens)"] = True
    return [offer for offer, helps in offers.items() if helps and found.problems]
