"""Reads deploy/runs/papers.tsv: which value the paper states for a preset's setting, and where.

A line has five cells with tabs between them: the preset, its settings with spaces between them, our value as JSON, what
the paper states (empty: our value), and where. `rloo as srt` in the first three cells says that all other values of
`rloo` are those of `srt`, and `srt code …` which version of the released code was read.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the file: the settings with the dotted names `settings` have the value `ours` in the preset.

    `paper` is the cell about the paper's value, in Markdown, or `ours` if it is empty. `reference` is where the paper
    or its code states it.
    """

    settings: tuple[str, ...]
    ours: Any
    paper: str
    reference: str


def read_rows(table: str) -> tuple[dict[str, list[Row]], dict[str, str]]:
    """The rows of each preset, and the preset that it is otherwise equal to, from the text of the file."""
    rows, like = defaultdict[str, list[Row]](list), dict[str, str]()
    for line in table.splitlines()[1:]:
        # An editor may have removed the tabs before empty cells at the end.
        preset, settings, ours, paper, reference = (line.split("\t") + [""] * 3)[:5]
        if settings == "code":
            continue
        if settings == "as":
            like[preset] = ours
            continue
        same = f"`{ours}`" if stated(ours) is None else ours  # a number is shown as one
        rows[preset].append(Row((*settings.split(),), json.loads(ours), paper or same, reference))
    return rows, like


def rows_of(table: str, preset: str) -> dict[str, Row]:
    """The row of each setting that the file has for a preset, also from the preset that it is otherwise equal to."""
    rows, like = read_rows(table)
    ordered = [*rows.get(like.get(preset, preset), []), *rows.get(preset, [])]
    return {setting: row for row in ordered for setting in row.settings}


def stated(paper: str) -> Any:
    """The value in a cell about the paper if it is a plain number or JSON in backticks. None: it is explained in words,
    or it is null."""
    if re.fullmatch(r"`[^`]+`", paper):
        return json.loads(paper.strip("`"))
    return float(paper.replace(",", "")) if re.fullmatch(r"-?\d[\d,]*(\.\d+)?(e-?\d+)?", paper) else None
