"""Answers in words: what is one, and when two of them certainly differ."""

from __future__ import annotations

import re

from core.grading.names import names
from core.grading.number_words import NUMBER_WORDS

_PHRASE = re.compile(r"(?=.*[^\W\d_]{2})[^\W\d_]+(?:[ '-][^\W\d_]+)*|[\u3400-\u9fff]")
_LETTERS = re.compile(r"\\text\{([^{}]+)\}")
# A phrase with one of these goes on about the answer, and is not read; `and` and `or` join two answers.
_PROSE = frozenset(names("it is are as the that which because since so if when where with by for of to in and or"))


def is_words(text: str) -> bool:
    r"""Whether a normalised text is a word or a phrase, to be compared as text. Two bare letters, except `no`, are not:
    they may be a product."""
    bare = _PHRASE.fullmatch(text) is not None and (len(text) > 2 or text == "no" or not text.isascii())
    return bare or _LETTERS.fullmatch(text) is not None


def same_words(a: str, b: str) -> bool:
    r"""Whether two normalised texts differ only in spaces and in what stands in `\text{}`."""
    return _LETTERS.sub(r"\1", a).replace(" ", "") == _LETTERS.sub(r"\1", b).replace(" ", "")


def certainly_differ(a: str, b: str) -> bool:
    """Whether two different phrases, or a phrase and a number, were read and mean different things.

    Two phrases may mean the same in two scripts, in the plural, as initials, or if one says more: `no solution` and
    `no real solutions`. A word for a number, such as `once`, may be that number.
    """
    words_a, words_b = (re.split("[ -]", _LETTERS.sub(r"\1", text)) for text in (a, b))
    if not (is_words(a) and is_words(b)):
        words = words_a if is_words(a) else words_b
        return all(word.isascii() and word not in NUMBER_WORDS | _PROSE for word in words)
    if a.isascii() != b.isascii() or not _PROSE.isdisjoint(words_a + words_b):
        return False
    stems_a, stems_b = ({word.removesuffix("s") for word in words} for words in (words_a, words_b))
    initials = {"".join(word[0] for word in words) for words in (words_a, words_b) if len(words) > 1}
    return not (stems_a <= stems_b or stems_b <= stems_a or initials & {"".join(words_a), "".join(words_b)})
