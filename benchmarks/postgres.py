"""A throw-away PostgreSQL server for the tests and the benchmarks, from whatever server binaries the machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Where packagers put the server programs when they leave them off PATH: Debian, Red Hat, Homebrew.
_FOLDERS = (("/usr/lib/postgresql", "*/bin"), ("/", "usr/pgsql-*/bin"), ("/opt/homebrew/opt", "postgresql@*/bin"))


def server_folder() -> Path | None:
    """The folder that holds `initdb` and `pg_ctl`, the newest where there are several; None when there is none."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    folders = [
        folder for root, pattern in _FOLDERS for folder in Path(root).glob(pattern) if (folder / "initdb").exists()
    ]
    return max(folders, key=_version, default=None)


def _version(folder: Path) -> float:
    digits = "".join(c for c in folder.parent.name if c.isdigit() or c == ".")
    return float(digits or 0)


@contextmanager
def temporary_postgresql(fsync: bool = False, shared_buffers: str = "128MB") -> Iterator[str | None]:
    """Start an empty server on a Unix socket, yield its URL, stop and remove it; None where no server is installed.

    `fsync=False` is for tests only: a benchmark that wants honest commit times asks for True. `shared_buffers` is its
    memory for tables and indexes; PostgreSQL's own default is the one here.
    """
    programs = server_folder()
    if programs is None:
        yield None
        return
    # PostgreSQL refuses to run as root, so root hands the folder and the processes to an unprivileged user.
    user = _unprivileged_user() if os.geteuid() == 0 else None
    # A socket's path has room for about 100 characters: TMPDIR may be too deep for one.
    folder = Path(tempfile.mkdtemp(prefix="coevo-pg-", dir="/tmp"))
    if user is not None:
        shutil.chown(folder, user)
    try:
        _call(
            user,
            programs / "initdb",
            "-D",
            folder / "data",
            "-U",
            "coevo",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        )
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
    """Run a server program as `user`. Its output goes to a file: the server would hold a pipe open while it lives."""
    with tempfile.TemporaryFile() as output:
        try:
            subprocess.run(command, check=True, user=user, group=user, cwd="/", stdout=output, stderr=subprocess.STDOUT)
        except subprocess.CalledProcessError as error:
            output.seek(0)
            raise RuntimeError(f"{Path(command[0]).name} failed:\n{output.read().decode()}") from error


def _unprivileged_user() -> str:
    import pwd

    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
