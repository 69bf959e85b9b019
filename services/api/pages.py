"""Cursors, which encode a position in a list: a page begins where the previous one ended, whatever was added since."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import HTTPException

from storage.queries.runs import RUN_NAME

LARGEST_PAGE = 200
_LARGEST = 2**31 - 1  # largest index
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def cursor(sort_key: Sequence[float]) -> str:
    """Encode a position in a list of questions."""
    return _encoded(list(sort_key))


def position(after: str | None, size: int) -> tuple[float, ...]:
    """Decode a cursor into its position: `size` numbers, of which the last is an index. () without a cursor.

    Raises `HTTPException` 400.
    """
    if after is None:
        return ()
    decoded = _decoded(after)
    if (
        not isinstance(decoded, list)
        or len(decoded) != size
        or not all(map(_is_number, decoded))
        or not _is_index(decoded[-1])
    ):
        raise HTTPException(400, f"after: expected `next` of a page in the same order, got {after[:100]!r}")
    return tuple(decoded)


def run_cursor(created_at: datetime, name: str) -> str:
    """Encode a run's position in the list of all runs, which has the newest first."""
    return _encoded([(created_at - _EPOCH) // timedelta(microseconds=1), name])


def run_position(after: str | None) -> tuple[datetime, str] | None:
    """Decode a cursor into the creation time and name of a run. None without a cursor. Raises `HTTPException` 400."""
    if after is None:
        return None
    match _decoded(after):
        case [int(created_us), str(name)] if 0 <= created_us <= _LAST_US and RUN_NAME.fullmatch(name):
            return _EPOCH + timedelta(microseconds=created_us), name
    raise HTTPException(400, f"after: expected `next` of a previous page, got {after[:100]!r}")


def _encoded(sort_key: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(sort_key).encode()).decode().rstrip("=")


def _decoded(after: str) -> Any:
    """The decoded JSON; None if it was not encoded by `_encoded`."""
    try:
        return json.loads(base64.urlsafe_b64decode(after + "=" * (-len(after) % 4)))
    except (binascii.Error, ValueError):
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_index(value: float) -> bool:
    return isinstance(value, int) and -1 <= value <= _LARGEST
