"""Questions with known verdicts that are added to a judge's batch, to detect a judge that does not work.

They are school arithmetic and textbook questions with fresh numbers, drawn from a seed. For `annotate` a third have a
right answer to be judged, a third have a wrong one, and a third are ill-posed because a necessary value was taken out;
for `equivalence` half are right and half are wrong. Of several drafts, the one is chosen that is most similar in words
and length to a question of the batch. Sentinels are in LaTeX if most questions of the batch are.
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
from core.judging.replies import Case, Claimed, JudgePrompt, JudgeResult, Truth

Expected = Literal["right", "wrong", "ill_posed"]
_EXPECTED: dict[JudgePrompt, tuple[Expected, ...]] = {
    "annotate": ("right", "wrong", "ill_posed"),
    "equivalence": ("right", "wrong"),  # it sees no question, so none can be ill-posed
}
_DRAFTS = 6  # of each kind; the one most similar to a question of the batch is chosen
_REPETITION = 0.1  # added to a draft's difference for each sentinel of its kind so far
_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Sentinel:
    """A case with its known verdict. The case has no truth if it is ill-posed."""

    case: Case
    expected: Expected

    def passed(self, prompt: JudgePrompt, result: JudgeResult, grader: Grader) -> bool:
        """Whether the judge got this sentinel right. Under `annotate` the judge's own answer must also be the truth:
        otherwise a judge that answers anything would be right about every wrong label."""
        if result.verdict != self.expected:
            return False
        if prompt == "equivalence" or self.case.truth is None:
            return True
        answer = result.answer
        return answer is not None and grader.compare(answer, self.case.truth.solution).verdict == "equal"


@dataclass(frozen=True, slots=True)
class _Problem:
    """A question, its answer, and the same question without a value that is needed. Formulas are between `$`."""

    question: str
    answer: Fraction
    broken: str


_Kind = Callable[[random.Random], _Problem]


def draw_sentinels(prompt: JudgePrompt, questions: Sequence[str], n: int, seed: int) -> list[Sentinel]:
    """n sentinels for a batch of at least one question. Their keys are `sentinel 0`, `sentinel 1`, …"""
    rng = random.Random(seed)
    latex = 2 * sum("$" in question for question in questions) > len(questions)
    expected_verdicts, used = _EXPECTED[prompt], Counter[_Kind]()
    sentinels = []
    for i in range(n):
        expected, model = expected_verdicts[i % len(expected_verdicts)], rng.choice(questions)
        drafts = [(kind, kind(rng)) for kind in _KINDS for _ in range(_DRAFTS)]

        def difference(draft: tuple[_Kind, _Problem], expected: Expected = expected, model: str = model) -> float:
            # Up to 2 for words and signs that the two questions do not share, and up to 1 for their lengths.
            kind, problem = draft
            text = _question_text(problem, expected, latex)
            ours, theirs = _words(text), _words(model)
            shared = len(ours & theirs) / max(1, len(ours | theirs))
            lengths = abs(len(text) - len(model)) / max(1, len(text), len(model))
            return 2 * (1 - shared) + lengths + _REPETITION * used[kind]

        kind, problem = min(drafts, key=difference)
        used[kind] += 1
        right_answer = _answer_text(problem.answer, latex)
        error = Fraction(rng.choice((-10, -2, -1, 1, 2, 10)), problem.answer.denominator)
        claimed = Claimed(_answer_text(problem.answer + error, latex) if expected == "wrong" else right_answer)
        truth = None if expected == "ill_posed" else Truth(right_answer)
        case = Case(f"sentinel {i}", _question_text(problem, expected, latex), claimed, truth)
        sentinels.append(Sentinel(case, expected))
    return sentinels


def _question_text(problem: _Problem, expected: Expected, latex: bool) -> str:
    question = problem.broken if expected == "ill_posed" else problem.question
    return question if latex else question.replace("$", "")


def _words(text: str) -> set[str]:
    return {"#" if word.isdigit() else word for word in _WORD.findall(text.lower())}


def _answer_text(answer: Fraction, latex: bool) -> str:
    if answer.denominator == 1 or not latex:
        return str(answer)
    return f"{'-' if answer < 0 else ''}\\frac{{{abs(answer.numerator)}}}{{{answer.denominator}}}"


def _expression(rng: random.Random) -> _Problem:
    first, terms = rng.randint(2, 99), [(rng.choice("+-"), rng.randint(2, 99)) for _ in range(rng.randint(1, 6))]
    times = rng.choice((None, rng.randint(2, 9)))
    start = f"{first}" if times is None else f"{first} * {times}"
    template = rng.choice(
        ("What is ${}$?", "Compute ${}$.", "Evaluate ${}$.", "Find the value of ${}$.", "Calculate ${}$.")
    )
    whole = "".join(f" {sign} {number}" for sign, number in terms)
    broken = "".join(f" {sign} {number}" for sign, number in terms[:-1]) + f" {terms[-1][0]} "
    value = first * (times or 1) + sum(number if sign == "+" else -number for sign, number in terms)
    return _Problem(template.format(start + whole), Fraction(value), template.format(start + broken))


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
    setup = f"A number is multiplied by ${times}$, then ${more}$ is added"
    request = "What was the number?"
    return _Problem(
        f"{setup}, and the result is ${times * x + more}$. {request}", Fraction(x), f"{setup} to the result. {request}"
    )


def _rectangle(rng: random.Random) -> _Problem:
    width, length = rng.randint(3, 20), rng.randint(21, 50)
    setup = f"A rectangle has a perimeter of ${2 * (width + length)}$"
    request = "What is the area of the rectangle?"
    return _Problem(f"{setup} and a width of ${width}$. {request}", Fraction(width * length), f"{setup}. {request}")


def _mean(rng: random.Random) -> _Problem:
    n, mean, removed = rng.randint(4, 9), rng.randint(20, 60), rng.randint(2, 19)
    after = Fraction(n * mean - removed, n - 1)
    setup = f"The average of ${n}$ numbers is ${mean}$. When one of them is removed, the average of the others is"
    request = "Which number was removed?"
    shown = f"\\frac{{{after.numerator}}}{{{after.denominator}}}" if after.denominator > 1 else f"{after}"
    return _Problem(f"{setup} ${shown}$. {request}", Fraction(removed), f"{setup} greater. {request}")


def _divisor(rng: random.Random) -> _Problem:
    factor, a, b = rng.randint(2, 30), rng.randint(2, 12), rng.randint(2, 12)
    setup = f"What is the greatest common divisor of ${factor * a}$ and"
    return _Problem(
        f"{setup} ${factor * b}$?", Fraction(gcd(factor * a, factor * b)), f"{setup} another positive integer?"
    )


def _remainder(rng: random.Random) -> _Problem:
    number, by = rng.randint(200, 9999), rng.randint(3, 31)
    setup = f"What is the remainder when ${number}$ is divided by"
    return _Problem(f"{setup} ${by}$?", Fraction(number % by), f"{setup} a positive integer?")


def _series(rng: random.Random) -> _Problem:
    first, step, n = rng.randint(1, 20), rng.randint(2, 9), rng.randint(5, 30)
    setup, request = f"An arithmetic sequence has first term ${first}$", f"Find the sum of its first ${n}$ terms."
    total = Fraction(n * (2 * first + (n - 1) * step), 2)
    return _Problem(f"{setup} and common difference ${step}$. {request}", total, f"{setup}. {request}")


def _committee(rng: random.Random) -> _Problem:
    people = rng.randint(6, 14)
    chosen = rng.randint(2, people // 2)
    setup = f"In how many ways can a committee of ${chosen}$ people be chosen from"
    return _Problem(f"{setup} a group of ${people}$ people?", Fraction(comb(people, chosen)), f"{setup} a large group?")


def _marbles(rng: random.Random) -> _Problem:
    red, blue = rng.randint(2, 12), rng.randint(2, 12)
    setup, request = (
        f"A bag holds ${red}$ red marbles and",
        "One marble is drawn at random. What is the probability that",
    )
    end = f"{request} it is red? Express your answer as a common fraction."
    return _Problem(
        f"{setup} ${blue}$ blue marbles. {end}", Fraction(red, red + blue), f"{setup} some blue ones. {end}"
    )


def _roots(rng: random.Random) -> _Problem:
    r, s = rng.randint(1, 12), rng.randint(1, 12)
    setup, request = "Let $r$ and $s$ be the roots of", "Find the value of $r^2 + s^2$."
    equation = f"$x^2 - {r + s}x + {r * s} = 0$"
    return _Problem(
        f"{setup} {equation}. {request}", Fraction(r * r + s * s), f"{setup} a quadratic equation. {request}"
    )


def _train(rng: random.Random) -> _Problem:
    slow, fast, first, then = rng.randint(40, 70), rng.randint(71, 120), rng.randint(2, 6), rng.randint(2, 6)
    setup = (
        f"A train travels at ${slow}$ kilometers per hour for ${first}$ hours and then at ${fast}$ kilometers per hour"
    )
    request = "How many kilometers does the train travel in all?"
    total = Fraction(slow * first + fast * then)
    return _Problem(f"{setup} for ${then}$ hours. {request}", total, f"{setup} until it arrives. {request}")


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
