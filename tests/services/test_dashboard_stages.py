"""What the dashboard shows of stages: how long they worked, iteration 0, and the way from a chart to its questions."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import update

from core.settings.parsing import parse_config
from services.drift.series import refresh
from storage import queries
from storage.models import Stages
from storage.session import Store
from tests.browsing import LOOKS, look_at, opened, without_complaints
from tests.synthetic_run import create, fill_run, label, vote_of

RUN, CANCELLED, LOADING, GIVEN = "finished", "cancelled", "loading", "given"


@pytest.fixture(scope="module")
def stored(stored: Store) -> Store:
    """A finished run, one cancelled 100 s after its training began, one that loads weights, one on prompts."""
    fill_run(stored, RUN, per_level=2)
    config = parse_config({"prompts": {"file": "benchmark"}, "solver": {"reward": {"type": "srt"}}}, "test")
    with stored.write() as session:
        for t in (1, 2, 3):
            refresh(session, RUN, t)
        stage = {"iteration": 1, "stage": "train_solver", "owner": "host:1:1", "lease_seconds": 600}
        for run in (CANCELLED, LOADING):
            create(session, run)
            queries.ledger.claim_stage(session, run=run, **stage)
        begun = datetime.now(UTC) - timedelta(seconds=100)
        session.execute(update(Stages).where(Stages.run == CANCELLED).values(started_at=begun))
        queries.runs.set_run_status(session, CANCELLED, "cancelled")
        queries.runs.set_run_status(session, LOADING, "running")
        queries.run_leases.claim_run(session, run=LOADING, owner="host:1:1", lease_seconds=600)
        held = {"run": LOADING, "iteration": 1, "stage": "train_solver", "owner": "host:1:1"}
        queries.ledger.note_progress(session, **held, done=0, total=0, note="loading weights")
        create(session, GIVEN, config)
        label(session, GIVEN, 0, [("What is 1 + 1?", vote_of(("2", 4)))], config)
    return stored


def test_the_bar_of_a_stage_that_was_cut_off_ends_when_its_run_was_cancelled(address: str, page: Page) -> None:
    page.clock.set_fixed_time(datetime.now(UTC) + timedelta(days=1))
    with opened(page, f"{address}/runs/{CANCELLED}"):
        chart = page.get_by_role("group", name="Stages by iteration")
        expect(chart.locator("title")).to_have_text("train solver 1: running\n100.0 s, attempt 1")


def test_no_number_is_left_over_while_a_stage_has_no_total(address: str, page: Page) -> None:
    with opened(page, f"{address}/runs/{LOADING}"):
        expect(page.locator(".now")).to_have_text(re.compile(r"loading weights\s*just now\s*$"))


def test_iteration_0_is_the_base_model_with_its_evaluation(address: str, page: Page) -> None:
    with opened(page, f"{address}/runs/{RUN}/1"):
        page.get_by_role("link", name="← 0").click()
        expect(page.get_by_text("Iteration 0 is the base model before any training.")).to_be_visible()
        expect(page.get_by_role("group", name="Download")).to_have_count(0)
        look_at(page, f"{address}/runs/{RUN}/0", f"{RUN}, iteration 0", LOOKS[:2])
        page.get_by_role("link", name="its evaluation").click()
        expect(page.get_by_role("heading", name=f"{RUN}/base/0", level=1)).to_be_visible()


def test_iteration_0_has_the_given_prompts_of_a_self_training_run(address: str, page: Page) -> None:
    with opened(page, f"{address}/runs/{GIVEN}/0"):
        expect(page.locator("table.questions tbody tr")).to_have_count(1)
        expect(page.get_by_role("link", name="Label a sample by hand")).to_be_visible()
        page.get_by_role("link", name="1 →").click()
        expect(
            page.get_by_text("This iteration has no questions: the run's prompts are in iteration 0.")
        ).to_be_visible()
        expect(page.get_by_role("group", name="Download")).to_have_count(0)
        expect(page.get_by_role("link", name="Label a sample by hand")).to_have_count(0)
        look_at(page, f"{address}/runs/{GIVEN}/1", f"{GIVEN}, iteration 1", LOOKS[:2])
        page.get_by_role("link", name="iteration 0").click()
        expect(page.get_by_role("heading", name=f"{GIVEN}, iteration 0", level=1)).to_be_visible()


@pytest.mark.parametrize("width", [1400, 420])
def test_a_click_on_a_point_or_a_bar_scrolls_to_the_questions(address: str, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    heading = page.get_by_role("heading", name="Questions", exact=True)
    with opened(page, f"{address}/runs/{RUN}"):
        chart = page.get_by_role("group", name="Pseudo-label accuracy by iteration")
        chart.locator("a[aria-label^='kept by exact']").first.click()
        page.wait_for_url(f"**/runs/{RUN}/1?oracle=exact&oracle_verdict=wrong&verdict=kept#questions")
        expect(heading).to_be_in_viewport()
        page.evaluate("scrollTo(0, 0)")
        expect(heading).not_to_be_in_viewport()
        page.get_by_role("group", name="Questions by p-hat and verdict").locator("a").first.click()
        page.wait_for_url("**p_hat_min=**#questions")
        expect(heading).to_be_in_viewport()


@pytest.mark.parametrize(("role", "value", "longest"), [("solver", 0.066779, 5), ("challenger", 1_234_567.0, 9)])
def test_the_ticks_of_a_single_point_are_short_and_inside_their_chart(
    address: str, stored: Store, page: Page, role: Literal["solver", "challenger"], value: float, longest: int
) -> None:
    run = f"one-point-{role}"
    with stored.write() as session:
        create(session, run)
        metrics = {"reward_mean": value}
        queries.figures.add_train_metrics(session, run=run, iteration=1, role=role, step=1, metrics=metrics)
    with opened(page, f"{address}/runs/{run}"):
        chart = page.get_by_role("group", name=f"Reward of the {role} by step")
        ticks = chart.locator("[data-marks='y-axis tick label'] text")
        expect(ticks.first).to_be_visible()
        labels = ticks.all_text_contents()
        left = chart.evaluate("chart => chart.getBoundingClientRect().left")
        leftmost = min(ticks.evaluate_all("ticks => ticks.map((tick) => tick.getBoundingClientRect().left)"))
    assert len(labels) > 2
    assert max(map(len, labels)) <= longest
    assert leftmost >= left


def test_each_iteration_is_reached_from_the_top_of_its_run_with_its_figures(address: str, page: Page) -> None:
    with without_complaints(page):
        look_at(page, f"{address}/runs/{RUN}", RUN, LOOKS[:2])
        rows = page.locator("#iterations tbody tr")
        expect(rows).to_have_count(4)
        api = page.request
        summary = api.get(f"{address}/api/v1/runs/{RUN}/iterations").json()[2]
        series = api.get(f"{address}/api/v1/runs/{RUN}/series?name=label_accuracy&over=kept").json()
        [accuracy] = [point for point in series if point["iteration"] == 2]
        row = rows.nth(1)  # the newest is first
        expect(row.locator("[data-label=questions]")).to_have_text(str(summary["questions"]))
        expect(row.locator("[data-label=kept]")).to_contain_text(f"{100 * summary['kept']['value']:.1f}%")
        label = row.locator("[data-label='label accuracy']")
        expect(label).to_contain_text(f"{100 * accuracy['value']:.1f}%")
        expect(label).to_contain_text(f"n {accuracy['n']}")
        row.get_by_role("link", name="solver").click()
        page.wait_for_url(f"**/runs/{RUN}/training/solver/2")
        page.go_back()
        row.get_by_role("link", name="Iteration 2").click()
        page.wait_for_url(f"**/runs/{RUN}/2")
