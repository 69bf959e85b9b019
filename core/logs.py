"""The logs of all processes: one line an event, as JSON or as text for people, without secrets.

A process calls `configure` when it starts. What it logs then goes to its standard error, which is a terminal, a file
below COEVO_HOME or the log of a container. `docs/alerts.md` describes the fields.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Literal, get_args

from typing_extensions import override

from core.errors import CoevoError
from core.texts.redaction import hide, without_secrets
from core.texts.unicode import to_json, without_commands
from core.types import Stage

Format = Literal["json", "text"]
VARIABLE = "COEVO_LOG_FORMAT"  # the environment variable with the format; child processes inherit it
LONGEST_MESSAGE = 4_000  # characters
_LONGEST_TRACEBACK = 3_000  # characters from its end
_FILE_BYTES, OLDER_FILES = 1_000_000, 2  # a file of `file_handler` is rotated, so that all take 3 MB at most
_OURS = ("core", "storage", "services", "trainers", "orchestrator", "benchmarks")
_PREFECT = "prefect"  # the process that only Prefect has configured, by the variable of `prefect_variables`


@dataclass(frozen=True, slots=True)
class Subject:
    """What a process works on, as far as it is known. Every line names it."""

    run: str | None = None
    iteration: int | None = None
    stage: Stage | None = None


class _Process:
    """What every line of this process says. It is no context variable: a stage's threads must say it too, and a process
    works on one stage at a time."""

    name = _PREFECT
    subject = Subject()


def configure(process: str, secrets: Iterable[str] = (), run: str | None = None) -> None:
    """Write what this process logs to standard error in the form of `format_of_process`, and hide `secrets` in it.

    `process` says in each line what the process is. `run` is what it works on, unless `working_on` says more. Warnings
    of Python and errors that nothing catches become lines too. It takes the place of Prefect's console. Raises
    `CoevoError` if the environment names an unknown format.
    """
    hide(secrets)
    console, root = Console(), logging.getLogger()
    _Process.name, _Process.subject = process, Subject(run)
    for name in (None, "uvicorn", "fastapi"):  # Prefect gives these a console each
        logger = logging.getLogger(name)
        logger.propagate = True
        for handler in [*logger.handlers]:
            if isinstance(handler, Console) or type(handler).__module__ == "prefect.logging.handlers":
                logger.removeHandler(handler)
    root.addHandler(console)
    root.setLevel(logging.WARNING)
    for name in _OURS:
        logging.getLogger(name).setLevel(logging.INFO)
    logging.captureWarnings(True)
    sys.excepthook, threading.excepthook = _log_uncaught, lambda of: _log_uncaught(of.exc_type, of.exc_value)


def is_configured() -> bool:
    """Whether `configure` was called in this process."""
    return _Process.name != _PREFECT


def format_of_process() -> Format:
    """The format that the environment names; without one text in a terminal, else JSON. Raises `CoevoError`."""
    for known in get_args(Format):
        if os.environ.get(VARIABLE) == known:
            chosen: Format = known
            return chosen
    if name := os.environ.get(VARIABLE):
        raise CoevoError(f"{VARIABLE}: expected {' or '.join(get_args(Format))}, got {name!r}")
    return "text" if sys.stderr.isatty() else "json"


@contextmanager
def only_shown(what: str) -> Iterator[None]:
    """Log an error of the block as a warning, and go on after the block.

    For blocks that do nothing but show `what`: no error of theirs may end a run.
    """
    try:
        yield
    except Exception as error:  # whatever it is, the run is not to end by it
        kind = type(error)
        expected = isinstance(error, CoevoError | OSError) or kind.__module__.partition(".")[0] in ("httpx", "prefect")
        details = None if expected else error
        logging.getLogger(__name__).warning("not shown: %s: %s: %s", what, kind.__name__, error, exc_info=details)


def prefect_variables() -> dict[str, str]:
    """The environment variables that make Prefect's own processes log in this form (Prefect: "Configure logging")."""
    return {"PREFECT_LOGGING_HANDLERS_CONSOLE_CLASS": f"{__name__}.{Console.__name__}"}


