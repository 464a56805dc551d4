"""Metrics without labels against dense brute force, and the test of a watch: its rate, its power and its state."""

import json
import math

import numpy as np
import pytest
import scipy.sparse as sp
from small import classes, documents, fixed, words

import smoothlink
from smoothlink import DataError, TextSmoothLink, Watch, expected_metrics
from smoothlink.drift import SequentialTest
from smoothlink.steps.reference import BINS, correct_by_size, count, fit_by_size

KERNEL = {"rank": 3, "ridge": 1.0, "final_ridge": 0.1, "loss": "squared"}


@pytest.fixture(scope="module")
def vectors():
    X, Y = words(np.random.default_rng(1), 400)
    return fixed(calibrate=True).fit(X[:300], Y[:300]), X[300:], Y[300:]


@pytest.fixture(scope="module")
def texts():
    rows, labels = documents(300)
    model = TextSmoothLink(**KERNEL, char_ngrams=None, min_df=1).fit(rows[:200], labels[:200])
    return model, rows[200:]


@pytest.fixture(scope="module")
def one_class():
    X, y = classes(np.random.default_rng(3), 300)
    return fixed(calibrate=True, trees=False).fit(X[:200], y[:200]), X[200:]


def brute_force(model, X, k=1):
    """Returns expected P@k, micro-F1 and label shares from all probabilities (n, c) at once."""
    P = model.predict_proba(X).astype(np.float64)
    sizes = np.diff(sp.csr_array(X).indptr) if sp.issparse(X) else np.full(len(X), X.shape[1])
    shares = P.mean(axis=0)
    rows, top = np.arange(len(P)), P.argmax(axis=1)
    P[rows, top] = correct_by_size(model.model_.reference.by_size, P[rows, top], sizes)
    sets = sp.csr_array(model.predict_proba(X) >= model.thresholds_).toarray()
    if model.model_.multiclass:
        sets = np.eye(P.shape[1], dtype=bool)[top]
    ranked = np.take_along_axis(P, np.argsort(-model.predict_proba(X), axis=1, kind="stable"), axis=1)
    true = len(P) if model.model_.multiclass else P.sum()
    return ranked[:, :k].sum() / (k * len(P)), 2 * P[sets].sum() / (sets.sum() + true), shares


@pytest.mark.parametrize("k", [1, 3, 5])
def test_expected_metrics_are_those_of_all_probabilities_at_once(vectors, k):
    model, X, _ = vectors
    found = expected_metrics(model, X)
    precision, f1, shares = brute_force(model, X, k)
    assert found.rows == X.shape[0]
    assert found.precision[k] == pytest.approx(precision, abs=1e-6)
    assert found.f1 == pytest.approx(f1, abs=1e-6)
    np.testing.assert_allclose(found.labels, shares, atol=1e-6)


def test_blocks_of_labels_and_rows_change_nothing(vectors):
    from dataclasses import replace

    from smoothlink.drift import NewRows, score_rows

    model, X, _ = vectors
    new = NewRows.of(model, X)
    whole = new.scored(model)
    small = replace(model.model_, block_bytes=16 * 7)
    cut = score_rows(small, small.embed_rows(new.X), new.sizes)
    for a, b in zip(whole.sums, cut.sums, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    np.testing.assert_array_equal(whole.labels, cut.labels)


def test_the_f1_of_one_class_per_row_is_its_expected_precision(one_class):
    model, X = one_class
    found = expected_metrics(model, X)
    precision, f1, shares = brute_force(model, X)
    assert found.precision[1] == pytest.approx(precision, abs=1e-6) == pytest.approx(f1, abs=1e-6)
    assert found.f1 == pytest.approx(f1, abs=1e-6)
    assert set(found.precision) == {1, 3}
    np.testing.assert_allclose(found.labels, shares, atol=1e-6)


def test_expected_and_measured_precision_of_held_out_rows_agree(vectors):
    model, _, _ = vectors
    reference = model.model_.reference
    assert reference.expected_p1 == pytest.approx(reference.p1, abs=0.1)
    assert reference.top.sum() == reference.frequency.sum() == reference.length.sum()


def test_the_correction_by_size_finds_how_short_rows_are_worse():
    rng = np.random.default_rng(0)
    sizes, p = rng.integers(1, 100, 200_000), rng.uniform(0.2, 0.9, 200_000)
    truth = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + 0.5 * (np.log1p(sizes) - 3.7))))
    numbers = fit_by_size(p, sizes, rng.random(len(p)) < truth, np.ones(len(p)))
    np.testing.assert_allclose(numbers, [np.log1p(sizes).mean(), 0.5], rtol=0.03)
    np.testing.assert_allclose(correct_by_size(np.zeros(2), p, sizes), p, rtol=1e-6)


