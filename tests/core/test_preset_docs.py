"""The tables of docs/presets.md: they have every preset for a real model, its values, and a reason for what differs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from core.settings.config import RunConfig
from core.settings.papers import read_rows, stated
from core.settings.parsing import load_config
from core.types import TINY_BASES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "presets.md").read_text(encoding="utf-8")
PRESETS = {path.stem: load_config(path) for path in sorted((ROOT / "deploy" / "runs").glob("*.toml"))}
LARGE = [name for name, config in PRESETS.items() if config.base_model not in TINY_BASES]
_ABSENT = object()


ROWS, LIKE = read_rows(PAGE)
# Preset -> what the page says about it: why a value differs from its paper's.
REASONS = dict(re.findall(r"^- `([^`]+)`(.*?)(?=^- |^#)", PAGE, re.MULTILINE | re.DOTALL))


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


def test_every_preset_for_a_real_model_has_rows_and_no_other_has() -> None:
    assert sorted({*ROWS, *LIKE}) == sorted(REASONS) == sorted(LARGE)
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


@pytest.mark.parametrize("name", LARGE)
def test_a_value_that_differs_from_the_paper_s_has_a_reason(name: str) -> None:
    for row in ROWS[name]:
        value = stated(row.paper)
        if value not in (None, row.ours):
            assert all(f"`{setting}`" in REASONS[name] for setting in row.settings), (row.settings, row.paper)


def test_the_page_s_numbers_are_read() -> None:
    assert [stated(cell) for cell in ("8,000", "1e-6", "0.20", '`"loss"`')] == [8000, 1e-6, 0.2, "loss"]
    assert {stated(cell) for cell in ("z-score", "850 steps in all", "32 of 64")} == {None}
    assert [row.settings[0] for row in ROWS["rzero-qwen3-4b"] if stated(row.paper) == 0] == ["evaluation.samples"]
