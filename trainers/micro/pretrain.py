"""Pre-trains the tiny base model on generated documents: seeded, on a CPU, in about twenty minutes.

`coevo micro build` runs this; the model in `trainers/micro/model` was made with it. Training ends after a number of
steps and not of seconds, and it uses one thread, so the same machine makes the same weights.
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
    learning_rate: float = 6e-3  # of both optimisers: Muon's update is scaled to the size of AdamW's
    warmup: int = 100  # steps
    final_lr_share: float = 0.02  # of `learning_rate`, reached at the last step
    challenger_share: float = 0.15  # of the documents
    log_every: int = 100  # steps


Example = tuple[list[int], list[int]]  # token ids of the prompt, and of the response with its end token


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
    """Train a new model on documents whose question is not in `held_out`.

    `report(step, mean_loss)` is called every `config.log_every` steps.
    """
    torch.set_num_threads(1)
    model = new_model(config.seed)
    parameters = list(model.named_parameters())
    matrices = [parameter for name, parameter in parameters if parameter.dim() == 2 and "embed" not in name]
    others = [parameter for name, parameter in parameters if parameter.dim() != 2 or "embed" in name]
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, config.learning_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, config.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]
    losses = []
    batches = _batches(tokenizer, held_out, config)
    for step in range(config.steps):
        warmup_factor = min(1.0, (step + 1) / config.warmup)
        decay_factor = 1 - (1 - config.final_lr_share) * (step / config.steps)
        for optimiser in optimisers:
            optimiser.param_groups[0]["lr"] = config.learning_rate * warmup_factor * decay_factor
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
    # Right padding needs no attention mask, because under a causal mask no real token attends to it.
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    has_label = labels >= 0
    return functional.cross_entropy(model.lm_head(hidden[has_label]), labels[has_label])


def _batches(
    tokenizer: PreTrainedTokenizerFast, held_out: frozenset[str], config: PretrainConfig
) -> Iterator[list[Example]]:
    """Endless batches of new documents, of similar length within a batch, so that there is little padding."""
    rng = random.Random(config.seed)
    while True:
        documents = [_document(held_out, config.challenger_share, rng) for _ in range(config.batch * 16)]
        prompts = tokenizer([prompt for prompt, _ in documents])["input_ids"]
        responses = tokenizer([response for _, response in documents])["input_ids"]
        examples = [
            (prompt, [*response, tokenizer.eos_token_id]) for prompt, response in zip(prompts, responses, strict=True)
        ]
        examples.sort(key=lambda example: len(example[0]) + len(example[1]))
        batches = [examples[start : start + config.batch] for start in range(0, len(examples), config.batch)]
        rng.shuffle(batches)
        yield from batches


def _document(held_out: frozenset[str], challenger_share: float, rng: random.Random) -> tuple[str, str]:
    """A prompt and its response, for the Challenger with probability `challenger_share` and else for the Solver."""
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
