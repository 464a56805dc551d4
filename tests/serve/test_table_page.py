"""The page as a tool: a table is uploaded, tagged, corrected and downloaded in a real browser."""

import io
import json
import shlex
import subprocess
import time

import numpy as np
import pandas as pd
import pytest
from commands import run
from served import TOPICS, listening, multiclass_model, text_model
from small import FIXED

from smoothlink import TextSmoothLink, load
from smoothlink.living.living_file import LivingFile
from smoothlink.serve import ServerSettings
from smoothlink.serve.corrections import FILE
from smoothlink.serve.updater import Updater, start
from smoothlink.serve.updates import UpdateClient
from smoothlink.text.numbers import Document
from smoothlink.text.tables import read_table, write_table
from smoothlink.vocabulary import Vocabulary, with_vocabulary

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
expect = sync_api.expect

TEXTS = [
    "apple iron",
    "rain",
    "plum plum cherry quince pear",
    "seven red",
    "nothing known",
    "tin zinc copper nickel iron",
]
NOT_CUT = (
    "all => all.every((one) => one.scrollWidth <= one.clientWidth + 1 && one.scrollHeight <= one.clientHeight + 1)"
)


def table(kind="csv", columns=("signature", "abstract"), rows=None):
    made = io.BytesIO()
    rows = [[f"TR-{i}", text] for i, text in enumerate(TEXTS)] if rows is None else rows
    write_table(made, kind, list(columns), rows)
    return {"name": f"reports.{kind}", "mimeType": "application/octet-stream", "buffer": made.getvalue()}


@pytest.fixture
def open_page(browser):
    """Opens the table view of a server; the pages are closed after the test, and errors in scripts fail it."""
    contexts, wrong = [], []

    def opened(address, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto(f"{address}/#table")
        page.wait_for_selector("#drop:visible")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture
def page(open_page, address):
    return open_page(address)


def upload(page, file):
    page.set_input_files("#file", file)
    page.wait_for_selector("#choices:visible")


def tag(page, file):
    upload(page, file)
    page.click("#tag")
    page.wait_for_selector("#work:not(.busy) #documents li")


def shown(page):
    """Returns the labels that the list shows for each document, by its id."""
    found = {}
    for item in page.locator("#documents li").all():
        found[item.locator(".id").text_content().removesuffix(" ✓")] = sorted(item.locator(".name").all_text_contents())
    return found


def chips(page):
    return page.locator("#chips .chip").evaluate_all("all => all.map((chip) => chip.one.label)")


def choose(page, name):
    page.locator("#documents button", has=page.locator(".id").get_by_text(name, exact=True)).click()
    expect(page.locator("#document .above h2")).to_contain_text(name)


def add(page, words):
    page.locator("#add").press_sequentially(words)
    page.keyboard.press("Enter")
    expect(page.locator("#add")).to_have_value("")


def downloaded(page, kind):
    page.select_option("#kind", kind)
    with page.expect_download() as started:
        page.click("#download")
    path = started.value.path()
    assert started.value.suggested_filename == f"reports-tagged.{kind}"
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "xlsx"])
def test_every_document_has_the_labels_that_the_model_predicts(page, kind):
    tag(page, table(kind))
    predicted = text_model().predict(TEXTS)
    assert shown(page) == {f"TR-{i}": sorted(labels) for i, labels in enumerate(predicted)}
    assert "6 documents tagged" in page.text_content("#said")


def test_the_least_certain_come_first(page):
    tag(page, table())
    sure = [float(text) for text in page.locator("#documents .sure").all_text_contents()]
    assert sure == sorted(sure)
    page.select_option("#order", "most")
    assert [float(text) for text in page.locator("#documents .sure").all_text_contents()] == sorted(sure, reverse=True)
    page.select_option("#order", "file")
    assert list(shown(page)) == [f"TR-{i}" for i in range(6)]


