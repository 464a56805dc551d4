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


def test_the_table_of_labels_is_sorted_searched_paged_and_saved_in_the_page(browser, rng, tmp_path):
    X, Y = words(rng, 300, 60, 40)
    model = fixed(rank=10).fit(X, Y)
    model.label_names_ = ["<b>bold</b>, it seems", *(f"label {j}" for j in range(1, 40))]
    made = smoothlink.report(model, X, Y, tmp_path / "report.html", bootstraps=0)
    made.save_labels(tmp_path / "labels.csv")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    told = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.goto(f"file://{tmp_path}/report.html")

    def column(n):
        return page.eval_on_selector_all(f"#label-rows tr > :nth-child({n})", "cells => cells.map(c => c.textContent)")

    def numbers(n):
        return [float(text) for text in column(n) if text != "–"]

    assert len(column(1)) == 25
    assert numbers(3) == sorted(numbers(3), reverse=True)  # by how often they are true
    page.click("button[data-key=f1]")
    assert numbers(7) == sorted(numbers(7), reverse=True)
    page.click("button[data-key=f1]")
    assert numbers(7) == sorted(numbers(7))
    assert page.get_attribute("th:has(button[data-key=f1])", "aria-sort") == "ascending"
    page.click("button[data-key=label]")
    assert column(1)[:3] == ["<b>bold</b>, it seems", "label 1", "label 2"]  # as text, and by numbers
    page.click("#label-next")
    assert column(1) == [f"label {j}" for j in range(25, 40)]
    assert page.is_disabled("#label-next")
    page.fill("#label-search", "LABEL 1")
    assert column(1) == ["label 1", *(f"label {j}" for j in range(10, 20))]
    assert page.inner_text("#label-range") == "11 labels that match, of 40"
    page.fill("#label-search", "")
    with page.expect_download() as download:
        page.click("#label-csv")
    saved = download.value.path().read_text("utf-8").splitlines()
    expected = (tmp_path / "labels.csv").read_text("utf-8").splitlines()
    assert (download.value.suggested_filename, len(saved)) == ("labels.csv", 41)
    names = [line.split(",")[0] for line in saved]
    assert names[:3] == ["label", '"<b>bold</b>', "label 1"]
    # Python writes 1.0 and JavaScript 1 for the same number.
    assert [line.replace(".0,", ",") for line in saved] == [line.replace(".0,", ",") for line in expected]
    page.close()
    assert told == []
