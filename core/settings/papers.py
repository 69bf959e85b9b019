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
    """A row of a table: the settings with the dotted names `settings` have the value `ours` in the preset.

    `paper` is the cell about the paper's value, in Markdown, and `reference` is where the paper or its code states it.
    `reasons` is the text of the section about what differs from the paper.
    """

    settings: tuple[str, ...]
    ours: Any
    paper: str
    reference: str
    reasons: str


def read_rows(page: str) -> tuple[dict[str, list[Row]], dict[str, str]]:
    """The rows of each preset, and the preset that it is otherwise equal to, from the text of docs/presets.md.

    A section's heading names its preset and, after "as", the other one. Where a table has a column `preset`, the
    heading names the other one only.
    """
    rows: dict[str, list[Row]] = defaultdict(list)
    like: dict[str, str] = {}
    for section in re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]:
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
            settings, ours, paper, reference = cells
            row = Row(tuple(_NAMED.findall(settings)), json.loads(ours.strip("`")), paper, reference, reasons)
            rows[preset].append(row)
    return rows, like


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
