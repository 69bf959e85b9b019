"""Models on several benchmarks and their average, with figures worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from core.settings.evaluation import Protocol, Suite
from core.settings.parsing import parse_config
from core.settings.training import Sampling
from core.statistics.estimates import average, paired_share_difference, share
from core.types import Checkpoint
from services.api.app import PREFIX, create_app
from services.api.installation import Installation, QuestionSets
from services.api.routes import comparisons
from services.client import Client
from services.comparison.models import ModelComparison, compare_models, k_curves, models_named
from services.evaluations.figures import figures_of
from storage import queries
from storage.errors import NotThere, StoreError
from storage.session import Store
from tests.api_server import served
from tests.stored_evaluations import store_answers_of

ANY: dict[str, Protocol | None] = {"a": None, "b": None}


@pytest.fixture
def evaluated(store: Store) -> Store:
    """Two models on benchmark a, four samples of two questions, and on b, four questions greedily."""
    store_answers_of(store, "one", "a", ["RRXX", "XXYZ"])
    store_answers_of(store, "two", "a", ["RRRR", "RRXY"])
    store_answers_of(store, "one", "b", [], "RXXX")
    store_answers_of(store, "two", "b", [], "RRXX")
    return store


def compared(store: Store, *models: str, benchmarks: dict[str, Protocol | None] = ANY, **how: Any) -> Any:
    """A `ModelComparison`, whose optional figures a test reads without asking whether they are there."""
    with store.read() as session:
        return compare_models(session, models, benchmarks, **how)


def test_each_benchmark_and_the_average_by_hand(evaluated: Store) -> None:
    comparison = compared(evaluated, "one", "two")
    described = [(each.name, each.questions, each.samples, each.metric) for each in comparison.benchmarks]
    assert described == [("a", 2, 4, "mean@4"), ("b", 4, 0, "greedy")]
    one, two = comparison.rows
    assert {name: cell.figure.value for name, cell in one.cells.items()} == {"a": 0.25, "b": 0.25}
    assert {name: cell.figure.value for name, cell in two.cells.items()} == {"a": 0.75, "b": 0.5}
    assert one.cells["b"].figure == share(1, 4)
    assert (one.average.figure.value, one.average.figure.n) == (0.25, 6)
    assert two.average.figure.value == (0.75 + 0.5) / 2  # not (2 * 0.75 + 4 * 0.5) / 6
    assert (one.average.difference, one.cells["a"].difference) == (None, None)
    # Both questions of a differ by 2 of 4 samples, which does not promise that all questions would.
    a, b = (cell.difference for cell in two.cells.values())
    assert (a.value, a.n) == (0.5, 2)
    of_a, of_b = paired_share_difference([0.5, 0.0], [1.0, 0.5]), paired_share_difference([1, 0, 0, 0], [1, 1, 0, 0])
    assert (a.lo, b.hi) == pytest.approx((of_a.lo, of_b.hi))
    assert two.average.difference == average([a, b])
    assert two.average.difference.value == 0.375


def test_metrics_of_k_samples_are_over_the_benchmarks_that_have_them(evaluated: Store) -> None:
    one, of_two, *of_four = compared(evaluated, "one", "two", metrics=["pass@2", "maj@4", "pass@2"]).rows
    assert (one.model, one.metric, of_two.model, of_two.metric) == ("one", "pass@2", "one", "maj@4")
    # RRXX: one of six pairs has no right answer; its majority of four is a tie. XXYZ is never right.
    assert one.cells["a"].figure.value == pytest.approx(5 / 6 / 2)
    assert of_two.cells["a"].figure.value == pytest.approx(1 / 2 / 2)
    assert [row.cells.keys() for row in of_four] == [{"a"}, {"a"}]
    store_answers_of(evaluated, "one", "c", ["RR", "XX"])
    with_c = compared(evaluated, "one", benchmarks={**ANY, "c": None}, metrics=["pass@2"]).rows[0]
    assert with_c.average.figure.value == pytest.approx((5 / 12 + 1 / 2) / 2)  # b has no samples
    never_asked = compared(evaluated, "one", benchmarks={"a": None, "c": None, "d": None}, metrics=["pass@2"])
    assert (never_asked.rows[0].average, never_asked.missing) == (None, {"one": ["d"]})
    assert one.average is None  # of a single benchmark
    assert of_four[0].cells["a"].difference.value == pytest.approx((1 + 5 / 6) / 2 - 5 / 12)
    with pytest.raises(StoreError, match=r"metric pass@8: .*4 at most"):
        compared(evaluated, "one", "two", metrics=["pass@8"])
    for metric in ("pass@0", "pass@1025"):
        with pytest.raises(StoreError, match=f"metric: .*1,024.*'{metric}'"):
            compared(evaluated, "one", "two", metrics=[metric])


def test_the_figures_are_those_of_each_evaluation(evaluated: Store) -> None:
    comparison = compared(evaluated, "two", metrics=[None, "greedy", "pass@1", "pass@2", "maj@2", "pass@4"])
    with evaluated.read() as session:
        figures = figures_of(session, comparison.benchmarks[0].evaluations["two"])
        curves = k_curves(session, comparison)
    assert figures is not None
    at_2, at_4 = figures.curve[1:]
    expected = [figures.pass_at_1, figures.greedy, figures.pass_at_1, at_2.pass_at_k, at_2.maj_at_k, at_4.pass_at_k]
    assert [row.cells["a"].figure for row in comparison.rows] == expected
    assert curves == {"a": {"two": figures.curve}}
    assert figures.curve[-1].share_at_k == figures.vote_share


def test_what_is_missing_is_named_and_has_no_average(evaluated: Store) -> None:
    store_answers_of(evaluated, "three", "a", ["RRRR", "RRRR"])
    store_answers_of(evaluated, "three", "b", [], "RRRR", finish=False)
    comparison = compared(evaluated, "one", "three", "four")
    assert comparison.missing == {"three": ["b"], "four": ["a", "b"]}
    _, three, four = comparison.rows
    assert (three.cells.keys(), three.average, four.cells) == ({"a"}, None, {})
    # Without the first model's figure there is no difference.
    [_, second] = compared(evaluated, "three", "one").rows
    assert second.cells["a"].difference.n == 2
    assert (second.cells["b"].difference, second.average.difference) == (None, None)
    with pytest.raises(StoreError, match=r"models four: .*a, b"):
        compared(evaluated, "four")


def test_only_evaluations_of_the_suite_s_protocol_are_compared(evaluated: Store) -> None:
    cold = Protocol(samples=4, sampling=Sampling(temperature=0.6, top_p=1.0))
    store_answers_of(evaluated, "one", "a", ["RRRR", "RRRR"], protocol=cold)
    comparison = compared(evaluated, "one", "two", benchmarks={"a": cold})
    assert (comparison.rows[0].cells["a"].figure.value, comparison.missing) == (1, {"two": ["a"]})
    with pytest.raises(StoreError, match="as in the suite"):
        compared(evaluated, "two", benchmarks={"a": cold})
    # Without a suite it is the way in which both were asked.
    assert compared(evaluated, "one", "two").rows[0].cells["a"].figure.value == 0.25


def test_the_same_questions_are_compared_whatever_else_a_model_was_asked(evaluated: Store) -> None:
    store_answers_of(evaluated, "one", "a", ["RRRR"])  # another set of questions, by one model
    assert compared(evaluated, "one", "two").rows[0].cells["a"].figure.value == 0.25
    store_answers_of(evaluated, "three", "a", ["RRRR"])
    with pytest.raises(StoreError, match=r"benchmark a: .*two: 2 .*three: 1 questions"):
        compared(evaluated, "two", "three")
    # Of several ways in which both were asked, that with the most samples.
    store_answers_of(evaluated, "one", "a", ["RRRRRRRR", "XXXXXXXX"])
    store_answers_of(evaluated, "two", "a", ["RRRRRRRR", "XXXXXXXX"])
    assert compared(evaluated, "one", "two").benchmarks[0].samples == 8


@pytest.fixture
def run(evaluated: Store) -> Store:
    """A run whose base model and first Solver were evaluated on a; its Challenger and second Solver were not."""
    with evaluated.write() as session:
        queries.runs.create_run(session, name="r", config=parse_config({"iterations": 2}, "test"))
        for role, t in (("base", 0), ("challenger", 1), ("solver", 1), ("solver", 2)):
            key: Any = f"r/{role}/{t}"
            queries.checkpoints.add_checkpoint(session, Checkpoint(key, "r", role, t, 0, "/m", key, None), {})
    store_answers_of(evaluated, "r/base/0", "a", ["XXXX", "XXXX"], checkpoint="r/base/0")
    store_answers_of(evaluated, "r/solver/1", "a", ["RXXX", "RXXX"], checkpoint="r/solver/1")
    return evaluated


def test_a_run_s_name_stands_for_its_evaluated_solvers(run: Store) -> None:
    with run.read() as session:
        named = models_named(session, ["r", "r:2", "/m/one"], ["a"])
        assert named == {"r": ["r:base", "r:1"], "r:2": ["r:2"], "/m/one": ["/m/one"]}
        with pytest.raises(NotThere, match="run r: "):
            models_named(session, ["r"], ["b"])
    values = [row.cells["a"].figure.value for row in compared(run, "r:base", "r:1", "two").rows]
    assert values == [0, 0.25, 0.75]
    with pytest.raises(NotThere, match="nosuch"):
        compared(run, "nosuch:1")


def test_a_branch_on_labelled_data_is_apart_from_the_loop(run: Store) -> None:
    with run.write() as session:
        branch = Checkpoint("r/labelled/1", "r", "labelled", 1, 0, "/m", "l", "r/solver/1")
        queries.checkpoints.add_checkpoint(session, branch, {})
    store_answers_of(run, "r/labelled/1", "a", ["RRRX", "RRRX"], checkpoint="r/labelled/1")
    with run.read() as session:
        named = models_named(session, ["r", "r/labelled"], ["a"])
        assert named == {"r": ["r:base", "r:1"], "r/labelled": ["r:labelled/1"]}
        with pytest.raises(NotThere, match="run r/labelled: "):
            models_named(session, ["r/labelled"], ["b"])
    assert [row.cells["a"].figure.value for row in compared(run, "r:1", "r:labelled/1").rows] == [0.25, 0.75]


def test_over_rest(run: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = Sampling(top_p=1.0)
    suite = Suite(title="", source="", sampling=sampling, benchmarks={"a": 4, "b": 0})
    sets = QuestionSets(("a", "b", "c"), {"mine": suite})
    app = create_app(run, tmp_path, ask_for_keys=False, installation=Installation(question_sets=sets))
    with served(app) as url:
        answer = Client(url).get("/comparison/models", model=["r:base", "r:1"], suite="mine")
    comparison = TypeAdapter(ModelComparison).validate_python(answer)
    assert comparison == compared(run, "r:base", "r:1", benchmarks={**suite.protocols()})
    assert comparison.missing == {"r:base": ["b"], "r:1": ["b"]}
    api = TestClient(app, "http://localhost")

    def status(**parameters: Any) -> int:
        return api.get(f"{PREFIX}/comparison/models", params=parameters).status_code

    assert status(model="r", benchmark=["a"], metric=["pass@2"]) == 200
    monkeypatch.setattr(comparisons, "_MOST_FIGURES", 2)  # a run's name stands for two models here
    assert status(model="r", benchmark=["a"]) == 200
    assert status(model="r", benchmark=["a"], metric=["pass@2", "greedy"]) == 422
    assert status(model="r:1", benchmark="c") == 409
    assert status(model="r:7", benchmark="a") == 404
    assert status(model="r:1", benchmark="../a.toml") == status(model="r:1", suite="theirs") == 422
    assert status(model="r:1") == status(benchmark="a") == status(model="r:1", benchmark="a", metric="best") == 422
