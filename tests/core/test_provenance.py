"""Where settings come from, in which runs differ, and the TOML from which the same run can be started."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from core.settings.config import CoEvolution, RunConfig
from core.settings.parsing import load_config, parse_config, read_preset
from core.settings.provenance import Setting, defaults_of, differing, settings_of
from core.settings.toml_text import toml_of

PRESETS = sorted((Path(__file__).parents[2] / "deploy" / "runs").glob("*.toml"))
DEMO = next(path for path in PRESETS if path.stem == "demo")
LIMITS = ("iterations", "budget", "rates")


def settings(config: RunConfig, preset: dict[str, Any] | None, overrides: dict[str, Any]) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings_of(config, preset, overrides, LIMITS)}


def as_toml(config: RunConfig) -> str:
    return toml_of(config.model_dump(mode="json"), defaults_of(config))


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_survives_the_store_and_toml_and_has_only_values_of_its_own_and_defaults(
    path: Path, tmp_path: Path
) -> None:
    config, copy = load_config(path), tmp_path / "copy.toml"
    assert parse_config(config.model_dump(mode="json"), "the store") == config
    copy.write_text(as_toml(config), encoding="utf-8")
    assert load_config(copy) == config
    of_preset = settings(config, read_preset(path), {}).values()
    assert {setting.source for setting in of_preset} == {"preset", "default"}
    # A value that is no default must come from the file.
    assert [setting for setting in of_preset if setting.source == "default" and setting.differs] == []


def test_texts_of_any_characters_are_written_as_toml(tmp_path: Path) -> None:
    texts = ['"""', "back\\slash", "line\nbreak", "DEL\x7f", "\U0001f600", "\x01"]
    config = parse_config({"dataset": {"refused_texts": texts}, "seed": 2**62}, "a test")
    (tmp_path / "copy.toml").write_text(as_toml(config), encoding="utf-8")
    assert load_config(tmp_path / "copy.toml") == config


def test_an_override_is_told_from_the_preset_and_from_a_default() -> None:
    overrides = {"dataset.votes": 6, "dataset.candidates": 320, "solver.reward.type": "evol_rl"}
    config = load_config(DEMO, overrides)
    of_run = settings(config, read_preset(DEMO), overrides)
    sources = {name: of_run[name].source for name in ("dataset.votes", "dataset.candidates", "dataset.delta")}
    assert sources == {"dataset.votes": "override", "dataset.candidates": "override", "dataset.delta": "preset"}
    assert of_run["solver.reward.type"].source == "override"
    assert (of_run["solver.reward.type"].default, of_run["solver.reward.type"].differs) == ("rzero", True)
    # These are EVOL-RL's own numbers, not those of R-Zero, which is the default method.
    assert (of_run["solver.reward.alpha"].source, of_run["solver.reward.alpha"].differs) == ("default", False)


def test_a_setting_without_a_default_differs_from_it() -> None:
    config = parse_config({"prompts": {"file": "micro", "limit": 9}, "solver": {"reward": {"type": "srt"}}}, "a test")
    file = settings(config, None, {})["prompts.file"]
    assert (file.required, file.differs, file.default) == (True, True, None)


def test_a_limit_that_was_changed_later_and_a_value_that_nothing_explains() -> None:
    config = load_config(DEMO, {"iterations": 9, "dataset.votes": 7})
    of_run = settings(config, read_preset(DEMO), {})
    assert (of_run["iterations"].source, of_run["dataset.votes"].source) == ("continued", "unknown")
    without_preset = settings(config, None, {})
    assert (without_preset["iterations"].source, without_preset["seed"].source) == ("unknown", "unknown")


def test_none_in_a_preset_is_the_preset_s_value() -> None:
    config = parse_config(preset := {"audit": {"oracle": "none"}}, "a test")
    oracle = settings(config, preset, {})["audit.oracle"]
    assert (oracle.value, oracle.source, oracle.default, oracle.differs) == (None, "preset", "exact", True)
    assert tomllib.loads(as_toml(config))["audit"]["oracle"] == "none"


def test_settings_that_differ_are_named_and_missing_ones_are_left_out() -> None:
    trees = {"a": {"x": {"y": 1, "z": 2}, "seed": 1}, "b": {"x": {"y": 3, "z": 2, "only": 4}, "seed": 2}}
    assert differing(trees) == {"a": {"seed": 1, "x.y": 1}, "b": {"seed": 2, "x.only": 4, "x.y": 3}}
    assert differing(trees, ["seed"]) == {"a": {"x.y": 1}, "b": {"x.only": 4, "x.y": 3}}
    assert differing({"a": CoEvolution().model_dump(mode="json")}) == {"a": {}}
