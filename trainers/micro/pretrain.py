"""Pre-train the tiny base model from the generated corpus: seeded, on a CPU, in about twenty minutes.

`coevo micro build` runs this; its result is the model shipped in `trainers/micro/model`. Every length is a number of
steps, not of seconds, and one thread computes, so the same machine gives the same weights.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from core.questions.prompts import challenger_messages, solver_messages
from trainers.micro import world
from trainers.micro.tokenizer import VOCABULARY, render


@dataclass(frozen=True, slots=True)
class PretrainConfig:
    seed: int = 7
    steps: int = 8000
    batch: int = 64
    learning_rate: float = 6e-3  # of both optimisers: Muon's update is scaled to AdamW's size
    warmup: int = 100
    final_lr_share: float = 0.02
    challenger_share: float = 0.15
    log_every: int = 100


Example = tuple[list[int], list[int]]  # prompt ids, response ids with the end token


def new_model(seed: int) -> Qwen3ForCausalLM:
    """An untrained model of 0.48M parameters in the stock Qwen3 architecture."""
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=96,
            intermediate_size=288,
            num_hidden_layers=4,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=512,
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
            use_cache=True,
            bos_token_id=None,
            eos_token_id=2,
            pad_token_id=0,
            initializer_range=0.05,
        )
    )


def pretrain(
    tokenizer: PreTrainedTokenizerFast,
    held_out: frozenset[str],
    config: PretrainConfig,
    report: Callable[[int, float], None],
) -> Qwen3ForCausalLM:
    """Train a new model on documents whose question is not in `held_out`; `report(step, mean loss)` now and then."""
    torch.set_num_threads(1)
    model = new_model(config.seed)
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if not (p.dim() == 2 and "embed" not in n)]
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, config.learning_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, config.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]
    losses = []
    batches = _batches(tokenizer, held_out, config)
    for step in range(config.steps):
        done = step / config.steps
        rate = config.learning_rate * min(1.0, (step + 1) / config.warmup) * (1 - (1 - config.final_lr_share) * done)
        for optimiser in optimisers:
            optimiser.param_groups[0]["lr"] = rate
        loss = _loss(model, next(batches))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        losses.append(loss.item())
        if (step + 1) % config.log_every == 0:
            report(step + 1, sum(losses) / len(losses))
            losses.clear()
    model.eval()
    return model


def _loss(model: Qwen3ForCausalLM, batch: list[Example]) -> torch.Tensor:
    """Mean cross-entropy of the response tokens."""
    width = max(len(prompt) + len(response) for prompt, response in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    labels = torch.full((len(batch), width), -100)
    for row, (prompt, response) in enumerate(batch):
        end = len(prompt) + len(response)
        ids[row, :end] = torch.tensor(prompt + response)
        labels[row, len(prompt) - 1 : end - 1] = torch.tensor(response)
    # Right padding under a causal mask needs no attention mask: nothing real looks at it.
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    chosen = labels >= 0
    return functional.cross_entropy(model.lm_head(hidden[chosen]), labels[chosen])


def _batches(
    tokenizer: PreTrainedTokenizerFast, held_out: frozenset[str], config: PretrainConfig
) -> Iterator[list[Example]]:
    """Batches of documents of like length, so that little is padding."""
    rng = random.Random(config.seed)
    while True:
        pairs = [_document(held_out, config.challenger_share, rng) for _ in range(config.batch * 16)]
        prompts = tokenizer([prompt for prompt, _ in pairs])["input_ids"]
        responses = tokenizer([response for _, response in pairs])["input_ids"]
        examples = [(p, [*r, tokenizer.eos_token_id]) for p, r in zip(prompts, responses, strict=True)]
        examples.sort(key=lambda example: len(example[0]) + len(example[1]))
        batches = [examples[i : i + config.batch] for i in range(0, len(examples), config.batch)]
        rng.shuffle(batches)
        yield from batches


def _document(held_out: frozenset[str], challenger_share: float, rng: random.Random) -> tuple[str, str]:
    """A prompt and its response, in one of the two roles."""
    while True:
        if rng.random() < challenger_share:
            response, question = world.write_challenge(rng)
            prompt = render(challenger_messages())
        else:
            problem = world.make_problem(rng)
            response, question = world.write_solution(problem, rng), problem.text
            prompt = render(solver_messages(question))
        if question not in held_out:
            return prompt, response
