"""Runs compared by arm, with figures worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete
from sqlalchemy.orm import Session

from core.settings.parsing import parse_config
from core.statistics.estimates import paired_share_difference
from core.types import Checkpoint, Evaluated
from services.comparison.runs import arms_named, compare
from services.views.latest_figures import latest_figures
from services.views.series import ValueAt
from storage import queries
from storage.errors import NotThere, StoreError
from storage.models import Evaluations
from storage.rows import ExperimentRun, SeriesPoint
from storage.session import Store
from tests.synthetic_run import add_evaluations


def add_run(store: Store, name: str, right: Sequence[Sequence[bool]], **settings: Any) -> None:
    """A run with `right[t][question]`, whether S(t)'s greedy answer is right; so are both of its two samples."""
    with store.write() as session:
        config = parse_config({"iterations": 1, "evaluation": {"benchmark": "b.jsonl"}, **settings}, "test")
        queries.runs.create_run(session, name=name, config=config)
        for t, answers in enumerate(right):
            role: Any = "solver" if t else "base"
            checkpoint = Checkpoint(f"{name}/{role}/{t}", name, role, t, 0, "/m", f"{name}{t}", None)
            queries.checkpoints.add_checkpoint(session, checkpoint, {})
            add_evaluations(session, checkpoint=checkpoint.id, benchmark="b.jsonl", items=evaluated(answers))


YES, NO = True, False


def evaluated(answers: Sequence[bool]) -> list[Evaluated]:
    return [Evaluated(f"q{i}", None, 2, 2 * is_right, is_right, is_right) for i, is_right in enumerate(answers)]


def compared(store: Store, *names: str) -> Any:
    """A `Comparison`, whose optional figures a test reads without asking whether they are there."""
    with store.read() as session:
        return compare(session, *arms_named(session, names))


@pytest.fixture
def experiment(store: Store) -> Store:
    """Two arms with two seeds. The baseline gets 2 and 3 of 4 questions right, the other arm 3 and 3."""
    base = [YES, NO, NO, NO]
    add_run(store, "x-full-1", [base, [YES, YES, NO, NO]], seed=1)
    add_run(store, "x-full-2", [base, [YES, YES, YES, NO]], seed=2)
    unfiltered = {"dataset": {"filtered": False}}
    add_run(store, "x-all-1", [base, [YES, YES, NO, YES]], seed=1, **unfiltered)
    add_run(store, "x-all-2", [base, [YES, NO, YES, YES]], seed=2, **unfiltered)
    with store.write() as session:
        for position, arm in enumerate(("full", "all")):
            for seed in (1, 2):
                queries.experiments.add_run(session, ExperimentRun(f"x-{arm}-{seed}", "x", arm, position, seed))
        for run, right in (("x-full-1", 0.8), ("x-full-2", 0.6), ("x-all-1", 0.5)):
            accuracy = SeriesPoint(1, "label_accuracy", "kept", "exact", right, 0, 1, 10)
            negatives = SeriesPoint(1, "negative_labels", "", "", 10 * right, None, None, 5)
            majority = replace(negatives, name="majority_share", value=right)
            queries.series.put_series(session, run, [accuracy, negatives, replace(negatives, name="kl"), majority])
    return store


def test_the_arms_of_an_experiment_are_compared_question_by_question(experiment: Store) -> None:
    comparison = compared(experiment, "x")
    assert (comparison.benchmark, comparison.questions, comparison.baseline) == ("b.jsonl", 4, "full")
    full, other = comparison.arms
    assert (full.arm, full.runs, full.iteration) == ("full", ["x-full-1", "x-full-2"], 1)
    assert (full.settings, other.settings) == ({"dataset.filtered": True}, {"dataset.filtered": False})
    assert [(point.iteration, point.values) for point in full.curves["greedy"]] == [(0, [0.25, 0.25]), (1, [0.5, 0.75])]
    assert full.curves["greedy"][1].mean == 0.625
    assert full.curves["label_accuracy"][0].mean == pytest.approx(0.7)
    # The mean of 8 and 6 is 7, its standard error 1, and t with one degree of freedom 12.706. Only a share ends at 1.
    for name in ("negative_labels", "kl"):
        [figure] = full.curves[name]
        assert (figure.mean, figure.interval.hi) == (pytest.approx(7), pytest.approx(19.706, abs=1e-3))
    [majority] = full.curves["majority_share"]
    assert (majority.mean, majority.interval.hi) == (pytest.approx(0.7), 1)
    assert "label_accuracy" not in other.curves  # one of its runs has none
    assert full.differences == {}
    # seed 1: one question more; seed 2: one more and one less
    assert other.differences["greedy"].by_seed == [0.25, 0]
    assert other.differences["pass_at_1"].value == 0.125
    assert other.differences["majority"].over_questions.n == 4
    # Over the two seeds, whose differences are 1/4 and 0: the deviation is 1/sqrt(32). Greedy figures are in steps of
    # a quarter, and rounding to these adds (1/4)²/6.
    test = other.differences["greedy"].over_seeds
    half = 12.7062 * ((1 / 32 + 1 / 96) / 2) ** 0.5
    assert (test.estimate.n, test.paired, test.p, test.sign_p) == (2, True, None, None)
    assert (test.estimate.value, test.estimate.hi) == (0.125, pytest.approx(0.125 + half, abs=1e-4))
    over_seeds, no_p, over_questions = comparison.remarks
    assert "its difference to full" in over_seeds
    assert "(all)" in no_p
    assert "over the choice of questions" in over_questions


