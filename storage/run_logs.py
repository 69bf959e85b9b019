"""The log of a run: FOLDER/RUN.log, one event a line as JSON. It is rotated, so that it never takes more than 3 MB.

Only the process that holds the run's lease writes to it. The API and `coevo logs` read it while it grows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal, get_args

from core.files import make_folder
from core.types import STAGES, Stage
from core.unicode import from_json, to_json

Level = Literal["INFO", "WARNING", "ERROR"]
LONGEST_MESSAGE = 4_000  # characters
_FILE_BYTES, _OLDER_FILES = 1_000_000, 2


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Something that a run said. `iteration` and `stage` are null if it is about the run as a whole."""

    time: datetime
    run: str
    iteration: int | None
    stage: Stage | None
    level: Level
    message: str


def log_path(folder: Path, run: str) -> Path:
    """The file of a run's log; those that were rotated have `.1` and `.2` after their names."""
    return folder / f"{run}.log"


def log_files(folder: Path, run: str) -> list[Path]:
    """The file of a run's log and those that were rotated, whether they exist or not."""
    path = log_path(folder, run)
    return [path, *(path.with_name(f"{path.name}.{i}") for i in range(1, _OLDER_FILES + 1))]


def log_file(folder: Path, run: str) -> RotatingFileHandler:
    """A handler that adds the messages of a logger, which must be lines of `as_line`, to the run's log."""
    make_folder(folder)
    return RotatingFileHandler(
        log_path(folder, run), maxBytes=_FILE_BYTES, backupCount=_OLDER_FILES, encoding="utf-8", delay=True
    )


def as_line(event: LogEvent) -> str:
    """The event as a line of the log, without the line's end. A message that is too long loses its middle."""
    return to_json({**asdict(event), "time": event.time.isoformat(), "message": shortened(event.message)})


def shortened(message: str) -> str:
    """The first and the last half of what an event may contain of a long message."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    half = LONGEST_MESSAGE // 2 - 3
    return f"{message[:half]} […] {message[-half:]}"


def last_events(folder: Path, run: str, count: int) -> list[LogEvent]:
    """The last `count` events of a run in their order; none if it has no log here."""
    lines: deque[str] = deque(maxlen=count)
    path = log_path(folder, run)
    for number in (*range(_OLDER_FILES, 0, -1), None):
        file = path if number is None else path.with_name(f"{path.name}.{number}")
        try:
            with file.open(encoding="utf-8", errors="replace") as opened:
                lines.extend(opened)
        except FileNotFoundError:  # it was not written yet, or has just been rotated
            continue
    return [*events_in(lines)]


def events_in(lines: Iterable[str]) -> Iterator[LogEvent]:
    """The events of some lines. A line that is not complete, which a crash can leave, is passed over."""
    for line in lines:
        try:
            fields = from_json(line)
            event = LogEvent(**{**fields, "time": datetime.fromisoformat(fields["time"])})
        except (KeyError, TypeError, ValueError):
            continue
        if event.level in get_args(Level) and event.stage in (None, *STAGES):
            yield event
