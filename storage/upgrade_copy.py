"""A copy of a SQLite database before its tables are upgraded: FILE.before-VERSION beside it, the newest `KEPT` of them.

To go back to the earlier version of coevo, stop the services and rename the copy to the database's name. PostgreSQL has
`pg_dump` for this.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from core.files import put
from storage.errors import StoreError

KEPT = 2


def copy_committed(database: Path, target: Path) -> None:
    """Copy what is committed in a SQLite database to an empty or missing file. Raises `sqlite3.Error`."""
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)


def copy_before_upgrade(database: Path, version: str) -> Path:
    """Copy what is committed in a database to DATABASE.before-VERSION, and return this path.

    The copy appears when it is complete, and replaces an earlier one of this version: that migration was rolled back.
    Older copies are removed. Raises `StoreError` when the copy cannot be written.
    """
    final = database.with_name(f"{database.name}.before-{version}")
    temporary = database.with_name(f"{final.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        temporary.touch(mode=0o600)
        copy_committed(database, temporary)
        shutil.copymode(database, temporary)
        put(temporary, final)
    except (sqlite3.Error, OSError) as error:
        temporary.unlink(missing_ok=True)
        needed, free = database.stat().st_size, shutil.disk_usage(database.parent).free
        raise StoreError(
            f"its tables are to be upgraded to version {version}, and a copy is made before that: {final} cannot be "
            f"written: {error}; it takes {needed:,} bytes, {free:,} are free"
        ) from error
    # A version is a number of four digits. The name of the database may have characters that `glob` takes for others.
    copies = [path for path in database.parent.iterdir() if path.name[:-4] == f"{database.name}.before-"]
    for old in sorted(copies)[:-KEPT]:
        old.unlink()
    return final
