"""The page in a real browser."""

import json
import re
import shlex

import httpx
import pytest
from served import listening, text_model, vector_model

from smoothlink.serve import ServerSettings

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
expect = sync_api.expect
NOT_CUT = (
    "all => all.every((one) => one.scrollWidth <= one.clientWidth + 1 && one.scrollHeight <= one.clientHeight + 1)"
)


@pytest.fixture
def page(browser, address):
    """The page, opened; whatever it complains of, and requests that go elsewhere, fail the test."""
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    made, wrong = context.new_page(), []
    made.on("console", lambda message: message.type in ("error", "warning") and wrong.append(message.text))
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("request", lambda request: request.url.startswith(address) or wrong.append(request.url))
    made.goto(address)
    made.wait_for_selector("#examples:visible")
    yield made
    context.close()
    assert not wrong


def names(page):
    return [
        text.removesuffix("✓ is a label of this example") for text in page.locator("#labels .label").all_text_contents()
    ]


def type_text(page, text):
    with page.expect_response("**/predict"):
        page.fill("#text", text)
    page.wait_for_selector("#labels li")


def test_labels_appear_as_one_types(page):
    type_text(page, "apple iron")
    best = text_model().predict_topk(["apple iron"], k=5)[0]
    assert names(page) == [name for name, _ in best]
    assert page.locator("#labels .number").all_text_contents() == [f"{p:.2f}" for _, p in best]
    assert "known terms" in page.text_content("#note")
    page.fill("#text", "  ")
    page.wait_for_selector("#labels li", state="detached")
    assert page.is_visible("#empty")


def test_a_request_whose_connection_ends_without_a_response_is_sent_again(browser, address):
    page, cut = browser.new_page(), []
    page.goto(address)
    page.wait_for_selector("#examples:visible")

    def cut_first(route):
        cut.append(route.request.url)
        route.abort() if len(cut) == 1 else route.continue_()

    page.route("**/predict", cut_first)
    page.fill("#text", "iron copper")
    expect(page.locator("#labels .label").first).to_have_text("metal")
    assert len(cut) == 2
    page.close()


def test_only_the_newest_prediction_is_shown(page):
    for word in ("apple", "iron", "red", "rain", "seven eleven"):
        page.locator("#text").press_sequentially(f"{word} ", delay=5)
    best = text_model().predict_topk(["apple iron red rain seven eleven "], k=5)[0]
    expect(page.locator("#labels .label")).to_have_text([name for name, _ in best])
    page.wait_for_timeout(200)
    assert names(page) == [name for name, _ in best]


def test_words_that_raise_a_score_are_marked_in_the_text(page):
    type_text(page, "🍎 Apple, iron and\nnothing")
    page.locator("#labels button", has_text="metal").hover()
    page.wait_for_selector("#why:visible")
    assert "Why metal?" in page.text_content("#why h2")
    marked = {mark.text_content(): "no" in (mark.get_attribute("class") or "") for mark in page.locator("mark").all()}
    assert marked["iron"] is False
    assert page.locator("#why .neighbours li").count() > 0
    behind = page.text_content("#behind")
    assert behind == "🍎 Apple, iron and\nnothing\n"
    page.locator("#heading").hover()
    page.wait_for_selector("#why", state="hidden")
    assert page.locator("mark").count() == 0


def test_the_text_and_the_marks_behind_it_have_the_same_lines(page):
    type_text(page, "apple iron " * 40 + "\n\nx")
    assert page.evaluate(
        "document.querySelector('#text').scrollHeight <= document.querySelector('#behind').clientHeight + 1"
    )
    widths = page.evaluate("['#text', '#behind'].map((id) => document.querySelector(id).clientWidth)")
    assert widths[0] == widths[1]


def test_a_guarantee_shows_its_set(browser, page):
    assert page.is_hidden("#promises")
    model = text_model(calibrate=True, conformal=0.4)
    with listening(model) as address:
        made = browser.new_page()
        made.goto(address)
        made.wait_for_selector("#promises:visible")
        type_text(made, "apple iron")
        made.select_option("#guarantee", label="hold all labels, 90 % of the time")
        shown = made.locator("#labels li:not(.below) .label")
        (expected,) = model.predict_set(["apple iron"], coverage=0.9)
        assert sorted(shown.all_text_contents()) == sorted(expected)
        assert "such sets hold all labels, 90 % of the time" in made.text_content("#count")
        made.click("#own")
        assert made.input_value("#guarantee") == ""
        made.close()


def test_the_threshold_slides(page):
    type_text(page, "apple iron")
    for cut in ("0.1", "0.9"):
        page.locator("#threshold").fill(cut)
        above = sum(p >= float(cut) for _, p in text_model().predict_topk(["apple iron"], k=5)[0])
        assert page.text_content("#count") == f"{above} of 5 labels at {float(cut):.2f} or more"
        assert page.locator("#labels li:not(.below)").count() == above


