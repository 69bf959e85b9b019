"""Pages of docs/ that have a part which a command writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
_BEGIN, _END = "<!-- begin measured -->", "<!-- end measured -->"


def write_measured(page: Path, parts: Sequence[str]) -> None:
    """Replace what stands between the page's two marks. Raises `ValueError` where it has no such marks."""
    text = page.read_text(encoding="utf-8")
    begin, end = text.index(_BEGIN), text.index(_END)
    page.write_text("\n\n".join([f"{text[:begin]}{_BEGIN}", *parts, text[end:]]), encoding="utf-8")
