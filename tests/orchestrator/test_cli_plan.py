"""`coevo plan`: its output, and the tables of docs/sizing.md, which must be the same."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from core.settings.parsing import load_config
from orchestrator.check.machine.resources import check_disk
from orchestrator.check.machine.result import Subject
from orchestrator.check.presets import preset_path
from orchestrator.cli import app
from orchestrator.installation.home import PRESETS, ROOT, Home
from orchestrator.plan import plan as run_plan
from storage import queries
from storage.session import Store
from tests.synthetic_run import finish

PAGE = (ROOT / "docs" / "sizing.md").read_text()


def plan(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["plan", *arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize("preset", sorted(path.stem for path in PRESETS.glob("*.toml")))
def test_the_output_has_every_section_and_is_at_most_100_columns_wide(preset: str) -> None:
    code, output = plan(preset)
    assert code == 0, output
    assert [line for line in output.splitlines() if len(line) > 100] == []
    for section in ("Model", "Who ", "Memory", "Disk", "Tokens", "Hours", "Assumed"):
        assert re.search(f"^{section}", output, re.MULTILINE)


def test_the_output_shows_the_arithmetic() -> None:
    code, output = plan("rzero-qwen3-4b")
    assert code == 0
    assert "It fits, by this arithmetic." in output
    assert re.search(r"151,936 tokens x 2,560 .* 388,956,160", output)
    assert re.search(r"logits and their gradient +2 x 2 x 20,480 tokens x 151,936 +11\.6", output)
    assert re.search(r"train_challenger +0-3\* +4-7\* +- +72\.0", output)
    assert "assumed speeds, not measured ones" in output


def test_the_disk_is_what_doctor_s_check_expects(tmp_path: Path) -> None:
    """Three iterations of two roles and the base model in bfloat16, three step folders with AdamW's moments."""
    parameters = 4_022_468_096
    needed = (7 * 2 + 3 * 12) * parameters / 2**30 + 2
    figures = json.loads(plan("rzero-qwen3-4b", "--set", "iterations=3", "--json")[1])
    assert figures["disk_gib"] == pytest.approx(needed)
    assert sum(line["gib"] for line in figures["disk"]) == pytest.approx(needed)
    output = plan("rzero-qwen3-4b", "--set", "iterations=3")[1]
    assert re.search(rf"^Disk of the home.*^    in all +{needed:.1f}$", output, re.MULTILINE | re.DOTALL)
    config = load_config(preset_path("rzero-qwen3-4b"), {"iterations": 3})
    finding = check_disk(Subject(Home(tmp_path), "rzero-qwen3-4b", config, free=lambda _: 2**50))
    assert f"take up to {needed:.1f} GiB" in finding.detail


def test_the_json_has_layout_memory_hours_and_assumptions() -> None:
    code, output = plan("rzero-qwen3-4b", "--gpus", "16", "--json", "--token-seconds", "0", "--mfu-sample", "0.05")
    assert code == 0
    figures = json.loads(output)
    assert (figures["gpus"], figures["fits"], figures["proposed"], figures["problems"]) == (16, True, True, [])
    assert figures["model"]["parameters"] == 4_022_468_096
    assert figures["assumptions"]["mfu_sample"] == 0.05
    assert figures["layout"]["trainer"]["gpus"] + figures["layout"]["apps"][1]["replicas"] == 16
    assert figures["hours"]["typical"] == pytest.approx(sum(stage["hours"]["typical"] for stage in figures["stages"]))
    assert len(figures["memory"]) == 4
    with_default_assumptions = json.loads(plan("rzero-qwen3-4b", "--gpus", "16", "--json", "--token-seconds", "0")[1])
    before, after = (
        {
            part["why"]: part["hours"]["typical"]
            for stage in plan_figures["stages"]
            for part in stage["parts"]
            if not part["training"] and part["holder"] == "challenger"
        }
        for plan_figures in (with_default_assumptions, figures)
    )
    assert all(after[why] == pytest.approx(2 * before[why]) for why in before)


def test_a_preset_that_does_not_fit_is_named_with_a_way_to_change_it() -> None:
    code, output = plan("rzero-qwen3-4b", "--gpus", "1")
    assert code == 0
    assert "It does not fit as it is set:" in output
    assert re.search(r"train_challenger: 8\d\.\d GiB on the fullest GPU, of 76\.0", output)
    assert "two GPUs: the Solver then answers on the other" in output
    assert "It fits" in plan("rzero-qwen3-4b", "--gpus", "1", "--gpu-memory", "141")[1]


