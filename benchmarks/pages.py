"""Updates the generated parts of pages in docs/."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
_BEGIN, _END = "<!-- begin measured -->", "<!-- end measured -->"


def write_measured(page: Path, parts: Sequence[str]) -> None:
    """Replace the text between the page's two marks by `parts`. Raises `ValueError` if the page has no such marks."""
    text = page.read_text(encoding="utf-8")
    begin, end = text.index(_BEGIN), text.index(_END)
    page.write_text("\n\n".join([f"{text[:begin]}{_BEGIN}", *parts, text[end:]]), encoding="utf-8")
