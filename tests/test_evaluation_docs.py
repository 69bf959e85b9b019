"""The tables of docs/evaluation.md are those of deploy/benchmarks and deploy/suites."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_tables_are_up_to_date() -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    listing = runpy.run_path(str(ROOT / "docs" / "list_benchmarks.py"))
    assert listing["with_tables"](page) == page
    for part in ("`math500` 500, ", "| `scrl` | `aime24` 16, "):
        assert part in page
