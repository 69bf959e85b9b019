"""Vocabulary dropout (Dineen et al., arXiv 2604.03472): some tokens, drawn at random, may not be sampled.

In the paper each batch of the Challenger draws a mask over the vocabulary, in the rollouts of its training and in the
generation of the questions. A token stays with the probability `retention`, .75 to .85; the logits of the others are
-inf. The tokens of the format stay in any case. So the Challenger cannot settle on a few phrases that earn the reward.

Here a batch is the rollouts of one training step, or the questions of one request. The mask comes after the
probabilities, as top-k does: log-probabilities and entropies are those of the whole distribution. So are the ratio, the
KL and the gradient: the gradient is that of the unmasked policy at the drawn tokens, not that of the distribution that
they were drawn from. Hence the estimates of KL and gradient are biased. The paper's text that we have does not say
which of the two its loss takes, nor which tokens it counts to the format.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from itertools import product
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from services.inference.engines.base import VocabularyDropout

_MARKS = ("<question>", "</question>", "\\boxed{", "}")
# A tokenizer may write a mark together with the character before or behind it: `?</`, `>\n\n`, `\boxed{-`.
_BESIDE = ("", *string.punctuation, " ", "\n", "\n\n", "a", "0")
_SPACES = tuple("".join(space) for length in (1, 2, 3) for space in product(" \n\t", repeat=length))
_known: WeakKeyDictionary[Any, frozenset[int]] = WeakKeyDictionary()  # by tokenizer


def mask_of(dropout: VocabularyDropout, vocabulary: int, kept: Iterable[int]) -> Tensor:
    """The mask (V,), True at the tokens that may be drawn: those in `kept`, and a random choice of the others, which
    depends on the dropout's seed alone."""
    mask = torch.from_numpy(np.random.default_rng(dropout.seed).random(vocabulary) < dropout.retention)
    mask[[token for token in kept if token < vocabulary]] = True
    return mask


def kept_tokens(tokenizer: Any) -> frozenset[int]:
    """The tokens that no mask drops: control tokens, white space, and what this tokenizer writes the marks of the
    format with, alone and beside another character."""
    if tokenizer not in _known:
        beside = {mark + other: other for mark, other in product(_MARKS, _BESIDE)}
        beside |= {other + mark: other for mark, other in product(_MARKS, _BESIDE)}
        texts = [*beside, *beside.values(), *_SPACES]
        ids = dict(zip(texts, map(set, tokenizer(texts, add_special_tokens=False)["input_ids"]), strict=True))
        of_marks = (ids[text] - ids[other] for text, other in beside.items())
        controls = {*tokenizer.added_tokens_decoder, *tokenizer.all_special_ids}
        _known[tokenizer] = frozenset(controls.union(*of_marks, *(ids[space] for space in _SPACES)))
    return _known[tokenizer]