def test_a_trainer_on_several_nodes_gets_its_settings_and_requirements() -> None:
    code, output = plan("rzero-qwen3-4b", "--gpus", "64", "--trainer-nodes", "8")
    assert code == 0
    assert "nodes = 4, gpus_per_node = 8" in output
    assert "several nodes needs a folder that all of them see" in " ".join(output.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nosuch",), "preset 'nosuch': no such preset"),
        (("rzero-qwen3-4b", "--gpus", "65"), "--gpus: expected 1 to 64, got 65"),
        (("demo", "--gpus", "2"), "--gpus: expected a preset that EasyR1 trains and vLLM serves"),
        (
            ("rzero-qwen3-4b", "--set", "base_model=models/Other"),
            "base_model: expected a folder with a model's config.json, got models/Other, which has none",
        ),
        (("rzero-qwen3-4b", "--set", "serving.applications=nosuch"), "serving.applications: nosuch: no such file"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused_with_the_reason(arguments: tuple[str, ...], complaint: str) -> None:
    code, output = plan(*arguments)
    assert code == 1
    assert complaint in " ".join(output.split())


def test_the_tables_of_the_docs_are_the_output_of_their_commands() -> None:
    """Each table of docs/sizing.md is below its command."""
    tables = re.findall(r"```\ncoevo (plan [^\n]*--table[^\n]*)\n```\n\n((?:\|[^\n]*\n)+)", PAGE)
    assert len(tables) == 3
    for command, written in tables:
        code, output = plan(*shlex.split(command)[1:])
        assert code == 0, output
        assert output == written


def test_the_docs_table_of_the_other_papers_has_the_command_s_figures() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([\w.-]+) \| (\d) \| (\w*) ?\| (.+) \| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE
    )
    assert {"srt", "ttrl", "evol_rl", "scrl", "poly_epo"} < {row[0] for row in rows}
    for preset, model, gpus, beside, at_once, sampling, updating, hours in rows:
        figures = json.loads(plan(preset, "--json")[1])
        stage, trainer = figures["stages"][0], figures["layout"]["trainer"]
        assert (stage["stage"], figures["fits"]) == ("train_solver", True)
        assert stage["gpus"].keys() == {"trainer", *([beside] if beside else [])}
        assert (model in figures["model"]["source"], f"{trainer['gpus']}") == (True, gpus)
        answers = stage["parts"][0]["answers"] // int(stage["parts"][0]["why"].split()[0])
        answers_of_a_gpu = -(-answers // trainer["gpus"])
        assert at_once == f"{min(answers_of_a_gpu, trainer['sampling_rows'])} of {answers_of_a_gpu}"
        assert [f"{memory['gib']:.1f}" for memory in figures["memory"][:2]] == [sampling, updating]
        assert hours == f"{figures['hours']['typical']:.1f} to {figures['hours']['maximum']:.1f}"


@pytest.mark.parametrize(
    ("overrides", "arguments", "expected"),
    [
        ({}, (), (0.1, 0.1)),  # seven stages of 360/7 seconds
        # Half as many candidates: the two stages that ask and label them take half as long.
        ({}, ("--set", "dataset.candidates=160"), (0.1 * 6 / 7, 0.1 * 6 / 7)),
        ({"base_model": "elsewhere"}, (), None),  # another machine's speed
    ],
    ids=["the same settings", "fewer candidates", "another model"],
)
def test_finished_runs_of_the_preset_are_worth_more_than_arithmetic(
    sqlite: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overrides: dict[str, str],
    arguments: tuple[str, ...],
    expected: tuple[float, float] | None,
) -> None:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    config = load_config(preset_path("demo"), {"iterations": 2, "dataset.candidates": 320, **overrides})
    with sqlite.write() as session:
        queries.runs.create_run(session, name="before", config=config, preset="demo")
        queries.runs.set_run_status(session, "before", "done")
        for t, stage in run_plan(config):
            finish(session, "before", t, stage, {}, 360 / 7 if t else 36)
    code, output = plan("demo", "--set", "iterations=5", "--set", "dataset.candidates=320", *arguments, "--json")
    assert code == 0
    figures = json.loads(output)["measured"]
    if expected is None:
        assert figures is None
        return
    assert figures["runs"] == ["before"]
    assert figures["hours"] == pytest.approx(expected, rel=0.15)
    assert figures["run_hours"] == pytest.approx([0.01 + 5 * hours for hours in figures["hours"]])
