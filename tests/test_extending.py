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
from orchestrator.question_sets.benchmarks import load
from orchestrator.question_sets.prompts import read_prompts
from orchestrator.stages.by_name import STAGE_FUNCTIONS
from services.oracles import program
from storage import queries
from storage.session import Store
from tests.fake_judge import correct_reply, judge_with
from tests.fake_service import fake_service
from tests.synthetic_run import context_of, fill_run

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
NAMED = re.compile(r"^`([\w./]+)`(?:[^\n]+\n)*?[^\n]*\n\n```\w+\n(.*?)```", re.MULTILINE | re.DOTALL)
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


def test_your_model(folder: Path) -> None:
    shutil.copytree(MICRO_MODEL, "model")
    preset = with_tables(OWN, SECTIONS["Your model"]["preset.toml"])
    assert checked(preset).base_model == "model"
    shutil.rmtree("model")
    result = CliRunner().invoke(app, ["check", "preset.toml"])
    assert "fault: base_model: " in result.stdout


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
    install = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target=installed", ".")
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    group = {"question_id": "q", "rollouts": [{"answer": answer} for answer in ("7", "7", "7", "8")]}
    Path("groups.jsonl").write_text(json.dumps(group))
    Path("preset.toml").write_text(with_tables(OWN, SECTIONS["Your reward"]["preset.toml"]))

    def run_installed(*arguments: str) -> str:
        return run("-m", "orchestrator.cli", *arguments, path=f"{ROOT}:{folder / 'installed'}", folder=folder)

    score = ("--groups", "groups.jsonl", "--json")
    own, parent = (json.loads(run_installed("methods", "score", name, *score)) for name in ("confident", "ttrl"))
    assert own["rewards"] == [*(0.75, 0.75, 0.75, 0)]
    # An advantage is the share of the majority, 3/4, times how far a reward of TTRL is from the mean, 3/4.
    assert own["advantages"] == pytest.approx([*(3 / 16, 3 / 16, 3 / 16, -9 / 16)])
    assert parent["advantages"] == pytest.approx([*(0.5, 0.5, 0.5, -1.5)], abs=1e-5)
    assert "can start" in run_installed("check", "preset.toml")
    assert "confident" in json.loads(run_installed("methods", "list", "--json"))


def repository_in(folder: Path, *parts: str) -> Path:
    """A copy of these folders of the repository."""
    for part in ("core", "storage", "services", "trainers", "orchestrator", "deploy", *parts):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    return folder


def test_add_a_method(tmp_path: Path) -> None:
    """In a copy of the repository, the example's own test passes, and the command and a preset can use its method."""
    copy, example = repository_in(tmp_path / "copy", "tests/core"), SECTIONS["Add a method"]
    for name in ("core/methods/quorum.py", test := "tests/core/test_methods_quorum.py"):
        (copy / name).write_text(example[name])
    preset = (copy / "deploy/runs/ttrl.toml").read_text().replace('type = "ttrl"\n', example["deploy/runs/quorum.toml"])
    (copy / "deploy/runs/quorum.toml").write_text(preset)
    (copy / "groups.jsonl").write_text(
        json.dumps({"question_id": "q", "rollouts": [{"answer": "7"}, {"answer": "7"}, {"answer": "8"}]})
    )

    def run_in_copy(*command: str) -> str:
        return run(*command, path=f"{copy}:{copy}/tests/core", folder=copy)

    assert "1 passed" in run_in_copy("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(copy), test)
    score = ("methods", "score", "quorum", "--groups", "groups.jsonl", "--json")
    assert json.loads(run_in_copy("-m", "orchestrator.cli", *score))["rewards"] == [1, 1, 0]
    loaded = (
        "from core.settings.parsing import *; print(load_config(Path('deploy/runs/quorum.toml')).solver.reward.type)"
    )
    assert run_in_copy("-c", loaded) == "quorum\n"


def test_add_a_figure(tmp_path: Path, sqlite: Store) -> None:
    """In a copy of the repository, every view of a figure has the example's."""
    copy, example = repository_in(tmp_path / "copy", "docs"), SECTIONS["Add a figure"]
    after = '    "label_questions": (_vote_points, _candidate_points, asked_points),\n'
    changes = (
        ("core/figures.py", "\n)\n# The signs of", f"\n    {example['figures.py'].rstrip()},\n)\n# The signs of"),
        ("services/drift/series.py", "# Stage -> the functions", f"{example['series.py']}\n\n# Stage -> the functions"),
        ("services/drift/series.py", after, example["_AFTER"]),
    )
    for file, old, new in changes:
        assert (copy / file).read_text().count(old) == 1
        (copy / file).write_text((copy / file).read_text().replace(old, new))
    fill_run(sqlite, "demo", per_level=1)

    def run_in_copy(*command: str) -> str:
        return run(*command, path=str(copy), folder=copy, COEVO_HOME=str(tmp_path))

    series = ("show", "series", "demo", "--name", "answers", "--refresh", "--json")
    points = json.loads(run_in_copy("-m", "orchestrator.cli", *series))
    assert [(point["iteration"], point["over"], point["interval"]) for point in points] == [
        (t, "all", "mean") for t in (1, 2, 3)
    ]
    assert all(1 <= point["lo"] <= point["value"] <= point["hi"] for point in points)
    scrape = (
        "from prometheus_client import CollectorRegistry, generate_latest; from pathlib import Path;"
        "from fastapi.testclient import TestClient; from services.api.app import create_app;"
        "from storage.session import open_store;"
        f"api = create_app(open_store('sqlite:///{tmp_path}/coevo.db'), Path('{tmp_path}'), ask_for_keys=False);"
        "client = TestClient(api, base_url='http://localhost'); print(client.get('/metrics').text);"
        "print(client.get('/api/v1/comparison/figures?run=demo').text)"
    )
    shown = run_in_copy("-c", scrape)
    assert 'coevo_answers{oracle="",run="demo",slice="all"}' in shown
    assert "Mean number of different answers to a question" in shown.partition("[{")[2]
    run_in_copy("docs/list_figures.py")
    for file in (
        "docs/alerts.md",
        "deploy/grafana/dashboards/coevo.json",
        "services/dashboard/static/known_figures.js",
    ):
        assert "answers" in (copy / file).read_text()
        assert (copy / file).read_text().count("\n") > (ROOT / file).read_text().count("\n")


def run(*command: str, path: str, folder: Path, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", **variables}
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
