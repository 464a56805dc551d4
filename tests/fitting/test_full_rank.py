"""The ridge onto all labels as a fit: when it is chosen, what it says, and that everything works with it."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from problems import Problem, posed, relative_error, request
from sklearn.linear_model import Ridge

from smoothlink import SmoothLinkClassifier, explain, load
from smoothlink.fitting import full_rank, run
from smoothlink.fitting.quick import RANK
from smoothlink.machines.rows import Rows
from smoothlink.solve import DualCholesky
from smoothlink.solve.leave_out import fitted_ridge
from smoothlink.steps.calibrate import no_calibration

SIZE = 1100  # more rows, features and labels than the embedding has directions


def rare_labels(rng, size=SIZE, rows=SIZE + 100):
    """Rows of a few words; a word is a label in most of the rows that have it, so that the rank is that of X."""
    X = sp.random_array((rows, size), density=4 / size, rng=rng, dtype=np.float32, format="csr")
    X.data[:] = 1 + rng.random(X.nnz)
    said = X.multiply(rng.random(X.shape) < 0.8).tocsr()
    said.eliminate_zeros()
    return X, sp.csr_array((np.ones(said.nnz, np.float32), said.indices, said.indptr), said.shape)


def with_intercept(X):
    return sp.csr_array(sp.hstack([X, np.ones((X.shape[0], 1), np.float32)], format="csr"))


@pytest.fixture(scope="module")
def data():
    return rare_labels(np.random.default_rng(0))


@pytest.fixture(scope="module")
def fitted(data):
    return SmoothLinkClassifier(random_state=0).fit(*data)


def test_more_labels_than_directions_are_fitted_at_full_rank_and_the_summary_says_so(fitted):
    summary = fitted.summary_
    assert summary["rank"] == SIZE
    assert summary["chosen_by"]["rank"] == "full rank, held-out rows"
    assert summary["chosen_by"]["ridge"] == "held-out rows"
    assert summary["sparse_weights"] > 0
    assert summary["held_out_metrics"]["p@1"] > 0.5


def test_scores_are_those_of_scikit_learns_ridge(data, fitted):
    X, Y = data
    A = fitted.model_.scaling(X).toarray()[:, :-1]
    rho = fitted.summary_["ridge"] * (A**2).sum() / np.count_nonzero((A**2).sum(axis=0))
    wanted = Ridge(alpha=rho, solver="cholesky").fit(A, Y.toarray()).predict(A[:20])
    model, trained = replace(fitted.model_, calibration=no_calibration()), ~fitted.model_.untrained
    assert relative_error(model.scores(model.embed_rows(X[:20]))[:, trained], wanted[:, trained]) < 1e-3


def test_a_saved_model_predicts_and_explains_as_before(data, fitted, tmp_path):
    X = data[0][:5]
    fitted.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert (loaded.predict_topk(X) != fitted.predict_topk(X)).nnz == 0
    for explanation in explain(fitted, X[[0]], top=None):
        total = explanation.base + sum(reason.added for reason in explanation.reasons) + explanation.rest
        assert total == pytest.approx(explanation.score, abs=1e-5)


def test_only_the_largest_weights_are_kept_where_they_are_too_many(data):
    X, Y = data
    rows = Rows.of(with_intercept(X), Y)
    ridge = fitted_ridge(rows, DualCholesky().prepare(rows).at(1.0))
    least = full_rank.least_weight(ridge, sp.csc_array(Y), most=20_000)
    sizes = np.abs(ridge.label_weights(sp.csc_array(Y))[:-1])
    assert 15_000 < np.count_nonzero(sizes > least) < 25_000


def test_quick_fits_are_at_full_rank_too(data):
    fitted = SmoothLinkClassifier(random_state=0, effort="quick").fit(*data)
    assert fitted.summary_["chosen_by"]["rank"] == "full rank"
    assert fitted.summary_["chosen_by"]["ridge"] == "rule of thumb"


@pytest.mark.parametrize(
    "given",
    [
        {"rank": 8},
        {"kernel": "gaussian"},
        {"loss": "squared"},
        {"training": "stepwise"},
        {"embedding": "principal"},
        {"memory": "2G"},
    ],
    ids=str,
)
def test_a_setting_that_only_the_link_has_leaves_the_link(data, given):
    p = Problem(with_intercept(data[0]), data[1], np.ones(data[0].shape[0]))
    problem = posed(p, request())[0]
    assert full_rank.suits_full_rank(problem, request())
    assert not full_rank.suits_full_rank(problem, request(**given))


def test_a_link_with_the_directions_of_its_trial_is_fitted_where_held_out_rows_prefer_it(data, monkeypatch):
    best = full_rank.LinkTrial(0.0, np.arange(SIZE))
    monkeypatch.setattr(run, "try_link", lambda problem, settings, request: best)

    def by_the_link(pose, request, *_):
        assert pose(request)[1].embedder.rank == RANK
        raise InterruptedError

    monkeypatch.setattr(run, "fit_fully", by_the_link)
    with pytest.raises(InterruptedError):
        SmoothLinkClassifier(random_state=0).fit(*data)


def test_dense_rows_keep_all_weights(rng):
    X, Y = rare_labels(rng)
    fitted = SmoothLinkClassifier(random_state=0, effort="quick", scale="none").fit(X.toarray() + 0.1, Y)
    assert fitted.summary_["rank"] == SIZE
    assert fitted.model_.V.shape == (SIZE + 1, SIZE)
    assert np.isfinite(fitted.predict_proba(X[:3].toarray() + 0.1)).all()
