"""A person starts and cancels runs in Prefect's UI and on the dashboard, in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from playwright.sync_api import Page, expect

from orchestrator.plan import WITH_BRANCH
from storage import queries
from tests.browsing import open_prefect, without_complaints
from tests.live import Live, wait_until
from tests.orchestrator import whole_runs
from tests.orchestrator.whole_runs import WholeRun
from tests.processes import descendants


def test_a_run_started_in_the_ui_completes_all_stages(live: Live, whole_run: WholeRun) -> None:
    """The Solver is also trained on labelled data, which makes a checkpoint of its own (R-Zero B.3)."""
    with live.store().read() as session:
        stages = {(row.iteration, row.stage): row.status for row in queries.ledger.stages_of(session, whole_run.name)}
        base, _, solver, branch = queries.checkpoints.checkpoints_of(session, whole_run.name)
        evaluated = queries.evaluations.evaluated(session, whole_run.name)
        rewards = queries.figures.train_metrics_of(
            session, whole_run.name, role="solver", name="labelled_label_accuracy"
        )
    assert (solver.id, solver.parent, solver.step) == (f"{whole_run.name}/solver/1", base.id, 3)
    assert (branch.id, branch.parent, branch.step) == (f"{whole_run.name}/labelled/1", solver.id, 3 + 3)
    # Three steps with true labels, after three other steps.
    assert [(metric.step, metric.value) for metric in rewards] == [(4, 1), (5, 1), (6, 1)]
    assert sorted(evaluated) == [(checkpoint.id, whole_runs.BENCHMARK) for checkpoint in (base, branch, solver)]
    assert stages == {(0, "evaluate"): "done", **{(1, stage): "done" for stage in WITH_BRANCH}}


def test_running_a_finished_iteration_again_changes_nothing(live: Live, whole_run: WholeRun) -> None:
    code = f"from orchestrator.flows import iteration; iteration({whole_run.name!r}, 1)"
    subprocess.run([sys.executable, "-c", code], env=live.environment, check=True)
    assert whole_runs.rows(live, whole_run.name) == whole_run.rows


def test_every_stage_and_the_figures_have_one_artifact_also_after_the_iteration_was_run_again(
    live: Live, whole_run: WholeRun
) -> None:
    """Each was written before its process ended. No progress is left."""
    for stage in WITH_BRANCH:
        key = f"{whole_run.name}-1-{stage.replace('_', '-')}"
        [artifact] = _artifacts(live, key)
        assert artifact["type"] == "markdown"
        assert artifact["task_run_id"] is not None
        assert _artifacts(live, f"{key}-progress") == []
    [figures] = _artifacts(live, f"{whole_run.name}-figures")
    assert figures["type"] == "table"
    assert [row["iteration"] for row in json.loads(figures["data"])] == ["base", "1"]


def _artifacts(live: Live, key: str) -> list[Any]:
    with_key = {"artifacts": {"key": {"any_": [key]}}}
    artifacts: list[Any] = live.services.prefect.request("POST", "/artifacts/filter", with_key).json()
    return artifacts


def test_prefect_s_ui_sends_no_request_to_another_host(live: Live, page: Page) -> None:
    """As docs/security.md says. The UI at /v2 is not the one that opens, and is left out."""
    urls = list[str]()
    page.on("request", lambda request: urls.append(request.url))
    for path in ("/dashboard", "/runs", "/deployments", "/artifacts", "/settings"):
        open_prefect(page, live, path)
        page.wait_for_load_state("networkidle")
    assert len(urls) > 10
    assert [url for url in urls if not url.startswith((live.services.prefect_url, "data:", "blob:"))] == []


def test_a_run_started_on_the_dashboard_and_cancelled_in_prefect_s_ui_leaves_no_process(live: Live, page: Page) -> None:
    run, url = "called-off", live.services.api_url
    settings = {**whole_runs.OVERRIDES, "challenger.training.steps": 2000}
    with without_complaints(page):
        page.goto(f"{url}/#key={live.home.api_key}")  # `coevo up` prints this address
        page.get_by_role("button", name="Start a run").click()
        assert page.url == f"{url}/"
        page.locator("form.card").get_by_label("Preset").select_option("demo")
        page.locator("form.card").get_by_label("Name").fill(run)
        page.locator("form.card").get_by_label("Settings").fill(
            "\n".join(f"{name} = {value}" for name, value in settings.items())
        )
        page.get_by_role("button", name="Start run").click()
        expect(page.get_by_role("status")).to_contain_text(run, timeout=60_000)
        page.goto("about:blank")
    wait_until(lambda: whole_runs.status(live, run) == "running", "the flow to begin")
    with without_complaints(page):
        page.goto(f"{url}/runs/{run}")
        expect(page.locator("header").get_by_text("running", exact=True)).to_be_visible(timeout=60_000)
        expect(page.get_by_role("progressbar").first).to_be_visible(timeout=60_000)
        page.goto("about:blank")  # the page would use the processor all the time, and the run needs it
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
    """The training processes of our Ray."""
    return [title for _, title in descendants(live.pid("ray")) if "TrainingWorker" in title]
