"""`coevo check PRESET`: all faults at once on one page, and nothing is started or written."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from core.types import Spent, StageKey
from orchestrator.check import needs
from orchestrator.check.presets import preset_names
from orchestrator.cli import app
from orchestrator.installation.home import MICRO_MODEL, Home
from orchestrator.runs import prepare
from orchestrator.serving import applications
from storage import queries
from storage.session import open_store
from tests.commands import coevo, refusal, sets, words

PROGRAM = 80 * "a" + ".py"  # a line of the page is shorter, and the path is not cut
JUDGE = ("audit.oracle=judge", "audit.judge.url=http://127.0.0.1:1/v1", "audit.judge.model=m")
LAYOUT = ("trainer.gpus_per_node=7", "solver.training.prompts_per_step=3")

pytestmark = pytest.mark.usefixtures("folder")


def check(preset: str, *settings: str) -> dict[str, Any]:
    """What `coevo check PRESET --json` prints; it fails if there is a fault."""
    result = CliRunner().invoke(app, ["check", preset, *sets(*settings), "--json"])
    printed: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == bool(printed["faults"]), result.output
    return printed


def texts(printed: dict[str, Any], kind: str = "faults") -> dict[str, str]:
    return {row["setting"]: row["text"] for row in printed[kind]}


def test_a_preset_that_can_start_has_no_fault_and_nothing_is_written(folder: Path) -> None:
    result = coevo("check", "demo")
    assert result.stderr == ""
    assert "warning: services: none are running here; start them with `coevo up`" in result.stdout
    assert result.stdout.endswith("run demo can start: faults 0, warnings 1\n")
    assert not (folder / "home").exists()


def test_all_faults_are_shown_at_once_and_nothing_is_written(folder: Path) -> None:
    wrong = (
        "base_model=none",
        "evaluation.benchmark=math50",
        "serving.applications=rzero",
        "evaluation.suite=rzero-mat",
    )
    result = coevo("check", "demo", "--name", "a/b", "--iterations", "-1", *sets(*wrong), "--json", status=1)
    faults = texts(json.loads(result.stdout))
    named = ("name", "iterations", "serving.applications", "base_model", "evaluation.suite", "evaluation.benchmark")
    assert tuple(faults) == named
    assert "no config.json; put a Hugging Face model in safetensors there" in faults["base_model"]
    assert "(did you mean math500?)" in faults["evaluation.benchmark"]
    assert not (folder / "home").exists()


@pytest.mark.parametrize(
    ("preset", "settings", "faults"),
    [
        # A setting of the wrong type hides no other fault.
        (
            "demo",
            ("iterations=two", "dataset.candidats=3", "solver.training.prompts_per_update=99", "base_model=nothere"),
            {"iterations", "dataset.candidats", "solver.training.prompts_per_update", "base_model"},
        ),
        # No fault is shown that a wrong setting may have caused: the preset's own trainer cannot divide these batches.
        ("rzero", LAYOUT, {"trainer.gpus_per_node", "base_model"}),
        ("rzero", ("iterations=two", *LAYOUT), {"iterations", "base_model"}),
        (
            "demo",
            ("solver.training.prompts_per_step=many", "solver.training.prompts_per_update=99"),
            {"solver.training.prompts_per_step"},
        ),
        # A benchmark's file that is missing is a fault and no warning beside it: nothing fetches a file.
        ("micro", ("evaluation.benchmark=nofile.jsonl",), {"evaluation.benchmark"}),
        ("micro", ("evaluation.benchmark=mine.toml",), {"evaluation.benchmark"}),
        ("rzero-qwen3-4b", ("trainer.tensor_parallel=3",), {"trainer.tensor_parallel", "base_model"}),
        ("demo", (*JUDGE, "audit.judge.key_variable=JUDGE_API_KEY"), {"audit.judge"}),
        ("supervised", (), {"prompts.file", "base_model"}),
        ("demo", ("audit.oracle=program",), {"audit.program"}),
        ("demo", (f"audit.program.file={PROGRAM}",), {"audit.program.file"}),
        ("demo", ("audit.oracle=program", "audit.program.file=grade.py"), {"audit.program.file"}),
    ],
)
def test_a_fault_names_its_setting(
    folder: Path, monkeypatch: pytest.MonkeyPatch, preset: str, settings: tuple[str, ...], faults: set[str]
) -> None:
    """That vLLM is not installed is a fault of its own (test_applications.py), so here it is."""
    monkeypatch.setattr(applications, "find_spec", lambda name: name)
    (folder / "mine.toml").write_text('title = "mine"\nsource = "a book"\n')
    printed = check(preset, *settings)
    assert {*texts(printed)} == faults
    assert not {*texts(printed, "warnings")} & faults


def test_what_a_tracker_lacks_is_found_before_the_run_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    settings = ('trackers.to=["wandb", "tensorboard"]', "trackers.wandb_url=https://api.wandb.ai")
    monkeypatch.setattr(needs, "find_spec", lambda _name: None)
    printed = check("demo", *settings)["faults"]
    faults = [(fault["setting"], *re.findall("(tensorboard|wandb) is not", fault["text"])) for fault in printed]
    assert faults == [("trackers.to", "tensorboard"), ("trackers.to", "wandb"), ("trackers.wandb_url",)]
    monkeypatch.setattr(needs, "find_spec", lambda name: name)
    monkeypatch.setenv("WANDB_API_KEY", "words-of-a-key")
    assert texts(check("demo", *settings)) == {}


FEW = ("solver.training.prompts_per_step=33", "prompts.limit=32")
GIVEN = "audit.oracle=given"  # it has nothing to grade unless something is voted on before the training


@pytest.mark.parametrize(
    ("preset", "settings", "warnings"),
    [
        ("micro", FEW, {"prompts.limit"}),
        ("micro", (*FEW, "prompts.limit=33"), set()),
        ("micro", (GIVEN,), {"audit.oracle"}),
        ("micro", (GIVEN, "prompts.easiest=0.5"), set()),
        ("demo", JUDGE, set()),
        ("rzero-qwen3-4b", (), {"evaluation", "trainer", "trainer.source", "audit.oracle"}),
        ("rzero-qwen3-4b", JUDGE, {"evaluation", "trainer", "trainer.source"}),
        ("rzero-qwen3-4b", ("base_model=models/Other",), {"estimate", "audit.oracle"}),
    ],
)
def test_a_warning_names_its_setting(preset: str, settings: tuple[str, ...], warnings: set[str]) -> None:
    printed = check(preset, *settings)
    expected = {"services", *warnings}
    assert {*texts(printed, "warnings")} - {"external services"} >= expected
    assert ("audit.oracle" in texts(printed, "warnings")) == ("audit.oracle" in expected)
    assert ("prompts.limit" in texts(printed, "warnings")) == ("prompts.limit" in expected)
    assert (printed["estimate"] is None) == ("estimate" in expected)
    assert printed["details"]["hours"] is None or printed["estimate"]


def test_a_preset_for_gpus_warns_of_what_it_waits_for_and_of_the_empty_chart() -> None:
    warnings = texts(check("rzero-qwen3-4b", f"base_model={MICRO_MODEL}"), "warnings")
    assert "add --set audit.oracle=judge --set audit.judge.url=URL" in warnings["audit.oracle"]
    assert "aime25" in warnings["evaluation"]


def test_an_existing_run_with_other_settings_is_a_fault(folder: Path) -> None:
    home = Home(folder / "home")
    prepare(home, open_store(home.database, create=True), "taken", "demo", 0, {"dataset.votes": 4})
    printed = coevo("check", "demo", "--name", "taken", "--set", "dataset.votes=5", status=1).stdout
    assert "fault: name: run taken: exists with another configuration: dataset.votes is 4, got 5" in words(printed)


def test_an_unknown_preset_is_a_fault_and_a_similar_one_is_suggested() -> None:
    for preset, suggested in (("nosuch", False), ("demoo", True)):
        printed = words(coevo("check", preset, status=1).stdout)
        assert f"fault: preset: '{preset}': no such preset" in printed
        assert ("(did you mean demo?)" in printed) is suggested


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_has_a_page_of_80_columns_and_the_same_as_json(preset: str) -> None:
    printed = check(preset)
    possible = {"serving.applications", "base_model", "prompts.file", "early_stopping.benchmark"}
    assert {*texts(printed)} <= possible
    details, needed = printed["details"], printed["estimate"]
    assert (details["name"], details["gpus"]) == (preset, needed["gpus"])
    assert (needed["fits"], needed["disk_gib"] > 2) == (True, True)
    lines = coevo("check", preset, status=int(bool(printed["faults"]))).stdout.splitlines()
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []  # a path is not cut
    assert len(lines) <= 45
    assert lines[0].startswith(f"{preset}: ")
    rows = {line.split()[0]: line for line in lines}
    for stage in needed["stages"]:
        assert not stage["gpus"] or f"{stage['fullest_gib']:.1f}" in rows[stage["stage"]]


def test_a_preset_that_does_not_fit_its_gpus_says_what_to_change() -> None:
    printed = json.loads(coevo("check", "rzero-qwen3-4b", "--gpu-memory", "40", "--json", status=1).stdout)
    assert "memory" in texts(printed, "warnings")
    assert any("update_micro_batch" in setting for setting in printed["estimate"]["advice"])


def test_a_price_makes_the_cost() -> None:
    assert "of money" in coevo("check", "rzero-qwen3-4b", "--set", "rates.gpu_hour=2", status=1).stdout


def test_what_is_tried_on_this_machine_may_be_a_fault_or_a_warning(folder: Path) -> None:
    model = shutil.copytree(MICRO_MODEL, folder / "model")
    (model / "chat_template.jinja").unlink()
    assert "fault: base model: " in coevo("check", "demo", "--set", f"base_model={model}", status=1).stdout
    assert "warning: external services: " in coevo("check", "demo", *sets(*JUDGE)).stdout


def test_a_trial_run_needs_a_preset_and_iterations_are_no_override() -> None:
    refusal("check", "--run")
    printed = coevo("check", "demo", "--iterations", "999999", status=1).stdout
    assert "fault: iterations: expected at most 10000, got 999999\n" in printed


def test_a_spent_budget_of_an_existing_run_is_a_warning(folder: Path) -> None:
    home = Home(folder / "home")
    store = open_store(home.database, create=True)
    prepare(home, store, "spent", "demo", 0, {"budget.tokens": 5})
    checked = ("check", "demo", "--name", "spent", "--set", "budget.tokens=5")
    assert "warning: budget" not in coevo(*checked).stdout
    with store.write() as session:
        queries.usage.add_usage(session, StageKey("spent", 1, "generate_questions"), "votes", Spent(1, 3, 4))
    assert "warning: budget: " in coevo(*checked).stdout


def test_a_program_that_cannot_be_run_is_a_fault_before_the_run(folder: Path) -> None:
    program = folder / PROGRAM
    program.touch()
    arguments = ("check", "demo", *sets("audit.oracle=program", f"audit.program.file={program}"))
    said = words(coevo(*arguments, status=1).stdout)
    assert f"audit.program.file: expected an executable file, got {program}, which is not executable; chmod" in said
    program.chmod(0o755)
    coevo(*arguments)
