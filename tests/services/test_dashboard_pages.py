"""The dashboard's pages in a real browser with synthetic rows: tests that need no real run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_examples import alert
from playwright.sync_api import Page, expect
from prefect_server import post, prefect_at

from core.types import Checkpoint, Stage
from services.drift.series import refresh
from storage import queries
from storage.errors import StoreError
from storage.rows import RunStatus, SeriesPoint
from storage.session import Store
from tests.api_server import serving
from tests.browsing import LOOKS, look_at, opened, violations, without_complaints
from tests.synthetic_run import CONFIG, create, fill_run, label, vote_of

RUN, BEGUN = "finished", "begun"
PRESETS = Path(__file__).parents[2] / "deploy" / "runs"


@pytest.fixture(scope="module")
def store(stored: Store) -> Store:
    """A store with a finished run and one in its first iteration, whose checkpoint's folder has a long name."""
    fill_run(stored, RUN, per_level=2)
    begin(stored, BEGUN, "running", "train_challenger")
    with stored.write() as session:
        path = f"/srv/{'folder_' * 20}/{BEGUN}/solver/1"
        solver = Checkpoint(f"{BEGUN}/solver/1", BEGUN, "solver", 1, 20, path, "f" * 64, f"{BEGUN}/base/0")
        queries.checkpoints.add_checkpoint(session, solver, {"model.safetensors": "f" * 64})
    return stored


@pytest.fixture(scope="module")
def address(store: Store, tmp_path_factory: pytest.TempPathFactory, prefect_url: str) -> Iterator[str]:
    """The dashboard's address; its API has a Prefect server without a worker."""
    exports = tmp_path_factory.mktemp("exports")
    with serving(store, exports, prefect=prefect_at(prefect_url), presets=PRESETS) as url:
        yield url


@pytest.mark.parametrize("sent_by", ["Enter", "Tab", "the button"])
def test_questions_can_be_searched_by_text(address: str, page: Page, sent_by: str) -> None:
    rows = page.locator("table.questions tbody tr")
    with opened(page, f"{address}/runs/{RUN}/1"):
        expect(rows.first).to_be_visible()
        text = rows.first.locator("td.text").inner_text()
        page.get_by_label("Text", exact=True).fill(text)
        if sent_by == "the button":
            page.get_by_role("button", name="Search").click()
        else:
            page.get_by_label("Text", exact=True).press(sent_by)
        page.wait_for_url("**/1?text=*")
        expect(rows.locator("td.text")).to_have_text([text])
        page.get_by_label("Text", exact=True).fill("")
        page.get_by_label("Text", exact=True).press("Enter")
        page.wait_for_url("**/1")
        expect(rows.nth(1)).to_be_visible()


def test_no_row_of_the_table_is_drawn_without_its_question(address: str, page: Page) -> None:
    page.add_init_script(
        """window.without = 0;
        new MutationObserver(() => {
          for (const cell of document.querySelectorAll("table.questions td.text")) window.without += !cell.textContent;
        }).observe(document, { childList: true, subtree: true });"""
    )
    page.goto(f"{address}/runs/{RUN}/1")
    expect(page.locator("table.questions tbody tr").first).to_be_visible()
    assert page.evaluate("window.without") == 0


def begin(store: Store, run: str, status: RunStatus, stage: Stage | None = None) -> None:
    """Store a run with this status that a process holds, and that is at this stage of iteration 1."""
    held: dict[str, Any] = {"run": run, "owner": "me", "lease_seconds": 600}
    with store.write() as session:
        create(session, run)
        queries.runs.set_run_status(session, run, status)
        queries.run_leases.claim_run(session, **held)
        if stage:
            queries.ledger.claim_stage(session, iteration=1, stage=stage, **held)


def test_a_half_typed_value_survives_a_redraw(address: str, store: Store, page: Page) -> None:
    run = "typed-into"
    begin(store, run, "running")
    page.clock.install()
    page.goto(f"{address}/runs/{run}/1")
    field, kept = page.get_by_label("p̂ from"), page.locator(".tile", has_text="Kept").get_by_text("n 1")
    expect(field).to_be_visible()
    expect(kept).to_have_count(0)
    field.press_sequentially("0.2")
    with store.write() as session:
        label(session, run, 1, [("1 + 1", vote_of(("2", 6)))], CONFIG)
    page.clock.run_for(7_000)
    expect(kept).to_be_visible()
    expect(field).to_have_value("0.2")


