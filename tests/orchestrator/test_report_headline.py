"""What a report says in words is what its figures bear."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.types import Checkpoint
from orchestrator.report import figures
from orchestrator.report.headline import details, headline
from orchestrator.report.measures import measure
from storage import queries
from storage.session import Store, open_store
from tests.synthetic_run import create, evaluate, held_out


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("correct", "greedy", "said"),
    [
        (6, 1, "The Solver learned: +50.0"),
        (6, 0, "The Solver got surer, not better: +50.0"),
        (2, 1, "The Solver gained in greedy decoding only"),
        (2, 0, "The Solver did not learn, as far as can be told"),
        (0, 0, "The Solver did not learn, it got worse: \N{MINUS SIGN}25.0"),
    ],
)
def test_the_headline_says_what_the_figures_bear(sqlite: Store, correct: int, greedy: int, said: str) -> None:
    with sqlite.write() as session:
        create(session, "run")
        evaluate(session, "run", 0, held_out([2] * 20, [0] * 20, [0] * 20), took=1)
        solver = Checkpoint("run/solver/1", "run", "solver", 1, 20, "/models", "sha", "run/base/0")
        queries.add_checkpoint(session, solver, {})
        evaluate(session, "run", 1, held_out([correct] * 20, [greedy] * 20, [0] * 20), took=1)
    measures = measure(sqlite, "run")
    assert said in headline(measures).replace("\N{NO-BREAK SPACE}", " ")
    assert "20 questions" in headline(measures)


def test_a_fall_since_the_best_iteration_is_told(sqlite: Store) -> None:
    with sqlite.write() as session:
        create(session, "run")
        evaluate(session, "run", 0, held_out([1] * 20, [0] * 20, [0] * 20), took=1)
        for t, correct in ((1, 7), (2, 4)):
            solver = Checkpoint(f"run/solver/{t}", "run", "solver", t, 20, "/models", "sha", "run/base/0")
            queries.add_checkpoint(session, solver, {})
            evaluate(session, "run", t, held_out([correct] * 20, [1] * 20, [1] * 20), took=1)
    measures = measure(sqlite, "run")
    assert figures(sqlite, "run")["best_iteration"] == 1
    assert any(said.startswith("Some of it was lost again: since iteration 1") for said in details(measures))
