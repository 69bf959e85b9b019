"""Reports of runs on given prompts: labels made in training, decisions, and which Solver such a run has come to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from core.settings.config import RunConfig
from core.settings.parsing import parse_config
from core.types import Checkpoint
from orchestrator.report import figures, summary_table, write_report
from orchestrator.report.headline import decisions, details, headline
from orchestrator.report.measures import measure
from storage import queries
from storage.rows import TrainedOnRow
from storage.session import Store
from tests.synthetic_run import create, evaluate, finish, held_out, iterations, label, vote_of


def config(file: str = "micro", **more: Any) -> RunConfig:
    tree = {
        "prompts": {"file": file, "limit": 8},
        "solver": {"reward": {"type": "srt"}, "training": {"prompts_per_step": 4, "steps": 2}},
        "iterations": 9,
        **more,
    }
    return parse_config(tree, "a test")


def rounds(store: Store, settings: RunConfig, *correct: int) -> None:
    """A run `st` of so many rounds after the base model; of twenty items of eight samples so many are right in each."""
    with store.write() as session:
        create(session, "st", settings)
        for t, right in enumerate(correct):
            if t:
                one = Checkpoint(f"st/solver/{t}", "st", "solver", t, 2 * t, "/m", f"sha{t}", "st/base/0")
                queries.checkpoints.add_checkpoint(session, one, {})
            evaluate(session, "st", t, held_out([right] * 20, [right > 3] * 20, [0] * 20), took=1)


def decide(store: Store, t: int, action: str, back_to: str | None, stage: str = "check_health", note: str = "") -> None:
    result: dict[str, Any] = {"action": action, "back_to": back_to and {"solver": back_to}, "note": note}
    with store.write() as session:
        finish(session, "st", t, stage, result, 1)


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")


def test_the_result_is_the_solver_that_the_run_came_back_to(sqlite: Store) -> None:
    """The base has 2 of 8 right, round 1 has 5, round 2 and 3 have 3: stopped, and back to round 1."""
    rounds(sqlite, config(early_stopping={"benchmark": "micro-validation"}), 2, 5, 3, 3)
    decide(sqlite, 3, "stop", "st/solver/1")
    found, measures = figures(sqlite, "st"), measure(sqlite, "st")
    assert found["result"] == {"t": 1, "checkpoint": "st/solver/1"}
    assert [each["stands"] for each in iterations(sqlite, "st")] == [True, True, False, False]
    assert plain(headline(measures)).startswith("The Solver learned: +37.5 points")
    assert "after one iteration" in headline(measures)
    said = details(measures)
    assert plain(said[0]).startswith("Held-out pass@1 went from 25.0% [25.0, 25.0] to 62.5%")
    picked = (
        "The run went on to iteration 3 and came back to the Solver of iteration 1, picked by micro-validation, not "
    )
    assert f"{picked}by this benchmark." in said
    assert not any("lost again" in sentence for sentence in said)  # what was lost is not in the result
    ends = "The run was stopped after iteration 3: it ends with the Solver of iteration 1."
    assert decisions(measures) == {3: ends}


def test_a_figure_picked_by_its_own_benchmark_says_so(sqlite: Store) -> None:
    rounds(sqlite, config(), 2, 5, 3)
    decide(sqlite, 2, "stop", "st/solver/1")
    assert "picked by this very benchmark, so its figures flatter it." in details(measure(sqlite, "st"))[2]


def test_what_came_after_a_roll_back_stands(sqlite: Store) -> None:
    rounds(sqlite, config(), 2, 4, 3, 2, 6)
    decide(sqlite, 3, "pause", None)
    assert decisions(measure(sqlite, "st")) == {3: "The run waits for a person's decision after iteration 3."}
    decide(sqlite, 3, "roll_back", "st/solver/1", "ask_a_person", note="it <i>hacks</i>")
    measures = measure(sqlite, "st")
    assert [each.t for each in measures.iterations if each.stands] == [0, 1, 4]
    assert measures.result is not None
    assert (measures.result.t, measures.best, measures.last_over_best) == (4, 4, None)
    back = "After iteration 3 the run went back: on from the Solver of iteration 1"
    assert decisions(measures) == {3: f"{back}, as a person decided (“it <i>hacks</i>”)."}


def test_a_run_that_is_its_base_model_again_has_learned_nothing(sqlite: Store, tmp_path: Path) -> None:
    rounds(sqlite, config(), 4, 1, 0)
    decide(sqlite, 2, "stop", "st/base/0")
    measures = measure(sqlite, "st")
    said = plain(headline(measures))
    assert (
        said
        == "The Solver is the base model again: after 2 iterations pass@1 had moved by -50.0 points [-50.0, -50.0]."
    )
    page = write_report(sqlite, "st", tmp_path / "reports").read_text()
    assert "it ends with the base model" in page
    assert 'id="p-hat"' not in page  # nothing was asked before training


def test_a_persons_word_to_go_on_is_kept(sqlite: Store) -> None:
    rounds(sqlite, config(), 2, 3)
    decide(sqlite, 1, "pause", None)
    decide(sqlite, 1, "warn", None, "ask_a_person")
    assert decisions(measure(sqlite, "st")) == {1: "The run went on after iteration 1, as a person decided."}


def test_labels_made_in_training_are_counted_with_n(sqlite: Store) -> None:
    """Four prompts a step: 3 of 4 labelled and 1 of these right, then 4 of 4 and 2. Of the five prompts in all
    7/8, rounded up, are five."""
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
    _, one, two = iterations(sqlite, "st")
    found = one["training_label_accuracy"]
    assert (found["value"], found["n"]) == (pytest.approx(3 / 7), 5)
    assert found["ci95"] == pytest.approx([0.1319, 0.7873], abs=1e-4)  # Wilson, 3/7 at n = 5
    assert (one["training_labelled_share"]["value"], one["training_labelled_share"]["n"]) == (7 / 8, 5)
    assert (two["training_label_accuracy"], two["training_labelled_share"]["value"]) == (None, 0)
    said = plain(details(measure(sqlite, "st"))[-1])
    learned = "Of the labels that the Solver learned from, 42.9% [13.2, 78.7] (n = 5) in iteration 1 were right"
    assert said == f"{learned} according to the prompts' answers."


def test_the_page_and_the_table_are_about_given_prompts(sqlite: Store, tmp_path: Path) -> None:
    settings = config(
        early_stopping={"benchmark": "micro-validation"}, prompts={"file": "benchmark", "labels": "offline"}
    )
    rounds(sqlite, settings, 2, 5, 3)
    with sqlite.write() as session:
        questions = [("What is 1 + 2?", vote_of(("3", 5), ("2", 5))), ("What is 2 + 2?", vote_of(("6", 4), ("4", 3)))]
        label(session, "st", 0, questions, settings)
        for checkpoint, right in (("st/base/0", 2), ("st/solver/1", 4)):
            items = held_out([right] * 10, [0] * 10, [0] * 10)
            queries.figures.add_evaluations(session, checkpoint=checkpoint, benchmark="micro-validation", items=items)
    decide(sqlite, 2, "stop", "st/solver/1")
    base, one, _ = iterations(sqlite, "st")
    assert base["pseudo_label_accuracy"]["kept"]["value"] == 0.5
    assert one["pseudo_label_accuracy"]["kept"] is None
    assert (base["validation_pass_at_1"]["value"], one["validation_pass_at_1"]["n"]) == (0.25, 10)
    page = write_report(sqlite, "st", tmp_path / "reports").read_text()
    assert "Challenger" not in re.sub(r"<details>.*</details>", "", page, flags=re.DOTALL)
    for said in (
        "the very questions that the Solver trains on, their answers hidden (test-time training)",
        "srt on benchmark",
        "Base model, n = 2 asked",
        "pass@1, micro-validation, for early stopping",
        "<b>Left:</b>",
        "by the base model&#39;s votes",
    ):
        assert said in page, said
    console = Console(width=120, record=True)
    console.print(summary_table(sqlite, "st"))
    text = console.export_text()
    assert "Kept means" not in page  # all that have a majority
    assert "n = 20 test-time questions" in text
    assert "2, left" in text
    assert "its Solver is st/solver/1" in text
    assert "labels right, training" not in text  # nothing is known of those


def test_a_run_may_end_with_a_solver_that_it_had_left(sqlite: Store) -> None:
    """Round 2 was left for round 1, and at the end it was the best of all: 1 and 2 led to it, 3 did not."""
    rounds(sqlite, config(), 2, 4, 6, 3)
    decide(sqlite, 2, "roll_back", "st/solver/1")
    decide(sqlite, 3, "stop", "st/solver/2")
    measures = measure(sqlite, "st")
    assert [each.t for each in measures.iterations if each.stands] == [0, 1, 2]
    assert figures(sqlite, "st")["result"] == {"t": 2, "checkpoint": "st/solver/2"}
