"""The pages of evaluations in a real browser, with a stored evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from evaluation_examples import ODD, store_evaluation, store_recheck
from playwright.sync_api import Page, expect

from storage.session import Store
from tests.api_server import serving
from tests.browsing import opened, violations


@pytest.fixture(scope="module")
def address(stored: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    texts = tmp_path_factory.mktemp("texts")
    key = store_evaluation(stored, texts)
    store_recheck(stored, key, "judge_gpt_4o_equivalence")
    with serving(stored, texts, texts=texts) as url:
        yield url


def test_an_evaluation_is_found_in_the_list_and_read_to_its_replies(address: str, page: Page) -> None:
    with opened(page, address):
        page.get_by_role("link", name="Evaluations").click()
        expect(page.get_by_text("http://10.0.0.7/v1#qwen3")).to_be_visible()
        row = page.get_by_role("row").filter(has_text="sums.jsonl")
        expect(row.get_by_role("cell").nth(2)).to_contain_text("62.5%")  # pass@1, as on its page
        expect(row.get_by_role("cell").nth(3)).to_contain_text("n 8")
        assert violations(page) == []
        page.get_by_role("link", name="sums.jsonl").click()
        expect(page.get_by_role("heading", name="sums.jsonl")).to_be_visible()
        expect(page.locator(".tile", has_text="pass@1").first).to_contain_text("62.5%")
        expect(page.locator(".tile", has_text="greedy").first).to_contain_text("n 8")
        expect(page.locator(".picture svg")).to_have_count(2)
        shares = page.locator("section", has=page.get_by_role("heading", name="By the majority's share"))
        shares.get_by_text("Data table").click()
        # Four, three, two and one of four samples have an answer, which is right; each twice.
        left = shares.locator("tr", has_text="questions left").filter(has_text="0.6")
        expect(left).to_contain_text("50.0%")
        recheck = page.locator("section", has_text="Rechecked by judge gpt 4o equivalence")
        expect(recheck).to_contain_text("12 of 12 different answers were judged, 0 of them without a clear verdict")
        expect(recheck.locator("tr", has_text="the grader or the judge")).to_contain_text("62.5%")
        expect(recheck.locator("tr", has_text="the judge alone")).to_contain_text("50.0%")
        disagreements = recheck.get_by_role("region", name="Disagreements of grader and judge").locator("tbody tr")
        expect(disagreements).to_contain_text(["12.5%", "25.0%", "16.7%"])
        assert violations(page) == []
        question = page.locator("details.record").last
        question.locator("summary").first.click()
        expect(question).to_contain_text("1 of 4 right, greedy wrong")
        expect(question.locator("td", has_text="onerror")).to_have_text(ODD)  # escaped
        expect(question.locator("th").nth(3)).to_have_text("judge gpt 4o equivalence")
        first, *_, last = question.locator("tbody tr").all()
        expect(first.locator("td").nth(3)).to_have_text("wrong")
        expect(last.locator("td").nth(3)).to_have_text("–")  # no answer
        question.get_by_text("greedy reply").click()
        expect(question.locator("pre").first).to_have_text(f"so {ODD}")
        for width in (360, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_an_evaluation_s_records_are_downloaded(address: str, page: Page) -> None:
    page.goto(f"{address}/evaluations")
    page.get_by_role("link", name="sums.jsonl").click()
    with page.expect_download() as downloading:
        page.get_by_role("button", name="JSONL").click()
    rows = [json.loads(line) for line in downloading.value.path().read_text().splitlines()]
    assert [len(row["answers"]) for row in rows] == [5] * 8
