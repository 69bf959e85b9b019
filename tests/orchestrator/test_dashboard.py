"""The dashboard in a real browser: every page, from the drift chart down to a vote, and ten labels by keyboard. The
pages show a real run, and a synthetic one that a judge and people have graded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from services.api.access.keys import new_key
from services.api.app import create_app
from services.oracles.accuracy import measured
from storage import queries
from storage.rows import AlertRow
from tests.api_server import served
from tests.browsing import Look, look_at, violations, without_complaints
from tests.live import Live
from tests.orchestrator.judged_run import HALF, fill_judged_run
from tests.orchestrator.whole_runs import WholeRun

RUN = "straight"
JUDGED = "made-judged"
PAGES = {
    "/": "Runs",
    f"/runs/{RUN}": RUN,
    f"/runs/{JUDGED}": JUDGED,
    f"/runs/{RUN}/1": f"{RUN}, iteration 1",
    f"/runs/{JUDGED}/1/{HALF}": f"Question {HALF}",
    f"/runs/{RUN}/1/label": "Label by hand",
    f"/runs/{RUN}/checkpoints/solver/1": f"{RUN}/solver/1",
    f"/compare?run={RUN}&run={JUDGED}": "Compare runs",
    "/alerts?acknowledged=all": "Alerts",
}


@pytest.fixture(scope="module")
def address(live: Live, whole_run: WholeRun) -> str:
    """The dashboard's address; the store has a finished run and a synthetic one."""
    assert whole_run.name == RUN
    fill_judged_run(live.store(), JUDGED)
    return live.services.api_url


@pytest.fixture
def page(live: Live, page: Page) -> Page:
    """A tab that has the home's key."""
    page.add_init_script(f"sessionStorage.setItem('coevo-key', '{live.home.api_key}')")
    return page


@pytest.fixture
def stranger(browser: Browser) -> Iterator[Page]:
    """A tab that has no key."""
    with browser.new_context() as context:
        yield context.new_page()


def test_from_the_drift_chart_to_a_vote_in_three_clicks(address: str, page: Page) -> None:
    with without_complaints(page):
        page.goto(f"{address}/runs/{RUN}")
        page.locator("#label-accuracy svg a").last.click()  # of two points at the same place, the upper one
        page.wait_for_url(f"**/runs/{RUN}/1?oracle=exact&oracle_verdict=wrong**")
        page.locator("table.questions td.text a").first.click()
        page.wait_for_url(f"**/runs/{RUN}/1/*")
        page.locator("details.vote summary").first.click()
        expect(page.locator("details.vote[open] .prose")).not_to_be_empty()
        expect(page.locator("details.vote[open]")).to_contain_text(f"{RUN}/base/0")
        expect(page.get_by_text("Trained on")).to_be_visible()


def test_a_person_can_give_ten_labels_by_keyboard(live: Live, address: str, page: Page) -> None:
    with without_complaints(page):
        page.goto(f"{address}/runs/{RUN}/1/label")
        page.get_by_label("Your name").fill("ann")
        page.keyboard.press("Enter")
        page.get_by_label("Sample size").fill("30")
        page.get_by_role("button", name="Draw a sample").click()
        page.keyboard.press("w")  # a wrong key, which the next one undoes
        page.keyboard.press("u")
        expect(page.locator(".choices [aria-pressed=true]")).to_have_count(0)
        for count, key in enumerate("rwisrrwwri", start=1):
            expect(page.get_by_text("Pseudo-label", exact=True)).to_be_visible()
            shown = page.locator(".labelling h2").text_content()
            page.keyboard.press(key)
            if count > 2:  # instead of waiting, the person confirms the label with a second key
                expect(page.get_by_role("button", name="Undo")).to_be_visible()
                page.keyboard.press("Enter" if count % 2 else key)
            expect(page.get_by_text(re.compile(f"^{count} of [0-9]+ labelled by you"))).to_be_visible()
            expect(page.locator(".labelling h2")).not_to_have_text(shown or "")
    with live.store().read() as session:
        counts = queries.audits.annotation_counts(session, RUN, 1)
    assert counts == {"ann": {"right": 4, "wrong": 3, "ill_posed": 2, "unknown": 1}}
    with without_complaints(page), page.expect_response("**/labelling/*") as response:
        page.keyboard.press("s")
        page.get_by_role("link", name="iteration 1").click()  # leaving the page still sends the label
    assert response.value.status == 201


