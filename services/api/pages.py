"""Cursors, which encode a position in a list: a page begins where the previous one ended, whatever was added since."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import HTTPException

from storage.queries.run_list import RunKey, RunSort
from storage.queries.runs import RUN_NAME

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
        or not (isinstance(decoded[-1], int) and -1 <= decoded[-1] <= _LARGEST)
    ):
        raise HTTPException(400, f"after: expected `next` of a page in the same order, got {after[:100]!r}")
    return tuple(decoded)


def run_cursor(sort: RunSort, key: RunKey, name: str) -> str:
    """Encode a run's position in the list of runs: what the list is sorted by, and the run's name."""
    return _encoded([sort, (key - _EPOCH) // timedelta(microseconds=1) if isinstance(key, datetime) else key, name])


def run_position(after: str | None, sort: RunSort) -> tuple[RunKey, str] | None:
    """Decode a cursor into what the list is sorted by and the name of a run. None without a cursor.

    Raises `HTTPException` 400.
    """
    if after is None:
        return None
    match _decoded(after):
        case [str(order), key, str(name)] if order == sort and RUN_NAME.fullmatch(name):
            if sort.endswith("created") and isinstance(key, int) and 0 <= key <= _LAST_US:
                return _EPOCH + timedelta(microseconds=key), name
            if sort.endswith("name") and isinstance(key, str) and key == name:
                return key, name
            if not sort.endswith(("created", "name")) and _is_number(key):
                return float(key), name
    raise HTTPException(400, f"after: expected `next` of a page in the same order, got {after[:100]!r}")


def _encoded(sort_key: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(sort_key).encode()).decode().rstrip("=")


def _decoded(after: str) -> Any:
    """The decoded JSON; None if it was not encoded by `_encoded`."""
    try:
        return json.loads(base64.urlsafe_b64decode(after + "=" * (-len(after) % 4)))
    except (binascii.Error, ValueError):
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
