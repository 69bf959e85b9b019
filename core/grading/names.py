"""How the tables of names in this package are written."""

from __future__ import annotations


def names(text: str) -> list[str]:
    """The names in a text, which spaces separate."""
    return text.split()
