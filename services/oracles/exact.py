"""The exact oracle of the tiny world. It parses a question by its grammar and computes the answer in integers.

It knows what the world's questions look like, not how they are drawn. A name or an item may be any word, an operand may
be any integer of up to nine digits, and there may be up to 24 operations. A question that does not match exactly is
ill-posed. Questions are untrusted output of a model, so nothing is evaluated, and each pattern is anchored and bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from core.grading.answers import number_of
from core.types import OracleLabel, OracleVerdict

ILL_POSED = "no answer"  # stands for the answer of a question that has none; equal to no number
MAX_CHARS = 2000
MAX_OPERATIONS = 24
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


def answer(question: str) -> str | None:
    """The result of `solve` as text."""
    truth = solve(question)
    return None if truth is None else str(truth)


def difficulty(question: str) -> int | None:
    """How many operations the question takes, or None when it is ill-posed."""
    arithmetic = _read(question)
    return None if arithmetic is None else len(arithmetic.operators)


def audit(question_id: str, question: str, pseudo_label: str | None) -> OracleLabel:
    """The oracle's label of a question. Numbers are compared exactly; a pseudo-label that is not a number is wrong.

    The verdict is `unknown` if a well-posed question has no pseudo-label, because then nothing can be right or wrong.
    """
    truth = solve(question)
    verdict: OracleVerdict
    if truth is None:
        verdict = "ill_posed"
    elif pseudo_label is None:
        verdict = "unknown"
    else:
        verdict = "right" if number_of(pseudo_label) == truth else "wrong"
    return OracleLabel(question_id, "exact", verdict, None if truth is None else str(truth))


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
