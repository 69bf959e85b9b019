"""The sentences of a report match its figures."""

from __future__ import annotations

import pytest

from services.run_report.figures import figures
from services.run_report.headline import details, headline
from services.run_report.measures import measure
from storage.session import Store
from tests.synthetic_run import CONFIG, add_solver, create, evaluate, held_out, label, vote_of


@pytest.mark.parametrize(
    ("correct", "greedy", "expected"),
    [
        (6, 1, "The Solver learned: +50.0"),
        (6, 0, "The Solver got surer, not better: +50.0"),
        (2, 1, "The Solver gained in greedy decoding only"),
        (2, 0, "The Solver did not learn, as far as can be told"),
        (0, 0, "The Solver did not learn, it got worse: \N{MINUS SIGN}25.0"),
    ],
)
def test_the_headline_matches_the_figures(sqlite: Store, correct: int, greedy: int, expected: str) -> None:
    with sqlite.write() as session:
        create(session, "run")
        evaluate(session, "run", 0, held_out([2] * 20, [0] * 20, [0] * 20), took=1)
        add_solver(session, "run", 1)
        evaluate(session, "run", 1, held_out([correct] * 20, [greedy] * 20, [0] * 20), took=1)
    measures = measure(sqlite, "run")
    assert expected in headline(measures).replace("\N{NO-BREAK SPACE}", " ")
    assert "20 questions" in headline(measures)


@pytest.mark.parametrize(
    ("base", "trained", "expected"),
    [
        ([1] * 20, ([7] * 20, [4] * 20), "Some of it was lost again: since iteration 1"),
        ([1] * 20, ([7] * 20, [7] * 19 + [6]), "It held, as far as can be told: since iteration 1"),
        # Not above the base model, so nothing to lose.
        ([4] * 20, ([5] + [4] * 19, [2] * 20), "Since iteration 1"),
        # Five of twenty questions have one right sample less. Chance does that in one of 32 cases, which is below 0.05
        # but not below half of it; and the best is one of three iterations.
        ([1] * 20, ([7] * 20, [6] * 20, [7] * 15 + [6] * 5), "It held, as far as can be told: since iteration 1"),
    ],
)
def test_a_fall_since_the_best_iteration_is_a_loss_only_if_the_best_had_gained(
    sqlite: Store, base: list[int], trained: tuple[list[int], ...], expected: str
) -> None:
    assert _since_best(sqlite, base, *trained).startswith(expected)
    assert figures(sqlite, "run")["best_iteration"] == int(expected[-1])


def _since_best(sqlite: Store, base: list[int], *trained: list[int]) -> str:
    """The sentence about the best of these iterations, each given as its right samples of eight of each question."""
    with sqlite.write() as session:
        create(session, "run")
        evaluate(session, "run", 0, held_out(base, [1] * 20, [0] * 20), took=1)
        for t, correct in enumerate(trained, 1):
            add_solver(session, "run", t)
            evaluate(session, "run", t, held_out(correct, [1] * 20, [1] * 20), took=1)
    [sentence] = [sentence for sentence in details(measure(sqlite, "run")) if "the best by pass@1" in sentence]
    return sentence


# The intervals of 181/196 and 167/195 are [87.72, 95.32] and [79.99, 89.90], so they overlap. Newcombe's of the
# difference: 92.35 - 85.64 = 6.71; sqrt(5.65^2 + 2.97^2) = 6.39 and sqrt(4.26^2 + 4.62^2) = 6.28.
@pytest.mark.parametrize(
    ("right", "of", "expected"),
    [
        (167, 195, "a change of −6.7 points [−13.1, −0.4]: the share fell."),
        (175, 195, "a change of −2.6 points [−8.5, +3.2]: chance alone may explain it."),
        (195, 196, "a change of +7.1 points [+3.4, +11.8]: the share rose."),
    ],
)
def test_label_accuracy_is_judged_by_the_interval_of_its_change(
    sqlite: Store, right: int, of: int, expected: str
) -> None:
    with sqlite.write() as session:
        create(session, "run")
        for t, (correct, n) in enumerate([(181, 196), (right, of)], 1):
            votes = [
                (f"What is {i} + {t}?", vote_of((str(i + t + (i >= correct)), 5), ("none of these", 3)))
                for i in range(n)
            ]
            label(session, "run", t, votes, CONFIG)
    sentences = details(measure(sqlite, "run"))
    [sentence] = [sentence for sentence in sentences if sentence.startswith("Of the kept pseudo-labels")]
    assert "92.3% [87.7, 95.3] (n = 196)" in (plain := sentence.replace("\N{NO-BREAK SPACE}", " "))
    assert plain.endswith(expected)
