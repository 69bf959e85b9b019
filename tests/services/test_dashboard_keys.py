"""The API key of the dashboard: entered once, handed on to new tabs, forgotten in all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from services.api.access.keys import new_key
from services.api.app import create_app
from storage.session import Store
from tests.api_server import served
from tests.browsing import LOOKS, look_at
from tests.conftest import opened_browser
from tests.synthetic_run import fill_run


@pytest.fixture
def address(sqlite: Store, tmp_path: Path) -> Iterator[str]:
    fill_run(sqlite, "loop", per_level=2)
    with served(create_app(sqlite, tmp_path, ask_for_keys=True)) as url:
        yield url


def test_tabs_hand_the_key_on_and_forget_it_together(sqlite: Store, address: str, page: Page) -> None:
    key = new_key(sqlite, "me", ["read"])
    page.goto(f"{address}/#key={key}")
    expect(page.get_by_role("link", name="loop")).to_be_visible()
    other = page.context.new_page()
    other.goto(f"{address}/runs/loop/1")
    expect(other.get_by_role("heading", name="loop, iteration 1", level=1)).to_be_visible()
    other.get_by_role("button", name="Forget key").click()
    for tab in (page, other):
        expect(tab.get_by_role("heading", name="API key required")).to_be_visible()
    page.reload()  # no tab has the key any more
    expect(page.get_by_role("heading", name="API key required")).to_be_visible()
    look_at(page, address, "API key required", LOOKS[:2])


def test_a_wrong_key_is_not_replaced_by_another_tab_s(sqlite: Store, address: str, page: Page) -> None:
    page.goto(f"{address}/#key={new_key(sqlite, 'me', ['read'])}")
    expect(page.get_by_role("link", name="loop")).to_be_visible()
    other = page.context.new_page()
    other.goto(f"{address}/#key=wrong")
    expect(other.get_by_role("heading", name="API key required")).to_be_visible()
    expect(other.get_by_role("alert")).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="loop")).to_be_visible()


# Asks for the key as a new tab of the dashboard does, and returns what is heard: the first answer, or, if none is
# expected, all of them during some requests.
_ASK = """async (isAnswered) => {
  const heard = [];
  const channel = new BroadcastChannel("coevo-key");
  channel.addEventListener("message", ({ data }) => heard.push(data));
  const answer = new Promise((resolve) => channel.addEventListener("message", resolve, { once: true }));
  channel.postMessage("ask");
  if (isAnswered) await answer;
  for (const round of [1, 2, 3]) await fetch(`/healthz?${round}`).catch(() => null);
  return heard;
}"""


def test_a_page_of_another_origin_is_not_handed_the_key(sqlite: Store, address: str) -> None:
    """Neither under a foreign name that resolves to this machine, nor as localhost, nor from another port."""
    key, port = new_key(sqlite, "me", ["read"]), address.rpartition(":")[2]
    with (
        opened_browser("--host-resolver-rules=MAP evil.example 127.0.0.1") as browser,
        served(create_app(sqlite, Path(), ask_for_keys=True)) as other_port,
    ):
        context = browser.new_context()
        dashboard, stranger = context.new_page(), context.new_page()
        dashboard.goto(f"{address}/#key={key}")
        expect(dashboard.get_by_role("link", name="loop")).to_be_visible()
        for origin in (f"http://evil.example:{port}", f"http://localhost:{port}", other_port):
            stranger.goto(f"{origin}/static/icon.svg")
            assert stranger.evaluate(_ASK, False) == [], origin
        stranger.goto(f"{address}/static/icon.svg")
        assert stranger.evaluate(_ASK, True) == [{"apiKey": key}]  # the question is heard where it may be
