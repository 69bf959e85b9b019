"""Bad input gives a message that names the problem and a non-zero exit status, and leaves nothing half-written."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from core.errors import CoevoError
from core.processes import identity as processes
from orchestrator.cli.terminal import clear_errors, opened, setting
from orchestrator.installation.home import Home, Services
from orchestrator.runs import prepare
from storage import queries
from storage.session import Store, open_store
from tests.commands import coevo, json_of, refusal
from tests.live import Live
from tests.synthetic_run import create


def assert_named(arguments: Sequence[object], *parts: str) -> None:
    refused = refusal(*arguments)
    for part in parts:
        assert part in refused


def test_an_error_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), clear_errors():
        raise CoevoError("the program said:\n\x1b]0;title\x07\x9b2J")
    assert capsys.readouterr().err.endswith("the program said:\n ]0;title  2J\n")


def test_a_command_s_store_is_closed_at_its_end_also_after_an_error(folder: Path) -> None:
    def open_files() -> list[str]:
        opened_here = (os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir())
        return [path for path in opened_here if path == str(folder / "home" / "coevo.db")]

    stores = list[Store]()

    @clear_errors()
    def command() -> None:
        stores.append(opened(create=True)[1])
        with stores[0].read() as session:
            assert queries.runs.list_runs(session) == []
        assert open_files() != []
        raise CoevoError("it ends here")

    (folder / "home").mkdir(mode=0o700)
    with pytest.raises(typer.Exit):
        command()
    assert open_files() == []


def services_up(folder: Path, ended: dict[int, tuple[str, float]] | None = None) -> Home:
    """A home whose services seem to run when `coevo run` checks them: their process is the test's own."""
    home, here = Home(folder / "home"), {os.getpid(): ("ray", processes.started(os.getpid()))}
    home.logs.mkdir(parents=True)
    home.save_services(Services("a", "b", "c", "http://127.0.0.1:9", "secret", ended or here))
    return home


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("evaluation.benchmark=none.jsonl", ("evaluation.benchmark", "none.jsonl", "No such file")),
        ("base_model=models/none", ("base_model", "models/none", "config.json")),
        ("serving.applications=none", ("serving.applications", "no such file")),
    ],
)
def test_a_run_that_cannot_start_is_refused_before_its_flow_begins(
    folder: Path, setting: str, words: tuple[str, ...]
) -> None:
    home = services_up(folder)
    assert_named(("run", "demo", "--set", setting), *words)
    assert not home.checkpoints.exists()
    assert not (home.path / "coevo.db").exists()


def test_services_that_have_ended_are_named(folder: Path) -> None:
    """This happens after a reboot, when services.json still names them."""
    recorded = {2**22 + 1: ("ray", 1.0), 2**22 + 2: ("prefect", 1.0)}
    home = services_up(folder, recorded)
    assert home.services().processes == recorded
    assert (home.path / "services.json").stat().st_mode & 0o077 == 0
    assert_named(("run", "demo"), "ray, prefect", "coevo up")


@pytest.mark.parametrize("arguments", [("resume", "busy", "--iterations", "9"), ("run", "demo", "--name", "busy")])
def test_a_run_that_another_process_works_on_is_refused_and_nothing_is_changed(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    home = services_up(folder)
    store = open_store(home.database, create=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        space = processes.space()
        host = space.partition("@")[0]
        name = f"{space}:{other.pid}:{processes.started(other.pid):.0f}"
        with store.write() as session:
            create(session, "busy")
            queries.run_leases.claim_run(session, run="busy", owner=name, lease_seconds=600)
        with store.read() as session:
            before = queries.runs.get_run(session, "busy")
        worked_on = f"process {other.pid} on {host} works on it"
        assert_named(arguments, "run busy: ", worked_on, "coevo runs cancel busy")
        with store.read() as session:
            assert queries.runs.get_run(session, "busy") == before
            assert queries.ledger.stages_of(session, "busy") == []
        other.kill()


def test_an_unreachable_database_is_named_without_its_password(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVO_DATABASE", "postgresql://someone:p4ss-word@127.0.0.1:1/none?connect_timeout=2")
    refused = refusal("report", "demo")
    assert "127.0.0.1:1" in refused
    assert "cannot be opened" in refused
    assert "p4ss-word" not in refused


def test_a_missing_database_is_named_and_without_services_none_are_stopped(folder: Path) -> None:
    assert_named(("report", "demo"), "coevo.db", "no such file")
    assert not (folder / "home").exists()
    assert "nothing was running" in coevo("down").stdout


def test_the_answers_of_a_file_are_graded_and_a_bad_line_is_named(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"a": "0.5", "b": "\\\\frac{1}{2}"}\n{"a": "3", "b": "4"}\n')
    rows = json_of("methods", "grade", "--file", pairs)
    assert [row["verdict"] for row in rows] == ["equal", "unequal"]
    assert rows[0].keys() == {"a", "b", "verdict", "reason", "seconds"}
    pairs.write_text('{"a": "1", "b": "1"}\n{"a": "1"}\n')
    assert_named(("methods", "grade", "--file", pairs), "pairs.jsonl", "line 2")


def test_a_busy_port_is_named_and_no_service_is_started(folder: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        assert_named(("up", "--prefect-port", port, "--serve-port", "0"), port, "--prefect-port", "in use")
    assert not (folder / "home" / "services.json").exists()


def test_a_flipped_bit_in_a_checkpoint_is_detected_and_its_file_is_named(live: Live) -> None:
    prepare(live.home, live.store(), "flipped", "demo", 0, dict(setting(text) for text in live.small))
    weights = live.home.checkpoints / "flipped" / "base" / "0" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    result = live.coevo("resume", "flipped")
    assert result.returncode == 1
    assert "model.safetensors" in result.stderr
    assert "has changed" in result.stderr
    with live.store().read() as session:
        assert queries.runs.get_run(session, "flipped").status == "failed"
        benchmark = str(live.home.path / "benchmark.jsonl")
        assert queries.evaluations.evaluations_of(session, "flipped/base/0", benchmark) == []


def test_an_error_inside_a_stage_is_printed_once_as_text_and_stored_with_the_run(live: Live) -> None:
    """One of the overrides is a list, which the flow's form accepts."""
    nothing_kept = ("challenger.trained=false", "dataset.candidates=16", "dataset.band=[0.51, 0.52]")
    result = live.coevo(*live.small_run("unkept", *nothing_kept, live.few_questions), "--log-format", "text")
    assert result.returncode == 1
    assert result.stderr.count("no question was kept") == 1
    assert "0.51 <= p_hat <= 0.52" in result.stderr
    assert "Traceback" not in result.stderr
    with live.store().read() as session:
        assert queries.runs.get_run(session, "unkept").status == "failed"
        last = queries.ledger.stages_of(session, "unkept")[-1]
        assert (last.stage, last.status) == ("train_solver", "failed")


def test_the_command_in_the_error_about_missing_tables_makes_them(
    home: Home, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is also the way in containers, where `coevo up` is refused."""
    monkeypatch.setenv("COEVO_DATABASE", database_url)
    assert_named(("store", "keys", "list"), "`coevo store migrate`")
    assert "up to date" in coevo("store", "migrate").stdout
    coevo("store", "keys", "list")
    coevo("store", "migrate")
