"""The synthetic worlds of Poly-EPO 6.2. The answers are checked by other code than that which made them."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Symbol, sympify
from transformers import AutoTokenizer

from core.grading.grader import Grader
from core.questions.parsing import refuse_question
from core.rollouts.strategies import skeleton_clusters
from core.settings.config import SelfTraining
from core.settings.parsing import parse_config
from core.settings.templates import RZERO_SOLVER
from orchestrator.installation.home import MICRO_MODEL
from orchestrator.question_sets.benchmarks import load_benchmark
from orchestrator.question_sets.prompts import read_prompts
from trainers.micro import synthetic
from trainers.micro.__main__ import main
from trainers.micro.tokenizer import render

_FACTORS = re.compile(r"Compute (\d+) \* (\d+) by ")
_RELATION = re.compile(r"satisfies y = (.+)\.$")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, synthetic.MAX_DIGITS))
def test_a_multiplication_s_answer_is_the_sum_of_its_partial_products(seed: int, digits: int) -> None:
    for prompt in synthetic.multiplications(seed, 20, digits):
        match = _FACTORS.match(prompt.problem)
        assert match is not None
        assert sum(
            int(a) * int(b) * 10 ** (i + j)
            for i, a in enumerate(reversed(match[1]))
            for j, b in enumerate(reversed(match[2]))
        ) == int(prompt.answer)
        sizes = sorted((len(match[1]), len(match[2])), reverse=True)
        assert prompt.level == f"{sizes[0]}x{sizes[1]}"
        assert 2 <= sizes[1] <= sizes[0] <= digits


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, synthetic.MAX_DEGREE), st.integers(-20, 20))
def test_the_points_of_a_polynomial_are_right_and_others_are_not(seed: int, degree: int, x: int) -> None:
    [prompt] = synthetic.polynomials(seed, 1, degree)
    match = _RELATION.search(prompt.problem)
    assert match is not None
    relation = sympify(re.sub(r"(\d)x", r"\1*x", match[1]).replace("^", "**"))
    y = int(relation.subs(Symbol("x"), x))
    assert relation.as_poly(Symbol("x")).degree() == degree == int(prompt.level)
    with Grader() as grader:
        verdicts = [
            comparison.verdict
            for comparison in grader.compare_many([(f"({x}, {y + d})", prompt.answer) for d in (0, 1, -1)])
        ]
    assert verdicts == ["equal", "unequal", "unequal"]


@pytest.mark.parametrize(
    ("coefficients", "text"),
    [
        ([1, 3, 7], "x^2 + 3x + 7"),
        ([-1, 0, -1, 1], "-x^3 - x + 1"),
        ([2, 0], "2x"),
        ([-9, -1], "-9x - 1"),
        ([5], "5"),
        ([0], "0"),
    ],
)
def test_polynomials_as_they_are_written(coefficients: list[int], text: str) -> None:
    assert synthetic.polynomial(coefficients) == text


def test_prompts_are_different_seeded_and_of_all_sizes() -> None:
    made = synthetic.multiplications(1, 600, 3)
    assert len({prompt.problem for prompt in made}) == 600
    assert made == synthetic.multiplications(1, 600, 3) != synthetic.multiplications(2, 600, 3)
    levels = Counter(prompt.level for prompt in made)
    assert levels.keys() == {"2x2", "3x2", "3x3"}
    assert min(levels.values()) > 100  # a quarter, a half and a quarter are expected
    with pytest.raises(synthetic.TooManyPrompts, match="n: "):
        synthetic.polynomials(1, 172, degree=1)  # of 18 * 19 = 342
    assert len(synthetic.polynomials(1, 171, degree=1)) == 171


def test_a_product_in_any_spelling_is_right_and_another_is_not(grader: Grader) -> None:
    [prompt] = [problem for problem in synthetic.multiplications(0, 500) if problem.level == "3x3"][:1]
    product = int(prompt.answer)
    answers = [f"{product:,}", f"{product}.0", f"{product + 10}", f"{product - 1}", "(1, 11)"]
    verdicts = [
        comparison.verdict for comparison in grader.compare_many([(answer, prompt.answer) for answer in answers])
    ]
    assert verdicts == ["equal", "equal", "unequal", "unequal", "unequal"]


def test_ways_to_decompose_the_paper_s_product_are_different_strategies_without_a_judge() -> None:
    """343 * 67 (Poly-EPO 6.2), as the sums are written in the paper, by places, by factors, and as a bare guess."""
    solutions = [
        "(340 + 3)(70 - 3) = 340 * 70 - 340 * 3 + 3 * 70 - 3 * 3 = 22981",
        "(350 + 7)(60 - 2) = 350 * 60 - 350 * 2 + 7 * 60 - 7 * 2 = 20706",  # the same way, with a mistake
        "343 * 67 = 343 * 60 + 343 * 7 = 20580 + 2401 = 22981",
        "343 * 67 = 7 * 7 * 7 * 67 = 22981",
        "",
    ]
    assert skeleton_clusters([rf"{text} \boxed{{22981}}" for text in solutions]) == (1, 1, 2, 3, 100)


@pytest.mark.parametrize("world", ["multiplication", "polynomials"])
def test_the_command_writes_prompts_that_a_run_and_an_evaluation_can_read(
    world: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / f"{world}.jsonl"
    main(["prompts", world, str(file), "--n", "50", "--seed", "3"])
    assert capsys.readouterr().out.strip() == str(file)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row.keys() for row in rows] == [{"problem", "answer", "level"}] * 50
    config = parse_config(
        {
            "prompts": {"file": str(file), "answer": "answer", "labels": "given"},
            "solver": {"reward": {"type": "poly_epo"}},
        },
        "test",
    )
    assert isinstance(config, SelfTraining)
    read = read_prompts(config, config.prompts)
    assert [(prompt.text, prompt.answer) for prompt in read] == [(row["problem"], row["answer"]) for row in rows]
    items = load_benchmark(str(file))
    assert [(item.answer, item.level) for item in items] == [(row["answer"], row["level"]) for row in rows]
    assert all(refuse_question(row["problem"], 400) is None for row in rows)


@pytest.mark.parametrize(("file", "n", "named"), [("new.jsonl", "999", "n: "), ("a/p.jsonl", "5", "a/p.jsonl")])
def test_a_number_of_prompts_that_there_are_not_and_a_file_that_cannot_be_written_are_refused(
    tmp_path: Path, file: str, n: str, named: str
) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(SystemExit, match=re.escape(named)):
        main(["prompts", "polynomials", str(tmp_path / file), "--n", n, "--degree", "1"])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_tiny_model_s_tokenizer_writes_both_worlds() -> None:
    tokenizer = AutoTokenizer.from_pretrained(MICRO_MODEL)
    made = [
        *synthetic.multiplications(0, 20, synthetic.MAX_DIGITS),
        *synthetic.polynomials(0, 20, synthetic.MAX_DEGREE),
    ]
    solutions = [
        "(340 + 3)(70 - 3) = 340 * 70 - 340 * 3 + 3 * 70 - 3 * 3 = 22981\n\\boxed{22981}",
        "x = 1: y = 1^2 + 3 * 1 + 7 = 11\n\\boxed{(1, 11)}",
    ]
    for text in [*(prompt.problem for prompt in made), *solutions]:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    longest = max(len(tokenizer.encode(render(RZERO_SOLVER.messages(prompt.problem)))) for prompt in made)
    assert longest + max(len(tokenizer.encode(text)) for text in solutions) < tokenizer.model_max_length
