"""Column types that read back what was written, on SQLite as on PostgreSQL."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, Text
from sqlalchemy.types import TypeDecorator
from typing_extensions import override

from core.texts.unicode import well_formed

# PostgreSQL cannot store NUL. NUL is written as this private-use character, followed by the code of NUL in four
# hexadecimal digits. The private-use character itself is written in the same way.
_MARK = "\ue000"
_TO_ESCAPE = re.compile(f"[\x00{_MARK}]")
_ESCAPED = re.compile(f"{_MARK}([0-9a-f]{{4}})")


def to_stored(text: str) -> str:
    """Convert any `str` to text that both databases and Parquet can store; a lone surrogate becomes U+FFFD."""
    return _TO_ESCAPE.sub(lambda match: f"{_MARK}{ord(match[0]):04x}", well_formed(text))


def from_stored(text: str) -> str:
    """The inverse of `to_stored`."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if _MARK in text else text


class AnyText(TypeDecorator[str]):
    """Text of any characters. It is read back as it was written, except for lone surrogates, which become U+FFFD."""

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        return None if value is None else to_stored(value)

    @override
    def process_result_value(self, value: str | None, _dialect: Dialect) -> str | None:
        return None if value is None else from_stored(value)


class UtcDateTime(TypeDecorator[datetime]):
    """A timestamp in UTC. SQLite has no time zones, so there it is stored in UTC without one."""

    impl = DateTime(timezone=True)
    cache_ok = True

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"timestamp: expected one with a time zone, got {value!r}")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    @override
    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