def test_a_comparison_says_once_which_runs_are_not_paired_and_reads_the_questions_of_last_iterations_only(
    experiment: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()
    results_of = queries.evaluations.results_of

    def recorded(session: Session, key: str, **page: Any) -> list[Evaluated]:
        read.append(key)
        return results_of(session, key, **page)

    monkeypatch.setattr(queries.evaluations, "results_of", recorded)
    for run in ("one", "two"):
        add_run(experiment, run, [[YES, NO, NO, NO], [YES, YES, NO, NO]], seed=7)
    comparison = compared(experiment, "x-full-1", "one", "x-full-2", "two")
    [remark] = [remark for remark in comparison.remarks if "paired by seed" in remark]
    assert remark.count(": one (7), x-full-2 (2), two (7);") == 1
    assert [point.iteration for point in comparison.arms[1].curves["greedy"]] == [0, 1]
    assert len(read) == len(comparison.arms)


def test_the_latest_accuracy_is_compared_on_the_same_questions(experiment: Store) -> None:
    """The baseline's S(1) has q0 and q1 right, the other's q0, q1 and q3: a quarter more, of four questions."""
    with experiment.write() as session:
        for run, value in (("x-full-1", 0.5), ("x-all-1", 0.75)):
            queries.series.put_series(session, run, [SeriesPoint(1, "held_out", "", "", value, 0.1, 0.9, 4)])
    with experiment.read() as session:
        [latest] = latest_figures(session, ["x-all-1"], ["held_out"], "x-full-1", None)
    [figure] = latest.figures
    expected = paired_share_difference([1, 1, 0, 0], [1, 1, 0, 1])
    assert expected is not None
    assert figure.difference == ValueAt(1, 0.25, pytest.approx(expected.lo), pytest.approx(expected.hi), 4)


def test_runs_are_compared_as_arms_of_their_own(experiment: Store) -> None:
    comparison = compared(experiment, "x-all-1", "x-full-2")
    assert [(arm.arm, arm.runs) for arm in comparison.arms] == [("x-all-1", ["x-all-1"]), ("x-full-2", ["x-full-2"])]
    difference = comparison.arms[1].differences["greedy"]
    assert (difference.value, difference.over_seeds, difference.by_seed) == (0.0, None, [])
    assert comparison.arms[1].curves["greedy"][0].interval is None
    *_, single, different = comparison.remarks
    assert single.startswith("x-full-2: a single run is compared")
    assert different.startswith("Not paired by seed")
    assert "those of x-all-1 (1): x-full-2 (2)" in different
    same_seed = compared(experiment, "x-all-1", "x-full-1")
    assert same_seed.remarks[-1] == single.replace("x-full-2", "x-full-1")
    assert same_seed.arms[1].differences["greedy"].by_seed == [-0.25]


def test_solvers_trained_on_labelled_data_apart_from_the_loop_are_an_arm_of_their_own(experiment: Store) -> None:
    """S(1) has 2 of 4 right; after labelled data it has 3."""
    with experiment.write() as session:
        branch = Checkpoint("x-full-1/labelled/1", "x-full-1", "labelled", 1, 0, "/m", "b", "x-full-1/solver/1")
        queries.checkpoints.add_checkpoint(session, branch, {})
        items = evaluated([YES, YES, YES, NO])
        add_evaluations(session, checkpoint=branch.id, benchmark="b.jsonl", items=items)
    comparison = compared(experiment, "x-all-1", "x-full-1")
    names = ["x-all-1", "x-full-1", "x-full-1/labelled"]
    assert [(arm.arm, arm.iteration) for arm in comparison.arms] == [(name, 1) for name in names]
    _, loop, branch_arm = comparison.arms
    assert [(point.iteration, point.mean) for point in loop.curves["greedy"]] == [(0, 0.25), (1, 0.5)]
    assert [(point.iteration, point.mean) for point in branch_arm.curves["greedy"]] == [(1, 0.75)]
    assert branch_arm.curves.keys() == {"greedy", "majority", "pass_at_1"}
    assert (branch_arm.runs, branch_arm.settings) == (loop.runs, loop.settings)
    # Against 3 of 4 (YES, YES, NO, YES): one question more, one less.
    assert branch_arm.differences["greedy"].by_seed == [0.0]
    assert loop.differences["greedy"].by_seed == [-0.25]


def test_a_run_without_results_is_left_out_until_it_has_some(experiment: Store) -> None:
    add_run(experiment, "x-full-3", [], seed=3)
    add_run(experiment, "x-new-1", [], seed=1)
    with experiment.write() as session:
        queries.experiments.add_run(session, ExperimentRun("x-full-3", "x", "full", 0, 3))
        queries.experiments.add_run(session, ExperimentRun("x-new-1", "x", "new", 2, 1))
    comparison = compared(experiment, "x")
    assert [(arm.arm, len(arm.runs)) for arm in comparison.arms] == [("full", 2), ("all", 2)]
    assert comparison.remarks[-1].startswith("new: left out")


@pytest.mark.parametrize("arm", ["all", "full"], ids=["another arm", "the baseline"])
def test_an_arm_whose_runs_have_no_iteration_in_common_is_left_out_by_name(experiment: Store, arm: str) -> None:
    """The Solvers of the second seed lose their finished evaluations, and the base model of the first."""
    with experiment.write() as session:
        for model in (f"x-{arm}-1/base/0", f"x-{arm}-2/solver/1"):
            session.execute(delete(Evaluations).where(Evaluations.model == model))
    if arm == "full":
        with pytest.raises(StoreError, match="full"):
            compared(experiment, "x")
        return
    comparison = compared(experiment, "x")
    assert [arm.arm for arm in comparison.arms] == ["full"]
    assert [remark for remark in comparison.remarks if remark.startswith("all: left out")]


def test_an_evaluation_that_is_not_finished_is_not_compared(experiment: Store) -> None:
    with experiment.write() as session:
        checkpoint = Checkpoint("x-all-1/solver/2", "x-all-1", "solver", 2, 0, "/m", "later", None)
        queries.checkpoints.add_checkpoint(session, checkpoint, {})
        names = {"model": checkpoint.id, "checkpoint": checkpoint.id, "run": "x-all-1", "benchmark": "b.jsonl"}
        key = queries.evaluations.begin_evaluation(session, manifest={}, **names).id
        queries.evaluations.add_results(session, key, [Evaluated("q0", None, 2, 0, False, False)])
    comparison = compared(experiment, "x-all-1", "x-full-1")
    assert [arm.iteration for arm in comparison.arms] == [1, 1]
    assert comparison.questions == 4


def test_runs_without_a_question_in_common_have_no_differences(experiment: Store) -> None:
    add_run(experiment, "elsewhere", [])
    with experiment.write() as session:
        checkpoint = Checkpoint("elsewhere/base/0", "elsewhere", "base", 0, 0, "/m", "e", None)
        queries.checkpoints.add_checkpoint(session, checkpoint, {})
        items = [Evaluated("other", None, 2, 1, True, True)]
        add_evaluations(session, checkpoint=checkpoint.id, benchmark="b.jsonl", items=items)
    comparison = compared(experiment, "x-all-1", "elsewhere")
    assert comparison.questions == 0
    assert [arm.differences for arm in comparison.arms] == [{}, {}]
    assert comparison.arms[1].curves["greedy"][0].values == [1.0]


def test_what_cannot_be_compared_is_refused(experiment: Store) -> None:
    add_run(experiment, "elsewhere", [[YES]], evaluation={"benchmark": "other.jsonl"})
    add_run(experiment, "new", [])
    for names, error, words in (
        (("x-full-1", "elsewhere"), StoreError, r"b\.jsonl, other\.jsonl"),
        (("new", "x-full-1"), StoreError, "baseline new: "),
        (("x-full-1",), StoreError, "run x-full-1: "),
        (("nosuch",), NotThere, "nosuch"),
    ):
        with pytest.raises(error, match=words):
            compared(experiment, *names)


def test_a_run_of_another_kind_shows_no_settings_that_it_lacks(store: Store) -> None:
    prompts = {"file": "micro", "limit": 9, "labels": "given"}
    add_run(store, "loop", [[True]])
    add_run(store, "alone", [[True]], prompts=prompts, solver={"reward": {"type": "supervised"}})
    loop, alone = compared(store, "loop", "alone").arms
    assert loop.settings["kind"] == "co_evolve"
    assert loop.settings["challenger.trained"] is True
    assert alone.settings["prompts.limit"] == 9
    assert not [name for name in loop.settings if name.startswith("prompts.")]
    assert not [name for name in alone.settings if name.startswith("challenger.")]


def test_a_run_that_has_not_ended_does_not_stand_for_its_arm(experiment: Store) -> None:
    """The first run of `all` still works, so the pair is that of the second seeds, which both have 3 of 4 right."""
    with experiment.write() as session:
        for run in ("x-full-1", "x-full-2"):
            queries.runs.set_run_status(session, run, "stopped")
        queries.runs.set_run_status(session, "x-all-2", "done")
    full, other = compared(experiment, "x").arms
    assert (full.runs, full.unfinished) == (["x-full-1", "x-full-2"], [])
    assert (other.runs, other.unfinished, other.curves["greedy"][1].mean) == (["x-all-2"], ["x-all-1"], 0.75)
    assert other.differences["greedy"].by_seed == [0]
