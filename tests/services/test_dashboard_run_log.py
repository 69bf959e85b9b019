"""What a run's page says of a run at work: the remaining time, the log, and the last lines of a stage that failed."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from core.settings.parsing import load_config
from orchestrator.installation.home import ROOT, Home
from orchestrator.plan import plan
from orchestrator.reporting.run_log import recorded, say
from storage import queries
from storage.session import open_store
from tests.api_server import serving
from tests.browsing import LOOKS, look_at, opened
from tests.synthetic_run import add_iteration, create, fill_run, finish

HOSTILE = "<img src=x onerror=alert(1)> \u202egnirts"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dashboard of a store with a finished run, one whose labelling failed, one in its second iteration, and one at
    its first stage."""
    home = Home(tmp_path_factory.mktemp("home"))
    store = open_store(home.database, create=True)
    fill_run(store, "finished", per_level=2)
    held: dict[str, Any] = {"owner": "host:1:1", "lease_seconds": 600}
    logged = {
        "failed": [f"the service is slow: {HOSTILE}", "label_questions 1 failed after 3.2 s: InferenceError: 503"],
        "long": [f"line {line}" for line in range(50)],
    }
    for run in (*logged, "at-work"):
        with store.write() as session:
            create(session, run)
            finish(session, run, 0, "evaluate", {}, 60.0)
        with recorded(home, run, 0, "evaluate"):
            say("evaluate 0: micro pass@1 27.1% [24.0, 30.2], greedy 26.0% [20.9, 31.9] (n = 240); 60.0 s")
    for run, lines in logged.items():
        failed = {"run": run, "iteration": 1, "stage": "label_questions"}
        with store.write() as session:
            queries.ledger.claim_stage(session, **failed, **held)
            queries.ledger.fail_stage(session, **failed, owner="host:1:1", error="InferenceError: 503")
            queries.runs.set_run_status(session, run, "failed")
        with recorded(home, run, 1, "label_questions"):
            for line in lines:
                logging.getLogger("a").error(line)
    with store.write() as session:
        add_iteration(session, "at-work", 1, random.Random(1), per_level=2)
        queries.runs.set_run_status(session, "at-work", "running")
        queries.run_leases.claim_run(session, run="at-work", **held)
        queries.ledger.claim_stage(session, run="at-work", iteration=2, stage="train_challenger", **held)
        alone = load_config(ROOT / "deploy" / "runs" / "micro.toml")
        queries.runs.create_run(session, name="alone", config=alone, preset="micro")
        queries.run_leases.claim_run(session, run="alone", **held)
        queries.ledger.claim_stage(session, run="alone", iteration=0, stage="read_prompts", **held)
    with serving(store, home.exports, run_logs=home.run_logs, planned=plan) as url:
        yield url
    store.close()


def test_a_failed_stage_shows_its_last_lines_as_text_and_what_to_do(address: str, page: Page) -> None:
    with opened(page, f"{address}/runs/failed"):
        expect(page.get_by_text("Remove the cause, then resume the run")).to_be_visible()
        page.get_by_text("Its last lines").click()
        lines = page.get_by_role("region", name="Last lines of the failed stage")
        expect(lines).to_contain_text(HOSTILE)
        expect(lines).to_contain_text("ERROR label_questions 1 failed after 3.2 s: InferenceError: 503")
        expect(lines).not_to_contain_text("pass@1")  # it is of another stage
        expect(page.locator(".log img")).to_have_count(0)
        expect(page.get_by_role("region", name="Log of the run")).to_contain_text("micro pass@1 27.1%")


def test_the_log_opens_at_its_newest_line(address: str, page: Page) -> None:
    """In the region of the log, and in the lines of the stage that failed, which are drawn when they are opened."""
    with opened(page, f"{address}/runs/long"):
        page.get_by_text("Its last lines").click()
        for name in ("Log of the run", "Last lines of the failed stage"):
            log = page.get_by_role("region", name=name)
            expect(log).to_contain_text("line 49")
            top, height, shown = log.evaluate("log => [log.scrollTop, log.scrollHeight, log.clientHeight]")
            assert height > shown
            assert top == pytest.approx(height - shown, abs=1)


def test_a_run_at_work_shows_how_long_it_will_take(address: str, page: Page) -> None:
    with opened(page, f"{address}/runs/at-work"):
        remaining = page.locator(".remaining")
        expect(remaining).to_contain_text("train challenger 2: about ")
        expect(remaining).to_contain_text("whole run: about ")
        expect(remaining).to_contain_text("judging by the run's own iterations so far")
        page.goto(f"{address}/runs/alone")
        expect(remaining).to_contain_text("not known yet")
        expect(remaining).to_contain_text("read_prompts of iteration 0")
        page.goto(f"{address}/runs/finished")
        expect(page.get_by_role("heading", name="finished", level=1)).to_be_visible()
        expect(page.locator(".remaining")).to_have_count(0)


@pytest.mark.parametrize("run", ["failed", "at-work"])
def test_the_page_is_accessible(address: str, page: Page, run: str) -> None:
    page.goto(f"{address}/runs/{run}")
    look_at(page, f"{address}/runs/{run}", run, LOOKS)
