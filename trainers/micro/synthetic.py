"""Two synthetic worlds whose questions have infinitely many solutions (Poly-EPO 6.2): multiplication and polynomials.

- Multiplication: the product of two numbers of several digits, which may be decomposed in any way before it is
  distributed. The answer is the product, and a strategy is a way to decompose, which a judge or `"skeleton"` tells
  apart.
- Polynomials: any pair (x, y) on the curve of a polynomial. The answer stands for all of them
  (`core.grading.points`), and a strategy is a pair, which the clusterer `"answer"` tells apart.

The paper gives one example of each, 343 * 67 and y = x^2 + 3x + 7, but neither its prompts, their number, nor the sizes
of the numbers. Those are chosen here. The tiny model's tokenizer can write all of it, but the shipped model was not
trained on it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass

from core.errors import CoevoError

MAX_DIGITS = 9
MAX_DEGREE = 9  # of the curves that are graded
_MAX_COEFFICIENT = 9


class TooManyPrompts(CoevoError):
    """More prompts were asked for than there are different ones."""


@dataclass(frozen=True, slots=True)
class SyntheticPrompt:
    """One prompt, with the names of a prompt file's columns as fields. `level` groups them in reports."""

    problem: str
    answer: str
    level: str


def multiplications(seed: int, n: int, digits: int = 3) -> list[SyntheticPrompt]:
    """`n` different products of two factors that have 2 to `digits` digits each.

    The level is the digits of the larger factor and of the smaller one, as in `3x2`. Raises `TooManyPrompts`.
    """

    def draw(rng: random.Random) -> SyntheticPrompt:
        a, b = (rng.randrange(10 ** (size - 1), 10**size) for size in (rng.randint(2, digits), rng.randint(2, digits)))
        larger, smaller = sorted((len(str(a)), len(str(b))), reverse=True)
        problem = f"Compute {a} * {b} by decomposing the factors and distributing the multiplication."
        return SyntheticPrompt(problem, str(a * b), f"{larger}x{smaller}")

    return _different(draw, seed, n, of=(10**digits - 10) ** 2)


def polynomials(seed: int, n: int, degree: int = 2) -> list[SyntheticPrompt]:
    """`n` different polynomials of a degree, with whole coefficients of at most 9. The level is the degree.

    Raises `TooManyPrompts`.
    """
    whole = range(-_MAX_COEFFICIENT, _MAX_COEFFICIENT + 1)

    def draw(rng: random.Random) -> SyntheticPrompt:
        leading = rng.choice([coefficient for coefficient in whole if coefficient])
        relation = f"y = {polynomial([leading, *rng.choices(whole, k=degree)])}"
        problem = f"Find a pair (x, y) of real numbers that satisfies {relation}."
        return SyntheticPrompt(problem, rf"\in \{{(x, y) \mid {relation}\}}", str(degree))

    return _different(draw, seed, n, of=(len(whole) - 1) * len(whole) ** degree)


def polynomial(coefficients: list[int]) -> str:
    """The polynomial with these coefficients, that of the highest power first: [1, 3, 7] is `x^2 + 3x + 7`."""
    text = ""
    for power, coefficient in zip(range(len(coefficients) - 1, -1, -1), coefficients, strict=True):
        if coefficient:
            sign = ("- " if coefficient < 0 else "+ ") if text else ("-" if coefficient < 0 else "")
            factor = "" if power and abs(coefficient) == 1 else str(abs(coefficient))
            variable = ("", "x")[power] if power < 2 else f"x^{power}"
            text += f"{' ' if text else ''}{sign}{factor}{variable}"
    return text or "0"


def lines(prompts: list[SyntheticPrompt]) -> list[str]:
    """The prompts as JSON lines."""
    return [json.dumps(asdict(prompt)) for prompt in prompts]


def _different(draw: Callable[[random.Random], SyntheticPrompt], seed: int, n: int, of: int) -> list[SyntheticPrompt]:
    """`n` prompts with different texts, of a world that has `of`. Half of these at most, so that drawing ends soon."""
    if n > of // 2:
        raise TooManyPrompts(f"n: expected at most {of // 2:,}, half of the different prompts of this size, got {n:,}")
    rng = random.Random(seed)
    prompts: dict[str, SyntheticPrompt] = {}
    while len(prompts) < n:
        prompt = draw(rng)
        prompts.setdefault(prompt.problem, prompt)
    return list(prompts.values())
