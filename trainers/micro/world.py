"""The tiny world: generates arithmetic questions, and solutions in which the writer may stop early and guess.

The demo needs a task at which a model of half a million parameters can become better by co-evolution alone. A Solver
document computes one operation per line, and every line is right. But before each line the writer may stop and box a
guess near the answer, with a probability that grows with the number of operations left. The model learns both: it
sometimes works step by step and is right, and sometimes guesses and is wrong, differently each time. So the majority of
ten votes is right far more often than one sample, and from it the Solver can learn a skill: to work step by step.

Everything is generated from a `random.Random`; nothing is read from files or the network.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

NAMES = ("Tom", "Mia", "Sam", "Ana", "Leo", "Zoe", "Max", "Eva")
ITEMS = ("apples", "coins", "books", "cards", "shells", "pens", "stones", "marbles")
GAINS = ("finds", "buys", "wins", "gets")
LOSSES = ("loses", "sells", "eats", "drops")
ASKS = ("What is {e}?", "Compute {e}.", "Evaluate {e}.", "Find the value of {e}.", "Calculate {e}.")

# Probability that the writer stops and guesses, by the number of operations left; the last value is for more. Index 0
# is unused, and the last operation is always done.
GUESS = (0.0, 0.0, 0.4, 0.5, 0.6, 0.65, 0.7)
# The largest difference between a guess and the answer. If guesses were always right, the model would learn to compute
# answers without intermediate lines, better with every step of pre-training, and nothing would be left to learn.
GUESS_WITHIN = 20
ILL_POSED = 0.01  # share of Challenger documents
MALFORMED = 0.03  # share of Challenger documents
WORD_PROBLEMS = 0.3  # share of problems


@dataclass(frozen=True, slots=True)
class World:
    """How long the questions are: the share of documents with 1, 2, … operations.

    Challenger documents are mostly easy, with few hard ones: the questions that are hard for the Solver are within
    reach of the Challenger's training, but it does not start with them.
    """

    solver_operations: tuple[float, ...]
    challenger_operations: tuple[float, ...]

    @property
    def max_operations(self) -> int:
        return len(self.solver_operations)


SHORT = World((0.2, 0.2, 0.18, 0.16, 0.14, 0.12), (0.82, 0.12, 0.035, 0.015, 0.006, 0.004))
LONG = World(
    (0.12, 0.12, 0.11, 0.1, 0.1, 0.09, 0.06, 0.06, 0.06, 0.06, 0.06, 0.06),
    (0.8, 0.12, 0.04, 0.018, 0.009, 0.005, 0.0014, 0.0014, 0.0013, 0.0013, 0.0013, 0.0013),
)


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
    """Compute one operation at a time: products first, then the others, each from left to right."""
    values, signs = list(operands), list(operators)
    lines: list[Reduction] = []
    while signs:
        index = signs.index("*") if "*" in signs else 0
        a, sign, b = values[index], signs.pop(index), values.pop(index + 1)
        values[index] = a * b if sign == "*" else a + b if sign == "+" else a - b
        lines.append((a, sign, b, values[index]))
    return lines


def write_solution(problem: Problem, rng: random.Random, complete: bool = False) -> str:
    """A Solver document for `problem`. Every line is right.

    Unless the document is to be `complete`, the writer may stop before the end and guess.
    """
    reductions = reduce_all(problem.operands, problem.operators)
    lines, answer = [], problem.answer
    for done, (a, sign, b, result) in enumerate(reductions):
        if not complete and rng.random() < guess_probability(len(reductions) - done):
            answer += rng.randint(-GUESS_WITHIN, GUESS_WITHIN)
            break
        lines.append(f"{a} {sign} {b} = {result}")
    return "\n".join([*lines, f"\\boxed{{{answer}}}"])


def guess_probability(operations_left: int) -> float:
    """Probability that the writer stops and guesses when so many operations are left."""
    return GUESS[min(operations_left, len(GUESS) - 1)]


def write_challenge(rng: random.Random, world: World = SHORT) -> tuple[str, str]:
    """A Challenger document, and the question in it."""
    problem = make_problem(rng, operations=_draw_operations(world.challenger_operations, rng))
    question = _make_ill_posed(problem.text, rng) if rng.random() < ILL_POSED else problem.text
    answer = f"\\boxed{{{problem.answer}}}"
    document = f"<question>\n{question}\n</question>\n\n{answer}"
    if rng.random() < MALFORMED:
        document = rng.choice(
            (f"<question>\n{question}\n\n{answer}", f"{question}\n\n{answer}", f"<question>\n{question}")
        )
    return document, question


def make_problem(rng: random.Random, operations: int | None = None, world: World = SHORT) -> Problem:
    """One problem with `operations` operations. By default their number is drawn as `world.solver_operations` says."""
    count = operations or _draw_operations(world.solver_operations, rng)
    if rng.random() < WORD_PROBLEMS:
        if count > 1 or rng.random() >= 0.3:
            return _story(rng, count)
        boxes, in_a_box, item = rng.randint(2, 9), _number(rng), rng.choice(ITEMS)
        text = f"There are {boxes} boxes with {in_a_box} {item} each. How many {item} are there?"
        return Problem(text, (boxes, in_a_box), ("*",))
    return _expression(rng, count)


def make_benchmark(seed: int, per_level: int, world: World = SHORT, fewest: int = 1) -> list[Problem]:
    """`per_level` different questions for each number of operations in `world` from `fewest` on, in order."""
    rng = random.Random(seed)
    problems: dict[str, Problem] = {}  # by text
    for level, operations in enumerate(range(fewest, world.max_operations + 1), 1):
        while len(problems) < level * per_level:
            problem = make_problem(rng, operations)
            problems.setdefault(problem.text, problem)
    return list(problems.values())


def _draw_operations(weights: tuple[float, ...], rng: random.Random) -> int:
    return rng.choices(range(1, len(weights) + 1), weights)[0]


def _number(rng: random.Random) -> int:
    """A random number, mostly of two digits."""
    return rng.randint(2, 9) if rng.random() < 0.3 else rng.randint(10, 99)


def _story(rng: random.Random, operations: int) -> Problem:
    """A word problem of sums and differences."""
    name, item = rng.choice(NAMES), rng.choice(ITEMS)
    operands, operators = [_number(rng)], []
    text = f"{name} has {operands[0]} {item}"
    for index in range(operations):
        gain = rng.random() < 0.55
        operands.append(_number(rng))
        operators.append("+" if gain else "-")
        verb = rng.choice(GAINS if gain else LOSSES)
        text += f", {'then ' if index else ''}{verb} {operands[-1]}{' more' if gain else ''}"
    return Problem(f"{text}. How many {item} does {name} have?", tuple(operands), tuple(operators))


def _expression(rng: random.Random, operations: int) -> Problem:
    """An expression with at most one product, one of whose factors has a single digit, so that the model can learn it.

    The other operations are sums and differences.
    """
    operands, operators = [_number(rng)], list[str]()
    for _ in range(operations):
        sign = rng.choices("+-*", (0.42, 0.36, 0.22))[0]
        if sign == "*" and "*" in operators:
            sign = "+"
        if sign == "*":
            operands[-1] = rng.randint(2, 9) if rng.random() < 0.6 else rng.randint(10, 99)
            single_digit = operands[-1] > 9 or rng.random() < 0.5
            operands.append(rng.randint(2, 9) if single_digit else _number(rng))
        else:
            operands.append(_number(rng))
        operators.append(sign)
    tail = "".join(f" {sign} {operand}" for sign, operand in zip(operators, operands[1:], strict=True))
    return Problem(rng.choice(ASKS).format(e=f"{operands[0]}{tail}"), tuple(operands), tuple(operators))


def _make_ill_posed(question: str, rng: random.Random) -> str:
    """An ill-posed version of `question`: a number is missing or replaced by a letter, or the end is cut off."""
    words = question.split(" ")
    number = rng.choice([index for index, word in enumerate(words) if any(letter.isdigit() for letter in word)])
    punctuation = words[number].lstrip("0123456789")
    kind = rng.random()
    if kind < 0.5:
        words[number] = ("some" if "How many" in question else "") + punctuation
        return " ".join(word for word in words if word)
    if kind < 0.75:
        words[number] = rng.choice("xyn") + punctuation
        return " ".join(words)
    return question[: len(question) * 2 // 3].rstrip()
