"""Whether two normalised answers are equal, by text, by exact numbers, and for lists by their members.

A symbolic judge decides the rest. It is a parameter: the calling process passes `no_judge`, which only reports that a
judge is needed, and a grading worker passes the real one, so both decide by the same rules. Nothing here has side
effects, and the work is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from core.grading import points
from core.grading.answers import answer_key, is_words, normalise
from core.grading.quantities import parse_number, split_unit
from core.types import EqualityVerdict


class Outcome(NamedTuple):
    """A verdict, and the reason if it is unknown."""

    verdict: EqualityVerdict
    reason: str | None = None


Judge = Callable[[str, str], Outcome]
_CompareMembers = Callable[[str, str, int], Outcome]

EQUAL, UNEQUAL = Outcome("equal"), Outcome("unequal")
NEEDS_JUDGE = Outcome("unknown", "needs the symbolic judge")
MAX_COMPARISONS = 100  # of the members of two sets; more would use up the deadline, so the outcome is unknown
_ALL_COMPARISONS = 1_000  # of the members of sets within sets; also a process without a deadline compares them
MAX_NESTING = 2  # lists within lists

_ASSIGNMENT = re.compile(r"([A-Za-z]|\\[A-Za-z]+?|\([A-Za-z](?:,[A-Za-z])+\))(=|\\in(?![A-Za-z]))([^=<>]+)")
_VARIABLE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]|[<>]|\\(?:le|ge|lt|gt|ne|neq|in)(?![A-Za-z])")  # or another relation
_BUILT_SET = re.compile(r"\\\{([A-Za-z])(?:\\in\\mathbb(?:R|\{R\}))?(?:\\mid|\\vert|[|:])(.+)\\\}")
_INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|lt|gt|ne|neq)(?![A-Za-z])")
_RELATION = re.compile(r"[=<>]|\\(?:le|ge|lt|gt|ne|neq|in|equiv|approx)(?![A-Za-z])")
_SET = re.compile(r"\\(?:cup|cap|setminus|mathbb|emptyset)(?![A-Za-z])")
_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{4,}")  # so many letters are a word, not a product of variables
_DIGITS_APART = re.compile(r"[0-9] [0-9]")
_TOKEN = re.compile(r"\\.|[()\[\]{},;]", re.DOTALL)


class _List(NamedTuple):
    """A list as written: the brackets of `(1,2]` are "(]", those of `\\{1,2\\}` "{}", and those of a bare `1,2` ""."""

    brackets: str
    members: tuple[str, ...]


def decide(a: str, b: str, judge: Judge, nesting: int = 0, comparisons: int = _ALL_COMPARISONS) -> Outcome:
    """The outcome for two normalised texts. The order of the two does not matter if it does not matter to `judge`.

    At most `comparisons` members of sets are compared, and of the sets in them.
    """
    if (outcome := _decide_texts(a, b)) is not None:
        return outcome
    a, b = _without_variable(_conclusion(_condition(a)), _conclusion(_condition(b)))
    (a, unit_a, number_a), (b, unit_b, number_b) = _quantity(a), _quantity(b)
    if (unit_a and unit_b and unit_a != unit_b) or ("degrees" in (unit_a, unit_b) and r"\pi" in a + b):
        return Outcome("unknown", "units differ")
    if number_a is not None and number_b is not None:
        return EQUAL if number_a == number_b else UNEQUAL
    if a == b:
        return EQUAL
    if (reason := _not_mathematics(a, b)) is not None:
        numbers_or_words = all(number is not None or is_words(text) for text, number in ((a, number_a), (b, number_b)))
        return UNEQUAL if numbers_or_words else Outcome("unknown", reason)
    return _decide_lists(a, b, judge, nesting, comparisons)


def _decide_texts(a: str, b: str) -> Outcome | None:
    """The outcome if the texts are the same, or if one of them stands for the points of a curve; else None."""
    if points.is_curve(a) or points.is_curve(b):
        verdict = points.compare(a, b)
        return Outcome(verdict, "not rational numbers" if verdict == "unknown" else None)
    return EQUAL if a == b else None


def no_judge(_a: str, _b: str) -> Outcome:
    """The judge of a process that has none: it reports that the symbolic judge is needed."""
    return NEEDS_JUDGE


@lru_cache(maxsize=16_384)
def _quantity(text: str) -> tuple[str, str | None, Fraction | None]:
    """A text without its unit, the unit, and the exact value if the text is a number."""
    body, unit = split_unit(text)
    return body, unit, parse_number(body)


def _not_mathematics(a: str, b: str) -> str | None:
    """Why a judge must not be asked, or None. It would read words as products of letters, and `1 2` as 1 + 2."""
    if any(is_words(text) or _PROSE.search(text) for text in (a, b)):
        return "words"
    if _DIGITS_APART.search(a) or _DIGITS_APART.search(b):
        return "ambiguous spacing"
    return "not balanced" if _split(a) is None or _split(b) is None else None


def _condition(text: str) -> str:
    """The condition of a set of real numbers in set-builder notation, `\\{x\\mid x>2\\}` -> `x>2`; else the text."""
    match = _BUILT_SET.fullmatch(text)
    return match[2] if match and match[1] in match[2] and _RELATION.search(match[2]) else text


def _conclusion(text: str) -> str:
    """A chain of equations without the constants before its last one: `33+7=40` -> `40`, `m+n=33+7=40` -> `m+n=40`."""
    sides = _sides(text)
    while len(sides) > 1 and not any(_VARIABLE.search(split_unit(side)[0]) for side in sides[-2:]):
        del sides[-2]
    return "=".join(sides)


def _sides(text: str) -> list[str]:
    """The sides of an equation or of a chain; the text alone if it is none, as in `\\sum_{n=1}^3n` or `x=1,y=2`."""
    sides = text.split("=")
    chain = len(sides) > 1 and len(_split(text) or ()) == 1 and all(_split(side) for side in sides)
    return sides if chain else [text]


def _without_variable(a: str, b: str) -> tuple[str, str]:
    """Leave out the variable where only the right-hand sides are to be compared.

    This is so for `x=5` against `5` or `x=6`, but not for `x=5` against `y=5`. It is also so for `x\\in[0,1]`, even
    against `0\\le x\\le 1`. `(x,y)=(1,2)` is `(1,2)`, even against `(x=1,y=2)`.
    """
    left, right = _ASSIGNMENT.fullmatch(a), _ASSIGNMENT.fullmatch(b)
    if left and right:
        return (left[3], right[3]) if left[1] == right[1] else (a, b)
    if left and _is_value(left, b):
        return left[3], b
    if right and _is_value(right, a):
        return a, right[3]
    return a, b


def _is_value(assignment: re.Match[str], other: str) -> bool:
    """Whether the other text must be compared with the right-hand side of an assignment."""
    names_a_tuple = assignment[1].startswith("(") and other.startswith("(")
    return assignment[2] != "=" or names_a_tuple or not _RELATION.search(other)


def _decide_lists(a: str, b: str, judge: Judge, nesting: int, comparisons: int) -> Outcome:
    list_a, list_b = _as_list(a), _as_list(b)
    if list_a is None and list_b is None:
        sides = sorted((len(_sides(a)), len(_sides(b))))
        # math-verify compares the ends of `a=b=c`
        return Outcome("unknown", "several relations") if sides[0] == 2 < sides[1] else judge(a, b)
    if nesting > MAX_NESTING:
        return Outcome("unknown", "nested too deep")

    def compare_members(x: str, y: str, left: int) -> Outcome:
        return decide(x, y, judge, nesting + 1, left)

    inequalities = {_INEQUALITY.search(member) is not None for member in _members(list_a) + _members(list_b)}
    if inequalities == {True, False}:
        return Outcome("unknown", "several relations")  # the comma of `x<2,x>3` may be `and` or `or`
    if list_a is not None and list_b is not None:
        return _compare_lists(list_a, list_b, compare_members, comparisons)
    single = a if list_a is None else b
    if _RELATION.search(single) or _SET.search(single):  # an inequality or a union may equal an interval
        return judge(a, b)
    list_a, list_b = list_a or _List("{}", (a,)), list_b or _List("{}", (b,))
    are_sets = list_a.brackets == list_b.brackets
    return _compare_sets(list_a, list_b, compare_members, comparisons) if are_sets else UNEQUAL


def _members(listed: _List | None) -> tuple[str, ...]:
    return ("",) if listed is None else listed.members


def _compare_lists(list_a: _List, list_b: _List, compare_members: _CompareMembers, comparisons: int) -> Outcome:
    """If both lists have brackets, these must agree. Order counts if either list is a tuple or an interval."""
    if list_a.brackets and list_b.brackets and list_a.brackets != list_b.brackets:
        return UNEQUAL
    if {list_a.brackets, list_b.brackets} <= {"", "{}"}:
        return _compare_sets(list_a, list_b, compare_members, comparisons)
    if len(list_a.members) != len(list_b.members):
        return UNEQUAL
    return _all(compare_members(x, y, comparisons) for x, y in zip(list_a.members, list_b.members, strict=True))


def _compare_sets(list_a: _List, list_b: _List, compare_members: _CompareMembers, comparisons: int) -> Outcome:
    """Equal if every member of each list equals a member of the other; order and repetition do not count."""
    members_a, members_b = ({answer_key(x): x for x in listed.members} for listed in (list_a, list_b))
    unmatched_a = [x for key, x in members_a.items() if key not in members_b]
    unmatched_b = [y for key, y in members_b.items() if key not in members_a]
    needed = len(unmatched_a) * len(members_b) + len(unmatched_b) * len(members_a)
    if needed > min(MAX_COMPARISONS, comparisons):
        return Outcome("unknown", "too many members")
    left = comparisons // max(1, needed)  # for the sets in each pair of members
    matches = [_any(compare_members(x, y, left) for y in members_b.values()) for x in unmatched_a]
    matches += [_any(compare_members(x, y, left) for x in members_a.values()) for y in unmatched_b]
    return _all(matches)


def _all(outcomes: Iterable[Outcome]) -> Outcome:
    """Unequal beats unknown beats equal."""
    return _combine(outcomes, decisive=UNEQUAL, otherwise=EQUAL)


def _any(outcomes: Iterable[Outcome]) -> Outcome:
    """Equal beats unknown beats unequal."""
    return _combine(outcomes, decisive=EQUAL, otherwise=UNEQUAL)


def _combine(outcomes: Iterable[Outcome], decisive: Outcome, otherwise: Outcome) -> Outcome:
    """`decisive` as soon as an outcome has its verdict. Otherwise an unknown outcome, preferably `NEEDS_JUDGE`, which a
    judge can still decide; `otherwise` if none is unknown."""
    unknown = None
    for outcome in outcomes:
        if outcome.verdict == decisive.verdict:
            return decisive
        if outcome.verdict == "unknown" and (unknown is None or outcome == NEEDS_JUDGE):
            unknown = outcome
    return unknown or otherwise


def _as_list(text: str) -> _List | None:
    """The normalised members of a tuple, interval, set or bare list; None if the text is a single value.

    `a\\pm b` stands for two values: for two members of a set or a bare list, else for a bare list of two. A single
    member in brackets is a list only in `\\{…\\}`.
    """
    body, brackets = text, ""
    if text.startswith(r"\{") and text.endswith(r"\}"):
        body, brackets = text[2:-2], "{}"
    elif text[:1] in tuple("([") and text[-1:] in tuple(")]"):
        body, brackets = text[1:-1], text[0] + text[-1]
    members = _split(body)
    if members is None or (len(members) == 1 and brackets != "{}"):
        members, brackets = _split(text), ""
        if members is None or (len(members) == 1 and text.count(r"\pm") != 1):
            return None
    if brackets in ("", "{}"):
        members = [value for member in members for value in _both_signs(member)]
    elif text.count(r"\pm") == 1:
        members, brackets = _both_signs(text), ""
    return _List(brackets, tuple(normalise(member) for member in members))


def _both_signs(text: str) -> list[str]:
    """The two values of `a\\pm b`; the text itself if it has no such sign or several."""
    return [text.replace(r"\pm", sign) for sign in "+-"] if text.count(r"\pm") == 1 else [text]


def _split(text: str) -> list[str] | None:
    """The parts between top-level commas and semicolons; None if brackets do not match, as in `1,2)\\cup(3,4`."""
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
