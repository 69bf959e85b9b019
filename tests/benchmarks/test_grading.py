"""`python -m benchmarks grading`: its rules, what it counts on a dozen made-up answers, and the tables of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import grading_math_verify
from benchmarks.grading import Graded, Pair, figures_of, run, tables
from benchmarks.grading_equal import EQUAL
from benchmarks.grading_unequal import NEAR, PAIRS, kind_of, other_answers
from core.types import EqualityVerdict

TWELVE = [
    *("12", "700", r"-\frac{1}{2}", r"\frac{7}{3}", "0.25", r"2\sqrt{3}", "(1,4]", r"90^\circ", "x^2 + 1"),
    *(r"\text{east}", "3, 5", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
]
# How many of the twelve each rule rewrites, counted by hand. Other rules rewrite none of them.
EQUAL_COUNTS = {
    12: ["in `$…$`", "in braces", "with a final period", r"`\displaystyle` in front", r"`\;` on both sides"],
    11: [r"`\mathbf{5}` for `5`"],  # not `east`
    6: ["`x = 5` for `5`"],
    3: ["without spaces", "`+5` for `5`"],
    2: [
        *(r"`\dfrac` for `\frac`", r"`\tfrac` for `\frac`", r"`\frac12` for `\frac{1}{2}`", r"`1/2` for `\frac{1}{2}`"),
        *(r"`\frac{2}{4}` for `\frac{1}{2}`", "`5.0` for `5`", r"`\frac{10}{2}` for `5`", "`4 + 1` for `5`"),
        *(r"`\frac{10}{2} = 5` for `5`", r"`\sqrt{25}` for `5`", "`m + n = 5` for `5`", r"`\text{5}` for `5`"),
        *(r"`5\text{ units}` for `5`", "unicode signs"),
    ],
    1: [
        *("spaces after commas", r"`\left(` for `(`, or without", r"`\frac{-1}{2}` for `-\frac{1}{2}`"),
        *(r"`(a + b)/(c)` for `\frac{a + b}{c}`", r"`0.5` for `\frac{1}{2}`", r"`0.\overline{3}` for `\frac{1}{3}`"),
        *(r"`1\frac{1}{2}` for `\frac{3}{2}`", "`005` for `5`", r"`5 \times 10^{2}` for `500`", "`0.50` for `0.5`"),
        *("`.5` for `0.5`", r"`\frac{5}{10}` for `0.5`", r"`50\%` for `0.5`", "`x^{5}` for `x^5`"),
        *(r"`2 \cdot k` for `2k`", r"`2 \times k` for `2k`", "terms of a sum reversed", "`-(b - a)` for `a - b`"),
        *(r"`\sqrt{2} \cdot 3` for `3\sqrt{2}`", r"`\sqrt{18}` for `3\sqrt{2}`", r"`\{1, 2\}` for `1, 2`"),
        *(r"`1 \text{ and } 2` for `1, 2`", r"`x = 1 \text{ or } x = 2` for `1, 2`", "`bmatrix` for `pmatrix`"),
        *(r"`\\[4pt]` for `\\` in a matrix", r"`\begin{array}{cc}` for `\begin{pmatrix}`"),
        *(r"`x \in [1,2)` for `[1,2)`", r"`1 \le x < 2` for `[1,2)`", r"`\{x \mid 1 \le x < 2\}` for `[1,2)`"),
        *(r"`east` for `\text{east}`", r"`\mathrm{east}` for `\text{east}`", r"`5^{\circ}` for `5^\circ`"),
        *(r"`5\text{ degrees}` for `5^\circ`", r"`\frac{5\pi}{180}` for `5^\circ`", r"`5` for `5^\circ`"),
    ],
}
UNEQUAL_COUNTS = {
    45: ["other answers: different kinds"],  # 11 answers of known kinds make 55 pairs, 10 of them of two numbers
    10: ["other answers: numbers"],  # of five numbers
    5: ["`-5` for `5`"],
    2: [
        *("`6` for `5`", "`50` for `5`", "`5.01` for `5`", r"`\frac{2}{3}` for `\frac{1}{3}`"),
        *(r"`\frac{1}{4}` for `\frac{1}{3}`", r"`\frac{3}{2}` for `\frac{2}{3}`", r"`1` for `\frac{1}{2}`"),
        *(r"`0.333` for `\frac{1}{3}`, `1.414` for `\sqrt{2}`", r"`0.33333333` for `\frac{1}{3}`"),
        "`(1, 2 + 1)` for `(1, 2)`",
    ],
    1: [
        *("`5` for `-5`", "`0.26` for `0.25`", "`0.2` for `0.25`", r"`4\sqrt{2}` for `3\sqrt{2}`"),
        *(r"`\sqrt{3}` for `\sqrt{2}`", r"`6^\circ` for `5^\circ`", "`a - b` for `a + b`", "`a` for `a + b`"),
        *("`2(a + b)` for `a + b`", "`x^3` for `x^2`", "`(1, 2)` for `(1, 2, 3)`", "`[1, 2)` for `(1, 2)`"),
        *("`(1, 2]` for `(1, 2)`", "last entry of a matrix + 1", "a matrix without its last row"),
    ],
}


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command prints as JSON for the twelve answers, of which one comes twice."""
    file = tmp_path_factory.mktemp("answers") / "twelve.jsonl"
    rows = [{"problem": f"question {i}", "answer": answer} for i, answer in enumerate([*TWELVE, "12"])]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    printed: dict[str, Any] = json.loads(json.dumps(run(str(file))))
    assert printed["answers"] == {str(file): 12}
    return printed


