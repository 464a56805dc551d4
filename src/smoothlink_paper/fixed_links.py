"""Links without a parameter to learn (section 3): y = Cp, where C is the identity or the co-occurrence of labels."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.estimator import SmoothLinkClassifier
from smoothlink.fitting.checkpoint import FitState
from smoothlink.fitting.choose import RIDGES, Fold, grid, make_fold
from smoothlink.fitting.embedding import Embedder
from smoothlink.fitting.holdout import holdouts
from smoothlink.fitting.link import label_totals
from smoothlink.fitting.prepare import make_problem, number_of_entries, start_settings
from smoothlink.fitting.settings import Problem, TrainingData
from smoothlink.model import Model
from smoothlink.predict import predictions
from smoothlink.steps.calibrate import Histogram
from smoothlink.steps.featurize import Features
from smoothlink.steps.scale import choose_scaling
from smoothlink.weights import ArrayWeights
from smoothlink_paper.data_sets import Split
from smoothlink_paper.result import Result, kept

Array = NDArray[Any]
Operator = Callable[[sp.csr_array], Array]  # training labels Y (n, c) -> C (c, c)


def identity(Y: sp.csr_array) -> Array:
    """Returns C = I: the activations of independent classifiers as they are."""
    return np.eye(Y.shape[1], dtype=np.float32)


def g0(Y: sp.csr_array) -> Array:
    """Returns C = Y'Y/n: g0(p) = Cp weighs the labels y_i of each training row by y_i'p, p being the activations."""
    C: Array = (Y.T @ Y).toarray() / np.float32(max(1, Y.shape[0]))
    return C.astype(np.float32)


@kept
def fixed_link(split: Split, seed: int, operator: Operator, **params: Any) -> Result:
    """Returns independent ridge classifiers through a fixed link; held-out rows choose their ridge and calibrate.

    Every link here is calibrated alike, by one monotone map for all labels, which leaves each row's ranking alone:
    g0 shrinks activations by label frequencies, so without it a cut at 1/2 would find nothing.
    """
    began = time.perf_counter()
    request = SmoothLinkClassifier(embedding="per_label", kernel="linear", random_state=seed, **params)._request()
    X, Y = split.train.X, split.train.Y
    scaling = choose_scaling(X)
    A = scaling(X)
    problem = make_problem(A, TrainingData(X, Y, None, False), scaling, request, FitState())
    embedder = start_settings(problem, request, number_of_entries(A)).embedder
    folds = [make_fold(problem.rows, Y, held, embedder, at_once=False) for held in holdouts(problem.rows.w, request)]
    tried = {ridge: held_out(embedder, Y, folds, ridge, operator) for ridge in map(float, grid(request.ridge, RIDGES))}
    ridge = min(tried, key=lambda r: tried[r].brier())
    model = fixed_model(problem, embedder, ridge, operator, tried[ridge])
    seconds = time.perf_counter() - began
    return Result(predictions(model, model.embed_rows(split.test.X), split.test.Y), seconds, {"ridge": ridge})


def held_out(embedder: Embedder, Y: sp.csr_array, folds: list[Fold], ridge: float, operator: Operator) -> Histogram:
    """Returns the scores of rows that neither the classifiers nor C have seen, against their labels."""
    histogram = Histogram("squared")
    for fold in folds:
        P = embedder.fit(fold.train, fold.system, ridge).H[fold.held]
        histogram.add(P @ operator(Y[fold.train.w > 0]), fold.held_labels, fold.held_weights)
    return histogram


def fixed_model(problem: Problem, embedder: Embedder, ridge: float, operator: Operator, held: Histogram) -> Model:
    """Returns a model whose decoder is C, without an intercept."""
    C, rows = operator(problem.Y), problem.rows  # C is symmetric, so P C are the rows Cp
    c = len(C)
    return Model(
        scaling=problem.scaling,
        input_features=None,
        W=ArrayWeights(embedder.fit(rows, embedder.prepare(rows), ridge).W),
        classifier=None,
        normalize=False,
        features=Features(np.zeros((c, 0), np.float32), np.zeros(0, np.float32)),
        V=ArrayWeights(np.vstack([C, np.zeros((1, c), np.float32)])),
        loss="squared",
        multiclass=False,
        calibration=held.monotone(),
        thresholds=np.full(c, 0.5),
        **label_totals(rows),
    )
