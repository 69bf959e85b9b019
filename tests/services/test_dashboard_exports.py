"""The download of an iteration's questions and votes, and the API reference, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.types import Rollout, question_id
from storage import queries
from storage.session import Store
from tests.browsing import opened, violations
from tests.synthetic_run import create, fill_run

RUN, BEGUN = "finished", "begun"


@pytest.fixture(scope="module")
def stored(stored: Store) -> Store:
    """A finished run, of which two questions have two votes each, and a run without questions."""
    fill_run(stored, RUN, per_level=2)
    with stored.write() as session:
        keys = [question_id(RUN, 2, index) for index in (0, 1)]
        votes = [Rollout(key, s, "", "3", 7, "stop", 0.1, 0.0, f"{RUN}/base/0", s) for key in keys for s in (0, 1)]
        queries.questions.add_rollouts(session, votes)
        create(session, BEGUN)
    return stored


def downloaded(page: Page) -> tuple[str, list[dict[str, object]]]:
    """The name and the rows of the file that the button JSONL downloads."""
    with page.expect_download() as download:
        page.get_by_role("button", name="JSONL").click()
    lines = Path(download.value.path()).read_text().splitlines()
    return download.value.suggested_filename, [json.loads(line) for line in lines]


@pytest.mark.parametrize("width", [1400, 420])
def test_the_questions_in_view_are_downloaded_and_counted(address: str, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    with opened(page, f"{address}/runs/{RUN}/2?verdict=too_easy&p_hat_min=0.9"):
        exports = page.get_by_role("group", name="Download")
        expect(exports.get_by_role("combobox", name="Questions", exact=True)).to_have_value("view")
        name_of_view, rows = downloaded(page)
        assert name_of_view.startswith(f"{RUN}-2-questions-")
        assert {row["verdict"] for row in rows} == {"too_easy"}
        expect(exports).to_contain_text(f"{len(rows)} rows")
        exports.get_by_role("combobox", name="Questions", exact=True).select_option("kept")
        with page.expect_response("**/export/rows?iterations=all&verdict=kept") as counted:
            exports.get_by_role("combobox", name="Iterations", exact=True).select_option("all")
        expect(exports).to_contain_text(f"{counted.value.json()['questions']} rows")
        name, rows = downloaded(page)
        assert name != name_of_view
        assert {row["verdict"] for row in rows} == {"kept"}
        assert {row["iteration"] for row in rows} == {1, 2, 3}
        assert len(rows) == counted.value.json()["questions"]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []


def test_votes_are_downloaded_with_their_texts(address: str, page: Page) -> None:
    with opened(page, f"{address}/runs/{RUN}/2"):
        exports = page.get_by_role("group", name="Download")
        exports.get_by_role("combobox", name="Download", exact=True).select_option("texts")
        expect(exports).to_contain_text("4 rows")
        name, rows = downloaded(page)
    assert name.startswith(f"{RUN}-2-votes-")
    assert [row["sample_index"] for row in rows] == [0, 1, 0, 1]
    assert rows[0]["text"] is None  # the run kept none


def test_an_iteration_without_labels_offers_no_download(address: str, page: Page) -> None:
    with opened(page, f"{address}/runs/{BEGUN}/1"):
        exports = page.get_by_role("group", name="Download")
        expect(exports).to_contain_text("They can be downloaded once all questions are labelled")
        expect(exports.get_by_role("button")).to_have_count(0)
        expect(page.get_by_text("No questions yet.")).to_be_visible()
        panel = page.locator("section.panel").filter(has=page.get_by_role("heading", name="Similar questions"))
        expect(panel).to_contain_text("No question has been labelled yet.")  # not that it has too many
        expect(page.get_by_role("link", name="Label a sample by hand")).to_have_count(0)
        page.goto(f"{address}/runs/{BEGUN}/1?verdict=kept")
        expect(page.get_by_text("No questions match these filters.")).to_be_visible()


def colour(page: Page, selector: str, style: str = "color") -> str:
    """A style of the first element that the selector finds."""
    return str(page.locator(selector).first.evaluate("(element, style) => getComputedStyle(element)[style]", style))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_links_to_the_api_reference(address: str, page: Page, scheme: str) -> None:
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    with opened(page, address):
        page.get_by_role("link", name="API reference").click()
        page.wait_for_url("**/api/docs")
        expect(page.get_by_role("heading", name="Get Export").first).to_be_visible(timeout=60_000)  # a large script
        expect(page.locator("#reference")).to_contain_text("/api/v1/runs/{run}/export/manifest")
        # Redoc would show a logo of another server beside this link.
        expect(page.get_by_role("link", name="API docs by Redocly")).to_be_visible()
    assert [url for url in requested if not url.startswith(f"{address}/")] == []
    # Redoc has the colours of the theme, and so have the table of an export's columns and the names of errors.
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert {colour(page, at) for at in ("#reference h1", "#reference td")} == {ink}
    assert colour(page, "#reference tr", "backgroundColor") == "rgba(0, 0, 0, 0)"
    page.evaluate("document.body.style.color = 'var(--wrong)'")
    assert colour(page, "#reference button:has(strong:text-is('404')) polygon", "fill") == colour(page, "body")
    # Axe checks our part of the page: Redoc's is replaced by its heading.
    page.evaluate("document.getElementById('reference').replaceChildren(document.querySelector('#reference h1'))")
    assert violations(page) == []
