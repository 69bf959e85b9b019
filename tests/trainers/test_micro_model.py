"""The shipped model and benchmark are what the committed scripts make, and what the demo needs them to be."""

from __future__ import annotations

import json
import random

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from core.grading.answers import extract_boxed
from core.questions.prompts import challenger_messages, solver_messages
from core.questions.voting import vote
from core.settings.training import Sampling
from orchestrator.installation.home import MICRO_MODEL
from services.inference.engines.base import Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.micro import pretrain as pretraining
from trainers.micro import world
from trainers.micro.build import TOKENIZER_SEED, benchmark_lines
from trainers.micro.pretrain import PretrainConfig, pretrain
from trainers.micro.tokenizer import VOCABULARY, build_tokenizer, render

BENCHMARK = MICRO_MODEL.parent / "benchmark.jsonl"


def test_the_benchmark_is_what_its_seed_makes() -> None:
    assert BENCHMARK.read_text().splitlines() == benchmark_lines()
    assert len(benchmark_lines()) >= 1000


def test_the_tokenizer_is_what_its_seed_makes() -> None:
    shipped = json.loads((MICRO_MODEL / "tokenizer.json").read_text())
    made = json.loads(build_tokenizer(TOKENIZER_SEED).backend_tokenizer.to_str())
    assert shipped["model"] == made["model"]
    assert shipped["added_tokens"] == made["added_tokens"]


def test_digits_are_tokens_and_the_fixed_parts_of_the_prompts_are_one_each() -> None:
    tokenizer = AutoTokenizer.from_pretrained(MICRO_MODEL)
    assert len(tokenizer("1234567890")["input_ids"]) == 10
    assert len(tokenizer(render(challenger_messages()))["input_ids"]) == 1
    question = "What is 1 + 2?"
    prompt = render(solver_messages(question))
    assert len(tokenizer(prompt)["input_ids"]) == 2 + len(tokenizer(question)["input_ids"])
    templated = tokenizer.apply_chat_template(solver_messages(question), tokenize=False, add_generation_prompt=True)
    assert templated == prompt
    assert tokenizer.decode(tokenizer(prompt)["input_ids"]) == prompt


def test_the_model_is_stock_and_small() -> None:
    config = AutoConfig.from_pretrained(MICRO_MODEL)
    model = AutoModelForCausalLM.from_pretrained(MICRO_MODEL)
    assert (config.model_type, config.vocab_size, model.dtype) == ("qwen3", VOCABULARY, torch.float32)
    assert sum(p.numel() for p in model.parameters()) <= 3_000_000
    assert (MICRO_MODEL / "model.safetensors").stat().st_size <= 8 << 20


def test_the_majority_beats_a_sample_and_the_greedy_answer() -> None:
    """Without that, votes teach nothing. Two operations, where it shows most; on questions of no benchmark."""
    rng = random.Random(3)
    problems = [world.make_problem(rng, 2) for _ in range(60)]
    prompts = [tuple(solver_messages(problem.text)) for problem in problems]
    engine = TransformersEngine(MICRO_MODEL)
    sampled = engine.generate([Prompt(p, i, 8, Sampling(top_p=1.0, max_tokens=110)) for i, p in enumerate(prompts)])
    greedy = engine.generate([Prompt(p, 0, 1, Sampling(temperature=0, max_tokens=110)) for p in prompts])
    answers = [[extract_boxed(completion.text) for completion in group] for group in sampled]
    truths = [str(problem.answer) for problem in problems]
    single = sum(group.count(truth) / 8 for group, truth in zip(answers, truths, strict=True)) / 60
    majority = sum(vote(group, None).answer == truth for group, truth in zip(answers, truths, strict=True)) / 60
    at_once = sum(extract_boxed(group[0].text) == truth for group, truth in zip(greedy, truths, strict=True)) / 60
    assert 0.3 < single < 0.7
    assert majority > max(single, at_once) + 0.15


def test_pretraining_repeats_itself_and_learns() -> None:
    tokenizer = build_tokenizer(TOKENIZER_SEED, documents=500)
    config = PretrainConfig(steps=30, batch=8, warmup=5, log_every=5)
    losses: list[float] = []
    one = pretrain(tokenizer, frozenset(), config, lambda _step, loss: losses.append(loss)).state_dict()
    other = pretrain(tokenizer, frozenset(), config, lambda _step, _loss: None).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert losses[-1] < 0.7 * losses[0]


def test_no_held_out_question_is_in_the_corpus() -> None:
    """By the corpus's own seed: hold out what it would have said, and it says something else."""
    first = [pretraining._document(frozenset(), 0.15, random.Random(seed)) for seed in range(200)]
    for seed, (prompt, response) in enumerate(first):
        asked = _question(prompt, response)
        assert asked != _question(*pretraining._document(frozenset({asked}), 0.15, random.Random(seed)))


def _question(prompt: str, response: str) -> str:
    """The question of a document in either role, as the corpus tells them apart."""
    if prompt == render(challenger_messages()):
        return response.replace("<question>\n", "").split("\n")[0]
    return prompt.split("<|im_start|>user\n")[1].split("<|im_end|>", maxsplit=1)[0]
