"""`coevo check --run`: little work with every preset's own trainer, and a canary that tells other weights."""

from __future__ import annotations

import json
import math
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from core.processes import identity as processes
from core.settings.config import CoEvolution
from core.settings.parsing import load_config
from core.settings.templates import RZERO_SOLVER
from core.settings.training import Sampling
from orchestrator.check.refusals import untrainable
from orchestrator.check.smoke import canary
from orchestrator.check.smoke.settings import questions_of, smaller, write_questions
from orchestrator.cli import app
from orchestrator.installation.home import MICRO_MODEL, PRESETS, Home, Services
from orchestrator.plan import plan
from orchestrator.question_sets.benchmarks import load
from services.inference.engines.base import Prompt
from services.inference.engines.embedded import TransformersEngine
from services.inference.openai_api import chat_response
from tests.live import COEVO
from trainers.base import LARGEST_SAMPLER_GAP

QUESTIONS = ["What is 7 + 5?", "What is 9 * 8 - 4?"]


@pytest.mark.parametrize("preset", sorted(path.stem for path in PRESETS.glob("*.toml")))
def test_every_preset_gets_one_small_step_of_each_of_its_own_trainings(preset: str, tmp_path: Path) -> None:
    path, benchmark = PRESETS / f"{preset}.toml", str(tmp_path / "benchmark.jsonl")
    write_questions(tmp_path, load("micro").items[:4])
    own, small = load_config(path), load_config(path, smaller(path, {}, tmp_path))
    assert [*untrainable(small)] == []
    assert (small.base_model, small.trainer, small.serving) == (own.base_model, own.trainer, own.serving)
    assert (small.iterations, small.evaluation.benchmark) == (1, benchmark)
    for ours, planned in zip(own.trainings, small.trainings, strict=True):
        assert planned.training.steps == 1
        assert planned.training.prompts_per_step <= min(ours.training.prompts_per_step, 32)
        assert planned.rollouts == ours.rollouts
        assert planned.training.sampling == ours.training.sampling
    assert len(load(benchmark).items) == 4
    if isinstance(small, CoEvolution):
        assert small.dataset.candidates <= 16


def test_the_overrides_of_the_command_hold_and_a_step_s_prompts_are_what_easyr1_can_divide(tmp_path: Path) -> None:
    path = PRESETS / "rzero-qwen3-4b.toml"
    overrides = {"base_model": "models/other", "trainer.gpus_per_node": 8}
    small = load_config(path, smaller(path, overrides, tmp_path))
    assert small.base_model == "models/other"
    # 8 GPUs each get a prompt; the Solver's 5 rollouts of 8 prompts are 5 for each, and update_micro_batch is 4.
    assert {planned.training.prompts_per_step for planned in small.trainings} == {32}


def test_questions_of_each_part_of_the_preset_s_benchmark_are_asked(tmp_path: Path) -> None:
    items = questions_of(load_config(PRESETS / "demo.toml"))
    write_questions(tmp_path, items)
    assert [item.id for item in items] == [load("micro").items[number].id for number in (0, 255, 510, 765)]
    for name in ("benchmark.jsonl", "validation.jsonl"):
        written = load(str(tmp_path / name)).items
        assert [(item.problem, item.answer) for item in written] == [(item.problem, item.answer) for item in items]


@pytest.fixture(scope="module")
def replies() -> list[canary.Reply]:
    """Replies of the tiny model's engine, read from the responses that its server makes of them."""
    engine, sampling = TransformersEngine(MICRO_MODEL), Sampling(top_p=1.0, max_tokens=32)
    chats = [RZERO_SOLVER.messages(question) for question in QUESTIONS]
    prompts = [Prompt(tuple(chat), 0, 4, sampling) for chat in chats]
    responses = [chat_response("solver", "a/solver/1", group, logprobs=True) for group in engine.generate(prompts)]
    return [
        reply
        for chat, response in zip(chats, responses, strict=True)
        for reply in canary.read(chat, json.loads(response.model_dump_json()))
    ]