def test_the_columns_are_guessed_aloud_and_can_be_changed(page):
    rows = [[f"{i}", "same", text, ""] for i, text in enumerate(TEXTS)]
    upload(page, table(columns=("number", "kind", "abstract", "labels"), rows=rows))
    assert "The text is taken from abstract, the column with the longest cells." in page.text_content("#guess")
    assert "Documents are called by number, where no two are the same." in page.text_content("#guess")
    assert page.text_content("#preview") == TEXTS[0]
    page.get_by_role("checkbox", name="kind").check()
    assert page.text_content("#preview") == f"{TEXTS[0]}\nsame"
    for name in ("kind", "abstract"):
        page.get_by_role("checkbox", name=name).uncheck()
    assert page.is_disabled("#tag")
    page.get_by_role("checkbox", name="abstract").check()
    page.select_option("#ids", "")
    page.click("#tag")
    page.wait_for_selector("#work:not(.busy) #documents li")
    assert "Row 1" in shown(page)


def test_the_columns_of_training_are_found_and_joined_as_in_training(open_page):
    titles, bodies = [text.split()[0] for text in TEXTS] * 10, TEXTS * 10
    frame = pd.DataFrame({"title": titles, "body": bodies})
    labels = [["fruit", "metal"] if "apple" in text else ["weather"] for text in bodies]
    model = TextSmoothLink(word_ngrams=(1, 2), **FIXED).fit(frame[["title", "body"]], labels)
    with listening(model) as address:
        page = open_page(address)
        rows = [[body, i, title] for i, (title, body) in enumerate(zip(titles[:6], bodies[:6], strict=True))]
        upload(page, table("xlsx", ("body", "n", "title"), rows))
        assert "The text is in title and body, as in training." in page.text_content("#guess")
        with page.expect_request("**/predict") as sent:
            page.click("#tag")
        page.wait_for_selector("#work:not(.busy) #documents li")
        assert sent.value.post_data_json["texts"] == [f"{title}\n{body}" for body, _, title in rows]
        assert shown(page) == {str(i): sorted(row) for i, row in enumerate(model.predict(frame[:6]))}


def test_labels_are_corrected_with_the_keyboard_alone(page):
    tag(page, table())
    page.select_option("#order", "file")
    choose(page, "TR-1")
    before = chips(page)
    add(page, "num")
    assert chips(page) == [*before, "number"]
    page.keyboard.press("Backspace")
    assert chips(page) == before
    add(page, "colo")
    add(page, "brand-new")
    assert chips(page) == [*before, "colour", "brand-new"]
    assert "new" in page.locator("#chips .chip").last.text_content()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#document-why h2")).to_have_text("Why colour?")
    page.keyboard.press("Delete")
    assert chips(page) == [*before, "brand-new"]
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    first = page.locator("#options [aria-selected=true] span").first.text_content()
    page.keyboard.press("Enter")
    assert chips(page) == [*before, "brand-new", first]
    page.keyboard.press("Enter")
    expect(page.locator("#document .above h2")).to_contain_text("TR-2")
    page.keyboard.press("PageDown")
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    expect(page.locator("#document .above h2")).to_contain_text("TR-1")
    assert shown(page)["TR-1"] == sorted([*before, "brand-new", first])
    assert page.is_checked("#checked")
    assert page.locator("#documents .done").count() == 1


def test_enter_takes_the_search_for_what_was_typed_last(page):
    page.route("**/labels?*", lambda route: (time.sleep(0.1), route.continue_()))
    tag(page, table())
    choose(page, "TR-4")
    page.locator("#add").press_sequentially("fruit", delay=0)
    page.keyboard.press("Enter")
    expect(page.locator("#chips .chip").last).to_contain_text("fruit")


def test_filters_and_a_search_choose_what_is_shown(page):
    tag(page, table())
    choose(page, "TR-3")
    add(page, "weather")
    assert "TR-3" in shown(page)
    for which, expected in (("checked", {"TR-3"}), ("changed", {"TR-3"}), ("all", set(shown(page)))):
        page.select_option("#filter", which)
        assert set(shown(page)) == expected
    page.select_option("#filter", "open")
    assert set(shown(page)) == {f"TR-{i}" for i in range(6)} - {"TR-3"}
    page.select_option("#filter", "all")
    page.fill("#search", "QUINCE")
    assert set(shown(page)) == {"TR-2"}
    page.fill("#search", "no such text")
    assert "none" in page.text_content(".pager")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "xlsx"])
