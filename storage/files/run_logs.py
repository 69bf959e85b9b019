"""The log of a run: FOLDER/RUN.log, in the lines of `core.logs`. It is rotated, so that it never takes more than 3 MB.

Only the process that holds the run's lease writes to it. The API and `coevo runs log` read it while it grows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal, get_args

from core.files import make_folder
from core.logs import OLDER_FILES, file_handler
from core.texts.unicode import from_json
from core.types import STAGES, Stage

Level = Literal["INFO", "WARNING", "ERROR"]


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
    return [path, *(path.with_name(f"{path.name}.{i}") for i in range(1, OLDER_FILES + 1))]


def log_file(folder: Path, run: str) -> RotatingFileHandler:
    """A handler that adds what is logged to the run's log."""
    make_folder(folder)
    return file_handler(log_path(folder, run))


def last_events(folder: Path, run: str, count: int) -> list[LogEvent]:
    """The last `count` events of a run in their order; none if it has no log here."""
    lines: deque[str] = deque(maxlen=count)
    path = log_path(folder, run)
    for number in (*range(OLDER_FILES, 0, -1), None):
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
            line_fields = from_json(line)
            values = {field.name: line_fields[field.name] for field in fields(LogEvent)}
            event = LogEvent(**{**values, "time": datetime.fromisoformat(values["time"])})
        except (KeyError, TypeError, ValueError):
            continue
        if event.level in get_args(Level) and event.stage in (None, *STAGES):
            yield event
