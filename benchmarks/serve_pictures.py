"""Makes the pictures of the page in docs/images, with the demo's model in a real browser.

python benchmarks/serve_pictures.py            # CHROMIUM names a browser that is not called chromium
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from bench.circumstances import ROOT
from bench.serving import demo_model, served
from playwright.sync_api import Browser, sync_playwright

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
TEXT = """Open a URL and read the response, following redirects.

The body is decoded by the charset of the headers. Raises an error if the server refuses the connection."""
VIEWS = {"light": ("light", 1180, 800), "dark": ("dark", 1180, 800), "phone": ("light", 390, 844)}


def picture(browser: Browser, port: int, name: str, folder: Path) -> None:
    """Writes a picture of the page with a text and an explained label."""
    scheme, width, height = VIEWS[name]
    context = browser.new_context(viewport={"width": width, "height": height}, has_touch=name == "phone")
    page = context.new_page()
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(f"http://127.0.0.1:{port}/")
    page.wait_for_selector("#examples:visible")
    page.fill("#text", TEXT)
    page.wait_for_selector("#labels li")
    row = page.locator("#labels button").first
    row.tap() if name == "phone" else row.hover()
    page.wait_for_selector("#why:visible")
    page.wait_for_timeout(500)  # until the bars have stopped moving
    page.screenshot(path=folder / f"serve-{name}.png")
    context.close()


def main() -> int:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        print("There is no Chromium. Type: apt-get install chromium", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        model = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(name) / "demo.safetensors"
        demo_model(model)
        with served(model) as (_, port), sync_playwright() as started:
            browser = started.chromium.launch(executable_path=path, args=FLAGS)
            for view in VIEWS:
                picture(browser, port, view, ROOT / "docs" / "images")
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
