"""Sets with a guarantee: thresholds against brute force, promises on simulated rows, and what a model remembers."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import betabinom, binom
from small import classes, documents, fixed, multilabel, words

import smoothlink
from smoothlink import SmoothLinkClassifier, TextSmoothLink, safetensors_file
from smoothlink.conformal import (
    RELEASED_SHARES,
    Conformal,
    coverage_threshold,
    observe,
    p_value,
    recall_threshold,
    release_threshold,
    set_thresholds,
)
from smoothlink.fitting.holdout import conformal_rows
from smoothlink.machines.copies import RowContents


def made(rows, confidence=None, precision=None):
    """Conformal rows of these labels with their probabilities: [[(label, p), ...], ...]."""
    flat = [pair for row in rows for pair in row]
    n = len(rows)
    return Conformal(
        np.cumsum([0, *map(len, rows)]),
        np.array([label for label, _ in flat], np.int32),
        np.array([p for _, p in flat], np.float32),
        np.zeros(n, np.float32) if confidence is None else np.asarray(confidence, np.float32),
        np.zeros(n, np.float32) if precision is None else np.asarray(precision, np.float32),
    )


def drawn(rng, n, c=7, most=4, digits=None):
    """Rows of up to `most` labels, some of none; probabilities of few digits have ties."""
    rows = []
    for _ in range(n):
        labels = rng.choice(c, rng.integers(0, most + 1), replace=False)
        p = rng.random(len(labels)).astype(np.float32)
        rows.append(list(zip(labels.tolist(), (p if digits is None else np.round(p, digits) + 0.01), strict=True)))
    return made(rows)


def rows_of(conformal):
    return [conformal.probabilities[a:b] for a, b in zip(conformal.indptr[:-1], conformal.indptr[1:], strict=True)]


# Thresholds, by brute force over all candidates, in whole numbers


@pytest.mark.parametrize("digits", [None, 1])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
def test_a_coverage_is_the_largest_threshold_that_enough_of_the_rows_keep(rng, digits, level):
    conformal = drawn(rng, 60, digits=digits)
    scores = [min(p, default=np.inf) for p in rows_of(conformal)]
    fits = [q for q in [*scores, np.inf] if sum(s >= q for s in scores) >= Fraction(str(level)) * 61]
    assert coverage_threshold(conformal, level) == max(fits)


@pytest.mark.parametrize("digits", [None, 1])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
def test_a_recall_is_the_largest_threshold_whose_corrected_risk_is_small_enough(rng, digits, level):
    conformal, fits = drawn(rng, 60, digits=digits), []
    for q in [*conformal.probabilities, np.inf]:
        losses = [Fraction(int((p < q).sum()), max(1, len(p))) for p in rows_of(conformal)]
        if (sum(losses) + 1) / 61 <= 1 - Fraction(str(level)):
            fits.append(q)
    assert recall_threshold(conformal, level) == max(fits)


def test_a_level_is_the_decimal_that_was_typed():
    nine = made([[(0, (i + 1) / 10)] for i in range(9)])
    assert coverage_threshold(nine, 0.9) == pytest.approx(0.1)  # one of ten may miss, though 1 - 0.9 < 0.1
    assert coverage_threshold(nine, 0.7) == pytest.approx(0.3)
    assert recall_threshold(nine, 0.9) == pytest.approx(0.1)


def test_too_few_rows_are_refused_with_how_many_are_needed(rng):
    for threshold, name in ((coverage_threshold, "coverage"), (recall_threshold, "recall")):
        with pytest.raises(ValueError, match=rf"{name} is 0.99, which needs 99 conformal rows, and the model has 98"):
            threshold(drawn(rng, 98), 0.99)
        threshold(drawn(rng, 99), 0.99)
        for wrong in (0, 1, 1.5, -0.1, "0.9", None, True):
            with pytest.raises(ValueError, match="above 0 and below 1"):
                threshold(drawn(rng, 98), wrong)


def test_rows_without_labels_are_covered_by_every_set():
    empty = [[]] * 8
    assert coverage_threshold(made([*empty, [(0, 0.5)]]), 0.9) == 0.5
    assert coverage_threshold(made([*empty, [(0, 0.5)], []]), 0.8) == np.inf
    assert recall_threshold(made([*empty, [(0, 0.5)], []]), 0.8) == np.inf


def test_labels_that_no_set_holds_are_missed_and_limit_what_can_be_promised():
    rows = made([[(0, 0.0)]] * 2 + [[(1, 0.4)]] * 17)
    assert coverage_threshold(rows, 0.85) == pytest.approx(0.4)
    for threshold in (coverage_threshold, recall_threshold):
        with pytest.raises(ValueError, match=r"no set keeps: 11 % is missed by every set .* Ask for less"):
            threshold(rows, 0.94)


def test_groups_of_labels_have_thresholds_of_their_own(rng):
    conformal, groups = drawn(rng, 200), np.array(["a", "b", "a", "a", "b", "b", "b"])
    for name in ("coverage", "recall"):
        found = set_thresholds(conformal, 7, groups=groups, **{name: 0.8})
        for group in "ab":
            own = [
                [(label, p) for label, p in zip(labels, values, strict=True) if groups[label] == group]
                for labels, values in zip(
                    np.split(conformal.labels, conformal.indptr[1:-1]), rows_of(conformal), strict=True
                )
            ]
            alone = set_thresholds(made([row for row in own if row]), 7, **{name: 0.8})[0]
            assert (found[groups == group] == alone).all()
    with pytest.raises(ValueError, match=r"shape \(6,\); pass one value for each of the 7"):
        set_thresholds(conformal, 7, coverage=0.8, groups=groups[:6])
    with pytest.raises(ValueError, match="label group 9 has 0"):
        set_thresholds(drawn(rng, 50, c=6), 7, coverage=0.8, groups=[1, 1, 1, 1, 1, 1, 9])


def test_a_set_has_one_guarantee(rng):
    for given in ({}, {"coverage": 0.9, "recall": 0.9}):
        with pytest.raises(ValueError, match="one guarantee"):
            set_thresholds(drawn(rng, 20), 7, **given)


# Promises, on many draws


def test_coverage_over_draws_is_beta_binomial(rng):
    n, m, level, times = 49, 40, 0.9, 600
    covered = np.empty(times)
    for i in range(times):
        scores = rng.random(n + m).astype(np.float32)
        q = coverage_threshold(made([[(0, p)] for p in scores[:n]]), level)
        covered[i] = (scores[n:] >= q).sum()
    law = betabinom(m, 45, 5)  # (1 - 0.9) 50 = 5
    assert abs(covered.mean() - law.mean()) < 4 * law.std() / np.sqrt(times)
    assert covered.std() == pytest.approx(law.std(), rel=0.12)


def test_recall_over_draws_is_at_least_the_promise_and_not_much_more(rng):
    reached = []
    for _ in range(120):
        conformal, test = drawn(rng, 60), drawn(rng, 60)
        q = recall_threshold(conformal, 0.8)
        reached += [np.mean(p >= q) if len(p) else 1.0 for p in rows_of(test)]
    assert 0.8 - 4 * np.std(reached) / np.sqrt(120) < np.mean(reached) < 0.8 + 2 / 61 + 0.02


def test_a_release_misses_its_precision_in_few_draws(rng):
    """A row of confidence t has a right label with probability t, so rows above t one of (1 + t) / 2."""
    missed = released = 0
    for _ in range(300):
        confidence = rng.random(400)
        right = rng.random(400) < confidence
        bound = release_threshold(made([[]] * 400, confidence, right), 0.7, delta=0.2)
        released += np.isfinite(bound.threshold)
        missed += np.isfinite(bound.threshold) and (1 + bound.threshold) / 2 < 0.7
    assert released > 250
    assert missed <= 0.2 * 300


def test_a_release_is_the_largest_share_of_rows_whose_p_value_is_small(rng):
    confidence = rng.permutation(np.linspace(0, 1, 600, dtype=np.float32))
    right = (rng.random(600) < np.minimum(1, 0.2 + confidence)).astype(np.float64)
    bound = release_threshold(made([[]] * 600, confidence, right), 0.9)
    fits = []
    for part in range(1, RELEASED_SHARES + 1):
        best = np.argsort(-confidence)[: 600 * part // RELEASED_SHARES]
        if p_value(1 - right[best].mean(), len(best), 0.1) <= 0.05 / RELEASED_SHARES:
            fits.append(len(best))
    assert 0 < max(fits) < 600
    assert (confidence > bound.threshold).sum() == max(fits) == round(600 * bound.share)


def test_a_p_value_is_seldom_small_where_the_risk_is_at_its_limit():
    n, alpha = 80, 0.1
    values = np.array([p_value(k / n, n, alpha) for k in range(n + 1)])
    chance = binom(n, alpha).pmf(np.arange(n + 1))
    for level in (0.01, 0.05, 0.2):
        assert chance[values <= level].sum() <= level
    assert p_value(0, n, alpha) == pytest.approx(0.9**80)


def test_rows_without_predicted_labels_are_never_released():
    confidence = np.repeat([0.9, 0.0], 200)
    bound = release_threshold(made([[]] * 400, confidence, np.ones(400)), 0.8)
    assert bound.threshold == 0
    assert bound.share == 0.5
    with pytest.raises(ValueError, match="needs 117 conformal rows, and the model has 20"):
        release_threshold(made([[]] * 20), 0.95)


# Models


def trained(rng, n=500, **changes):
    X, Y = multilabel(rng, n=n + 200)
    fitted = SmoothLinkClassifier(effort="quick", **{"conformal": 0.3, **changes}).fit(X[:n], Y[:n])
    return fitted, X[n:], Y[n:]


@pytest.mark.parametrize("sparse", [False, True])
def test_sets_hold_the_labels_at_the_threshold(rng, sparse):
    X, Y = words(rng, n=400)
    fitted = SmoothLinkClassifier(effort="quick", conformal=0.3).fit(X, sp.csr_array(Y) if sparse else Y)
    P = fitted.predict_proba(X)
    sets = fitted.predict_set(X, coverage=0.8)
    assert sp.issparse(sets) == sparse
    q = coverage_threshold(fitted.conformal_, 0.8)
    np.testing.assert_array_equal(sets.toarray() if sparse else sets, q <= P)
    groups = [0, 0, 1, 1, 1, 1]
    by_group = set_thresholds(fitted.conformal_, 6, recall=0.8, groups=groups)
    found = fitted.predict_set(X, recall=0.8, label_groups=groups)
    np.testing.assert_array_equal(found.toarray() if sparse else found, by_group <= P)


def test_promises_are_kept_on_other_rows(rng):
    fitted, X, Y = trained(rng, n=1000)  # of which 300 are conformal rows
    P = fitted.predict_proba(X)
    for level in (0.8, 0.95):
        sets = fitted.predict_set(X, coverage=level)
        assert (sets >= Y).all(axis=1).mean() > level - 4 * np.sqrt(level * (1 - level) * (1 / 200 + 1 / 300))
        sets = fitted.predict_set(X, recall=level)
        recall = np.where(Y.any(axis=1), (sets & Y).sum(axis=1) / np.maximum(1, Y.sum(axis=1)), 1)
        assert recall.mean() > level - 4 * recall.std() * np.sqrt(1 / 200 + 1 / 300)
    review = fitted.review(X, precision=0.8)
    predicted = fitted.predict(X)
    some = predicted.any(axis=1)
    np.testing.assert_allclose(
        review.confidence[some], np.where(predicted, P, 0).sum(axis=1)[some] / predicted[some].sum(axis=1), rtol=1e-5
    )
    assert (review.confidence[~some] == 0).all()
    np.testing.assert_array_equal(np.sort(review.queue), np.flatnonzero(~review.released))
    assert (np.diff(review.confidence[review.queue]) >= 0).all()
    assert review.released.any()
    assert (predicted & Y).sum(axis=1)[review.released].sum() / predicted[review.released].sum() > 0.75


def test_what_is_observed_is_what_predictions_say(rng):
    X, Y = words(rng, n=300)
    fitted = SmoothLinkClassifier(effort="quick").fit(X, Y)
    found = fitted._run_prediction(fitted._validated_rows(X), observe, sp.csr_array(Y), (0.2, 0.5))
    P, sets = fitted.predict_proba(X), fitted.predict(X)
    np.testing.assert_allclose(found.true, P[Y > 0], rtol=1e-6)
    np.testing.assert_array_equal(found.sizes, [(cut <= P).sum(axis=1) for cut in (0.2, 0.5)])
    np.testing.assert_allclose(found.precision, (sets & Y).sum(axis=1) / np.maximum(1, sets.sum(axis=1)), rtol=1e-6)
    assert fitted.model_.recalibrates_top1


def test_a_class_is_in_the_set_of_its_row(rng):
    X, y = classes(rng, n=500)
    fitted = SmoothLinkClassifier(effort="quick", conformal=0.4).fit(X[:300], y[:300])
    q = coverage_threshold(fitted.conformal_, 0.9)
    np.testing.assert_allclose(q, recall_threshold(fitted.conformal_, 0.9))  # of one label, they are the same
    sets = fitted.predict_set(X[300:], coverage=0.9)
    np.testing.assert_array_equal(sets.toarray(), fitted.predict_proba(X[300:]) >= q)
    assert sets.toarray()[np.arange(200), y[300:]].mean() > 0.8
    review = fitted.review(X[300:], precision=0.7)
    np.testing.assert_allclose(review.confidence, fitted.predict_proba(X[300:]).max(axis=1), rtol=1e-5)


def test_labels_without_training_rows_are_in_no_set_and_count_as_missed(rng):
    X, Y = multilabel(rng, n=300)
    Y[:, 5] = 0
    fitted = fixed().fit(X, Y)
    more = np.hstack([Y, np.zeros((300, 1), int)])
    more[:30, 5], more[30:60, 6] = 1, 1  # one that was never seen, and one that the model does not know
    with pytest.warns(UserWarning, match="300 of 300 rows are among those that the model was trained on"):
        fitted.recalibrate_sets(X, more)
    assert (fitted.conformal_.probabilities[fitted.conformal_.labels >= 5] == 0).all()
    with pytest.raises(ValueError, match="labels without training rows are in none"):
        fitted.predict_set(X, coverage=0.9)
    assert not fitted.predict_set(X, coverage=0.5)[:, 5].any()


def test_conformal_rows_are_seen_by_nothing_else(rng):
    """A model does not change with their labels or their features."""
    X, Y = multilabel(rng, n=300)
    held = conformal_rows(RowContents.of(X, sp.csr_array(Y.astype(np.float32))), 0.3, 0)
    kept = ~held.taken
    fitted = SmoothLinkClassifier(effort="quick", conformal=0.3).fit(X, Y)
    alone = SmoothLinkClassifier(effort="quick").fit(X[kept], Y[kept])
    np.testing.assert_array_equal(fitted.predict_proba(X), alone.predict_proba(X))
    assert fitted.conformal_.n == fitted.summary_["conformal_rows"] == len(held.used)
    assert fitted.summary_["rows"] == kept.sum()
    alone.recalibrate_sets(X[held.used], Y[held.used])
    np.testing.assert_array_equal(alone.conformal_.probabilities, fitted.conformal_.probabilities)


def test_a_row_is_taken_by_its_contents_whatever_the_others(rng):
    X, Y = multilabel(rng, n=400)
    contents = RowContents.of(X, sp.csr_array(Y.astype(np.float32)))
    taken, order = conformal_rows(contents, 0.25, 3).taken, rng.permutation(400)
    some = RowContents(*(part[order[:300]] for part in contents))
    np.testing.assert_array_equal(conformal_rows(some, 0.25, 3).taken, taken[order[:300]])
    assert 60 < taken.sum() < 140
    assert (conformal_rows(contents, 0.25, 4).taken != taken).any()


def test_copies_and_groups_stay_together_and_one_row_of_each_is_used(rng):
    X, Y = multilabel(rng, n=300)
    X[200:], Y[200:] = X[:100], Y[:100]
    contents = RowContents.of(X, sp.csr_array(Y.astype(np.float32)))
    held = conformal_rows(contents, 0.3, 0)
    np.testing.assert_array_equal(held.taken[200:], held.taken[:100])
    assert len(held.used) == held.taken[:200].sum()
    groups = rng.permutation(300) % 60
    held = conformal_rows(contents, 0.3, 0, groups)
    assert all(len(set(held.taken[groups == g])) == 1 for g in range(60))
    assert sorted(groups[held.used]) == sorted(set(groups[held.taken]))


def test_large_groups_are_taken_as_often_as_small_ones(rng):
    groups = np.repeat(np.arange(400), np.where(np.arange(400) < 200, 1, 9))
    held = conformal_rows(RowContents(*rng.integers(1, 1 << 60, (2, len(groups))).astype(np.uint64)), 0.5, 0, groups)
    of_group = np.bincount(groups, held.taken) > 0
    assert abs(int(of_group[:200].sum()) - 100) < 30
    assert abs(int(of_group[200:].sum()) - 100) < 30


def test_a_share_that_takes_no_row_is_refused(rng):
    X, Y = multilabel(rng, n=90)
    with pytest.raises(ValueError, match=r"conformal is 0\.001, and of 90 rows that takes none"):
        fixed(conformal=0.001).fit(X, Y)
    with pytest.raises(ValueError, match=r"conformal is 0\.6; possible are"):
        fixed(conformal=0.6).fit(X, Y)


def test_a_model_without_conformal_rows_says_how_to_get_some(rng):
    X, Y = multilabel(rng, n=300)
    fitted = fixed().fit(X[:200], Y[:200])
    assert fitted.conformal_ is None
    for predict in (lambda: fitted.predict_set(X, coverage=0.9), lambda: fitted.review(X)):
        with pytest.raises(ValueError, match=r"train it with conformal=0.1 .* recalibrate_sets"):
            predict()
    assert fitted.recalibrate_sets(X[200:], Y[200:]).predict_set(X[:3], coverage=0.9).shape == (3, 6)
    fitted.conformal_ = Conformal.voided("rows were forgotten.")
    with pytest.raises(ValueError, match=r"void: rows were forgotten. Pass labelled rows"):
        fitted.predict_set(X, coverage=0.9)
    with pytest.raises(ValueError, match="X has 100 rows and y has 99"):
        fitted.recalibrate_sets(X[200:], Y[201:])
    fitted.recalibrate_sets(X[200:], Y[200:], groups=np.repeat(np.arange(20), 5))
    assert fitted.conformal_.n == 20


def test_texts_have_sets_of_names_and_no_word_of_a_conformal_text(rng):
    texts, labels = documents(n=400)
    texts = [f"{text} only{i}" for i, text in enumerate(texts)]
    fitted = TextSmoothLink(effort="quick", conformal=0.3, min_df=1).fit(texts, labels)
    words = set(fitted.get_feature_names_out())
    own = [i for i in range(400) if f"only{i}" not in words]
    assert fitted.conformal_.n == len(own) == fitted.summary_["conformal_rows"]
    assert len(own) + fitted.summary_["rows"] == 400
    sets = fitted.predict_set([texts[i] for i in own], coverage=0.8)
    assert np.mean([set(labels[i]) <= set(found) for i, found in zip(own, sets, strict=True)]) >= 0.8
    assert fitted.review(texts[:9], precision=0.5).released.shape == (9,)
    n = fitted.recalibrate_sets(texts[:0] + ["apple iron"] * 30, [["fruit", "unknown"]] * 30).conformal_.n
    assert n == 30
    with pytest.raises(ValueError, match="no set keeps"):
        fitted.predict_set(texts, coverage=0.8)


# Files


@pytest.mark.parametrize("mmap", [False, True])
def test_a_loaded_model_has_the_same_sets(rng, tmp_path, mmap):
    fitted, X, _ = trained(rng)
    fitted.save(path := tmp_path / "model.safetensors")
    loaded = smoothlink.load(path, mmap=mmap)
    for given in ({"coverage": 0.9}, {"recall": 0.8}):
        np.testing.assert_array_equal(loaded.predict_set(X, **given), fitted.predict_set(X, **given))
    assert loaded.review(X, precision=0.8).bound == fitted.review(X, precision=0.8).bound
    assert loaded.conformal == 0.3
    loaded.conformal_ = Conformal.voided("rows were added.")
    loaded.save(path)
    with pytest.raises(ValueError, match="void: rows were added"):
        smoothlink.load(path).predict_set(X, coverage=0.9)


def test_weights_of_fewer_bits_void_the_guarantee(rng, tmp_path):
    fitted, X, Y = trained(rng)
    fitted.save(path := tmp_path / "model.safetensors", dtype="int8")
    loaded = smoothlink.load(path)
    with pytest.raises(ValueError, match="void: the weights were saved in int8"):
        loaded.predict_set(X, coverage=0.9)
    loaded.recalibrate_sets(X, Y).save(path)
    np.testing.assert_array_equal(
        smoothlink.load(path).predict_set(X, coverage=0.9), loaded.predict_set(X, coverage=0.9)
    )
    fitted.save(path, dtype="float16")
    assert smoothlink.load(path).predict_set(X, coverage=0.9).shape == (*X.shape[:1], 6)


def test_a_file_of_format_8_still_loads_and_has_no_guarantee(rng, tmp_path, monkeypatch):
    X, Y = multilabel(rng)
    fitted = fixed().fit(X, Y)
    monkeypatch.setattr(safetensors_file, "FORMAT_VERSION", 8)
    parameters = {name: value for name, value in fitted.get_params(deep=False).items() if name != "conformal"}
    monkeypatch.setattr(fitted, "get_params", lambda deep=False: parameters)
    fitted.save(path := tmp_path / "model.safetensors")
    monkeypatch.undo()
    assert json.loads(safe_metadata(path))["format_version"] == 8
    loaded = smoothlink.load(path)
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert loaded.conformal_ is None
    assert loaded.conformal == 0


def safe_metadata(path):
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return file.metadata()["smoothlink"]


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": np.array([9], np.int32)},
        {"labels": np.array([-1], np.int32)},
        {"indptr": np.array([0, 2])},
        {"probabilities": np.array([1.5], np.float32)},
        {"confidence": np.zeros(2, np.float32)},
        {"precision": np.zeros(1)},
    ],
)
def test_conformal_rows_that_do_not_fit_are_refused(rng, tmp_path, changes):
    X, Y = multilabel(rng)
    fitted = fixed().fit(X, Y)
    fitted.conformal_ = replace(made([[(0, 0.5)]]), **changes)
    fitted.save(path := tmp_path / "model.safetensors")
    with pytest.raises(smoothlink.ModelFileError, match="conformal rows do not fit"):
        smoothlink.load(path)
