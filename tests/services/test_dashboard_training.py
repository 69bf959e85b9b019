"""The dashboard's page of a training: the best and the worst rollouts, their texts, and one question across steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from api_examples import RUN, fill, training_rollouts
from playwright.sync_api import Page, expect

from core.types import Role, TrainingRollout
from storage import queries
from storage.files.texts import RolloutText, TextWriter, training_texts_paths
from storage.queries.training_rollouts import Training
from storage.rows import TrainedOnRow
from storage.session import Store
from tests.api_server import serving
from tests.browsing import LOOKS, look_at, opened, violations

OVERRIDE = "\u202e"  # the text after it on a line is shown from right to left, unless it is isolated
HOSTILE = f"<img src=x onerror=alert(1)> <b>bold</b>{OVERRIDE} \\(x^2\\) \\boxed{{3}}"
PAGE = f"/runs/{RUN}/training/solver/1"


@pytest.fixture(scope="module")
def address(stored: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard with the training of the examples, and one of a Challenger whose first rollout is hostile."""
    texts = tmp_path_factory.mktemp("texts")
    fill(stored)
    hostile, malformed = training_rollouts()[:2]
    hostile = replace(hostile, question_id=None, question=HOSTILE, answer=None, agrees=None)
    malformed = replace(malformed, question_id=None, question=None, answer=None, agrees=None)
    with stored.write() as session:
        queries.training_rollouts.add(session, Training(RUN, 1, "challenger"), [hostile, malformed])
        queries.traces.add_trained_on(session, [TrainedOnRow(f"{RUN}/1/000000", f"{RUN}/solver/1", [1, 2])])
    kept: dict[Role, list[TrainingRollout]] = {"solver": training_rollouts()[:4], "challenger": [hostile]}
    for role, rollouts in kept.items():
        writer = TextWriter(training_texts_paths(texts, RUN, 1, role)[0])
        writer.add(0, [RolloutText(row.prompt_key, row.rollout, HOSTILE) for row in rollouts])
        writer.finish()
    with serving(stored, texts, texts=texts) as url:
        yield url


def test_the_best_rollouts_come_first_and_the_worst_with_another_order(page: Page, address: str) -> None:
    rows = page.locator("table.rollouts tbody")
    with opened(page, f"{address}/runs/{RUN}"):
        step = page.get_by_label("iteration 1, step 1")
        step.click()
        page.wait_for_url(f"**{PAGE}?step=1")
        expect(rows).to_have_count(4)
        expect(rows.first.locator("td[data-label=reward]")).to_have_text("1")
        page.get_by_label("Sort").select_option("reward")
        page.wait_for_url(f"**{PAGE}?step=1&sort=reward")
        expect(rows.first.locator("td[data-label=reward]")).to_have_text("0")
        expect(rows.first.locator("td[data-label=bonus]")).to_have_text("0.25")
        expect(rows.first.locator("td[data-label=answer]")).to_have_text("no answer differs")
        expect(rows.nth(1)).to_contain_text("not trained on")
        page.get_by_role("link", name="step 2 →").click()
        page.wait_for_url(f"**{PAGE}?sort=reward&step=2")
        expect(rows.first.locator("td[data-label=bonus]")).to_have_text("0.5")


def test_what_was_rewarded_although_wrong_can_be_listed(page: Page, address: str) -> None:
    rows = page.locator("table.rollouts tbody")
    with opened(page, f"{address}{PAGE}"):
        page.get_by_label("Only rewarded although wrong").check()
        page.wait_for_url(f"**{PAGE}?rewarded_wrong=true")
        expect(rows.locator("td[data-label=step]")).to_have_text(["1 1.0", "2 1.0"])
        look_at(page, page.url, "Training of the Solver, iteration 1", LOOKS)
        page.get_by_label("Only rewarded although wrong").uncheck()
        expect(rows).to_have_count(8)
        page.goto(f"{address}/runs/{RUN}/training/challenger/1")
        expect(rows).to_have_count(2)
        expect(page.get_by_label("Only rewarded although wrong")).to_have_count(0)


def test_the_same_question_is_shown_across_steps(page: Page, address: str) -> None:
    rows = page.locator("table.rollouts tbody")
    with opened(page, f"{address}{PAGE}?step=1"):
        page.get_by_role("button", name="Read step 1, prompt 0, rollout 0").click()
        page.get_by_role("link", name="this question at all steps").click()
        page.wait_for_url(f"**{PAGE}?question={RUN}%2F1%2F000000&sort=step")
        expect(rows.locator("td[data-label=step]")).to_have_text(["1 0.0", "1 0.1", "2 0.0", "2 0.1"])
        page.get_by_role("link", name="question demo/1/000000 ×").click()
        expect(rows).to_have_count(8)
        page.goto(f"{address}/runs/{RUN}/1/0")
        page.get_by_role("link", name="its rollouts").click()
        expect(rows).to_have_count(4)


def test_a_hostile_text_is_shown_as_text(page: Page, address: str) -> None:
    with opened(page, f"{address}/runs/{RUN}/training/challenger/1"):
        page.get_by_role("button", name="Read step 1, prompt 0, rollout 0").click()
        text = page.locator(".read .prose .written")
        expect(text).to_contain_text("<img src=x onerror=alert(1)> <b>bold</b>")
        expect(text.locator(".katex").first).to_be_visible()
        assert page.locator("table.rollouts img, table.rollouts .written b").count() == 0
        for written in page.locator("table.rollouts .written").all():
            assert written.evaluate("element => getComputedStyle(element).unicodeBidi") == "isolate"
        expect(page.locator("table.rollouts tbody").nth(1)).to_contain_text("malformed")


def test_a_text_that_is_not_stored_says_which_setting_decides(page: Page, address: str) -> None:
    page.goto(f"{address}{PAGE}?step=2")
    page.get_by_role("button", name="Read step 2, prompt 0, rollout 0").click()
    expect(page.locator(".read")).to_contain_text("The setting rollout_text decides which texts a run stores.")


@pytest.mark.parametrize("path", [PAGE, f"/runs/{RUN}/training/challenger/1"])
def test_the_page_is_accessible_in_every_look(page: Page, address: str, path: str) -> None:
    heading = f"Training of the {path.split('/')[4].title()}, iteration 1"
    look_at(page, f"{address}{path}?step=1", heading, LOOKS)
    page.get_by_role("button", name="Read step 1, prompt 0, rollout 0").click()
    page.locator(".read .prose").last.wait_for()
    assert violations(page) == []


def test_a_training_of_which_nothing_is_graded_says_so_instead_of_that_nothing_was_wrong(
    page: Page, address: str
) -> None:
    with opened(page, f"{address}/runs/{RUN}/training/solver/2?rewarded_wrong=true"):
        expect(page.locator("#rollouts")).to_contain_text("Not graded: no oracle knows these answers.")
        page.get_by_label("Only rewarded although wrong").uncheck()
        expect(page.locator("#rollouts")).to_contain_text("No rollout is stored for this choice.")
