"""A correction of V is the solution for the rows that came, also of labels that are new, and is searched as V is."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from small import fixed

from smoothlink.candidates import CandidateSearch
from smoothlink.living.low_rank import CorrectedSearch
from smoothlink.weights import ArrayWeights


@pytest.fixture
def fitted():
    rng = np.random.default_rng(3)
    X = sp.csr_array(sp.random(150, 30, 0.2, rng=rng, dtype=np.float32))
    Y = sp.csr_array((rng.random((150, 60)) < 0.05).astype(np.float32))
    return fixed(updatable=True, kernel__features=9).fit(X, Y), X, Y


def waiting(model, X, Y):
    """Adds rows as where a solution takes long, and returns the model with the correction."""
    state = model._living
    state.factor, state.solved = state.sums.factor(), model._model.V.columns().copy()
    model.update(X, Y)
    assert state.waiting is not None
    return replace(model._model, V=state._corrected(), **state._frequencies())


def test_a_correction_with_new_labels_is_the_solution_for_all_rows(fitted):
    model, X, Y = fitted
    more = sp.csr_array(sp.hstack([Y[:5], np.ones((5, 2), np.float32)], format="csr"))
    corrected = waiting(model, X[:5], more)
    model._living._fold_in()
    expected = model._living.sums.solve(model._living.sums.factor())
    np.testing.assert_allclose(corrected.V.columns(), expected, atol=1e-5)


def test_the_search_in_codes_of_the_former_V_finds_the_best_labels_of_a_scan(fitted):
    model, X, Y = fitted
    former = model._model
    former_search = CandidateSearch(former, least_entries=1, most_share=1.0)
    former_search.prepare()
    more = sp.csr_array(sp.hstack([Y[:5], np.ones((5, 1), np.float32)], format="csr"))
    corrected = waiting(model, X[:5], more)
    search = CorrectedSearch(corrected, former_search)
    search.most_share = 1.0
    scanned = replace(corrected, V=ArrayWeights(corrected.V.columns()))
    for row in range(20):
        inputs = corrected.featurize(corrected.embed_rows(X[row : row + 1]))
        found = search.find(inputs, 3, "probability", corrected.log_odds)
        best = np.argsort(-scanned.score(scanned.featurize(scanned.embed_rows(X[row : row + 1])))[0])[:3]
        assert set(best.tolist()) <= set(found.tolist())