def test_the_download_has_the_table_and_the_corrections(page, kind):
    tag(page, table("xlsx"))
    assert page.input_value("#kind") == "xlsx"
    choose(page, "TR-1")
    add(page, "colour")
    corrected = chips(page)
    path = downloaded(page, kind)
    found = read_table(path.read_bytes(), kind)
    assert found.columns == ["signature", "abstract", "labels", "checked"]
    rows = list(found)
    assert [row[:2] for row in rows] == [[f"TR-{i}", text] for i, text in enumerate(TEXTS)]
    assert sorted(rows[1][2] if kind == "jsonl" else rows[1][2].split("|")) == sorted(corrected)
    assert [row[3] or "" for row in rows] == ["", "yes", "", "", "", ""]
    assert "smoothlink train reports-tagged" in page.text_content("#said code")
    page.select_option("#rows", "checked")
    assert len(list(read_table(downloaded(page, kind).read_bytes(), kind))) == 1


def test_labels_that_a_table_has_are_not_replaced_unless_it_is_asked_for(page):
    rows = [[f"{i}", text, "mine"] for i, text in enumerate(TEXTS)]
    upload(page, table(columns=("n", "text", "labels"), rows=rows))
    assert "labels has labels already, which stay as they are: new ones are written to labels_2." in page.text_content(
        "#guess"
    )
    page.click("#tag")
    page.wait_for_selector("#work:not(.busy) #documents li")
    found = read_table(downloaded(page, "csv").read_bytes(), "csv")
    assert found.columns == ["n", "text", "labels", "labels_2", "checked"]
    assert {row[2] for row in found} == {"mine"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "jsonl", "xlsx"])
def test_train_takes_the_download_by_the_command_that_the_page_shows(page, tmp_path, kind):
    names = list(TOPICS)
    rows = [[f"TR-{i}", " ".join(TOPICS[names[i % 5]][:3] + TOPICS[names[(i * 2 + 1) % 5]][:3])] for i in range(80)]
    tag(page, table(rows=rows))
    page.locator("#documents button").first.click()
    add(page, "new topic")
    path = tmp_path / f"reports-tagged.{kind}"
    path.write_bytes(downloaded(page, kind).read_bytes())
    _, *command = page.text_content("#said code").replace(path.name, str(path)).split(" ")
    model = tmp_path / "new.safetensors"
    ran = run(*command[:-1], model, "--effort", "quick")
    assert ran.code == 0, ran.err
    labels = set(load(model).classes_)
    assert "new topic" in labels
    assert labels - {"new topic"} <= set(names)


def test_a_reload_loses_nothing(page):
    tag(page, table())
    choose(page, "TR-2")
    add(page, "number")
    before = shown(page)
    page.reload()
    page.wait_for_selector("#documents li")
    assert shown(page) == before
    page.click("#shut")
    page.wait_for_selector("#drop:visible")
    page.reload()
    page.wait_for_selector("#drop:visible")
    assert page.locator("#documents li").count() == 0


def test_a_file_is_dropped_anywhere(open_page, address):
    page = open_page(address)
    page.goto(f"{address}/#text")
    page.wait_for_selector("#one:visible")
    data = page.evaluate_handle(
        "([name, text]) => { const made = new DataTransfer(); made.items.add(new File([text], name)); return made; }",
        ["dropped.csv", table()["buffer"].decode()],
    )
    page.dispatch_event("#text", "dragover", {"dataTransfer": data})
    assert page.evaluate("document.body.classList.contains('dropping')")
    page.dispatch_event("#text", "drop", {"dataTransfer": data})
    page.wait_for_selector("#choices:visible")
    assert page.text_content("#choices h2") == "dropped.csv · 6 rows"


