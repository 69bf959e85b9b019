"""Places in a list as opaque cursors, so that a page begins where the one before ended, whatever was added since."""

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
_LARGEST = 2**31 - 1  # of an index
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def cursor(sort_key: Sequence[float]) -> str:
    """The text that stands for a place."""
    return _encoded(list(sort_key))


def place(after: str | None, size: int) -> tuple[float, ...]:
    """The place that a cursor stands for, of `size` numbers, the last an index; () for none.

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
    """The text that stands for a run's place among all, the newest first."""
    return _encoded([(created_at - _EPOCH) // timedelta(microseconds=1), name])


def run_place(after: str | None) -> tuple[datetime, str] | None:
    """When the run that a cursor stands for was made, and its name; None for none. Raises `HTTPException` 400."""
    if after is None:
        return None
    match _decoded(after):
        case [int(made), str(name)] if 0 <= made <= _LAST_US and RUN_NAME.fullmatch(name):
            return _EPOCH + timedelta(microseconds=made), name
    raise HTTPException(400, f"after: expected `next` of a page before, got {after[:100]!r}")


def _encoded(sort_key: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(sort_key).encode()).decode().rstrip("=")


def _decoded(after: str) -> Any:
    """None where it is nothing that was encoded here."""
    try:
        return json.loads(base64.urlsafe_b64decode(after + "=" * (-len(after) % 4)))
    except (binascii.Error, ValueError):
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_index(value: float) -> bool:
    return isinstance(value, int) and -1 <= value <= _LARGEST
