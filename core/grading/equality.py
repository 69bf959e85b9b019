"""When two normalised answers are equal: text, exact numbers, lists member by member, a symbolic judge for the rest.

Pure and bounded. The judge is a parameter: the calling process passes `ask`, which only marks that a judge is needed,
and a grading worker passes the real one, so both decide by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

from core.grading.answers import answer_key, is_words, normalise
from core.grading.quantities import parse_number, split_unit

EqualityVerdict = Literal["equal", "unequal", "unknown"]


class Outcome(NamedTuple):
    """A verdict, and why it is unknown."""

    verdict: EqualityVerdict
    reason: str | None = None


Judge = Callable[[str, str], Outcome]

EQUAL, UNEQUAL = Outcome("equal"), Outcome("unequal")
ASK = Outcome("unknown", "needs the symbolic judge")
MAX_COMPARISONS = 100  # members times members of two sets; beyond it abstain rather than fill the deadline
MAX_NESTING = 2  # lists within lists

_ASSIGNMENT = re.compile(r"([A-Za-z]|\\[A-Za-z]+?)(=|\\in(?![A-Za-z]))([^=<>]+)")
_RELATION = re.compile(r"[=<>]|\\(?:le|ge|lt|gt|ne|neq|in|equiv|approx)(?![A-Za-z])")
_SET = re.compile(r"\\(?:cup|cap|setminus|mathbb|emptyset)(?![A-Za-z])")
_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{4,}")  # that many letters are a word, not a product of variables
_DIGITS_APART = re.compile(r"[0-9] [0-9]")
_TOKEN = re.compile(r"\\.|[()\[\]{},;]", re.DOTALL)


class _List(NamedTuple):
    """A list as it is written: `(1,2]` has brackets "(]", `\\{1,2\\}` has "{}", a bare `1,2` has ""."""

    brackets: str
    members: tuple[str, ...]


def decide(a: str, b: str, judge: Judge, nesting: int = 0) -> Outcome:
    """The outcome for two normalised texts. Symmetric when `judge` is: nothing here tells the two sides apart."""
    if a == b:
        return EQUAL
    a, b = _without_variable(a, b)
    (a, unit_a, x), (b, unit_b, y) = _quantity(a), _quantity(b)
    if (unit_a and unit_b and unit_a != unit_b) or ("degrees" in (unit_a, unit_b) and r"\pi" in a + b):
        return Outcome("unknown", "units differ")
    if x is not None and y is not None:
        return EQUAL if x == y else UNEQUAL
    if a == b:
        return EQUAL
    if (reason := _not_mathematics(a, b)) is not None:
        numbers_or_words = all(n is not None or is_words(text) for text, n in ((a, x), (b, y)))
        return UNEQUAL if numbers_or_words else Outcome("unknown", reason)
    return _decide_lists(a, b, judge, nesting)


def ask(_a: str, _b: str) -> Outcome:
    """The judge of a process that has none."""
    return ASK


@lru_cache(maxsize=16_384)
def _quantity(text: str) -> tuple[str, str | None, Fraction | None]:
    """A text without its unit, the unit, and the exact value if it is a number."""
    body, unit = split_unit(text)
    return body, unit, parse_number(body)


def _not_mathematics(a: str, b: str) -> str | None:
    """Why a judge should not be asked: it would read words as products of letters, and `1 2` as 1 + 2."""
    if any(is_words(text) or _PROSE.search(text) for text in (a, b)):
        return "words"
    if _DIGITS_APART.search(a) or _DIGITS_APART.search(b):
        return "ambiguous spacing"
    return "not balanced" if _split(a) is None or _split(b) is None else None


def _without_variable(a: str, b: str) -> tuple[str, str]:
    """`x=5` against `5`, or against `x=6`, is about the right-hand sides; `x=5` against `y=5` is not.

    So is `x\\in[0,1]`, against `0\\le x\\le 1` too.
    """
    left, right = _ASSIGNMENT.fullmatch(a), _ASSIGNMENT.fullmatch(b)
    if left and right:
        return (left[3], right[3]) if left[1] == right[1] else (a, b)
    if left and (left[2] != "=" or not _RELATION.search(b)):
        return left[3], b
    if right and (right[2] != "=" or not _RELATION.search(a)):
        return a, right[3]
    return a, b


def _decide_lists(a: str, b: str, judge: Judge, nesting: int) -> Outcome:
    p, q = _listed(a), _listed(b)
    if p is None and q is None:
        return judge(a, b)
    if nesting > MAX_NESTING:
        return Outcome("unknown", "nested too deep")

    def same(x: str, y: str) -> Outcome:
        return decide(x, y, judge, nesting + 1)

    if p is not None and q is not None:
        return _same_lists(p, q, same)
    single = a if p is None else b
    if _RELATION.search(single) or _SET.search(single):  # an inequality or a union may be an interval
        return judge(a, b)
    p, q = p or _List("{}", (a,)), q or _List("{}", (b,))
    return _as_sets(p, q, same) if p.brackets == q.brackets else UNEQUAL


def _same_lists(p: _List, q: _List, same: Judge) -> Outcome:
    """Brackets must agree where both are written; a tuple's order counts, a set's and a bare list's does not."""
    if p.brackets and q.brackets and p.brackets != q.brackets:
        return UNEQUAL
    if {p.brackets, q.brackets} <= {"", "{}"}:
        return _as_sets(p, q, same)
    if len(p.members) != len(q.members):
        return UNEQUAL
    return _all(same(x, y) for x, y in zip(p.members, q.members, strict=True))


