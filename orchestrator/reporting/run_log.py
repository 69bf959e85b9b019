"""What a run says while it works. It goes to the terminal, to the logs of the flow run in Prefect, and to a file.

A stage says its result in one line when it ends. Warnings and errors that any part of coevo, or a library, logs while a
stage runs go the same ways. Secrets are hidden in all of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from prefect.logging.handlers import APILogHandler
from prefect.runtime import flow_run, task_run
from typing_extensions import override

from core import logs
from core.errors import CoevoError
from core.texts.redaction import hide, without_secrets
from core.types import Stage
from orchestrator.installation.home import Home
from storage.files.run_logs import log_file
from storage.trouble import in_words

_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)


@contextmanager
def recorded(home: Home, run: str, iteration: int | None = None, stage: Stage | None = None) -> Iterator[None]:
    """Send what is said and logged in the block to the run's file, and to Prefect if the block runs in a flow run.

    An error that ends the block is logged as one, and is raised as by `errors_without_secrets`. Blocks must not be
    nested: each would write every line.
    """
    hide(home.secrets())
    handlers = list[logging.Handler]()
    with logs.only_shown(f"the log of run {run} as a file"):
        handlers.append(log_file(home.run_logs, run))
        handlers[0].addFilter(_is_ours)
    if flow_run.id is not None:
        to_prefect = APILogHandler()
        to_prefect.setFormatter(_Message())
        to_prefect.addFilter(partial(_is_ours, flow_run_id=flow_run.id, task_run_id=task_run.id))
        handlers.append(to_prefect)
    name = f"{stage} {iteration}" if stage else f"run {run}"
    root, started = logging.getLogger(), time.monotonic()
    with errors_without_secrets(), logs.working_on(logs.Subject(run, iteration, stage)):
        for handler in handlers:
            root.addHandler(handler)
        try:
            yield
        except Exception as error:
            seconds = time.monotonic() - started
            # The traceback of an error that a user can cause says nothing that its message does not.
            details = None if isinstance(error, CoevoError) else error
            _log.error("%s failed after %.1f s: %s: %s", name, seconds, type(error).__name__, error, exc_info=details)
            raise
        except BaseException:  # Ctrl-C, or Prefect ends the process of a cancelled flow run
            _log.warning("%s was interrupted after %.1f s", name, time.monotonic() - started)
            raise
        finally:
            for handler in handlers:
                root.removeHandler(handler)
                handler.close()


def say(text: str) -> None:
    """Log a line where `kept` says. `coevo run` shows it in the terminal."""
    _log.info("%s", text)


@contextmanager
def errors_without_secrets() -> Iterator[None]:
    """Replace an error whose message contains a secret by a `CoevoError` without it, and others as `in_words` does.

    Prefect stores and shows the message of an error that ends a flow run or a task run.
    """
    try:
        yield
    except Exception as error:
        shown = in_words(error)
        message = f"{type(shown).__name__}: {shown}"
        if (clean := without_secrets(message)) != message:
            raise CoevoError(clean) from None
        if shown is not error:
            raise shown from error
        raise


def tidy_prefect() -> None:
    """Have Prefect log no secrets, and an error that a user can cause in one line for each flow run that it ends.

    Prefect would log it with its traceback in every task and every flow that it passes, and once more at the end of the
    process. The line of the task is that of `kept`.
    """
    for name in ("prefect.flow_runs", "prefect.task_runs", "prefect.engine"):
        logger = logging.getLogger(name)
        logger.addFilter(_in_one_line if name == "prefect.flow_runs" else _is_no_user_error)
        logger.addFilter(logs.take_secrets_out)


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


def _is_ours(record: logging.LogRecord, **ids: str | None) -> bool:
    """False for what Prefect says of its own work. Other records get the ids by which Prefect finds their task run; a
    thread of the stage does not know them."""
    vars(record).update(ids)
    return not record.name.startswith("prefect") and record.levelno >= logging.INFO


class _Message(logging.Formatter):
    """The message without secrets and without a traceback, which Prefect logs itself."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return logs.shortened(without_secrets(record.getMessage()))
