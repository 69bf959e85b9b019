"""The shipped model and benchmark are those that the committed scripts make, and have the properties that the demo
needs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from core.grading.answers import extract_boxed
from core.questions.voting import vote
from core.settings.templates import RZERO_CHALLENGER, RZERO_SOLVER
from core.settings.training import Sampling
from core.types import TINY_BASES
from orchestrator.installation.home import MICRO_MODEL
from services.inference.engines.base import Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.micro import pretrain as pretraining
from trainers.micro import world
from trainers.micro.__main__ import main
from trainers.micro.bases import BASES, SIZES, PretrainConfig
from trainers.micro.build import TOKENIZER_SEED, benchmark_lines
from trainers.micro.families import Problem, arithmetic
from trainers.micro.pretrain import pretrain
from trainers.micro.tokenizer import VOCABULARY, build_tokenizer, render

every_base = pytest.mark.parametrize("name", BASES)


def test_every_name_of_a_base_is_known_to_the_settings() -> None:
    assert tuple(BASES) == TINY_BASES


@every_base
def test_the_shipped_benchmark_and_tokenizer_are_made_from_their_seeds(name: str) -> None:
    lines = benchmark_lines(name, BASES[name])
    assert BASES[name].benchmark.read_text().splitlines() == lines
    assert len(lines) >= 1000
    shipped = json.loads((BASES[name].model / "tokenizer.json").read_text())
    rebuilt = json.loads(build_tokenizer(TOKENIZER_SEED, BASES[name].world.family).backend_tokenizer.to_str())
    assert shipped["model"] == rebuilt["model"]
    assert shipped["added_tokens"] == rebuilt["added_tokens"]


def test_each_digit_is_a_token_and_each_fixed_part_of_a_prompt_is_one() -> None:
    tokenizer = AutoTokenizer.from_pretrained(MICRO_MODEL)
    assert len(tokenizer("1234567890")["input_ids"]) == 10
    assert len(tokenizer(render(RZERO_CHALLENGER.messages()))["input_ids"]) == 1
    question = "What is 1 + 2?"
    prompt = render(RZERO_SOLVER.messages(question))
    assert len(tokenizer(prompt)["input_ids"]) == 2 + len(tokenizer(question)["input_ids"])
    templated = tokenizer.apply_chat_template(
        RZERO_SOLVER.messages(question), tokenize=False, add_generation_prompt=True
    )
    assert templated == prompt
    assert tokenizer.decode(tokenizer(prompt)["input_ids"]) == prompt


@every_base
def test_the_shipped_model_is_a_small_standard_qwen3(name: str) -> None:
    folder = BASES[name].model
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert (config.model_type, config.vocab_size, model.dtype) == ("qwen3", VOCABULARY, torch.float32)
    assert sum(p.numel() for p in model.parameters()) <= 3_000_000
    assert (folder / "model.safetensors").stat().st_size <= 8 << 20


def test_the_majority_beats_a_sample_and_the_greedy_answer() -> None:
    """If it did not, nothing could be learned from votes. The questions have two operations, where the difference is
    largest, and are in no benchmark."""
    rng = random.Random(3)
    problems = [world.make_problem(rng, 2) for _ in range(60)]
    prompts = [tuple(RZERO_SOLVER.messages(problem.text)) for problem in problems]
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


@pytest.mark.parametrize("name", ["micro-long"])
def test_a_long_base_computes_long_solutions_right_but_guesses_instead(name: str) -> None:
    """This leaves room for training: what it can compute is far more than what it answers."""
    base, rng = BASES[name], random.Random(5)
    tokenizer, model = AutoTokenizer.from_pretrained(base.model), AutoModelForCausalLM.from_pretrained(base.model)
    problems = [world.make_problem(rng, 8, base.world) for _ in range(40)]
    computed = sum(_computes(model, tokenizer, problem, rng) for problem in problems)
    prompts = [tuple(RZERO_SOLVER.messages(problem.text)) for problem in problems]
    greedy = TransformersEngine(base.model).generate(
        [Prompt(prompt, 0, 1, Sampling(temperature=0, max_tokens=180)) for prompt in prompts]
    )
    answered = sum(
        extract_boxed(group[0].text) == str(problem.answer) for group, problem in zip(greedy, problems, strict=True)
    )
    assert computed > 36
    assert answered < 12


def _computes(model: Any, tokenizer: Any, problem: Problem, rng: random.Random) -> bool:
    """Whether each token of the complete solution is the most likely one, apart from the first of each line."""
    prompt = tokenizer(render(RZERO_SOLVER.messages(problem.text)))["input_ids"]
    response = tokenizer(world.write_solution(problem, rng, complete=True))["input_ids"]
    with torch.no_grad():
        likeliest = model(torch.tensor([prompt + response])).logits[0].argmax(-1).tolist()[len(prompt) - 1 : -1]
    [newline] = tokenizer("\n")["input_ids"]
    before = [newline, *response[:-1]]
    return all(a == b or c == newline for a, b, c in zip(likeliest, response, before, strict=True))


def test_a_complete_solution_teaches_all_but_whether_to_guess() -> None:
    """The labels of the first tokens of both computed lines are marked; that of the boxed answer is not, since it must
    follow."""
    tokenizer = build_tokenizer(TOKENIZER_SEED, arithmetic, documents=500)
    documents = pretraining._Documents(tokenizer, frozenset(), PretrainConfig(world.LONG))
    text = "2 * 3 = 6\n6 + 1 = 7\n\\boxed{7}"
    [(_, response, complete), (_, same, taught)] = documents._examples([("", text, True), ("", text, False)])
    assert (same, taught) == (response, response)
    marked = [tokenizer.decode(response[: i + 1]) for i, label in enumerate(complete) if label < 0]
    assert marked == ["2", "2 * 3 = 6\n6"]
    assert [~label if label < 0 else label for label in complete] == response


def test_a_larger_model_has_more_parameters() -> None:
    counts = [sum(p.numel() for p in pretraining.new_model(1, size).parameters()) for size in SIZES.values()]
    assert [round(count / 1e6, 1) for count in counts] == [0.5, 1.0, 1.8]


@pytest.mark.parametrize(
    ("option", "known"),
    [("base", "micro, micro-long"), ("size", "0.5M, 1M, 2M"), ("device", "cpu, cuda")],
)
def test_an_unknown_option_is_refused_before_anything_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, known: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["build", str(tmp_path / "model"), f"--{option}", "huge"])
    shown = capsys.readouterr().err
    assert ended.value.code == 2
    assert [name in shown for name in (f"--{option}", *known.split(", "))] == [True] * (1 + len(known.split(", ")))
    assert not list(tmp_path.iterdir())


def test_pretraining_is_reproducible_and_lowers_the_loss() -> None:
    tokenizer = build_tokenizer(TOKENIZER_SEED, arithmetic, documents=500)
    config = PretrainConfig(steps=30, batch=8, warmup=5, log_every=5)
    losses: list[float] = []
    first = pretrain(tokenizer, frozenset(), config, lambda _step, loss: losses.append(loss)).state_dict()
    second = pretrain(tokenizer, frozenset(), config, lambda _step, _loss: None).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert losses[-1] < 0.7 * losses[0]


def test_no_held_out_question_is_in_the_corpus() -> None:
    """With the corpus's own seed: if the question that it would have is held out, it has another one."""
    config = PretrainConfig()
    first = [pretraining._document(frozenset(), config, random.Random(seed)) for seed in range(200)]
    for seed, (prompt, response, _) in enumerate(first):
        question = _question(prompt, response)
        assert question != _question(*pretraining._document(frozenset({question}), config, random.Random(seed))[:2])


def _question(prompt: str, response: str) -> str:
    """The question of a document of either role."""
    if prompt == render(RZERO_CHALLENGER.messages()):
        return response.replace("<question>\n", "").split("\n")[0]
    return prompt.split("<|im_start|>user\n")[1].split("<|im_end|>", maxsplit=1)[0]
