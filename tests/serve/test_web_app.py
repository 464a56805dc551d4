"""The API: requests, responses, errors, metrics and the files of the page."""

import json
import random
import re
import time
from importlib.resources import files

import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import client, multiclass_model, text_model, vector_model
from sklearn.tree import DecisionTreeClassifier
from small import fixed, words

from smoothlink import PerLabel
from smoothlink.explanation import explain
from smoothlink.serve import ServerSettings
from smoothlink.serve.limits import CSP
from smoothlink.serve.service import PredictionService

SECRET = "s3cret"
PAGE = files("smoothlink.serve").joinpath("page")


def check_error(response, status, reason):
    """Checks that an error is JSON with its status and a reason."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body["status"] == status
    assert re.search(reason, body["reason"]), body["reason"]


def test_a_text_has_the_labels_that_the_model_gives_it(texts):
    found = texts.post("/predict", json={"texts": ["apple iron", ""], "k": 2}).json()["predictions"]
    best = text_model().predict_topk(["apple iron"], k=2)[0]
    assert found[0]["labels"] == [
        {"label": name, "name": name, "probability": round(p, 6), "predicted": p > 0.5} for name, p in best
    ]
    assert [one["features"] > 0 for one in found] == [True, False]


def test_a_vector_has_its_labels(vectors):
    body = {"vectors": [{"indices": [1, 3], "values": [1, 2.5]}], "threshold": 0.0, "only": ["0", "5"]}
    labels = vectors.post("/predict", json=body).json()["predictions"][0]["labels"]
    assert {one["label"] for one in labels} == {"0", "5"}


def test_an_explanation_has_features_words_and_neighbours(texts):
    text = "Äpfel: apple 🍎 iron, apple"
    found = texts.post("/explain", json={"text": text, "labels": ["metal", "fruit"], "top": 1}).json()["explanations"]
    exact = explain(text_model(), text, labels=["metal", "fruit"], top=None)
    assert [one["label"] for one in found] == ["metal", "fruit"]
    for one, other in zip(found, exact, strict=True):
        assert one["probability"] == pytest.approx(other.probability, abs=1e-6)
        assert [f["feature"] for f in one["features"]] == [other.reasons[0].name]
        assert sum(word["contribution"] for word in one["words"]) == pytest.approx(other.score - other.base, abs=1e-4)
        assert [n["label"] for n in one["neighbours"]] == [str(n.name) for n in other.neighbours]
    assert [text[word["start"] : word["end"]] for word in found[0]["words"]] == ["apple", "iron", "apple"]
    for feature in (one["features"][0] for one in found):
        assert {text[span["start"] : span["end"]] for span in feature["spans"]} == {feature["feature"]}
    assert len(texts.post("/explain", json={"text": "snow"}).json()["explanations"]) == 3


def test_a_list_is_validated_up_to_its_first_error(vectors):
    for body, reason in (
        ({"vectors": [{}] * 100_000}, "vectors.0.indices: Field required; vectors.0.values: Field required"),
        ({"texts": [1] * 100_000}, "texts.0: Input should be a valid string"),
        ({"texts": ["a"], "numbers": [[""] * 100_000]}, "numbers.0.0: Input should be a valid number"),
    ):
        assert vectors.post("/predict", json=body).json() == {"status": 422, "reason": reason}


def test_a_vector_is_explained_too(vectors):
    body = {"vector": {"indices": [1, 3], "values": [1.0, 2.0]}, "labels": ["2"]}
    found = vectors.post("/explain", json=body).json()["explanations"][0]
    assert {one["feature"] for one in found["features"]} == {"1", "3"}
    assert found["words"] == []


def test_an_embedding_that_cannot_be_explained_is_refused_with_the_reason(rng):
    X, Y = words(rng)
    model = fixed(embedding=PerLabel(DecisionTreeClassifier(max_depth=2))).fit(X, Y)
    with client(model) as made:
        vector = {"indices": [1], "values": [1.0]}
        assert made.post("/predict", json={"vectors": [vector]}).status_code == 200
        check_error(made.post("/explain", json={"vector": vector}), 422, "cannot be explained")


def test_labels_are_searched_in_pages(texts):
    found = texts.get("/labels", params={"q": "M", "limit": 1}).json()
    assert (found["total"], [one["label"] for one in found["labels"]]) == (2, ["metal"])
    found = texts.get("/labels", params={"q": "m", "offset": 1}).json()
    count = text_model().classifier_.model_.counts[3]
    assert found["labels"] == [{"label": "number", "name": "number", "number": 3, "count": count}]


def test_the_model_is_described(texts, vectors):
    about = texts.get("/model").json()
    assert (about["name"], about["takes"], about["labels"]) == ("topics", "texts", 5)
    assert about["examples"] == [{"text": one.text, "labels": one.labels} for one in text_model().examples_]
    about = vectors.get("/model").json()
    assert (about["takes"], about["features"], about["examples"]) == ("vectors", 40, [])
    assert texts.get("/health").json() == {"status": "ok"}
    assert texts.head("/health").status_code == 200


BAD = [
    ({"texts": []}, "texts: "),
    ({"texts": [3]}, "texts.0: "),
    ({"texts": "apple"}, "texts: "),
    ({"texts": None}, "either"),
    ({}, "either"),
    ({"texts": ["a"], "vectors": [{"indices": [], "values": []}]}, "either"),
    ({"texts": ["a"], "k": 0}, "k: "),
    ({"texts": ["a"], "k": "5"}, "k: "),
    ({"texts": ["a"], "k": 1001}, "at most 1000"),
    ({"texts": ["a"], "threshold": 1.5}, "threshold: "),
    ({"texts": ["a"], "only": []}, "only: "),
    ({"texts": ["a"], "only": ["brass"]}, "no label 'brass'"),
    ({"texts": ["a"], "treshold": 0.5}, "treshold: "),
    ({"vectors": [{"indices": [0], "values": [1.0]}]}, "takes texts"),
    ([], "valid dictionary"),
    ("apple", "valid dictionary"),
]


@pytest.mark.parametrize(("body", "reason"), BAD, ids=str)
def test_a_request_that_is_not_as_described_is_refused_with_the_reason(texts, body, reason):
    check_error(texts.post("/predict", json=body), 422, reason)


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        ({"indices": [1, 2], "values": [1.0]}, "2 indices and 1 values"),
        ({"indices": [-1], "values": [1.0]}, "indices.0: "),
        ({"indices": [40], "values": [1.0]}, "outside 0..39"),
        ({"indices": [2**80], "values": [1.0]}, "indices.0: "),
        ({"indices": [1], "values": [1e300]}, "values.0: "),
        ({"indices": [True], "values": [1.0]}, "indices.0: "),
    ],
    ids=str,
)
def test_what_is_not_a_vector_is_refused_with_the_reason(vectors, vector, reason):
    check_error(vectors.post("/predict", json={"vectors": [vector]}), 422, reason)


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        (b"{", 400, "JSON"),
        (b"", 422, "required"),
        (b"\xff\xfe", 400, "UTF-8"),
        (b'{"texts": ["\\ud800"]}', 422, "texts.0: "),
        (b'{"vectors": [{"indices": [0], "values": [NaN]}]}', 422, "finite"),
        (b'{"texts": ["a"], "threshold": Infinity}', 422, "threshold: "),
        (b"[" * 100_000, 400, "JSON"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_not_json_is_refused_with_the_reason(texts, content, status, reason):
    check_error(texts.post("/predict", content=content, headers={"Content-Type": "application/json"}), status, reason)


def test_other_paths_methods_and_types_are_refused_with_the_reason(texts):
    check_error(texts.get("/nowhere"), 404, "/docs")
    check_error(texts.get("/page/nothing.js"), 404, "does not exist")
    check_error(texts.get("/predict"), 405, "method")
    assert texts.get("/predict").headers["allow"] == "POST"
    check_error(texts.post("/predict", content=b"{}", headers={"Content-Type": "text/plain"}), 415, "application/json")
    check_error(texts.get("/labels?limit=0"), 422, "limit: ")
    check_error(texts.get("/labels?offset=x"), 422, "offset: ")


def test_hundreds_of_odd_requests_leave_it_serving(texts):
    rng = random.Random(0)
    pieces = [
        "texts",
        "vectors",
        "k",
        "threshold",
        "only",
        "a",
        "",
        0,
        -1,
        1e308,
        10**30,
        None,
        True,
        [],
        {},
        "\x00",
        "é",
    ]

    def value(depth):
        kind = rng.randrange(4) if depth < 3 else 3
        if kind == 0:
            return [value(depth + 1) for _ in range(rng.randrange(3))]
        if kind == 1:
            return {str(rng.choice(pieces)): value(depth + 1) for _ in range(rng.randrange(4))}
        return rng.choice(pieces)

    headers = {"Content-Type": "application/json"}
    for i in range(300):
        body = json.dumps(value(0)).encode() if i % 3 else rng.randbytes(rng.randrange(40))
        response = texts.request(
            rng.choice(["POST", "GET"]), rng.choice(["/predict", "/explain"]), content=body, headers=headers
        )
        assert response.status_code == 200 or 400 <= response.status_code < 500, body
        assert response.json()
    assert texts.post("/predict", json={"texts": ["apple"]}).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.:8000", "127.0.0.1:8000", "[::1]:80", "10.1.2.3", "tags.org"])
def test_addresses_and_the_names_of_the_server_are_allowed(host):
    with client(text_model(), ServerSettings(hosts=("localhost", "tags.org"))) as made:
        assert made.get("/model", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "tags.org.evil.example", "127.0.0.1.nip.io", ""])
@pytest.mark.parametrize("path", ["/model", "/", "/openapi.json"])
def test_a_page_of_another_name_that_leads_here_reads_nothing(host, path):
    with client(text_model(), ServerSettings(hosts=("localhost", "tags.org"))) as made:
        refused = made.get(path, headers={"Host": host})
        assert refused.status_code == 421
        assert "--allow-host" in refused.json()["reason"]


def test_the_description_that_needs_no_token_shows_no_text_and_no_label_where_others_do():
    for settings, shown in ((ServerSettings(), True), (ServerSettings(token=SECRET), False)):
        with client(text_model(), settings) as made:
            schemas = made.get("/openapi.json").json()["components"]["schemas"]
            assert [("examples" in schemas[name]) for name in ("PredictRequest", "ExplainRequest")] == [shown, shown]


def test_a_token_is_needed_for_all_but_the_page_and_health():
    with client(text_model(), ServerSettings(token=SECRET)) as made:
        for path in ("/labels", "/model", "/metrics"):
            check_error(made.get(path), 401, "needed")
        check_error(made.post("/predict", json={"texts": ["a"]}), 401, "needed")
        check_error(made.get("/model", headers={"Authorization": "Bearer wrong"}), 401, "wrong")
        check_error(made.get("/model", headers={"Authorization": f"Bearer {SECRET} "[:-2]}), 401, "wrong")
        assert made.get("/model", headers={"Authorization": f"Bearer {SECRET}"}).status_code == 200
        for path in ("/", "/health", "/docs", "/openapi.json", "/page/main.js"):
            assert made.get(path).status_code == 200
        described = made.get("/openapi.json").json()
        assert described["paths"]["/predict"]["post"]["security"] == [{"token": []}]
        assert described["paths"]["/health"]["get"]["security"] == []
        assert SECRET not in repr(ServerSettings(token=SECRET))


def test_large_requests_are_refused_whether_or_not_they_announce_their_size():
    with client(text_model(), ServerSettings(max_body=1000, max_rows=3)) as made:
        body = json.dumps({"texts": ["apple" * 300]}).encode()
        headers = {"Content-Type": "application/json"}
        check_error(made.post("/predict", content=body, headers=headers), 413, "1,000 bytes")
        check_error(made.post("/predict", content=iter([body[:700], body[700:]]), headers=headers), 413, "1,000 bytes")
        check_error(made.post("/predict", json={"texts": ["a"] * 4}), 413, "more than 3")
        assert made.post("/predict", json={"texts": ["a"] * 3}).status_code == 200
    with client(text_model(), ServerSettings(max_response_labels=14)) as made:
        check_error(made.post("/predict", json={"texts": ["a"] * 3, "threshold": 0}), 413, "15 labels")
        assert made.post("/predict", json={"texts": ["a"] * 3, "k": 4}).status_code == 200


def test_the_labels_of_a_long_text_are_not_explained_and_a_sentence_says_so(texts):
    long = "apple " * 3334
    assert texts.post("/predict", json={"texts": [long]}).status_code == 200
    reason = "^This text has 20,004 characters; labels are explained for texts of up to 20,000.$"
    check_error(texts.post("/explain", json={"text": long}), 422, reason)


def test_a_threshold_of_null_stands_for_the_labels_that_the_model_predicts(texts):
    given = ["apple iron", "rain", "apple plum red"]
    found = texts.post("/predict", json={"texts": given, "threshold": None}).json()["predictions"]
    assert [sorted(one["label"] for one in row["labels"]) for row in found] == text_model().predict(given)
    best = texts.post("/predict", json={"texts": given}).json()["predictions"]
    assert [len(row["labels"]) for row in best] == [5, 5, 5]
    assert [[one for one in row["labels"] if one["predicted"]] for row in best] == [row["labels"] for row in found]


def test_of_a_multiclass_model_the_best_label_is_predicted_whichever_are_asked_for():
    with client(multiclass_model()) as made:
        assert made.get("/model").json()["multiclass"]
        for body in ({"threshold": None}, {}):
            labels = made.post("/predict", json={"texts": ["apple pear"], **body}).json()["predictions"][0]["labels"]
            assert [one["label"] for one in labels if one["predicted"]] == ["fruit"]
        body = {"texts": ["apple pear"], "only": ["metal", "colour"]}
        labels = made.post("/predict", json=body).json()["predictions"][0]["labels"]
        assert [one["predicted"] for one in labels] == [False, False]


def test_a_response_that_takes_too_long_is_an_error(monkeypatch):
    with client(text_model(), ServerSettings(timeout=0.1)) as made:
        monkeypatch.setattr(PredictionService, "features_of", lambda *_: time.sleep(0.4))
        check_error(made.post("/predict", json={"texts": ["a"]}), 504, "0.1 s")


def test_a_bug_is_reported_as_one_and_the_server_goes_on(texts, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(PredictionService, "features_of", lambda *_: 1 / 0)
        check_error(texts.post("/predict", json={"texts": ["a"]}), 500, "bug")
    assert texts.post("/predict", json={"texts": ["a"]}).status_code == 200


def test_metrics_count_requests_rows_and_batches():
    with client(text_model(), name='a "name"') as made:
        for _ in range(3):
            made.post("/predict", json={"texts": ["apple", "iron"]})
        made.post("/predict", json={})
        made.get("/nowhere")
        response = made.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }
    assert samples["smoothlink_requests_total", ("path", "/predict"), ("status", "200")] == 3
    assert samples["smoothlink_requests_total", ("path", "/predict"), ("status", "422")] == 1
    assert samples["smoothlink_requests_total", ("path", "other"), ("status", "404")] == 1
    assert samples[("smoothlink_rows_total",)] == 6
    assert samples[("smoothlink_waiting_rows",)] == 0
    assert samples["smoothlink_request_seconds_count", ("path", "/predict")] == 4
    assert samples["smoothlink_request_seconds_bucket", ("le", "+Inf"), ("path", "/predict")] == 4
    assert samples["smoothlink_batch_requests_bucket", ("le", "1.0")] == 3
    assert samples["smoothlink_model_info", ("labels", "5"), ("name", 'a "name"'), ("takes", "texts")] == 1
    assert 0 <= time.time() - samples[("smoothlink_start_time_seconds",)] < 600


def test_every_response_forbids_other_sources(texts):
    for response in (texts.get("/"), texts.get("/nowhere"), texts.post("/predict", json={})):
        assert response.headers["content-security-policy"] == CSP
        assert response.headers["x-content-type-options"] == "nosniff"


def test_the_page_weighs_less_than_150_kb():
    assert sum(len(file.read_bytes()) for file in PAGE.iterdir()) < 150_000


def test_the_page_names_no_other_server_and_carries_no_code_in_its_html():
    for file in PAGE.iterdir():
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.findall(r"(?:https?:)?//[\w-]+\.", text), file.name
        if file.name.endswith(".html"):
            assert not re.findall(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", text), file.name


def test_all_files_that_the_page_names_are_served(texts):
    named = set()
    for file in PAGE.iterdir():
        named |= set(re.findall(r'(?:href|src)="page/([\w.]+)"|from "\./([\w.]+)"', file.read_text("utf-8")))
    names = {first or second for first, second in named}
    assert names == {file.name for file in PAGE.iterdir() if not file.name.endswith(".html")}
    for name in names:
        assert texts.get(f"/page/{name}").content == PAGE.joinpath(name).read_bytes()


@pytest.mark.parametrize(
    ("path", "kind"), [("/", "text/html"), ("/docs", "text/html"), ("/page/main.js", "text/javascript")]
)
def test_a_file_of_the_page_is_sent_again_only_if_it_changed(texts, path, kind):
    first = texts.get(path)
    assert first.headers["content-type"] == f"{kind}; charset=utf-8"
    assert first.headers["cache-control"] == "no-cache"
    again = texts.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert texts.head(path).headers["content-length"] == str(len(first.content))


def test_no_other_files_are_served(texts):
    for path in ("/page/../web_app.py", "/page/%2e%2e/web_app.py", "/page//etc/passwd", "/page/"):
        assert texts.get(path).status_code == 404


def test_the_description_covers_every_path(texts):
    paths = {"/predict", "/explain", "/labels", "/model", "/health", "/metrics", "/table", "/table/file"}
    assert set(texts.get("/openapi.json").json()["paths"]) == paths


@pytest.mark.parametrize(
    "make", [text_model, vector_model, lambda: text_model(examples=0)], ids=["texts", "vectors", ""]
)
def test_examples_in_the_description_are_of_this_model_and_get_a_response(make):
    with client(make()) as made:
        schemas = made.get("/openapi.json").json()["components"]["schemas"]
        for path, name in (("/predict", "PredictRequest"), ("/explain", "ExplainRequest")):
            (example,) = schemas[name]["examples"]
            assert made.post(path, json=example).status_code == 200


@pytest.mark.parametrize("aim", ["f1", "labels=2"])
def test_thresholds_that_were_chosen_for_an_aim_decide_what_is_predicted(aim):
    model = text_model(aim=aim, calibrate=True)
    given = ["apple iron", "rain", "apple plum red", "nothing"]
    with client(model) as made:
        found = made.post("/predict", json={"texts": given}).json()["predictions"]
        assert [sorted(one["label"] for one in row["labels"]) for row in found] == model.predict(given)
        best = made.post("/predict", json={"texts": given, "k": 5}).json()["predictions"]
        assert [sorted(one["label"] for one in row["labels"] if one["predicted"]) for row in best] == model.predict(
            given
        )
        own = made.get("/model").json()["threshold"]
    assert own == (pytest.approx(model.thresholds_[0], abs=1e-6) if len(set(model.thresholds_)) == 1 else None)


@pytest.fixture(scope="module")
def guaranteed():
    model = text_model(calibrate=True, conformal=0.4)
    with client(model) as made:
        yield model, made


@pytest.mark.parametrize("promise", [{"coverage": 0.9}, {"recall": 0.8}])
def test_sets_with_a_guarantee_are_those_of_predict_set(guaranteed, promise):
    model, made = guaranteed
    given = ["apple iron", "rain", "apple plum red", "nothing", ""]
    found = made.post("/predict", json={"texts": given, **promise}).json()["predictions"]
    names = [sorted(one["label"] for one in row["labels"]) for row in found]
    assert names == [sorted(row) for row in model.predict_set(given, **promise)]
    (level,) = promise.values()
    known = made.get("/model").json()["guarantees"]
    (own,) = (one["threshold"] for one in known if one["promise"] in promise and one["level"] == level)
    for text, row in zip(given, names, strict=True):
        assert row == sorted(name for name, p in model.predict_topk([text], k=5)[0] if p >= own)


def test_a_guarantee_that_cannot_be_given_is_refused_in_a_sentence(guaranteed, texts):
    model, made = guaranteed
    for body, status, reason in (
        ({"coverage": 0.9, "k": 3}, 422, 'leave "k" out'),
        ({"coverage": 0.9, "recall": 0.9}, 422, 'leave "recall" out'),
        ({"coverage": 0.9, "threshold": None}, 422, 'leave "threshold" out'),
        ({"recall": 1}, 422, "recall: "),
        ({"coverage": 0.999}, 422, "needs 999 conformal rows"),
    ):
        check_error(made.post("/predict", json={"texts": ["a"], **body}), status, reason)
    check_error(texts.post("/predict", json={"texts": ["a"], "coverage": 0.9}), 422, "no conformal rows")
    assert texts.get("/model").json()["guarantees"] == []
    with client(model, ServerSettings(max_labels=1)) as few:
        sent = {"texts": ["apple pear plum cherry iron copper zinc nickel"], "recall": 0.95}
        check_error(few.post("/predict", json=sent), 422, "more than 1 labels")


def test_long_texts_and_large_requests_get_what_each_row_gets_alone(texts):
    rows = ["apple iron " * 2_000, "rain", "", "red tin " * 3_000, *(f"{word} snow" for word in ("plum", "zinc") * 100)]
    together = texts.post("/predict", json={"texts": rows, "k": 5}).json()["predictions"]
    for row, found in list(zip(rows, together, strict=True))[:10]:
        [alone] = texts.post("/predict", json={"texts": [row], "k": 5}).json()["predictions"]
        assert found["features"] == alone["features"]
        expected = {one["label"]: one["probability"] for one in alone["labels"]}
        assert {one["label"]: one["probability"] for one in found["labels"]} == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize(
    "request_", [{"threshold": 0}, {"k": 5}, {"threshold": 0, "only": ["fruit", "metal", "colour"]}]
)
def test_a_response_that_is_known_to_be_too_large_is_refused_before_any_work(request_):
    used = []
    with client(text_model(), ServerSettings(max_response_labels=200), check=lambda: used.append(1)) as made:
        check_error(made.post("/predict", json={"texts": ["apple"] * 100, **request_}), 413, "labels, more than 200")
        assert not used


def test_a_response_that_turns_out_too_large_is_refused_before_all_of_it_is_predicted():
    used = []
    with client(text_model(), ServerSettings(max_response_labels=200), check=lambda: used.append(1)) as made:
        sent = {"texts": ["apple"] * 1000, "threshold": 1e-9}
        check_error(made.post("/predict", json=sent), 413, "labels, more than 200")
        time.sleep(0.3)
        assert len(used) <= 6  # two for each of the first batches, of 16


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b'{"texts": ' + b"[" * 500_000])
@pytest.mark.parametrize("path", ["/predict", "/explain"])
def test_json_that_is_nested_too_deeply_is_refused(texts, path, body):
    check_error(texts.post(path, content=body, headers={"Content-Type": "application/json"}), 400, "not JSON")


def test_tables_that_are_nested_too_deeply_are_refused(texts):
    for line in (b"[" * 100_000, b'{"a":' * 100_000, b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"):
        content = b'{"columns": ["a", "b"], "labels": "b"}\n' + line
        check_error(texts.post("/table/file?kind=csv", content=content), 422, "Line 2 is not JSON")


def watched(made):
    """The metrics of one process by name."""
    families = text_string_to_metric_families(made.get("/metrics").text)
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


def test_metrics_have_the_drift_of_the_rows_served():
    model = text_model(calibrate=True)
    with client(model) as made:
        assert watched(made)["smoothlink_watched_rows_total"] == 0
        sent = ["apple pear iron", "red wolfram"]
        made.post("/predict", json={"texts": sent, "threshold": 0.999})
        made.post("/predict", json={"texts": ["apple"], "only": ["fruit"]})  # which does not say what is best
        found = watched(made)
        assert found["smoothlink_watched_rows_total"] == 2
        best = [ranked[0][1] for ranked in model.predict_topk(sent, k=1)]
        assert found["smoothlink_expected_precision_at_1"] == pytest.approx(sum(best) / 2, abs=1e-6)
        assert found["smoothlink_unknown_word_share"] == pytest.approx(1 / 5)
        assert found["smoothlink_drift_alarm"] == 0
        for text in ["apple pear iron"] * 3 + ["wolfram gneiss basalt"] * 3:
            made.post("/predict", json={"texts": [text] * 40})
        found = watched(made)
        assert found["smoothlink_drift_alarm"] == 1
        assert found["smoothlink_drift_evidence"] > 4.6  # log(100)


def test_each_of_several_processes_has_its_part_of_the_false_alarms():
    from smoothlink.serve.served_rows import ServedRows

    found = ServedRows(text_model(calibrate=True), 4, lambda figures: None)
    assert found.test.false_alarms == 0.01 / 4


def test_a_model_without_held_out_rows_is_served_without_drift():
    with client(text_model()) as made:
        made.post("/predict", json={"texts": ["apple"]})
        assert watched(made)["smoothlink_watched_rows_total"] == 0
        assert "smoothlink_expected_precision_at_1" not in watched(made)
