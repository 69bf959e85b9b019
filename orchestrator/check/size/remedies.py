"""Changes of settings with which a layout needs less memory of the same GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from core.settings.config import RunConfig
from core.settings.trainers import EasyR1Settings
from orchestrator.check.size.assumptions import GIB
from orchestrator.check.size.layout import Layout
from orchestrator.check.size.shapes import Shape


@dataclass(frozen=True, slots=True)
class Change:
    """What to set, in words, and the layout with it. Of the changes of one setting, one is made."""

    setting: str
    text: str
    apply: Callable[[Layout], Layout]


def memory_changes(layout: Layout, config: RunConfig, shape: Shape) -> Iterator[Change]:
    """All of them that apply; those of one setting one after the other, the largest value first."""
    yield from _caches(layout, config, shape)
    yield from _of_easyr1(layout) if isinstance(config.trainer, EasyR1Settings) else _of_local(layout, config)
    if not layout.release:
        text = "serving.release = true: the applications that a stage does not ask leave their GPUs"
        yield Change("release", text, lambda layout: replace(layout, release=True))


def smallest(changes: Iterable[Change]) -> list[Change]:
    """Of each setting the change that needs least memory."""
    return [*{change.setting: change for change in changes}.values()]


def _caches(layout: Layout, config: RunConfig, shape: Shape) -> Iterator[Change]:
    """KV caches half as large, a quarter and so on, as long as one answer of the longest context fits in."""
    given = [app for app in layout.apps if app.swapped and app.kv_bytes is not None]
    if not given:
        return
    largest = max(app.kv_bytes or 0 for app in given)
    least = max(
        shape.kv_bytes() / app.tensor_parallel * (app.context or shape.max_position_embeddings) for app in given
    )
    for gib in _halved(largest / GIB, math.ceil(least / GIB)):
        names = " and ".join(app.name for app in given)
        text = (
            f"kv_cache_memory_bytes = {gib * GIB} ({gib} GiB instead of {largest / GIB:.3g}) of {names}, in a copy of "
            f"deploy/serve/{config.serving.applications}.yaml that serving.applications names: fewer answers at once"
        )
        yield Change("kv_cache_memory_bytes", text, _with_caches(gib * GIB))


def _halved(value: float, least: int) -> Iterator[int]:
    while value > least:
        value = max(value / 2, least)
        yield math.ceil(value)


def _with_caches(most: int) -> Callable[[Layout], Layout]:
    def apply(layout: Layout) -> Layout:
        apps = (
            replace(app, kv_bytes=min(app.kv_bytes, most)) if app.swapped and app.kv_bytes is not None else app
            for app in layout.apps
        )
        return replace(layout, apps=tuple(apps))

    return apply


def _of_easyr1(layout: Layout) -> Iterator[Change]:
    if not layout.trainer.offload:
        text = "trainer.offload = true: parameters and moments in the machine's memory while vLLM samples"
        yield Change("offload", text, _of_trainer(offload=True))
    if layout.trainer.micro_batch > 1:
        text = "trainer.update_micro_batch = 1: fewer activations and logits at once"
        yield Change("micro_batch", text, _of_trainer(micro_batch=1))


def _of_local(layout: Layout, config: RunConfig) -> Iterator[Change]:
    """The same for the embedded trainer, whose settings are in two places."""
    trainer, training = layout.trainer, config.solver.training
    if not trainer.sharded and trainer.gpus > 1:
        text = "[….training] sharded = true: weights, gradients and moments shared out over the trainer's GPUs"
        yield Change("sharded", text, _of_trainer(sharded=True))
    if not trainer.checkpointed:
        text = "trainer.checkpoint_activations = true: of each layer only what enters it is kept"
        yield Change("checkpointed", text, _of_trainer(checkpointed=True))
    rows = min(-(-training.prompts_per_step * config.solver.rollouts // trainer.gpus), trainer.sampling_rows)
    for fewer in _halved(rows, 1):
        text = f"trainer.sampling_rows = {fewer}: fewer answers at once have a smaller KV cache"
        yield Change("sampling_rows", text, _of_trainer(sampling_rows=fewer))
    if trainer.micro_batch > 1:
        text = "[….training] micro_batch = 1: fewer activations and logits at once"
        yield Change("micro_batch", text, _of_trainer(micro_batch=1))


def _of_trainer(**changes: Any) -> Callable[[Layout], Layout]:
    return lambda layout: replace(layout, trainer=replace(layout.trainer, **changes))
