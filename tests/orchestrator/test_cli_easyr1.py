"""`coevo easyr1 render`: what EasyR1 would be started with, without it and without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from core.config import load_config
from orchestrator.cli import app
from orchestrator.prompt_sets import read_prompts
from orchestrator.runs import preset_path

SETTINGS = {"solver.reward.type": "srt", "trainer.type": "easyr1", "trainer.gpus_per_node": 1}


def render(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["easyr1", "render", *arguments])
    return done.exit_code, done.output


def test_a_presets_first_training(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sets = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    code, said = render("--preset", "micro", "--out", str(out), *sets)
    assert code == 0, said
    assert "10 steps of 32 x 8 rollouts" in said
    assert "rollouts are vLLM's" in said
    names = {"config.yaml", "train.parquet", "validation.parquet", "chat_template.jinja", "job.json", "reward_shim.py"}
    assert {path.name for path in out.iterdir()} == names
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert (config["worker"]["rollout"]["n"], config["trainer"]["max_steps"]) == (8, 10)
    assert (config["algorithm"]["use_kl_loss"], config["algorithm"]["kl_coef"]) == (False, 0.001)  # SRT B.1
    rows = pq.read_table(out / "train.parquet").to_pylist()
    preset = load_config(preset_path("micro"), SETTINGS)
    assert preset.prompts is not None
    asked = {prompt.text for prompt in read_prompts(preset, preset.prompts)}
    assert len(rows) == 320
    assert {json.loads(row["ground_truth"])["question"] for row in rows} <= asked
    assert all(json.loads(row["ground_truth"])["question"] in row["prompt"] for row in rows)


def test_the_challengers(tmp_path: Path) -> None:
    code, said = render("--preset", "demo", "--role", "challenger", "--out", str(tmp_path / "out"))
    assert code == 0, said
    job = json.loads((tmp_path / "out" / "job.json").read_text())
    assert (job["role"], job["solver"]["url"]) == ("challenger", "http://127.0.0.1:8000/solver/v1")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--preset", "demo"), "this preset's Solver learns from what its Challenger will ask"),
        (
            ("--preset", "micro", "--set", "solver.reward.type=rzero", "--set", "prompts.labels=offline"),
            "prompts.labels: the base model's votes are not known yet; expected 'given'",
        ),
        (("--preset", "micro", "--role", "judge"), "role: expected solver or challenger, got 'judge'"),
        (
            ("--preset", "micro", "--set", "solver.reward.type=scrl"),
            "solver.reward scrl: EasyR1 cannot train this as asked",
        ),
        (("--preset", "rzero"), "base_model: models/Qwen3-4B-Base is not a folder with a Hugging Face model"),
    ],
)
def test_what_cannot_be_rendered_is_said_and_nothing_written(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    code, said = render(*arguments, "--out", str(tmp_path / "out"))
    assert code == 1
    assert complaint in " ".join(said.split())
    assert not (tmp_path / "out").exists()
