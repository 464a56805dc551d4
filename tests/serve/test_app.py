"""The API: what is asked, answered, refused and counted."""

import json
import random
import re

import pytest
from served import client, text_model, vector_model
from sklearn.tree import DecisionTreeClassifier
from small import fixed, words

from smoothlink import PerLabel
from smoothlink.explanation import explain
from smoothlink.serve import Settings
from smoothlink.serve.limits import CSP

SECRET = "s3cret"


@pytest.fixture(scope="module")
def texts():
    with client(text_model(), name="topics") as made:
        yield made


@pytest.fixture(scope="module")
def vectors():
    with client(vector_model()) as made:
        yield made


def refused(response, status, told):
    """An error is JSON with its status and a reason."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body["status"] == status
    assert re.search(told, body["reason"]), body["reason"]


def test_a_text_has_its_labels(texts):
    found = texts.post("/predict", json={"texts": ["apple iron", ""], "k": 2}).json()["predictions"]
    best = text_model().predict_topk(["apple iron"], k=2)[0]
    assert found[0]["labels"] == [{"label": name, "probability": round(p, 6)} for name, p in best]
    assert [one["features"] > 0 for one in found] == [True, False]


def test_a_vector_has_its_labels(vectors):
    asked = {"vectors": [{"indices": [1, 3], "values": [1, 2.5]}], "threshold": 0.0, "only": ["0", "5"]}
    labels = vectors.post("/predict", json=asked).json()["predictions"][0]["labels"]
    assert {one["label"] for one in labels} == {"0", "5"}


def test_an_explanation_tells_features_words_and_neighbours(texts):
    text = "Äpfel: apple 🍎 iron, apple"
    found = texts.post("/explain", json={"text": text, "labels": ["metal", "fruit"], "top": 1}).json()["explanations"]
    exact = explain(text_model(), text, labels=["metal", "fruit"], top=None)
    assert [one["label"] for one in found] == ["metal", "fruit"]
    for one, other in zip(found, exact, strict=True):
        assert one["probability"] == pytest.approx(other.probability, abs=1e-6)
        assert [f["feature"] for f in one["features"]] == [other.reasons[0].name]
        assert sum(word["contribution"] for word in one["words"]) == pytest.approx(other.score - other.base, abs=1e-4)
        assert [n["label"] for n in one["neighbours"]] == [str(n.name) for n in other.neighbours]
    spoken = [text[word["start"] : word["end"]] for word in found[0]["words"]]
    assert spoken == ["apple", "iron", "apple"]
    assert len(texts.post("/explain", json={"text": "snow"}).json()["explanations"]) == 3


def test_a_vector_is_explained_too(vectors):
    asked = {"vector": {"indices": [1, 3], "values": [1.0, 2.0]}, "labels": ["2"]}
    found = vectors.post("/explain", json=asked).json()["explanations"][0]
    assert {one["feature"] for one in found["features"]} == {"1", "3"}
    assert found["words"] == []


def test_a_first_stage_that_is_not_looked_into_is_told(rng):
    X, Y = words(rng)
    model = fixed(embedding=PerLabel(DecisionTreeClassifier(max_depth=2))).fit(X, Y)
    with client(model) as made:
        vector = {"indices": [1], "values": [1.0]}
        assert made.post("/predict", json={"vectors": [vector]}).status_code == 200
        refused(
            made.post("/explain", json={"vector": vector}),
            422,
            "fitted DecisionTreeClassifier, which cannot be explained",
        )


def test_labels_are_searched_in_pages(texts):
    found = texts.get("/labels", params={"q": "M", "limit": 1}).json()
    assert (found["total"], [one["label"] for one in found["labels"]]) == (2, ["metal"])
    found = texts.get("/labels", params={"q": "m", "offset": 1}).json()
    assert found["labels"] == [{"label": "number", "number": 3, "count": text_model().classifier_.model_.counts[3]}]


def test_the_model_tells_what_it_is(texts, vectors):
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


@pytest.mark.parametrize(("body", "told"), BAD, ids=str)
def test_what_is_not_a_question_is_refused_with_the_reason(texts, body, told):
    refused(texts.post("/predict", json=body), 422, told)


@pytest.mark.parametrize(
    ("vector", "told"),
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
def test_what_is_not_a_vector_is_refused_with_the_reason(vectors, vector, told):
    refused(vectors.post("/predict", json={"vectors": [vector]}), 422, told)


@pytest.mark.parametrize(
    ("content", "status", "told"),
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
def test_what_is_not_json_is_refused_with_the_reason(texts, content, status, told):
    refused(texts.post("/predict", content=content, headers={"Content-Type": "application/json"}), status, told)


def test_other_paths_methods_and_types_are_refused_with_the_reason(texts):
    refused(texts.get("/nowhere"), 404, "/docs")
    refused(texts.get("/page/nothing.js"), 404, "no such file")
    refused(texts.get("/predict"), 405, "method")
    assert texts.get("/predict").headers["allow"] == "POST"
    refused(texts.post("/predict", content=b"{}", headers={"Content-Type": "text/plain"}), 415, "application/json")
    refused(texts.get("/labels?limit=0"), 422, "limit: ")
    refused(texts.get("/labels?offset=x"), 422, "offset: ")


def test_thousands_of_odd_requests_leave_it_serving(texts):
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


def test_a_token_is_asked_for_where_something_is_told():
    with client(text_model(), Settings(token=SECRET)) as made:
        for path in ("/labels", "/model", "/metrics"):
            refused(made.get(path), 401, "needed")
        refused(made.post("/predict", json={"texts": ["a"]}), 401, "needed")
        refused(made.get("/model", headers={"Authorization": "Bearer wrong"}), 401, "wrong")
        refused(made.get("/model", headers={"Authorization": f"Bearer {SECRET} "[:-2]}), 401, "wrong")
        assert made.get("/model", headers={"Authorization": f"Bearer {SECRET}"}).status_code == 200
        for path in ("/", "/health", "/docs", "/openapi.json", "/page/main.js"):
            assert made.get(path).status_code == 200
        described = made.get("/openapi.json").json()
        assert described["paths"]["/predict"]["post"]["security"] == [{"token": []}]
        assert described["paths"]["/health"]["get"]["security"] == []
        assert SECRET not in repr(Settings(token=SECRET))


def test_large_requests_are_refused_whether_or_not_they_tell_their_size():
    with client(text_model(), Settings(max_body=1000, max_rows=3)) as made:
        body = json.dumps({"texts": ["apple" * 300]}).encode()
        headers = {"Content-Type": "application/json"}
        refused(made.post("/predict", content=body, headers=headers), 413, "1,000 bytes")
        refused(made.post("/predict", content=iter([body[:700], body[700:]]), headers=headers), 413, "1,000 bytes")
        refused(made.post("/predict", json={"texts": ["a"] * 4}), 413, "more than 3")
        assert made.post("/predict", json={"texts": ["a"] * 3}).status_code == 200
    with client(text_model(), Settings(max_answers=14)) as made:
        refused(made.post("/predict", json={"texts": ["a"] * 3, "threshold": 0}), 413, "15 labels")
        assert made.post("/predict", json={"texts": ["a"] * 3, "k": 4}).status_code == 200
        refused(made.post("/explain", json={"text": "a" * 20_001}), 422, "20000")


def test_answers_that_take_too_long_are_given_up(monkeypatch):
    import time

    from smoothlink.serve.service import Oracle

    with client(text_model(), Settings(timeout=0.1)) as made:
        monkeypatch.setattr(Oracle, "rows", lambda *_: time.sleep(0.4))
        refused(made.post("/predict", json={"texts": ["a"]}), 504, "0.1 s")


def test_a_bug_is_told_as_one_and_the_server_goes_on(monkeypatch):
    from smoothlink.serve.service import Oracle

    with client(text_model()) as made:
        with monkeypatch.context() as patched:
            patched.setattr(Oracle, "rows", lambda *_: 1 / 0)
            refused(made.post("/predict", json={"texts": ["a"]}), 500, "bug")
        assert made.post("/predict", json={"texts": ["a"]}).status_code == 200


def test_counts_are_told_to_prometheus():
    with client(text_model(), name='a "name"') as made:
        for _ in range(3):
            made.post("/predict", json={"texts": ["apple", "iron"]})
        made.post("/predict", json={})
        lines = made.get("/metrics").text.splitlines()
    assert 'smoothlink_requests_total{path="/predict",status="200"} 3' in lines
    assert 'smoothlink_requests_total{path="/predict",status="422"} 1' in lines
    assert "smoothlink_rows_total 6" in lines
    assert 'smoothlink_request_seconds_count{path="/predict"} 4' in lines
    assert "smoothlink_batch_requests_count 3" in lines
    assert r'smoothlink_model_info{name="a \"name\"",takes="texts",labels="5"} 1' in lines
    pattern = re.compile(r'(# (HELP|TYPE) \w+ .+|\w+(\{(\w+="(\\.|[^"\\])*",?)+\})? [-+.\dInf]+)')
    assert all(pattern.fullmatch(line) for line in lines)


def test_histograms_hold_all_that_is_below_their_bounds():
    from smoothlink.serve.prometheus import Metrics

    metrics = Metrics({})
    for seconds in (0.0005, 0.001, 0.03, 20.0):
        metrics.request("/predict", 200, seconds)
    text = metrics.text()
    for bound, count in (("0.001", 2), ("0.025", 2), ("0.05", 3), ("10.0", 3), ("+Inf", 4)):
        assert f'smoothlink_request_seconds_bucket{{path="/predict",le="{bound}"}} {count}\n' in text


def test_every_answer_forbids_other_sources(texts):
    for response in (texts.get("/"), texts.get("/nowhere"), texts.post("/predict", json={})):
        assert response.headers["content-security-policy"] == CSP
        assert response.headers["x-content-type-options"] == "nosniff"