def test_rows_of_equal_size_are_not_corrected():
    assert fit_by_size(np.full(50, 0.7), np.full(50, 9), np.zeros(50), np.ones(50))[1] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("known", [30, 1000])
def test_false_alarms_are_no_more_than_stated(known):
    """Of 400 watches at a rate of 0.1, 40 alarms expected, more than 58 happen once in a thousand times."""
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(400):
        top, words = rng.beta(2, 1, known + 300), rng.binomial(8, 0.1, known + 300)
        counts = np.column_stack([words, np.full(len(words), 8)])
        test = SequentialTest({"top": count("top", top[:known]), "unknown": count("unknown", counts[:known])}, 0.1)
        test.add("top", top[known:])
        test.add("unknown", counts[known:])
        alarms += test.alarm
    assert alarms <= 58


@pytest.mark.parametrize(
    "changed",
    [lambda p: p * 0.8, lambda p: 1 - (1 - p) * 0.7, lambda p: np.where(p < 0.6, p * 0.2, 1 - (1 - p) * 0.2)],
    ids=["lower", "higher", "both ends"],
)
def test_a_change_raises_an_alarm(changed):
    rng = np.random.default_rng(6)
    test = SequentialTest({"top": count("top", rng.beta(2, 1, 1000))}, 0.01)
    test.add("top", rng.beta(2, 1, 300))
    assert not test.alarm
    test.add("top", changed(rng.beta(2, 1, 1000)))
    assert test.alarm
    assert test.alarmed == ["top"]


def test_the_capital_of_a_row_is_one_on_average():
    """The mean over the position of a row among the others, and over ties, is an integral of each bet."""
    from smoothlink.drift import CURVES, JUMPS, SLOPES
    from smoothlink.machines.prediction_kernels import bet_on_ranks

    capital = np.random.default_rng(7).dirichlet(np.ones(27)).reshape(3, 9)
    gains = []
    for bin in range(BINS):  # one row in each bin, any of which may be the last
        others = (np.arange(BINS) != bin).astype(float)
        for u in (np.arange(100) + 0.5) / 100:
            given = np.array([bin]), np.array([u]), SLOPES, CURVES, JUMPS, others.copy(), capital.copy(), 0.0, 0.0
            gains.append(np.exp(bet_on_ranks(*given)[0]))
    assert np.mean(gains) == pytest.approx(1, abs=1e-6)
    assert min(gains) > 0


def test_a_watch_says_what_it_saw(texts):
    model, rows = texts
    watch = Watch(model)
    found = watch.add(rows)
    expected = expected_metrics(model, rows)
    assert found.rows == 100
    assert found.expected_p1 == pytest.approx(expected.precision[1])
    assert found.expected_f1 == pytest.approx(expected.f1)
    assert found.unknown_words == 0
    assert not found.alarm
    assert watch.add(["wolfram gneiss " + text for text in rows]).alarm
    assert "unknown" in watch.status.alarmed
    assert watch.status.unknown_words > 0.1


def test_the_first_rows_raise_an_alarm_only_where_the_rows_to_compare_with_are_given(texts):
    model, rows = texts
    strange = ["wolfram gneiss " + text for text in rows]
    assert not Watch(model).add(strange).alarm
    assert Watch(model, reference=rows).add(strange).alarm


def test_the_order_of_the_rows_of_one_call_raises_no_alarm(rng):
    test = SequentialTest({"top": np.zeros(BINS)}, 0.01)
    test.add("top", np.sort(rng.beta(2, 1, 2000)))
    assert not test.alarm


def test_the_share_of_unknown_words_of_training_texts_is_that_of_leaving_each_out(texts):
    rows = ["ab cd ef", "ab cd gh", "ab ij", "ab ij kl"]
    features = smoothlink.TextFeatures(word_ngrams=(1, 2), char_ngrams=None, min_df=1).fit(rows)
    unknown = 0
    for i, text in enumerate(rows):
        others = {word for j, other in enumerate(rows) if j != i for word in other.split()}
        unknown += sum(word not in others for word in text.split())
    np.testing.assert_array_equal(features.unknown_.words, [unknown, 11])
    np.testing.assert_array_equal(features.unknown_words(["ab zz zz", ""]), [[1, 2], [0, 0]])


def test_labels_that_became_frequent_are_named_first(vectors):
    model, X, Y = vectors
    watch = Watch(model)
    found = watch.add(sp.vstack([X[Y[:, 2] > 0]] * 20, format="csr"))
    assert found.labels[0].label == "2"
    assert found.labels[0].now > found.labels[0].before
    assert found.labels[0].certainty > 0.99


def test_a_watch_goes_on_from_its_state_as_if_it_had_not_stopped(texts, tmp_path):
    model, rows = texts
    whole, path = Watch(model, false_alarms=0.05), tmp_path / "watch.json"
    for start in (0, 40):
        whole.add(rows[start : start + 40])
    first = Watch(model, false_alarms=0.05)
    first.add(rows[:40])
    first.save(path)
    again = Watch.load(model, path)
    again.add(rows[40:80])
    assert again.state() == whole.state()
    assert again.status == whole.status


