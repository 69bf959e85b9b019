"""Errors of the store. A message names the object, what was expected of it, and what was found."""

from __future__ import annotations

import errno

from sqlalchemy.exc import DBAPIError, OperationalError

from core.errors import CoevoError


class StoreError(CoevoError):
    """The store cannot do what was requested; the base class of all errors of this package."""


class NotThere(StoreError):
    """The store has no object of the given name or id."""


class RunHeld(StoreError):
    """Another process works on the run."""


class StageHeld(StoreError):
    """Another owner holds a live lease on the stage or on its run."""


class LeaseLost(StoreError):
    """The owner no longer holds the stage or the run.

    Another owner claimed it after the lease had expired, or the stage is finished, or the run was released.
    """


class CheckpointError(StoreError):
    """A checkpoint's folder cannot be published, or it differs from what was published."""


class ArchiveError(StoreError):
    """An archive cannot be written, or must not be restored; the message says why."""


class AlreadyAcknowledged(StoreError):
    """Somebody has acknowledged this alert before; the message says who and when."""


class UnreadableSettings(StoreError):
    """This process cannot read a run's settings: they are of another version of coevo, or of a missing package."""


class Trouble(StoreError):
    """The disk is full, or the database does not answer. What is stored stays as it is, and a run can be resumed."""


_DISK_IS_FULL = "the disk is full; `coevo du` shows what takes space, and `coevo gc` removes what is not needed"
_SQLITE_IS_FULL = "database or disk is full"


def reason_of(error: Exception) -> str:
    """Why the database failed, for a message: without the statement and its values."""
    return str(error.orig if isinstance(error, DBAPIError) else error).strip()


def in_words(error: Exception) -> Exception:
    """A `Trouble` if the disk or the database is the cause; else the error itself. The message has no statement."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        file = f"{error.filename}: " if error.filename else ""
        return Trouble(f"{file}{_DISK_IS_FULL}")
    if isinstance(error, OperationalError):
        reason = reason_of(error).partition("\n")[0]
        return Trouble(f"database: {_DISK_IS_FULL if reason == _SQLITE_IS_FULL else reason}")
    return error
