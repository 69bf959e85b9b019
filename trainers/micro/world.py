"""The tiny worlds: generated questions, and solutions in which the writer may stop early and guess.

The demo needs a task at which a model of half a million parameters can become better by co-evolution alone. A Solver
document computes one operation per line, and every line is right. But before each line the writer may stop and box a
guess near the answer, with a probability that grows with the number of operations left. The model learns both: it
sometimes works step by step and is right, and sometimes guesses and is wrong, differently each time. So the majority of
ten votes is right far more often than one sample, and from it the Solver can learn a skill: to work step by step.

Everything is generated from a `random.Random`; nothing is read from files or the network.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from trainers.micro.families import Family, Problem, arithmetic, equations

# Probability that the writer stops and guesses, by the number of operations left; the last value is for more. Index 0
# is unused, and the last operation is always done.
GUESS = (0.0, 0.0, 0.4, 0.5, 0.6, 0.65, 0.7)
# The largest difference between a guess and the answer. If guesses were always right, the model would learn to compute
# answers without intermediate lines, better with every step of pre-training, and nothing would be left to learn.
GUESS_WITHIN = 20
ILL_POSED = 0.01  # share of Challenger documents
MALFORMED = 0.03  # share of Challenger documents


@dataclass(frozen=True, slots=True)
class World:
    """What kind of questions there are, and how long they are: the share of documents with 1, 2, … operations.

    Challenger documents are mostly easy, with few hard ones: the questions that are hard for the Solver are within
    reach of the Challenger's training, but it does not start with them.
    """

    family: Family
    solver_operations: tuple[float, ...]
    challenger_operations: tuple[float, ...]

    @property
    def max_operations(self) -> int:
        return len(self.solver_operations)


SHORT = World(arithmetic, (0.2, 0.2, 0.18, 0.16, 0.14, 0.12), (0.82, 0.12, 0.035, 0.015, 0.006, 0.004))
LONG = World(
    arithmetic,
    (0.12, 0.12, 0.11, 0.1, 0.1, 0.09, 0.06, 0.06, 0.06, 0.06, 0.06, 0.06),
    (0.8, 0.12, 0.04, 0.018, 0.009, 0.005, 0.0014, 0.0014, 0.0013, 0.0013, 0.0013, 0.0013),
)
EQUATIONS = replace(LONG, family=equations)


def write_solution(problem: Problem, rng: random.Random, complete: bool = False) -> str:
    """A Solver document for `problem`. Every line is right.

    Unless the document is to be `complete`, the writer may stop before the end and guess.
    """
    lines, answer = list[str](), problem.answer
    for line in problem.lines:
        if not complete and rng.random() < guess_probability(problem.operations - len(lines)):
            answer += rng.randint(-GUESS_WITHIN, GUESS_WITHIN)
            break
        lines.append(line)
    return "\n".join([*lines, f"\\boxed{{{answer}}}"])


def guess_probability(operations_left: int) -> float:
    """Probability that the writer stops and guesses when so many operations are left."""
    return GUESS[min(operations_left, len(GUESS) - 1)]


def write_challenge(rng: random.Random, world: World = SHORT) -> tuple[str, str]:
    """A Challenger document, and the question in it."""
    problem = world.family.make(rng, _draw_operations(world.challenger_operations, rng))
    question = world.family.make_ill_posed(problem.text, rng) if rng.random() < ILL_POSED else problem.text
    answer = f"\\boxed{{{problem.answer}}}"
    document = f"<question>\n{question}\n</question>\n\n{answer}"
    if rng.random() < MALFORMED:
        document = rng.choice(
            (f"<question>\n{question}\n\n{answer}", f"{question}\n\n{answer}", f"<question>\n{question}")
        )
    return document, question


def make_problem(rng: random.Random, operations: int | None = None, world: World = SHORT) -> Problem:
    """One problem with `operations` operations. By default their number is drawn as `world.solver_operations` says."""
    return world.family.make(rng, operations or _draw_operations(world.solver_operations, rng))


def make_benchmark(seed: int, per_level: int, world: World = SHORT, fewest: int = 1) -> list[Problem]:
    """`per_level` different questions for each number of operations in `world` from `fewest` on, in order."""
    rng = random.Random(seed)
    problems: dict[str, Problem] = {}  # by text
    for level, operations in enumerate(range(fewest, world.max_operations + 1), 1):
        while len(problems) < level * per_level:
            problem = world.family.make(rng, operations)
            problems.setdefault(problem.text, problem)
    return list(problems.values())


def _draw_operations(weights: tuple[float, ...], rng: random.Random) -> int:
    return rng.choices(range(1, len(weights) + 1), weights)[0]
