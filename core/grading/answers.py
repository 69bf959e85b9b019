r"""Reading answers: `normalise` gives all spellings of an answer that differ in form alone one spelling.

Its three layers are `characters`, `typography` with `notation`, and `prose`. All functions here read untrusted text.
They evaluate nothing, and each step takes time linear in the text's length.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from core.grading import boxes, quantities
from core.grading.characters import plain
from core.grading.notation import mathematical
from core.grading.points import is_curve
from core.grading.prose import without_prose
from core.grading.typography import typeset

_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_PLAIN_NUMBER = re.compile(r"-?[0-9]{1,18}(?:[./][0-9]{1,18})?")  # already normalised
_MAX_PASSES = 5  # one rewrite may make another possible; what is nested deeper than this is left as it is
_CACHED_CHARS = 200  # longer answers are not cached, to save memory


def extract_boxed(text: str) -> str | None:
    r"""The answer of a rollout, by `core.grading.boxes`; None if there is none.

    A curve is a true answer only (`core.grading.points`): as a reply's answer it would equal any point of it, so it is
    none.
    """
    content = boxes.extract_boxed(text)
    return None if content is None or ("=" in content and is_curve(normalise(content))) else content


def normalise(answer: str) -> str:
    r"""An answer as LaTeX, without differences of characters, typography and prose.

    Words become lower case; letters of which the case or the order may matter stay in `\text{}`, and so do units.
    Values are separated by `, `, and a number has no separators. Nothing that could change a value is dropped: percent
    signs, units and brackets around lists stay.
    """
    if _PLAIN_NUMBER.fullmatch(answer):
        return answer
    return _normalise_cached(answer) if len(answer) <= _CACHED_CHARS else _normalise(answer)


def number_of(answer: str) -> Fraction | None:
    """The exact value of an answer that is a plain number, else None. `quantities.parse_number` lists the forms."""
    return quantities.parse_number(normalise(answer))


def answer_key(answer: str) -> str:
    """A key that is cheap to compute: the exact number (`1/2`, `25`) or else the normalised text, with its unit.

    A blank answer has the key "". Answers with equal keys are equal. Answers with different keys may be equal too,
    which only a `Grader` can tell.
    """
    if _PLAIN_INTEGER.fullmatch(answer):
        return answer
    text = normalise(answer)
    quantity = quantities.read_quantity(text)
    if quantity.unit and quantity.number is None and (quantity.body[-1:].isalpha() or quantity.body.endswith("!")):
        return text  # behind a symbol, a unit of one letter would be read as another symbol: `x\text{h}`
    return quantities.latex(quantity)


def _normalise(answer: str) -> str:
    text = answer
    for _ in range(_MAX_PASSES):
        before, text = text, without_prose(mathematical(typeset(plain(text))))
        if text == before:
            break
    return text


_normalise_cached = lru_cache(maxsize=65_536)(_normalise)
