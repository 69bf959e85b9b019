"""EasyR1's own source on our files, where it is installed; elsewhere the recorded table of what we rely on.

`COEVO_EASYR1_SOURCE` names a checkout of the pinned commit, and `COEVO_EASYR1_PYTHON` an interpreter with what it
needs: `make easyr1` has both (docs/easyr1.md).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from local_tiny import save_tiny, tiny_model, tiny_tokenizer
from safetensors.torch import load_file
from test_easyr1_reward_shim import METHODS, SIZE, batch, rendered, solvers_job, texts
from transformers import AutoTokenizer
from typer.testing import CliRunner

from core.questions.prompts import solver_messages
from core.settings.parsing import load_config
from core.settings.trainers import EasyR1Settings
from orchestrator.cli import app
from orchestrator.installation.home import PRESETS
from storage.checkpoints import manifest
from trainers.base import TrainError
from trainers.easyr1.checkpoint import merge
from trainers.easyr1.config import render
from trainers.easyr1.fit import refuse_unfit
from trainers.easyr1.reward_shim import compute_score
from trainers.easyr1.start_model import readable_start
from trainers.schedule import questions_at

HERE = Path(__file__).parent
MICRO = HERE.parents[1] / "trainers" / "micro" / "model"
KEYS: dict[str, str] = json.loads((HERE / "easyr1_keys.json").read_text())
SOURCE = os.environ.get("COEVO_EASYR1_SOURCE")
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
    """Asks EasyR1's source: see `easyr1_contract.py`."""
    if SOURCE is None:
        pytest.skip("EasyR1: COEVO_EASYR1_SOURCE names no checkout of it")
    root = str(HERE.parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    python = os.environ.get("COEVO_EASYR1_PYTHON", sys.executable)
    command = [python, str(HERE / "easyr1_contract.py"), SOURCE]
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
        return all(isinstance(each, float | int if "float" in kind else str) for each in value)
    return isinstance(value, TYPES[kind.split("[", maxsplit=1)[0]]) and (kind == "bool" or not isinstance(value, bool))


@pytest.mark.parametrize("name", METHODS)
def test_every_key_is_one_of_easyr1s_and_has_its_type(tmp_path: Path, name: str) -> None:
    rendered(solvers_job(tmp_path, name, METHODS[name]), tmp_path / "easyr1")
    found = dict(flat(yaml.safe_load((tmp_path / "easyr1" / "config.yaml").read_text())))
    assert found.keys() <= KEYS.keys()
    assert [key for key, value in found.items() if not of_type(value, KEYS[key])] == []
    assert len(found) > 50


def test_the_table_is_the_sources(easyr1: Ask) -> None:
    assert easyr1("keys") == KEYS


@pytest.mark.parametrize("name", METHODS)
def test_easyr1_takes_the_file_and_scores_through_the_shim(easyr1: Ask, tmp_path: Path, name: str) -> None:
    """Its configuration merges it, its reward manager loads the shim, its estimator returns our advantages."""
    job = solvers_job(tmp_path, name, METHODS[name])
    path = rendered(job, tmp_path / "easyr1")
    config = str(tmp_path / "easyr1" / "config.yaml")
    merged = easyr1("merge", config)
    assert merged["algorithm"]["adv_estimator"] == "rloo"
    assert merged["worker"]["actor"]["optim"]["lr"] == job.training.learning_rate
    assert merged["worker"]["actor"]["kl_coef"] == job.reward.kl_coefficient
    assert merged["worker"]["reward"]["reward_function_name"] == "compute_score"

    tokenizer = AutoTokenizer.from_pretrained(MICRO)
    rng = random.Random(name)
    said = texts(rng, 4)
    rows, where = batch(job, said, rng)
    encoded = [tokenizer(row["response"], add_special_tokens=False)["input_ids"] for row in rows]
    asked = [
        {"tokens": tokens, "ground_truth": row["ground_truth"], "uid": str(group)}
        for tokens, row, (group, _) in zip(encoded, rows, where, strict=True)
    ]
    found = easyr1("reward", config, str(readable_start(MICRO, tmp_path / "model")), asked)
    decoded = [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in encoded]
    ours = compute_score(
        [
            {**row, "response": text, "response_length": len(tokens)}
            for row, text, tokens in zip(rows, decoded, encoded, strict=True)
        ],
        path,
    )
    assert found["metrics"]["overall"] == [score["overall"] for score in ours]
    assert found["metrics"]["reward"] == [score["reward"] for score in ours]
    learned = sum(score["learned_from"] for score in ours)
    assert learned
    lengths = [len(tokens) for tokens in encoded]
    average = job.reward.loss_average
    scale = {
        "sequence": len(ours) / learned,
        "token": sum(lengths) / sum(n for n, score in zip(lengths, ours, strict=True) if score["learned_from"]),
        "max_length": sum(lengths) / (learned * job.training.sampling.max_tokens),
    }[average]
    # float32, in which EasyR1 holds rewards
    assert found["advantages"] == pytest.approx([scale * score["advantage"] for score in ours], rel=2e-5, abs=2e-6)
    assert len(ours) == 4 * SIZE


def presets_that_fit() -> list[tuple[str, str]]:
    """Every preset that `coevo easyr1 render` writes, with each role that it trains."""
    found = []
    for path in sorted(PRESETS.glob("*.toml")):
        config = load_config(path)
        try:
            refuse_unfit("solver", config.solver.training, config.solver.reward)
        except TrainError:
            continue
        found += [(path.stem, planned.table) for planned in config.trainings]
    return found


@pytest.mark.parametrize(("preset", "role"), presets_that_fit())
def test_easyr1_merges_every_presets_file(easyr1: Ask, tmp_path: Path, preset: str, role: str) -> None:
    out = tmp_path / "out"
    config = load_config(PRESETS / f"{preset}.toml")
    # One that is not for EasyR1 need not have a prompt for each of eight GPUs.
    one = (
        [] if config.trainer.type == "easyr1" else ["--set", "trainer.type=easyr1", "--set", "trainer.gpus_per_node=1"]
    )
    arguments = ["easyr1", "render", "--preset", preset, "--role", role, "--out", str(out), *one]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    part = config.solver if role == "solver" else config.challenger
    merged = easyr1("merge", str(out / "config.yaml"))
    assert merged["worker"]["actor"]["optim"]["lr"] == part.training.learning_rate
    assert merged["worker"]["actor"]["kl_coef"] == part.reward.kl_coefficient
    assert merged["worker"]["rollout"]["n"] == part.rollouts
    assert merged["trainer"]["max_steps"] == part.training.steps
    found = dict(flat(yaml.safe_load((out / "config.yaml").read_text())))
    assert [key for key, value in found.items() if not of_type(value, KEYS[key])] == []


def test_easyr1_reads_the_prompts_that_we_would_ask(easyr1: Ask, tmp_path: Path) -> None:
    job = solvers_job(tmp_path, "rzero", {})
    tokenizer = AutoTokenizer.from_pretrained(MICRO)
    settings = EasyR1Settings(gpus_per_node=1, update_micro_batch=1, experience_micro_batch=1)
    config = render(job, settings, tokenizer, tmp_path / "easyr1")
    rows = easyr1("dataset", str(config), str(readable_start(MICRO, tmp_path / "model")))
    asked = [question for step in range(1, job.training.steps + 1) for question in questions_at(job, step)]
    assert [json.loads(row["ground_truth"])["question_id"] for row in rows] == [q.question_id for q in asked]
    for row, question in zip(rows, asked, strict=True):
        chat = tokenizer.apply_chat_template(
            solver_messages(question.text), add_generation_prompt=True, return_dict=True
        )
        assert row["ids"] == chat["input_ids"]


def test_easyr1_reads_the_models_that_transformers_5_saves(easyr1: Ask, tmp_path: Path) -> None:
    """The rotary embedding's base and scaling, the tokens, and which of them are special."""
    model, tokenizer = tiny_model(), tiny_tokenizer()
    model.config.rope_parameters = {"rope_type": "linear", "rope_theta": 5e5, "factor": 2.0}
    tokenizer.add_special_tokens({"additional_special_tokens": ["<x>"]})
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    text = "a<x>7<end>"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    found = easyr1("reads", str(readable_start(tmp_path / "model", tmp_path / "start")), text)
    scaling = {"rope_type": "linear", "factor": 2.0}
    assert found == {"theta": 5e5, "scaling": scaling, "ids": ids, "without_special": "a7"}


def test_easyr1s_merger_makes_a_model_of_two_shards(tmp_path: Path) -> None:
    """bfloat16 of what was trained, whole and loadable, with the start's tokenizer."""
    if SOURCE is None:
        pytest.skip("EasyR1: COEVO_EASYR1_SOURCE names no checkout of it")
    start, trained = save_tiny(tmp_path / "start"), save_tiny(tmp_path / "trained", tiny_model(seed=3))
    actor = tmp_path / "checkpoints" / "global_step_4" / "actor"
    subprocess.run([sys.executable, str(HERE / "easyr1_shards.py"), str(trained), str(actor)], check=True)
    settings = EasyR1Settings(python=os.environ.get("COEVO_EASYR1_PYTHON", sys.executable), source=SOURCE)
    merge(tmp_path / "checkpoints", 4, start, settings, tmp_path / "final")
    expected, found = (load_file(folder / "model.safetensors") for folder in (trained, tmp_path / "final"))
    assert found.keys() - expected.keys() <= {"lm_head.weight"}  # the embeddings once more
    assert all(torch.equal(found[name].float(), expected[name].bfloat16().float()) for name in expected)
    assert "tokenizer.json" in manifest(tmp_path / "final")
    (actor / "model_world_size_2_rank_1.pt").unlink()
    with pytest.raises(TrainError, match="expected a shard of each of 2 GPUs, rank 1's is missing"):
        merge(tmp_path / "checkpoints", 4, start, settings, tmp_path / "again")
    assert not (tmp_path / "again").exists()