def test_an_alert_can_be_acknowledged_with_a_note(live: Live, address: str, page: Page) -> None:
    text, rule, now = "label accuracy fell from <b>80%</b> to 50%", "label_accuracy", datetime.now(UTC)
    row = AlertRow(
        "0123456789abcdef", RUN, 1, rule, rule, "kept", "exact", "critical", 0.5, 0.44, 0.56, 300, 0.8, 0.05, text, now
    )
    with live.store().write() as session:
        queries.alerts.add_alerts(session, [row, replace(row, id="fedcba9876543210", severity="warning")])
    with without_complaints(page):
        page.goto(f"{address}/alerts")
        critical = page.locator(".alert.is-critical", has_text=RUN)  # other tests' runs have other alerts
        # Shown as text, not as HTML; strict mode checks that there is only one.
        expect(critical).to_contain_text("from <b>80%</b> to 50%")
        critical.get_by_role("button", name="Acknowledge").click()
        critical.get_by_label("Your name").fill("ann")
        critical.get_by_label("Note").fill("looked at it")
        critical.get_by_role("button", name="Acknowledge").click()
        expect(critical).to_have_count(0)
        page.get_by_label("Show").select_option("all")
        expect(critical).to_contain_text("acknowledged by ann: looked at it")


def test_filters_are_in_the_address(address: str, page: Page) -> None:
    with without_complaints(page):
        page.goto(f"{address}/runs/{RUN}/1")
        page.get_by_role("button", name="kept").click()
        page.wait_for_url("**/1?verdict=kept")
        page.get_by_label("Sort").select_option("-p_hat")
        page.wait_for_url("**sort=-p_hat**")
        expect(page.locator("table.questions tbody tr").first).to_contain_text("4/4")
        page.locator(".picture svg a").first.click()  # a bar of the histogram
        page.wait_for_url("**p_hat_min=**")
        page.reload()
        expect(page.get_by_role("button", name="kept")).to_be_visible()
        page.go_back()
        page.wait_for_url("**sort=-p_hat**")


# The dark scheme has other colours, so it is checked too; the layout on a phone is the same in both schemes.
@pytest.mark.parametrize(
    "looks",
    [
        [("light", 1440), ("light", 390), ("dark", 1440)],
        pytest.param([("dark", 390)], marks=pytest.mark.slow),
    ],
)
def test_every_page_is_accessible_and_fits_the_screen(address: str, page: Page, looks: Sequence[Look]) -> None:
    with without_complaints(page):
        for path, heading in PAGES.items():
            look_at(page, address + path, heading, looks)
            expect(page.get_by_role("button", name="Forget key")).to_be_visible()  # the header has all that it can have


@pytest.fixture
def with_keys(live: Live, address: str, tmp_path: Path) -> Iterator[str]:
    """The address of the same dashboard where keys are needed."""
    with served(create_app(live.store(), tmp_path, ask_for_keys=True)) as url:
        yield url


def test_a_person_enters_a_key_on_a_phone(live: Live, with_keys: str, stranger: Page) -> None:
    stranger.set_viewport_size({"width": 390, "height": 844})
    stranger.goto(with_keys)
    stranger.get_by_label("API key").fill(new_key(live.store(), "phone", ["read"]))
    stranger.get_by_role("button", name="Use this key").click()
    with without_complaints(stranger):
        stranger.goto(f"{with_keys}/runs/{RUN}")
        stranger.get_by_role("heading", name=RUN, level=1).wait_for()
        expect(stranger.get_by_role("button", name="Forget key")).to_be_visible()
        assert stranger.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_audits_of_a_judge_and_of_people_are_shown(live: Live, address: str, page: Page) -> None:
    with live.store().read() as session:
        accuracies = measured(session, JUDGED)
    with without_complaints(page):
        page.goto(f"{address}/runs/{JUDGED}")
        audits = page.locator("#audits")
        for accuracy in accuracies:
            name = f"a sample: {accuracy.figure.n} of {accuracy.population}{' kept' * (accuracy.over == 'kept')}"
            expect(audits.get_by_role("row", name=name)).to_contain_text(f"{100 * accuracy.figure.value:.1f}%")
        expect(audits.get_by_text("estimate from p̂", exact=True)).to_have_count(6)
        # One for the kept questions, one for all.
        expect(audits.get_by_text("Their interval contained")).to_have_count(2)
        for title, pair in {"oracles": "human and judge gpt", "annotators": "ann and bob"}.items():
            expect(audits.get_by_role("heading", name=f"Agreement between {title}")).to_be_visible()
            expect(audits.locator(f"dt:text-is('{pair}') + dd")).to_contain_text("κ 0.")
        expect(page.locator(".tile").first).to_contain_text("a sample: ")
        page.locator("#matrix summary").click()
        expect(page.locator("#matrix tbody tr")).to_have_count(8)  # two sets: three Solvers and the labels
        points = page.locator("#label-accuracy svg a").evaluate_all("links => links.map((link) => link.href.baseVal)")
        hollow = {point for point in points if f"/{JUDGED}/3" in point}
        assert hollow == {f"/runs/{JUDGED}/3"}  # iteration 3 has no audit, so its link selects no wrong labels
        assert violations(page) == []