def subject() -> Subject:
    """What this process works on."""
    return _Process.subject


@contextmanager
def working_on(now: Subject) -> Iterator[None]:
    """Have the lines of this process say that it works on `now` while the block runs."""
    before, _Process.subject = _Process.subject, now
    try:
        yield
    finally:
        _Process.subject = before


class JsonLines(logging.Formatter):
    """A record as a line of JSON. `extra` may give a record another run, iteration or stage."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        about = {name: getattr(record, name, value) for name, value in asdict(_Process.subject).items()}
        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": _level(record),
            "process": _Process.name,
            "pid": record.process,
            "logger": record.name,
            **about,
            "message": _message(record),
        }
        return to_json(event)


class Text(logging.Formatter):
    """A record for people: time in UTC, level, the run if it is known, message."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        time, run = datetime.fromtimestamp(record.created, UTC), getattr(record, "run", _Process.subject.run)
        return without_commands(f"{time:%F %T} {_level(record):<7} {f'{run}: ' if run else ''}{_message(record)}")


def _level(record: logging.LogRecord) -> str:
    """DEBUG, INFO, WARNING or ERROR, which `storage.files.run_logs` reads."""
    return logging.getLevelName(max(logging.DEBUG, min(record.levelno // 10 * 10, logging.ERROR)))


def _message(record: logging.LogRecord) -> str:
    """The message with its traceback, without secrets. Each loses a part if it is too long."""
    text = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        lines = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
        if len(lines) > _LONGEST_TRACEBACK:  # its end names the error; it begins with a whole line
            lines = "[…]\n" + lines[-_LONGEST_TRACEBACK:].partition("\n")[2]
        text += f"\n{lines}"
    return shortened(without_secrets(text))


def shortened(text: str) -> str:
    """The first and the last half of what a line may contain of a long message."""
    half = LONGEST_MESSAGE // 2 - 3
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:half]} […] {text[-half:]}"


class Console(logging.Handler):
    """Writes lines to standard error. Prefect, which can be told to use it, passes arguments that it does not need."""

    def __init__(self, **_of_prefect: Any) -> None:
        super().__init__()
        super().setFormatter(Text() if format_of_process() == "text" else JsonLines())

    @override
    def setFormatter(self, fmt: logging.Formatter | None) -> None:
        """Keep the formatter: Prefect would set its own."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:  # sys.stderr at this time: a progress bar replaces it while it is shown
            print(self.format(record), file=sys.stderr, flush=True)
        except (OSError, TypeError, ValueError):
            self.handleError(record)


def take_secrets_out(record: logging.LogRecord) -> bool:
    """A filter for a logger whose handlers are not ours, such as Ray's and Prefect's. It lets all records through."""
    record.msg, record.args = without_secrets(record.getMessage()), None
    if record.exc_info and record.exc_info[1] is not None:  # other formatters print `exc_text`, if it is there
        record.exc_text = without_secrets("".join(traceback.format_exception(record.exc_info[1])).rstrip())
    return True


def file_handler(path: Path) -> RotatingFileHandler:
    """A handler that adds lines of JSON to a file, in a folder that exists. The file is made by the first line."""
    handler = RotatingFileHandler(
        path, maxBytes=_FILE_BYTES, backupCount=OLDER_FILES, encoding="utf-8", errors="replace", delay=True
    )
    handler.setFormatter(JsonLines())
    return handler


def _log_uncaught(kind: type[BaseException], error: BaseException | None, *_: object) -> None:
    if error is None or not issubclass(kind, Exception):  # Ctrl-C, or a thread that was asked to end
        return
    logging.getLogger(__name__).error("an error ended this process or thread", exc_info=error)
