"""`coevo check PRESET`: all faults at once on one page, and nothing is started or written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from core.types import Spent, StageKey
from orchestrator.check.presets import preset_names
from orchestrator.cli import app
from orchestrator.installation.home import MICRO_MODEL, Home
from orchestrator.runs import prepare
from storage import queries
from storage.session import open_store


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path / "home"))
    for variable in ("COEVO_DATABASE", "COEVO_RAY_ADDRESS", "COEVO_BENCHMARKS", "JUDGE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def coevo(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def said(result: Result) -> str:
    """The page without its line breaks."""
    return " ".join(result.stdout.split())


def settings_of(result: Result, kind: str = "faults") -> list[str]:
    return [row["setting"] for row in json.loads(result.stdout)[kind]]


def test_a_preset_that_can_start_has_no_fault_and_nothing_is_written(folder: Path) -> None:
    result = coevo("check", "demo")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "warning: services: none are running here; start them with `coevo up`" in result.stdout
    assert result.stdout.endswith("run demo can start: faults 0, warnings 1\n")
    assert not (folder / "home").exists()


def test_all_faults_are_shown_at_once(folder: Path) -> None:
    wrong = (
        "base_model=none",
        "evaluation.benchmark=math50",
        "serving.applications=rzero",
        "evaluation.suite=rzero-mat",
    )
    sets = [argument for setting in wrong for argument in ("--set", setting)]
    result = coevo("check", "demo", "--name", "a/b", "--iterations", "-1", *sets, "--json")
    assert result.exit_code == 1
    assert settings_of(result) == [
        *("name", "iterations", "serving.applications", "base_model", "evaluation.suite", "evaluation.benchmark")
    ]
    texts = [row["text"] for row in json.loads(result.stdout)["faults"]]
    assert texts[3] == (
        "base_model: expected a folder with a Hugging Face model, got none, which has no config.json; put a Hugging "
        "Face model in safetensors there, or add --set base_model=FOLDER"
    )
    assert "(did you mean math500?)" in texts[5]
    assert not (folder / "home").exists()


def test_a_setting_of_the_wrong_type_hides_no_other_fault(folder: Path) -> None:
    wrong = (
        *("iterations=two", "dataset.candidats=3", "solver.training.prompts_per_update=99"),
        *("evaluation.benchmark=mikro", "base_model=nothere"),
    )
    result = coevo("check", "demo", *(part for setting in wrong for part in ("--set", setting)), "--json")
    assert result.exit_code == 1
    assert settings_of(result) == [
        *("iterations", "dataset.candidats", "solver.training.prompts_per_update"),
        *("base_model", "evaluation.benchmark"),
    ]
    assert "(did you mean micro?)" in json.loads(result.stdout)["faults"][-1]["text"]


def test_no_fault_is_shown_that_a_wrong_setting_may_have_caused(folder: Path) -> None:
    """The preset's own trainer, in whose place another was meant, cannot divide these batches."""
    layout = ("--set", "trainer.gpus_per_node=7", "--set", "solver.training.prompts_per_step=3")
    assert "trainer.gpus_per_node" in settings_of(coevo("check", "rzero", *layout, "--json"))
    wrong = coevo("check", "rzero", *layout, "--set", "iterations=two", "--json")
    assert settings_of(wrong) == ["iterations", "base_model"]
    two = ("--set", "solver.training.prompts_per_step=many", "--set", "solver.training.prompts_per_update=99")
    assert settings_of(coevo("check", "demo", *two, "--json")) == ["solver.training.prompts_per_step"]


def test_a_benchmark_s_file_that_is_missing_is_a_fault_and_no_warning_beside_it(folder: Path) -> None:
    """A run would not start without it, since nothing fetches a file."""
    definition = folder / "mine.toml"
    definition.write_text('title = "mine"\nsource = "a book"\n')
    for benchmark in ("nofile.jsonl", str(definition)):
        result = coevo("check", "micro", "--set", f"evaluation.benchmark={benchmark}", "--json")
        assert (result.exit_code, settings_of(result)) == (1, ["evaluation.benchmark"]), result.stdout
        assert settings_of(result, "warnings") == ["services"]


def test_fewer_questions_than_a_step_has_prompts_are_a_warning(folder: Path) -> None:
    few = ("check", "micro", "--set", "solver.training.prompts_per_step=33", "--json", "--set")
    assert "prompts.limit" in settings_of(coevo(*few, "prompts.limit=32"), "warnings")
    assert "prompts.limit" not in settings_of(coevo(*few, "prompts.limit=33"), "warnings")


