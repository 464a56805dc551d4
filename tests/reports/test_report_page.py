"""The report: complete, self-contained, the same bytes for the same model, and deaf to markup in names and texts."""

import csv
import datetime
import hashlib
import json
from base64 import b64encode
from html.parser import HTMLParser

import numpy as np
import pytest
import scipy.sparse as sp
from small import classes, fixed, multilabel, words

import smoothlink
from smoothlink import Gaussian
from smoothlink.reports.report_page import SECTIONS

DAY = datetime.date(2026, 11, 15)
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)></style>&amp;\x00\x1b\ud800\u202e{{7*7}}{% raw %}"
VOID = {"meta", "input"}
SCRIPTS = [{"type": "application/json", "id": "label-data"}, {}]  # the data of the label table, and what draws it


class Page(HTMLParser):
    """The elements of a page, which must be nested."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.text = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, name):
        return [attrs for tag, attrs in self.seen if tag == name]


@pytest.fixture
def made(rng):
    X, Y = words(rng, 150, 40, 8)
    model = fixed(calibrate=True).fit(X[:90], Y[:90])
    return model, X[90:], Y[90:]


def page_of(*case, **given):
    return smoothlink.report(*case, **{"bootstraps": 20, "date": DAY} | given).html


def label_data(html):
    """The columns of the table of all labels."""
    start = html.index('id="label-data">') + len('id="label-data">')
    return json.loads(html[start : html.index("</script>", start)])["values"]


def test_the_page_has_all_sections_and_its_metrics(made):
    found = smoothlink.report(*made, bootstraps=20, date=DAY)
    page = Page(found.html)
    parts = [part for part in SECTIONS if part != "guarantees"]  # which this model has none of
    assert [attrs["id"] for attrs in page.all("section")] == parts
    assert [attrs["href"] for attrs in page.all("a")[: len(parts)]] == [f"#{part}" for part in parts]
    for key in ("p@1", "ndcg@5", "macro_f1_alg4", "logloss", "ece_top"):
        assert f"{found.measured.metrics[key].value:.4f}" in found.html
    assert "15\N{NO-BREAK SPACE}November\N{NO-BREAK SPACE}2026" in found.html
    assert "In favour of" in found.html


def test_the_first_sentences_are_at_the_thresholds_that_the_model_predicts_at(rng):
    X, Y = multilabel(rng, n=300)
    for aim, said in (("half", "At the threshold of 50 %"), ("f1", "At the model's own threshold of each label")):
        fitted = fixed(calibrate=True, aim=aim).fit(X[:200], Y[:200])
        sets = fitted.predict(X[200:])
        hits, text = (sets * Y[200:]).sum(), smoothlink.report(fitted, X[200:], Y[200:], bootstraps=0).html
        right = f"{100 * hits / sets.sum():.1f}&nbsp;% of the predicted labels are right"
        found = f"{100 * hits / Y[200:].sum():.1f}&nbsp;% of the true labels are predicted"
        assert f"{said}, {right}, and {found}".replace("'", "&#39;") in text


def test_figures_have_words_and_tables_have_headings(made):
    page = Page(page_of(*made))
    assert len(page.all("svg")) == len(page.all("figure")) == 10
    assert all(attrs["role"] == "img" and len(attrs["aria-label"]) > 20 for attrs in page.all("svg"))
    assert len(page.all("table")) == len(page.all("caption")) >= 9
    assert {attrs["scope"] for attrs in page.all("th")} == {"col", "row"}
    ids = [attrs["id"] for _, attrs in page.seen if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_nothing_is_fetched_and_nothing_runs_but_the_script_that_the_policy_names(made):
    html = page_of(*made)
    page = Page(html)
    assert page.all("script") == SCRIPTS
    script = html[html.rindex("<script>") + 8 : html.rindex("</script>")]
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in page.all("meta")[2]["content"]
    assert not {"img", "link", "iframe", "object", "form", "base"} & {name for name, _ in page.seen}
    assert not [k for _, attrs in page.seen for k in attrs if k.startswith("on") or k in ("src", "xlink:href")]
    assert "http:" not in html
    assert "https:" not in html
    assert "url(" not in html
    assert "default-src 'none'" in page.all("meta")[2]["content"]
    assert page.all("meta")[1]["content"] == f"smoothlink {smoothlink.__version__}"


def test_names_and_titles_cannot_become_markup(made):
    model, X, Y = made
    model.label_names_ = [f"{EVIL}{j}" for j in range(8)]
    model.feature_names_in_ = np.array([f"{EVIL}{j}" for j in range(40)], dtype=object)
    html = page_of(model, X, Y, title=EVIL, source=EVIL)
    page = Page(html)
    assert "img" not in {name for name, _ in page.seen}
    assert page.all("script") == SCRIPTS
    assert [name[:8] for name in label_data(html)["label"]] == ["<script>"] * 8
    assert "\x00" not in html
    assert "\x1b" not in html
    assert "<script>alert(1)</script>" in "".join(page.text)  # as text, to be read
    assert "{{7*7}}" in html
    assert "\ud800" not in html
    other = fixed(kernel="linear", rank=1).fit(X, Y)
    other.label_names_ = model.label_names_
    page = Page(smoothlink.compare(model, other, X, Y, names=(EVIL, f"{EVIL}2"), source=EVIL, bootstraps=5).html)
    assert not {"script", "img"} & {name for name, _ in page.seen}


def test_texts_are_shown_and_cannot_become_markup(rng):
    words_of = ["numpy", "array", "socket", "server"]
    texts = [f"{EVIL} {' '.join(rng.choice(words_of, 5))}" for _ in range(60)]
    given = [[w for w in words_of[::2] if w in text] or ["none"] for text in texts]
    model = smoothlink.TextSmoothLink(effort="quick", kernel=Gaussian(features=30)).fit(texts[:40], given[:40])
    page = Page(page_of(model, texts[40:], given[40:]))
    assert "img" not in {name for name, _ in page.seen}
    assert page.all("script") == SCRIPTS
    assert any(" ".join(text.split())[-30:] in "".join(page.text) for text in texts[40:])


def test_rows_that_are_exactly_right_have_no_label_crossed(rng):
    """Of more labels than the ranking is deep, too."""
    X = sp.csr_array((rng.random((60, 30)) < 0.5).astype(float))
    Y = sp.csr_array(np.hstack([X.toarray()[:, :1]] * 14).astype(int))
    html = page_of(fixed(rank=2, kernel="linear", ridge=1e-3, final_ridge=1e-6).fit(X, Y), X, Y)
    right = html[html.index("<h3>Right</h3>") : html.index("<h3>Wrong")]
    assert right.count("chip hit") > 12
    assert "chip miss" not in right
    assert "and 2 more" in right


def test_the_same_model_gives_the_same_bytes(made):
    assert page_of(*made) == page_of(*made)


def test_a_page_is_written_whole(made, tmp_path):
    found = smoothlink.report(*made, tmp_path / "r.html", bootstraps=0)
    assert (tmp_path / "r.html").read_text("utf-8") == found.html
    assert "No intervals were drawn." in found.html
    assert "nan" not in " ".join(Page(found.html).text).lower().split()


@pytest.mark.parametrize("changes", [{"kernel": "linear"}, {"embedding": "none"}, {"calibrate": False}], ids=str)
def test_other_models_have_their_pages(rng, changes):
    X, Y = multilabel(rng)
    page = Page(page_of(fixed(**changes).fit(X, Y), X, Y))
    ids = [attrs["id"] for attrs in page.all("section")]
    assert ("appendix" in ids) == ("embedding" not in changes)


def test_classes_and_unknown_ones_have_their_page(rng):
    X, y = classes(rng)
    html = page_of(fixed(rank=2, loss="auto").fit(X[:60], y[:60]), X[60:], np.append(y[61:], 77))
    assert "1 label of these unknown to the model count" in html
    assert "Top label wrong" in html


def test_a_single_label_and_rows_without_any_have_their_page(rng):
    X, Y = words(rng, 60, 20, 1)
    Page(page_of(fixed(rank=1).fit(X, sp.csr_array(Y)), X, sp.csr_array((60, 1))))


def test_sparse_rows_and_dense_rows_of_one_model_have_one_page(rng):
    X, Y = multilabel(rng)
    model = fixed().fit(X, Y)
    assert page_of(model, X, Y) == page_of(model, sp.csr_array(X), Y)


def test_the_table_of_labels_is_that_of_scikit_learn_on_the_page_and_as_csv(made, tmp_path):
    from sklearn.metrics import precision_recall_fscore_support

    model, X, Y = made
    model.label_names_ = ["a,b", 'c "d"', *"efghij"]
    found = smoothlink.report(model, X, Y, bootstraps=0)
    columns, P = label_data(found.html), model.predict_proba(X)
    expected = precision_recall_fscore_support(Y, P > 0.5, zero_division=np.nan)
    for name, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        assert np.array(columns[name], float) == pytest.approx(values, abs=1e-5, nan_ok=True)
    assert columns["average_probability"] == pytest.approx(P.mean(axis=0), rel=1e-4)
    assert columns["predicted"] == (P > 0.5).sum(axis=0).tolist()
    assert columns["threshold"] == [0.5] * 8
    found.save_labels(tmp_path / "labels.csv")
    with open(tmp_path / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == columns["label"] == model.label_names_
    for name in columns:
        assert [row[name] for row in rows] == ["" if value is None else str(value) for value in columns[name]]


def test_a_share_of_nothing_is_left_open(rng):
    X, Y = multilabel(rng)
    Y[:, 0] = 0
    model = fixed().fit(X, sp.csr_array(Y))
    columns = label_data(page_of(model, X, Y))
    assert (columns["support"][0], columns["predicted"][0]) == (0, 0)
    assert columns["precision"][0] is columns["recall"][0] is columns["f1"][0] is None


def test_classes_have_no_threshold(rng):
    X, y = classes(rng)
    columns = label_data(page_of(fixed(rank=2, loss="auto").fit(X, y), X, y))
    assert columns["threshold"] == [None] * 3
    assert sum(columns["predicted"]) == len(y)


def test_rows_are_called_by_their_ids(made):
    model, X, Y = made
    html = page_of(model, X, Y, ids=[f"doc-{i}<b>" for i in range(60)])
    assert "<bdi>doc-" in html
    assert "&lt;b&gt;</bdi></div>" in html
    assert ">row " not in html
    assert "<bdi>row " in page_of(model, X, Y)
    with pytest.raises(smoothlink.DataError, match="3 ids for 60 rows"):
        page_of(model, X, Y, ids="abc")


def test_the_card_is_on_the_page(made):
    html = page_of(*made)
    for said in ("On 90 held-out training rows", "On 60 test rows", "It knows 8 labels", "few rows (90)"):
        assert said in html
