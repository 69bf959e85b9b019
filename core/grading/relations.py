r"""The sixth layer of reading an answer: relations, and which part is the value: the 5 of `x=5` and `m+n=2+3=5`."""

from __future__ import annotations

import re
from functools import lru_cache

from core.grading.lists import split
from core.grading.quantities import read_quantity

RELATION = re.compile(r"[=<>]|\\(?:le|ge|ne|in|equiv|approx)(?![A-Za-z])")
INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])")
_ASSIGNMENT = re.compile(
    r"([A-Za-z]|\\[A-Za-z]+?|\\text\{[^{}]+\}|[A-Z]?[a-z]{3,}(?: [a-z]+){0,3}"
    r"|\\angle ?[A-Z]{1,3}|S_\{\\triangle ?[A-Z]{3}\}|[A-Za-z]\([^()]*\)"
    r"|[A-Za-z](?:[+-][A-Za-z])+|\([A-Za-z](?:, [A-Za-z])+\))"
    r"(=|\\in(?![A-Za-z]))([^=<>]+)"
)
_SYMBOL = re.compile(r"\\[A-Za-z]+|[A-Za-z]")
_GREEK = frozenset(rf"\{name}" for name in ["alpha", "beta", "gamma", "delta", "theta", "lambda", "mu", "phi", "omega"])
_CONNECTIVE = re.compile(r"\\text\{(and|or)\}")
_VARIABLE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]|[<>]|\\(?:le|ge|ne|in)(?![A-Za-z])")  # or another relation
_BUILT_SET = re.compile(r"\\\{([A-Za-z])(?:\\in\\mathbb(?:R|\{R\}))?(?:\\mid|\\vert|[|:])(.+)\\\}")


@lru_cache(maxsize=16_384)
def statement(text: str) -> tuple[str, str | None]:
    """What a text states in the end, and the only variable of that if it is a relation."""
    match = _BUILT_SET.fullmatch(text)
    stated = _conclusion(match[2].strip() if match and match[1] in match[2] and RELATION.search(match[2]) else text)
    return stated, _variable_of(stated)


def _conclusion(text: str) -> str:
    """A chain of equations without the constants before its last one: `33+7=40` -> `40`, `m+n=33+7=40` -> `m+n=40`."""
    if "=" not in text:
        return text
    chain = sides(text)
    if len(chain) == 2 and len(chain[1]) == 1 and chain[1].isalpha() and not _VARIABLE.search(chain[0]):
        return f"{chain[1]}={chain[0]}"  # `5=x`
    while len(chain) > 1 and not any(_VARIABLE.search(read_quantity(side).body) for side in chain[-2:]):
        del chain[-2]
    return "=".join(chain)


def sides(text: str) -> list[str]:
    r"""The sides of an equation or of a chain; the text alone if it is none, as in `\sum_{n=1}^3n` or `x=1, y=2`."""
    parts = text.split("=")
    if len(parts) == 1:
        return parts
    chain = len(split(text) or ()) == 1 and all(split(side) for side in parts)
    return parts if chain else [text]


def alternatives(text: str) -> tuple[str, list[str]]:
    r"""The inequalities of `x<2\text{or}x>3`, and the word between them; "" and the text if there is no such word."""
    words = set(_CONNECTIVE.findall(text))
    return (words.pop(), _CONNECTIVE.split(text)[::2]) if len(words) == 1 else ("", [text])


def _variable_of(text: str) -> str | None:
    """The only symbol of a relation, such as the x of `x>2`; None if there are several or none, or no relation."""
    text = _CONNECTIVE.sub(" ", text)
    if RELATION.search(text) is None or r"\text" in text:
        return None
    symbols = {symbol for symbol in _SYMBOL.findall(text) if symbol in _GREEK or symbol[0] != "\\"} - {"e", "i"}
    return symbols.pop() if len(symbols) == 1 else None


def without_variable(a: str, b: str) -> tuple[str, str]:
    r"""Leave out the variable where only the right-hand sides are to be compared.

    This is so for `x=5` against `5` or `x=6`, but not for `x=5` against `y=5`. It is also so for `x\in[0,1]`, even
    against `0\le x\le 1`. `(x,y)=(1,2)` is `(1,2)`, even against `(x=1,y=2)`.
    """
    left, right = _assignment(a), _assignment(b)
    if left and right:
        return (left[3], right[3]) if left[1] == right[1] else (a, b)
    if left and _is_value(left, b):
        return left[3], b
    if right and _is_value(right, a):
        return a, right[3]
    return a, b


def _assignment(text: str) -> re.Match[str] | None:
    return _ASSIGNMENT.fullmatch(text) if "=" in text or r"\in" in text else None


def _is_value(assignment: re.Match[str], other: str) -> bool:
    """Whether the other text must be compared with the right-hand side of an assignment."""
    names_a_tuple = assignment[1].startswith("(") and other.startswith("(")
    return assignment[2] != "=" or names_a_tuple or not RELATION.search(other)
