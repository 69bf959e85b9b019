"""`coevo check` finds faults that are planted on this machine, and says how to mend each."""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from transformers import AutoModelForCausalLM, AutoTokenizer

from core.processes import identity as processes
from core.settings.parsing import load_config
from orchestrator.check.machine.examine import OF_MACHINE, OF_PRESET, Result, examine
from orchestrator.check.machine.result import Subject
from orchestrator.check.presets import preset_path
from orchestrator.cli import check as command
from orchestrator.installation.home import MICRO_MODEL, Home, Services
from orchestrator.installation.ports import Ports, free_port
from storage.session import Store
from tests.commands import coevo, json_of

FAKE_EASYR1 = Path(__file__).parents[1] / "trainers" / "fake_easyr1"
FREE = Ports(*(free_port() for _ in range(4)))


@pytest.fixture(autouse=True)
def home(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home below that of the fixture `sqlite`: it has no store yet."""
    own = Home(home.path / "home")
    own.path.mkdir(mode=0o700)
    monkeypatch.setenv("COEVO_HOME", str(own.path))
    return own


def check(name: str, subject: Subject) -> Result:
    """The result of one check: that of a preset, if it has settings."""
    checks = OF_MACHINE if subject.config is None else OF_PRESET
    [result] = examine(subject, [known_check for known_check in checks if known_check[0] == name])
    return result


def of_preset(home: Home, preset: str = "demo", **overrides: object) -> Subject:
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return Subject(home, load_config(preset_path(preset), named), FREE)


def assert_fault(result: Result, *parts: str) -> None:
    """The result is a fault, and its line, with the remedy, has every one of the patterns."""
    assert result.status == "fault", result
    line = f"{result.detail} -> {result.remedy}"
    for part in parts:
        assert re.search(part, line), line


def test_a_good_machine_has_no_fault(home: Home, sqlite: Store) -> None:
    del sqlite  # it is in the folder above the home: the home has none yet
    results = [*examine(Subject(home, ports=FREE), OF_MACHINE), *examine(of_preset(home), OF_PRESET)]
    assert [result.name for result in results] == [name for name, *_ in (*OF_MACHINE, *OF_PRESET)]
    assert [result for result in results if result.status == "fault"] == []
    by_name = {result.name: result for result in results}
    for name in ("Python", "home", "disk", "ports", "database", "all-reduce"):
        assert by_name[name].status == "ok", by_name[name]


def test_a_used_port_is_named_with_the_process_that_has_it(home: Home) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        result = check("ports", Subject(home, ports=Ports(0, 0, port, 0)))
    assert_fault(result, rf"{port} \(--prefect-port\) by .+ \(process {os.getpid()}\)", "coevo up --free-ports")


def test_a_store_that_nothing_upgrades_is_named(home: Home, empty_sqlite: Path) -> None:
    shutil.copyfile(empty_sqlite, home.path / "coevo.db")
    assert check("database", Subject(home)).status == "ok"
    engine = create_engine(home.database)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0018'"))
    engine.dispose()
    assert_fault(check("database", Subject(home)), "version 0018", "COEVO_DATABASE")


def test_a_database_that_does_not_answer_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVO_DATABASE", "postgresql://someone:secret@127.0.0.1:1/none?connect_timeout=2")
    result = check("database", Subject(home))
    assert_fault(result, "127.0.0.1:1", "cannot be opened")
    assert "secret" not in str(result)


def test_a_home_that_cannot_be_written_or_is_open_to_others_is_named(home: Home) -> None:
    # No user can make a file in /proc, not even root, as which containers run these tests.
    assert_fault(check("home", Subject(Home(Path("/proc/coevo")))), "/proc cannot be written", "COEVO_HOME")
    home.path.chmod(0o755)
    assert_fault(check("home", Subject(home)), f"chmod 700 {home.path}")


def test_a_small_disk_is_compared_with_the_checkpoints_of_the_preset(home: Home) -> None:
    subject = of_preset(home, base_model="models/Qwen3-4B-Base")
    # 3 iterations of two roles and the base model in float32, three step folders with AdamW's moments, and 2 GiB.
    parameters = 4_022_468_096
    needed = (7 * 4 + 3 * 12) * parameters / 2**30 + 2
    result = check("disk", Subject(home, subject.config, free=lambda _: 200 * 2**30))
    assert_fault(result, "200.0 GiB free", f"up to {needed:.1f} GiB", "free space")
    assert check("disk", Subject(home, free=lambda _: 200 * 2**30)).status == "ok"


def test_recorded_services_that_have_ended_are_named(home: Home) -> None:
    me = os.getpid()
    alive = {me: ("api", processes.started(me))}
    home.save_services(Services("a", "b", "c", "d", "secret", alive | {2**22 + 1: ("ray", 1.0)}))
    assert_fault(check("services", Subject(home)), "these have ended: ray; their logs are in .*/logs -> coevo up$")


def test_services_elsewhere_that_are_not_fully_named_are_a_fault(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVO_RAY_ADDRESS", "ray:6379")
    monkeypatch.delenv("COEVO_RAY_DASHBOARD_URL", raising=False)
    assert_fault(check("services", Subject(home)), "COEVO_RAY_DASHBOARD_URL: expected a value")


def test_a_process_of_an_earlier_coevo_up_is_named(home: Home) -> None:
    environment = {**os.environ, "RAY_AUTH_TOKEN": "of an earlier coevo up"}
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as left:
        result = check("left over", Subject(home))
        left.kill()
    assert (result.status, result.remedy) == ("warning", f"kill {left.pid}")
    assert check("left over", Subject(home)).status == "ok"


def test_sessions_of_rays_that_have_ended_are_to_be_removed(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    home.ray_temp.parent.mkdir(mode=0o700)
    session = home.ray_temp / "session_2026-01-01_00-00-00_000000_1"
    session.mkdir(parents=True)
    result = check("Ray's folder", Subject(home))
    assert (result.status, result.remedy) == ("warning", f"rm -r {session}")
    home.ray_temp.parent.chmod(0o777)
    assert_fault(check("Ray's folder", Subject(home)), "only its owner may enter")


def test_another_version_of_a_package_is_named(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("httpx", "0.1"), ("rich", "15.999")):
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert_fault(
        check("packages", Subject(home)), r"httpx: expected <1,>=0.28, got 0\.1 ", "pip install -c constraints"
    )
    shutil.rmtree(tmp_path / "httpx-0.1.dist-info")
    result = check("packages", Subject(home))
    assert result.status == "warning"
    assert re.search(r"^rich 15\.999 \(tested with \d", result.detail)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in several files with an index, as large models are."""
    folder = tmp_path_factory.mktemp("sharded")
    AutoModelForCausalLM.from_pretrained(MICRO_MODEL).save_pretrained(folder, max_shard_size="1MB")
    AutoTokenizer.from_pretrained(MICRO_MODEL).save_pretrained(folder)
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


@pytest.fixture
def model(tmp_path: Path, sharded: Path) -> Path:
    return shutil.copytree(sharded, tmp_path / "model")


def test_a_model_without_a_tokenizer_or_a_template_or_with_a_missing_or_short_shard_is_named(
    home: Home, model: Path
) -> None:
    subject = of_preset(home, base_model=str(model))
    assert check("base model", subject).status == "ok"
    for name, pattern in (
        ("tokenizer.json", "has no tokenizer"),
        ("chat_template.jinja", "has no chat template.*put a chat_template.jinja"),
        (next(model.glob("*.safetensors")).name, r"shards are missing: model-0000\d-of-.*download the model again"),
        ("model.safetensors.index.json", None),
    ):
        content = (model / name).read_bytes()
        (model / name).unlink()
        if pattern:
            assert_fault(check("base model", subject), pattern)
        else:  # without an index nothing names the shards, but the parameters can be counted
            shard = next(model.glob("*.safetensors"))
            weights = shard.read_bytes()
            shard.unlink()
            assert_fault(check("base model", subject), "expected [0-9,]+ parameters, its files have")
            shard.write_bytes(weights[:-1])
            assert_fault(check("base model", subject), "is not a whole safetensors file")
            shard.write_bytes(b"<html>")
            assert_fault(check("base model", subject), "is not a whole safetensors file.*download it again")
        (model / name).write_bytes(content)


_FIELDS = [("[-1]", "[0, 4]"), ('"x"', "[0, 4]"), ("[1]", "[0]"), ("[1]", "null"), ("[1]", '["x", 4]')]
_HEADERS = [
    *('["x"]', "null", "3", '{"a": 1}', '{"a": {}}', "[" * 100_000, '{"a":' * 100_000, "9" * 5_000),
    *(f'{{"a": {{"dtype": "F32", "shape": {shape}, "data_offsets": {offsets}}}}}' for shape, offsets in _FIELDS),
]


_DEEP = "[" * 100_000
_BROKEN = [
    *(("tokenizer.json", content, "its tokenizer cannot be loaded") for content in ("[]", "null", '"x"', "{", _DEEP)),
    *(("tokenizer_config.json", content, "its tokenizer cannot be") for content in ("[]", "null", '"x"', "{", _DEEP)),
    ("chat_template.jinja", "{{ raise_exception('never') }}", "chat_template.*never"),
    *(
        ("model.safetensors.index.json", index, "is not an index of shards")
        for index in ("[]", "null", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', _DEEP)
    ),
    *(("*.safetensors", header, "is not a whole safetensors file") for header in _HEADERS),
]


@pytest.mark.parametrize(("name", "content", "fault"), _BROKEN, ids=lambda value: value[:40])
def test_a_broken_file_of_a_model_is_named(name: str, content: str, fault: str, home: Home, model: Path) -> None:
    header = struct.pack("<Q", len(content)) if name == "*.safetensors" else b""
    next(model.glob(name)).write_bytes(header + content.encode())
    assert_fault(check("base model", of_preset(home, base_model=str(model))), fault)


def test_a_judge_that_does_not_answer_is_named(home: Home) -> None:
    judge = {"url": "http://127.0.0.1:1/v1", "model": "judge"}
    result = check("external services", of_preset(home, audit={"oracle": "judge", "judge": judge}))
    assert result.status == "warning"  # the run can start
    assert re.search(r"http://127\.0\.0\.1:1/v1: chat/completions: .*[Cc]onnect", result.detail)


def test_an_easyr1_that_is_not_there_or_whose_python_lacks_a_package_is_named(home: Home, tmp_path: Path) -> None:
    def preset(source: Path) -> Subject:
        return of_preset(home, "rzero-qwen3-4b", trainer__source=str(source), trainer__python=sys.executable)

    assert check("EasyR1", preset(tmp_path)).status == "-"  # `coevo check` warns of it
    (tmp_path / "verl").mkdir()
    assert_fault(check("EasyR1", preset(tmp_path)), "trainer.source: expected a checkout of EasyR1", "docs/gpu.md")
    assert_fault(check("EasyR1", preset(FAKE_EASYR1)), "No module named '(vllm|flash_attn|peft)'", "docs/gpu.md")


def test_the_command_prints_faults_with_their_mends_and_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = [known_check for known_check in OF_MACHINE if known_check[0] in ("home", "memory", "Ray's address")]
    monkeypatch.setattr(command, "OF_MACHINE", quick)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    printed = coevo("check", status=1).stdout
    for part in ("fault   Ray's address", "127.0.0.1:1, where no Ray answers", "-> unset RAY_ADDRESS", "faults: 1, "):
        assert part in printed
    answer = json_of("check", status=1)
    assert [row["name"] for row in answer["checks"] if row["status"] == "fault"] == ["Ray's address"]
    assert (answer["faults"], len(answer["checks"])) == (1, 3)
    monkeypatch.delenv("RAY_ADDRESS")
    coevo("check")
