"""The links of section 3: the fixed ones by their formulas, and an experiment whose page says what its record does."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from commands import labelled, succeed

from smoothlink.data.read import write
from smoothlink_paper import experiment
from smoothlink_paper.data_sets import Split, load
from smoothlink_paper.fixed_links import fixed_link, g0, identity
from smoothlink_paper.reproduce_link import (
    G0,
    IDENTITY,
    KERNELS,
    LINEAR,
    LINKS,
    METRICS,
    QUICK_SIZES,
    best_of,
    decided_sign,
    findings,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a small data set under a name that the experiment looks for."""
    place = tmp_path_factory.mktemp("data")
    data = labelled(np.random.default_rng(3), 90)
    (place / "corel5k").mkdir()
    for part, rows in (("train", slice(60)), ("test", slice(60, 90))):
        write(data._replace(X=data.X[rows], Y=data.Y[rows]), place / "corel5k" / f"{part}.txt")
    return place


@pytest.fixture(scope="module")
def ran(folder, tmp_path_factory):
    """The record as printed, and the folder that the command has filled."""
    out = tmp_path_factory.mktemp("out")
    return succeed("reproduce", "link", "--quick", "--data", folder, "-o", out, "--json").json, out


def test_g0_weighs_the_labels_of_each_training_row_by_their_inner_product_with_the_activations(rng):
    Y = (rng.random((20, 6)) < 0.3).astype(np.float32)
    p = rng.standard_normal(6)
    expected = sum(y * (y @ p) for y in Y) / len(Y)
    np.testing.assert_allclose(p @ g0(sp.csr_array(Y)), expected, rtol=1e-5, atol=1e-7)


def test_through_the_identity_the_ranking_is_that_of_the_activations(folder):
    split = load(folder, "corel5k")
    result = fixed_link(split, 0, identity, ridge=1.0)
    X, X_test = (unit(part.X.toarray()) for part in split)
    P = ridge_activations(X, split.train.Y.toarray(), X_test)
    some = X_test.any(axis=1)  # a row without features gets the label frequencies
    ranked = result.predictions.topk.indices.reshape(len(P), -1)
    np.testing.assert_array_equal(ranked[some], np.argsort(-P, axis=1)[some, :5])
    assert result.settings == {"ridge": 1.0}


def test_fixed_links_are_chosen_without_a_look_at_test_labels(folder):
    split = load(folder, "corel5k")
    blind = Split(split.train, split.test._replace(Y=split.test.Y[::-1]))
    for operator in (identity, g0):
        one, other = (fixed_link(s, 0, operator) for s in (split, blind))
        assert one.settings == other.settings
        assert (one.predictions.sets != other.predictions.sets).nnz == 0


def unit(X):
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)


def ridge_activations(X, Y, X_test):
    """Ridge regression with a free constant; the ridge is 1 in units of the mean diagonal of X'X."""
    G = X.T @ X
    used = np.diag(G) > 0
    A = np.hstack([X, np.ones((len(X), 1))])
    penalty = np.append(np.full(X.shape[1], np.trace(G) / used.sum()), 0)
    W = np.linalg.solve(A.T @ A + np.diag(penalty), A.T @ Y)
    return np.hstack([X_test, np.ones((len(X_test), 1))]) @ W


def test_the_record_holds_every_link_and_every_point_of_the_curves(ran):
    found = ran[0]["sets"]["corel5k"]
    assert set(found["links"]) == set(LINKS)
    for link in found["links"].values():
        assert set(link["metrics"]) == set(METRICS)
        assert all(m["low"] <= m["value"] <= m["high"] for m in link["metrics"].values())
    assert set(found["difference"]) == set(KERNELS)
    grown = ran[0]["curves"]
    assert set(grown["by_features"]) == set(KERNELS)
    assert set(grown["by_rank"]) == {LINEAR, *KERNELS}
    for points in grown["by_features"].values():
        assert [point["at"] for point in points] == list(QUICK_SIZES)
        assert [point["settings"]["random_features"] for point in points] == list(QUICK_SIZES)
    for points in grown["by_rank"].values():
        assert [point["at"] for point in points] == [2, 5]
        assert [point["settings"]["rank"] for point in points] == [2, 5]


