"""The configuration of a run: every setting with its source, its default and the paper's value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from core.settings.papers import Row, rows_of, stated
from core.settings.parsing import read_preset
from core.settings.provenance import Source, defaults_of, differing, settings_of
from core.settings.toml_text import toml_of
from storage import queries

_EXACT = 2**53  # readers of JSON round integers above it


@dataclass(frozen=True, slots=True)
class PaperValue:
    """What deploy/runs/papers.tsv says about the paper's value of a setting. `value` is its text, in Markdown.

    `same` says whether the run has this value; it is None where the text is no plain value.
    """

    value: str
    reference: str
    same: bool | None


@dataclass(frozen=True, slots=True)
class RunSetting:
    """A setting of a run by its dotted name. Values are as in JSON. `differs`: the value is not the default."""

    name: str
    value: Any
    source: Source
    default: Any
    differs: bool
    paper: PaperValue | None


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of a run.

    `edited` are settings that the preset's file has, or lacks, otherwise than when the run was created. `toml` is the
    configuration as a file for `coevo run`.
    """

    run: str
    preset: str | None
    edited: list[str]
    settings: list[RunSetting]
    toml: str


def configuration_of(session: Session, run: str, preset: Path | None, papers: Path | None) -> Configuration:
    """The configuration of a run. `preset` is the file of its preset, and `papers` is deploy/runs/papers.tsv, if there
    are any. Raises `NotThere`, and `ConfigError` if the preset's file cannot be read."""
    stored, origin = queries.runs.get_run(session, run), queries.runs.origin_of(session, run)
    config = queries.runs.config_from(stored)
    now = None if preset is None else read_preset(preset)
    rows = dict[str, Row]()
    if papers is not None and stored.preset is not None:
        rows = rows_of(papers.read_text(encoding="utf-8"), Path(stored.preset).stem)
    described = []
    for setting in settings_of(config, origin.preset_settings, origin.overrides or {}, queries.runs.LIMITS):
        paper = None
        if (row := rows.get(setting.name)) is not None:
            value = stated(row.paper)
            paper = PaperValue(row.paper, row.reference, None if value is None else value == setting.value)
        shown = as_json(setting.value)
        described.append(RunSetting(setting.name, shown, setting.source, setting.default, setting.differs, paper))
    then = origin.preset_settings
    changed = {} if then is None or now is None else differing({"then": then, "now": now})
    edited = sorted({name for settings in changed.values() for name in settings})
    toml = toml_of(config.model_dump(mode="json"), defaults_of(config))
    return Configuration(run, stored.preset, edited, described, toml)


def as_json(value: Any) -> Any:
    """The value of a setting for an answer: an integer that readers of JSON would round is a text."""
    return str(value) if isinstance(value, int) and abs(value) > _EXACT else value
