"""Links in the docs lead to a file, and to a heading of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.installation.home import ROOT

_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"]


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them: lower case, dashes for spaces, without other signs."""
    headings = re.findall(r"^#+ (.+)$", _CODE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []
