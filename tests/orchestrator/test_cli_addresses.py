"""`coevo status` shows the services' addresses, and commands use them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from core.processes import identity as processes
from orchestrator.cli import app
from orchestrator.cli.addresses import addresses, client
from orchestrator.installation.home import Home, Services
from orchestrator.installation.ports import Ports
from services.api.access.keys import accept_home_key
from services.api.app import create_app
from storage.session import open_store
from tests.api_server import served
from tests.synthetic_run import fill_run

ELSEWHERE = "http://127.0.0.1:9"  # no server answers at this address


@pytest.fixture
def api_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an API on a free port, in a home with a run. The home's services.json is like that of
    `coevo up --free-ports`, and names the test's own process."""
    for name in ("COEVO_DATABASE", "COEVO_RAY_ADDRESS", "COEVO_API_URL", "COEVO_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    home = Home(tmp_path)
    store = open_store(home.database, create=True)
    fill_run(store, "demo", per_level=2)
    accept_home_key(store, home.api_key)
    with served(create_app(store, tmp_path / "exports", ask_for_keys=True)) as url:
        pid = os.getpid()
        home.save_services(
            Services(
                "127.0.0.1:6001", "http://127.0.0.1:6002", "http://127.0.0.1:6003", "http://127.0.0.1:6004", "secret",
                {pid: ("api", processes.started(pid))}, url, "coevo:password",
            )
        )  # fmt: skip
        yield url
    store.close()


def coevo(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def test_a_command_uses_the_api_of_this_home_unless_told_otherwise(
    api_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "demo" in coevo("runs", "list")
    assert coevo("show", "questions", "demo", "1", "--limit", "2", "--json").count("\n") == 2
    monkeypatch.setenv("COEVO_API_URL", ELSEWHERE)
    assert f"{ELSEWHERE}: no answer" in coevo("runs", "list", status=1)
    # A command does not send this home's key to an address given by --url.
    assert "HTTP 401" in coevo("runs", "list", "--url", api_url, status=1)
    assert "demo" in coevo("runs", "list", "--url", api_url, "--key", Home(tmp_path).api_key)


def test_without_services_commands_use_the_default_address_of_coevo_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They say so, since another home's API may listen there."""
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_RAY_ADDRESS", raising=False)
    address = f"http://127.0.0.1:{Ports().api}"
    assert client(None, None).url == address
    note = f"`coevo up` has started no API from this COEVO_HOME ({tmp_path}), so {address} is asked"
    assert note in capsys.readouterr().err
    assert client(ELSEWHERE, None).url == ELSEWHERE
    assert capsys.readouterr().err == ""


def test_status_prints_every_address_and_no_secret(api_url: str) -> None:
    shown = coevo("status")
    for address in (api_url, f"{api_url}/api/v1", *(f"127.0.0.1:{port}" for port in (6001, 6002, 6003, 6004))):
        assert address in shown
    assert f"described at {api_url}/api/docs" in shown
    before, hint, after = shown.partition("\n`coevo status --secrets` prints the dashboard's address with its key\n")
    assert hint
    key = Home(Path(os.environ["COEVO_HOME"])).api_key
    assert not [secret for secret in ("secret", "password", key) if secret in before + after]
    with_them = coevo("status", "--secrets")
    assert f"{api_url}/#key={key}" in with_them
    assert "coevo status --secrets" not in with_them
    assert "http://127.0.0.1:6004, password coevo:password" in with_them
    assert "http://127.0.0.1:6002, token secret (for a private window only)\n" in with_them


def test_status_prints_no_addresses_of_services_that_have_ended(api_url: str) -> None:
    home = Home(Path(os.environ["COEVO_HOME"]))
    home.save_services(None)
    shown = coevo("status")
    assert "services: none (`coevo up` starts them)" in shown
    assert "are missing: Prefect is not running; `coevo up` starts it" in shown
    assert "coevo status" not in shown
    assert api_url not in shown


def test_status_names_the_services_that_have_ended(api_url: str) -> None:
    home = Home(Path(os.environ["COEVO_HOME"]))
    services = home.services()
    home.save_services(replace(services, processes={**services.processes, 2**22 + 1: ("runner", 1.0)}))
    assert "services: api; ended: runner (`coevo up` starts what has ended" in coevo("status")
    shown = json.loads(coevo("status", "--json"))
    assert (shown["services"], shown["ended"]) == (["api"], ["runner"])
    home.save_services(replace(services, processes={2**22 + 1: ("runner", 1.0)}))
    assert "services: ended: runner (" in coevo("status")
    assert api_url not in coevo("status")


def test_status_before_the_first_start_says_so_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "new"
    home.mkdir()
    monkeypatch.setenv("COEVO_HOME", str(home))
    shown = coevo("status")
    assert "none (`coevo up` starts them)" in shown
    assert "no runs" in shown
    assert not any(home.iterdir())


def test_an_unknown_address_is_not_printed(tmp_path: Path) -> None:
    services = Services("ray:6379", "http://ray:8265", "http://ray:8000", "http://prefect:4200", "secret", {})
    assert [name.split()[0] for name in addresses(Home(tmp_path), services)] == [
        "Prefect", "Ray", "Ray", "Inference", "Home",
    ]  # fmt: skip
