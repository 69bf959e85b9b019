"""Take the documentation's pictures of a dashboard that is up, of a real run with a matrix, and another beside it:

.venv/bin/python docs/take_pictures.py http://127.0.0.1:8080/#key=… demo demo-2

The address is the one that `coevo up` printed, with its key.
"""

from __future__ import annotations

import shutil
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Locator, Page, sync_playwright

FOLDER = Path(__file__).parent / "pictures"
WIDE, NARROW = (1440, 1000), (390, 844)
TALL = (1440, 5000)  # all of a run's page: the header is over none of its panels


def main(printed: str, run: str, other: str) -> None:
    url, _, key = printed.partition("/#key=")
    pages = {
        "runs": ("/", WIDE, "light"),
        "run": (f"/runs/{run}", (1440, 1750), "light"),
        "run-dark": (f"/runs/{run}", WIDE, "dark"),
        "iteration": (f"/runs/{run}/3?verdict=kept&oracle=exact&oracle_verdict=wrong", (1440, 1300), "light"),
        "question": (f"/runs/{run}/2/3", (1440, 1200), "light"),
        "label": (f"/runs/{run}/3/label", WIDE, "light"),
        "compare": (f"/compare?run={run}&run={other}", (1440, 1360), "light"),
        "alerts": ("/alerts?acknowledged=all", WIDE, "light"),
        "matrix": (f"/runs/{run}#matrix", TALL, "light"),
        "audits": (f"/runs/{run}#audits", TALL, "light"),
        "run-phone": (f"/runs/{run}", NARROW, "light"),
        "iteration-phone": (f"/runs/{run}/3", NARROW, "dark"),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (path, (width, height), scheme) in pages.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.add_init_script(f"sessionStorage.setItem('coevo-key', '{key}')")
            page.goto(url + path)
            _settled(page)
            _, _, panel = path.partition("#")
            shown: Page | Locator = page.locator(f"#{panel}") if panel else page
            # 256 colours: a third of the bytes, and no difference that is seen.
            picture = Image.open(BytesIO(shown.screenshot())).convert("RGB").quantize(256)
            picture.save(FOLDER / f"{name}.png", optimize=True)
            page.close()


def _settled(page: Page) -> None:
    """Drawn, and with something to label where that is what it shows."""
    page.wait_for_load_state("networkidle")
    if page.get_by_label("Your name").count():
        page.get_by_label("Your name").fill("ann")
        page.keyboard.press("Enter")
        page.get_by_text("Pseudo-label", exact=True).or_(page.get_by_role("button", name="Draw")).first.wait_for()
        if page.get_by_role("button", name="Draw a sample").count():
            page.get_by_role("button", name="Draw a sample").click()
            page.get_by_text("Pseudo-label", exact=True).wait_for()
    page.wait_for_load_state("networkidle")


if __name__ == "__main__":
    main(*sys.argv[1:])
