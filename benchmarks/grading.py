"""Measures the grader beside math-verify on the answers of benchmarks: `python -m benchmarks grading math500 aime24`.

- `equal`: each answer against itself written in another way, by the rules of `benchmarks/grading_equal.py`.
- `unequal`: each answer against wrong ones, by the rules of `benchmarks/grading_unequal.py`, and answers to different
  questions of one benchmark against each other.

An answer that several questions have counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from benchmarks import grading_math_verify
from benchmarks.grading_equal import EQUAL, Rule
from benchmarks.grading_unequal import NEAR, other_answers
from core.grading.grader import Grader
from core.statistics.estimates import share
from core.types import EqualityVerdict
from orchestrator.question_sets.benchmarks import load_benchmark


@dataclass(frozen=True, slots=True)
class Pair:
    """A true answer and another, whether they are equal in truth, and the rule that this is known by."""

    truth: Literal["equal", "unequal"]
    rule: str
    gold: str
    answer: str


@dataclass(frozen=True, slots=True)
class Graded:
    """A pair with the verdicts of both graders, and our reason if ours is unknown."""

    pair: Pair
    ours: EqualityVerdict
    reason: str | None
    math_verify: EqualityVerdict


def run(*benchmarks: str) -> dict[str, Any]:
    """The figures on the answers of `benchmarks`: names, or paths of files, as for `coevo evaluate`.

    Of each rule and of all: n, and the shares of wrong and of unknown verdicts of both graders, with Wilson's 95%
    intervals. Also the pairs on which our grader is wrong or does not know, and those on which math-verify is.
    """
    answers = {name: list(dict.fromkeys(item.answer for item in load_benchmark(name))) for name in benchmarks}
    pairs = list(pairs_of(answers))
    texts = [(pair.gold, pair.answer) for pair in pairs]
    with Grader(workers=2) as grader:
        ours = grader.compare_many(texts)
    graded = [
        Graded(pair, comparison.verdict, comparison.reason, verdict)
        for pair, comparison, verdict in zip(pairs, ours, grading_math_verify.compare_many(texts), strict=True)
    ]
    return {
        "answers": {name: len(of_benchmark) for name, of_benchmark in answers.items()},
        "math_verify": version("math-verify"),
        "sympy": version("sympy"),
        **{
            truth: figures_of([grading for grading in graded if grading.pair.truth == truth])
            for truth in ("equal", "unequal")
        },
        "not_right": [_as_json(grading) for grading in graded if grading.pair.truth != grading.ours],
        "math_verify_not_right": [_as_json(grading) for grading in graded if grading.pair.truth != grading.math_verify],
    }


def pairs_of(answers: Mapping[str, Sequence[str]]) -> Iterator[Pair]:
    """All pairs that the two graders are asked about, from the different answers of each benchmark."""
    distinct = list(dict.fromkeys(answer for of_benchmark in answers.values() for answer in of_benchmark))
    rules: list[tuple[Literal["equal", "unequal"], Mapping[str, Rule]]] = [("equal", EQUAL), ("unequal", NEAR)]
    for truth, named in rules:
        for name, rule in named.items():
            for gold in distinct:
                if (answer := rule(gold)) != gold:
                    yield Pair(truth, name, gold, answer)
    for of_benchmark in answers.values():
        for name, pairs in other_answers(of_benchmark).items():
            yield from (Pair("unequal", name, gold, answer) for gold, answer in pairs)


def figures_of(graded: Sequence[Graded]) -> dict[str, Any]:
    """The figures of all pairs, of their answers and of each rule.

    The pairs of one answer are not independent. So the intervals over all pairs are too narrow, and `answers` has what
    can be counted once for each answer: whether any of its pairs has a wrong verdict.
    """
    by_rule, by_answer = defaultdict[str, list[Graded]](list), defaultdict[str, list[Graded]](list)
    for grading in graded:
        by_rule[grading.pair.rule].append(grading)
        by_answer[grading.pair.gold].append(grading)
    return {
        "pairs": _shares(graded),
        "answers": {
            grader: _share([any(_wrong(grading, grader) for grading in pairs) for pairs in by_answer.values()])
            for grader in ("ours", "math_verify")
        },
        "rules": {rule: _shares(pairs) for rule, pairs in by_rule.items()},
    }


def _shares(graded: Sequence[Graded]) -> dict[str, Any]:
    return {
        "n": len(graded),
        **{
            grader: {
                "wrong": _share([_wrong(grading, grader) for grading in graded]),
                "unknown": _share([getattr(grading, grader) == "unknown" for grading in graded]),
            }
            for grader in ("ours", "math_verify")
        },
    }


def _wrong(grading: Graded, grader: str) -> bool:
    return getattr(grading, grader) not in (grading.pair.truth, "unknown")


def _share(marks: Sequence[bool]) -> dict[str, Any] | None:
    """How many are marked, with the share and its interval; None without any."""
    estimate = share(sum(marks), len(marks))
    return None if estimate is None else {"count": sum(marks), **estimate.as_json()}


def _as_json(grading: Graded) -> dict[str, Any]:
    return {**asdict(grading.pair), "ours": grading.ours, "reason": grading.reason, "math_verify": grading.math_verify}


def tables(figures: dict[str, Any]) -> str:
    """The pairs, and the answers with a wrong verdict in any pair: in percent, with Wilson's intervals."""

    def cell(share_of: dict[str, Any]) -> str:
        low, high = share_of["ci95"]
        return f"{100 * share_of['value']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"

    answers = ", ".join(f"{Path(name).stem} ({count})" for name, count in figures["answers"].items())
    lines = [
        f"Different answers: {answers}. math-verify {figures['math_verify']}, sympy {figures['sympy']}.",
        "",
        "| truth | n | ours: wrong | ours: unknown | math-verify: wrong |",
        "|---|---|---|---|---|",
    ]
    for truth in ("equal", "unequal"):
        pairs, once = figures[truth]["pairs"], figures[truth]["answers"]
        ours, theirs = pairs["ours"], pairs["math_verify"]
        cells = (cell(ours["wrong"]), cell(ours["unknown"]), cell(theirs["wrong"]))
        lines.append(f"| {truth} | {pairs['n']:,} pairs | {' | '.join(cells)} |")
        cells = (cell(once["ours"]), "", cell(once["math_verify"]))
        lines.append(f"| {truth}, in any pair | {once['ours']['n']} answers | {' | '.join(cells)} |")
    return "\n".join(lines)
