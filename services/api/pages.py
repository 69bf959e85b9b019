"""Places in a list as opaque cursors, so that a page begins where the one before ended, whatever was added since."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Sequence

from fastapi import HTTPException

LARGEST_PAGE = 200
_LARGEST = 2**31 - 1  # of an index


def cursor(place: Sequence[float]) -> str:
    """The text that stands for a place."""
    return base64.urlsafe_b64encode(json.dumps(list(place)).encode()).decode().rstrip("=")


def place(after: str | None, size: int) -> tuple[float, ...]:
    """The place that a cursor stands for, of `size` numbers, the last an index; () for none.

    Raises `HTTPException` 400.
    """
    if after is None:
        return ()
    try:
        found = json.loads(base64.urlsafe_b64decode(after + "=" * (-len(after) % 4)))
    except (binascii.Error, ValueError):
        found = None
    if not isinstance(found, list) or len(found) != size or not all(map(_is_number, found)) or not _is_index(found[-1]):
        raise HTTPException(400, f"after: expected `next` of a page in the same order, got {after[:100]!r}")
    return tuple(found)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_index(value: float) -> bool:
    return isinstance(value, int) and -1 <= value <= _LARGEST
