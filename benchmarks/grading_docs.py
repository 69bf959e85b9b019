"""Writes the measured part of docs/grading.md from the output of `coevo bench grading`:

coevo bench grading --json > cases.json
coevo bench grading math500 aime24 aime25 --json > grading.json
python -m benchmarks.grading_docs cases.json grading.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages import DOCS, write_measured
from core.statistics.estimates import wilson

_VERDICTS = [(grader, verdict) for grader in ("ours", "math_verify") for verdict in ("wrong", "unknown")]
_TITLES = {"equal": "Equal answers", "unequal": "Unequal answers"}


def write(cases: dict[str, Any], figures: dict[str, Any], page: Path = DOCS / "grading.md") -> None:
    """Replace the measured part of `page` by the figures of one run on the cases, and one on benchmarks' answers."""
    answers = ", ".join(f"{Path(name).stem} ({count})" for name, count in figures["answers"].items())
    intro = f"Different answers: {answers}. math-verify {figures['math_verify']}, sympy {figures['sympy']}."
    tables = [f"**{title}**\n\n{_table(figures[truth])}" for truth, title in _TITLES.items()]
    write_measured(page, ["**Cases by class**", cases["cases"].strip(), intro, *tables])


def _table(figures: dict[str, Any]) -> str:
    """A row for each rule on which a grader failed, then rows for the other rules, for all, and for the answers."""
    rules = figures["rules"].items()
    failed = {name: rule for name, rule in rules if any(_counts(rule))}
    others = [rule for name, rule in rules if name not in failed]
    n = sum(rule["n"] for rule in others)
    answers = figures["answers"]
    lines = [
        "| rule | n | ours: wrong | ours: unknown | math-verify: wrong | math-verify: unknown |",
        "|---|---|---|---|---|---|",
        *(_row(name, rule["n"], _counts(rule)) for name, rule in failed.items()),
        _row(f"{len(others)} other rules", n, [0, 0, 0, 0]),
        _row("all pairs", figures["pairs"]["n"], _counts(figures["pairs"])),
        _row(
            "answers with a wrong verdict in any pair",
            answers["ours"]["n"],
            [answers["ours"]["count"], None, answers["math_verify"]["count"], None],
        ),
    ]
    return "\n".join(lines)


def _counts(shares: dict[str, Any]) -> list[int]:
    return [shares[grader][verdict]["count"] for grader, verdict in _VERDICTS]


def _row(name: str, n: int, counts: Sequence[int | None]) -> str:
    return f"| {name} | {n:,} | {' | '.join(_cell(count, n) for count in counts)} |"


def _cell(count: int | None, n: int) -> str:
    interval = wilson(count, n) if count is not None else None
    if count is None or interval is None:
        return ""
    low, high = (100 * end for end in interval)
    return f"{count:,}: {100 * count / n:.1f}% [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    write(*(json.loads(Path(path).read_text(encoding="utf-8")) for path in sys.argv[1:3]))
