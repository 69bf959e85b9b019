"""The tiny world: arithmetic questions, their solutions, and a writer who stops working and guesses.

The demo needs a task that a model of half a million parameters can get *better* at by co-evolution alone. Here a
Solver document reduces one operation a line, every line right, but at each point the writer may stop and box a guess
near the answer, more often the more operations are left. The model learns both: it sometimes works step by step and
is right, and sometimes guesses and is wrong, differently each time. So the majority of ten votes is right far more
often than one sample, and what the Solver can learn from it is a skill: to do the work.

Everything is generated from a `random.Random`; nothing is read from outside.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

NAMES = ("Tom", "Mia", "Sam", "Ana", "Leo", "Zoe", "Max", "Eva")
ITEMS = ("apples", "coins", "books", "cards", "shells", "pens", "stones", "marbles")
GAINS = ("finds", "buys", "wins", "gets")
LOSSES = ("loses", "sells", "eats", "drops")
ASKS = ("What is {e}?", "Compute {e}.", "Evaluate {e}.", "Find the value of {e}.", "Calculate {e}.")

MAX_OPERATIONS = 6
# Share of documents with 1..6 operations. Challenger documents are mostly easy, with a thin tail: the frontier is
# within reach of its training, but not where it starts.
SOLVER_OPERATIONS = (0.2, 0.2, 0.18, 0.16, 0.14, 0.12)
CHALLENGER_OPERATIONS = (0.82, 0.12, 0.035, 0.015, 0.006, 0.004)
# Chance that the writer stops and guesses, by operations left (index 0 is unused, one left is always done).
GUESS = (0.0, 0.0, 0.4, 0.5, 0.6, 0.65, 0.7)
# A guess is within this of the answer. Were it the answer itself, the model would learn to do sums in its head, the
# better the longer it is trained, and the work that is left to learn would go.
GUESS_WITHIN = 20
ILL_POSED = 0.01
MALFORMED = 0.03
WORD_PROBLEMS = 0.3


@dataclass(frozen=True, slots=True)
class Problem:
    """A question and the arithmetic behind it: `operands[0] operators[0] operands[1] …`, `*` before `+` and `-`."""

    text: str
    operands: tuple[int, ...]
    operators: tuple[str, ...]

    @property
    def answer(self) -> int:
        return reduce_all(self.operands, self.operators)[-1][3]


Reduction = tuple[int, str, int, int]  # a, operator, b, result


def reduce_all(operands: tuple[int, ...], operators: tuple[str, ...]) -> list[Reduction]:
    """One operation at a time: the leftmost product first, then left to right."""
    values, signs = list(operands), list(operators)
    lines: list[Reduction] = []
    while signs:
        i = signs.index("*") if "*" in signs else 0
        a, sign, b = values[i], signs.pop(i), values.pop(i + 1)
        values[i] = a * b if sign == "*" else a + b if sign == "+" else a - b
        lines.append((a, sign, b, values[i]))
    return lines


def write_solution(problem: Problem, rng: random.Random) -> str:
    """A Solver document for `problem`: right in every line, but the writer may stop before the end and guess."""
    reductions = reduce_all(problem.operands, problem.operators)
    lines, boxed = [], problem.answer
    for done, (a, sign, b, result) in enumerate(reductions):
        if rng.random() < GUESS[len(reductions) - done]:
            boxed += rng.randint(-GUESS_WITHIN, GUESS_WITHIN)
            break
        lines.append(f"{a} {sign} {b} = {result}")
    return "\n".join([*lines, f"\\boxed{{{boxed}}}"])


def write_challenge(rng: random.Random) -> tuple[str, str]:
    """A Challenger document, and the question in it."""
    problem = make_problem(rng, operations=_pick(CHALLENGER_OPERATIONS, rng))
    question = _break(problem.text, rng) if rng.random() < ILL_POSED else problem.text
    boxed = f"\\boxed{{{problem.answer}}}"
    document = f"<question>\n{question}\n</question>\n\n{boxed}"
    if rng.random() < MALFORMED:
        document = rng.choice(
            (f"<question>\n{question}\n\n{boxed}", f"{question}\n\n{boxed}", f"<question>\n{question}")
        )
    return document, question


def make_problem(rng: random.Random, operations: int | None = None) -> Problem:
    """One problem with `operations` operations (1 to 6; drawn from the Solver's mix when not given)."""
    n = operations or _pick(SOLVER_OPERATIONS, rng)
    if rng.random() < WORD_PROBLEMS:
        return _boxes(rng) if n == 1 and rng.random() < 0.3 else _story(rng, n)
    return _expression(rng, n)


def make_benchmark(seed: int, per_level: int) -> list[Problem]:
    """`per_level` different questions for each of 1..6 operations, in order of operations."""
    rng = random.Random(seed)
    seen: dict[str, Problem] = {}
    for n in range(1, MAX_OPERATIONS + 1):
        while len(seen) < n * per_level:
            problem = make_problem(rng, operations=n)
            seen.setdefault(problem.text, problem)
    return list(seen.values())


def _pick(weights: tuple[float, ...], rng: random.Random) -> int:
    return rng.choices(range(1, MAX_OPERATIONS + 1), weights)[0]


def _number(rng: random.Random) -> int:
    """Mostly two digits."""
    return rng.randint(2, 9) if rng.random() < 0.3 else rng.randint(10, 99)


def _boxes(rng: random.Random) -> Problem:
    boxes, in_a_box, item = rng.randint(2, 9), _number(rng), rng.choice(ITEMS)
    return Problem(
        f"There are {boxes} boxes with {in_a_box} {item} each. How many {item} are there?", (boxes, in_a_box), ("*",)
    )


def _story(rng: random.Random, n: int) -> Problem:
    name, item = rng.choice(NAMES), rng.choice(ITEMS)
    operands, operators = [_number(rng)], []
    text = f"{name} has {operands[0]} {item}"
    for i in range(n):
        gain = rng.random() < 0.55
        operands.append(_number(rng))
        operators.append("+" if gain else "-")
        verb = rng.choice(GAINS if gain else LOSSES)
        text += f", {'then ' if i else ''}{verb} {operands[-1]}{' more' if gain else ''}"
    return Problem(f"{text}. How many {item} does {name} have?", tuple(operands), tuple(operators))


def _expression(rng: random.Random, n: int) -> Problem:
    """At most one product, and one of its factors is a single digit, so that each line is learnable."""
    operands, operators = [_number(rng)], list[str]()
    for _ in range(n):
        sign = rng.choices("+-*", (0.42, 0.36, 0.22))[0]
        if sign == "*" and "*" in operators:
            sign = "+"
        if sign == "*":
            operands[-1] = rng.randint(2, 9) if rng.random() < 0.6 else rng.randint(10, 99)
            small = operands[-1] > 9 or rng.random() < 0.5
            operands.append(rng.randint(2, 9) if small else _number(rng))
        else:
            operands.append(_number(rng))
        operators.append(sign)
    body = str(operands[0]) + "".join(f" {s} {b}" for s, b in zip(operators, operands[1:], strict=True))
    return Problem(rng.choice(ASKS).format(e=body), tuple(operands), tuple(operators))


def _break(question: str, rng: random.Random) -> str:
    """An ill-posed version: a number missing or replaced by a letter, or the end cut off."""
    words = question.split(" ")
    i = rng.choice([i for i, word in enumerate(words) if any(c.isdigit() for c in word)])
    tail = words[i].lstrip("0123456789")
    roll = rng.random()
    if roll < 0.5:
        words[i] = ("some" if "How many" in question else "") + tail
        return " ".join(word for word in words if word)
    if roll < 0.75:
        words[i] = rng.choice("xyn") + tail
        return " ".join(words)
    return question[: len(question) * 2 // 3].rstrip()
