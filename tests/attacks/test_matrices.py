"""Sparse matrices whose arrays do not fit together are refused before compiled code trusts them."""

import numpy as np
import pytest
import scipy.sparse as sp
from small import fixed, words

import smoothlink
from smoothlink import Data, DataError
from smoothlink.metrics.evaluate import Predictions

FAR = 10**8


def index_too_large(A):
    A.indices[1] = FAR


def index_negative(A):
    A.indices[1] = -FAR


def pointer_too_large(A):
    A.indptr[1] = FAR


def pointers_that_fall(A):
    A.indptr[1] = A.indptr[2] + 1


def pointer_beyond_the_entries(A):
    A.indptr[-1] = FAR


def fewer_values_than_indices(A):
    A.data = A.data[:-1]


DAMAGE = [
    *(index_too_large, index_negative, pointer_too_large, pointers_that_fall),
    *(pointer_beyond_the_entries, fewer_values_than_indices),
]


@pytest.fixture(scope="module")
def fitted():
    X, Y = words(np.random.default_rng(0))
    return fixed().fit(X, sp.csr_array(Y)), X, sp.csr_array(Y.astype(np.float32))


def uses(fitted, path):
    """Every way into the library, and a sound matrix that it takes."""
    model, X, Y = fitted
    counts = {"label_counts": np.ones(Y.shape[1]), "n_train": 9}
    return [
        (X, lambda A: fixed().fit(A, Y)),
        (X, model.predict_proba),
        (X, lambda A: model.predict_topk(A, k=2)),
        (X, lambda A: smoothlink.explain(model, A)),
        (X, lambda A: smoothlink.write(Data(A, Y), path)),
        (Y, lambda A: fixed().fit(X, A)),
        (Y, lambda A: model.score(X, A)),
        (Y, lambda A: smoothlink.write(Data(X, A), path)),
        (Y, lambda A: smoothlink.stratified_split(A, [0.5, 0.5])),
        (Y, lambda A: smoothlink.evaluate(A, Predictions(sets=Y), **counts)),
        (Y, lambda A: smoothlink.evaluate(Y, Predictions(sets=A), **counts)),
    ]


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_indices_that_do_not_fit_the_shape_are_refused_wherever_a_matrix_comes_in(fitted, tmp_path, damage, form):
    for sound, use in uses(fitted, tmp_path / "a.txt"):
        A = sound.asformat(form, copy=True)
        damage(A)
        with pytest.raises(DataError, match="whose indices do not fit its shape"):
            use(A)
    assert not list(tmp_path.iterdir())


def test_coordinates_outside_the_shape_are_refused(fitted):
    model, X, _ = fitted
    for place in (FAR, -FAR):
        A = X.tocoo(copy=True)
        A.coords[1][0] = place
        with pytest.raises(DataError, match="whose indices do not fit its shape"):
            model.predict(A)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "lil", "dok"])
def test_sound_matrices_of_every_form_give_the_same_predictions(fitted, form):
    model, X, _ = fitted
    np.testing.assert_allclose(model.predict_proba(X.asformat(form)), model.predict_proba(X), rtol=1e-6)
