"""The calculator: from a configuration and the assumptions to GPUs, memory, tokens and hours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations

from core.settings.config import RunConfig
from core.settings.trainers import EasyR1Settings
from core.types import Stage
from orchestrator.check.size.assumptions import FLOAT32_SHARE, Assumptions
from orchestrator.check.size.layout import TRAINING, Layout, layout_of, proposals
from orchestrator.check.size.memory import USABLE, Memory, app_memory, trainer_memory
from orchestrator.check.size.remedies import memory_changes, smallest
from orchestrator.check.size.shapes import Shape, SizingError, shape_of
from orchestrator.check.size.work import Work, work_of
from orchestrator.plan import stages_of

HOUR = 3600.0
Range = tuple[float, float]  # typical, maximum


@dataclass(frozen=True, slots=True)
class Part:
    """One holder's work in a stage: millions of tokens, 1e15 FLOPs and hours, each typical and at most.

    `waiting`: the hours that its rounds of sampling last at least, however many GPUs there are.
    """

    work: Work
    devices: int  # GPUs, or cores
    tokens: Range
    petaflops: Range
    waiting: float
    hours: Range


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A stage: what is done, and the GPUs that each holder has meanwhile. `working` holders are asked something."""

    stage: Stage
    parts: tuple[Part, ...]
    places: dict[str, list[int]]
    working: tuple[str, ...]

    @property
    def hours(self) -> Range:
        return _sum(part.hours for part in self.parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """All of it; `problems` is empty where it fits."""

    preset: str
    config: RunConfig
    assumed: Assumptions
    shape: Shape
    source: str
    layout: Layout
    gpus: int  # that it needs, or that were given
    before: tuple[StagePlan, ...]  # iteration 0
    stages: tuple[StagePlan, ...]  # of each iteration from 1 on
    memory: tuple[Memory, ...]
    fullest: dict[str, float]  # stage -> GiB on its fullest GPU
    problems: tuple[str, ...]
    proposed: bool  # the layout was found for a number of GPUs, and is not the preset's own
    remedy: tuple[str, ...] = ()  # the settings with which it fits the same GPUs, if there are such

    @property
    def hours(self) -> Range:
        """Of one iteration."""
        return _sum(stage.hours for stage in self.stages)

    @property
    def run_hours(self) -> Range:
        first = _sum(stage.hours for stage in self.before)
        return first[0] + self.config.iterations * self.hours[0], first[1] + self.config.iterations * self.hours[1]


def calculate(preset: str, config: RunConfig, assumed: Assumptions, gpus: int | None = None) -> Plan:
    """The preset as it is, or, where `gpus` are given, the fastest layout of up to so many that fits.

    Where none fits, the one that lacks least. Raises `SizingError`, `ConfigError`, `BenchmarkError`.
    """
    shape, source = shape_of(config.base_model)
    base = layout_of(config, shape.parameters)
    works = {t: [(stage, work_of(config, stage, assumed)) for stage in stages_of(config, t)] for t in (0, 1)}

    def of(layout: Layout) -> Plan:
        return _plan(preset, config, assumed, shape, source, layout, works, gpus)

    if gpus is None:
        return _with_remedy(of(base), of)
    stages = tuple(stage for t in works for stage, _ in works[t])
    layouts = [layout for layout in proposals(config, base, gpus, assumed) if layout.needed(config, stages) <= gpus]
    if not layouts:
        raise SizingError(
            f"--gpus: there is no layout of up to {gpus}: batches must divide among the trainer's GPUs and by "
            "trainer.tensor_parallel, and every application needs a GPU"
        )
    plans = [of(layout) for layout in layouts]
    # the first of equals: the least careful with memory, and so, if anything, the faster
    return _with_remedy(min(plans, key=_merit), of)


def _with_remedy(plan: Plan, of: Callable[[Layout], Plan]) -> Plan:
    """The plan, and if it does not fit, the fewest changes of settings with which it does."""
    if not plan.problems:
        return plan
    changes = [*memory_changes(plan.layout, plan.config, plan.shape)]
    for count in range(1, len(changes) + 1):
        for chosen in combinations(changes, count):
            if len({change.setting for change in chosen}) == count:
                layout = reduce(lambda layout, change: change.apply(layout), chosen, plan.layout)
                if not of(layout).problems:
                    return replace(plan, remedy=tuple(change.text for change in chosen))
    return plan


def _merit(plan: Plan) -> tuple[bool, float]:
    """The lower the better: hours where it fits, typical ones, and GiB where it does not."""
    return bool(plan.problems), max(plan.fullest.values()) if plan.problems else plan.hours[0]


def _plan(
    preset: str,
    config: RunConfig,
    assumed: Assumptions,
    shape: Shape,
    source: str,
    layout: Layout,
    works: dict[int, list[tuple[Stage, list[Work]]]],
    gpus: int | None,
) -> Plan:
    staged = {t: tuple(_stage(config, assumed, shape, layout, *work) for work in works[t]) for t in works}
    names = tuple(plan.stage for t in staged for plan in staged[t])
    everything = [work for t in works for _, work_of_stage in works[t] for work in work_of_stage]
    up = {holder for t in staged for plan in staged[t] for holder in plan.places}
    memory = _memory(config, assumed, shape, layout, everything, up)
    fullest: dict[str, float] = {
        plan.stage: _fullest(plan, memory) for t in staged for plan in staged[t] if plan.places
    }
    needed = layout.needed(config, names)
    return Plan(
        preset,
        config,
        assumed,
        shape,
        source,
        layout,
        needed if gpus is None else gpus,
        staged[0],
        staged[1],
        tuple(held_by for held in memory.values() for held_by in held),
        fullest,
        tuple(_problems(memory, fullest, assumed)),
        gpus is not None,
    )


def _stage(
    config: RunConfig, assumed: Assumptions, shape: Shape, layout: Layout, stage: Stage, works: list[Work]
) -> StagePlan:
    parts = tuple(_part(work, assumed, shape, layout) for work in works)
    busy = bool(works) or stage not in TRAINING
    places = layout.places(stage, config) if busy else {}
    return StagePlan(stage, parts, places, tuple(dict.fromkeys(work.holder for work in works)))


def _part(work: Work, assumed: Assumptions, shape: Shape, layout: Layout) -> Part:
    held = layout.trainer if work.holder == "trainer" else layout.app(work.holder)
    devices = layout.trainer.gpus if work.holder == "trainer" else layout.app(work.holder).devices
    peak = assumed.peak_tflops if held.device == "gpu" else assumed.cpu_peak_tflops
    if held is layout.trainer and held.in_float32:
        peak *= FLOAT32_SHARE
    speed = devices * peak * 1e12 * (assumed.mfu_train if work.training else assumed.mfu_sample)
    shares = assumed.typical_share, 1.0
    low, high = (work.flops(shape.parameters, share, assumed.prompt_tokens) for share in shares)
    fewest, most = (work.tokens(share) / 1e6 for share in shares)
    waiting = work.rounds * work.max_tokens * assumed.token_seconds / HOUR if held.device == "gpu" else 0.0
    hours = max(low / speed / HOUR, waiting), max(high / speed / HOUR, waiting)
    return Part(work, devices, (fewest, most), (low / 1e15, high / 1e15), waiting, hours)


def _memory(
    config: RunConfig, assumed: Assumptions, shape: Shape, layout: Layout, works: list[Work], up: set[str]
) -> dict[str, tuple[Memory, ...]]:
    """Holder -> what it has on each of its GPUs; the trainer twice, sampling and updating. `up`: in some stage."""
    context = shape.max_position_embeddings

    def longest(holder: str) -> int:
        limits = [work.max_tokens for work in works if work.holder == holder]
        return min(max(limits, default=0) + assumed.longest_prompt, context)

    training, rollouts = config.solver.training, config.solver.rollouts
    rows = -(-training.prompts_per_step * rollouts // layout.trainer.gpus)
    asked = {work.holder for work in works}
    memory = {"trainer": trainer_memory(layout.trainer, shape, longest("trainer"), rows, assumed)}
    for app in layout.apps:
        if app.name in asked or (app.name in up and not app.swapped):
            memory[app.name] = (app_memory(app, shape, longest(app.name), assumed),)
    return memory


def _fullest(plan: StagePlan, memory: dict[str, tuple[Memory, ...]]) -> float:
    """GiB on the fullest GPU of a stage, everything on it counted."""
    gpus: dict[int, float] = {}
    for holder, places in plan.places.items():
        held = max((part.gib for part in memory.get(holder, ())), default=0.0)
        for gpu in places:
            gpus[gpu] = gpus.get(gpu, 0.0) + held
    return max(gpus.values(), default=0.0)


def _problems(memory: dict[str, tuple[Memory, ...]], fullest: dict[str, float], assumed: Assumptions) -> list[str]:
    problems = [f"{part.title}: {part.problem}" for held in memory.values() for part in held if part.problem]
    limit = USABLE * assumed.gpu_memory
    problems += [
        f"{stage}: {gib:.1f} GiB on the fullest GPU, of {limit:.1f} that can be used ({USABLE:.0%} of "
        f"{assumed.gpu_memory:g})"
        for stage, gib in fullest.items()
        if gib > limit
    ]
    return problems


def advice(plan: Plan) -> list[str]:
    """What to change where it does not fit: the settings with which it fits, else what would need less or have more."""
    if not plan.problems:
        return []
    if plan.remedy:
        return [*plan.remedy]
    sentences = [change.text for change in smallest(memory_changes(plan.layout, plan.config, plan.shape))]
    if isinstance(plan.config.trainer, EasyR1Settings):
        if any(app.unreserved for app in plan.layout.apps) or plan.gpus < 2:
            sentences.append("two GPUs: the Solver then answers on the other while the Challenger is trained")
        sentences.append("more GPUs for the trainer (trainer.gpus_per_node): each then holds a smaller shard")
    else:
        if plan.layout.trainer.gpus == 1:
            sentences.append("[….training] workers = 8, sharded = true: the states shared out over 8 GPUs")
        sentences.append(
            "trainer.type = 'easyr1', where docs/easyr1.md says that the method fits: it samples with vLLM"
        )
    sentences.append("a smaller base model, or shorter answers (max_tokens of [….training] sampling)")
    return sentences


def _sum(ranges: Iterable[Range]) -> Range:
    pairs = list(ranges)
    return sum(low for low, _ in pairs), sum(high for _, high in pairs)
