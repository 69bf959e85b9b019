"""Questions with known verdicts that are put among a judge's, so that a judge which does not work is found out.

They are drawn from a seed: school arithmetic and textbook questions with fresh numbers, a third of them with a right
answer to be judged, a third with a wrong one, a third made ill-posed by taking out a datum. Of several drafts the one
is taken that is most like one of the batch's own questions in words and length, in LaTeX or not as they are.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, gcd
from typing import Literal

from core.grading.grader import Grader
from core.judging.replies import Case, Claimed, Judged, JudgePrompt, Truth

Expected = Literal["right", "wrong", "ill_posed"]
_TURNS: dict[JudgePrompt, tuple[Expected, ...]] = {
    "annotate": ("right", "wrong", "ill_posed"),
    "equivalence": ("right", "wrong"),  # it sees no question, so none can be ill-posed
}
_DRAFTS = 6  # of each kind, from which the one is taken that is most like a question of the batch
_REPETITION = 0.1  # what every sentinel of a kind takes from the likeness of the next
_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Sentinel:
    """A case with its verdict. Its truth is None when it is ill-posed."""

    case: Case
    expected: Expected

    def passed(self, prompt: JudgePrompt, judged: Judged, grader: Grader) -> bool:
        """Whether the judge got it right. Where it gives an answer of its own that has to be the truth: a judge that
        answers anything would find every wrong label wrong."""
        if judged.verdict != self.expected:
            return False
        if prompt == "equivalence" or self.case.truth is None:
            return True
        own = judged.answer
        return own is not None and grader.compare(own, self.case.truth.solution).verdict == "equal"


@dataclass(frozen=True, slots=True)
class _Problem:
    """A question, its answer, and the same question without something that is needed. `$` stands around formulas."""

    question: str
    answer: Fraction
    broken: str


_Kind = Callable[[random.Random], _Problem]


def draw_sentinels(prompt: JudgePrompt, questions: Sequence[str], n: int, seed: int) -> list[Sentinel]:
    """n sentinels for a batch of `questions`, which are not empty; their keys are `sentinel 0`, `sentinel 1`, …"""
    rng = random.Random(seed)
    latex = 2 * sum("$" in question for question in questions) > len(questions)
    turns, used = _TURNS[prompt], Counter[_Kind]()
    sentinels = []
    for i in range(n):
        expected, like = turns[i % len(turns)], rng.choice(questions)
        drafts = [(kind, kind(rng)) for kind in _KINDS for _ in range(_DRAFTS)]

        def unlike(draft: tuple[_Kind, _Problem], expected: Expected = expected, like: str = like) -> float:
            kind, problem = draft
            return _difference(_asked(problem, expected, latex), like) + _REPETITION * used[kind]

        kind, problem = min(drafts, key=unlike)
        used[kind] += 1
        sentinels.append(_sentinel(f"sentinel {i}", problem, expected, latex, rng))
    return sentinels


def _sentinel(key: str, problem: _Problem, expected: Expected, latex: bool, rng: random.Random) -> Sentinel:
    truth = _spelled(problem.answer, latex)
    off = Fraction(rng.choice((-10, -2, -1, 1, 2, 10)), problem.answer.denominator)
    claimed = Claimed(_spelled(problem.answer + off, latex) if expected == "wrong" else truth)
    known = None if expected == "ill_posed" else Truth(truth)
    return Sentinel(Case(key, _asked(problem, expected, latex), claimed, known), expected)


def _asked(problem: _Problem, expected: Expected, latex: bool) -> str:
    question = problem.broken if expected == "ill_posed" else problem.question
    return question if latex else question.replace("$", "")


def _difference(a: str, b: str) -> float:
    """How unlike two questions look: 2 where they share no word or sign, and up to 1 for their lengths."""
    words, others = _words(a), _words(b)
    shared = len(words & others) / max(1, len(words | others))
    return 2 * (1 - shared) + abs(len(a) - len(b)) / max(1, len(a), len(b))


def _words(text: str) -> set[str]:
    return {"#" if word.isdigit() else word for word in _WORD.findall(text.lower())}


def _spelled(answer: Fraction, latex: bool) -> str:
    if answer.denominator == 1 or not latex:
        return str(answer)
    return f"{'-' if answer < 0 else ''}\\frac{{{abs(answer.numerator)}}}{{{answer.denominator}}}"


def _expression(rng: random.Random) -> _Problem:
    first, more = rng.randint(2, 99), [(rng.choice("+-"), rng.randint(2, 99)) for _ in range(rng.randint(1, 6))]
    times = rng.choice((None, rng.randint(2, 9)))
    start = f"{first}" if times is None else f"{first} * {times}"
    ask = rng.choice(("What is ${}$?", "Compute ${}$.", "Evaluate ${}$.", "Find the value of ${}$.", "Calculate ${}$."))
    whole = "".join(f" {sign} {number}" for sign, number in more)
    broken = "".join(f" {sign} {number}" for sign, number in more[:-1]) + f" {more[-1][0]} "
    value = first * (times or 1) + sum(number if sign == "+" else -number for sign, number in more)
    return _Problem(ask.format(start + whole), Fraction(value), ask.format(start + broken))


def _boxes(rng: random.Random) -> _Problem:
    boxes, in_a_box, item = rng.randint(2, 19), rng.randint(3, 99), rng.choice(_ITEMS)
    end = f"with ${in_a_box}$ {item} each. How many {item} are there?"
    return _Problem(f"There are ${boxes}$ boxes {end}", Fraction(boxes * in_a_box), f"There are some boxes {end}")


def _story(rng: random.Random) -> _Problem:
    name, item, start = rng.choice(_NAMES), rng.choice(_ITEMS), rng.randint(10, 99)
    total, events = start, ""
    for i in range(rng.randint(1, 10)):
        number = rng.randint(2, 99)
        gain = total < number or rng.random() < 0.6
        total += number if gain else -number
        verb = rng.choice(("finds", "buys", "wins", "gets") if gain else ("loses", "sells", "eats", "drops"))
        events += f", {'then ' if i else ''}{verb} ${number}${' more' if gain else ''}"
    end = f"{item}{events}. How many {item} does {name} have?"
    return _Problem(f"{name} has ${start}$ {end}", Fraction(total), f"{name} has some {end}")


def _number(rng: random.Random) -> _Problem:
    x, times, more = rng.randint(2, 40), rng.randint(2, 9), rng.randint(2, 60)
    given = f"A number is multiplied by ${times}$, then ${more}$ is added"
    asked = "What was the number?"
    return _Problem(
        f"{given}, and the result is ${times * x + more}$. {asked}", Fraction(x), f"{given} to the result. {asked}"
    )


def _rectangle(rng: random.Random) -> _Problem:
    width, length = rng.randint(3, 20), rng.randint(21, 50)
    given = f"A rectangle has a perimeter of ${2 * (width + length)}$"
    asked = "What is the area of the rectangle?"
    return _Problem(f"{given} and a width of ${width}$. {asked}", Fraction(width * length), f"{given}. {asked}")


def _mean(rng: random.Random) -> _Problem:
    n, mean, removed = rng.randint(4, 9), rng.randint(20, 60), rng.randint(2, 19)
    after = Fraction(n * mean - removed, n - 1)
    given = f"The average of ${n}$ numbers is ${mean}$. When one of them is removed, the average of the others is"
    asked = "Which number was removed?"
    shown = f"\\frac{{{after.numerator}}}{{{after.denominator}}}" if after.denominator > 1 else f"{after}"
    return _Problem(f"{given} ${shown}$. {asked}", Fraction(removed), f"{given} greater. {asked}")


def _divisor(rng: random.Random) -> _Problem:
    factor, a, b = rng.randint(2, 30), rng.randint(2, 12), rng.randint(2, 12)
    given = f"What is the greatest common divisor of ${factor * a}$ and"
    return _Problem(
        f"{given} ${factor * b}$?", Fraction(gcd(factor * a, factor * b)), f"{given} another positive integer?"
    )


def _remainder(rng: random.Random) -> _Problem:
    number, by = rng.randint(200, 9999), rng.randint(3, 31)
    given = f"What is the remainder when ${number}$ is divided by"
    return _Problem(f"{given} ${by}$?", Fraction(number % by), f"{given} a positive integer?")


def _series(rng: random.Random) -> _Problem:
    first, step, n = rng.randint(1, 20), rng.randint(2, 9), rng.randint(5, 30)
    given, asked = f"An arithmetic sequence has first term ${first}$", f"Find the sum of its first ${n}$ terms."
    total = Fraction(n * (2 * first + (n - 1) * step), 2)
    return _Problem(f"{given} and common difference ${step}$. {asked}", total, f"{given}. {asked}")


def _committee(rng: random.Random) -> _Problem:
    people = rng.randint(6, 14)
    chosen = rng.randint(2, people // 2)
    given = f"In how many ways can a committee of ${chosen}$ people be chosen from"
    return _Problem(f"{given} a group of ${people}$ people?", Fraction(comb(people, chosen)), f"{given} a large group?")


def _marbles(rng: random.Random) -> _Problem:
    red, blue = rng.randint(2, 12), rng.randint(2, 12)
    given, asked = f"A bag holds ${red}$ red marbles and", "One marble is drawn at random. What is the probability that"
    end = f"{asked} it is red? Express your answer as a common fraction."
    return _Problem(
        f"{given} ${blue}$ blue marbles. {end}", Fraction(red, red + blue), f"{given} some blue ones. {end}"
    )


def _roots(rng: random.Random) -> _Problem:
    r, s = rng.randint(1, 12), rng.randint(1, 12)
    given, asked = "Let $r$ and $s$ be the roots of", "Find the value of $r^2 + s^2$."
    equation = f"$x^2 - {r + s}x + {r * s} = 0$"
    return _Problem(f"{given} {equation}. {asked}", Fraction(r * r + s * s), f"{given} a quadratic equation. {asked}")


def _train(rng: random.Random) -> _Problem:
    slow, fast, first, then = rng.randint(40, 70), rng.randint(71, 120), rng.randint(2, 6), rng.randint(2, 6)
    given = (
        f"A train travels at ${slow}$ kilometers per hour for ${first}$ hours and then at ${fast}$ kilometers per hour"
    )
    asked = "How many kilometers does the train travel in all?"
    total = Fraction(slow * first + fast * then)
    return _Problem(f"{given} for ${then}$ hours. {asked}", total, f"{given} until it arrives. {asked}")


_NAMES = ("Tom", "Mia", "Sam", "Ana", "Leo", "Zoe", "Max", "Eva")
_ITEMS = ("apples", "coins", "books", "cards", "shells", "pens", "stones", "marbles")
_KINDS: tuple[_Kind, ...] = (
    _expression,
    _boxes,
    _story,
    _number,
    _rectangle,
    _mean,
    _divisor,
    _remainder,
    _series,
    _committee,
    _marbles,
    _roots,
    _train,
)
