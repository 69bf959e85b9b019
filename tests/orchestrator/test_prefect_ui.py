"""A run triggered by hand in the Prefect UI, in a real browser, goes to the end; a cancelled one leaves nothing."""

from __future__ import annotations

import json

import psutil
from playwright.sync_api import Page, expect

from orchestrator.plan import LOOP
from storage import queries
from tests.browsing import open_prefect
from tests.live import Live, wait_until


def _submit(page: Page, live: Live, run: str, settings: dict[str, object]) -> None:
    """Fill in the deployment's form as a person would."""
    open_prefect(page, live, "/deployments")
    page.get_by_role("link", name="co-evolve").first.wait_for()
    deployment = _deployment(live)
    page.goto(f"{live.services.prefect_url}/deployments/deployment/{deployment}/run")
    boxes = page.locator("textarea")
    expect(boxes).to_have_count(3)  # run, preset, overrides
    expect(page.get_by_text("Name of the run: lowercase letters")).to_be_visible()
    boxes.nth(0).fill(run)
    boxes.nth(2).fill(json.dumps(settings))
    page.get_by_role("button", name="Submit").click()
    page.locator('a[href*="/flow-run/"]').first.click()
    page.wait_for_url("**/flow-run/**", wait_until="commit")


def _deployment(live: Live) -> str:
    found = live.services.prefect.request("POST", "/deployments/filter", {}).json()
    return next(d["id"] for d in found if "start_stage" in d["parameter_openapi_schema"]["properties"])


def _settings(live: Live) -> dict[str, object]:
    pairs = (setting.split("=") for setting in live.small)
    texts = ("rollout_text", "evaluation.benchmark")
    return {name: value if name in texts else json.loads(value) for name, value in pairs}


def _status(live: Live, run: str) -> str | None:
    with live.store().read() as session:
        return next((row.status for row in queries.list_runs(session) if row.name == run), None)


def test_a_run_triggered_in_the_ui_goes_to_the_end(live: Live, page: Page) -> None:
    """With labelled data after the Solver's own (R-Zero B.3): one checkpoint comes of both trainings."""
    labelled = {"training.steps": 2, "training.prompts_per_step": 4, "training.rollouts_per_prompt": 4}
    settings = {"labelled.file": "micro", "labelled.limit": 12, **{f"labelled.{k}": v for k, v in labelled.items()}}
    _submit(page, live, "by-hand", {**_settings(live), **settings})
    watching = page.url
    page.goto("about:blank")  # the page draws all the time, and the run needs the processor
    wait_until(lambda: _status(live, "by-hand") not in {None, "created", "running"}, "the run to end", 500)
    assert _status(live, "by-hand") == "done"
    page.goto(watching)
    expect(page.get_by_text("Completed")).not_to_have_count(0)
    expect(page.get_by_text("Running", exact=True)).to_have_count(0)
    with live.store().read() as session:
        stages = {(row.iteration, row.stage): row.status for row in queries.stages_of(session, "by-hand")}
        [solver] = queries.checkpoints_of(session, "by-hand", "solver")
        rewards = queries.train_metrics_of(session, "by-hand", role="solver", name="labelled_label_accuracy")
    assert (solver.parent, solver.step) == ("by-hand/base/0", 3 + 2)
    assert [(metric.step, metric.value) for metric in rewards] == [(4, 1), (5, 1)]  # true labels, after three steps
    assert stages == {(0, "evaluate"): "done", **{(1, stage): "done" for stage in LOOP}}


def test_a_cancelled_run_leaves_nothing_running(live: Live, page: Page) -> None:
    _submit(
        page, live, "called-off", {**_settings(live), "solver.training.steps": 2000, "challenger.training.steps": 2000}
    )
    watching = page.url
    page.goto("about:blank")
    work = live.home.work / "called-off" / "1" / "train_challenger"
    wait_until(lambda: any(work.glob("step_*")), "the Challenger's training to begin")
    assert _training(live)
    page.goto(watching)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_role("button", name="Confirm")).to_have_count(0)
    page.goto("about:blank")
    wait_until(lambda: _status(live, "called-off") == "cancelled", "the run to be marked as cancelled")
    wait_until(lambda: not _training(live), "Ray to end the training worker")


def _training(live: Live) -> list[str]:
    """Ray Train's processes below our Ray."""
    ray = next(pid for pid, (name, _) in live.services.processes.items() if name == "ray")
    found = []
    for process in psutil.Process(ray).children(recursive=True):
        try:
            title = " ".join(process.cmdline())
        except psutil.NoSuchProcess:
            continue
        if "RayTrainWorker" in title or "TrainController" in title:
            found.append(title)
    return found
