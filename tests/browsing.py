"""Check pages in a real browser: errors in its console, accessibility by axe, and the login to Prefect's UI."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.live import Live

expect.set_options(timeout=30_000)  # milliseconds: pages are refreshed every few seconds, on a busy machine

Look = tuple[Literal["light", "dark"], int]  # the colour scheme, and the width of the window in pixels
LOOKS: tuple[Look, ...] = (("light", 1400), ("dark", 420), ("dark", 1400), ("light", 420))
# Two animation frames: after the first, charts know their new width, in the second they are drawn.
_REDRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@contextmanager
def without_complaints(page: Page) -> Iterator[None]:
    """Fail if the console shows an error or a warning, or a script ends with an error."""
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: messages.append(str(error)))
    yield
    assert messages == [], messages  # this file is not one of those whose assertions pytest rewrites


@contextmanager
def opened(page: Page, address: str) -> Iterator[None]:
    """Open an address for the block, which fails as in `without_complaints`."""
    with without_complaints(page):
        page.goto(address)
        yield


def look_at(page: Page, address: str, heading: str, looks: Sequence[Look]) -> None:
    """Open an address, and check what every page must be: drawn, no wider than the screen, and accessible.

    The page is loaded with the first look, and redrawn for each further one.
    """
    for scheme, width in looks:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.set_viewport_size({"width": width, "height": 900})
        if (scheme, width) == looks[0]:
            page.goto(address)
            page.get_by_role("heading", name=heading, level=1).wait_for()
            page.wait_for_load_state("networkidle")
        page.evaluate(_REDRAWN)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (address, width)
        assert violations(page) == [], (address, width, scheme)


def open_prefect(page: Page, live: Live, path: str) -> None:
    """Open a page of Prefect's UI, and give the password if the UI asks for it."""
    page.goto(f"{live.services.prefect_url}{path}")
    page.wait_for_load_state("networkidle")
    if "/login" in page.url:
        page.get_by_role("textbox").or_(page.locator("input[type=password]")).fill(live.services.prefect_auth)
        page.get_by_role("button", name="Login").click()
        page.wait_for_url(lambda url: "/login" not in url)
        page.goto(f"{live.services.prefect_url}{path}")


def violations(page: Page) -> list[tuple[str, str, list[str]]]:
    """Axe's violations on the page, of any impact: the rule, what is wrong, the elements."""
    return [
        (violation["id"], violation["help"], [node["html"][:200] for node in violation["nodes"][:3]])
        for violation in Axe().run(page).response["violations"]
    ]
