"""The questions of `micro` and `micro-long`: parses one by its grammar and computes the answer in integers.

It knows what the world's questions look like, not how they are drawn. A name or an item may be any word, an operand may
be any integer of up to nine digits, and there may be up to 24 operations. A question that does not match exactly is
ill-posed. Questions are untrusted output of a model, so nothing is evaluated, and each pattern is anchored and bounded.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

MAX_CHARS = 2000
MAX_OPERATIONS = 24
_TRIES = 20  # to find another order
GAINS = ("finds", "buys", "wins", "gets")
LOSSES = ("loses", "sells", "eats", "drops")

_NUMBER = r"(?:0|[1-9][0-9]{0,8})"  # no leading zeros, no sign
_WORD = r"[^\W\d_]+"
_SUM = rf"{_NUMBER}(?: ?[-+*] ?{_NUMBER}){{0,{MAX_OPERATIONS}}}"
_VERB = "|".join(GAINS + LOSSES)
_EVENTS = rf"(?:, (?:then )?(?:{_VERB}) {_NUMBER}(?: more)?){{0,{MAX_OPERATIONS}}}"

_EXPRESSION = re.compile(rf"(?:What is ({_SUM})\?|(?:Compute|Evaluate|Find the value of|Calculate) ({_SUM})\.)")
_BOXES = re.compile(rf"There are ({_NUMBER}) boxes with ({_NUMBER}) (?!boxes )({_WORD}) each\. How many \3 are there\?")
_STORY = re.compile(rf"({_WORD}) has ({_NUMBER}) (?!more\b)({_WORD})({_EVENTS})\. How many \3 does \1 have\?")


@dataclass(frozen=True, slots=True)
class _Arithmetic:
    """The expression `operands[0] operators[0] operands[1] …`, in which `*` is evaluated before `+` and `-`."""

    operands: tuple[int, ...]
    operators: tuple[str, ...]


def solve(question: str) -> int | None:
    """The answer, or None when the question is ill-posed."""
    arithmetic = _read(question)
    if arithmetic is None:
        return None
    first, *rest = arithmetic.operands
    terms = [first]
    for operator, operand in zip(arithmetic.operators, rest, strict=True):
        if operator == "*":
            terms[-1] *= operand
        else:
            terms.append(operand if operator == "+" else -operand)
    return sum(terms)


def difficulty(question: str) -> int | None:
    """How many operations the question takes, or None when it is ill-posed."""
    arithmetic = _read(question)
    return None if arithmetic is None else len(arithmetic.operators)


def skeleton(question: str) -> str | None:
    """The operators in order, such as "+ - *", or None when the question is ill-posed."""
    arithmetic = _read(question)
    return None if arithmetic is None else " ".join(arithmetic.operators)


def reordered(question: str, rng: random.Random) -> str | None:
    """The question with its terms, or the events of its story, in another order, which leaves the answer as it is.

    None if the question is ill-posed, or has no other order.
    """
    if _read(question) is None:
        return None
    text = " ".join(question.split())
    if match := _EXPRESSION.fullmatch(text):
        group = 1 if match[1] else 2
        terms = _another_order(re.findall(r"[-+] ?[^-+]+", "+ " + match[group]), rng, first="+")
        parts = [f"{term[0]} {term[1:].strip()}" for term in terms]
        changed = " ".join(parts).removeprefix("+ ")
    elif match := _STORY.fullmatch(text):
        group = 4
        events = _another_order(re.findall(rf"(?:{_VERB}) {_NUMBER}(?: more)?", match[group]), rng)
        changed = "".join(f", {'then ' if index else ''}{event}" for index, event in enumerate(events))
    else:
        return None
    start, end = match.span(group)
    return f"{text[:start]}{changed}{text[end:]}" if changed and changed != text[start:end] else None


def _another_order(parts: list[str], rng: random.Random, first: str = "") -> list[str]:
    """A random order of the parts that is not theirs, and begins with a part that begins with `first`.

    Their own order if there is no other one.
    """
    heads = [index for index, part in enumerate(parts) if part.startswith(first)]
    for _ in range(_TRIES):
        head = rng.choice(heads)
        rest = parts[:head] + parts[head + 1 :]
        order = [parts[head], *rng.sample(rest, len(rest))]
        if order != parts:
            return order
    return parts


def _read(question: str) -> _Arithmetic | None:
    if len(question) > MAX_CHARS:
        return None
    text = " ".join(question.split())
    if match := _EXPRESSION.fullmatch(text):
        expression = match[1] or match[2]
        return _Arithmetic(_numbers(expression), tuple(re.findall(r"[-+*]", expression)))
    if match := _BOXES.fullmatch(text):
        return _Arithmetic((int(match[1]), int(match[2])), ("*",))
    if match := _STORY.fullmatch(text):
        verbs = re.findall(_VERB, match[4])
        return _Arithmetic((int(match[2]), *_numbers(match[4])), tuple("+" if verb in GAINS else "-" for verb in verbs))
    return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]+", text)))
