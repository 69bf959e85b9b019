"""Reports of runs on given prompts: labels made in training, decisions, and the Solver that such a run ends with."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from core.settings.config import RunConfig
from core.settings.parsing import parse_config
from core.statistics.estimates import wilson_at
from core.types import Checkpoint
from orchestrator.cli.report import summary_table
from services.drift.series import refresh_after
from services.run_report.figures import figures
from services.run_report.headline import decisions, details, headline
from services.run_report.measures import measure
from services.views.latest_figures import latest_figures
from storage import queries
from storage.rows import TrainedOnRow
from storage.session import Store
from tests.synthetic_run import add_evaluations, create, evaluate, finish, held_out, iterations, label, vote_of


def config(file: str = "micro", **more: Any) -> RunConfig:
    tree = {
        "prompts": {"file": file, "limit": 8},
        "solver": {"reward": {"type": "srt"}, "training": {"prompts_per_step": 4, "steps": 2}},
        "iterations": 9,
        **more,
    }
    return parse_config(tree, "a test")


def rounds(store: Store, settings: RunConfig, *correct: int) -> None:
    """Store a run `st`. `correct` has a number for the base model and one for each round: how many of eight samples are
    right in each of twenty items."""
    with store.write() as session:
        create(session, "st", settings)
        for t, right in enumerate(correct):
            if t:
                checkpoint = Checkpoint(f"st/solver/{t}", "st", "solver", t, 2 * t, "/m", f"sha{t}", "st/base/0")
                queries.checkpoints.add_checkpoint(session, checkpoint, {})
            evaluate(session, "st", t, held_out([right] * 20, [right > 3] * 20, [0] * 20), took=1)


def decide(store: Store, t: int, action: str, back_to: str | None, stage: str = "check_health", note: str = "") -> None:
    result: dict[str, Any] = {"action": action, "back_to": back_to and {"solver": back_to}, "note": note}
    with store.write() as session:
        finish(session, "st", t, stage, result, 1)


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")


def test_the_result_is_the_solver_that_the_run_went_back_to(sqlite: Store) -> None:
    """The base has 2 of 8 right, round 1 has 5, rounds 2 and 3 have 3: the run is stopped and goes back to round 1."""
    rounds(sqlite, config(early_stopping={"benchmark": "micro-validation"}), 2, 5, 3, 3)
    decide(sqlite, 3, "stop", "st/solver/1")
    report, measures = figures(sqlite, "st"), measure(sqlite, "st")
    assert report["result"] == {"t": 1, "checkpoint": "st/solver/1"}
    assert [row["stands"] for row in iterations(sqlite, "st")] == [True, True, False, False]
    assert plain(headline(measures)).startswith("The Solver learned: +37.5 points")
    assert "after one iteration" in headline(measures)
    sentences = details(measures)
    assert plain(sentences[0]).startswith("Held-out pass@1 went from 25.0% [21.9, 28.4] to 62.5%")
    assert any("to the Solver of iteration 1, picked by micro-validation, not" in sentence for sentence in sentences)
    assert not any("lost again" in sentence for sentence in sentences)  # the result does not have the later loss
    [ended] = decisions(measures).items()
    assert (ended[0], ended[1].endswith("it ends with the Solver of iteration 1.")) == (3, True)


def test_a_solver_picked_by_its_own_benchmark_is_reported_as_such(sqlite: Store) -> None:
    rounds(sqlite, config(), 2, 5, 3)
    decide(sqlite, 2, "stop", "st/solver/1")
    assert "picked by this very benchmark, so its figures flatter it." in details(measure(sqlite, "st"))[2]


def test_an_iteration_after_a_roll_back_is_part_of_the_result(sqlite: Store) -> None:
    rounds(sqlite, config(), 2, 4, 3, 2, 6)
    decide(sqlite, 3, "pause", None)
    assert decisions(measure(sqlite, "st")) == {3: "The run waits for a person's decision after iteration 3."}
    decide(sqlite, 3, "roll_back", "st/solver/1", "ask_a_person", note="it <i>hacks</i>")
    measures = measure(sqlite, "st")
    assert [iteration.t for iteration in measures.iterations if iteration.stands] == [0, 1, 4]
    assert measures.result is not None
    assert (measures.result.t, measures.best, measures.last_over_best) == (4, 4, None)
    back = "After iteration 3 the run went back and continued from the Solver of iteration 1"
    assert decisions(measures) == {3: f"{back}, as a person decided (“it <i>hacks</i>”)."}


@pytest.mark.parametrize(
    ("correct", "best"),
    [((6, 4, 7, 5), 3), ((2, 5, 7, 5), 1), ((6,), None)],
    ids=["the base model does not count", "the earliest of equal ones", "nothing is trained yet"],
)
def test_the_report_and_the_comparison_have_the_same_best_iteration(
    sqlite: Store, correct: tuple[int, ...], best: int | None
) -> None:
    """The second round is the best, but the run goes back to the first after it."""
    rounds(sqlite, config(), *correct)
    if len(correct) > 2:
        decide(sqlite, 2, "roll_back", "st/solver/1")
    with sqlite.write() as session:
        for t in range(len(correct)):
            refresh_after(session, "st", t, "evaluate")
        [compared] = latest_figures(session, ["st"], [], None, None)
    assert (compared.best_iteration, measure(sqlite, "st").best) == (best, best)


def test_a_run_that_went_back_to_its_base_model_has_learned_nothing(sqlite: Store) -> None:
    rounds(sqlite, config(), 4, 1, 0)
    decide(sqlite, 2, "stop", "st/base/0")
    measures = measure(sqlite, "st")
    sentence = plain(headline(measures))
    assert sentence.startswith("The Solver is the base model again: after 2 iterations")
    assert "-50.0 points [-56.2, -43.2]" in sentence
    assert "it ends with the base model" in decisions(measures)[2]


def test_a_person_s_decision_to_go_on_is_reported(sqlite: Store) -> None:
    rounds(sqlite, config(), 2, 3)
    decide(sqlite, 1, "pause", None)
    decide(sqlite, 1, "warn", None, "ask_a_person")
    assert decisions(measure(sqlite, "st")) == {1: "The run went on after iteration 1, as a person decided."}


def test_the_accuracy_of_labels_made_in_training_is_reported_with_n(sqlite: Store) -> None:
    """A step has four prompts. In the first step 3 are labelled and 1 of these labels is right, in the second 4 and 2.
    Of all five prompts 7/8 were labelled, which is five when rounded up."""
    rounds(sqlite, config(), 2, 4, 4)
    add = {"run": "st", "role": "solver"}
    every = {"majority_share": 0.5, "truths_known": 4}
    first = every | {"labelled_share": 0.75, "labels_checked": 3, "label_accuracy": 1 / 3}
    second = every | {"labelled_share": 1.0, "labels_checked": 4, "label_accuracy": 0.5}
    with sqlite.write() as session:
        for step, metrics in enumerate((first, second), 1):
            queries.figures.add_train_metrics(session, **add, iteration=1, step=step, metrics=metrics)
        none = every | {"labelled_share": 0.0}
        queries.figures.add_train_metrics(session, **add, iteration=2, step=1, metrics=none)
        label(session, "st", 0, [(f"What is {i} + 1?", vote_of((str(i), 4))) for i in range(5)], config())
        for t in (1, 2):
            rows = [TrainedOnRow(f"st/0/{i:06d}", f"st/solver/{t}", [1]) for i in range(5)]
            queries.traces.add_trained_on(session, rows)
    _, first_round, second_round = iterations(sqlite, "st")
    accuracy = first_round["training_label_accuracy"]
    assert (accuracy["value"], accuracy["n"]) == (pytest.approx(3 / 7), 5)
    assert accuracy["ci95"] == pytest.approx(wilson_at(3 / 7, 5, 5))
    assert (first_round["training_labelled_share"]["value"], first_round["training_labelled_share"]["n"]) == (7 / 8, 5)
    assert (second_round["training_label_accuracy"], second_round["training_labelled_share"]["value"]) == (None, 0)
    sentence = plain(details(measure(sqlite, "st"))[-1])
    learned = "Of the labels that the Solver learned from, 42.9% [8.4, 86.0] (n = 5 questions) in iteration 1"
    assert sentence == f"{learned} were right according to the prompts' answers."


def test_the_table_is_about_given_prompts(sqlite: Store) -> None:
    prompts = {"file": "benchmark", "labels": "offline"}
    settings = config(early_stopping={"benchmark": "micro-validation"}, prompts=prompts)
    rounds(sqlite, settings, 2, 5, 3)
    with sqlite.write() as session:
        questions = [("What is 1 + 2?", vote_of(("3", 5), ("2", 5))), ("What is 2 + 2?", vote_of(("6", 4), ("4", 3)))]
        label(session, "st", 0, questions, settings)
        for checkpoint, right in (("st/base/0", 2), ("st/solver/1", 4)):
            items = held_out([right] * 10, [0] * 10, [0] * 10)
            add_evaluations(session, checkpoint=checkpoint, benchmark="micro-validation", items=items)
    decide(sqlite, 2, "stop", "st/solver/1")
    base, first_round, _ = iterations(sqlite, "st")
    assert base["pseudo_label_accuracy"]["kept"]["value"] == 0.5
    assert first_round["pseudo_label_accuracy"]["kept"] is None
    assert (base["validation_pass_at_1"]["value"], first_round["validation_pass_at_1"]["n"]) == (0.25, 10)
    console = Console(width=120, record=True)
    console.print(summary_table(measure(sqlite, "st")))
    text = console.export_text()
    assert "n = 20 test-time questions" in text
    assert "2, left" in text
    assert "its Solver is st/solver/1" in text
    assert "labels right, training" not in text  # the run has no such labels


def test_a_run_can_end_with_a_solver_that_it_had_gone_back_from(sqlite: Store) -> None:
    """The run went back from round 2 to round 1, but at the end round 2 is the best: rounds 1 and 2 led to it, not
    3."""
    rounds(sqlite, config(), 2, 4, 6, 3)
    decide(sqlite, 2, "roll_back", "st/solver/1")
    decide(sqlite, 3, "stop", "st/solver/2")
    measures = measure(sqlite, "st")
    assert [iteration.t for iteration in measures.iterations if iteration.stands] == [0, 1, 2]
    assert figures(sqlite, "st")["result"] == {"t": 2, "checkpoint": "st/solver/2"}


def test_strategies_in_training_are_in_the_report(sqlite: Store) -> None:
    rounds(sqlite, config(), 2, 3)
    metrics = {"right_prompt_share": 0.5, "right_clusters": 1.5, "wrong_clusters": 2.5}
    with sqlite.write() as session:
        for step in (1, 2):
            queries.figures.add_train_metrics(session, run="st", iteration=1, role="solver", step=step, metrics=metrics)
    stored = figures(sqlite, "st")["training"]["solver"]
    assert {name: stored[name] for name in metrics} == {n: [[1, 1, v], [1, 2, v]] for n, v in metrics.items()}
