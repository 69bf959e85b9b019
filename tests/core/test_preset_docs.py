"""deploy/runs/papers.tsv: the values of presets for real models. docs/presets.md: all presets, and what differs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.settings.config import RunConfig
from core.settings.papers import read_rows, stated
from core.settings.parsing import load_config
from core.types import TINY_BASES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "presets.md").read_text(encoding="utf-8")
RUNS = ROOT / "deploy" / "runs"
PRESETS = {path.stem: load_config(path) for path in sorted(RUNS.glob("*.toml"))}
LARGE = [name for name, config in PRESETS.items() if config.base_model not in TINY_BASES]
_ABSENT = object()


ROWS, LIKE = read_rows((RUNS / "papers.tsv").read_text(encoding="utf-8"))
LIST, _, DIFFERENCES = PAGE.partition("## What differs from the papers")
# A row of the page about a preset and those that are otherwise equal to it.
FAMILIES = {"R-Zero's": "rzero-qwen3-4b", "Poly-EPO's": "poly_epo"}


def _value(config: RunConfig, setting: str) -> Any:
    """The value of a setting, as JSON has it; `_ABSENT` if this kind of run, or this method, has no such setting."""
    value: Any = config.model_dump(mode="json")
    for part in setting.split("."):
        if not isinstance(value, dict) or part not in value:
            return _ABSENT
        value = value[part]
    if value is None and setting.endswith(".training.rollouts_per_prompt"):
        return getattr(config, setting.partition(".")[0]).rollouts  # that of the method
    return value


def _differences() -> Iterator[tuple[str, str, Any]]:
    """Each `setting = value` in the page's rows, once for each preset that the row is about."""
    for line in re.findall(r"^\| (.* \|.*) \|$", DIFFERENCES.partition("\n## ")[0], re.MULTILINE):
        about, _, text = line.partition(" | ")
        first = FAMILIES.get(about)
        presets = [first, *(name for name in LIKE if LIKE[name] == first)] if first else re.findall(r"`(\S+)`", about)
        for setting, value in re.findall(r"`([\w.]+) = ([^`]+)`", text):
            yield from ((preset, setting, json.loads(value)) for preset in presets)


def test_every_preset_is_on_the_page_and_those_for_real_models_have_rows() -> None:
    assert sorted(re.findall(r"^\| `(\S+)` \|", LIST, re.MULTILINE)) == sorted({*ROWS, *LIKE}) == sorted(LARGE)
    assert [name for name in PRESETS if f"`{name}`" not in LIST] == []
    assert {"rloo": "srt", "ttrl": "evol_rl", "grpo": "poly_epo", "official": "rzero-qwen3-4b"}.items() <= LIKE.items()
    assert sum(map(len, ROWS.values())) > 150


@pytest.mark.parametrize("name", LARGE)
def test_the_values_are_the_preset_s(name: str) -> None:
    config = PRESETS[name]
    own = {setting: row.ours for row in ROWS[name] for setting in row.settings}
    assert {setting: _value(config, setting) for setting in own} == own
    inherited = {setting: row.ours for row in ROWS[LIKE.get(name, name)] for setting in row.settings} | own
    got = {setting: _value(config, setting) for setting in inherited}
    assert {setting: value for setting, value in got.items() if value not in (_ABSENT, inherited[setting])} == {}


def test_the_page_has_what_differs_from_the_paper_s_value_and_only_the_presets_values() -> None:
    named = {(preset, setting): value for preset, setting, value in _differences()}
    assert {key: _value(PRESETS[key[0]], key[1]) for key in named} == named
    differing = {
        (preset, setting)
        for preset, rows in ROWS.items()
        for row in rows
        if stated(row.paper) not in (None, row.ours)
        for setting in row.settings
    }
    assert ("rzero-qwen3-4b", "evaluation.samples") in differing
    assert differing <= named.keys()


def test_the_paper_s_numbers_are_read() -> None:
    assert [stated(cell) for cell in ("8,000", "1e-6", "0.20", '`"loss"`')] == [8000, 1e-6, 0.2, "loss"]
    assert {stated(cell) for cell in ("z-score", "850 steps in all", "32 of 64")} == {None}
    assert [row.settings[0] for row in ROWS["rzero-qwen3-4b"] if stated(row.paper) == 0] == ["evaluation.samples"]
