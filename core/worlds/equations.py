"""The questions of the tiny world `micro-equations`: parses a system of equations and solves it one letter at a time.

It knows what the world's questions look like, not how they are drawn. An equation has at most one operation, a number
has at most nine digits and no sign, and a product has a number as a factor. Each equation must give the value of one
more letter, in whatever order they stand. Otherwise the question is ill-posed, even if the superfluous equation is
true. Questions are untrusted output of a model, so nothing is evaluated, and each pattern is anchored and bounded:
there can be as many equations as letters.
"""

from __future__ import annotations

import random
import re
from collections.abc import Container
from dataclasses import dataclass
from string import ascii_lowercase

MAX_CHARS = 2000
ASKS = (
    "If {e}, what is {x}?",
    "Given {e}, find {x}.",
    "Let {e}. What is {x}?",
    "Suppose {e}. Find {x}.",
    "Solve {e} for {x}.",
)

_TERM = r"(?:[a-z]|0|[1-9][0-9]{0,8})"
_SIDE = rf"{_TERM}(?: ?[-+*] ?{_TERM})?"
_SYSTEM = rf"({_SIDE} ?= ?{_SIDE}(?:, {_SIDE} ?= ?{_SIDE}){{0,{len(ascii_lowercase) - 1}}})"
_QUESTIONS = [re.compile(re.escape(ask).replace(r"\{e\}", _SYSTEM).replace(r"\{x\}", "([a-z])")) for ask in ASKS]


@dataclass(frozen=True, slots=True)
class Relation:
    """`whole = parts[0] + parts[1]`, or a product of two parts, or one part without an operator. All are terms: a
    letter, or a number in digits."""

    whole: str
    operator: str
    parts: tuple[str, ...]

    @property
    def terms(self) -> tuple[str, ...]:
        return self.whole, *self.parts

    def written(self, rng: random.Random) -> str:
        """One of the equations that say so, with either side first."""
        if not self.operator:
            return f"{self.whole} = {self.parts[0]}"
        a, b = rng.sample(self.parts, 2)
        is_difference = self.operator == "+" and rng.random() < 0.5
        left, right = (a, f"{self.whole} - {b}") if is_difference else (self.whole, f"{a} {self.operator} {b}")
        return f"{left} = {right}" if rng.random() < 0.5 else f"{right} = {left}"


@dataclass(slots=True)
class _Solution:
    """What solving a question gives, letter by letter."""

    asked: str
    relations: list[Relation]  # in an order in which each gives one more letter
    values: dict[str, int]  # of each letter
    operators: dict[str, str]  # what gives each letter; empty if the question says its number
    needed: dict[str, set[str]]  # the letters that an operation gives, on the way to each letter


def solve(question: str) -> int | None:
    """The answer, or None when the question is ill-posed."""
    solution = _solution(question)
    return None if solution is None else solution.values[solution.asked]


def difficulty(question: str) -> int | None:
    """How many operations the answer takes, or None when the question is ill-posed."""
    solution = _solution(question)
    return None if solution is None else len(solution.needed[solution.asked])


def skeleton(question: str) -> str | None:
    """The operations that lead to the answer, in order, such as "+ - *". None when the question is ill-posed."""
    solution = _solution(question)
    if solution is None:
        return None
    return " ".join(sign for letter, sign in solution.operators.items() if letter in solution.needed[solution.asked])


def reordered(question: str, rng: random.Random) -> str | None:
    """The same system with other letters, its equations written otherwise, and in another order if there is one.

    Each equation has one letter that those before it do not have. None if the question is ill-posed.
    """
    solution = _solution(question)
    if solution is None:
        return None
    letters = dict(zip(solution.values, rng.sample(ascii_lowercase, len(solution.values)), strict=True))
    waiting, known, equations = list(solution.relations), set[str](), list[str]()
    while waiting:
        relation = rng.choice([relation for relation in waiting if _next_letter(relation, known)])
        waiting.remove(relation)
        known |= {term for term in relation.terms if term.isalpha()}
        equations.append(re.sub("[a-z]", lambda letter: letters[letter[0]], relation.written(rng)))
    return rng.choice(ASKS).format(e=", ".join(equations), x=letters[solution.asked])


def _solution(question: str) -> _Solution | None:
    if len(question) > MAX_CHARS:
        return None
    text = " ".join(question.split())
    match = next((match for pattern in _QUESTIONS if (match := pattern.fullmatch(text))), None)
    if match is None:
        return None
    waiting = [_relation(equation) for equation in match[1].split(", ")]
    solution = _Solution(match[2], [], {}, {}, {})
    values, needed = solution.values, solution.needed
    while waiting:
        for relation in waiting:
            if relation is not None and (letter := _next_letter(relation, values)) is not None:
                break
        else:
            return None
        waiting.remove(relation)
        known = [term for term in relation.terms if term != letter]
        sign = "-" if relation.operator == "+" and letter != relation.whole else relation.operator
        a, b = [*(values[term] if term in values else int(term) for term in known), 0][:2]
        values[letter] = a * b if sign == "*" else a - b if sign == "-" else a + b  # without a sign, b is 0
        needed[letter] = set().union(*(needed[term] for term in known if term in needed), [letter] if sign else [])
        solution.operators[letter] = sign
        solution.relations.append(relation)
    return solution if solution.asked in values else None


def _relation(equation: str) -> Relation | None:
    """What an equation says; None if it has two operations, or a product of two letters."""
    left, right = (re.findall(r"[a-z]|[0-9]+|[-+*]", side) for side in equation.split("="))
    shorter, longer = sorted((left, right), key=len)
    if len(shorter) > 1:
        return None
    if len(longer) == 1:
        return Relation(left[0], "", (right[0],))
    a, sign, b = longer
    if sign == "-":
        return Relation(a, "+", (shorter[0], b))
    return None if sign == "*" and (a + b).isalpha() else Relation(shorter[0], sign, (a, b))


def _next_letter(relation: Relation, known: Container[str]) -> str | None:
    """The letter that `relation` gives when those in `known` are known; None if it gives none."""
    unknown = [term for term in relation.terms if term.isalpha() and term not in known]
    if len(unknown) != 1 or (relation.operator == "*" and unknown != [relation.whole]):
        return None
    return unknown[0]
