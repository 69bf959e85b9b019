"""Our files are read by EasyR1's own source where it is installed; elsewhere they are checked by a recorded table of
keys.

`COEVO_EASYR1_SOURCE` names a checkout of the pinned commit, and `COEVO_EASYR1_PYTHON` an interpreter with its
requirements: `make easyr1` sets both (docs/gpu.md).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from local_tiny import save_tiny, tiny_model, tiny_tokenizer
from safetensors.torch import load_file
from test_easyr1_reward_shim import METHODS, SIZE, batch, random_responses, render_job, solver_job_with
from transformers import AutoTokenizer
from typer.testing import CliRunner

from core.settings.parsing import load_config
from core.settings.trainers import EasyR1Settings
from orchestrator.cli import app
from orchestrator.installation.home import PRESETS
from storage.files.checkpoints import manifest
from trainers.base import TrainError
from trainers.easyr1.checkpoint import merge
from trainers.easyr1.config import render
from trainers.easyr1.fit import unfit
from trainers.easyr1.reward_shim import compute_score
from trainers.easyr1.start_model import readable_start
from trainers.schedule import learning_rate_at, questions_at

HERE = Path(__file__).parent
MICRO = HERE.parents[1] / "trainers" / "micro" / "model"
KEYS: dict[str, str] = json.loads((HERE / "easyr1_keys.json").read_text())
PYTHON = os.environ.get("COEVO_EASYR1_PYTHON")
SOURCE = os.environ.get("COEVO_EASYR1_SOURCE") if PYTHON else None  # without the packages, its files cannot be imported
NO_EASYR1 = "EasyR1: COEVO_EASYR1_SOURCE and COEVO_EASYR1_PYTHON name no checkout and no Python for it (make easyr1)"
pytestmark = pytest.mark.proof
TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "dict": (dict,),
}

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def easyr1() -> Iterator[Ask]:
    """A function that calls EasyR1's source in another process: see `easyr1_contract.py`.

    Without a checkout of EasyR1, a test runs until it calls this function, and is then skipped.
    """
    if SOURCE is None:
        yield lambda *_: pytest.skip(NO_EASYR1)
        return
    root = str(HERE.parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [str(PYTHON), str(HERE / "easyr1_contract.py"), SOURCE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def ask(name: str, *arguments: Any) -> Any:
            requests.write(json.dumps([name, arguments]) + "\n")
            requests.flush()
            return json.loads(answers.readline())

        yield ask
        requests.close()


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict) and f"{prefix}{name}" not in KEYS:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def of_type(value: Any, kind: str) -> bool:
    if kind.startswith("typing.Optional"):
        return value is None or of_type(value, kind.removeprefix("typing.Optional[").removesuffix("]"))
    if kind.startswith(("tuple[float", "typing.Tuple[str")):
        return all(isinstance(item, float | int if "float" in kind else str) for item in value)
    return isinstance(value, TYPES[kind.split("[", maxsplit=1)[0]]) and (kind == "bool" or not isinstance(value, bool))


@pytest.mark.parametrize("name", METHODS)
def test_every_key_of_our_file_is_one_of_easyr1_s_and_has_its_type(tmp_path: Path, name: str) -> None:
    render_job(solver_job_with(tmp_path, name, METHODS[name]), tmp_path / "easyr1")
    settings = dict(flat(yaml.safe_load((tmp_path / "easyr1" / "config.yaml").read_text())))
    assert settings.keys() <= KEYS.keys()
    assert [key for key, value in settings.items() if not of_type(value, KEYS[key])] == []
    assert len(settings) > 50


def test_the_recorded_table_matches_the_source(easyr1: Ask) -> None:
    assert easyr1("keys") == KEYS


@pytest.mark.parametrize("name", METHODS)
def test_easyr1_accepts_the_file_and_scores_with_the_shim(easyr1: Ask, tmp_path: Path, name: str) -> None:
    """EasyR1 merges the configuration, its reward manager loads the shim, and its estimator returns our advantages."""
    job = solver_job_with(tmp_path, name, METHODS[name])
    path = render_job(job, tmp_path / "easyr1")
    config = str(tmp_path / "easyr1" / "config.yaml")
    tokenizer = AutoTokenizer.from_pretrained(MICRO)
    rng = random.Random(name)
    responses = random_responses(rng, 4)
    rows, positions = batch(job, responses, rng)
    encoded = [tokenizer(row["response"], add_special_tokens=False)["input_ids"] for row in rows]
    requests = [
        {"tokens": tokens, "ground_truth": row["ground_truth"], "uid": str(group)}
        for tokens, row, (group, _) in zip(encoded, rows, positions, strict=True)
    ]
    model = str(readable_start(MICRO, tmp_path / "model"))
    decoded = [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in encoded]
    ours = compute_score(
        [
            {**row, "response": text, "response_length": len(tokens)}
            for row, text, tokens in zip(rows, decoded, encoded, strict=True)
        ],
        path,
    )
    assert len(ours) == 4 * SIZE
    learned = sum(score["learned_from"] for score in ours)
    assert learned
    lengths = [len(tokens) for tokens in encoded]
    average = job.reward.loss_average
    scale = {
        "sequence": len(ours) / learned,
        "token": sum(lengths) / sum(n for n, score in zip(lengths, ours, strict=True) if score["learned_from"]),
        "max_length": sum(lengths) / (learned * job.training.sampling.max_tokens),
    }[average]

    merged = easyr1("merge", config)
    assert merged["algorithm"]["adv_estimator"] == "rloo"
    assert merged["worker"]["actor"]["optim"]["lr"] == job.training.learning_rate
    assert merged["worker"]["actor"]["kl_coef"] == job.reward.kl_coefficient
    assert merged["worker"]["reward"]["reward_function_name"] == "compute_score"
    result = easyr1("reward", config, model, requests)
    assert result["metrics"]["overall"] == [score["overall"] for score in ours]
    assert result["metrics"]["reward"] == [score["reward"] for score in ours]
    # EasyR1 stores rewards in float32.
    assert result["advantages"] == pytest.approx([scale * score["advantage"] for score in ours], rel=2e-5, abs=2e-6)


def presets_that_fit() -> list[tuple[str, str]]:
    """Every preset that `coevo methods easyr1` writes, with each role that it trains."""
    fitting = []
    for path in sorted(PRESETS.glob("*.toml")):
        config = load_config(path)
        if not [*unfit("solver", config.solver.training, config.solver.reward)]:
            fitting += [(path.stem, planned.table) for planned in config.trainings]
    return fitting


@pytest.mark.parametrize(("preset", "role"), presets_that_fit())
def test_easyr1_accepts_the_file_of_every_preset(easyr1: Ask, tmp_path: Path, preset: str, role: str) -> None:
    out = tmp_path / "out"
    config = load_config(PRESETS / f"{preset}.toml")
    # A preset for another trainer may have too few prompts for eight GPUs.
    one_gpu = (
        [] if config.trainer.type == "easyr1" else ["--set", "trainer.type=easyr1", "--set", "trainer.gpus_per_node=1"]
    )
    arguments = ["methods", "easyr1", "--preset", preset, "--role", role, "--out", str(out), *one_gpu]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    settings = dict(flat(yaml.safe_load((out / "config.yaml").read_text())))
    assert [key for key, value in settings.items() if not of_type(value, KEYS[key])] == []
    [part] = [getattr(config, planned.table) for planned in config.trainings if planned.table == role]
    merged = easyr1("merge", str(out / "config.yaml"))
    assert merged["worker"]["actor"]["optim"]["lr"] == part.training.learning_rate
    assert merged["worker"]["actor"]["kl_coef"] == part.reward.kl_coefficient
    assert merged["worker"]["rollout"]["n"] == part.rollouts
    assert merged["trainer"]["max_steps"] == part.training.steps


@pytest.mark.parametrize(
    "schedule",
    [
        {},
        {"warmup_steps": 3},
        {"schedule": "cosine"},
        {"schedule": "cosine", "warmup_steps": 2},
    ],
)
def test_a_step_has_the_same_learning_rate_in_both_trainers(
    easyr1: Ask, tmp_path: Path, schedule: dict[str, Any]
) -> None:
    job = solver_job_with(tmp_path, "rzero", {})
    job = replace(job, training=job.training.model_copy(update={"steps": 6, **schedule}))
    render_job(job, tmp_path / "easyr1")
    expected = [learning_rate_at(job, step) for step in range(1, 7)]
    assert easyr1("learning_rates", str(tmp_path / "easyr1" / "config.yaml")) == pytest.approx(expected)


def test_easyr1_reads_the_prompts_that_we_would_ask(easyr1: Ask, tmp_path: Path) -> None:
    job = solver_job_with(tmp_path, "rzero", {})
    tokenizer = AutoTokenizer.from_pretrained(MICRO)
    settings = EasyR1Settings(gpus_per_node=1, update_micro_batch=1)
    config = render(job, settings, tokenizer, tmp_path / "easyr1")
    model = str(readable_start(MICRO, tmp_path / "model"))
    questions = [question for step in range(1, job.training.steps + 1) for question in questions_at(job, step)]
    chats = [
        tokenizer.apply_chat_template(job.template.messages(q.text), add_generation_prompt=True, return_dict=True)
        for q in questions
    ]
    rows = easyr1("dataset", str(config), model)
    assert [json.loads(row["ground_truth"])["question_id"] for row in rows] == [q.question_id for q in questions]
    assert [row["ids"] for row in rows] == [chat["input_ids"] for chat in chats]


def test_easyr1_reads_the_models_that_transformers_5_saves(easyr1: Ask, tmp_path: Path) -> None:
    """EasyR1 reads the rotary embedding's base and scaling, the tokens, and which of them are special."""
    model, tokenizer = tiny_model(), tiny_tokenizer()
    model.config.rope_parameters = {"rope_type": "linear", "rope_theta": 5e5, "factor": 2.0}
    tokenizer.add_special_tokens({"additional_special_tokens": ["<x>"]})
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    text = "a<x>7<end>"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    start = str(readable_start(tmp_path / "model", tmp_path / "start"))
    result = easyr1("reads", start, text)
    scaling = {"rope_type": "linear", "factor": 2.0}
    assert result == {"theta": 5e5, "scaling": scaling, "ids": ids, "without_special": "a7"}