def test_the_same_faults_keep_a_run_from_starting(folder: Path) -> None:
    result = coevo("run", "demo", "--name", "a/b", "--iterations", "-1", "--set", "dataset.candidats=3")
    assert result.exit_code == 1
    assert "3 faults:\n  name: expected" in result.stderr
    assert "\n  iterations: expected 1 or more" in result.stderr
    assert "\n  --set dataset.candidats=3: unknown setting; did you mean dataset.candidates?" in result.stderr


@pytest.mark.parametrize("command", [("run", "demo"), ("check", "demo"), ("resume", "busy")])
def test_no_iterations_are_refused_and_do_not_stand_for_those_of_the_preset(
    folder: Path, command: tuple[str, str]
) -> None:
    result = coevo(*command, "--iterations", "0")
    assert result.exit_code == 2
    assert "expected 1 or more, got 0" in result.stderr


def test_a_preset_for_gpus_warns_of_what_it_waits_for_and_of_the_empty_chart(folder: Path) -> None:
    result = coevo("check", "rzero-qwen3-4b", "--set", f"base_model={MICRO_MODEL}", "--json")
    warnings = {row["setting"]: row["text"] for row in json.loads(result.stdout)["warnings"]}
    assert {"services", "evaluation", "trainer", "trainer.source", "audit.oracle"} <= warnings.keys()
    assert (
        "the chart of label accuracy stays empty; add --set audit.oracle=judge --set audit.judge.url=URL"
        in (warnings["audit.oracle"])
    )
    assert "aime25" in warnings["evaluation"]
    assert "evaluation.suite" not in settings_of(result)
    judged = coevo(
        *("check", "rzero-qwen3-4b", "--set", "audit.oracle=judge", "--set", "audit.judge.url=http://127.0.0.1:1/v1"),
        *("--set", "audit.judge.model=m", "--json"),
    )
    assert "audit.oracle" not in settings_of(judged, "warnings")


def test_the_judge_s_key_and_the_prompts_are_checked(folder: Path) -> None:
    result = coevo(
        *("check", "supervised", "--set", "audit.oracle=judge", "--set", "audit.judge.url=http://127.0.0.1:1/v1"),
        *("--set", "audit.judge.model=m", "--set", "audit.judge.key_variable=JUDGE_API_KEY", "--json"),
    )
    faults = {row["setting"]: row for row in json.loads(result.stdout)["faults"]}
    assert "JUDGE_API_KEY is not set" in faults["audit.judge"]["text"]
    assert faults["prompts.file"]["remedy"].startswith("put a JSONL or Parquet file with ")


def test_an_existing_run_with_other_settings_is_a_fault(folder: Path) -> None:
    home = Home(folder / "home")
    prepare(home, open_store(home.database, create=True), "taken", "demo", 0, {"dataset.votes": 4})
    result = coevo("check", "demo", "--name", "taken", "--set", "dataset.votes=5")
    assert result.exit_code == 1
    assert "fault: name: run taken: exists with another configuration: dataset.votes is 4, got 5" in said(result)


@pytest.mark.parametrize("preset", ["nosuch", "demoo"])
def test_an_unknown_preset_is_a_fault(folder: Path, preset: str) -> None:
    result = coevo("check", preset)
    assert result.exit_code == 1
    assert f"fault: preset: '{preset}': no such preset" in said(result)
    assert ("(did you mean demo?)" in said(result)) is (preset == "demoo")


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_has_a_page_of_80_columns_and_the_same_as_json(folder: Path, preset: str) -> None:
    result = coevo("check", preset, "--json")
    assert result.exit_code in (0, 1), result.output
    assert {*settings_of(result)} <= {"serving.applications", "base_model", "prompts.file", "early_stopping.benchmark"}
    printed = json.loads(result.stdout)
    details, needed = printed["details"], printed["estimate"]
    assert (details["name"], details["gpus"]) == (preset, needed["gpus"])
    assert (needed["fits"], needed["disk_gib"] > 2) == (True, True)
    lines = coevo("check", preset).stdout.splitlines()
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []  # a path is not cut
    assert len(lines) <= 45
    assert lines[0].startswith(f"{preset}: ")
    rows = {line.split()[0]: line for line in lines}
    for stage in needed["stages"]:
        assert not stage["gpus"] or f"{stage['fullest_gib']:.1f}" in rows[stage["stage"]]


def test_a_preset_that_does_not_fit_its_gpus_says_what_to_change(folder: Path) -> None:
    result = coevo("check", "rzero-qwen3-4b", "--gpu-memory", "40", "--json")
    assert "memory" in settings_of(result, "warnings")
    assert any("update_micro_batch" in setting for setting in json.loads(result.stdout)["estimate"]["advice"])


