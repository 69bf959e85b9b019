"""Which presets there are, and what each is, needs and costs."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.settings.config import RunConfig
from core.settings.parsing import ConfigError, comment_of, load_config
from core.types import TINY_BASES, Flow
from core.validation.faults import Fault
from core.validation.suggestions import no_such
from orchestrator.check.needs import Need, needs_of
from orchestrator.check.size.estimate import Estimate, Range, estimate
from orchestrator.installation.home import PRESETS

OWN_PRESET = "preset.toml"  # in every folder that `coevo init` makes
_ARXIV = re.compile(r"arXiv (\d{4}\.\d{4,5})")


@dataclass(frozen=True, slots=True)
class Described:
    """A preset.

    `hours` are those of the whole run, typical and at most, by assumed speeds; None for a model of the tiny world, for
    which they are off by far: its `about` says how long it takes. `gpus` is 0 for a run on CPUs.
    """

    name: str
    about: str  # the first line of its comment
    comment: str  # all of it
    arxiv: tuple[str, ...]  # the papers that the comment names
    kind: Flow
    method: str  # the Solver's
    base_model: str
    iterations: int
    gpus: int
    hours: Range | None
    needs: tuple[Need, ...]


def preset_path(name: str) -> Path:
    """The file of a preset, given its name in deploy/runs or its path. Raises `ConfigError` with the known presets."""
    path = Path(name) if name.endswith(".toml") else PRESETS / f"{name}.toml"
    if not path.is_file():
        problem = no_such("preset", preset_names(), name, ", or the path of a TOML file")
        raise ConfigError(f"preset {name!r}: {problem}", [Fault("preset", f"{name!r}: {problem}")])
    return path


def usual_name(preset: str | None, from_run: str | None = None) -> str:
    """The name of a run that is given none: its preset's, or for a preset of `coevo init`, its folder's; demo-from-3
    for a run that begins after demo:3."""
    if from_run is not None:
        return from_run.replace(":", "-from-")
    path = Path(preset or "").absolute()
    if path.name != OWN_PRESET:
        return path.stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.parent.name).lstrip("._-") or path.stem


def preset_names() -> list[str]:
    return sorted(file.stem for file in PRESETS.glob("*.toml"))


def presets_of(flow: Flow) -> list[str]:
    """The names of the presets that a flow can run. A file with an error is left out; a start from it says what is
    wrong."""
    names = []
    for name in preset_names():
        with suppress(ConfigError):
            if load_config(preset_path(name)).kind == flow:
                names.append(name)
    return names


def describe(name: str) -> Described:
    """A preset by its name or its path, as it is. Raises `ConfigError`, `SizingError`, `BenchmarkError`."""
    path = preset_path(name)
    return described(name, *_estimated(path, path.stat().st_mtime_ns))


def described(name: str, config: RunConfig, found: Estimate | None, comment: str | None = None) -> Described:
    """A preset with these settings, or what has the `comment` and no file. `found`: what it takes; None if that is not
    known. Raises `BenchmarkError`."""
    comment = comment_of(preset_path(name)) if comment is None else comment
    gpus = 0 if found is None else found.gpus
    vllm = found is not None and any(app.engine == "vllm" for app in found.layout.apps)
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
        hours=None if found is None or config.base_model in TINY_BASES else found.run_hours,
        needs=tuple(needs_of(config, gpus, vllm)),
    )


@lru_cache(maxsize=256)  # the REST API describes all presets at each request
def _estimated(path: Path, _changed: int) -> tuple[RunConfig, Estimate]:
    config = load_config(path)
    return config, estimate(config)


def details_of(name: str) -> dict[str, Any]:
    """What the REST API says of a preset, by the names of its schema. Raises what `describe` raises."""
    preset = describe(name)
    typical, maximum = preset.hours or (None, None)
    return {**asdict(preset), "hours_typical": typical, "hours_maximum": maximum}
