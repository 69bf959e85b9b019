"""`coevo methods easyr1`: writes EasyR1's files without EasyR1 and without a GPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from core.methods.srt import Rloo, Srt
from core.settings.config import CoEvolution
from core.settings.parsing import load_config
from orchestrator.check.presets import preset_path
from orchestrator.installation.home import MICRO_MODEL, PRESETS
from orchestrator.question_sets.prompts import read_prompts
from services.inference.encoding import control_tokens
from tests.commands import coevo, refusal, sets
from trainers.easyr1.fit import SIGNALS

ONE_GPU = {"trainer.type": "easyr1", "trainer.gpus_per_node": 1}
SETTINGS = {"solver.reward.type": "srt", "solver.reward.loss_average": "token", **ONE_GPU}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def render(out: Path, preset: str, *options: str, settings: Mapping[str, object] = {}) -> str:
    given = sets(*(f"{name}={value}" for name, value in settings.items()))
    return coevo("methods", "easyr1", "--preset", preset, "--out", out, *options, *given).output


def test_the_files_of_a_preset_s_first_training(out: Path) -> None:
    output = render(out, "micro", settings=SETTINGS)
    assert "10 steps of 32 x 8 rollouts" in output
    assert "Replaced" not in output  # model and prompts are here
    assert "vLLM samples the rollouts" in output
    names = {"config.yaml", "train.parquet", "validation.parquet", "chat_template.jinja", "job.json", "reward_shim.py"}
    assert {path.name for path in out.iterdir()} == {*names, "start"}
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert (config["worker"]["rollout"]["n"], config["trainer"]["max_steps"]) == (8, 10)
    assert (config["algorithm"]["use_kl_loss"], config["algorithm"]["kl_coef"]) == (False, 0.001)  # SRT B.1
    # The copy that EasyR1's transformers 4 can read.
    assert config["worker"]["actor"]["model"]["model_path"] == str(out / "start")
    rows = pq.read_table(out / "train.parquet").to_pylist()
    preset = load_config(preset_path("micro"), SETTINGS)
    assert preset.prompts is not None
    prompts = {prompt.text for prompt in read_prompts(preset, preset.prompts)}
    assert len(rows) == 320
    assert {json.loads(row["ground_truth"])["question"] for row in rows} <= prompts
    assert all(json.loads(row["ground_truth"])["question"] in row["prompt"] for row in rows)


def test_a_challenger_s_job_has_the_settings_of_the_data_set(out: Path) -> None:
    """They decide which questions are malformed, and what the Solver's votes are worth, as in the run's own job."""
    settings = {"dataset.max_question_chars": 123, "dataset.denominator": "parsed", **ONE_GPU}
    render(out, "demo", "--role", "challenger", settings=settings)
    job = json.loads((out / "job.json").read_text())
    assert job["role"] == "challenger"
    config = load_config(preset_path("demo"), settings)
    assert isinstance(config, CoEvolution)
    assert job["solver"] == {
        "url": "http://127.0.0.1:8000/solver/v1",
        "checkpoint": "preset/base/0",
        **config.dataset.model_dump(mode="json", include={"sampling", "denominator", "max_question_chars"}),
        "template": config.solver.template.model_dump(mode="json"),
        "control_tokens": list(control_tokens(MICRO_MODEL)),
    }
    assert {"<|im_start|>", "<|im_end|>"} <= set(job["solver"]["control_tokens"])
    assert job["stored_prompts"] == 8


def test_a_loop_s_solver_is_rendered_with_replacements_that_are_named(out: Path) -> None:
    """The machine has neither the model nor a Challenger's questions."""
    output = render(out, "rzero-qwen3-4b", "--role", "solver")
    assert "15 steps of 128 x 5 rollouts" in output
    assert "1920 questions and true answers as labels of the tiny world replace the preset's own, since" in output
    assert "the tiny model's tokenizer and chat template replace those of models/Qwen3-4B-Base" in output
    config = yaml.safe_load((out / "config.yaml").read_text())
    actor, rollout = config["worker"]["actor"], config["worker"]["rollout"]
    assert actor["model"]["model_path"].endswith("models/Qwen3-4B-Base")
    assert (actor["global_batch_size"], actor["optim"]["lr"], actor["optim"]["weight_decay"]) == (128, 1e-6, 1e-2)
    assert (config["algorithm"]["kl_coef"], config["algorithm"]["use_kl_loss"]) == (1e-2, True)
    assert (rollout["n"], rollout["temperature"], rollout["top_p"]) == (5, 1.0, 0.99)
    assert (config["trainer"]["max_steps"], config["trainer"]["n_gpus_per_node"]) == (15, 4)
    truths = [json.loads(row["ground_truth"]) for row in pq.read_table(out / "train.parquet").to_pylist()]
    assert len(truths) == 15 * 128
    assert len({truth["question"] for truth in truths}) == 15 * 128
    assert all(int(truth["label"]) == int(truth["truth"]) for truth in truths)


def test_a_loop_s_challenger_is_rendered_with_a_replaced_tokenizer_only(out: Path) -> None:
    output = render(out, "rzero-qwen3-4b", "--role", "challenger")
    assert "5 steps of 128 x 4 rollouts" in output
    assert (output.count("tiny world"), output.count("the tiny model's tokenizer")) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "replaced", "why"),
    [
        (("micro", "--set", "solver.reward.type=rzero", "--set", "prompts.labels=offline"), "320", "the base model"),
        (("grpo",), "", "prompts/polaris.parquet is not on this machine"),
        (("ttrl",), "192", "aime24 is not on this machine"),
    ],
)
def test_a_prompt_set_that_is_not_here_is_replaced(out: Path, arguments: list[str], replaced: str, why: str) -> None:
    output = render(out, *arguments)
    assert f"{replaced} questions " in output
    assert f"replace the preset's own, since {why}" in output


def test_a_local_model_s_own_tokenizer_is_used_and_must_have_a_chat_template(out: Path, tmp_path: Path) -> None:
    model = shutil.copytree(MICRO_MODEL, tmp_path / "model")
    settings = {"base_model": model}
    assert "the tiny model's tokenizer" not in render(out, "demo", settings=settings)
    shutil.rmtree(out)
    (model / "chat_template.jinja").unlink()
    refused = refusal("methods", "easyr1", "--preset", "demo", "--out", out, "--set", f"base_model={model}")
    assert "its tokenizer has no chat template; put a chat_template.jinja there" in refused
    assert not out.exists()


METHOD_OF = {path.stem: load_config(path).solver.reward for path in sorted(PRESETS.glob("*.toml"))}
# The presets that EasyR1 cannot train: SRT's KL with its average, Dr. GRPO and sets in mini-batches, an entropy bonus,
# and methods that need signals that EasyR1 does not give.
UNFIT = {"dr_grpo", "evol_rl", "pass_at_n", "poly_epo"}
UNFIT |= {preset for preset, method in METHOD_OF.items() if isinstance(method, Srt | Rloo) or method.needs - SIGNALS}


@pytest.mark.parametrize("preset", METHOD_OF)
def test_every_preset_is_rendered_or_refused_with_its_method_s_name(out: Path, preset: str) -> None:
    if preset in UNFIT:
        refused = refusal("methods", "easyr1", "--preset", preset, "--out", out)
        assert f"solver.reward {METHOD_OF[preset].type}: EasyR1 cannot train this as asked" in refused
        assert not out.exists()
    else:
        render(out, preset)
        assert (out / "config.yaml").is_file()
