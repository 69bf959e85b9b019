"""Measures the grader and math-verify on pairs of answers by class: `python -m benchmarks grading_cases`.

The pairs are in `benchmarks/grading_cases.jsonl`, and a person decided each. `expected` is `equal` or `unequal`; or
`not unequal` and `not equal` where `unknown` is as good a verdict.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from benchmarks import grading_math_verify
from core.grading.grader import Grader
from core.types import EqualityVerdict

CASES = Path(__file__).with_suffix(".jsonl")
OUTCOMES = ("right", "false equal", "false unequal", "unknown")
_RIGHT: dict[str, set[EqualityVerdict]] = {
    "equal": {"equal"},
    "unequal": {"unequal"},
    "not unequal": {"equal", "unknown"},
    "not equal": {"unequal", "unknown"},
}


@dataclass(frozen=True, slots=True)
class Case:
    """Two answers, the class of spellings that they belong to, and the verdict that a person expects."""

    name: str
    a: str
    b: str
    expected: Literal["equal", "unequal", "not unequal", "not equal"]

    def outcome(self, verdict: EqualityVerdict) -> str:
        """What a verdict on the pair is: one of `OUTCOMES`."""
        if verdict in _RIGHT[self.expected]:
            return "right"
        return "unknown" if verdict == "unknown" else f"false {verdict}"


def load_cases() -> list[Case]:
    lines = CASES.read_text(encoding="utf-8").splitlines()
    return [Case(row["class"], row["a"], row["b"], row["expected"]) for row in map(json.loads, lines)]


def run() -> dict[str, Any]:
    """How often each grader has each outcome, by class, and the cases on which our grader is not right."""
    cases = load_cases()
    pairs = [(case.a, case.b) for case in cases]
    with Grader(workers=2) as grader:
        ours = [comparison.verdict for comparison in grader.compare_many(pairs)]
    theirs = list(grading_math_verify.compare_many(pairs))
    return {
        "math_verify": version("math-verify"),
        "sympy": version("sympy"),
        "ours": count(cases, ours),
        "theirs": count(cases, theirs),
        "not_right": [
            {"class": case.name, "a": case.a, "b": case.b, "expected": case.expected, "ours": verdict}
            for case, verdict in zip(cases, ours, strict=True)
            if case.outcome(verdict) != "right"
        ],
    }


def count(cases: Sequence[Case], verdicts: Sequence[EqualityVerdict]) -> dict[str, dict[str, int]]:
    """Class -> outcome -> number of cases, with all cases as the last class."""
    counts = defaultdict[str, Counter[str]](Counter)
    for case, verdict in zip(cases, verdicts, strict=True):
        counts[case.name][case.outcome(verdict)] += 1
    counts["all"] = sum(counts.values(), Counter())
    return {name: {outcome: counted[outcome] for outcome in OUTCOMES} for name, counted in counts.items()}


def tables(figures: dict[str, Any]) -> str:
    """The counts as a table in Markdown: of each class those of ours, then those of math-verify."""
    ours, theirs = figures["ours"], figures["theirs"]
    heads = [f"{grader}: {outcome}" for grader in ("ours", "math-verify") for outcome in OUTCOMES]
    rows = [[name, sum(counted.values()), *counted.values(), *theirs[name].values()] for name, counted in ours.items()]
    lines: list[list[Any]] = [["class", "n", *heads], ["---"] * (2 + len(heads)), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)
