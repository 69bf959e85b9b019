"""Bad input gives a message that names the problem and a non-zero exit status, and leaves nothing half-written."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from core.errors import CoevoError
from core.processes import identity as processes
from orchestrator.cli import app
from orchestrator.cli.terminal import clear_errors, opened, setting
from orchestrator.installation.home import Home, Services
from orchestrator.runs import prepare
from storage import queries
from storage.session import Store, open_store
from tests.live import Live
from tests.synthetic_run import create


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    return tmp_path


def coevo(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def assert_refused(result: Result, *words: str) -> None:
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    for word in words:
        assert word in result.stderr


def test_an_unknown_preset_is_refused_with_the_existing_ones(folder: Path) -> None:
    assert_refused(coevo("run", "nosuch"), "nosuch", "demo")
    assert not (folder / "home").exists()


def test_an_error_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), clear_errors():
        raise CoevoError("the program said:\n\x1b]0;title\x07\x9b2J")
    assert capsys.readouterr().err.endswith("the program said:\n ]0;title  2J\n")


def test_a_command_s_store_is_closed_at_its_end_also_after_an_error(folder: Path) -> None:
    def open_files() -> list[str]:
        paths = (os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir())
        return [path for path in paths if path == str(folder / "home" / "coevo.db")]

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


def test_an_unknown_key_in_a_preset_is_named(folder: Path) -> None:
    preset = folder / "mine.toml"
    preset.write_text("[dataset]\ncandidatez = 3\n")
    assert_refused(coevo("run", str(preset)), "mine.toml", "dataset.candidatez")


@pytest.mark.parametrize(
    "setting", ["dataset.delta=0.7", "dataset.votes=none", "solver.reward.type=magic", "candidates=3", "nonsense"]
)
def test_a_bad_setting_is_named_as_it_was_given(folder: Path, setting: str) -> None:
    assert_refused(coevo("run", "demo", "--set", setting), "--set", setting)


def test_a_preset_that_is_not_valid_toml_is_named(folder: Path) -> None:
    preset = folder / "broken.toml"
    preset.write_text("seed = = 1")
    assert_refused(coevo("run", str(preset)), "broken.toml", "not valid TOML")


def test_without_services_the_error_names_coevo_up(folder: Path) -> None:
    assert_refused(coevo("run", "demo"), "coevo up")


def test_services_that_have_ended_are_named(folder: Path) -> None:
    """This happens after a reboot, when services.json still names them."""
    home = Home(folder / "home")
    home.logs.mkdir(parents=True)
    home.save_services(Services("a", "b", "c", "d", "secret", {2**22 + 1: ("ray", 1.0), 2**22 + 2: ("prefect", 1.0)}))
    assert_refused(coevo("run", "demo"), "ray, prefect", "coevo up")


def services_up(folder: Path) -> Home:
    """A home whose services seem to run when `coevo run` checks them: their process is the test's own."""
    home, me = Home(folder / "home"), os.getpid()
    home.logs.mkdir(parents=True)
    home.save_services(Services("a", "b", "c", "http://127.0.0.1:9", "secret", {me: ("ray", processes.started(me))}))
    return home


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("evaluation.benchmark=none.jsonl", ("evaluation.benchmark", "none.jsonl", "cannot be read: No such file")),
        ("base_model=models/none", ("base_model", "models/none", "config.json")),
        ("serving.applications=none", ("serving.applications", "no such file")),
    ],
)
def test_a_run_that_cannot_start_is_refused_before_its_flow_begins(
    folder: Path, setting: str, words: tuple[str, ...]
) -> None:
    home = services_up(folder)
    assert_refused(coevo("run", "demo", "--set", setting), *words)
    assert not home.checkpoints.exists()
    assert not (home.path / "coevo.db").exists()


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
        assert_refused(
            coevo(*arguments), "run busy: ", f"process {other.pid} on {host} works on it", "coevo runs cancel busy"
        )
        with store.read() as session:
            assert queries.runs.get_run(session, "busy") == before
            assert queries.ledger.stages_of(session, "busy") == []
        other.kill()


