"""Pre-trains a tiny base model on generated documents, seeded: `python -m trainers.micro build` runs this.

Training ends after a number of steps and not of seconds, and on a CPU it uses one thread, so the same machine makes the
same weights.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from core.settings.templates import RZERO_CHALLENGER, RZERO_SOLVER
from trainers.micro import world
from trainers.micro.bases import PretrainConfig, Size
from trainers.micro.tokenizer import VOCABULARY, render

_HEAD = 32
_WRITERS = 4  # processes that write documents for a GPU, which would wait for one
_BOX = "\\boxed{"
_NO_LABEL = -VOCABULARY - 1
Tokens = list[int]
Example = tuple[Tokens, Tokens, Tokens]  # the prompt, the response with its end token, and the labels of the response


def new_model(seed: int, size: Size) -> Qwen3ForCausalLM:
    """An untrained model in the stock Qwen3 architecture."""
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=size.hidden_size,
            intermediate_size=3 * size.hidden_size,
            num_hidden_layers=size.layers,
            num_attention_heads=size.hidden_size // _HEAD,
            num_key_value_heads=1,
            head_dim=_HEAD,
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
    device: str = "cpu",
) -> Qwen3ForCausalLM:
    """Train a new model on documents whose question is not in `held_out`, and return it on the CPU.

    `report(step, mean_loss)` is called every `config.log_every` steps. On a GPU it computes in bfloat16.
    """
    torch.set_num_threads(1)
    on_gpu = device != "cpu"
    model = new_model(config.seed, config.size).to(device)
    parameters = list(model.named_parameters())
    matrices = [parameter for name, parameter in parameters if parameter.dim() == 2 and "embed" not in name]
    others = [parameter for name, parameter in parameters if parameter.dim() != 2 or "embed" in name]
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, config.learning_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, config.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]
    texts = tokenizer.batch_decode([[token] for token in range(VOCABULARY)])
    is_box = torch.tensor([text.startswith(_BOX) for text in texts], device=device)
    losses = []
    documents = _Documents(tokenizer, held_out, config)
    batches = iter(DataLoader(documents, batch_size=None, num_workers=_WRITERS if on_gpu else 0))
    for step in range(config.steps):
        warmup_factor = min(1.0, (step + 1) / config.warmup)
        decay_factor = 1 - (1 - config.final_lr_share) * (step / config.steps)
        for optimiser in optimisers:
            optimiser.param_groups[0]["lr"] = config.learning_rate * warmup_factor * decay_factor
        with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
            ids, labels = (tensor.to(device) for tensor in next(batches))
            # Right padding needs no attention mask, because under a causal mask no real token attends to it.
            hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
            has_label = labels != _NO_LABEL
            logits, targets = model.lm_head(hidden[has_label]).float(), labels[has_label]
            is_line = targets < 0
            logits = logits.masked_fill(is_line[:, None] & is_box, -torch.inf)
            loss = functional.cross_entropy(logits, torch.where(is_line, ~targets, targets))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        losses.append(loss.detach())
        if (step + 1) % config.log_every == 0:
            report(step + 1, torch.stack(losses).mean().item())
            losses.clear()
    return model.cpu().eval()


def _padded(batch: list[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """The token ids (B, T), and for each position the token that is to follow (B, T)."""
    width = max(len(prompt) + len(response) for prompt, response, _ in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    labels = torch.full((len(batch), width), _NO_LABEL)
    for row, (prompt, response, targets) in enumerate(batch):
        end = len(prompt) + len(response)
        ids[row, :end] = torch.tensor(prompt + response)
        labels[row, len(prompt) - 1 : end - 1] = torch.tensor(targets)
    return ids, labels


class _Documents(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Endless batches of new documents, of similar length within a batch, so that there is little padding."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, held_out: frozenset[str], config: PretrainConfig) -> None:
        self._tokenizer, self._held_out, self._config = tokenizer, held_out, config

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        config, worker = self._config, get_worker_info()
        rng = random.Random(config.seed + (worker.id if worker else 0))
        while True:
            examples = self._examples([_document(self._held_out, config, rng) for _ in range(config.batch * 16)])
            examples.sort(key=lambda example: len(example[0]) + len(example[1]))
            batches = [examples[start : start + config.batch] for start in range(0, len(examples), config.batch)]
            rng.shuffle(batches)
            yield from map(_padded, batches)

    def _examples(self, documents: list[tuple[str, str, bool]]) -> list[Example]:
        prompts = self._tokenizer([prompt for prompt, _, _ in documents])["input_ids"]
        responses = self._tokenizer([response for _, response, _ in documents])["input_ids"]
        [newline], end = self._tokenizer("\n")["input_ids"], self._tokenizer.eos_token_id
        examples = []
        for prompt, response, (_, _, complete) in zip(prompts, responses, documents, strict=True):
            labels = list(response)
            if complete:  # `~token`: which token begins a computed line, if one does not guess there
                starts = [0, *(i + 1 for i, token in enumerate(response) if token == newline)]
                for start in starts[:-1]:  # the last line is the boxed answer
                    labels[start] = ~labels[start]
            examples.append((prompt, [*response, end], [*labels, end]))
        return examples


def _document(held_out: frozenset[str], config: PretrainConfig, rng: random.Random) -> tuple[str, str, bool]:
    """A prompt, its response, and whether it is a complete solution that does not teach whether to guess.

    It is the Challenger's with probability `config.challenger_share`, and else the Solver's.
    """
    while True:
        complete = False
        if rng.random() < config.challenger_share:
            response, question = world.write_challenge(rng, config.world)
            prompt = render(RZERO_CHALLENGER.messages())
        else:
            problem = world.make_problem(rng, world=config.world)
            complete = config.complete_share > 0 and rng.random() < config.complete_share
            response, question = world.write_solution(problem, rng, complete), problem.text
            prompt = render(RZERO_SOLVER.messages(question))
        if question not in held_out:
            return prompt, response, complete
