"""The curves of a training that runs: they grow on the pages without a reload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from orchestrator.ledger import owner
from orchestrator.stages.context import Context
from orchestrator.stages.training.metrics import store_step
from storage import queries
from storage.session import Store
from tests.api_server import serving
from tests.browsing import LOOKS, look_at, opened
from tests.synthetic_run import context_of, create

RUN = "trains"


@pytest.fixture
def context(sqlite: Store) -> Context:
    """A run whose Solver is in training."""
    with sqlite.write() as session:
        create(session, RUN)
        queries.runs.set_run_status(session, RUN, "running")
        queries.run_leases.claim_run(session, run=RUN, owner=owner(), lease_seconds=600)
    return context_of(sqlite, RUN, 1)


@pytest.fixture
def address(context: Context, tmp_path: Path) -> Iterator[str]:
    with serving(context.store, tmp_path) as url:
        yield url


REFRESHED_MS = 7_000  # within which an open page asks for what is new


def end_step(context: Context, step: int) -> None:
    metrics = {"reward_mean": 0.1 * step, "entropy": 2.0 / step, "kl": 0.01 * step, "odd_metric": 7.0}
    store_step(context, "solver", {"step": float(step), **metrics})


def test_the_curves_grow_on_the_run_s_page_while_it_trains(context: Context, address: str, page: Page) -> None:
    now = page.locator("#training-now")
    page.clock.install()
    with opened(page, f"{address}/runs/{RUN}"):
        expect(now.get_by_role("heading", level=2)).to_have_text("Training now: train solver 1")
        expect(now).to_contain_text("No step has ended yet.")
        for step in (1, 2, 3):
            end_step(context, step)
            page.clock.run_for(REFRESHED_MS)
            for curve in ("Reward", "Policy entropy", "KL to the reference"):
                points = now.get_by_role("group", name=f"{curve} by step").locator("title")
                expect(points).to_have_count(step)
            expect(now.get_by_role("group", name="Reward by step")).to_contain_text(f"iteration 1, step {step}")
        now.get_by_text("More metrics (1)").click()
        expect(now.get_by_role("group", name="odd metric by step")).to_be_visible()
        look_at(page, f"{address}/runs/{RUN}", RUN, LOOKS)
        now.get_by_role("link", name="The page of this training").click()
        page.wait_for_url(f"**/runs/{RUN}/training/solver/1")


def test_the_page_of_a_training_grows_until_the_training_has_ended(context: Context, address: str, page: Page) -> None:
    rewards = page.get_by_role("group", name="Reward by step").locator("title")
    entropies = page.get_by_role("group", name="Policy entropy by step").locator("title")
    page.clock.install()
    with opened(page, f"{address}/runs/{RUN}/training/solver/1"):
        expect(page.get_by_text("No step of this training has ended yet.")).to_be_visible()
        for step in (1, 2):
            end_step(context, step)
            page.clock.run_for(REFRESHED_MS)
            expect(rewards).to_have_count(step)
            expect(entropies).to_have_count(step)
        look_at(page, f"{address}/runs/{RUN}/training/solver/1", "Training of the Solver, iteration 1", LOOKS)


def test_a_run_that_does_not_train_has_no_curves_of_now(context: Context, address: str, page: Page) -> None:
    end_step(context, 1)
    with context.store.write() as session:
        queries.runs.set_run_status(session, RUN, "cancelled")
        queries.run_leases.release_run(session, run=RUN, owner=owner())
    page.goto(f"{address}/runs/{RUN}")
    expect(page.get_by_role("heading", name="Reward in training")).to_be_visible()
    expect(page.locator("#training-now")).to_have_count(0)
