"""The curves of several runs: by iteration and by step, alone and over seeds."""

from __future__ import annotations

import math
from typing import Any

import pytest

from core.settings.parsing import parse_config
from core.statistics.estimates import Estimate
from core.types import Checkpoint
from services.views.series import Curve, curves_of, series, steps_until
from storage import queries
from storage.errors import StoreError
from storage.rows import SeriesPoint
from storage.session import Store


def exact(value: float) -> Estimate:
    return Estimate(value, value, value, 1)


@pytest.fixture
def runs(store: Store) -> Store:
    """Two runs of two iterations, of two steps and one."""
    with store.write() as session:
        for run, plus in (("a", 0.0), ("b", 1.0)):
            queries.runs.create_run(session, name=run, config=parse_config({"iterations": 2}, "test"))
            for t, step, value in ((1, 1, 1.0), (1, 2, 2.0), (2, 1, 3.0)):
                metrics = {"kl": value + plus, "label_accuracy": value / 4, "grad_norm": math.nan if t == 1 else 5.0}
                key: dict[str, Any] = {"run": run, "iteration": t, "step": step}
                add = queries.figures.add_train_metrics
                add(session, **key, role="challenger", metrics={"kl": 9.0, "label_accuracy": 0.9})
                add(session, **key, role="solver", metrics=metrics)
            points = [
                SeriesPoint(0, "held_out", "", "", 0.25, 0.125, 0.5, 10),
                SeriesPoint(1, "held_out", "", "", 0.5 + plus / 4, 0.375, 0.625, 10),
                SeriesPoint(2, "held_out", "", "", 0.75, 0.625, 0.875, 10),
                SeriesPoint(1, "kl", "", "", 2.0 + plus, None, None, 2),
                SeriesPoint(1, "p_hat", "kept", "", 0.5, None, None, 2),
                SeriesPoint(1, "p_hat", "all", "", 0.25, None, None, 4),
                SeriesPoint(1, "label_accuracy", "kept", "judge", 0.5, 0, 1, 2),
                SeriesPoint(1, "label_accuracy", "kept", "exact", 0.75, 0, 1, 2),
                SeriesPoint(2, "label_accuracy", "kept", "exact", 0.5, 0, 1, 2, estimated=True),
                SeriesPoint(1, "label_accuracy", "all", "exact", 0.25, 0, 1, 4),
            ]
            queries.series.put_series(session, run, points)
    return store


def curves(store: Store, name: str, by_step: bool, **arms: list[str]) -> dict[str, Curve]:
    with store.read() as session:
        return curves_of(session, arms or {"a": ["a"], "b": ["b"]}, name, by_step)


def test_a_series_by_iteration_has_its_own_intervals(runs: Store) -> None:
    assert curves(runs, "held_out", False)["a"] == {
        0: Estimate(0.25, 0.125, 0.5, 10),
        1: Estimate(0.5, 0.375, 0.625, 10),
        2: Estimate(0.75, 0.625, 0.875, 10),
    }
    assert curves(runs, "kl", False) == {"a": {1: exact(2)}, "b": {1: exact(3)}}
    with runs.read() as session:
        assert series(session, "a", "p_hat") == {1: exact(0.25)}  # over all questions
        assert series(session, "a", "label_accuracy") == {1: Estimate(0.75, 0, 1, 2)}  # kept, measured, by one oracle


def test_by_step_the_steps_of_all_iterations_are_counted_on(runs: Store) -> None:
    with runs.read() as session:
        assert steps_until(session, "a") == {0: 0, 1: 2, 2: 3}
    assert curves(runs, "kl", True)["b"] == {1: exact(2), 2: exact(3), 3: exact(4)}
    assert [*curves(runs, "held_out", True)["a"]] == [0, 2, 3]  # at the last step of each iteration
    assert curves(runs, "training_label_accuracy", True)["a"] == {1: exact(0.25), 2: exact(0.5), 3: exact(0.75)}
    assert curves(runs, "label_accuracy", True)["a"] == {2: Estimate(0.75, 0, 1, 2)}  # the series, not the metric
    assert curves(runs, "grad_norm", True)["a"] == {3: exact(5)}  # no series; NaN is left out


def test_the_steps_of_a_branch_on_labelled_data_are_not_those_of_the_loop(runs: Store) -> None:
    with runs.write() as session:
        solver = Checkpoint("a/solver/1", "a", "solver", 1, 2, "/m", "s", None)
        queries.checkpoints.add_checkpoint(session, solver, {})
        queries.figures.add_train_metrics(
            session, run="a", iteration=1, role="solver", step=3, metrics={"labelled_kl": 0.5}
        )
    with runs.read() as session:
        assert steps_until(session, "a") == {0: 0, 1: 2, 2: 3}
    assert curves(runs, "kl", True)["a"] == {1: exact(1), 2: exact(2), 3: exact(3)}
    assert curves(runs, "labelled_kl", True)["a"] == {3: exact(0.5)}  # the step after its Solver's


def test_several_seeds_have_their_mean(runs: Store) -> None:
    both = curves(runs, "held_out", False, arm=["a", "b"])["arm"]
    assert both[1].value == (0.5 + 0.75) / 2
    assert (both[0].lo, both[0].hi, both[0].n) == (0.25, 0.25, 2)
    assert (both[1].lo, both[1].hi) == (0, 1)  # Student's interval would be wider than a share can be
    kl = curves(runs, "kl", False, arm=["a", "b"])["arm"]
    assert kl[1].hi == pytest.approx(2.5 + 12.7062 * 0.5)  # Student's t with one degree of freedom


def test_a_figure_that_no_run_has_is_refused_with_those_that_there_are(runs: Store) -> None:
    with pytest.raises(StoreError, match=r"grad_norm: .* held_out, kl, label_accuracy, p_hat$"):
        curves(runs, "grad_norm", False)
    with pytest.raises(StoreError, match="grad_norm, held_out, kl"):
        curves(runs, "nosuch", True)