def test_what_cannot_be_read_is_a_sentence(open_page):
    with listening(text_model(), ServerSettings(max_upload=20_000)) as address:
        page = open_page(address)

        def refused(name, content, reason):
            page.set_input_files("#file", {"name": name, "mimeType": "text/plain", "buffer": content})
            expect(page.locator("#said.bad")).to_contain_text(reason)
            assert page.is_visible("#drop")

        refused("large.csv", b"x" * 30_000, "large.csv has 0.0 MB; at most 0.0 MB are read.")
        refused("odd.csv", b"a,b\n1,2,3\n", "odd.csv, line 2: 3 cells, where the first line has 2.")
        refused("sheet.xlsx", b"no sheet", "cannot be read")
        refused("notes.docx", b"text", "Save it as .csv, .tsv, .jsonl, .xlsx.")
        refused("windows.csv", "id,text\n1,café\n".encode("cp1252"), "Choose its encoding and read it again.")
        page.click("#again button")
        page.wait_for_selector("#choices:visible")
        assert page.text_content("#preview") == "café"


def test_a_file_that_cannot_be_read_leaves_the_table_that_is_open(page):
    tag(page, table())
    choose(page, "TR-2")
    add(page, "number")
    before = shown(page)
    page.set_input_files("#file", {"name": "odd.csv", "mimeType": "text/plain", "buffer": b"a,b\n1,2,3\n"})
    expect(page.locator("#said.bad")).to_contain_text("odd.csv, line 2")
    assert shown(page) == before


def test_a_server_that_stops_responding_loses_nothing(page):
    rows = [[f"{i}", TEXTS[i % 4]] for i in range(250)]
    failing = {"after": 2}

    def predict(route):
        failing["after"] -= 1
        route.continue_() if failing["after"] >= 0 else route.abort()

    page.route("**/predict", predict)
    upload(page, table(rows=rows))
    page.click("#tag")
    expect(page.locator("#said.bad")).to_have_text("The server does not respond. 200 documents are tagged.")
    page.reload()
    page.wait_for_selector("#continue:visible")
    failing["after"] = 9
    page.click("#continue")
    expect(page.locator("#said")).to_contain_text("50 documents tagged")
    assert page.text_content(".pager span") == "1 to 50 of 250"
    assert page.is_hidden("#continue")


def test_documents_that_are_refused_and_a_busy_server_do_not_stop_the_others(open_page):
    with listening(text_model(), ServerSettings(max_body=3000)) as address:
        page = open_page(address)
        busy = {"left": 1}

        def predict(route):
            busy["left"] -= 1
            refusal = {"status": 503, "reason": "busy"}
            route.continue_() if busy["left"] < 0 else route.fulfill(status=503, json=refusal)

        page.route("**/predict", predict)
        rows = [["a", "apple"], ["b", "x" * 5000], ["c", "  "], ["d", "rain"]]
        tag(page, table(rows=rows))
        assert page.text_content("#said").startswith("2 documents tagged in ")
        assert page.text_content("#said").endswith("2 documents could not be tagged: they come first, with the reason.")
        page.select_option("#order", "file")
        assert list(shown(page)) == ["a", "b", "c", "d"]
        assert shown(page)["d"] == text_model().predict(["rain"])[0]
        choose(page, "b")
        assert "larger than 3,000 bytes" in page.text_content("#chips")
        choose(page, "c")
        assert page.text_content("#chips") == "It has no text."


def test_tagging_can_be_stopped_and_gone_on_with(page):
    held = []
    page.route("**/predict", lambda route: held.append(route) if held or done() else route.continue_())

    def done():
        return page.text_content("#tagging label").startswith("200 of 900 documents tagged · about")

    upload(page, table(rows=[[f"{i}", TEXTS[i % 4]] for i in range(900)]))
    page.click("#tag")
    expect(page.locator("#tagging label")).to_contain_text("200 of 900 documents tagged · about")
    page.click("#stop")
    held[0].continue_()
    expect(page.locator("#said")).to_have_text("Stopped after 300 documents.")
    page.unroute("**/predict")
    page.click("#continue")
    expect(page.locator("#said")).to_contain_text("600 documents tagged in")
    assert page.text_content(".pager span") == "1 to 50 of 900"


