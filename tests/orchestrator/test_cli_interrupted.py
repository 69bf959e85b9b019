"""What a command that runs a run says when somebody ends it, and when Prefect is away."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prefect.client.base import PrefectHttpxAsyncClient, PrefectHttpxSyncClient
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from orchestrator.check.start import RunError
from orchestrator.cli import running
from orchestrator.installation import cluster
from orchestrator.installation.home import Home, Services
from orchestrator.installation.ports import free_port
from storage import queries
from storage.session import Store
from tests.synthetic_run import create


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """The handler of SIGINT, which ends tests too."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_who_ends_a_run_in_a_terminal_is_told_that_it_is_cancelled_and_how_it_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(KeyboardInterrupt), running._told_how_to_go_on("night"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "run night: cancelled; `coevo resume night` continues it\n"


@pytest.mark.parametrize("stage_begun", [False, True], ids=["an experiment has just created it", "interrupted"])
def test_only_a_run_with_a_stage_was_interrupted(
    sqlite: Store, capsys: pytest.CaptureFixture[str], stage_begun: bool
) -> None:
    with sqlite.write() as session:
        create(session, "night")
        if stage_begun:
            stage: dict[str, Any] = {"run": "night", "iteration": 0, "stage": "evaluate", "owner": "me:1:1"}
            queries.ledger.claim_stage(session, **stage, lease_seconds=0)
    running._print_state(sqlite, "night")
    assert ("interrupted" in capsys.readouterr().out) is stage_begun


MANY = """
import os, signal, time; from orchestrator.cli import running
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
def interrupt(): os.kill(os.getpid(), signal.SIGINT)
try:
    with running._told_how_to_go_on("night"): interrupt(); time.sleep(60)
except KeyboardInterrupt:
    for _ in range(10): interrupt()
    print("ended in order")
"""


def test_who_interrupts_a_run_many_times_sees_it_end_in_order() -> None:
    ended = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True)
    assert ended.stdout == "ended in order\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.usefixtures("sqlite")
def test_a_closed_stream_is_no_error(closed: str, home: Home) -> None:
    """Nor is it written to what is opened next."""
    before = (home.path / "coevo.db").read_bytes()
    command = f'"{sys.executable}" -m orchestrator.cli status {closed}'
    ended = subprocess.run(command, shell=True, capture_output=True, check=False)
    assert (ended.returncode, b"Traceback" in ended.stderr) == (0, False)
    assert (home.path / "coevo.db").read_bytes() == before


def test_a_prefect_that_goes_away_before_the_flow_begins_is_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    services = Services("127.0.0.1:1", *["http://127.0.0.1:1"] * 3, "", {})
    monkeypatch.setattr(cluster, "join", lambda _home: services)
    monkeypatch.setattr(cluster, "wait_until_ready", lambda *_: None)
    monkeypatch.setattr(time, "sleep", pauses.append)
    for kind in (PrefectHttpxAsyncClient, PrefectHttpxSyncClient):
        monkeypatch.setattr(kind, "_has_connected", None, raising=False)  # undone after the test
    address = {PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api", PREFECT_CLIENT_MAX_RETRIES: 2}
    with temporary_settings(address), pytest.raises(RunError, match=r"night.*Prefect"):
        running.run_flow("night", "demo", 1, {})
    assert pauses.count(0) == 3  # httpx pauses so in each request, before it connects again


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("a bug"),
        httpx.HTTPStatusError("a bug", request=httpx.Request("GET", "http://a"), response=httpx.Response(404)),
    ],
)
def test_other_errors_are_not_taken_for_an_absent_prefect(error: Exception) -> None:
    with pytest.raises(type(error), match="a bug"), running._told_how_to_go_on("night"):
        raise error