def test_easyr1_s_merger_makes_a_model_of_two_shards(tmp_path: Path) -> None:
    """The model has all trained weights in bfloat16 and the start's tokenizer, and can be loaded."""
    if SOURCE is None:
        pytest.skip(NO_EASYR1)
    start, trained = save_tiny(tmp_path / "start"), save_tiny(tmp_path / "trained", tiny_model(seed=3))
    actor = tmp_path / "checkpoints" / "global_step_4" / "actor"
    subprocess.run([sys.executable, str(HERE / "easyr1_shards.py"), str(trained), str(actor)], check=True)
    settings = EasyR1Settings(python=str(PYTHON), source=SOURCE)
    merge(tmp_path / "checkpoints", 4, start, settings, tmp_path / "final")
    expected, merged = (load_file(folder / "model.safetensors") for folder in (trained, tmp_path / "final"))
    assert merged.keys() - expected.keys() <= {"lm_head.weight"}  # a copy of the embeddings
    assert all(torch.equal(merged[name].float(), expected[name].bfloat16().float()) for name in expected)
    assert "tokenizer.json" in manifest(tmp_path / "final")
    (actor / "model_world_size_2_rank_1.pt").unlink()
    with pytest.raises(TrainError, match="rank 1"):
        merge(tmp_path / "checkpoints", 4, start, settings, tmp_path / "again")
    assert not (tmp_path / "again").exists()
