"""A fit on workers is the fit of one process; what a cluster cannot do is refused."""

import numpy as np
import pytest
import scipy.sparse as sp
from small import fixed, multilabel, words

import smoothlink
from smoothlink import Logistic, PerLabel, Softmax
from smoothlink.distributed.distributed_fit import PartitionedData, plan_partitions
from smoothlink.distributed.input_files import Header
from smoothlink.solve import ConjugateGradient, DualCholesky


def one_class_each(rng):
    X, Y = words(rng)
    return X, np.eye(6, dtype=int)[rng.integers(0, 6, len(Y))]


def sparse_table(rng):
    """Numbers of different size far from zero, beside one-hot columns."""
    X, Y = multilabel(rng)
    one_hot = np.eye(20)[rng.integers(0, 20, (len(X), 4))].reshape(len(X), -1)
    return sp.csr_array(np.hstack([1e6 + X * 10.0 ** np.arange(-2, 8), one_hot])), Y


FITS = {
    "dense table": (multilabel, {}),
    "sparse table": (sparse_table, {}),
    "squared": (words, {"calibrate": True}),
    "logistic": (words, {"loss": Logistic(passes=2)}),
    "softmax": (one_class_each, {"loss": Softmax(passes=2)}),
    "label weights": (words, {"class_weight": [1, 2, 3, 4, 5, 6], "calibrate": True}),
    "no embedding": (words, {"embedding": "none", "rank": "auto", "ridge": "auto", "normalize_embedding": True}),
    "per label": (words, {"embedding": "per_label", "rank": "auto", "solver": "cg"}),
    "quick": (words, {"effort": "quick", "loss": "auto", "calibrate": True}),
    "aim": (words, {"aim": "recall=0.8", "calibrate": True}),
}


@pytest.mark.parametrize(("make", "settings"), FITS.values(), ids=FITS)
def test_a_fit_on_workers_is_that_of_one_process(workers, rng, make, settings):
    X, Y = make(rng)
    here = fixed(**settings).fit(X, Y)
    with smoothlink.cluster(workers.client):
        there = fixed(**settings).fit(X, Y)
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=2e-3)
    np.testing.assert_allclose(there.thresholds_, here.thresholds_, rtol=0.02)
    assert there.summary_["workers"] == len(workers.workers)
    assert len({fitted.summary_["chosen_by"]["scale"].partition(":")[0] for fitted in (here, there)}) == 1


def test_what_is_auto_is_chosen_on_a_cluster_as_in_one_process(workers, rng):
    X, Y = words(rng)
    settings = {"rank": "auto", "ridge": "auto", "kernel__bandwidth": "auto", "calibrate": True}
    here = fixed(**settings).fit(X, Y)
    with smoothlink.cluster(workers.client):
        there = fixed(**settings).fit(X, Y)
    for name in ("rank", "ridge", "bandwidth", "final_ridge"):
        assert there.summary_[name] == here.summary_[name]
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("plan", [pytest.param("rows", marks=pytest.mark.slow), "columns"])
@pytest.mark.parametrize("groups", [None, np.arange(180) // 4], ids=["copies", "groups"])
def test_copies_and_groups_are_held_out_together_on_a_cluster_as_in_one_process(workers, rng, plan, groups):
    X, Y = words(rng)
    X, Y = sp.vstack([X, X], format="csr"), np.concatenate([Y, Y])  # a row and its copy are on different workers
    here = fixed(calibrate=True, solver=ConjugateGradient(tol=1e-5)).fit(X, Y, groups=groups)
    with smoothlink.cluster(workers.client, plan=plan):
        there = fixed(calibrate=True, solver=ConjugateGradient(tol=1e-5)).fit(X, Y, groups=groups)
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-2)
    assert there.summary_["copies"] == here.summary_["copies"] >= 80
    np.testing.assert_array_equal(there.training_rows_.hashes, here.training_rows_.hashes)


@pytest.mark.parametrize("plan", ["rows", "columns"])
@pytest.mark.parametrize("settings", [{}, {"class_weight": [1, 2, 3, 4, 5, 6]}], ids=["plain", "label weights"])
def test_a_plan_that_is_requested_gives_the_same_model(workers, rng, plan, settings):
    X, Y = words(rng)
    solver = ConjugateGradient(tol=1e-5)
    here = fixed(solver=solver, **settings).fit(X, Y)
    with smoothlink.cluster(workers.client, plan=plan):
        there = fixed(solver=solver, **settings).fit(X, Y)
    assert there.summary_["partitioned"] == plan
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=2e-3)


def test_columns_are_partitioned_where_x_fits_a_worker_and_conjugate_gradients_would_send_more(workers):
    few, many = (
        PartitionedData(workers, [], np.zeros(1), Header(1000, 10**5, 10**4, entries, None, None))
        for entries in (10**6, 10**10)
    )
    request = fixed(rank=200)._request()
    assert plan_partitions(few, request, "auto").by == "columns"
    assert plan_partitions(many, request, "auto").by == "rows"
    assert plan_partitions(few, fixed(rank=200, training="joint")._request(), "auto").by == "rows"
    assert plan_partitions(many, request, "columns").reason == "as requested"
    text = str(plan_partitions(few, request, "auto"))
    assert "3 workers, partitioned by columns (X fits a worker): each holds" in text
    data = PartitionedData(workers, [], np.zeros(1), Header(10**5, 2000, 10**4, 10**6, None, None))
    assert plan_partitions(data, fixed(rank=200, solver="cg")._request(), "auto").by == "columns"
    assert plan_partitions(data, fixed(rank=200, solver="cholesky")._request(), "auto").by == "rows"


@pytest.mark.parametrize("effort", ["full", "quick"])
def test_where_one_process_factors_the_dual_workers_iterate_until_their_model_is_the_same(workers, rng, effort):
    X, Y = words(rng, n=60, d=900)
    here = fixed(effort=effort).fit(X, Y)
    with smoothlink.cluster(workers.client):
        there = fixed(effort=effort).fit(X, Y)
    assert (here.summary_["solver"], there.summary_["solver"]) == ("DualCholesky", "ConjugateGradient")
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-3)


REFUSED = [
    {"device": "torch"},
    {"memory": "2G"},
    {"solver": DualCholesky()},
    {"training": "finetune"},
    {"embedding": PerLabel(object())},
]


@pytest.mark.parametrize("given", REFUSED, ids=lambda given: next(iter(given)))
def test_what_a_cluster_cannot_do_is_refused(workers, rng, given):
    name = next(iter(given))
    with smoothlink.cluster(workers.client), pytest.raises(ValueError, match=f"^{name}.* is "):
        fixed(**given).fit(*words(rng))


def test_rows_for_guarantees_are_the_same_on_a_cluster_and_refused_of_files(workers, rng, data, tmp_path):
    X, Y = words(rng, n=200)
    here = fixed(conformal=0.3, calibrate=True).fit(X, Y)
    with smoothlink.cluster(workers.client):
        there = fixed(conformal=0.3, calibrate=True).fit(X, Y)
        smoothlink.write(data, tmp_path / "rows.txt")
        with pytest.raises(ValueError, match="recalibrate_sets"):
            fixed(conformal=0.3).fit(smoothlink.Files.of([str(tmp_path / "rows.txt")]))
    assert there.summary_["conformal_rows"] == here.summary_["conformal_rows"] > 30
    np.testing.assert_array_equal(there.conformal_.labels, here.conformal_.labels)
    np.testing.assert_allclose(there.conformal_.probabilities, here.conformal_.probabilities, atol=2e-3)
    assert there.predict_set(X, coverage=0.5).shape == Y.shape
