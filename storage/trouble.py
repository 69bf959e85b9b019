"""A full disk, files that cannot be used, and a database that does not answer, in words that a person understands.

It imports SQLAlchemy, and so is not in `storage.errors`, which workers of a training import too.
"""

from __future__ import annotations

import errno

from sqlalchemy.exc import DBAPIError, OperationalError

from storage.errors import StoreError


class StorageUnusable(StoreError):
    """The disk is full, a file cannot be used, or the database does not answer. What is stored stays as it is, and a
    run can be resumed."""


_DISK_IS_FULL = "the disk is full; `coevo store du` shows what takes space, `coevo store gc` removes what is not needed"
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
_SQLITE_IS_FULL = "database or disk is full"


def reason_of(error: Exception) -> str:
    """Why the database failed, for a message: without the statement and its values."""
    return str(error.orig if isinstance(error, DBAPIError) else error).strip()


def in_words(error: Exception) -> Exception:
    """A `StorageUnusable` if the disk or the database is the cause; else the error itself, with no statement in it."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        file = f"{error.filename}: " if error.filename else ""
        return StorageUnusable(f"{file}{_DISK_IS_FULL}")
    if isinstance(error, OSError) and error.errno in _REFUSED and error.filename:
        return StorageUnusable(f"{error.filename}: {error.strerror}")
    if isinstance(error, OperationalError):
        reason = reason_of(error).partition("\n")[0]
        return StorageUnusable(f"database: {_DISK_IS_FULL if reason == _SQLITE_IS_FULL else reason}")
    return error
