"""Vocabulary dropout: which tokens a mask leaves, and what the embedded engine draws with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_chat_encoding import TOKENIZERS
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from core.questions.parsing import parse_question
from core.settings.templates import RZERO_CHALLENGER, RZERO_SOLVER
from core.settings.training import Sampling
from services.inference.engines.base import Prompt, VocabularyDropout
from services.inference.engines.embedded import TransformersEngine
from services.inference.engines.vocabulary import kept_tokens, mask_of
from trainers.micro.bases import BASES

SHIPPED = {name: AutoTokenizer.from_pretrained(base.model) for name, base in BASES.items()}
MODEL = BASES["micro"].model
ASKED = Prompt(tuple(RZERO_CHALLENGER.messages()), 5, 8, Sampling(max_tokens=40))
GREEDY = Sampling(temperature=0, max_tokens=40)


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    torch.set_num_threads(1)
    return TransformersEngine(MODEL)


def dropout(retention: float, seed: int = 1) -> VocabularyDropout:
    return VocabularyDropout(retention=retention, seed=seed)


def dropped_by(tokenizer: PreTrainedTokenizerFast, retention: float, seed: int = 1) -> set[int]:
    mask = mask_of(dropout(retention, seed), len(tokenizer), kept_tokens(tokenizer))
    return {*(~mask).nonzero()[:, 0].tolist()}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_tokenizers_write_the_format_with_any_mask(name: str) -> None:
    """A mask that drops all it can drops the words, digits and signs of these replies, and nothing else of them."""
    tokenizer, dropped = SHIPPED[name], dropped_by(SHIPPED[name], 1e-12)
    for text, others in (
        ("<question>\nFind 3 + 4.\n</question>\n\n\\boxed{7}", ["Find", "3", "+", "4", ".", "7"]),
        ("<question>What is 5?</question> \\boxed{-12}\n", ["What", "is", "5", "?", "1", "2"]),
    ):
        assert parse_question(text, expected="tags_and_answer") is not None
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert [tokenizer.decode([token]).strip() for token in ids if token in dropped] == others
    assert not dropped & {tokenizer.eos_token_id, *tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    assert len(dropped) > 0.9 * len(tokenizer)  # letters, digits and words are not kept


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("text", ["<question>", "?</question>\n\n", " \\boxed{", "}", "} ", " \n\t"])
def test_other_tokenizers_write_the_marks_with_tokens_that_are_kept(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert {tokenizer.decode([token]) for token in ids if token in dropped_by(tokenizer, 1e-12)} <= {"?"}


def test_a_mask_keeps_about_its_share_and_depends_on_its_seed_alone() -> None:
    masks = [mask_of(dropout(0.8, seed), 20_000, {7}) for seed in range(20)]
    # Four standard errors of a share at n = 20,000 are 0.011.
    assert all(abs(mask.float().mean() - 0.8) < 0.012 for mask in masks)
    assert all(mask[7] for mask in masks)
    # Two independent masks agree at 0.8^2 + 0.2^2 of the tokens.
    assert (masks[0] == masks[1]).float().mean() == pytest.approx(0.68, abs=0.014)
    assert torch.equal(mask_of(dropout(0.8, 3), 500, {7}), masks[3][:500])
    assert mask_of(dropout(1.0), 500, ()).all()
    assert mask_of(dropout(1e-12), 500, {3, 499, 500}).nonzero()[:, 0].tolist() == [3, 499]


def prompts() -> Iterator[Prompt]:
    """Prompts with and without masks, and of several lengths."""
    for seed in range(3):
        yield replace(ASKED, seed=100 * seed, dropout=dropout(0.8, seed))
        yield replace(ASKED, seed=100 * seed, sampling=Sampling(max_tokens=40, top_p=0.9, top_k=40))
        question = tuple(RZERO_SOLVER.messages(f"What is {'3 + ' * 6 * seed}4?"))
        yield replace(ASKED, messages=question, dropout=dropout(0.6, seed), sampling=Sampling(max_tokens=40, top_p=0.9))
        yield replace(ASKED, messages=question, dropout=dropout(0.7, 9), sampling=GREEDY, n=1)


def test_no_dropped_token_is_drawn_and_what_is_drawn_differs_between_masks(engine: TransformersEngine) -> None:
    asked = [*prompts()]
    drawn = {
        prompt.dropout: {token for completion in group for token in completion.tokens}
        for prompt, group in zip(asked, engine.generate(asked), strict=True)
        if prompt.messages == ASKED.messages
    }
    masks = [dropout(0.8, seed) for seed in range(3)]
    dropped = [dropped_by(SHIPPED["micro"], mask.retention, mask.seed) for mask in masks]
    for mask, its_dropped in zip(masks, dropped, strict=True):
        assert not drawn[mask] & its_dropped
        assert drawn[None] & its_dropped
        assert sum(bool(drawn[mask] & other) for other in dropped) == 2
    greedy = replace(ASKED, dropout=masks[0], sampling=GREEDY, n=1)
    assert not {*engine.generate([greedy])[0][0].tokens} & dropped[0]


@pytest.mark.parametrize(("rows", "waiting"), [(5, 3), (16, 8)])
def test_completions_with_masks_do_not_depend_on_the_batch_or_the_engine(
    engine: TransformersEngine, rows: int, waiting: int
) -> None:
    asked, small = [*prompts()], TransformersEngine(MODEL, max_rows=rows, waiting_rows=waiting)
    together = engine.generate(asked)
    assert small.generate(asked) == together
    for prompt, group in zip(asked, together, strict=True):
        second = replace(prompt, seed=prompt.seed + prompt.n - 1, n=1)
        assert engine.generate([second])[0] == group[-1:]


def test_the_tokens_that_end_an_answer_are_kept(tmp_path: Path) -> None:
    """Here a full stop is one."""
    folder, stop = tmp_path / "model", SHIPPED["micro"].convert_tokens_to_ids(".")
    shutil.copytree(MODEL, folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, stop]}))
    asked = replace(ASKED, dropout=dropout(1e-12), sampling=Sampling(max_tokens=200))
    swapped = TransformersEngine(MODEL)
    before = {token for completion in swapped.generate([asked])[0] for token in completion.tokens}
    swapped.load(folder)
    after = {token for completion in swapped.generate([asked])[0] for token in completion.tokens}
    assert (stop in before, stop in after) == (False, True)


def test_a_retention_of_one_changes_no_bit(engine: TransformersEngine) -> None:
    asked = [replace(prompt, dropout=None) for prompt in prompts()]
    assert engine.generate([replace(prompt, dropout=dropout(1.0)) for prompt in asked]) == engine.generate(asked)
