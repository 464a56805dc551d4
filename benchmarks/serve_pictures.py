"""Makes the pictures of the page in docs/images, with the demo's model in a real browser, and tags 10,000 rows of XLSX.

python benchmarks/serve_pictures.py            # CHROMIUM names a browser that is not called chromium
python benchmarks/serve_pictures.py --rows 10000 demo.safetensors        # no pictures: how long a table takes
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.circumstances import RESULTS, ROOT
from bench.serving import circumstances, demo_model, served
from playwright.sync_api import Browser, Page, sync_playwright

from smoothlink.text.tables import write_table

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


def table_of(texts: Sequence[str], rows: int) -> bytes:
    """Returns an Excel file of texts under names."""
    stream = io.BytesIO()
    chosen = [texts[i % len(texts)] for i in range(rows)]
    write_table(stream, "xlsx", ["name", "docstring"], [[f"doc-{i:05}", text] for i, text in enumerate(chosen)])
    return stream.getvalue()


def tag_table(page: Page, port: int, content: bytes) -> dict[str, Any]:
    """Tags a table in the page; returns how many seconds it takes to upload, tag and download it."""
    page.goto(f"http://127.0.0.1:{port}/#table")
    page.wait_for_selector("#drop:visible")
    file = {"name": "docstrings.xlsx", "mimeType": "application/octet-stream", "buffer": content}
    start = time.perf_counter()
    page.set_input_files("#file", file)  # type: ignore[arg-type]
    page.wait_for_selector("#choices:visible", timeout=300_000)
    uploaded = time.perf_counter()
    page.click("#tag")
    page.wait_for_selector("#work:not(.busy) #documents li", timeout=600_000)
    tagged = time.perf_counter()
    with page.expect_download(timeout=300_000) as download:
        page.click("#download")
    path = download.value.path()
    steps = {"upload": uploaded - start, "tag": tagged - uploaded, "download": time.perf_counter() - tagged}
    return {"said": page.text_content("#said"), "bytes": path.stat().st_size, "seconds": steps}


def picture_of_a_table(browser: Browser, port: int, texts: Sequence[str], folder: Path) -> None:
    """Writes a picture of a table with a document and an explained label."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    page = context.new_page()
    tag_table(page, port, table_of(texts, 1000))
    page.evaluate("document.getElementById('said').textContent = ''")
    page.locator("#documents button", has=page.locator(".name:nth-child(2)")).first.click()
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#document-why:visible")
    page.wait_for_timeout(300)
    page.screenshot(path=folder / "serve-table.png")
    context.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="the demo's model; it is trained if the file is not there")
    parser.add_argument("--rows", type=int, help="tag a table of so many rows, and write results/serve_table")
    given = parser.parse_args()
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        print("There is no Chromium. Type: apt-get install chromium", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        model = Path(given.model) if given.model else Path(name) / "demo.safetensors"
        texts = demo_model(model).texts
        with served(model) as (_, port), sync_playwright() as started:
            browser = started.chromium.launch(executable_path=path, args=FLAGS)
            if given.rows is None:
                folder = ROOT / "docs" / "images"
                for view in VIEWS:
                    picture(browser, port, view, folder)
                picture_of_a_table(browser, port, texts, folder)
            else:
                content = table_of(texts, given.rows)
                found = tag_table(browser.new_page(), port, content)
                record = {**circumstances(), "rows": given.rows, "uploaded_bytes": len(content), **found}
                target = RESULTS / "serve_table" / "figures.json"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(json.dumps(record, indent=1) + "\n")
                print(json.dumps(record, indent=1))
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
