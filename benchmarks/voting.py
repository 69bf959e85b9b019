"""Compares the speed of batched votes with that of pairwise symbolic grading, on 8,000 groups of 10 mixed answers.

The reference is R-Zero's released labelling loop (Chengsong-Huang/R-Zero, question_evaluate/evaluate.py). It compares
each new answer with each class so far until one matches: first as strings, then with mathruler's `grade_answer` in both
directions. Its timeouts, which use a thread for each comparison, are left out, because they would only make it slower.
The reference is measured on a seeded sample of the groups, and its time per group is extrapolated to all.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from fractions import Fraction

from core.grading.answers import answer_key
from core.grading.grader import Grader
from core.questions.voting import vote_many

GROUPS, VOTES, SAMPLE, WARM_UP, SEED = 8000, 10, 200, 20, 20260101
MISSING, JUNK = 0.04, 0.02  # shares of the answers
_JUNK = (r"\frac{1}{", "x = = 3", "[unclosed", "}{", r"\text{see above}", "5 +", r"\boxed", "12 or so apples")

Group = list[str | None]


def run(groups: int = GROUPS, sample: int = SAMPLE, workers: int = 2) -> dict[str, object]:
    """Measure both on `groups` groups, the reference on a sample of `sample` of them."""
    all_groups = make_groups(groups)
    start = time.perf_counter()
    with Grader(workers=workers) as grader:
        labels = vote_many(all_groups, grader)
    seconds = time.perf_counter() - start
    sampled = random.Random(SEED + 1).sample(all_groups, min(sample, groups))
    reference_s = reference_seconds(sampled) / len(sampled)  # per group
    comparisons = sum(math.comb(len({answer_key(answer) for answer in group if answer}), 2) for group in all_groups)
    return {
        "speedup_vs_reference": round(reference_s * groups / seconds, 1),
        "groups_per_s": round(groups / seconds, 1),
        "unknown_share": round(sum(label.unknown for label in labels) / comparisons, 4),
        "groups_with_unknown_share": round(sum(label.unknown > 0 for label in labels) / groups, 4),
        "groups": groups,
        "votes_per_group": VOTES,
        "workers": workers,
        "seconds": round(seconds, 2),
        "reference_groups_per_s": round(1 / reference_s, 2),
        "reference_sample": f"measured on {len(sampled)} seeded groups of {groups}, extrapolated per group",
        "seed": SEED,
    }


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


def reference_seconds(groups: Sequence[Group]) -> float:
    """The seconds that pairwise grading takes for `groups`, after the library is warm."""
    for group in groups[:WARM_UP]:
        _classes(group)
    start = time.perf_counter()
    for group in groups:
        _classes(group)
    return time.perf_counter() - start


def _classes(group: Group) -> list[str]:
    classes: list[str] = []
    for answer in group:
        if answer is not None and not any(_matches(answer, representative) for representative in classes):
            classes.append(answer)
    return classes


def _matches(a: str, b: str) -> bool:
    from mathruler.grader import grade_answer  # here, because it imports sympy, which takes time

    if a == b or ("no " in a.lower() and "no " in b.lower()):
        return True
    return bool(grade_answer(a, b) or grade_answer(b, a))


if __name__ == "__main__":
    import json

    print(json.dumps(run(), indent=1))