def test_compared_runs_are_shown_by_the_same_oracle(address: str, page: Page) -> None:
    with without_complaints(page):
        page.goto(f"{address}/compare?run={RUN}&run={JUDGED}")
        expect(page.get_by_text(f"{JUDGED} was not audited by exact, but by human, judge gpt.")).to_be_visible()
        page.get_by_label("Label accuracy by").select_option("judge_gpt")
        page.wait_for_url("**oracle=judge_gpt")
        expect(page.get_by_text(f"{RUN} was not audited by judge gpt, but by exact.")).to_be_visible()
        panel = page.locator(".panel", has=page.get_by_role("heading", name="Label accuracy (kept), by judge gpt"))
        expect(panel.locator(".legend li")).to_have_text([f"{JUDGED} by judge gpt"])
        row = page.get_by_role("row", name=RUN).filter(has_text="rzero")  # of the table of latest figures
        expect(row).to_contain_text("not audited by judge gpt")
        page.get_by_role("button", name=RUN).click()
        page.wait_for_url(f"**/compare?run={JUDGED}&oracle=judge_gpt")


def test_the_focus_moves_to_the_heading_of_the_new_page(address: str, page: Page) -> None:
    heading = page.get_by_role("heading", level=1)
    with without_complaints(page):
        page.goto(address)
        page.get_by_role("link", name=RUN).press("Enter")
        expect(page.get_by_role("heading", name=RUN, level=1)).to_be_focused()
        expect(page).to_have_title(f"{RUN} · coevo")
        page.go_back()
        expect(page.get_by_role("heading", name="Runs", level=1)).to_be_focused()
        page.get_by_role("link", name="Compare").click()
        expect(heading).to_have_text("Compare runs")
        expect(heading).to_be_focused()
        assert heading.evaluate("node => node.matches(':focus-visible')") is False  # no focus ring after a click
        page.get_by_role("button", name=RUN).click()
        page.wait_for_url(f"**/compare?run={RUN}")
        expect(page.get_by_role("button", name=RUN)).to_be_focused()  # the page is the same, so the focus stays


def test_single_keys_move_through_the_filtered_list(address: str, page: Page) -> None:
    wrong = "?oracle=judge_gpt&oracle_verdict=wrong&sort=-p_hat"
    with without_complaints(page):
        page.goto(f"{address}/runs/{JUDGED}/1{wrong}")
        rows = page.locator("table.questions td:first-child a")
        rows.first.wait_for()
        [first, second, *_] = rows.all_text_contents()
        rows.first.click()
        for key, index in ("j", second), ("k", first):
            page.get_by_role("link", name=f"{second} →" if key == "j" else f"← {first}").wait_for()
            page.keyboard.press(key)
            page.wait_for_url(f"**/{JUDGED}/1/{index}{wrong}")
        page.get_by_role("link", name=f"{second} →").wait_for()
        page.keyboard.press("k")
        expect(page.get_by_role("status")).to_have_text("This is the first question in the filtered list.")
        page.keyboard.press("Control+j")
        page.get_by_label("Single-key shortcuts").uncheck()
        page.keyboard.press("j")
        assert page.url.endswith(f"/1/{first}{wrong}")
        page.goto(f"{address}/runs/{JUDGED}/1/{HALF}")
        expect(page.locator(".vote .with")).to_have_count(3)  # one answer in three spellings
        expect(page.get_by_label("Single-key shortcuts")).not_to_be_checked()
        page.get_by_role("link", name=f"← {HALF - 1}").wait_for()
        page.get_by_label("Single-key shortcuts").check()
        page.keyboard.press("j")
        expect(page.get_by_role("status")).to_have_text("This is the last question.")


def test_the_dashboard_works_where_the_browser_refuses_storage(live: Live, address: str, stranger: Page) -> None:
    for storage in ("localStorage", "sessionStorage"):
        refusal = "throw new DOMException('refused', 'SecurityError')"
        stranger.add_init_script(f"Object.defineProperty(window, '{storage}', {{ get() {{ {refusal} }} }})")
    with without_complaints(stranger):
        stranger.goto(f"{address}/runs/{JUDGED}/1/{HALF}#key={live.home.api_key}")
        stranger.get_by_label("Single-key shortcuts").uncheck()
        expect(stranger.locator("kbd")).to_have_count(0)
        stranger.get_by_role("button", name="Switch to the").click()
        expect(stranger.get_by_role("heading", name=f"Question {HALF}", level=1)).to_be_visible()
