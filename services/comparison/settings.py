"""In which settings runs differ, and which runs have the same settings and only another seed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from core.settings.provenance import differing
from core.settings.trees import flat
from services.comparison.runs import NOT_COMPARED, config_of
from services.views.configuration import as_json

_MOST_NAMED = 3  # settings that a group's label names, unless more are needed to tell the groups apart


@dataclass(frozen=True, slots=True)
class DifferingSetting:
    """A setting in which runs differ. `values` has the value of each run that has the setting, as in JSON."""

    name: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs that differ at most in their seed and in how far they go. `label` is what tells the group from others."""

    label: str
    runs: list[str]


@dataclass(frozen=True, slots=True)
class SettingsComparison:
    """The settings in which runs differ, in alphabetical order, and the groups of runs with the same settings."""

    runs: list[str]
    settings: list[DifferingSetting]
    groups: list[RunGroup]


def compare_settings(session: Session, runs: Sequence[str]) -> SettingsComparison:
    """The settings in which runs differ, and their groups. Settings that are newer than a run have their defaults.

    Raises `NotThere`.
    """
    names = [*dict.fromkeys(runs)]
    configs = {run: config_of(session, run) for run in names}
    differences = differing(configs)
    settings = sorted({setting for of_run in differences.values() for setting in of_run})
    by_setting = [
        DifferingSetting(name, {run: as_json(of_run[name]) for run, of_run in differences.items() if name in of_run})
        for name in settings
    ]
    groups: list[list[str]] = []  # in the order of their first runs
    for run, config in configs.items():
        for group in groups:
            if not any(differing({"": configs[group[0]], run: config}, NOT_COMPARED).values()):
                group.append(run)
                break
        else:
            groups.append([run])
    labels = _labels({group[0]: configs[group[0]] for group in groups})
    return SettingsComparison(names, by_setting, [RunGroup(labels[group[0]], group) for group in groups])


def _labels(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The first run of each group -> what tells the group from the others, or the run's name if there is no other."""
    differences = differing(configs, NOT_COMPARED)
    names = sorted({name for settings in differences.values() for name in settings})
    types = [name for name in names if name == "kind" or name.endswith(".type")]
    own = [*types, *(name for name in names if name not in types and not _follows(name, types, configs))]
    telling = _telling(own, differences)
    named = [*telling, *(name for name in own if name not in telling)][: max(_MOST_NAMED, len(telling))]
    more = [f"{len(own) - len(named)} more"] if len(own) > len(named) else []
    labels = {}
    for run, settings in differences.items():
        values = {name: settings[name] for name in named if name in settings}
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
        labels[run] = ", ".join([*(f"{name} = {text}" for name, text in texts.items()), *more]) or run
    times = Counter(labels.values())  # a setting that only some of the runs have may be what tells two groups apart
    return {run: label if times[label] == 1 else f"{label} ({run})" for run, label in labels.items()}


def _telling(names: Sequence[str], differences: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The first of the settings `names` that tell the groups apart: one that tells no two of them apart is skipped."""
    chosen: list[str] = []
    for name in names:
        apart, with_name = (
            len({repr([settings.get(setting) for setting in by]) for settings in differences.values()})
            for by in (chosen, [*chosen, name])
        )
        if with_name > apart:
            chosen.append(name)
    return chosen


def _follows(name: str, types: Sequence[str], configs: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a setting differs only together with the `type` of its table, or with whether the run has it at all."""
    table_type = f"{name.rpartition('.')[0]}.type"
    variants: dict[Any, set[str]] = {}
    for settings in map(flat, configs.values()):
        if name in settings:
            variant = settings.get(table_type) if table_type in types else None
            variants.setdefault(variant, set()).add(repr(settings[name]))
    is_everywhere = all(name in flat(config) for config in configs.values())
    return (table_type in types or not is_everywhere) and all(len(values) == 1 for values in variants.values())
