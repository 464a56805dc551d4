"""One row is predicted from few labels, and its labels and probabilities are those of a scan of all."""

import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

from smoothlink.candidates import REPAID_SCANS, CandidateSearch
from smoothlink.errors import DataError
from smoothlink.machines.sparse_weights import SparseWeights
from smoothlink.model import Model
from smoothlink.predict import predict_topk
from smoothlink.steps.calibrate import Calibration, no_calibration, stretch
from smoothlink.steps.featurize import Features
from smoothlink.steps.scale import Scaling
from smoothlink.weights import ArrayWeights, to_half

NONE = np.zeros(0, np.float32)


def made(V, counts=None, *, loss="logistic", calibration=None, D=None, multiclass=False, half=False):
    """A model whose features are those of x, with these weights V (s + 1, c)."""
    s, c = V.shape[0] - 1, V.shape[1]
    weights = to_half(V) if half else ArrayWeights(V, one_row_entries=0)
    model = Model(
        scaling=Scaling("none", NONE, NONE, False),
        input_features=None,
        W=None,
        classifier=None,
        normalize=False,
        features=Features(np.zeros((s, 0), np.float32), NONE),
        V=weights,
        loss=loss,
        multiclass=multiclass,
        calibration=calibration or no_calibration(),
        counts=np.ones(c) if counts is None else counts,
        total=1000.0,
        thresholds=np.full(c, 0.5),
        sparse_weights=None if D is None else SparseWeights(D.indptr.astype(np.int64), D.indices, D.data),
    )
    vars(model)["candidate_search"] = CandidateSearch(model, least_entries=0, most_share=1)
    return model


def scanned_and_searched(model, X, k, rank_by="probability"):
    """The k best labels by a scan of all, and after the codes of the labels are made."""
    rows = model.embed_rows(X)
    before = predict_topk(model, rows, k, rank_by=rank_by)
    assert model.candidate_search.codes is None
    model.candidate_search.prepare()
    return before, predict_topk(model, rows, k, rank_by=rank_by)


def candidates(model, X, k):
    inputs = model.featurize(model.embed_rows(X))
    return model.candidate_search.find(inputs, k, "probability", model.log_odds)


def log_odds_maps(rng, counts, loss):
    """A calibration in which each label has a map, that of its count."""
    scores = np.sort(rng.normal(0, 0.5 if loss == "squared" else 4, 20))
    values = np.sort(rng.uniform(1e-6, 1 - 1e-6, 20))
    kinds = np.stack(
        [rng.normal(0, 2, 8), rng.uniform(0, 2, 8), *rng.uniform([[0.5], [-0.3], [-0.1]], [[2], [0.3], [0.1]], (3, 8))]
    )
    return Calibration(stretch(scores, loss), values, top1=(0.2, 0.8), labels=kinds[:, counts.astype(int) % 8])


COLUMNS = ("equal", "zero", "huge", "tiny", "coarse")
CHOICES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "s": st.sampled_from([1, 3, 64, 65, 130]),
        "more_labels": st.integers(0, 600),
        "size": st.sampled_from([1e-12, 0.1, 1, 1e6]),
        "few_directions": st.booleans(),
        "columns": st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from([0.02, 0.5, 1.0])),
        "untrained": st.booleans(),
        "loss": st.sampled_from(["logistic", "squared"]),
        "maps": st.booleans(),
        "sparse": st.sampled_from([0, 1, 1e4]),
        "rows": st.sampled_from([1e-3, 1, 30]),
        "whole_numbers": st.booleans(),
        "half": st.booleans(),
        "k": st.sampled_from([1, 5, 40, "all", "more"]),
        "rank_by": st.sampled_from(["probability", "psp"]),
    }
)


def problem(chosen):
    """A model with equal, empty, huge and tiny columns, with or without maps, sparse weights and untrained labels,
    some rows, and k."""
    rng, s = np.random.default_rng(chosen["seed"]), chosen["s"]
    c = 4 * (s + 1) + chosen["more_labels"]
    V = rng.standard_normal((s + 1, c), dtype=np.float32) * np.float32(chosen["size"])
    if chosen["few_directions"]:  # as in fitted models
        V[:-1] *= np.exp(-np.linspace(0, 8, s, dtype=np.float32))[:, None]
    for kind, share in chosen["columns"].items():
        some = rng.random(c) < share
        if kind == "equal":
            V[:, some] = V[:, :1]
        elif kind == "coarse":  # scores that are equal or nearly so
            V[:, some] = np.rint(V[:, some] * 2) / 2
        else:
            V[:, some] *= np.float32({"zero": 0, "huge": 1e9, "tiny": 1e-30}[kind])
    counts = rng.integers(0 if chosen["untrained"] else 1, 12, c).astype(np.float64)
    counts[0] = 1
    maps = log_odds_maps(rng, counts, chosen["loss"]) if chosen["maps"] else None
    D = None
    if chosen["sparse"]:
        D = sp.random_array((s + 1, c), density=0.1, format="csr", dtype=np.float32, rng=rng) * chosen["sparse"]
        D = sp.csr_array(D, dtype=np.float32)
    X = sp.csr_array(rng.standard_normal((3, s)) * chosen["rows"])
    if chosen["whole_numbers"]:
        X.data = np.rint(X.data)
        X.eliminate_zeros()
    k = {"all": c, "more": c + 3}.get(chosen["k"], chosen["k"])
    return made(V, counts, loss=chosen["loss"], calibration=maps, D=D, half=chosen["half"]), X, k


