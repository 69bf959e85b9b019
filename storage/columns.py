"""Column types that keep what was written, on SQLite and PostgreSQL alike."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, Text
from sqlalchemy.types import TypeDecorator

# A model writes whatever it likes, but PostgreSQL stores no NUL and UTF-8 has no lone surrogates. They are written
# as this private-use character and their code in hexadecimal, and so is the character itself: nothing is lost.
_MARK = "\ue000"
_UNSTORABLE = re.compile(f"[\x00\ud800-\udfff{_MARK}]")
_STORED = re.compile(f"{_MARK}([0-9a-f]{{4}})")


def to_stored(text: str) -> str:
    """Any `str` as text that both databases and Parquet take."""
    return _UNSTORABLE.sub(lambda match: f"{_MARK}{ord(match[0]):04x}", text)


def from_stored(text: str) -> str:
    """The inverse of `to_stored`."""
    return _STORED.sub(lambda match: chr(int(match[1], 16)), text) if _MARK in text else text


class ModelText(TypeDecorator[str]):
    """Text that a model wrote: any characters, given back as they came."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        return None if value is None else to_stored(value)

    def process_result_value(self, value: str | None, _dialect: Dialect) -> str | None:
        return None if value is None else from_stored(value)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware timestamp in UTC. SQLite has no time zones: there it is stored as UTC without one."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"timestamp: expected one with a time zone, got {value!r}")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