def test_ridge_and_bandwidth_stay_along_the_number_of_features(ran):
    links, grown = ran[0]["sets"]["corel5k"]["links"], ran[0]["curves"]
    for link, points in grown["by_features"].items():
        for name in ("ridge", "bandwidth"):
            assert {point["settings"][name] for point in points} == {links[link]["settings"][name]}
    for link, points in grown["by_rank"].items():
        assert {point["settings"]["ridge"] for point in points} == {links[link]["settings"]["ridge"]}


def test_a_difference_is_to_the_linear_link(ran):
    found = ran[0]["sets"]["corel5k"]
    for link, by_metric in found["difference"].items():
        for metric, difference in by_metric.items():
            gain = found["links"][link]["metrics"][metric]["value"] - found["links"][LINEAR]["metrics"][metric]["value"]
            assert difference["value"] == pytest.approx(gain, abs=1e-12)


def test_the_page_is_generated_from_the_stored_record(ran):
    stored = json.loads(next((ran[1] / "results" / "link").glob("*.json")).read_text())
    page = next((ran[1] / "results" / "link").glob("quick-*.md")).read_text()
    assert experiment("link").page(stored) == page
    assert f"](quick-{stored['date']}.svg)" in page
    for link in LINKS:
        assert f"| {link} |" in page


def made(values):
    """A record with the given values of each link on one set, whatever the metric, and curves that rise to them."""

    def metrics(value):
        signed = {metric: -value if metric == "hamming" else value for metric in METRICS}
        return {metric: {"value": v, "low": v, "high": v} for metric, v in signed.items()}

    def curve(value):
        return [{"at": at, "metrics": metrics(value - less)} for at, less in ((1, 3), (2, 0.5), (3, 0))]

    return {
        "sets": {
            "corel5k": {
                "links": {link: {"metrics": metrics(value)} for link, value in values.items()},
                "difference": {link: metrics(values[link] - values[LINEAR]) for link in KERNELS},
            }
        },
        "curves": {
            "set": "corel5k",
            "by_features": {link: curve(values[link]) for link in KERNELS},
            "by_rank": {link: curve(values[link]) for link in (LINEAR, *KERNELS)},
        },
    }


def test_the_sentences_name_the_best_link_and_from_where_on_it_leads():
    values = dict(zip(LINKS, [5, 1, 6, 9, 8, 7, 6, 5], strict=True))
    record = made(values)
    assert {best_of(record["sets"]["corel5k"]["links"], metric) for metric in METRICS} == {KERNELS[0]}
    said = "\n".join(findings(record))
    assert f"the best link is {KERNELS[0]}" in said
    assert "from 2 random features or 2 directions on" in said
    assert f"{KERNELS[0]} is better than linear at 3 of 3 ranks" in said
    assert "a kernel is best in 3" in said
    assert "g0 is worst in\n3." in said
    assert "better than the learned linear link in 3 and worse in\n0" in said


def test_the_sentences_do_not_favour_kernels():
    values = dict.fromkeys(LINKS, 1) | {IDENTITY: 3, G0: 2}
    said = "\n".join(findings(made(values)))
    assert "a kernel is best in 0" in said
    assert f"the best link is {IDENTITY}" in said
    assert "ahead" not in said
    assert "g0 is worst in\n0." in said
    assert "better than the learned linear link in 0 and worse in\n0" in said


def test_a_decided_sign_needs_the_whole_interval():
    gain, loss, unclear = ({"value": v, "low": v - 1, "high": v + 1} for v in (2, -2, 0.5))
    assert [decided_sign(d, "p@1") for d in (gain, loss, unclear)] == [1, -1, 0]
    assert [decided_sign(d, "hamming") for d in (gain, loss, unclear)] == [-1, 1, 0]