def test_a_download_that_fails_is_a_sentence_and_the_table_stays(page):
    tag(page, table())
    choose(page, "TR-0")
    add(page, "weather")
    before = shown(page)
    refusal = {"status": 507, "reason": "The server's disk is full."}
    page.route("**/table/file?*", lambda route: route.fulfill(status=507, json=refusal))
    page.click("#download")
    expect(page.locator("#said.bad")).to_have_text("The server's disk is full. The table is still here.")
    assert shown(page) == before
    page.unroute("**/table/file?*")
    downloaded(page, "csv")


def test_a_browser_without_room_says_so(page):
    page.evaluate(
        "() => { IDBObjectStore.prototype.put = () => { throw new DOMException('full', 'QuotaExceededError'); }; }"
    )
    upload(page, table())
    page.click("#tag")
    page.wait_for_selector("#work:not(.busy) #documents li")
    choose(page, "TR-0")
    add(page, "weather")
    expect(page.locator("#said.bad")).to_contain_text("This browser has no room for the table")
    downloaded(page, "csv")


def test_corrections_are_stored_where_the_server_says_so(open_page, tmp_path):
    with listening(text_model(), ServerSettings(store=str(tmp_path))) as address:
        page = open_page(address)
        assert "stored on the server" in page.text_content(".privacy")
        tag(page, table())
        page.select_option("#order", "file")
        choose(page, "TR-1")
        add(page, "colour")
        first = chips(page)
        (tmp_path / FILE).mkdir()  # which cannot be written to
        page.keyboard.press("Enter")
        expect(page.locator("#said.bad")).to_contain_text("could not store this correction")
        page.wait_for_timeout(100)
        page.reload()
        (tmp_path / FILE).rmdir()
        page.wait_for_selector("#documents li")
        page.select_option("#order", "file")
        choose(page, "TR-2")
        with page.expect_response(lambda response: response.url.endswith("corrections") and response.ok):
            page.keyboard.press("Enter")
        page.wait_for_timeout(300)
        stored = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
        assert [(one["id"], one["text"], one["file"]) for one in stored] == [
            (f"TR-{i}", TEXTS[i], "reports.csv") for i in (1, 2)
        ]
        assert stored[0]["labels"] == first


def test_a_correction_that_is_refused_does_not_hold_up_the_others(open_page, tmp_path):
    rows = [["TR-0", "apple " * 156], ["TR-1", "iron"]]
    with listening(text_model(), ServerSettings(store=str(tmp_path), max_body=1000)) as address:
        page = open_page(address)
        tag(page, table(rows=rows))
        page.select_option("#order", "file")
        choose(page, "TR-0")
        page.keyboard.press("Enter")
        expect(page.locator("#said.bad")).to_contain_text("larger than 1,000 bytes")
        with page.expect_response(lambda response: response.url.endswith("corrections") and response.ok):
            page.keyboard.press("Enter")
        page.wait_for_timeout(300)
        assert [json.loads(line)["id"] for line in (tmp_path / FILE).read_text().splitlines()] == ["TR-1"]


def test_the_command_that_the_page_shows_runs_nothing_of_the_table(page):
    columns = ("id", 'it\'s a $(date) `date` "text"')
    tag(page, table(columns=columns))
    with page.expect_download():
        page.click("#download")
    words = shlex.split(page.text_content("#said code"))
    assert words[words.index("--text") + 1] == columns[1]
    shown = subprocess.run(
        ["sh", "-c", page.text_content("#said code").replace("smoothlink", "echo", 1)], capture_output=True
    )
    assert columns[1] in shown.stdout.decode()


def test_a_server_without_a_folder_is_sent_no_correction(page):
    sent = []
    page.on("request", lambda request: "corrections" in request.url and sent.append(request.url))
    assert "The server keeps nothing of it." in page.text_content(".privacy")
    tag(page, table())
    choose(page, "TR-1")
    add(page, "colour")
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    assert not sent