def test_the_served_weights_give_the_log_probabilities_of_the_trainer(replies: list[canary.Reply]) -> None:
    assert len(replies) == 4 * len(QUESTIONS)
    gap = canary.compare(MICRO_MODEL, replies)
    assert gap.n == sum(len(reply.tokens) for reply in replies)
    assert 0 < gap.mean <= gap.largest < 1e-4
    assert gap.is_small
    wrong = [replace(replies[0], logprobs=tuple(value - 0.5 for value in replies[0].logprobs)), *replies[1:]]
    shifted = canary.compare(MICRO_MODEL, wrong)
    assert shifted.mean == pytest.approx(0.5 * len(replies[0].tokens) / gap.n, rel=1e-3)
    assert shifted.largest == pytest.approx(0.5, rel=1e-3)


def test_other_weights_than_the_served_ones_are_told(replies: list[canary.Reply], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(MICRO_MODEL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * parameter.std() * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(MICRO_MODEL).save_pretrained(tmp_path)
    gap = canary.compare(tmp_path, replies)
    assert gap.mean > LARGEST_SAMPLER_GAP
    assert not gap.is_small


def test_vllm_s_replies_are_read_too_and_one_without_log_probabilities_is_refused() -> None:
    content = [{"token": "token_id:17", "logprob": -0.5, "bytes": None, "top_logprobs": []}]
    answer = {"choices": [{"logprobs": {"content": content}}]}
    chat = RZERO_SOLVER.messages("q")
    assert canary.read(chat, answer) == [canary.Reply(chat, (17,), (-0.5,))]
    with pytest.raises(canary.CanaryError, match="log-probability and the id of every token"):
        canary.read(chat, {"choices": [{"logprobs": None}]})
    with pytest.raises(canary.CanaryError, match="no tokens"):
        canary.compare(MICRO_MODEL, [])


@pytest.fixture
def home(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home that does not exist yet."""
    monkeypatch.setenv("COEVO_HOME", str(home.path / "home"))
    return Home(home.path / "home")


def test_a_run_that_cannot_begin_is_refused_before_anything_is_made(home: Home) -> None:
    result = CliRunner().invoke(app, ["check", "demo", "--run", "--set", "base_model=none"])
    assert result.exit_code == 1
    assert "base_model: expected a folder" in result.stderr
    assert not home.path.exists()
    home.path.mkdir()
    me = os.getpid()
    home.save_services(Services("a", "b", "c", "d", "secret", {me: ("ray", processes.started(me))}))
    result = CliRunner().invoke(app, ["check", "demo", "--run"])
    assert result.exit_code == 1
    assert "`coevo down` stops them" in result.stderr


@pytest.mark.live
def test_the_demo_passes_and_leaves_nothing_behind(home: Home) -> None:
    result = subprocess.run([COEVO, "check", "demo", "--run", "--json"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    smoke = json.loads(result.stdout)
    assert (smoke["passed"], smoke["error"]) == (True, None)
    config = load_config(PRESETS / "demo.toml", {"iterations": 1})
    assert [(stage["iteration"], stage["stage"]) for stage in smoke["stages"]] == list(plan(config))
    sampled = [stage for stage in smoke["stages"] if stage["tokens"]]
    assert {stage["stage"] for stage in sampled} >= {"train_challenger", "label_questions", "train_solver", "evaluate"}
    assert all(math.isclose(sample["tokens_per_second"], sample["tokens"] / sample["seconds"]) for sample in sampled)
    # In one step of two prompts, all rollouts may earn the same reward. Then the weights stay nearly what they were.
    assert smoke["gap"]["n"] == smoke["gap_before"]["n"] > 0
    assert smoke["gap"]["mean"] < 1e-5
    assert [*home.path.iterdir()] == [home.path / "smoke"]
    assert not any((home.path / "smoke").iterdir())
    assert not [
        process for process in psutil.process_iter(["cmdline"]) if str(home.path) in str(process.info["cmdline"])
    ]
