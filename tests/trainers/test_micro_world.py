from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import worlds
from core.grading.answers import extract_boxed
from core.questions.parsing import parse_question
from trainers.micro import world
from trainers.micro.families import arithmetic

DRAWS = 4000
_LINE = re.compile(r"(?:[a-z] = )?(-?\d+) ([-+*]) (-?\d+) = (-?\d+)")

every_world = pytest.mark.parametrize("tested", [world.LONG, world.EQUATIONS], ids=["arithmetic", "equations"])


def within_noise(count: int, share: float, n: int) -> bool:
    """Whether the count is within five standard errors: a correct generator fails with one in a million seeds, and the
    tests' seeds are fixed."""
    return abs(count - share * n) <= 5 * (share * (1 - share) * n) ** 0.5


@every_world
@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), operations=st.integers(1, world.LONG.max_operations))
def test_a_question_s_answer_and_operations_are_the_oracle_s(tested: world.World, seed: int, operations: int) -> None:
    problem = world.make_problem(random.Random(seed), operations, tested)
    assert problem.operations == operations == worlds.difficulty(problem.text)
    assert worlds.solve(problem.text) == problem.answer
    assert len(problem.text) <= 400  # what the presets accept of a Challenger


@every_world
@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), how=st.integers(0, 2**32))
def test_every_question_that_a_world_breaks_is_ill_posed(tested: world.World, seed: int, how: int) -> None:
    """Every way to break a question removes what no question may lack."""
    problem = world.make_problem(random.Random(seed), world=tested)
    assert worlds.solve(tested.family.make_ill_posed(problem.text, random.Random(how))) is None


@every_world
@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), operations=st.integers(1, world.LONG.max_operations))
def test_every_line_of_a_solution_is_right_and_a_guess_is_near(tested: world.World, seed: int, operations: int) -> None:
    rng = random.Random(seed)
    problem = world.make_problem(rng, operations, tested)
    *lines, last = world.write_solution(problem, rng).split("\n")
    for line in lines:
        match = _LINE.fullmatch(line)
        assert match is not None
        a, b, result = int(match[1]), int(match[3]), int(match[4])
        assert {"+": a + b, "-": a - b, "*": a * b}[match[2]] == result
    boxed = int(extract_boxed(last) or "")
    if len(lines) == operations:
        assert boxed == problem.answer
    else:
        assert abs(boxed - problem.answer) <= world.GUESS_WITHIN


@given(seed=st.integers(0, 2**32), operations=st.integers(1, world.EQUATIONS.max_operations))
def test_each_line_solves_the_next_equation_with_its_terms_in_their_order(seed: int, operations: int) -> None:
    problem = world.make_problem(random.Random(seed), operations, world.EQUATIONS)
    lines, values = iter(problem.lines), dict[str, str]()
    for equation in re.findall(r"\w+(?: [-+*=] \w+)+", problem.text):
        [new] = set(re.findall("[a-z]", equation)) - set(values)
        known = [values.get(term, term) for term in re.findall(r"\w+", equation) if term != new]
        if len(known) == 1:
            values[new] = known[0]
            continue
        line = re.fullmatch(rf"{new} = (\S+) (.) (\S+) = (\S+)", next(lines))
        assert line is not None
        values[new] = line[4]
        assert known == [line[1], line[3]] or (line[2] == "-" and known == [line[3], line[1]])
    assert next(lines, None) is None


def test_reductions_by_hand() -> None:
    """2 + 3 * 4 - 5 is reduced product first, then from the left."""
    assert arithmetic.reduce_all([2, 3, 4, 5], ["+", "*", "-"]) == [(3, "*", 4, 12), (2, "+", 12, 14), (14, "-", 5, 9)]


@pytest.mark.parametrize("operations", [1, 2, 4, 6, 9])
def test_solutions_guess_at_once_at_the_documented_rate(operations: int) -> None:
    rng = random.Random(operations)
    problems = [world.make_problem(rng, operations) for _ in range(DRAWS)]
    guessed = sum("\n" not in world.write_solution(problem, rng) for problem in problems)
    assert within_noise(guessed, (0.0, 0.0, 0.4, 0.5, 0.6, 0.65, 0.7)[min(operations, 6)], DRAWS)


def test_a_complete_solution_has_a_line_for_each_operation() -> None:
    rng = random.Random(4)
    problems = [world.make_problem(rng, world=world.LONG) for _ in range(50)]
    for problem in problems:
        *lines, last = world.write_solution(problem, rng, complete=True).split("\n")
        assert (tuple(lines), last) == (problem.lines, f"\\boxed{{{problem.answer}}}")
    assert max(problem.operations for problem in problems) > world.SHORT.max_operations


@pytest.mark.parametrize("tested", [world.SHORT, world.LONG, world.EQUATIONS], ids=["short", "long", "equations"])
def test_challenges_have_the_documented_shares_of_malformed_and_ill_posed_questions_and_levels(
    tested: world.World,
) -> None:
    rng = random.Random(1)
    drawn = [world.write_challenge(rng, tested) for _ in range(DRAWS)]
    questions = [text for document, _ in drawn if (text := parse_question(document)) is not None]
    assert within_noise(DRAWS - len(questions), world.MALFORMED, DRAWS)
    levels = Counter(worlds.difficulty(text) for text in questions)
    assert within_noise(levels[None], world.ILL_POSED, len(questions))
    for operations, share in enumerate(tested.challenger_operations, 1):
        assert within_noise(levels[operations], share * (1 - world.ILL_POSED), len(questions))


def test_a_benchmark_has_as_many_questions_of_each_level_and_no_repetition() -> None:
    benchmark = world.make_benchmark(seed=5, per_level=30)
    assert Counter(p.operations for p in benchmark) == dict.fromkeys(range(1, 7), 30)
    assert len({p.text for p in benchmark}) == 180
    assert benchmark == world.make_benchmark(seed=5, per_level=30) != world.make_benchmark(seed=6, per_level=30)
    long = world.make_benchmark(seed=5, per_level=3, world=world.LONG, fewest=2)
    assert Counter(p.operations for p in long) == dict.fromkeys(range(2, 13), 3)
