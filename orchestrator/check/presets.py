"""The presets of deploy/runs: what each is, what it needs, and what it costs by the arithmetic of `coevo plan`."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from core.settings.config import RunConfig
from core.settings.parsing import comment_of, load_config
from core.types import TINY_BASES, Flow
from orchestrator.check.needs import Need, needs_of
from orchestrator.check.size import Assumptions, calculate
from orchestrator.check.start import preset_names, preset_path
from services.api.schemas import PresetDetails

_ARXIV = re.compile(r"arXiv (\d{4}\.\d{4,5})")


@dataclass(frozen=True, slots=True)
class Described:
    """A preset.

    `hours` are those of the whole run, typical and at most, by the arithmetic of `coevo plan`; None for a model of the
    tiny world, for which they are off by far: its `about` says how long it takes.
    """

    name: str
    about: str  # the first line of its comment
    comment: str  # all of it
    arxiv: tuple[str, ...]  # the papers that the comment names
    kind: Flow
    method: str  # the Solver's
    base_model: str
    iterations: int
    gpus: int  # 0: it runs on CPUs
    hours: tuple[float, float] | None
    needs: tuple[Need, ...]

    @property
    def missing(self) -> tuple[Need, ...]:
        """What it needs that is not on this machine."""
        return tuple(need for need in self.needs if need.here is False)


def describe_all() -> list[Described]:
    """All presets by their names. Raises what `describe` raises."""
    return [describe(name) for name in preset_names()]


def describe(name: str) -> Described:
    """A preset by its name or its path. Raises `ConfigError`, `SizingError`, `BenchmarkError`."""
    path = preset_path(name)
    config, gpus, vllm, hours = _planned(path, path.stat().st_mtime_ns)
    comment = comment_of(path)
    return Described(
        name=name,
        about=comment.partition("\n")[0],
        comment=comment,
        arxiv=tuple(dict.fromkeys(_ARXIV.findall(comment))),
        kind=config.kind,
        method=config.solver.reward.type,
        base_model=config.base_model,
        iterations=config.iterations,
        gpus=gpus,
        hours=None if config.base_model in TINY_BASES else hours,
        needs=tuple(needs_of(config, gpus, vllm)),
    )


@lru_cache(maxsize=256)  # the REST API describes all presets at each request
def _planned(path: Path, _changed: int) -> tuple[RunConfig, int, bool, tuple[float, float]]:
    """The settings of a preset, its GPUs, whether it needs vLLM, and the hours of the run, as of when it changed."""
    config = load_config(path)
    plan = calculate(path.stem, config, Assumptions())
    return config, plan.gpus, any(app.engine == "vllm" for app in plan.layout.apps), plan.run_hours


def details_of(name: str) -> PresetDetails:
    """What the REST API says of a preset. Raises what `describe` raises."""
    preset = describe(name)
    typical, maximum = preset.hours or (None, None)
    return PresetDetails.model_validate({**asdict(preset), "hours_typical": typical, "hours_maximum": maximum})
