"""`coevo status` shows the services' addresses, and commands use them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.processes import identity as processes
from orchestrator.cli.addresses import addresses, client
from orchestrator.installation.home import Home, Services
from orchestrator.installation.ports import Ports
from services.api.access.keys import accept_home_key
from services.api.app import create_app
from storage.session import Store
from tests.api_server import served
from tests.commands import coevo, json_of, refusal
from tests.synthetic_run import fill_run

ELSEWHERE = "http://127.0.0.1:9"  # no server answers at this address


@pytest.fixture
def api_url(home: Home, sqlite: Store) -> Iterator[str]:
    """The address of an API on a free port, in a home with a run. The home's services.json is like that of
    `coevo up --free-ports`, and names the test's own process."""
    fill_run(sqlite, "demo", per_level=2)
    accept_home_key(sqlite, home.api_key)
    addresses = ("127.0.0.1:6001", *(f"http://127.0.0.1:{port}" for port in (6002, 6003, 6004)))
    with served(create_app(sqlite, home.exports, ask_for_keys=True)) as url:
        here = {os.getpid(): ("api", processes.started(os.getpid()))}
        home.save_services(Services(*addresses, "secret", here, url, "coevo:password"))
        yield url


def test_a_command_uses_the_api_of_this_home_unless_told_otherwise(
    api_url: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "demo" in coevo("runs", "list").stdout
    assert coevo("show", "questions", "demo", "1", "--limit", "2", "--json").stdout.count("\n") == 2
    monkeypatch.setenv("COEVO_API_URL", ELSEWHERE)
    assert f"{ELSEWHERE}: no answer" in refusal("runs", "list")
    # A command does not send this home's key to an address given by --url.
    assert "HTTP 401" in refusal("runs", "list", "--url", api_url)
    assert "demo" in coevo("runs", "list", "--url", api_url, "--key", home.api_key).stdout


def test_without_services_commands_use_the_default_address_of_coevo_api(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    """They say so, since another home's API may listen there."""
    address = f"http://127.0.0.1:{Ports().api}"
    assert client(None, None).url == address
    note = f"`coevo up` has started no API from this COEVO_HOME ({home.path}), so {address} is asked"
    assert note in capsys.readouterr().err
    assert client(ELSEWHERE, None).url == ELSEWHERE
    assert capsys.readouterr().err == ""


def test_status_prints_every_address_and_no_secret(api_url: str, home: Home) -> None:
    shown = coevo("status").stdout
    for address in (api_url, f"{api_url}/api/v1", *(f"127.0.0.1:{port}" for port in (6001, 6002, 6003, 6004))):
        assert address in shown
    assert f"described at {api_url}/api/docs" in shown
    before, hint, after = shown.partition("\n`coevo status --secrets` prints the dashboard's address with its key\n")
    assert hint
    assert not [secret for secret in ("secret", "password", home.api_key) if secret in before + after]
    with_them = coevo("status", "--secrets").stdout
    assert f"{api_url}/#key={home.api_key}" in with_them
    assert "coevo status --secrets" not in with_them
    assert "http://127.0.0.1:6004, password coevo:password" in with_them
    assert "http://127.0.0.1:6002, token secret (for a private window only)\n" in with_them


def test_status_names_the_services_that_have_ended_without_their_addresses(api_url: str, home: Home) -> None:
    services = home.services()
    home.save_services(replace(services, processes={**services.processes, 2**22 + 1: ("runner", 1.0)}))
    assert "services: api; ended: runner (`coevo up` starts what has ended" in coevo("status").stdout
    shown = json_of("status")
    assert (shown["services"], shown["ended"]) == (["api"], ["runner"])
    ended = replace(services, processes={2**22 + 1: ("runner", 1.0)})
    for recorded, line in ((ended, "services: ended: runner ("), (None, "services: none (`coevo up` starts them)")):
        home.save_services(recorded)
        printed = coevo("status").stdout
        assert line in printed
        assert "are missing: Prefect is not running; `coevo up` starts it" in printed
        assert "coevo status" not in printed
        assert api_url not in printed


def test_status_before_the_first_start_says_so_and_writes_nothing(home: Home) -> None:
    shown = coevo("status").stdout
    assert "none (`coevo up` starts them)" in shown
    assert "no runs" in shown
    assert not any(home.path.iterdir())


def test_an_unknown_address_is_not_printed(tmp_path: Path) -> None:
    services = Services("ray:6379", "http://ray:8265", "http://ray:8000", "http://prefect:4200", "secret", {})
    names = [name.split()[0] for name in addresses(Home(tmp_path), services)]
    assert names == ["Prefect", "Ray", "Ray", "Inference", "Home"]