def test_the_reference_goes_through_the_model_file(texts, vectors, tmp_path):
    for number, model in enumerate((texts[0], vectors[0])):
        path = tmp_path / f"{number}.safetensors"
        model.save(path)
        loaded = smoothlink.load(path)
        mine, theirs = (getattr(m, "classifier_", m).model_.reference for m in (model, loaded))
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    rows = texts[1]
    loaded = smoothlink.load(tmp_path / "0.safetensors")
    for a, b in zip(loaded.features_.unknown_, texts[0].features_.unknown_, strict=True):
        np.testing.assert_array_equal(a, b)
    assert Watch(loaded).add(rows) == Watch(texts[0]).add(rows)
    assert Watch.resumed(loaded, json.loads(json.dumps(Watch(texts[0]).state()))).test.tests.keys() == {
        *("unknown", "top", "frequency", "length")
    }


def test_rows_that_are_given_take_the_place_of_held_out_rows(vectors):
    X, Y = words(np.random.default_rng(1), 400)
    model = fixed().fit(X[:300], Y[:300])
    with pytest.raises(DataError, match=r"no held-out rows to compare with.*\nTrain it again, or pass rows"):
        Watch(model)
    watch = Watch(model, reference=X[300:350])
    status = watch.add(X[350:])
    assert math.isnan(status.p1_before)
    assert status.expected_p1_before == pytest.approx(expected_metrics(model, X[300:350]).precision[1])
    assert Watch.resumed(model, json.loads(json.dumps(watch.state()))).state() == watch.state()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-20], "is no file of a watch, or was cut short"),
        (lambda text: "{}", "no state of a watch"),
        (lambda text: text.replace('"model": "', '"model": "0'), "of another model"),
        (lambda text: text.replace('"tests"', '"test"'), "damaged"),
        (lambda text: text.replace('"sums": [', '"sums": [1, '), "damaged"),
        (lambda text: text.replace('"tests": {', '"tests": [' + "[" * 100_000), "no file of a watch"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(vectors, tmp_path, change, message):
    model, X, _ = vectors
    watch, path = Watch(model), tmp_path / "watch.json"
    watch.add(X)
    watch.save(path)
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=message):
        Watch.load(model, path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("tests", []), ("tests", {}), ("tests", {"top": [[], [], 0.0, 0.0, 0]}), ("false_alarms", 0), ("words", 7)),
        *(("words", ["1", "x"]), ("lengths", None), ("sums", [1, 2, 3, 4, 5, 6]), ("words_before", [None, 1])),
        *(("before", [1, 2, 3, 4, 5, 6, 7, 8]), ("before", 10**30)),
    ],
)
def test_a_state_with_other_values_is_refused(vectors, field, value):
    model, X, _ = vectors
    watch = Watch(model, reference=X[:50])
    watch.add(X)
    with pytest.raises(DataError, match="damaged"):
        Watch.resumed(model, watch.state() | {field: value})
    for name, (counts, capital, log, highest, rows) in watch.state()["tests"].items():
        for numbers in (["a", highest, rows], [log, float("nan"), rows], [log, highest, 10**30], [log, highest, -1]):
            tests = {name: [counts, capital, *numbers]}
            with pytest.raises(DataError, match="damaged"):
                Watch.resumed(model, watch.state() | {"tests": tests})


def test_no_rows_and_other_features_are_errors(vectors, texts):
    model, X, _ = vectors
    with pytest.raises(DataError, match="no rows"):
        Watch(texts[0]).add([])
    with pytest.raises(DataError, match="no rows"):
        Watch(model).add(X[:0])
    with pytest.raises(DataError, match="no rows yet"):
        _ = Watch(model).status
    with pytest.raises(ValueError, match="40 features"):
        Watch(model).add(X[:, :3])
    with pytest.raises(ValueError, match="false_alarms is 0"):
        Watch(model, false_alarms=0)


def test_rows_without_features_are_watched_too(vectors):
    model, X, _ = vectors
    found = Watch(model).add(sp.csr_array((3, X.shape[1])))
    assert found.expected_p1 == pytest.approx(brute_force(model, sp.csr_array((3, X.shape[1])))[0], abs=1e-6)


def test_the_bins_hold_every_row():
    for name, values in (
        ("top", np.array([0.0, 1.0, np.float32(1e-9)])),
        ("length", np.array([np.nan, 0.0, 1e300])),
        ("frequency", np.array([0.0, 1.0, 1e-9])),
        ("unknown", np.array([[0, 0], [5, 5], [0, 7]])),
    ):
        assert count(name, values).shape == (BINS,)
        assert count(name, values).sum() == 3
