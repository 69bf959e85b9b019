"""The figures on the dashboard's pages, of runs whose rows are written by hand."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import delete

from core.questions.filtering import statistics
from core.settings.parsing import parse_config
from core.types import Checkpoint, LabelledQuestion, Question, Spent, StageKey, question_id
from services.drift.series import refresh
from services.views.costs import costs_of
from storage import queries
from storage.models import OracleLabels
from storage.rows import ExperimentRun, TrainedOnRow
from storage.session import Store
from tests.api_server import serving
from tests.browsing import opened
from tests.synthetic_run import (
    CONFIG,
    add_evaluations,
    add_iteration,
    create,
    evaluate,
    fill_run,
    held_out,
    label,
    vote_of,
)

# A method that makes its labels in training, so that its prompts are not voted on.
ANEW = {"prompts": {"file": "benchmark"}, "solver": {"reward": {"type": "scrl"}}}


@pytest.fixture
def address(sqlite: Store, tmp_path: Path) -> Iterator[str]:
    with serving(sqlite, tmp_path) as url:
        yield url


@pytest.mark.parametrize(
    ("settings", "name", "other"),
    [
        ({"prompts": {"file": "benchmark"}, "solver": {"reward": {"type": "srt"}}}, "Test-time", "Held-out"),
        ({}, "Held-out", "Test-time"),
    ],
)
def test_accuracy_on_the_benchmark_has_one_name_before_and_after_the_first_evaluation(
    address: str, sqlite: Store, page: Page, settings: dict[str, Any], name: str, other: str
) -> None:
    run = "evaluated"
    with sqlite.write() as session:
        create(session, run, parse_config(settings, "test"))
    tile = page.locator("dl.tiles > div").filter(has_text=f"{name} accuracy")
    with opened(page, f"{address}/runs/{run}"):
        expect(page.get_by_role("heading", name=f"{name} accuracy")).to_be_visible()
        expect(tile).to_contain_text("pass@1 on micro")
        expect(page.get_by_text(other)).to_have_count(0)
        with sqlite.write() as session:
            evaluate(session, run, 0, held_out([2, 4], [1, 0], [0, 1]), took=5)
            refresh(session, run, 0)
        for path in (f"/runs/{run}", f"/compare?run={run}"):
            page.goto(f"{address}{path}")
            expect(page.get_by_role("heading", name=f"{name} accuracy")).to_be_visible()
        page.goto(f"{address}/runs/{run}")
        expect(tile).to_contain_text("37.5%")
        expect(page.get_by_text(other)).to_have_count(0)
        page.goto(address)
        card = page.locator("article.run").filter(has_text=run)
        expect(card.get_by_text(f"{name} accuracy").first).to_be_visible()
        expect(card.get_by_text(other)).to_have_count(0)


def test_the_accuracy_of_labels_made_in_training_is_shown_by_step_and_by_iteration(
    address: str, sqlite: Store, page: Page
) -> None:
    run = "labels-anew"
    config = parse_config(ANEW, "test")
    with sqlite.write() as session:
        create(session, run, config)
        label(session, run, 0, [(f"What is {i} + 1?", vote_of((str(i + 1), 4))) for i in range(4)], config)
        solver = Checkpoint(f"{run}/solver/1", run, "solver", 1, 2, "/srv/solver/1", "f" * 64, f"{run}/base/0")
        queries.checkpoints.add_checkpoint(session, solver, {})
        queries.traces.add_trained_on(session, [TrainedOnRow(question_id(run, 0, i), solver.id, [1]) for i in range(4)])
        for step, right in enumerate((0.75, 0.5), 1):
            metrics = {"truths_known": 4, "labelled_share": 1.0, "labels_checked": 4, "label_accuracy": right}
            metrics |= {"negatives_checked": 2, "negative_label_accuracy": 1.0, "majority_share": 0.5}
            metrics |= {"positive_labels": 4, "negative_labels": 6, "right_entropy": 0.2, "wrong_entropy": 0.5}
            queries.figures.add_train_metrics(session, run=run, iteration=1, role="solver", step=step, metrics=metrics)
        refresh(session, run, 1)
    with opened(page, f"{address}/runs/{run}"):
        panel = page.locator("section.panel").filter(has=page.get_by_role("heading", name="Labels made in training"))
        expect(panel.get_by_role("group", name="Right labels by training step")).to_be_visible()
        expect(panel.get_by_role("group", name="Labels made in training, by iteration")).to_be_visible()
        expect(panel.get_by_role("group", name="Number of labels in a step, by iteration")).to_be_visible()
        expect(panel.get_by_role("group", name="Entropy of right and wrong rollouts, by iteration")).to_be_visible()
        expect(panel).to_contain_text("compared with the prompts' own answers")
        # The run has no stored pseudo-labels.
        expect(page.get_by_role("heading", name="Pseudo-label accuracy")).to_have_count(0)
        tile = page.locator("dl.tiles > div").filter(has_text="Label accuracy (training)")
        expect(tile).to_contain_text("62.5%")  # five of eight, on four questions
        expect(page.locator("dl.tiles").get_by_text("Label accuracy (kept)")).to_have_count(0)
        page.goto(f"{address}/compare?run={run}")
        for title in ("Label accuracy in training", "Positive labels", "Negative labels"):
            expect(page.get_by_role("heading", name=title)).to_be_visible()
        page.goto(address)
        card = page.locator("article.run").filter(has_text=run)
        expect(card.get_by_text("in training, by given").first).to_be_visible()


def test_the_axis_of_a_count_that_is_always_0_has_no_negative_numbers(address: str, page: Page) -> None:
    page.goto(address)
    domain = "values => import('/static/axes.js').then(axes => axes.verticalAxis(values, false, 5).y.domain)"
    assert page.evaluate(domain, [0, 0]) == [0, 1]
    assert page.evaluate(domain, [-5, -5])[0] < -5


def test_prompts_without_a_vote_are_not_shown_as_questions_that_a_filter_kept(
    address: str, sqlite: Store, page: Page
) -> None:
    run, config = "not-voted", parse_config(ANEW, "test")
    prompts = [Question(question_id(run, 0, i), run, 0, i, f"What is {i} + 1?", "?", None, i, "4711") for i in range(4)]
    labels = [LabelledQuestion(prompt.id, prompt.text, None, "kept") for prompt in prompts]
    with sqlite.write() as session:
        create(session, run, config)
        queries.questions.add_questions(session, prompts)
        queries.questions.add_labels(session, labels)
        queries.figures.add_filter_stats(session, run=run, iteration=0, stats=statistics(labels))
        queries.usage.add_usage(session, StageKey(run, 1, "train_solver"), "stage", seconds=50)
        refresh(session, run, 0)
        names = {point.name for point in queries.series.series_of(session, run)}
        assert costs_of(session, run, config.rates).kept == 0
    assert "duplicate_share" in names
    assert "kept_share" not in names
    with opened(page, f"{address}/runs/{run}"):
        expect(page.locator("#cost tbody tr")).to_have_count(2)
        expect(page.get_by_text("kept questions took")).to_have_count(0)
        expect(page.get_by_role("heading", name="Verdicts on the questions")).to_have_count(0)
        expect(page.locator("dl.tiles dt").get_by_text("Kept", exact=True)).to_have_count(0)
        page.goto(f"{address}/runs/{run}/0")
        expect(page.get_by_role("columnheader", name="True answer (given)")).to_be_visible()
        expect(page.locator("table.questions tbody tr").first).to_contain_text("4711")


def test_what_a_run_has_cost_is_on_its_page(address: str, sqlite: Store, page: Page) -> None:
    run = "costly"
    with sqlite.write() as session:
        create(session, run, parse_config({"rates": {"gpu_hour": 3.6}}, "test"))
        for t in (1, 2):
            key = StageKey(run, t, "label_questions")
            queries.usage.add_usage(session, key, "votes", Spent(5, 100, 1_000))
            queries.usage.add_usage(session, key, "applications", seconds=500, gpu_seconds=1_000)
    with opened(page, f"{address}/runs/{run}"):
        cost = page.locator("#cost")
        expect(cost.locator("tbody tr")).to_have_count(3)
        rows = cost.locator("tbody tr").all_inner_texts()
        assert [row.split() for row in rows] == [
            ["label", "questions", "applications", "33", "min", "2.00"],
            ["label", "questions", "votes", "10", "200", "2,000"],
            ["all", "33", "min", "10", "200", "2,000", "2.00"],
        ]
        expect(cost.get_by_text("USD")).to_be_visible()


def test_the_arms_of_an_experiment_are_compared(address: str, sqlite: Store, page: Page) -> None:
    with sqlite.write() as session:
        for position, (arm, right) in enumerate((("full", [1, 1, 0, 1]), ("no_filter", [1, 0, 0, 0]))):
            for seed in (1, 2):
                run = f"tested-{arm}-{seed}"
                create(session, run, parse_config({"seed": seed, "dataset": {"filtered": arm == "full"}}, "test"))
                evaluate(session, run, 0, held_out([4] * 4, right, right), took=5)
                queries.experiments.add_run(session, ExperimentRun(run, "tested", arm, position, seed))
    with opened(page, f"{address}/compare"):
        page.get_by_role("link", name="tested", exact=True).click()
        table = page.locator("#comparison table").first
        expect(table.locator("tbody tr")).to_have_count(2)
        full, other = table.locator("tbody tr").all()
        # Both seeds have 3 of 4 right, but four questions cannot show that seeds agree: they are in steps of a quarter.
        expect(full).to_contain_text("75.0 (10.2 to 100.0)")
        expect(other).to_contain_text("−50.0 (−141.7 to +41.7, 2 seeds)")
        expect(other).to_contain_text("over the choice of questions")
        expect(other).not_to_contain_text("p = ")  # there is none below five seeds
        page.get_by_text("Settings in which they differ (1)").click()
        expect(page.locator("#comparison details")).to_contain_text("dataset.filtered")


def test_each_tile_of_a_run_names_its_iteration_and_estimates_cut_no_column_off(
    address: str, sqlite: Store, page: Page
) -> None:
    fill_run(sqlite, "tiles", per_level=20)
    with sqlite.write() as session:
        session.execute(delete(OracleLabels).where(OracleLabels.question_id.regexp_match("^tiles/[23]/")))
        for iteration in (1, 2, 3):
            refresh(session, "tiles", iteration)
    tiles = page.locator("dl.tiles > div")
    page.set_viewport_size({"width": 1150, "height": 900})  # with longer times, 1400 were not enough either
    with opened(page, f"{address}/runs/tiles"):
        for title, iteration in (("Label accuracy (kept)", 1), ("Held-out accuracy", 3), ("Kept", 3)):
            tile = tiles.filter(has=page.get_by_text(title, exact=True))
            expect(tile).to_contain_text(f", iteration {iteration}")
        expect(page.get_by_text("calibrated on that one, and their intervals are too narrow")).to_be_visible()
        table = page.get_by_role("region", name="Iterations")
        expect(table).to_contain_text("calibrated on")
        assert table.evaluate("element => element.scrollWidth <= element.clientWidth")


def test_the_page_of_a_malformed_question_has_the_challenger_s_text_and_no_answers(
    address: str, sqlite: Store, page: Page
) -> None:
    with sqlite.write() as session:
        create(session, "malformed")
        label(session, "malformed", 1, [(None, None)], CONFIG)
    with opened(page, f"{address}/runs/malformed/1/0"):
        expect(page.get_by_text("The Solver was not asked this question.")).to_be_visible()
        expect(page.get_by_text("No rollout gave an answer.")).to_have_count(0)
        expect(page.locator(".lineage pre")).to_be_visible()


def test_no_line_leads_to_an_estimate_of_label_accuracy(address: str, sqlite: Store, page: Page) -> None:
    """The oracle has not graded the last of three iterations, so its label accuracy is estimated."""
    fill_run(sqlite, "estimated", per_level=2)
    with sqlite.write() as session:
        session.execute(delete(OracleLabels).where(OracleLabels.question_id.regexp_match("^estimated/3/")))
        for t in range(4):
            refresh(session, "estimated", t)
    page.goto(f"{address}/runs/estimated")
    chart = page.locator("#label-accuracy svg")
    expect(chart.locator("a")).to_have_count(6)  # three points of the kept questions, three of all
    lines = chart.locator("[data-marks=line] path").evaluate_all("paths => paths.map(path => path.getAttribute('d'))")
    assert [line.count("L") for line in lines] == [1, 1]  # each from the first iteration to the second


@pytest.mark.parametrize(("least", "count"), [(12, 0), (13, 1), (1_000, 2)])
def test_the_page_says_which_accuracy_the_drift_rules_do_not_test(
    address: str, sqlite: Store, page: Page, least: int, count: int
) -> None:
    """The benchmark has 12 questions, and the audit some 200 kept ones."""
    config = parse_config({"alerts": {"min_n": least}}, "test")
    with sqlite.write() as session:
        create(session, "few", config)
        evaluate(session, "few", 0, held_out([4] * 12, [1] * 12, [1] * 12), took=5)
        add_iteration(session, "few", 1, random.Random(1), per_level=2)
        for t in range(2):
            refresh(session, "few", t)
    panels = page.locator("section").filter(has_text="The drift rules do not test it")
    page.goto(f"{address}/runs/few")
    expect(page.get_by_role("heading", name="Held-out accuracy")).to_be_visible()
    expect(panels).to_have_count(count)
    if count:
        expect(panels.filter(has_text=f"n is 12, and alerts.min_n asks for {least:,}")).to_have_count(1)
        expect(panels.filter(has_text="The guard's signal decline tests whether it falls.")).to_have_count(1)


def test_the_bars_of_the_histogram_have_the_filters_that_the_page_has_now(
    address: str, sqlite: Store, page: Page
) -> None:
    fill_run(sqlite, "bars", per_level=5)
    bar = page.get_by_role("group", name="Questions by p-hat and verdict").locator("a").first
    with opened(page, f"{address}/runs/bars/1?text=1"):
        expect(bar).to_have_attribute("href", re.compile("text=1"))
        page.get_by_text("Clear filters").click()
        expect(bar).not_to_have_attribute("href", re.compile("text="))
        expect(bar).to_have_attribute("href", re.compile("p_hat_min="))


def test_a_run_has_its_colour_although_another_one_has_a_training_on_labelled_data(
    address: str, sqlite: Store, page: Page
) -> None:
    with sqlite.write() as session:
        for run in ("first", "second"):
            create(session, run)
            evaluate(session, run, 0, held_out([4] * 4, [1, 1, 0, 1], [1, 0, 0, 0]), took=5)
            refresh(session, run, 0)
        branch = Checkpoint("first/labelled/1", "first", "labelled", 1, 0, "/m", "b", "first/base/0")
        queries.checkpoints.add_checkpoint(session, branch, {})
        items = held_out([4] * 4, [1, 1, 1, 1], [1, 1, 1, 1])
        add_evaluations(session, checkpoint=branch.id, benchmark="micro", items=items)
    with opened(page, f"{address}/compare?run=first&run=second"):
        items_of_legend = page.locator("#comparison .legend > *")
        expect(items_of_legend).to_have_text(["first", "first/labelled", "second"])
        swatches = [item.locator("i") for item in items_of_legend.all()]
        colours = [re.findall(r"var\(--k[0-9]\)", swatch.get_attribute("style") or "") for swatch in swatches]
        assert [swatch.get_attribute("class") for swatch in swatches] == ["swatch", "dashed", "swatch"]
    assert colours == [["var(--k1)"], ["var(--k1)"], ["var(--k2)"]]