def test_labels_have_the_names_of_the_vocabulary(open_page):
    names = {"fruit": "Fruits", "metal": "Ores", "weather": "Weather", "number": "Numbers", "gem": "Gems"}
    with listening(with_vocabulary(text_model(), Vocabulary({"en": names}))) as address:
        page = open_page(address)
        tag(page, table())
        choose(page, "TR-4")
        while chips(page):
            page.keyboard.press("Backspace")
        add(page, "ore")
        page.locator("#add").press_sequentially("gem")
        expect(page.locator("#options [aria-selected=true]")).to_have_text("Gemsnew")
        page.keyboard.press("Enter")
        assert chips(page) == ["metal", "gem"]
        assert shown(page)["TR-4"] == ["Gems", "Ores"]
        row = list(read_table(downloaded(page, "jsonl").read_bytes(), "jsonl"))[4]
        assert row[2:] == [["metal", "gem"], "yes", "Ores | Gems"]


def test_the_id_column_of_training_is_remembered(open_page, tmp_path):
    data, model = tmp_path / "docs.csv", tmp_path / "model.safetensors"
    rows = [f"{i},{TEXTS[i % 4]},{'fruit' if i % 4 == 0 else 'weather'},{i // 2}" for i in range(40)]
    data.write_text("\n".join(["n,text,labels,shelf", *rows]))
    ran = run("train", data, "--id", "shelf", "-o", model, "--effort", "quick")
    assert ran.code == 0, ran.err
    with listening(load(model)) as address:
        page = open_page(address)
        upload(page, table(columns=("n", "text", "shelf"), rows=[["1", "apple", "A"], ["2", "rain", "A"]]))
        assert "Documents are called by shelf, as in training." in page.text_content("#guess")


def test_a_multiclass_model_gives_each_document_one_label(open_page):
    with listening(multiclass_model()) as address:
        page = open_page(address)
        tag(page, table())
        assert {len(labels) for labels in shown(page).values()} == {1}


def test_a_table_needs_the_token_too(open_page, browser):
    with listening(text_model(), ServerSettings(token="s3cret")) as address:
        page = browser.new_page()
        page.goto(f"{address}/#table")
        page.wait_for_selector("#token[open]")
        page.fill("#secret", "s3cret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#drop:visible")
        tag(page, table())
        assert len(shown(page)) == 6
        page.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_no_name_in_a_table_is_cut(open_page, address, width):
    page = open_page(address, viewport={"width": width, "height": 800})
    ends = ["one", "two", "three"]
    names = [f"a-name-without-a-space-that-is-longer-than-any-line-of-a-phone-and-that-ends-in-{end}" for end in ends]
    labels = [{"label": name, "name": name, "probability": 0.9, "predicted": i < 2} for i, name in enumerate(names)]
    page.route("**/predict", lambda route: route.fulfill(json={"predictions": [{"labels": labels, "features": 1}]}))
    matches = {"total": 3, "offset": 0, "labels": [{"label": n, "name": n, "number": 0, "count": 1.0} for n in names]}
    page.route("**/labels?*", lambda route: route.fulfill(json=matches))
    tag(page, table(rows=[[names[2], "apple"]]))
    assert page.locator("#documents .name").all_text_contents() == names[:2]
    assert page.locator("#documents :is(.name, .id)").evaluate_all(NOT_CUT)
    page.locator("#documents button").click()
    page.locator("#add").press_sequentially("a-name")
    page.wait_for_selector("#options li")
    for place in ("#chips .chip", "#options li", "#likely button", "#document .above h2"):
        assert page.locator(place).evaluate_all(NOT_CUT), place
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_phone_shows_the_list_or_the_document(open_page, address):
    page = open_page(address, viewport={"width": 390, "height": 800}, has_touch=True)
    tag(page, table())
    assert page.is_hidden("#document")
    page.locator("#documents button").first.tap()
    assert page.is_visible("#document")
    assert page.is_hidden("#documents")
    page.tap("#to-list")
    assert page.is_visible("#documents")