def counts(shares: dict[str, Any]) -> list[int]:
    """Our wrong and unknown verdicts, and math-verify's."""
    return [shares[grader][verdict]["count"] for grader in ("ours", "math_verify") for verdict in ("wrong", "unknown")]


def answer_counts(figures: dict[str, Any]) -> list[int]:
    """The answers on which ours and math-verify were not right in some pair."""
    return [figures["answers"][grader]["count"] for grader in ("ours", "math_verify")]


@pytest.mark.parametrize(("truth", "expected"), [("equal", EQUAL_COUNTS), ("unequal", UNEQUAL_COUNTS)])
def test_each_rule_is_counted(truth: str, expected: dict[int, list[str]], figures: dict[str, Any]) -> None:
    by_hand = {name: n for n, names in expected.items() for name in names}
    assert {name: rule["n"] for name, rule in figures[truth]["rules"].items()} == by_hand
    assert figures[truth]["pairs"]["n"] == sum(by_hand.values())
    assert figures[truth]["answers"]["ours"]["n"] == 12


def test_the_verdicts_on_equal_answers(figures: dict[str, Any]) -> None:
    """Ours does not know 90 degrees in radians. math-verify fails on the rules that are named here."""
    failed = {name: counts(rule) for name, rule in figures["equal"]["rules"].items() if any(counts(rule))}
    assert failed == {
        "in braces": [0, 0, 2, 0],  # the interval and the word
        "with a final period": [0, 0, 8, 0],  # of what is not digits with or without ^\circ
        r"`\mathbf{5}` for `5`": [0, 0, 9, 0],  # of what is not an integer
        r"`0.\overline{3}` for `\frac{1}{3}`": [0, 0, 1, 0],
        r"`\\[4pt]` for `\\` in a matrix": [0, 0, 1, 0],
        r"`1 \le x < 2` for `[1,2)`": [0, 0, 1, 0],
        r"`\{x \mid 1 \le x < 2\}` for `[1,2)`": [0, 0, 1, 0],
        r"`\frac{5\pi}{180}` for `5^\circ`": [0, 1, 1, 0],
    }
    assert counts(figures["equal"]["pairs"]) == [0, 1, 24, 0]
    assert answer_counts(figures["equal"]) == [0, 10]  # all answers but the two integers


def test_the_verdicts_on_unequal_answers(figures: dict[str, Any]) -> None:
    failed = {name: counts(rule) for name, rule in figures["unequal"]["rules"].items() if any(counts(rule))}
    assert failed == {
        r"`0.33333333` for `\frac{1}{3}`": [0, 0, 2, 0],
        "other answers: different kinds": [0, 2, 0, 0],  # the word against the root and the sum
    }
    assert answer_counts(figures["unequal"]) == [0, 2]


