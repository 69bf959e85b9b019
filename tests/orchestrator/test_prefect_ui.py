"""Runs that a person triggers and cancels, in a real browser."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from playwright.sync_api import Page, expect

from orchestrator.plan import LOOP
from storage import queries
from tests.browsing import open_prefect, without_complaints
from tests.live import Live, wait_until
from tests.orchestrator import whole_runs
from tests.orchestrator.whole_runs import WholeRun
from tests.processes import descendants


def test_a_run_triggered_in_the_ui_goes_to_the_end(live: Live, straight: WholeRun) -> None:
    """With labelled data after the Solver's own (R-Zero B.3): one checkpoint comes of both trainings."""
    with live.store().read() as session:
        stages = {(row.iteration, row.stage): row.status for row in queries.ledger.stages_of(session, straight.name)}
        [solver] = queries.checkpoints.checkpoints_of(session, straight.name, "solver")
        rewards = queries.figures.train_metrics_of(
            session, straight.name, role="solver", name="labelled_label_accuracy"
        )
    assert (solver.parent, solver.step) == (f"{straight.name}/base/0", 3 + 2)
    assert [(metric.step, metric.value) for metric in rewards] == [(4, 1), (5, 1)]  # true labels, after three steps
    assert stages == {(0, "evaluate"): "done", **{(1, stage): "done" for stage in LOOP}}


def test_an_iteration_by_itself_does_nothing_again_but_draw_the_curves(live: Live, straight: WholeRun) -> None:
    before = _pictures(live, straight.name)
    code = f"from orchestrator.flows import iteration; iteration({straight.name!r}, 1)"
    subprocess.run([sys.executable, "-c", code], env=live.environment, check=True)
    assert before == 1
    assert _pictures(live, straight.name) == 2
    assert whole_runs.rows(live, straight.name) == straight.rows


def test_every_stage_leaves_its_progress_and_its_result_with_its_task(live: Live, straight: WholeRun) -> None:
    """Of the run and of the iteration by itself, which begins no stage: each was written before its process ended."""
    for stage in LOOP:
        key = stage.replace("_", "-")
        results = _artifacts(live, f"{straight.name}-1-{key}")
        progress = _artifacts(live, f"{straight.name}-{key}-1")
        assert [artifact["type"] for artifact in results] == ["table" if stage == "label_questions" else "markdown"] * 2
        assert [(artifact["type"], artifact["data"]) for artifact in progress] == [("progress", 100)] * 2
        tasks = [{artifact["task_run_id"] for artifact in artifacts} for artifacts in (results, progress)]
        assert len(tasks[0]) == 2
        assert tasks[0] == tasks[1]


def _pictures(live: Live, run: str) -> int:
    """How often Prefect was given the run's curves."""
    return [artifact["type"] for artifact in _artifacts(live, f"{run}-curves")].count("image")


def _artifacts(live: Live, key: str) -> list[Any]:
    with_key = {"artifacts": {"key": {"any_": [key]}}}
    artifacts: list[Any] = live.services.prefect.request("POST", "/artifacts/filter", with_key).json()
    return artifacts


def test_a_run_started_from_the_dashboard_and_cancelled_in_prefects_ui_leaves_nothing_running(
    live: Live, page: Page
) -> None:
    run, url = "called-off", live.services.api_url
    settings = {**whole_runs.OVERRIDES, "challenger.training.steps": 2000}
    with without_complaints(page):
        page.goto(f"{url}/#key={live.home.api_key}")  # as `coevo up` prints it
        page.get_by_role("button", name="Start a run").click()
        assert page.url == f"{url}/"
        page.get_by_label("Preset").select_option("demo")
        page.get_by_label("Name").fill(run)
        page.get_by_label("Settings").fill("\n".join(f"{name} = {value}" for name, value in settings.items()))
        page.get_by_role("button", name="Start it").click()
        expect(page.get_by_role("status")).to_contain_text(run, timeout=60_000)
        page.goto("about:blank")
    wait_until(lambda: whole_runs.status(live, run) == "running", "the flow to begin")
    with without_complaints(page):
        page.goto(f"{url}/runs/{run}")
        expect(page.locator("header").get_by_text("running", exact=True)).to_be_visible(timeout=60_000)
        expect(page.get_by_role("progressbar").first).to_be_visible(timeout=60_000)
        page.goto("about:blank")  # the page draws all the time, and the run needs the processor
    work = live.home.work / run / "1" / "train_challenger"
    wait_until(lambda: any(work.glob("step_*")), "the Challenger's training to begin")
    assert _training(live)
    open_prefect(page, live, "/runs?tab=flow-runs")
    page.get_by_role("link", name=run, exact=True).first.click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_role("button", name="Confirm")).to_have_count(0)
    page.goto("about:blank")
    wait_until(lambda: whole_runs.status(live, run) == "cancelled", "the run to be marked as cancelled")
    wait_until(lambda: not _training(live), "Ray to end the training worker")


def _training(live: Live) -> list[str]:
    """The processes below our Ray that train."""
    return [title for _, title in descendants(live.pid("ray")) if "TrainingWorker" in title]