def test_cells_and_labels_are_text_whatever_they_hold(page):
    hostile = "<img src=x onerror=document.title='owned'>"
    tag(page, table(columns=(hostile, "text"), rows=[[hostile, f"{hostile} apple"]]))
    page.locator("#documents button").click()
    add(page, hostile)
    assert chips(page)[-1] == hostile
    assert page.locator("main img").count() == 0


@pytest.mark.slow
def test_ten_thousand_rows_of_xlsx_are_tagged(page):
    rows = [[f"TR-{i}", " ".join(TEXTS[(i + j) % 6] for j in range(10))] for i in range(10_000)]
    page.set_input_files("#file", table("xlsx", rows=rows))
    page.wait_for_selector("#choices:visible", timeout=60_000)
    page.click("#tag")
    page.wait_for_selector("#work:not(.busy) #documents li", timeout=120_000)
    assert "10,000 documents tagged in" in page.text_content("#said")
    assert page.text_content(".pager span") == "1 to 50 of 10,000"
    page.locator("#documents button").first.click()
    add(page, "weather")
    assert sum(1 for _ in read_table(downloaded(page, "xlsx").read_bytes(), "xlsx")) == 10_000


@pytest.fixture(scope="module")
def with_numbers(tmp_path_factory):
    """A server of a model that has learned from texts and from two columns of numbers, and the model."""
    folder = tmp_path_factory.mktemp("numbers")
    rng = np.random.default_rng(7)
    rows = []
    for _ in range(200):
        year, pages, topic = int(rng.integers(1900, 2000)), int(rng.integers(1, 9)), str(rng.choice(list(TOPICS)))
        words = " ".join(str(word) for word in rng.choice(TOPICS[topic], 3))
        rows.append([words, year, pages, [topic, "old" if year < 1950 else "young"]])
    write_table(str(folder / "a.jsonl"), "jsonl", ["body", "year", "pages", "tags"], rows)
    options = ["--text", "body", "--numbers", "year,pages", "--labels", "tags", "--effort", "quick", "-q"]
    assert run("train", str(folder / "a.jsonl"), *options, "-o", str(folder / "m.safetensors")).code == 0
    model = load(str(folder / "m.safetensors"))
    with listening(model, ServerSettings(store=str(folder))) as address:
        yield address, model, folder


def test_numbers_beside_texts_are_used_as_in_training(open_page, with_numbers):
    address, model, folder = with_numbers
    page = open_page(address)
    given = [["apple pear", 1905, 3], ["apple pear", 1995, 3], ["apple pear", "[1905", 3], ["apple pear", "", 3]]
    rows = [[f"TR-{i}", *row] for i, row in enumerate(given)]
    upload(page, table(columns=("signature", "body", "year", "pages"), rows=rows))
    assert "The numbers in year and pages are used too, as in training." in page.text_content("#guess")
    page.click("#tag")
    page.wait_for_selector("#work:not(.busy) #documents li")
    known = [Document("apple pear", numbers) for numbers in ([1905, 3], [1995, 3], [np.nan, 3])]
    expected = [sorted(labels) for labels in model.predict(known)]
    assert expected[:2] == [["fruit", "old"], ["fruit", "young"]]
    found = shown(page)
    assert [found[f"TR-{i}"] for i in (0, 1, 3)] == expected
    choose(page, "TR-2")
    assert page.text_content("#chips") == "year is “[1905”, and must be a number."
    choose(page, "TR-0")
    page.locator("#chips .chip", has_text="old").hover()
    expect(page.locator("#document-why .reason").first).to_contain_text("year")
    page.keyboard.press("Enter")
    expect(page.locator("#documents .done")).to_have_count(1)
    downloaded(page, "csv")
    assert "--text body --numbers year,pages --labels tags" in page.text_content("#said")
    assert json.loads((folder / FILE).read_text("utf-8"))["numbers"] == [1905, 3]


