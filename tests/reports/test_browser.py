"""The pages in Chromium: nothing is fetched, nothing is wider than a phone, texts have contrast in light and dark."""

import datetime
import shutil

import pytest
from small import fixed, words

import smoothlink

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CONTRAST = """() => {
  const light = c => { const f = c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    return .2126 * f[0] + .7152 * f[1] + .0722 * f[2] }
  const paper = light(getComputedStyle(document.body).backgroundColor)
  const ratio = c => { const [a, b] = [light(c), paper].sort((x, y) => y - x); return (a + .05) / (b + .05) }
  return Math.min(...[...document.querySelectorAll('p, td, th, dt, dd span, a, summary, .chip')]
    .map(e => ratio(getComputedStyle(e).color)))
}"""


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as running:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        started = running.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield started
        started.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_fetch_nothing_and_can_be_read(browser, rng, tmp_path, scheme):
    X, Y = words(rng, 150, 40, 8)
    model, other = fixed().fit(X, Y), fixed(kernel="linear").fit(X, Y)
    model.label_names_ = other.label_names_ = ["a name that is very long indeed " * 3, *"bcdefgh"]
    day = datetime.date(2026, 11, 15)
    smoothlink.report(model, X, Y, tmp_path / "report.html", bootstraps=5, date=day)
    smoothlink.compare(model, other, X, Y, tmp_path / "compare.html", bootstraps=5, date=day)
    page = browser.new_page(viewport={"width": 360, "height": 800}, color_scheme=scheme)
    asked, told = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: told.append(message.text))
    for name in ("report", "compare"):
        page.goto(f"file://{tmp_path}/{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate(CONTRAST) >= 4.5
        assert page.evaluate("document.querySelectorAll('svg[aria-label]').length") >= 7
    page.close()
    assert (len(asked), told) == (2, [])
