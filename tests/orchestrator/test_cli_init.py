"""`coevo init`: the folder passes `coevo check` and runs as it is, and nothing of somebody's is overwritten."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from core import worlds
from core.grading.answers import number_of
from core.settings.config import SelfTraining
from core.settings.parsing import comment_of, load_config
from core.types import TINY_BASES
from orchestrator.installation.home import PRESETS
from orchestrator.question_sets.benchmarks import load
from orchestrator.question_sets.prompts import read_prompts
from storage import queries
from tests.commands import coevo, json_of, refusal, sets
from tests.live import Live

ALL = sorted(path.stem for path in PRESETS.glob("*.toml"))
TINY = [name for name in ALL if load_config(PRESETS / f"{name}.toml").base_model in TINY_BASES and "vllm" not in name]
FILES = ["README.md", "benchmark.jsonl", "benchmark.toml", "preset.toml", "prompts.jsonl"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_has_eight_prompts_and_eight_questions_that_the_tiny_model_understands(folder: Path) -> None:
    result = coevo("init", "mine")
    assert result.stderr == ""
    assert names(folder / "mine") == FILES
    assert "`coevo check mine/preset.toml`" in result.stdout
    config = load_config(folder / "mine" / "preset.toml")
    assert isinstance(config, SelfTraining)
    prompts = [(row.text, row.answer) for row in read_prompts(config, config.prompts)]
    items = [(item.problem, item.answer) for item in load(config.evaluation.benchmark).items]
    assert (len(prompts), len(items)) == (8, 8)
    assert len({text for text, _ in (*prompts, *items)}) == 16
    for text, answer in (*prompts, *items):
        assert number_of(answer or "") == worlds.solve(text)
    columns = {*json.loads((folder / "mine" / "prompts.jsonl").read_text().splitlines()[0])}
    assert columns == {config.prompts.question, config.prompts.answer}
    assert not columns & {"problem", "question", "answer"}


@pytest.mark.parametrize("preset", TINY)
def test_a_folder_from_a_preset_of_the_tiny_world_passes_the_check(folder: Path, preset: str) -> None:
    coevo("init", "a folder", "--preset", preset)
    checked = json_of("check", "a folder/preset.toml")
    assert checked["run"] == "a-folder"
    assert [row["setting"] for row in checked["warnings"]] == ["services"]


@pytest.mark.parametrize("preset", ALL)
def test_a_folder_s_preset_differs_only_in_what_is_marked(folder: Path, preset: str) -> None:
    """Its lines are the shipped preset's, with their comments, except for those that name something of one's own."""
    coevo("init", "mine", "--preset", preset)
    shipped, file = PRESETS / f"{preset}.toml", folder / "mine" / "preset.toml"
    own, original = load_config(file), load_config(shipped)
    changed = {"evaluation": own.evaluation, "audit": own.audit}
    if isinstance(own, SelfTraining) and not own.test_time:
        changed["prompts"] = own.prompts
        assert own.prompts.limit is None
        assert own.prompts.file == str(folder / "mine" / "prompts.jsonl")
    assert own == original.model_copy(update=changed)
    assert own.evaluation.benchmark == str(folder / "mine" / "benchmark.toml")
    assert own.evaluation.suite == original.evaluation.suite
    lines = file.read_text().splitlines()
    removed = [line for line in shipped.read_text().splitlines() if line not in lines]
    assert all(re.match(r"(base_model|file|limit|question|answer|oracle|benchmark) *=", line) for line in removed)
    assert comment_of(shipped) in comment_of(file)
    assert ("prompts.jsonl" in names(folder / "mine")) == ("prompts" in changed)
    assert ("prompts.jsonl" in (folder / "mine" / "README.md").read_text()) == ("prompts" in changed)


def test_the_three_commands_of_its_readme_name_its_preset(folder: Path) -> None:
    coevo("init", "my runs/first")
    readme = (folder / "my runs" / "first" / "README.md").read_text()
    assert readme.count("\n") <= 20
    commands = [shlex.split(line, comments=True) for line in readme.splitlines() if line.startswith("coevo ")]
    assert [command[1] for command in commands] == ["check", "check", "run"]
    assert {command[2] for command in commands} == {"my runs/first/preset.toml"}


def test_an_empty_folder_is_filled_and_stays_the_same_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mine").mkdir(mode=0o750)
    before = (folder / "mine").stat()
    monkeypatch.chdir(folder / "mine")
    coevo("init", ".")
    after = (folder / "mine").stat()
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    assert "run mine can start" in coevo("check", "preset.toml").stdout


def test_what_cannot_be_made_leaves_nothing(folder: Path) -> None:
    (folder / "file").touch()
    (folder / "taken" / "benchmark.jsonl").mkdir(parents=True)
    (folder / "taken" / "notes.txt").write_text("mine")
    (folder / "broken.toml").write_text('prompts = 3\nbase_model = "micro"\n')
    (folder / "dotted.toml").write_text('evaluation.benchmark = "micro"\n')  # which TOML lets no table extend
    before = names(folder)
    for arguments, complaint in (
        (("taken",), "taken: expected a new or an empty folder, got one with benchmark.jsonl, notes.txt"),
        (("file/below",), "file/below: cannot be written: "),
        (("new", "--preset", "broken.toml"), "prompts: "),
        (("new", "--preset", "dotted.toml"), "not valid TOML"),
    ):
        assert complaint in refusal("init", *arguments)
    assert names(folder) == before
    assert names(folder / "taken") == ["benchmark.jsonl", "notes.txt"]


def test_its_preset_runs_as_it_is(live: Live, tmp_path: Path) -> None:
    assert live.coevo("init", str(tmp_path / "mine")).returncode == 0
    little = ("iterations=1", "solver.training.steps=1", "solver.training.workers=1", "evaluation.samples=1")
    done = live.coevo("run", str(tmp_path / "mine" / "preset.toml"), "--name", "own", *sets(*little))
    assert "run own: done" in done.stdout, done.stdout + done.stderr
    with live.store().read() as session:
        assert len(queries.questions.questions_of(session, "own", 0)) == 8
        checkpoints = {row.iteration: row.id for row in queries.checkpoints.checkpoints_of(session, "own")}
        benchmark = str(tmp_path / "mine" / "benchmark.toml")
        assert len(queries.evaluations.evaluations_of(session, checkpoints[1], benchmark)) == 8
