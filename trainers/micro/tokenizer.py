"""Builds the tiny model's tokenizer: byte-level BPE with single-digit tokens, and one token per fixed part of a prompt.

It is a stock `PreTrainedTokenizerFast` with a chat template. Every digit is a separate token, so that the model can
learn to carry, and so is every letter of an equation; " + " is one token. Each fixed part of the two prompts (the
paper's full text, `core.questions.prompts`) is one added token, so that the paper's long prompts take only one or two
tokens besides the question.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from core.settings.templates import RZERO_CHALLENGER, RZERO_SOLVER
from trainers.micro.families import Family
from trainers.micro.world import SHORT, make_problem, write_challenge, write_solution

PAD, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VOCABULARY = 512
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer(seed: int, family: Family, documents: int = 20_000) -> PreTrainedTokenizerFast:
    """Train the merges on `documents` short texts of each kind (questions, solutions, challenges).

    The same seed gives the same tokenizer.
    """
    bpe = Tokenizer(models.BPE(byte_fallback=False))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(family.PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    # The Solver's prompt before and after the question, and the Challenger's prompt, which is always the same.
    prompt_parts = [*render(RZERO_SOLVER.messages("\0")).split("\0"), render(RZERO_CHALLENGER.messages())]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(prompt_parts),
        special_tokens=[PAD, IM_START, IM_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_corpus(seed, family, documents), trainer)
    bpe.add_special_tokens([AddedToken(part, special=True, normalized=False) for part in prompt_parts])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=IM_END, pad_token=PAD, chat_template=CHAT_TEMPLATE, model_max_length=512
    )


def render(messages: list[dict[str, str]]) -> str:
    """The text that the chat template makes of `messages`, up to the beginning of the assistant's answer."""
    turns = "".join(f"{IM_START}{message['role']}\n{message['content']}{IM_END}\n" for message in messages)
    return f"{turns}{IM_START}assistant\n"


def _corpus(seed: int, family: Family, documents: int) -> Iterator[str]:
    rng, world = random.Random(seed), replace(SHORT, family=family)
    for _ in range(documents):
        problem = make_problem(rng, world=world)
        yield problem.text
        yield write_solution(problem, rng)
        yield write_challenge(rng, world)[0]