def test_a_missing_database_is_named(folder: Path) -> None:
    assert_refused(coevo("report", "demo"), "coevo.db", "no such file")
    assert not (folder / "home").exists()


def test_an_unreachable_database_is_named_without_its_password(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVO_DATABASE", "postgresql://someone:p4ss-word@127.0.0.1:1/none?connect_timeout=2")
    result = coevo("report", "demo")
    assert_refused(result, "127.0.0.1:1", "cannot be opened")
    assert "p4ss-word" not in result.output


def test_a_busy_port_is_named_and_no_service_is_started(folder: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        assert_refused(coevo("up", "--prefect-port", port, "--serve-port", "0"), port, "--prefect-port", "in use")
    assert not (folder / "home" / "services.json").exists()


def test_grading_one_answer_is_refused(folder: Path) -> None:
    assert_refused(coevo("methods", "grade", "1"), "two answers")


def test_a_bad_line_in_a_file_of_answers_is_named(folder: Path) -> None:
    pairs = folder / "pairs.jsonl"
    pairs.write_text('{"a": "1", "b": "1"}\n{"a": "1"}\n')
    assert_refused(coevo("methods", "grade", "--file", str(pairs)), "pairs.jsonl", "line 2")


def test_answers_of_a_file_are_graded(folder: Path) -> None:
    pairs = folder / "pairs.jsonl"
    pairs.write_text('{"a": "0.5", "b": "\\\\frac{1}{2}"}\n{"a": "3", "b": "4"}\n')
    rows = json.loads(coevo("methods", "grade", "--file", str(pairs), "--json").stdout)
    assert [row["verdict"] for row in rows] == ["equal", "unequal"]
    assert rows[0].keys() == {"a", "b", "verdict", "reason", "seconds"}


def test_coevo_down_without_services_says_that_nothing_was_running(folder: Path) -> None:
    assert "nothing was running" in coevo("down").stdout


def test_a_run_with_another_configuration_is_refused_with_the_setting(folder: Path) -> None:
    home = services_up(folder)
    prepare(home, open_store(home.database, create=True), "taken", "demo", 0, {"dataset.votes": 4})
    assert_refused(coevo("run", "demo", "--name", "taken", "--set", "dataset.votes=5"), "dataset.votes is 4, got 5")


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
        from storage import queries

        assert queries.runs.get_run(session, "flipped").status == "failed"
        assert (
            queries.evaluations.evaluations_of(session, "flipped/base/0", str(live.home.path / "benchmark.jsonl")) == []
        )


def test_an_error_inside_a_stage_is_printed_once_as_text_and_stored_with_the_run(live: Live) -> None:
    """One of the overrides is a list, which the flow's form accepts."""
    nothing_kept = ("challenger.trained=false", "dataset.candidates=16", "dataset.band=[0.51, 0.52]")
    result = live.coevo(*live.small_run("unkept", *nothing_kept, live.few_questions), "--log-format", "text")
    assert result.returncode == 1
    assert result.stderr.count("no question was kept") == 1
    assert "0.51 <= p_hat <= 0.52" in result.stderr
    assert "Traceback" not in result.stderr
    with live.store().read() as session:
        from storage import queries

        assert queries.runs.get_run(session, "unkept").status == "failed"
        assert [(s.stage, s.status) for s in queries.ledger.stages_of(session, "unkept")][-1] == (
            "train_solver",
            "failed",
        )


def test_a_home_reads_back_the_services_that_it_saved(tmp_path: Path) -> None:
    home = Home(tmp_path)
    services = Services("a", "b", "c", "d", "secret", {12: ("ray", 1.5)})
    home.save_services(services)
    assert home.services() == services
    assert (tmp_path / "services.json").stat().st_mode & 0o077 == 0


def test_the_command_in_the_error_about_missing_tables_makes_them(
    folder: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is also the way in containers, where `coevo up` is refused."""
    monkeypatch.setenv("COEVO_DATABASE", database_url)
    assert_refused(coevo("store", "keys", "list"), "`coevo store migrate`")
    assert "up to date" in coevo("store", "migrate").stdout
    assert coevo("store", "keys", "list").exit_code == 0
    assert coevo("store", "migrate").exit_code == 0
