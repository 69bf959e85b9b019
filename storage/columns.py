"""Column types that keep what was written, on SQLite and PostgreSQL alike."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, Text
from sqlalchemy.types import TypeDecorator

from core.unicode import well_formed

# PostgreSQL stores no NUL. It is written as this private-use character and its code in hexadecimal, and so is the
# character itself. Older versions wrote lone surrogates so, too.
_MARK = "\ue000"
_UNSTORABLE = re.compile(f"[\x00{_MARK}]")
_STORED = re.compile(f"{_MARK}([0-9a-f]{{4}})")


def to_stored(text: str) -> str:
    """Any `str` as text that both databases and Parquet take; a lone surrogate becomes U+FFFD."""
    return _UNSTORABLE.sub(lambda match: f"{_MARK}{ord(match[0]):04x}", well_formed(text))


def from_stored(text: str) -> str:
    """The inverse of `to_stored`: well-formed text, whichever version stored it."""
    return well_formed(_STORED.sub(lambda match: chr(int(match[1], 16)), text)) if _MARK in text else text


class AnyText(TypeDecorator[str]):
    """Text of any characters, whoever wrote it. It is given back as it came, but for lone surrogates, which become
    U+FFFD."""

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
