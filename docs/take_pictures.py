"""Take the documentation's pictures of a dashboard that is up, of a real run, and another beside it:

.venv/bin/python docs/take_pictures.py http://127.0.0.1:8080/#key=… demo demo-2

The address is the one that `coevo up` printed, with its key.
"""

from __future__ import annotations

import shutil
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent / "pictures"


def main(printed: str, run: str, other: str) -> None:
    url, _, key = printed.partition("/#key=")
    pages = {
        "run": (f"/runs/{run}", (1440, 1750)),
        "iteration": (f"/runs/{run}/3?verdict=kept&oracle=exact&oracle_verdict=wrong", (1440, 1300)),
        "compare": (f"/compare?run={run}&run={other}", (1440, 1360)),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (path, (width, height)) in pages.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.add_init_script(f"sessionStorage.setItem('coevo-key', '{key}')")
            page.goto(url + path)
            page.wait_for_load_state("networkidle")
            # 256 colours: a third of the bytes, and no difference that is seen.
            picture = Image.open(BytesIO(page.screenshot())).convert("RGB").quantize(256)
            picture.save(FOLDER / f"{name}.png", optimize=True)
            page.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
