"""The tables of docs/presets.md: they have every preset for a real model, its values, and a reason for what differs."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.settings.config import RunConfig
from core.settings.parsing import load_config
from core.types import TINY_BASES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "presets.md").read_text(encoding="utf-8")
PRESETS = {path.stem: load_config(path) for path in sorted((ROOT / "deploy" / "runs").glob("*.toml"))}
LARGE = [name for name, config in PRESETS.items() if config.base_model not in TINY_BASES]
_NAMED = re.compile(r"`([^`]+)`")
_ABSENT = object()


@dataclass(frozen=True)
class Row:
    """A row of a table: the settings with the dotted paths `settings` have the value `ours`."""

    settings: tuple[str, ...]
    ours: Any
    paper: str
    reasons: str  # the text of the section about what differs


def _sections() -> tuple[dict[str, list[Row]], dict[str, str]]:
    """The rows of each preset, and the preset that it is otherwise equal to.

    A section's heading names its preset and, after "as", the other one. Where a table has a column `preset`, the
    heading names the other one only.
    """
    rows: dict[str, list[Row]] = defaultdict(list)
    like: dict[str, str] = {}
    for section in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        names = _NAMED.findall(heading)
        prose = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
        reasons = " ".join(re.findall(r"Differs.*?(?=Left open|\Z)", prose, re.DOTALL))
        for line in re.findall(r"^\| (`.*)\|$", text, re.MULTILINE):
            cells = [cell.strip() for cell in line.split("|")]
            preset = _NAMED.findall(cells.pop(0))[0] if len(cells) == 5 else names[0]
            base = names[-1] if "as" in re.split(r"\W+", heading) else None
            if base is not None and base != preset:
                like[preset] = base
            settings, ours, paper, _ = cells
            rows[preset].append(Row(tuple(_NAMED.findall(settings)), json.loads(ours.strip("`")), paper, reasons))
    return rows, like


ROWS, LIKE = _sections()


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


def _stated(paper: str) -> Any:
    """The value of a cell that is a plain number or JSON in backticks; else `_ABSENT`."""
    if re.fullmatch(r"`[^`]+`", paper):
        return json.loads(paper.strip("`"))
    return float(paper.replace(",", "")) if re.fullmatch(r"-?\d[\d,]*(\.\d+)?(e-?\d+)?", paper) else _ABSENT


def test_every_preset_for_a_real_model_has_rows_and_no_other_has() -> None:
    assert sorted(ROWS) == sorted(LARGE)
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
        stated = _stated(row.paper)
        if stated not in (_ABSENT, row.ours):
            assert all(f"`{setting}`" in row.reasons for setting in row.settings), (row.settings, row.ours, row.paper)


def test_the_page_s_numbers_are_read() -> None:
    assert [_stated(cell) for cell in ("8,000", "1e-6", "0.20", '`"loss"`')] == [8000, 1e-6, 0.2, "loss"]
    assert {_stated(cell) for cell in ("z-score", "850 steps in all", "32 of 64")} == {_ABSENT}
    assert [row.settings[0] for row in ROWS["rzero-qwen3-4b"] if _stated(row.paper) == 0] == ["evaluation.samples"]