def _as_sets(p: _List, q: _List, same: Judge) -> Outcome:
    """Equal when every member of each has an equal in the other; order and repetition do not count."""
    keys_p, keys_q = ({answer_key(x): x for x in side.members} for side in (p, q))
    alone_p = [x for key, x in keys_p.items() if key not in keys_q]
    alone_q = [y for key, y in keys_q.items() if key not in keys_p]
    if len(alone_p) * len(keys_q) + len(alone_q) * len(keys_p) > MAX_COMPARISONS:
        return Outcome("unknown", "too many members")
    matches = [_any(same(x, y) for y in keys_q.values()) for x in alone_p]
    matches += [_any(same(x, y) for x in keys_p.values()) for y in alone_q]
    return _all(matches)


def _all(outcomes: Iterable[Outcome]) -> Outcome:
    """Unequal beats unknown beats equal."""
    return _settled(outcomes, by=UNEQUAL, otherwise=EQUAL)


def _any(outcomes: Iterable[Outcome]) -> Outcome:
    """Equal beats unknown beats unequal."""
    return _settled(outcomes, by=EQUAL, otherwise=UNEQUAL)


def _settled(outcomes: Iterable[Outcome], by: Outcome, otherwise: Outcome) -> Outcome:
    """`by` as soon as one of the outcomes has its verdict; else an unknown one, to ask the judge rather than another;
    `otherwise` where none is unknown."""
    unknown = None
    for outcome in outcomes:
        if outcome.verdict == by.verdict:
            return by
        if outcome.verdict == "unknown" and (unknown is None or outcome == ASK):
            unknown = outcome
    return unknown or otherwise


def _listed(text: str) -> _List | None:
    """The members of a tuple, interval, set or bare list, normalised; None when the text is a single value.

    `a\\pm b` is the bare list of its two values. Brackets without a comma make a list only where they are `\\{…\\}`.
    """
    if text.count(r"\pm") == 1:
        return _List("", tuple(normalise(text.replace(r"\pm", sign)) for sign in "+-"))
    body, brackets = text, ""
    if text.startswith(r"\{") and text.endswith(r"\}"):
        body, brackets = text[2:-2], "{}"
    elif text[:1] in tuple("([") and text[-1:] in tuple(")]"):
        body, brackets = text[1:-1], text[0] + text[-1]
    members = _split(body)
    if members is None or (len(members) == 1 and brackets != "{}"):
        members, brackets = _split(text), ""
        if members is None or len(members) == 1:
            return None
    return _List(brackets, tuple(normalise(member) for member in members))


def _split(text: str) -> list[str] | None:
    """The parts between top-level commas; None where the grouping does not close, `(1,2)\\cup(3,4)` cut open, say."""
    parts, start, depth = [], 0, 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in ("(", "[", "{", r"\{"):
            depth += 1
        elif mark in (")", "]", "}", r"\}"):
            depth -= 1
            if depth < 0:
                return None
        elif mark in (",", ";") and depth == 0:
            parts.append(text[start : token.start()])
            start = token.end()
    return [*parts, text[start:]] if depth == 0 else None
