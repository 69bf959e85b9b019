"""`coevo plan`: what it prints, and that docs/sizing.md says the same."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from typer.testing import CliRunner

from orchestrator.cli import app
from orchestrator.installation.home import PRESETS, ROOT

PAGE = (ROOT / "docs" / "sizing.md").read_text()


def plan(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["plan", *arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize("preset", sorted(path.stem for path in PRESETS.glob("*.toml")))
def test_a_page_is_at_most_100_columns_wide(preset: str) -> None:
    code, said = plan(preset)
    assert code == 0, said
    assert [line for line in said.splitlines() if len(line) > 100] == []
    for section in ("Model", "Who ", "Memory", "Tokens", "Hours", "Assumed"):
        assert re.search(f"^{section}", said, re.MULTILINE)


def test_the_sums_are_shown() -> None:
    code, said = plan("rzero-qwen3-4b")
    assert code == 0
    assert "It fits, by this arithmetic." in said
    assert re.search(r"151,936 tokens x 2,560 .* 388,956,160", said)
    assert re.search(r"logits and their gradient +2 x 2 x 20,480 tokens x 151,936 +11\.6", said)
    assert re.search(r"train_challenger +0-3\* +4-7\* +- +72\.0", said)
    assert "assumed speeds, not measured ones" in said


def test_json_has_it_all() -> None:
    code, said = plan("rzero-qwen3-4b", "--gpus", "16", "--json", "--token-seconds", "0", "--mfu-sample", "0.05")
    assert code == 0
    found = json.loads(said)
    assert (found["gpus"], found["fits"], found["proposed"], found["problems"]) == (16, True, True, [])
    assert found["model"]["parameters"] == 4_022_468_096
    assert found["assumptions"]["mfu_sample"] == 0.05
    assert found["layout"]["trainer"]["gpus"] + found["layout"]["apps"][1]["replicas"] == 16
    assert found["hours"]["typical"] == pytest.approx(sum(stage["hours"]["typical"] for stage in found["stages"]))
    assert len(found["memory"]) == 4
    half = json.loads(plan("rzero-qwen3-4b", "--gpus", "16", "--json", "--token-seconds", "0")[1])
    before, after = (
        {
            part["why"]: part["hours"]["typical"]
            for stage in each["stages"]
            for part in stage["parts"]
            if not part["training"] and part["holder"] == "challenger"
        }
        for each in (half, found)
    )
    assert all(after[why] == pytest.approx(2 * before[why]) for why in before)


def test_what_does_not_fit_is_said_with_what_to_change() -> None:
    code, said = plan("rzero-qwen3-4b", "--gpus", "1")
    assert code == 0
    assert "It does not fit:" in said
    assert re.search(r"train_challenger: 8\d\.\d GiB on the fullest GPU, of 76\.0", said)
    assert "two GPUs: the Solver then answers on the other" in said
    assert "It fits" in plan("rzero-qwen3-4b", "--gpus", "1", "--gpu-memory", "141")[1]


def test_what_more_nodes_for_the_trainer_need_is_said() -> None:
    code, said = plan("rzero-qwen3-4b", "--gpus", "64", "--trainer-nodes", "8")
    assert code == 0
    assert "nodes = 4, gpus_per_node = 8" in said
    assert "several nodes needs a folder that all of them see" in " ".join(said.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nosuch",), "preset 'nosuch': no such preset"),
        (("rzero-qwen3-4b", "--gpus", "65"), "--gpus: expected 1 to 64, got 65"),
        (("demo", "--gpus", "2"), "--gpus: expected a preset that EasyR1 trains and vLLM serves"),
        (("rzero-qwen3-4b", "--set", "base_model=models/Other"), "base_model: models/Other has no config.json"),
        (("rzero-qwen3-4b", "--set", "serving.applications=nosuch"), "serving.applications: nosuch: no such file"),
    ],
)
def test_what_cannot_be_planned_is_said(arguments: tuple[str, ...], complaint: str) -> None:
    code, said = plan(*arguments)
    assert code == 1
    assert complaint in " ".join(said.split())


def test_the_docs_tables_are_what_the_commands_print() -> None:
    """Each table of docs/sizing.md stands below its command."""
    found = re.findall(r"```\ncoevo (plan [^\n]*--table[^\n]*)\n```\n\n((?:\|[^\n]*\n)+)", PAGE)
    assert len(found) == 3
    for command, written in found:
        code, said = plan(*shlex.split(command)[1:])
        assert code == 0, said
        assert said == written


def test_the_docs_table_of_the_other_papers_is_what_the_command_says() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([\w.-]+) \| (\d) \| (\w*) ?\| (.+) \| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE
    )
    assert {"srt", "ttrl", "evol_rl", "scrl", "poly_epo"} < {row[0] for row in rows}
    for preset, model, gpus, beside, at_once, sampling, updating, hours in rows:
        found = json.loads(plan(preset, "--json")[1])
        stage, trainer = found["stages"][0], found["layout"]["trainer"]
        assert (stage["stage"], found["fits"]) == ("train_solver", True)
        assert stage["gpus"].keys() == {"trainer", *([beside] if beside else [])}
        assert (model in found["model"]["source"], f"{trainer['gpus']}") == (True, gpus)
        answers = stage["parts"][0]["answers"] // int(stage["parts"][0]["why"].split()[0])
        each = -(-answers // trainer["gpus"])
        assert at_once == f"{min(each, trainer['sampling_rows'])} of {each}"
        assert [f"{memory['gib']:.1f}" for memory in found["memory"][:2]] == [sampling, updating]
        assert hours == f"{found['hours']['typical']:.1f} to {found['hours']['maximum']:.1f}"
