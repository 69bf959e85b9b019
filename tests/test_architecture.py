"""docs/architecture.md matches the source: its files and functions exist, and its picture has every package."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([\w/]+\.(?:py|js)):\s(\w+)`", PAGE)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_function_that_the_page_names_exists(file: str, name: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^\s*(?:async |export )?(?:def|class|function) {name}\b", source, re.MULTILINE)


def test_the_picture_shows_every_package() -> None:
    picture = (ROOT / "docs" / "pictures" / "architecture.svg").read_text(encoding="utf-8")
    for package in ("core", "storage", "services", "trainers", "orchestrator", "benchmarks"):
        assert f"<!-- {package} -->" in picture


def test_the_table_of_packages_is_up_to_date_with_the_source() -> None:
    drawing = runpy.run_path(str(ROOT / "docs" / "draw_architecture.py"))
    assert drawing["with_folders"](PAGE) == PAGE