@pytest.mark.parametrize("examples", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_one_row_has_the_labels_and_probabilities_of_a_scan_of_all_to_the_last_bit(examples):
    @settings(max_examples=examples)
    @given(CHOICES)
    def check(chosen):
        model, X, k = problem(chosen)
        for i in range(X.shape[0]):
            vars(model)["candidate_search"] = CandidateSearch(model, least_entries=0, most_share=1)
            before, after = scanned_and_searched(model, X[[i]], k, chosen["rank_by"])
            np.testing.assert_array_equal(after.indices, before.indices)
            np.testing.assert_array_equal(after.data, before.data)

    check()


def low_rank(rng, s=200, c=6000):
    """Weights that few directions explain, as those of fitted models."""
    V = rng.standard_normal((s, c), dtype=np.float32) * np.exp(-np.arange(s, dtype=np.float32) / 30)[:, None]
    basis = np.linalg.qr(rng.standard_normal((s, s)))[0].astype(np.float32)
    return np.vstack([basis @ V, rng.standard_normal((1, c), dtype=np.float32)])


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_few_labels_are_candidates_and_they_take_little_memory(rng, loss):
    V = low_rank(rng)
    counts = rng.integers(1, 50, V.shape[1]).astype(np.float64)
    model = made(V, counts, loss=loss, calibration=log_odds_maps(rng, counts, loss))
    model.candidate_search.prepare()
    found = candidates(model, sp.csr_array(rng.standard_normal((1, 200))), 5)
    assert 5 <= len(found) <= V.shape[1] / 16
    assert (np.diff(found) > 0).all()
    assert model.candidate_search.codes.nbytes == model.candidate_search.nbytes < 0.45 * V.nbytes


def test_rows_together_have_the_labels_that_they_have_alone(rng):
    D = sp.random_array((201, 6000), density=0.01, format="csr", dtype=np.float32, rng=rng)
    model, X = made(low_rank(rng), D=D), sp.csr_array(rng.standard_normal((5, 200)))
    model.candidate_search.prepare()
    assert candidates(model, X, 3) is not None
    together = predict_topk(model, model.embed_rows(X), 3)
    alone = [predict_topk(model, model.embed_rows(X[[i]]), 3) for i in range(5)]
    np.testing.assert_array_equal(together.indices, np.concatenate([one.indices for one in alone]))
    np.testing.assert_allclose(together.data, np.concatenate([one.data for one in alone]), rtol=1e-4)


def test_codes_are_made_once_scans_have_taken_as_long_as_making_them(rng):
    model, X = made(low_rank(rng, 20, 400)), sp.csr_array(rng.standard_normal((1, 20)))
    for _ in range(REPAID_SCANS):
        assert candidates(model, X, 2) is None
    assert model.candidate_search.codes is None
    assert candidates(model, X, 2) is not None


def test_codes_are_not_part_of_a_stored_model(rng):
    model = made(low_rank(rng, 20, 400))
    before = len(pickle.dumps(model))
    model.candidate_search.prepare()
    assert model.candidate_search.codes is not None
    assert len(pickle.dumps(model)) == before


@pytest.mark.parametrize("case", ["multiclass", "small", "many rows", "no features", "k of most", "maps that fall"])
def test_all_labels_are_scanned_where_candidates_cannot_be_had_or_do_not_pay(rng, case):
    maps = Calibration(np.array([-1.0, 1.0]), np.array([0.2, 0.8]), labels=np.full((5, 400), -1.0))
    model = made(low_rank(rng, 20, 400), multiclass=case == "multiclass", calibration=maps if "fall" in case else None)
    X, k = sp.csr_array(rng.standard_normal((100 if case == "many rows" else 1, 20))), 2
    if case == "small":
        del vars(model)["candidate_search"]
    if case == "no features":
        X = sp.csr_array((1, 20))
    if case == "k of most":
        k = 300
    model.candidate_search.prepare()
    assert candidates(model, X, k) is None
    assert (model.candidate_search.nbytes == 0) == (case in ("multiclass", "small"))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_weights_that_are_not_numbers_give_the_same_error_after_the_codes_were_asked_for(rng, wrong):
    V = low_rank(rng, 20, 400)
    V[3, 7] = wrong
    V[4, 7] = -wrong
    model, X = made(V), sp.csr_array(np.ones((1, 20)))
    model.candidate_search.prepare()
    with pytest.raises(DataError, match="1 of 400 scores are NaN"):
        predict_topk(model, model.embed_rows(X), 2)