def test_the_current_iteration_s_dot_is_as_large_as_the_others(address: str, page: Page) -> None:
    with opened(page, address):
        dots = page.locator("article", has=page.get_by_role("link", name=BEGUN, exact=True)).locator(".dots i")
        expect(dots).to_have_count(3)
        expect(dots.first).to_have_class("current")
        sizes = dots.evaluate_all("dots => dots.map((dot) => [dot.offsetWidth, dot.offsetHeight])")
    assert sizes == [sizes[1]] * 3


def test_points_of_all_questions_have_another_shape_than_those_of_the_kept_ones(
    address: str, store: Store, page: Page
) -> None:
    with store.write() as session:
        refresh(session, RUN, 1)
    with opened(page, f"{address}/runs/{RUN}"):
        chart = page.get_by_role("group", name="Pseudo-label accuracy by iteration")
        kept, all_questions = (chart.locator(f"a[aria-label^='{over} by exact']") for over in ("kept", "all"))
        expect(kept.first).to_be_visible()
        shapes = [
            set(links.locator("path").evaluate_all("paths => paths.map((path) => path.getAttribute('d'))"))
            for links in (kept, all_questions)
        ]
    assert [len(paths) for paths in shapes] == [1, 1]
    assert shapes[0] != shapes[1]


@pytest.mark.parametrize("width", [320, 420])
def test_the_start_form_fits_on_a_phone(address: str, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    with opened(page, address):
        page.get_by_role("button", name="Start a run").click()
        form = page.locator("form.card")
        expect(form.get_by_label("Preset")).to_have_value("demo")
        left, right = form.evaluate("form => [form.getBoundingClientRect().left, form.getBoundingClientRect().right]")
    assert 0 <= left < right <= width


def test_the_form_says_which_names_a_run_may_have(address: str, page: Page) -> None:
    """The browser shows the title with its own message about the format."""
    with opened(page, address):
        page.get_by_role("button", name="Start a run").click()
        field = page.locator("form.card").get_by_label("Name")
        for name in ("mine", "Mine.2_b-c", "a/b", "-a", "ä"):
            field.fill(name)
            allowed = queries.runs.RUN_NAME.fullmatch(name) is not None
            assert field.evaluate("field => field.validity.valid") is allowed, name
        with pytest.raises(StoreError) as refused:
            queries.runs.refuse_name("a/b")
        assert (field.get_attribute("title") or "").lower() in str(refused.value)


def test_a_long_checkpoint_path_stays_in_its_card(address: str, page: Page) -> None:
    page.set_viewport_size({"width": 420, "height": 900})
    with opened(page, f"{address}/runs/{BEGUN}/checkpoints/solver/1"):
        path = page.get_by_text("folder_folder_")
        expect(path).to_be_visible()
        assert path.evaluate("code => code.parentElement.scrollWidth <= code.parentElement.clientWidth")
        assert page.evaluate("document.documentElement.scrollWidth") <= 420


def end_flow_run(prefect_url: str, run: str, ended: str, message: str | None = None) -> str:
    """Take a run's flow run to its end, as a flow runner does; returns the address of its page in Prefect."""
    [flow_run] = post(prefect_url, "/flow_runs/filter", flow_runs={"name": {"any_": [run]}})
    for state in ("PENDING", "RUNNING", ended):
        post(prefect_url, f"/flow_runs/{flow_run['id']}/set_state", state={"type": state, "message": message})
    return f"{prefect_url}/runs/flow-run/{flow_run['id']}"


def test_an_accepted_run_is_shown_while_it_waits_and_when_it_fails_before_it_begins(
    address: str, prefect_url: str, page: Page
) -> None:
    why = "serving.applications: vllm-cpu <b>needs</b> vLLM"
    message = f"Flow run encountered an exception: ConfigError: {why}"
    with opened(page, address):
        page.get_by_role("button", name="Start a run").click()
        page.locator("form.card").get_by_label("Name").fill("accepted")
        page.get_by_role("button", name="Start run").click()
        expect(page.get_by_role("status")).to_contain_text("accepted is waiting: Prefect has accepted it")
        page.goto(address)
        card = page.locator("article.run", has=page.get_by_role("link", name="accepted", exact=True))
        expect(card).to_contain_text("no flow runner has taken it")
        page.goto(f"{address}/runs/accepted")
        expect(page.locator(".now")).to_contain_text("no flow runner has taken it")
        expect(page.get_by_role("button", name="Cancel")).to_be_visible()
        flow_run = end_flow_run(prefect_url, "accepted", "FAILED", message)
        page.reload()
        expect(page.locator(".problem")).to_contain_text(why)  # the reason is shown as text, not as HTML
        expect(page.get_by_role("button", name="Resume")).to_have_count(0)  # there is nothing to resume
        page.goto(address)
        expect(card.locator(".problem")).to_contain_text(why)
        expect(card.get_by_role("link", name="Flow run in Prefect")).to_have_attribute("href", flow_run)
        assert violations(page) == []
    # A run that nobody knows is a 404, which the browser reports in its console.
    page.goto(f"{address}/runs/nobody")
    expect(page.get_by_text("run nobody: no such run")).to_be_visible()


def test_a_resumed_run_s_page_shows_at_once_that_it_waits_and_links_to_the_flow_run_also_when_it_is_done(
    address: str, prefect_url: str, store: Store, page: Page
) -> None:
    with store.write() as session:
        create(session, "stopped-short")
        queries.runs.set_run_status(session, "stopped-short", "failed")
    with opened(page, f"{address}/runs/stopped-short"):
        page.get_by_role("button", name="Resume").click()
        # The page asks again at once; otherwise it asks every ten seconds.
        expect(page.locator(".now")).to_contain_text("no flow runner has taken it")
        expect(page.locator(".title .status")).to_have_text("waiting")
        flow_run = end_flow_run(prefect_url, "stopped-short", "COMPLETED")
        with store.write() as session:
            queries.runs.set_run_status(session, "stopped-short", "done")
        page.reload()
        expect(page.locator(".title .status")).to_have_text("done")
        expect(page.get_by_role("link", name="Flow run in Prefect")).to_have_attribute("href", flow_run)


def test_a_cancelled_run_s_page_is_refreshed_until_its_process_has_ended(
    address: str, store: Store, page: Page
) -> None:
    """The status is `cancelled` as soon as the flow has stored it; the process holds the lease until it has ended."""
    name = "ends"
    begin(store, name, "cancelled", "evaluate")
    page.clock.install()
    with opened(page, f"{address}/runs/{name}"):
        expect(page.locator(".now")).to_contain_text("Iteration 1, evaluate", ignore_case=True)
        with store.write() as session:
            queries.run_leases.release_run(session, run=name, owner="me")
        page.clock.run_for(7_000)
        expect(page.locator(".title .status")).to_have_text("cancelled")
        expect(page.locator(".now")).to_contain_text("cancelled during evaluate 1", ignore_case=True)
        expect(page.locator("progress")).to_have_count(0)


OVERFLOWING = "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth).map(cell => cell.innerText)"


def test_open_alerts_are_where_people_look(address: str, store: Store, page: Page) -> None:
    """The critical ones are at the top of the run's page until somebody acknowledges them, and counted on its card."""
    name = "alarming"
    with store.write() as session:
        create(session, name)
        for key, severity in (("a" * 16, "critical"), ("b" * 16, "warning"), ("c" * 16, "warning")):
            text = f"label accuracy <i>fell</i> ({severity})"
            queries.alerts.add_alerts(session, [replace(alert(key), run=name, severity=severity, text=text)])
        fell = [(1, 0.923, 0.877, 0.953, 196), (3, 0.549, 0.486, 0.61, 246)]
        points = [SeriesPoint(t, "label_accuracy", "kept", "exact", *measured) for t, *measured in fell]
        queries.series.put_series(session, name, points)
    with without_complaints(page):
        for look in LOOKS:
            look_at(page, address, "Runs", [look])
            assert page.locator("dd").evaluate_all(OVERFLOWING) == [], look
        card = page.locator("article.run", has=page.get_by_role("link", name=name, exact=True))
        expect(card.locator(".badge.is-critical")).to_have_text("1 critical alert")
        expect(card.locator(".badge.is-warning")).to_have_text("2 warnings")
        expect(card).to_contain_text("drifts")
        card.locator(".badge.is-critical").click()
        banner = page.get_by_role("region", name="Critical alerts that nobody has acknowledged")
        expect(banner).to_contain_text("label accuracy <i>fell</i> (critical)")
        box = banner.bounding_box()
        assert box is not None
        assert box["y"] < page.locator("dl.tiles").evaluate("tiles => tiles.getBoundingClientRect().top")
        assert violations(page) == []
        banner.get_by_role("button", name="Acknowledge").click()
        banner.get_by_label("Your name").fill("ann")
        banner.get_by_role("button", name="Acknowledge").click()
        expect(banner).to_have_count(0)
        expect(page.locator(".title .badge.is-critical")).to_have_count(0)
        expect(page.locator(".title .badge.is-warning")).to_have_text("2 warnings")
        page.goto(f"{address}/alerts?severity=warning")
        group = page.locator("li.alert", has=page.get_by_role("link", name=name, exact=True))
        expect(group).to_contain_text("2 alerts")
        group.get_by_role("button", name="Acknowledge 2").click()
        group.get_by_role("button", name="Acknowledge 2").click()  # the name is known
        expect(group).to_have_count(0)
