"""Other users of the machine cannot enter the home folder, nor the folders that Ray makes elsewhere. In a home that can
only be read, commands that read work, and others say which file they could not write."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

from orchestrator.cli import app
from orchestrator.installation import cluster
from orchestrator.installation.environment import environment
from orchestrator.installation.home import Home, NotPrivate, Services, make_private
from orchestrator.installation.ports import ANY_FREE
from storage.session import open_store


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_private_folder_is_made_and_may_already_exist(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "own"
    make_private(folder)
    make_private(folder)
    assert mode(folder) == 0o700


def test_a_folder_that_others_may_enter_and_a_link_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    folder, link = tmp_path / "own", tmp_path / "link"
    folder.mkdir()
    folder.chmod(0o750)
    link.symlink_to(tmp_path)
    with pytest.raises(NotPrivate, match=rf"got mode 750: chmod 700 {folder}$"):
        make_private(folder)
    assert mode(folder) == 0o750
    with pytest.raises(NotPrivate, match=f"expected a folder of user {os.getuid()}, got l"):
        make_private(link)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_another_user_s_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)
    with pytest.raises(NotPrivate, match=r"of user 12345$"):
        make_private(folder)


def test_no_service_is_started_and_no_store_made_in_a_home_that_others_can_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    tmp_path.chmod(0o755)
    with pytest.raises(NotPrivate, match=f"^{tmp_path}: "):
        cluster.up(Home(tmp_path), ANY_FREE, lambda _line: None)
    result = CliRunner().invoke(app, ["up"])
    assert (result.exit_code, "mode 755" in result.stderr) == (1, True)
    assert not any(tmp_path.iterdir())


def test_ray_s_folder_is_in_a_private_one_and_its_name_is_short_enough_for_sockets(tmp_path: Path) -> None:
    folder = Home(tmp_path).ray_temp
    assert folder.parent.name == f"coevo-{os.getuid()}"
    assert len(folder.name) == 8


def test_a_secret_stays_the_same_and_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    home = Home(tmp_path)
    before = os.umask(0)
    try:
        first = home.secret("one")
        assert len(bytes.fromhex(first)) == 32
        assert first == Home(tmp_path).secret("one") != home.api_key
    finally:
        os.umask(before)
    assert mode(tmp_path / "secrets") == 0o700
    files = sorted((tmp_path / "secrets").iterdir())
    assert [(file.name, mode(file)) for file in files] == [("api", 0o600), ("one", 0o600)]


def test_a_secret_that_is_being_made_is_not_read(tmp_path: Path) -> None:
    home = Home(tmp_path)
    secret = home.secret("one")
    (tmp_path / "secrets" / "api.0123abcd").symlink_to("gone")  # as if it had vanished after it was listed
    assert home.secrets() == [secret]


def test_processes_that_make_a_secret_at_once_get_the_same_one(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    code = "import sys; from pathlib import Path; from orchestrator.installation.home import Home; sys.stdin.read(1)"
    code += f"; print(Home(Path({str(tmp_path)!r})).secret('one'))"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go")
        process.stdin.flush()
    assert len({process.communicate()[0] for process in processes}) == 1


@pytest.mark.parametrize("name", ["a?b", "a%20b", "e%41f", "a#b", "a b", "ü", "a&mode=memory", "a;b@c:d"])
def test_the_databases_are_in_the_home_whatever_characters_its_path_has(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    monkeypatch.setenv("COEVO_HOME", str(tmp_path / name))
    result = CliRunner().invoke(app, ["store", "migrate"])
    assert result.exit_code == 0, result.stderr
    home = Home(tmp_path / name)
    assert (home.path / "coevo.db").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert make_url(home.prefect_database).database == str(home.prefect / "prefect.db")
    services = Services("", "", "", "http://127.0.0.1:1", "", {})
    prefect = environment(home, services).get("PREFECT_API_DATABASE_CONNECTION_URL")
    assert make_url(prefect or f"sqlite+aiosqlite:///{home.prefect}/prefect.db") == make_url(home.prefect_database)


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    folder.chmod(0o700)
    open_store(f"sqlite:///{folder}/coevo.db", create=True).close()
    return folder


def coevo(read_only: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call the command in a mount namespace where `home` can only be read."""
    program = [sys.executable, "-m", "orchestrator.cli", *arguments]
    command = ["unshare", "--mount", "sh", "-c", READ_ONLY, str(read_only), *program]
    return subprocess.run(
        command, env={**os.environ, "COEVO_HOME": str(read_only)}, capture_output=True, text=True, check=False
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
def test_a_command_that_must_write_says_what_it_could_not_write(read_only: Path, arguments: str, code: int) -> None:
    done = coevo(read_only, *arguments.split())
    if "unshare: " in done.stderr or "mount: " in done.stderr:
        pytest.skip("this machine allows no mounts")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code:
        assert str(read_only) in done.stderr or "database" in done.stderr