def test_the_pairs_that_a_grader_got_wrong_are_listed(figures: dict[str, Any]) -> None:
    degrees, *words = figures["not_right"]
    assert degrees == {
        "truth": "equal",
        "rule": r"`\frac{5\pi}{180}` for `5^\circ`",
        "gold": r"90^\circ",
        "answer": r"\frac{90\pi}{180}",
        "ours": "unknown",
        "reason": "units differ",
        "math_verify": "unequal",
    }
    assert [(pair["truth"], pair["ours"], pair["reason"]) for pair in words] == [("unequal", "unknown", "words")] * 2
    assert len(figures["math_verify_not_right"]) == 24 + 2


def test_wrong_and_unknown_verdicts_are_shares_with_their_interval() -> None:
    """Of four pairs of two answers ours is wrong on one and does not know one; math-verify is wrong on two."""
    verdicts: list[tuple[EqualityVerdict, EqualityVerdict]] = [
        ("unequal", "unequal"),
        ("unknown", "equal"),
        ("equal", "equal"),
        ("equal", "unequal"),
    ]
    graded = [
        Graded(Pair("equal", f"rule {i % 2}", f"gold {i // 2}", "x"), ours, None, theirs)
        for i, (ours, theirs) in enumerate(verdicts)
    ]
    figures = figures_of(graded)
    assert counts(figures["pairs"]) == [1, 1, 2, 0]
    one_of_four = figures["pairs"]["ours"]["wrong"]
    # Clopper and Pearson's lower limit for one of four at 5%, and (1/4 + t²/8 + t·√(3/64 + t²/64)) / (1 + t²/4)
    assert (one_of_four["value"], one_of_four["ci95"]) == (0.25, pytest.approx([0.0127, 0.8373], abs=1e-4))
    assert {name: counts(rule) for name, rule in figures["rules"].items()} == {
        "rule 0": [1, 0, 1, 0],
        "rule 1": [0, 1, 1, 0],
    }
    assert (answer_counts(figures), figures["answers"]["ours"]["n"]) == ([1, 2], 2)


@pytest.mark.parametrize(
    ("rules", "rule", "answer"),
    [
        (EQUAL, "`2000` for `2,000`", "1,23"),  # a list
        (EQUAL, r"`\{1, 2\}` for `1, 2`", "58,500"),  # a number
        (EQUAL, r"`1 \le x < 2` for `[1,2)`", "(2,4)"),  # perhaps a point
        (EQUAL, "`x = 5` for `5`", "x^2"),
        (EQUAL, "`0.5` for `\\frac{1}{2}`", r"\frac{1}{3}"),
        (EQUAL, "terms of a sum reversed", "2-x=5"),
        (EQUAL, "`x^{5}` for `x^5`", r"15\mbox{ cm}^2"),
        (EQUAL, "without spaces", r"\cot x"),
        (EQUAL, "`-(y) = -(2x)` for `y = 2x`", "a=b=c"),
        (NEAR, "`-5` for `5`", "0"),
        (NEAR, "`50` for `5`", "0"),
        (NEAR, r"`1` for `\frac{1}{2}`", r"\frac{3}{1}"),
        (NEAR, r"`\frac{2}{3}` for `\frac{1}{3}`", r"\frac{1}{0}"),
        (NEAR, r"`0.333` for `\frac{1}{3}`, `1.414` for `\sqrt{2}`", r"\frac{1}{8}"),
        (NEAR, "`(1, 2)` for `(1, 2, 3)`", "(1, 2)"),
        (NEAR, "`[1, 2)` for `(1, 2)`", r"(-\infty, 2)"),
        (NEAR, "`(2, 1)` for `(1, 2)`", r"\{1, 2\}"),
    ],
)
def test_a_rule_leaves_alone_what_it_is_not_sure_of(rules: dict[str, Any], rule: str, answer: str) -> None:
    assert rules[rule](answer) == answer


