"""Seeded groups of mixed answers: a right value and a few wrong ones in several spellings, missing answers and junk."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction

VOTES, SEED = 10, 20260101
MISSING, JUNK = 0.04, 0.02  # shares of the answers
_JUNK = (r"\frac{1}{", "x = = 3", "[unclosed", "}{", r"\text{see above}", "5 +", r"\boxed", "12 or so apples")

Group = list[str | None]


def make_groups(count: int) -> list[Group]:
    """`count` seeded groups: a right value and a few wrong ones in several spellings, missing answers and junk."""
    rng = random.Random(SEED)
    kinds = rng.choices([kind for kind, _ in _KINDS], [weight for _, weight in _KINDS], k=count)
    return [_group(kind, rng) for kind in kinds]


def _group(kind: Callable[[random.Random], list[str]], rng: random.Random) -> Group:
    accuracy = rng.uniform(0.2, 0.95)
    right, *wrong = (kind(rng) for _ in range(4))
    return [_answer(right if rng.random() < accuracy else rng.choice(wrong), rng) for _ in range(VOTES)]


def _answer(spellings: Sequence[str], rng: random.Random) -> str | None:
    draw = rng.random()
    if draw < MISSING:
        return None
    return rng.choice(_JUNK) if draw < MISSING + JUNK else rng.choice(spellings)


def _integer(rng: random.Random) -> list[str]:
    n = rng.randrange(-99, 10_000)
    return [str(n), f"{n}.0", f"{n:,}", f"${n}$", rf"\text{{{n}}}", f"x = {n}", f"{n}."]


def _fraction(rng: random.Random) -> list[str]:
    value = Fraction(rng.randrange(1, 40), rng.randrange(2, 40))
    p, q = value.numerator, value.denominator
    return [f"{p}/{q}", rf"\frac{{{p}}}{{{q}}}", rf"\dfrac{{{p}}}{{{q}}}", rf"\frac{{{2 * p}}}{{{2 * q}}}"]


def _decimal(rng: random.Random) -> list[str]:
    n = rng.randrange(1, 1000)
    return [f"{n / 100:.2f}", rf"{n}\%", f"{n}%", rf"\frac{{{n}}}{{100}}", f"{n / 100:.3f}"]


def _surd(rng: random.Random) -> list[str]:
    a, b = rng.randrange(2, 12), rng.choice((2, 3, 5, 6, 7, 10, 11, 13))
    return [rf"{a}\sqrt{{{b}}}", rf"\sqrt{{{a * a * b}}}", rf"{a} \sqrt {b}", f"{a}*sqrt({b})"]


def _polynomial(rng: random.Random) -> list[str]:
    a, b = rng.randrange(1, 9), rng.randrange(1, 9)
    return [f"x^2+{a + b}x+{a * b}", f"(x+{a})(x+{b})", f"x^{{2}} + {a + b} x + {a * b}", f"(x+{b})(x+{a})"]


def _pair(rng: random.Random) -> list[str]:
    a, b = rng.randrange(-9, 10), rng.randrange(2, 10)
    return [f"({a}, {b})", rf"\left({a},{b}\right)", f"({a}.0,{b})", rf"({a}, \frac{{{2 * b}}}{{2}})"]


def _roots(rng: random.Random) -> list[str]:
    a, b = rng.sample(range(-20, 20), 2)
    return [f"x = {a} or x = {b}", f"{a}, {b}", rf"\{{{b}, {a}\}}", f"x={b}, x={a}"]


def _length(rng: random.Random) -> list[str]:
    n = rng.randrange(1, 500)
    return [str(n), rf"{n}\text{{ cm}}", f"{n} cm", rf"{n}\ \mathrm{{cm}}"]


def _phrase(rng: random.Random) -> list[str]:
    phrase = rng.choice(("no solution", "yes", "infinitely many", "even", "Tuesday", "isosceles", "undefined"))
    return [phrase, phrase.capitalize(), rf"\text{{{phrase}}}", f"{phrase}."]


_KINDS: tuple[tuple[Callable[[random.Random], list[str]], int], ...] = (
    (_integer, 35),
    (_fraction, 15),
    (_decimal, 10),
    (_surd, 10),
    (_polynomial, 10),
    (_pair, 5),
    (_roots, 5),
    (_length, 5),
    (_phrase, 5),
)
