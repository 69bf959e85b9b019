"""Bad input: a message that names the thing, a non-zero exit, nothing half-written."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from orchestrator.cli import app
from orchestrator.cli.terminal import setting
from orchestrator.installation import processes
from orchestrator.installation.home import Home, Services
from orchestrator.ledger import owner
from orchestrator.runs import prepare
from storage import queries
from storage.session import open_store
from tests.live import Live
from tests.synthetic_run import create


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    return tmp_path


def coevo(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def refused(result: Result, *words: str) -> None:
    assert result.exit_code == 1, result.output
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit)
    for word in words:
        assert word in result.stderr


def test_unknown_preset_names_those_that_exist(place: Path) -> None:
    refused(coevo("run", "nosuch"), "nosuch", "demo")
    assert not (place / "home").exists()


def test_unknown_key_in_a_toml_is_named(place: Path) -> None:
    preset = place / "mine.toml"
    preset.write_text("[dataset]\ncandidatez = 3\n")
    refused(coevo("run", str(preset)), "mine.toml", "dataset.candidatez")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("dataset.delta=0.7", ("dataset.delta", "0.5", "0.7")),
        ("dataset.votes=none", ("dataset.votes", "integer", "none")),
        ("solver.reward.type=magic", ("solver.reward", "rzero", "magic")),
        ("nonsense", ("--set", "NAME=VALUE", "nonsense")),
    ],
)
def test_a_bad_setting_is_named_with_what_was_expected_and_what_came(
    place: Path, setting: str, words: tuple[str, ...]
) -> None:
    refused(coevo("run", "demo", "--set", setting), *words)


def test_not_valid_toml(place: Path) -> None:
    preset = place / "broken.toml"
    preset.write_text("seed = = 1")
    refused(coevo("run", str(preset)), "broken.toml", "not valid TOML")


def test_nothing_is_up(place: Path) -> None:
    refused(coevo("run", "demo"), "coevo up")


def test_services_that_are_gone_are_named(place: Path) -> None:
    """As after a reboot: the file that remembers them outlives them."""
    home = Home(place / "home")
    home.logs.mkdir(parents=True)
    home.save_services(Services("a", "b", "c", "d", "secret", {2**22 + 1: ("ray", 1.0), 2**22 + 2: ("prefect", 1.0)}))
    refused(coevo("run", "demo"), "ray, prefect", "coevo up")


def services_up(place: Path) -> Home:
    """A home whose services run, as far as `coevo run` looks at them first: they are the test's own process."""
    home, me = Home(place / "home"), os.getpid()
    home.logs.mkdir(parents=True)
    home.save_services(Services("a", "b", "c", "http://127.0.0.1:9", "secret", {me: ("ray", processes.started(me))}))
    return home


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("evaluation.benchmark=none.jsonl", ("evaluation.benchmark", "none.jsonl", "cannot read")),
        ("base_model=models/none", ("base_model", "models/none", "config.json")),
        ("serving.applications=none", ("serving.applications", "no such file")),
    ],
)
def test_a_run_that_cannot_start_is_refused_before_its_flow_begins(
    place: Path, setting: str, words: tuple[str, ...]
) -> None:
    home = services_up(place)
    refused(coevo("run", "demo", "--set", setting), *words)
    with open_store(home.database).read() as session:
        assert queries.runs.list_runs(session) == []
    assert not home.checkpoints.exists()


