"""Systems of equations, each with one letter that the equations before it do not have.

A line solves the next equation for its new letter, with the numbers that are known by then. So the Solver must look up
results of earlier lines and turn equations round, while the arithmetic is easier than in `arithmetic`. Every result is
needed for the answer.
"""

from __future__ import annotations

import random
import re
from string import ascii_lowercase

from core.worlds.equations import ASKS, Relation
from trainers.micro.families import Problem, number

PIECES = r"\d|\b[a-z]\b| ?[^\s\d]+ ?|\s+"  # digits, letters, words, spaces
LARGEST = 999  # absolute value of a result
NEGATIVE = 0.3  # share of the negative results that are not drawn again
OPERATIONS = (0.44, 0.4, 0.16)  # shares of + - *; there is at most one product, of a number up to 9 and one up to 99
# Probabilities: that another number is given before an equation, if its letter can still be used; that an equation has
# two letters that no other has used yet, if there are two; and otherwise that it has an earlier letter, not a number.
GIVEN, JOINS, EARLIER = 0.25, 0.4, 0.2


def make(rng: random.Random, operations: int) -> Problem:
    """A problem with so many operations, at most 12: each takes up to two of the 26 letters."""
    letters = rng.sample(ascii_lowercase, 2 * operations + 1)
    values, unused = dict[str, int](), list[str]()
    equations, lines, may_multiply = list[str](), list[str](), True
    for left in range(operations, 0, -1):
        while not unused or (len(unused) <= left and rng.random() < GIVEN):
            unused.append(letters.pop())
            values[unused[-1]] = number(rng)
            equations.append(f"{unused[-1]} = {values[unused[-1]]}")
        if len(unused) > left or (len(unused) > 1 and rng.random() < JOINS):
            known = rng.sample(unused, 2)
        else:
            letter = rng.choice(unused)
            others = [other for other in values if other != letter]
            known = [letter, rng.choice(others) if others and rng.random() < EARLIER else str(number(rng))]
            rng.shuffle(known)
        new = letters.pop()
        equation, sign, line, values[new] = _equation(rng, new, known, values, may_multiply)
        may_multiply &= sign != "*"
        unused = [*(letter for letter in unused if letter not in known), new]
        equations.append(equation)
        lines.append(line)
    text = rng.choice(ASKS).format(e=", ".join(equations), x=unused[0])
    return Problem(text, tuple(lines), values[unused[0]])


def make_ill_posed(question: str, rng: random.Random) -> str:
    """An ill-posed version of `question`: a number or an equation is missing, or the end is cut off."""
    kind = rng.random()
    if kind < 0.5:
        start, end = rng.choice(list(re.finditer("[0-9]+", question))).span()
        return " ".join(f"{question[:start]}{question[end:]}".split())
    if kind < 0.75:
        equations = re.findall(r"\b(?:[a-z]|[0-9]+)(?: [-+*=] \w+)+", question)
        left = list(equations)
        left.remove(rng.choice(left))
        return question.replace(", ".join(equations), ", ".join(left))
    return question[: len(question) * 2 // 3].rstrip()


def _equation(
    rng: random.Random, new: str, known: list[str], values: dict[str, int], may_multiply: bool
) -> tuple[str, str, str, int]:
    """An equation for the letter `new`, its operation, the line that solves it, and its result.

    `known` are two terms: letters, whose values are given, or a letter and a number. A product has another number.
    """
    while True:
        sign, terms = rng.choices("+-*", OPERATIONS)[0], known
        if sign == "*":
            if not may_multiply or all(term in values for term in known):
                continue
            terms = [term if term in values else str(rng.randint(2, 9)) for term in known]
        a, b = (values[term] if term in values else int(term) for term in terms)
        result = a + b if sign == "+" else a - b if sign == "-" else a * b
        is_small = abs(result) <= LARGEST and (sign != "*" or max(abs(a), abs(b)) <= 99)
        if is_small and (result >= 0 or rng.random() < NEGATIVE):
            break
    relation = Relation(terms[0], "+", (new, terms[1])) if sign == "-" else Relation(new, sign, (terms[0], terms[1]))
    equation = relation.written(rng)
    in_text = re.findall(r"\w+", equation)
    if sign != "-" and in_text.index(terms[0]) > in_text.index(terms[1]):
        a, b = b, a
    return equation, sign, f"{new} = {a} {sign} {b} = {result}", result
