"""Reads docs/presets.md: which value the paper states for a preset's setting, and where."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

_NAMED = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: the settings with the dotted names `settings` have the value `ours` in the preset.

    `paper` is the cell about the paper's value, in Markdown, or that of `ours` if it is empty. `reference` is where the
    paper or its code states it.
    """

    settings: tuple[str, ...]
    ours: Any
    paper: str
    reference: str


def read_rows(page: str) -> tuple[dict[str, list[Row]], dict[str, str]]:
    """The rows of each preset, and the preset that it is otherwise equal to, from the text of docs/presets.md."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for line in re.findall(r"^\| (`.*) \|$", page, re.MULTILINE):
        preset, settings, ours, paper, reference = (cell.strip() for cell in line.split("|"))
        value = ours.strip("`")
        same = ours if stated(value) is None else value  # a number is shown as one
        row = Row(tuple(_NAMED.findall(settings)), json.loads(value), paper or same, reference)
        rows[preset.strip("`")].append(row)
    return rows, dict(re.findall(r"^- `([^`]+)`, as `([^`]+)`", page, re.MULTILINE))


def rows_of(page: str, preset: str) -> dict[str, Row]:
    """The row of each setting that the page has for a preset, also from the preset that it is otherwise equal to."""
    rows, like = read_rows(page)
    ordered = [*rows.get(like.get(preset, preset), []), *rows.get(preset, [])]
    return {setting: row for row in ordered for setting in row.settings}


def stated(paper: str) -> Any:
    """The value in a cell about the paper if it is a plain number or JSON in backticks. None: it is explained in words,
    or it is null."""
    if re.fullmatch(r"`[^`]+`", paper):
        return json.loads(paper.strip("`"))
    return float(paper.replace(",", "")) if re.fullmatch(r"-?\d[\d,]*(\.\d+)?(e-?\d+)?", paper) else None
