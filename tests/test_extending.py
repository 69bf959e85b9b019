"""docs/extending.md: each of its files is taken from the page and used as the page says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.parsing import load_config
from core.types import OracleLabel
from orchestrator.cli import app
from orchestrator.installation.home import MICRO_MODEL
from orchestrator.loop import STAGE_FUNCTIONS
from orchestrator.question_sets.benchmarks import load
from orchestrator.question_sets.prompts import read_prompts
from services.oracles import program
from storage import queries
from storage.session import Store
from tests.fake_judge import correct_reply, judge_with
from tests.fake_service import fake_service
from tests.synthetic_run import context_of, fill_run

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
NAMED = re.compile(r"^`([\w.]+)`[^\n]*:\n\n```\w+\n(.*?)```", re.MULTILINE | re.DOTALL)
SECTIONS = {
    section.partition("\n")[0]: dict(NAMED.findall(section))
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
}
OWN = SECTIONS["Your preset"]["preset.toml"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a home of its own."""
    monkeypatch.setenv("COEVO_HOME", str(tmp_path / "home"))
    for variable in ("COEVO_DATABASE", "COEVO_RAY_ADDRESS", "COEVO_BENCHMARKS"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def with_tables(preset: str, block: str) -> str:
    """The preset with the block's tables in place of its own, or with its line in place of the one of this name."""
    if not block.startswith("["):
        return re.sub(rf"^{block.partition(' =')[0]} = .*\n", block, preset, flags=re.MULTILINE)
    parts = re.split(r"^(?=\[)", preset, flags=re.MULTILINE)
    replaced = re.findall(r"^\[.*\]", block, flags=re.MULTILINE)
    return "\n".join([*(part for part in parts if part.partition("\n")[0] not in replaced), block])


def checked(preset: str) -> RunConfig:
    """The settings of a preset that `coevo check` has no fault for."""
    Path("preset.toml").write_text(preset)
    result = CliRunner().invoke(app, ["check", "preset.toml"])
    assert result.exit_code == 0, result.stdout
    return load_config(Path("preset.toml"))


def write(section: str, *names: str) -> None:
    for name in names:
        Path(name).write_text(SECTIONS[section][name])


def test_your_preset(folder: Path) -> None:
    config = checked(OWN)
    assert (config.kind, config.iterations, config.solver.reward.type) == ("self_train", 2, "ttrl")


def test_your_prompts(folder: Path) -> None:
    write("Your prompts", "prompts.jsonl")
    config = checked(with_tables(OWN, SECTIONS["Your prompts"]["preset.toml"]))
    assert isinstance(config, SelfTraining)
    assert [row.answer for row in read_prompts(config, config.prompts)] == ["19", "10"]
    assert config.audit.oracle == "given"


def test_your_templates(folder: Path) -> None:
    block = SECTIONS["Your templates"]["preset.toml"]
    config = checked('base_model = "micro"\n' + block)
    assert isinstance(config, CoEvolution)
    assert [message["role"] for message in config.challenger.template.messages()] == [
        *("system", "user", "assistant", "user")
    ]
    assert config.solver.template.messages("Why?")[-1]["content"] == "Why?\nPut the answer in \\boxed{}."
    result = CliRunner().invoke(app, ["check", "preset.toml"])
    warned = re.findall(r"warning: (\w+\.template): the tiny model", result.stdout)
    assert sorted(warned) == ["challenger.template", "solver.template"]
    refused = CliRunner().invoke(app, ["check", "preset.toml", "--set", "solver.template.user=Answer!"])
    assert "--set solver.template.user=Answer!: expected a text with {question}" in " ".join(refused.stdout.split())


def test_your_model(folder: Path) -> None:
    shutil.copytree(MICRO_MODEL, "model")
    preset = with_tables(OWN, SECTIONS["Your model"]["preset.toml"])
    assert checked(preset).base_model == "model"
    shutil.rmtree("model")
    result = CliRunner().invoke(app, ["check", "preset.toml"])
    assert "fault: base_model: expected a folder" in result.stdout


def test_your_benchmark(folder: Path) -> None:
    write("Your benchmark", "bench.jsonl", "bench.toml")
    config = checked(with_tables(OWN, SECTIONS["Your benchmark"]["preset.toml"]))
    items = load(config.evaluation.benchmark).items
    assert [item.answer for item in items] == ["B", "A"]
    assert items[0].problem == "Which is even?\n\nOptions:\nA. 3\nB. 4"


def of_the_loop(section: str, *replacements: tuple[str, str]) -> str:
    """The preset that `coevo init --preset demo` writes, with the section's tables."""
    assert CliRunner().invoke(app, ["init", "mine", "--preset", "demo"]).exit_code == 0
    block = SECTIONS[section]["preset.toml"]
    for old, new in replacements:
        assert old in block
        block = block.replace(old, new)
    return with_tables(Path("mine/preset.toml").read_text(), block)


def test_your_oracle(folder: Path) -> None:
    write("Your oracle", "grade.py")
    Path("grade.py").chmod(0o755)
    config = checked(of_the_loop("Your oracle", ("/home/me/grade.py", str(folder / "grade.py"))))
    assert config.audit.program is not None
    rows = [("a", "What is 2 + 3?", "5"), ("b", "What is 2 + 3?", "6"), ("c", "What?", "7")]
    assert program.audit(rows, config.audit.program) == [
        OracleLabel("a", "program", "right", "5"),
        OracleLabel("b", "program", "wrong", "5"),
        OracleLabel("c", "program", "ill_posed", None),
    ]


def test_your_judge(folder: Path, sqlite: Store) -> None:
    fill_run(sqlite, "demo", per_level=1)
    with fake_service(judge_with(correct_reply)) as (service, requests):
        replacements = (("http://127.0.0.1:8001/v1", service.url), ("sample = 200", "sample = 20"))
        config = checked(of_the_loop("Your judge", *replacements))
        last_write = STAGE_FUNCTIONS["audit_labels"](context_of(sqlite, "demo", 3, config=config))
    with sqlite.write() as session:
        assert last_write(session)["audited"] == 20
        assert len(queries.questions.oracle_labels_of(session, "demo", 3, "judge_mine")) == 20
    assert {body["model"] for _, body, _ in requests} == {"Qwen/Qwen3-32B"}


def test_your_reward(folder: Path) -> None:
    """The package is installed for real, and the command, in a process of its own, has its method."""
    write("Your reward", "my_rewards.py", "pyproject.toml")
    install = [
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--target=installed",
        ".",
    ]
    subprocess.run([sys.executable, "-m", *install], check=True)
    group = {"question_id": "q", "rollouts": [{"answer": answer} for answer in ("7", "7", "7", "8")]}
    Path("groups.jsonl").write_text(json.dumps(group))
    Path("preset.toml").write_text(with_tables(OWN, SECTIONS["Your reward"]["preset.toml"]))
    score = ("--groups", "groups.jsonl", "--json")
    own, parent = (json.loads(run(folder, "methods", "score", name, *score)) for name in ("confident", "ttrl"))
    assert own["rewards"] == [*(0.75, 0.75, 0.75, 0)]
    # An advantage is the share of the majority, 3/4, times how far a reward of TTRL is from the mean, 3/4.
    assert own["advantages"] == pytest.approx([*(3 / 16, 3 / 16, 3 / 16, -9 / 16)])
    assert parent["advantages"] == pytest.approx([*(0.5, 0.5, 0.5, -1.5)], abs=1e-5)
    assert "can start" in run(folder, "check", "preset.toml")
    assert "confident" in json.loads(run(folder, "methods", "list", "--json"))


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder / 'installed'}"}
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
