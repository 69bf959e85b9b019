"""Runs a temporary PostgreSQL server for tests and benchmarks, with the server programs that are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Where Debian, Red Hat and Homebrew put the server programs, which are not on PATH.
_FOLDERS = (("/usr/lib/postgresql", "*/bin"), ("/", "usr/pgsql-*/bin"), ("/opt/homebrew/opt", "postgresql@*/bin"))


def server_folder() -> Path | None:
    """The folder with `initdb` and `pg_ctl`: the one on PATH, else the newest version; None if there is none."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    folders = [
        folder for root, pattern in _FOLDERS for folder in Path(root).glob(pattern) if (folder / "initdb").exists()
    ]

    def version(folder: Path) -> float:
        return float("".join(letter for letter in folder.parent.name if letter.isdigit() or letter == ".") or 0)

    return max(folders, key=version, default=None)


@contextmanager
def temporary_postgresql(fsync: bool = False, shared_buffers: str = "128MB") -> Iterator[str | None]:
    """Start an empty server on a Unix socket and yield its URL, then stop and remove it. None if none is installed.

    With `fsync=False`, commits are faster than on a real server, so a benchmark that measures commits needs True.
    `shared_buffers` is the server's memory for tables and indexes; the default here is PostgreSQL's own.
    """
    programs = server_folder()
    if programs is None:
        yield None
        return
    # PostgreSQL refuses to run as root. As root, give the folder and the processes to an unprivileged user.
    user = None
    if os.geteuid() == 0:
        import pwd  # here, because not every system has it

        user = "postgres" if "postgres" in {entry.pw_name for entry in pwd.getpwall()} else "nobody"
    # The path of a socket may have only about 100 characters, and that of TMPDIR may be too long.
    folder = Path(tempfile.mkdtemp(prefix="coevo-pg-", dir="/tmp"))
    if user is not None:
        shutil.chown(folder, user)
    try:
        initial = ("--username=coevo", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        _call(user, programs / "initdb", "-D", folder / "data", *initial)
        options = f"-k {folder} -c listen_addresses='' -c fsync={'on' if fsync else 'off'}"
        options += f" -c shared_buffers={shared_buffers}"
        _call(user, programs / "pg_ctl", "-D", folder / "data", "-l", folder / "log", "-o", options, "-w", "start")
        try:
            yield f"postgresql+psycopg://coevo@/postgres?host={folder}"
        finally:
            _call(user, programs / "pg_ctl", "-D", folder / "data", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


def _call(user: str | None, *command: str | Path) -> None:
    """Run a server program as `user`. Its output goes to a file, because the server would keep a pipe open."""
    with tempfile.TemporaryFile() as output:
        try:
            subprocess.run(command, check=True, user=user, group=user, cwd="/", stdout=output, stderr=subprocess.STDOUT)
        except subprocess.CalledProcessError as error:
            output.seek(0)
            raise RuntimeError(f"{Path(command[0]).name} failed:\n{output.read().decode()}") from error
