"""Looking at pages as a person would be able to: what the browser complains of, what axe finds, Prefect's password."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.live import Live

WIDTHS = (1440, 390)


@contextmanager
def without_complaints(page: Page) -> Iterator[None]:
    """Fail where the console says that something is wrong, or a script ends with an error."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    yield
    assert said == []


def look_at(page: Page, address: str, heading: str, scheme: Any = "light", widths: Sequence[int] = WIDTHS) -> None:
    """Open an address, and hold it to what every page must be: drawn, no wider than the screen, and accessible."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(address)
        page.get_by_role("heading", name=heading, level=1).wait_for()
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (address, width)
        assert serious(page) == [], (address, width, scheme)


def open_prefect(page: Page, live: Live, path: str) -> None:
    """Open a page of Prefect's UI, with the password where it is asked for."""
    page.goto(f"{live.services.prefect_url}{path}")
    page.wait_for_load_state("networkidle")
    if "/login" in page.url:
        page.get_by_role("textbox").or_(page.locator("input[type=password]")).fill(live.services.prefect_auth)
        page.get_by_role("button", name="Login").click()
        page.wait_for_url(lambda url: "/login" not in url)
        page.goto(f"{live.services.prefect_url}{path}")


def serious(page: Page) -> list[tuple[str, str, list[str]]]:
    """What axe finds that keeps people from using the page: rule, what is wrong, where."""
    found = Axe().run(page).response["violations"]
    return [
        (each["id"], each["help"], [node["html"][:200] for node in each["nodes"][:3]])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