def test_the_models_own_threshold_is_taken_until_the_slider_moves(page):
    type_text(page, "apple iron")
    predicted = text_model().predict(["apple iron"])[0]
    assert page.locator("#labels li:not(.below)").count() == len(predicted)
    assert page.text_content("#shown") == "0.50"
    assert page.is_hidden("#own")
    page.locator("#threshold").fill("0.99")
    assert page.locator("#labels li:not(.below)").count() == 0
    page.click("#own")
    assert page.locator("#labels li:not(.below)").count() == len(predicted)
    assert page.is_hidden("#own")


def test_labels_with_thresholds_of_their_own_are_predicted_by_them(browser):
    model = text_model(aim="f1", calibrate=True)
    assert len(set(model.thresholds_)) > 1
    with listening(model) as address:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#examples:visible")
        type_text(page, "apple iron")
        assert page.text_content("#shown") == "own"
        assert page.locator("#labels li:not(.below)").count() == len(model.predict(["apple iron"])[0])
        predicted = f"{len(model.predict(['apple iron'])[0])} of 5 labels at their own thresholds or more"
        assert page.text_content("#count") == predicted
        page.close()


def test_labels_below_the_threshold_are_counted_only_if_they_were_all_asked_for(browser):
    settings = ServerSettings(max_labels=3)
    with listening(text_model(), settings) as address:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#examples:visible")
        type_text(page, "apple iron")
        page.locator("#threshold").fill("0")
        expect(page.locator("#count")).to_have_text("The first 3 of 5 labels are at 0.00 or more, and more may be")
        page.locator("#threshold").fill("0.6")
        above = sum(p >= 0.6 for _, p in text_model().predict_topk(["apple iron"], k=5)[0])
        assert page.text_content("#count") == f"{above} of 5 labels at 0.60 or more"
        page.close()


def test_the_text_survives_a_reload(page):
    type_text(page, "apple iron\nrain")
    page.reload()
    page.wait_for_selector("#labels li")
    assert page.input_value("#text") == "apple iron\nrain"


def test_labels_are_two_steps_from_the_text(page):
    type_text(page, "apple iron")
    page.focus("#text")
    for _ in range(2):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#labels') !== null")


def test_why_is_in_sight_beside_a_long_list(page):
    page.set_viewport_size({"width": 1280, "height": 720})
    type_text(page, "apple iron plum tin snow")
    page.evaluate("document.querySelector('.found').style.minHeight = '3000px'")
    for top in (0, 1200):
        page.evaluate(f"scrollTo(0, {top})")
        page.locator("#labels button").first.dispatch_event("focus")
        page.wait_for_selector("#why .reason")
        box = page.locator("#why").bounding_box()
        assert 0 <= box["y"] < 720 - 150


def test_letters_are_shown_on_the_words_they_are_a_part_of(browser):
    with listening(text_model(word_ngrams=None, char_ngrams=(3, 3))) as address:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#examples:visible")
        type_text(page, "Pineapples, copperish")
        page.locator("#labels button").first.hover()
        page.wait_for_selector("#why .reason")
        shown = page.locator("#why .reason span").all_text_contents()
        assert len(
            set(page.locator("#why .reason span").evaluate_all("all => all.map((one) => one.innerHTML)"))
        ) == len(shown)
        words = {word for one in shown for word in one.split(" · ")}
        assert words <= {"Pineapples", "copperish"}
        assert all(2 <= len(part) <= 3 for part in page.locator("#why .part").all_text_contents())
        page.close()


def test_why_of_a_long_text_is_a_plain_sentence(browser, address):
    page = browser.new_page()
    page.goto(address)
    page.wait_for_selector("#examples:visible")
    type_text(page, "apple " * 3334)
    page.locator("#labels button").first.hover()
    expect(page.locator("#why h3").first).to_have_text(
        "This text has 20,004 characters; labels are explained for texts of up to 20,000."
    )
    page.close()


LONG_NAMES = [
    f"{kind}-a-name-without-a-space-that-is-longer-than-any-line-of-a-phone-and-ends-in-{end}"
    for kind in ("Information", "http://example.invalid/subjects")
    for end in ("one", "two")
]


