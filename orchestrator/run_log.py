"""What a run says while it works. It goes to the terminal, to the logs of the flow run in Prefect, and to a file.

A stage says its result in one line when it ends. Warnings and errors that any part of coevo, or a library, logs while a
stage runs go the same ways. Secrets are hidden in all of them.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

from prefect.logging.handlers import APILogHandler
from prefect.runtime import flow_run, task_run

from core.errors import CoevoError
from core.redaction import redacted, secrets_in
from core.types import Stage
from core.unicode import without_commands
from orchestrator.installation.home import Home
from storage.run_logs import Level, LogEvent, as_line, log_file, shortened

_LONGEST_TRACEBACK = 3_000  # characters from its end
_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)
_log.propagate = False  # the terminal gets its lines from `say`, not in the form of Prefect's console


@contextmanager
def kept(home: Home, run: str, iteration: int | None = None, stage: Stage | None = None) -> Iterator[None]:
    """Send what is said and logged in the block to the run's file, and to Prefect if the block runs in a flow run.

    An error that ends the block is logged as one. Blocks must not be nested: each would write every line.
    """
    secrets = [*secrets_in(os.environ), *home.secrets()]
    to_file = log_file(home.run_logs, run)
    to_file.setFormatter(_Lines(run, iteration, stage, secrets))
    handlers: list[logging.Handler] = [to_file]
    if flow_run.id is not None:
        to_prefect = APILogHandler()
        to_prefect.setFormatter(_Text(secrets))
        to_prefect.addFilter(partial(_is_ours, flow_run_id=flow_run.id, task_run_id=task_run.id))
        handlers.append(to_prefect)
    to_file.addFilter(_is_ours)
    with _attached(handlers):
        started = time.monotonic()
        try:
            yield
        except BaseException as error:
            name = f"{stage} {iteration}" if stage else f"run {run}"
            _log_end(error, name, time.monotonic() - started)
            raise


def say(text: str) -> None:
    """Print a line in the terminal, and log it where `kept` says."""
    print(without_commands(redacted(text, secrets_in(os.environ))), file=sys.stderr, flush=True)
    _log.info("%s", text)


def hide_tracebacks() -> None:
    """Have Prefect log an error that a user can cause in one line for each flow run that it ends, without a traceback.

    Prefect would log it with its traceback in every task and every flow that it passes, and once more at the end of the
    process. The line of the task is that of `kept`.
    """
    logging.getLogger("prefect.flow_runs").addFilter(_in_one_line)
    for name in ("prefect.task_runs", "prefect.engine"):
        logging.getLogger(name).addFilter(_is_no_user_error)


def _in_one_line(record: logging.LogRecord) -> bool:
    if not _is_no_user_error(record) and record.exc_info:
        record.msg, record.args, record.exc_info = (
            f"{type(record.exc_info[1]).__name__}: %s",
            record.exc_info[1:2],
            None,
        )
    return True


def _is_no_user_error(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], CoevoError))


def _log_end(error: BaseException, name: str, seconds: float) -> None:
    if not isinstance(error, Exception):  # Ctrl-C, or Prefect ends the process of a cancelled flow run
        _log.warning("%s was interrupted after %.1f s", name, seconds)
        return
    # The traceback of an error that a user can cause says nothing that its message does not.
    details = None if isinstance(error, CoevoError) else error
    _log.error("%s failed after %.1f s: %s: %s", name, seconds, type(error).__name__, error, exc_info=details)


@contextmanager
def _attached(handlers: list[logging.Handler]) -> Iterator[None]:
    loggers = (logging.getLogger(), _log)
    for logger in loggers:
        for handler in handlers:
            logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            for handler in handlers:
                logger.removeHandler(handler)
        for handler in handlers:
            handler.close()


def _is_ours(record: logging.LogRecord, **ids: str | None) -> bool:
    """False for what Prefect says of its own work. Other records get the ids by which Prefect finds their task run; a
    thread of the stage does not know them."""
    vars(record).update(ids)
    return not record.name.startswith("prefect") and record.levelno >= logging.INFO


class _Text(logging.Formatter):
    """The message without secrets and without a traceback, which Prefect logs itself."""

    def __init__(self, secrets: list[str]) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return shortened(redacted(record.getMessage(), self._secrets))


class _Lines(logging.Formatter):
    """A line of the run's file."""

    def __init__(self, run: str, iteration: int | None, stage: Stage | None, secrets: list[str]) -> None:
        super().__init__()
        self._secrets = secrets
        self._event = partial(LogEvent, run=run, iteration=iteration, stage=stage)

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage() + _traceback(record)
        event = self._event(
            time=datetime.fromtimestamp(record.created, UTC),
            level=_level(record.levelno),
            message=redacted(message, self._secrets),
        )
        return as_line(event)


def _traceback(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    lines = "".join(traceback.format_exception(cast(Any, record.exc_info[1])))
    if len(lines) > _LONGEST_TRACEBACK:  # its end names the error; it begins with a whole line
        lines = "[…]\n" + lines[-_LONGEST_TRACEBACK:].partition("\n")[2]
    return f"\n{lines.rstrip()}"


def _level(number: int) -> Level:
    if number >= logging.ERROR:
        return "ERROR"
    return "WARNING" if number >= logging.WARNING else "INFO"