def test_a_price_makes_the_cost(folder: Path) -> None:
    assert "of money" in coevo("check", "rzero-qwen3-4b", "--set", "rates.gpu_hour=2").stdout


def test_heads_that_cannot_be_divided_are_a_fault(folder: Path) -> None:
    result = coevo("check", "rzero-qwen3-4b", "--set", "trainer.tensor_parallel=3", "--json")
    texts = [row["text"] for row in json.loads(result.stdout)["faults"] if row["setting"] == "trainer.tensor_parallel"]
    assert any("32 attention heads" in text for text in texts)


def test_what_is_tried_on_this_machine_may_be_a_fault_or_a_warning(folder: Path) -> None:
    model = shutil.copytree(MICRO_MODEL, folder / "model")
    (model / "chat_template.jinja").unlink()
    result = coevo("check", "demo", "--set", f"base_model={model}")
    assert (result.exit_code, "fault: base model: " in result.stdout) == (1, True), result.stdout
    judge = ("--set", "audit.oracle=judge", "--set", "audit.judge.url=http://127.0.0.1:1/v1")
    result = coevo("check", "demo", *judge, "--set", "audit.judge.model=m")
    assert (result.exit_code, "warning: external services: " in result.stdout) == (0, True), result.stdout


def test_a_model_whose_shape_is_not_known_has_no_estimate(folder: Path) -> None:
    result = coevo("check", "rzero-qwen3-4b", "--set", "base_model=models/Other", "--json")
    printed = json.loads(result.stdout)
    assert (result.exit_code, printed["estimate"], printed["details"]["hours"]) == (1, None, None)
    assert "estimate" in settings_of(result, "warnings")


def test_a_trial_run_needs_a_preset(folder: Path) -> None:
    assert coevo("check", "--run").exit_code == 1


def test_a_number_of_iterations_out_of_bounds_is_not_taken_for_an_override(folder: Path) -> None:
    result = coevo("check", "demo", "--iterations", "999999")
    assert result.exit_code == 1
    assert "fault: iterations: expected at most 10000, got 999999\n" in result.stdout


def test_a_spent_budget_of_an_existing_run_is_a_warning(folder: Path) -> None:
    home = Home(folder / "home")
    store, budget = open_store(home.database, create=True), {"budget.tokens": 5}
    prepare(home, store, "spent", "demo", 0, budget)
    checked = ("check", "demo", "--name", "spent", "--set", "budget.tokens=5")
    assert "warning: budget" not in coevo(*checked).stdout
    with store.write() as session:
        queries.usage.add_usage(session, StageKey("spent", 1, "generate_questions"), "votes", Spent(1, 3, 4))
    result = coevo(*checked)
    assert (result.exit_code, "warning: budget: " in result.stdout) == (0, True), result.output


def test_a_program_that_cannot_be_run_is_a_fault_before_the_run(folder: Path) -> None:
    program = folder / f"{80 * 'a'}.py"  # a line of the page is shorter, and the path is not cut
    program.touch()
    arguments = ("check", "demo", "--set", "audit.oracle=program", "--set", f"audit.program.file={program}")
    result = coevo(*arguments)
    assert result.exit_code == 1
    expected = f"fault: audit.program.file: expected an executable file, got {program}, which is not executable; chmod"
    assert expected in said(result)
    program.chmod(0o755)
    assert coevo(*arguments).exit_code == 0
    for settings, complaint in (
        (("audit.oracle=program",), "expected a table with file, since oracle is 'program', got none"),
        ((f"audit.program.file={program}",), "belongs to oracle = 'program', got oracle = 'exact': leave it out"),
        (
            ("audit.oracle=program", "audit.program.file=grade.py"),
            "expected the absolute path of a program, got 'grade",
        ),
    ):
        refused = coevo("check", "demo", *(part for setting in settings for part in ("--set", setting)))
        assert (refused.exit_code, complaint in said(refused)) == (1, True), refused.stdout


def test_an_oracle_that_has_nothing_to_grade_is_a_warning(folder: Path) -> None:
    oracle = ("--set", "audit.oracle=given")
    shown = said(coevo("check", "micro", *oracle))
    assert (
        "audit.oracle: 'given' has nothing to grade, because nothing is voted on before the training; set it" in shown
    )
    assert "audit.oracle" not in coevo("check", "micro").output
    voted = coevo("check", "micro", *oracle, "--set", "prompts.easiest=0.5").output
    assert "audit.oracle" not in voted
    assert "faults 0" in voted
