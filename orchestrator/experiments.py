"""Runs the arms of an experiment, seed after seed, as ordinary runs (docs/experiments.md)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import CoevoError
from core.settings.config import RunConfig
from core.settings.experiments import Experiment
from core.settings.parsing import load_config, validated
from core.settings.toml_text import from_toml
from core.settings.trees import by_dotted_names
from core.validation.suggestions import no_such
from orchestrator.check.presets import preset_path
from orchestrator.installation.home import EXPERIMENTS, Home
from orchestrator.runs import prepare, status_of
from storage import queries
from storage.queries.runs import RUN_NAME
from storage.rows import ENDED, ExperimentRun
from storage.session import Store


class ExperimentError(CoevoError):
    """An experiment that cannot be run; the message names the file and the setting."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of an experiment: what it is called, and how it is started."""

    row: ExperimentRun
    preset: str
    overrides: dict[str, Any]
    config: RunConfig


def is_experiment(name: str) -> bool:
    """Whether `name` is that of a file in deploy/experiments, or the path of a TOML file that has arms."""
    if not name.endswith(".toml"):
        return (EXPERIMENTS / f"{name}.toml").is_file()
    try:
        return "arms" in from_toml(Path(name).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False  # whoever reads it as a preset says what is wrong


def read_experiment(name: str) -> tuple[str, Experiment]:
    """The name of an experiment and its contents, given its name in deploy/experiments or the path of its TOML file.

    Raises `ExperimentError`, `ConfigError`.
    """
    path = Path(name) if name.endswith(".toml") else EXPERIMENTS / f"{name}.toml"
    try:
        tree = from_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        known = sorted(file.stem for file in EXPERIMENTS.glob("*.toml"))
        problem = no_such("experiment", known, name, ", or the path of a TOML file")
        raise ExperimentError(f"experiment {name!r}: {problem}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"experiment {path}: not valid TOML: {error}") from error
    if not RUN_NAME.fullmatch(path.stem) or len(path.stem) > 30:
        raise ExperimentError(f"experiment {path}: expected a file name of at most 30 letters, digits and . _ -")
    return path.stem, validated(Experiment, tree, f"experiment {path}")


def planned(name: str, experiment: Experiment, seeds: int, overrides: Mapping[str, Any]) -> list[PlannedRun]:
    """The runs of an experiment, seed after seed, so that an interrupted one has all arms of the first seeds.

    The baseline comes first. Arms with the same number have the same seed. `overrides` are set last, for all arms.
    Raises `ConfigError`, for every arm before any is run.
    """
    arms = sorted(experiment.arms.items(), key=lambda item: item[0] != experiment.baseline)
    runs = []
    for number in range(seeds):
        for position, (arm, arm_settings) in enumerate(arms):
            preset = arm_settings.preset or experiment.preset
            given = (experiment.settings, arm_settings.settings, overrides)
            settings = {name: value for tree in given for name, value in by_dotted_names(tree).items()}
            arm_of = f"experiment {name}, arm {arm}:"  # begins the error about a setting
            settings["seed"] = seed = load_config(preset_path(preset), settings, arm_of).seed + number
            row = ExperimentRun(f"{name}-{arm}-{number + 1}", name, arm, position, seed)
            runs.append(PlannedRun(row, preset, settings, load_config(preset_path(preset), settings)))
    return runs


def run_all(
    home: Home, store: Store, runs: list[PlannedRun], start: Callable[[PlannedRun, RunConfig], None]
) -> Iterator[tuple[PlannedRun, bool]]:
    """Run what has not ended, one run after the other, and yield each with whether it had ended before.

    `start` gets a run and its settings, which are checked. Raises what `prepare` and `start` raise. Called again, it
    goes on where it stopped.
    """
    for run in runs:
        row = run.row
        checked = prepare(home, store, row.run, run.preset, 0, run.overrides, flow=run.config.kind)
        with store.write() as session:
            queries.experiments.add_run(session, row)
        ended = status_of(store, row.run) in ENDED
        if not ended:
            start(run, checked)
        yield run, ended
