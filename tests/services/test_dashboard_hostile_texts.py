"""The dashboard's pages with hostile texts and addresses, in a real browser and with synthetic rows."""

from __future__ import annotations

from typing import Any

import pytest
from api_examples import RUN, fill
from playwright.sync_api import Page
from sqlalchemy import update

from storage.models import PseudoLabels, Questions
from storage.session import Store
from tests.browsing import opened

# The text after this character on a line is shown from right to left, unless the character is isolated.
OVERRIDE = "\u202e"
# The positions, from the left, at which the first and the last character of a text are drawn.
_EDGES = """([selector, text]) => {
  for (const element of document.querySelectorAll(selector)) {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const at = node.data.indexOf(text);
      if (at < 0) continue;
      const left = (from) => {
        const range = document.createRange();
        range.setStart(node, at + from);
        range.setEnd(node, at + from + 1);
        return range.getBoundingClientRect().left;
      };
      return [left(0), left(text.length - 1)];
    }
  }
  return null;
}"""


@pytest.fixture(scope="module")
def stored(stored: Store) -> Store:
    """A store with a question whose text, label and answers reverse the text after them."""
    fill(stored)
    with stored.write() as session:
        odd = f"{RUN}/1/000001"
        session.execute(update(Questions).where(Questions.id == odd).values(text=f"Is it {OVERRIDE}evil?"))
        classes = [[f"3{OVERRIDE}", 3], [f"4{OVERRIDE}", 1]]
        label = update(PseudoLabels).where(PseudoLabels.question_id == odd)
        session.execute(label.values(answer=f"3{OVERRIDE}", classes=classes))
    return stored


@pytest.mark.parametrize("width", [1440, 390])
def test_texts_beside_a_model_s_text_keep_their_direction(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    with opened(page, f"{address}/runs/{RUN}/1/1"):
        page.get_by_role("heading", name="Question 1", level=1).wait_for()
        page.locator(".asked .meta").wait_for()
        beside: Any = page.evaluate(_EDGES, [".asked .meta", "rollouts"])
        assert beside is not None
        assert beside[0] < beside[1]
        for written in page.locator(".prose .written, .answer").all():
            assert written.evaluate("element => getComputedStyle(element).unicodeBidi") == "isolate"


@pytest.mark.parametrize("path", ["/runs/%E0%A4%A", "/runs/demo/1/%80"])
def test_an_address_with_invalid_characters_shows_a_page_without_script_errors(
    page: Page, address: str, path: str
) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{address}{path}")
    page.locator("h1").first.wait_for()
    assert errors == []
    assert page.get_by_role("link", name="coevo").is_visible()