def test_numbers_that_a_table_lacks_are_missed_aloud(open_page, with_numbers):
    page = open_page(with_numbers[0])
    upload(page, table(columns=("year", "body"), rows=[[1950, "apple"]]))
    said = "The model has also learned from year and pages beside each text, and this table has no column pages"
    assert f"{said}: their averages are assumed." in page.text_content("#guess")
    page.goto(f"{with_numbers[0]}/#text")
    assert "learned from year and pages beside each text: here their averages" in page.text_content("#averages")


def test_a_model_without_numbers_says_nothing_of_them(page):
    upload(page, table())
    assert "numbers" not in page.text_content("#guess")
    assert page.locator("#averages").is_hidden()


def test_columns_of_numbers_are_not_taken_for_the_text(page):
    upload(page, table(columns=("x", "y"), rows=[[1, 20.5], [2, 1e6]]))
    assert "No column holds words" in page.text_content("#guess")
    assert page.is_disabled("#tag")
    page.get_by_role("checkbox", name="y").check()
    assert page.is_enabled("#tag")


def test_a_text_that_is_cut_in_the_list_says_so(page):
    tag(page, table(rows=[["long", "rain " * 100], ["short", "rain"]]))
    texts = page.locator("#documents .snippet").all_text_contents()
    assert sorted(texts) == ["rain", "rain " * 40 + "…"]


def test_the_way_back_to_the_list_is_one_word_at_390_pixels(open_page, address):
    page = open_page(address, viewport={"width": 390, "height": 844})
    tag(page, table(rows=[["a-long-name-of-a-document", "rain"]]))
    page.locator("#documents button").click()
    height = "(one) => one.getClientRects()[0].height"
    assert page.locator("#to-list").evaluate(height) <= page.locator("#likely button").first.evaluate(height) + 4


def test_a_file_that_cannot_be_read_leaves_the_page_as_it_was(page):
    bad = {"name": "bad.csv", "mimeType": "text/csv", "buffer": b"a,a\n1,2\n"}
    tag(page, table())
    before = shown(page)
    page.set_input_files("#file", bad)
    expect(page.locator("#said.bad")).to_contain_text("two columns")
    assert shown(page) == before
    upload(page, table("jsonl"))
    page.set_input_files("#file", bad)
    expect(page.locator("#said.bad")).to_contain_text("two columns")
    assert page.is_visible("#choices")
    assert page.is_hidden("#work")


def test_another_file_waits_until_the_documents_are_tagged(page):
    waiting = []
    page.route("**/predict", lambda route: waiting.append(route))
    upload(page, table())
    with page.expect_request("**/predict"):
        page.click("#tag")
    page.set_input_files("#file", {**table("jsonl"), "name": "other.jsonl"})
    expect(page.locator("#said.bad")).to_contain_text("before you open another file")
    assert page.is_visible("#tagging")
    waiting[0].continue_()
    page.wait_for_selector("#work:not(.busy) #documents li")
    assert len(shown(page)) == 6


def test_checked_documents_teach_a_model_that_learns(open_page, page, tmp_path):
    assert page.is_hidden("#teach")
    path, shared = tmp_path / "topics.safetensors", tmp_path / "shared"
    shared.mkdir()
    text_model(updatable=True).save(path)
    updater = Updater(str(path), shared)
    start(updater)
    updates = UpdateClient(str(shared), load)
    with listening(updates.model, updates=updates) as address:
        page = open_page(address)
        tag(page, table())
        page.click("#teach")
        expect(page.locator("#said.bad")).to_contain_text("No checked document is new to the model.")
        page.select_option("#order", "file")
        choose(page, "TR-1")
        add(page, "colour")
        page.locator("#teach").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#said")).to_have_text("The model has learnt 1 document.")
        add(page, "sky")
        page.click("#teach")  # it is forgotten with its former labels first
        expect(page.locator("#said")).to_have_text("The model has learnt 1 document, with 1 new label: sky.")
    updater.living.close()
    with LivingFile(path) as living:
        counts = dict(zip(living.classifier.label_names_, living.classifier._living.label_rows.tolist(), strict=True))
    assert counts["sky"] == 1
    assert counts["colour"] == text_model(updatable=True).classifier_._living.label_rows[0] + 1