@pytest.mark.parametrize("arguments", [("resume", "busy", "--iterations", "9"), ("run", "demo", "--name", "busy")])
def test_a_run_that_another_process_works_on_is_refused_and_nothing_is_changed(
    place: Path, arguments: tuple[str, ...]
) -> None:
    home = services_up(place)
    store = open_store(home.database, create=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        host = owner().split(":")[0]
        name = f"{host}:{other.pid}:{processes.started(other.pid):.0f}"
        with store.write() as session:
            create(session, "busy")
            queries.run_leases.claim_run(session, run="busy", owner=name, lease_seconds=600)
        with store.read() as session:
            before = queries.runs.get_run(session, "busy")
        refused(coevo(*arguments), "run busy: ", f"process {other.pid} on {host} works on it", "coevo runs cancel busy")
        with store.read() as session:
            assert queries.runs.get_run(session, "busy") == before
            assert queries.ledger.stages_of(session, "busy") == []
        other.kill()


def test_missing_database(place: Path) -> None:
    refused(coevo("report", "demo"), "coevo.db", "no such file")
    assert not (place / "home").exists()


def test_unreachable_database(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVO_DATABASE", "postgresql://someone:secret@127.0.0.1:1/none?connect_timeout=2")
    result = coevo("report", "demo")
    refused(result, "127.0.0.1:1", "cannot be opened")
    assert "secret" not in result.output


def test_busy_port_is_named_and_nothing_is_started(place: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        refused(coevo("up", "--prefect-port", port, "--serve-port", "0"), port, "--prefect-port", "in use")
    assert not (place / "home" / "services.json").exists()


def test_unknown_bench(place: Path) -> None:
    refused(coevo("bench", "nosuch"), "nosuch", "similarity")


def test_grade_with_one_answer(place: Path) -> None:
    refused(coevo("grade", "1"), "two answers")


def test_grade_file_with_a_bad_line(place: Path) -> None:
    pairs = place / "pairs.jsonl"
    pairs.write_text('{"a": "1", "b": "1"}\n{"a": "1"}\n')
    refused(coevo("grade", "--file", str(pairs)), "pairs.jsonl", "line 2")


def test_grade_answers(place: Path) -> None:
    pairs = place / "pairs.jsonl"
    pairs.write_text('{"a": "0.5", "b": "\\\\frac{1}{2}"}\n{"a": "3", "b": "4"}\n')
    rows = json.loads(coevo("grade", "--file", str(pairs), "--json").stdout)
    assert [row["verdict"] for row in rows] == ["equal", "unequal"]
    assert rows[0].keys() == {"a", "b", "verdict", "reason", "seconds"}


def test_down_when_nothing_is_up(place: Path) -> None:
    assert "nothing was running" in coevo("down").stdout


def test_a_run_of_another_configuration_is_refused_by_field(place: Path) -> None:
    home = services_up(place)
    prepare(home, open_store(home.database, create=True), "taken", "demo", 0, {"dataset.votes": 4})
    refused(coevo("run", "demo", "--name", "taken", "--set", "dataset.votes=5"), "dataset.votes is 4, got 5")


def test_a_flipped_bit_in_a_checkpoint_is_found_and_named(live: Live) -> None:
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
        assert queries.figures.evaluations_of(session, "flipped/base/0", str(live.home.path / "benchmark.jsonl")) == []


def test_an_error_inside_a_stage_is_said_once_and_kept_with_the_run(live: Live) -> None:
    """A list as an override, too: the flow's form takes one."""
    nothing_kept = ("challenger.trained=false", "dataset.candidates=16", "dataset.band=[0.51, 0.52]")
    result = live.coevo(*live.small_run("unkept", *nothing_kept))
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


def test_home_forgets_no_services(tmp_path: Path) -> None:
    home = Home(tmp_path)
    services = Services("a", "b", "c", "d", "secret", {12: ("ray", 1.5)})
    home.save_services(services)
    assert home.services() == services
    assert (tmp_path / "services.json").stat().st_mode & 0o077 == 0


def test_missing_tables_are_made_by_the_command_that_the_error_names(
    place: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers too, where `coevo up` refuses."""
    monkeypatch.setenv("COEVO_DATABASE", database_url)
    refused(coevo("keys", "list"), "`coevo migrate`")
    assert "up to date" in coevo("migrate").stdout
    assert coevo("keys", "list").exit_code == 0
    assert coevo("migrate").exit_code == 0