@pytest.mark.parametrize("width", [1280, 390])
def test_no_name_is_cut(browser, address, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    labels = [{"label": name, "name": name, "probability": 0.9, "predicted": True} for name in LONG_NAMES]
    predictions = {"predictions": [{"labels": labels, "features": 1}]}
    near = [{**label, "similarity": 0.5} for label in labels]
    reasons = [{"feature": name, "contribution": 1, "spans": []} for name in LONG_NAMES]
    why = {**labels[0], "words": [], "features": reasons, "neighbours": near}
    page.route("**/predict", lambda route: route.fulfill(json=predictions))
    page.route("**/explain", lambda route: route.fulfill(json={"explanations": [why]}))
    page.goto(address)
    page.wait_for_selector("#examples:visible")
    type_text(page, "apple")
    page.locator("#labels button").first.click()
    page.wait_for_selector("#why .neighbours li")
    for names_at in ("#labels .label", "#why .neighbours li", "#why .reason span"):
        assert page.locator(names_at).all_text_contents() == LONG_NAMES
        assert page.locator(names_at).evaluate_all(NOT_CUT)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_what_is_shown_is_copied_as_json(page):
    type_text(page, "apple iron")
    page.locator("#threshold").fill("0.3")
    page.click("#copy")
    expect(page.locator("#copy")).to_have_text("Copied")
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    best = text_model().predict_topk(["apple iron"], k=5)[0]
    assert (copied["text"], copied["threshold"]) == ("apple iron", 0.3)
    assert [one["label"] for one in copied["labels"]] == [name for name, p in best if p >= 0.3]


def test_an_example_is_a_click_away_and_its_labels_are_ticked(page):
    with page.expect_response("**/predict"):
        page.locator("#examples button").first.click()
    example = text_model().examples_[0]
    assert page.input_value("#text") == example.text
    page.wait_for_selector("#labels .correct")
    ticked = {row.text_content().split("✓")[0] for row in page.locator("#labels .label:has(.correct)").all()}
    assert ticked == set(example.labels) & set(names(page))
    page.locator("#text").press("End")
    type_text(page, "rain")
    assert page.locator("#labels .correct").count() == 0


def test_all_can_be_done_from_the_keyboard(page):
    type_text(page, "apple iron")
    page.focus("#threshold")
    page.keyboard.press("Tab")
    first = page.evaluate("document.activeElement.querySelector('.label').textContent")
    expect(page.locator("#why h2")).to_have_text(f"Why {first}?")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#why h2")).to_have_text(f"Why {names(page)[1]}?")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "text"


def test_light_and_dark_follow_the_system_and_the_button(browser, address):
    grounds = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        made = context.new_page()
        made.goto(address)
        ground = "getComputedStyle(document.body).backgroundColor"
        grounds[scheme] = made.evaluate(ground)
        made.click("#theme")
        grounds[f"not {scheme}"] = made.evaluate(ground)
        made.reload()
        assert made.evaluate(ground) == grounds[f"not {scheme}"]
        context.close()
    assert grounds["light"] == grounds["not dark"] != grounds["dark"] == grounds["not light"]


def test_a_phone_shows_everything_without_scrolling_sideways(browser, address):
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#examples:visible")
    type_text(page, "apple iron plum tin")
    page.locator("#labels button").nth(1).tap()
    page.wait_for_selector("#why:visible")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.wait_for_timeout(100)
    row, sheet = (page.locator(name).bounding_box() for name in ("#labels [aria-pressed=true]", "#why"))
    assert row["y"] + row["height"] <= sheet["y"]
    page.tap("#why .close")
    page.wait_for_selector("#why", state="hidden")
    context.close()


def test_a_vector_is_pasted_as_pairs(browser):
    with listening(vector_model()) as address:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector(".vectors")
        assert "index:value" in page.text_content("#note")
        type_text(page, "1:1 3:2.5")
        assert page.locator("#labels li").count() > 0
        page.locator("#labels button").first.hover()
        page.wait_for_selector("#why:visible")
        page.fill("#text", "1:1 three")
        page.wait_for_selector("#note.bad")
        assert "three" in page.text_content("#note")
        page.fill("#text", "40:1")
        expect(page.locator("#note")).to_contain_text("outside 0..39")
        page.close()


def test_the_page_needs_a_token_once(browser):
    with listening(text_model(), ServerSettings(token="s3cret")) as address:
        page = browser.new_page()
        page.goto(address)
        for given, said in (("wrong", "This server needs a token."), ("s3cret", "This token is wrong. Type another.")):
            page.wait_for_selector("#token[open]")
            expect(page.locator("#tokenlabel")).to_have_text(said)
            page.fill("#secret", given)
            page.keyboard.press("Enter")
        page.wait_for_selector("#examples:visible")
        type_text(page, "apple")
        page.reload()
        page.wait_for_selector("#examples:visible")
        assert not page.is_visible("#token")
        page.close()


def test_the_description_is_drawn_without_another_server(browser, address):
    page, elsewhere = browser.new_page(), []
    page.on("request", lambda request: request.url.startswith(address) or elsewhere.append(request.url))
    page.goto(f"{address}/docs")
    page.wait_for_selector("article")
    paths = page.locator("article h2").all_text_contents()
    assert {"POST/predict", "POST/explain", "GET/labels", "GET/health", "GET/metrics", "GET/model"} <= set(paths)
    assert re.search(r"threshold\s*number, at least 0, at most 1", page.text_content("main"))
    for line in page.locator("article pre").all_text_contents():
        _, url, *rest = shlex.split(line)
        assert httpx.post(url, content=rest[-1], headers={"Content-Type": "application/json"}).status_code == 200
    assert not elsewhere
    page.close()


def test_labels_are_text_whatever_they_hold(browser, address):
    page = browser.new_page()
    hostile = "<img src=x onerror=document.title='owned'>"
    label = {"label": hostile, "name": hostile, "probability": 0.9, "predicted": True}
    labels = {"predictions": [{"labels": [label], "features": 1}]}
    page.route("**/predict", lambda route: route.fulfill(json=labels))
    page.goto(address)
    page.wait_for_selector("#examples:visible")
    type_text(page, hostile)
    assert names(page) == [hostile]
    assert page.locator("#labels img, #behind img").count() == 0
    page.close()
