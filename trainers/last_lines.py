"""The end of the logs of a training that failed, for the log of the run that waits for it."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from core.texts.redaction import without_secrets
from core.texts.unicode import from_json

_log = logging.getLogger(__name__)
_CHARS = 3_000  # less than a line of the log may have
_READ_BYTES = 64_000  # from the end of a log


def log_last_lines(files: list[Path]) -> None:
    """Log the last lines of each of these files that exists, as one error, without secrets."""
    for file in files:
        if lines := last_lines(file):
            _log.error("the last lines of %s:\n%s", file.name, lines)


def last_lines(file: Path) -> str:
    """The last lines of a log as text, 3,000 characters at most; empty if there is no such file.

    Of a line of JSON, as `core.logs` writes them, only the level and the message are taken.
    """
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - _READ_BYTES))
            text = opened.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        with suppress(KeyError, TypeError, ValueError):  # a line that is no JSON stays as it is
            event = from_json(line)
            lines[i] = f"{event['level']:<7} {event['message']}"
    shown = without_secrets("\n".join(lines))
    return shown if len(shown) <= _CHARS else "[…]\n" + shown[-_CHARS:].partition("\n")[2]
