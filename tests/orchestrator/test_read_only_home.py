"""A home on a file system that can only be read: commands that read work, and others say which file they could not
write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage.session import open_store

READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    folder.chmod(0o700)
    open_store(f"sqlite:///{folder}/coevo.db", create=True).close()
    return folder


def coevo(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call the command in a mount namespace where `home` can only be read."""
    program = [sys.executable, "-m", "orchestrator.cli", *arguments]
    command = ["unshare", "--mount", "sh", "-c", READ_ONLY, str(home), *program]
    return subprocess.run(
        command, env={**os.environ, "COEVO_HOME": str(home)}, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a folder read-only")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("status", 0),
        ("store keys list", 0),
        ("store du", 0),
        ("down", 1),
        ("up --free-ports", 1),
        ("store keys add a --scope read", 1),
    ],
)
def test_a_command_that_must_write_says_what_it_could_not_write(home: Path, arguments: str, code: int) -> None:
    done = coevo(home, *arguments.split())
    if "unshare: " in done.stderr or "mount: " in done.stderr:
        pytest.skip("this machine allows no mounts")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code:
        assert str(home) in done.stderr or "database" in done.stderr