@pytest.mark.parametrize(
    ("rules", "rule", "answer", "rewritten"),
    [
        (EQUAL, r"`\left(` for `(`, or without", r"\left( 3, \frac{\pi}{2} \right]", r"( 3, \frac{\pi}{2} ]"),
        (EQUAL, "terms of a sum reversed", "-2x^{3+k} + 7i", "7i-2x^{3+k}"),
        (EQUAL, "`-(b - a)` for `a - b`", "2x - 1", "-(-2x+ 1)"),
        (EQUAL, r"`0.5` for `\frac{1}{2}`", r"-\frac{33}{8}", "-4.125"),
        (EQUAL, r"`0.\overline{3}` for `\frac{1}{3}`", r"\frac{14}{3}", r"4.\overline{6}"),
        (EQUAL, "`2(k + 1)` for `2k + 2`", "15x - 80", "5(3x - 16)"),
        (EQUAL, r"`(1,3) \setminus \{2\}` for `(1,2) \cup (2,3)`", r"(0,9) \cup (9,36)", r"(0,36) \setminus \{9\}"),
        (EQUAL, r"`50\%` for `0.5`", ".35625", r"35.625\%"),
        (NEAR, "`a - b` for `a + b`", "y = 2x + 3", "y =2x- 3"),
        (NEAR, "`0.26` for `0.25`", "0.19", "0.20"),
        (NEAR, r"`0.33333333` for `\frac{1}{3}`", r"-2\sqrt{2}", "-2.82842712"),
        (NEAR, "`(1, 2]` for `(1, 2)`", r"\left(0, \frac{1}{2}\right]", r"\left(0, \frac{1}{2}\right)"),
        (
            NEAR,
            "a matrix without its last row",
            "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
            r"\begin{pmatrix}1\end{pmatrix}",
        ),
    ],
)
def test_a_rule_rewrites(rules: dict[str, Any], rule: str, answer: str, rewritten: str) -> None:
    assert " ".join(rules[rule](answer).split()) == rewritten


def test_other_answers_are_paired_only_if_they_certainly_differ() -> None:
    assert kind_of(r"\sqrt{4}") is kind_of("58,500") is kind_of("(2,4)") is None
    assert other_answers([r"\frac{1}{2}", "0.5", "0.50"]) == {}
    assert other_answers(["90", r"90^\circ", r"\pi"]) == {"other answers: different kinds": [("90", r"\pi")]}
    [roots] = other_answers([r"2\sqrt{3}", r"\sqrt{12}", r"-\sqrt{12}"]).values()
    assert sorted(roots) == [(r"2\sqrt{3}", r"-\sqrt{12}"), (r"\sqrt{12}", r"-\sqrt{12}")]


def test_a_seeded_sample_of_the_pairs_is_drawn() -> None:
    numbers = [str(i) for i in range(60)]
    [pairs] = other_answers(numbers).values()
    assert len(set(pairs)) == PAIRS
    assert other_answers(numbers)["other answers: numbers"] == pairs


def test_a_pair_that_math_verify_does_not_answer_in_time_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grading_math_verify, "LIMIT", 0.0)
    assert list(grading_math_verify.compare_many([("1", "1"), ("1", "2")])) == ["unknown", "unknown"]


def test_an_empty_answer_is_unknown_to_math_verify() -> None:
    assert list(grading_math_verify.compare_many([("1", ""), ("1", "1.0")])) == ["unknown", "equal"]


def test_the_table_has_the_shares_of_pairs_and_of_answers(figures: dict[str, Any]) -> None:
    # The upper end of 0 of 12 is t²/(n + t²).
    rows = [line for line in tables(figures).splitlines() if "in any pair" in line]
    zero = "12 answers | 0.0 [0.0, 28.8] | "
    assert rows[0] == f"| equal, in any pair | {zero} | 83.3 [51.6, 97.0] |"
    assert rows[1] == f"| unequal, in any pair | {zero} | 16.7 [3.0, 48.4] |"
    pairs = [line for line in tables(figures).splitlines() if " pairs | " in line]
    n = [f"{figures[truth]['pairs']['n']} pairs" for truth in ("equal", "unequal")]
    assert [line.split(" | ")[1] for line in pairs] == n
