"""Links without a parameter to learn (section 3): y = Cp, where C is the identity or the co-occurrence of labels."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from smoothlink.fitting.options import Setup
from smoothlink.fitting.setup import set_up

from smoothlink.estimator import SmoothLinkClassifier
from smoothlink.fitting.choose import RIDGES, Fold, axis, cut, holdouts
from smoothlink.model import Model
from smoothlink.predict import predictions
from smoothlink.steps.calibrate import Histogram
from smoothlink.steps.featurize import Features
from smoothlink.steps.scale import Scaling, choose_scaling
from smoothlink.weights import ArrayWeights
from smoothlink_paper.data import Split
from smoothlink_paper.methods import Answer

Array = NDArray[Any]
Operator = Callable[[sp.csr_array], Array]  # training labels Y (n, c) -> C (c, c)


def identity(Y: sp.csr_array) -> Array:
    """C = I: the activations of independent classifiers as they are."""
    return np.eye(Y.shape[1], dtype=np.float32)


def g0(Y: sp.csr_array) -> Array:
    """C = Y'Y/n: g0(p) = Cp weighs each training row's labels y_i by their inner product with the activations p."""
    C: Array = (Y.T @ Y).toarray() / np.float32(max(1, Y.shape[0]))
    return C.astype(np.float32)


def fixed_link(split: Split, seed: int, operator: Operator, **params: Any) -> Answer:
    """Independent ridge classifiers through a fixed link; their ridge and the calibration are from held-out rows.

    Every link here is calibrated alike, by one monotone map for all labels, which leaves each row's ranking alone:
    g0 shrinks activations by label frequencies, so without it a cut at 1/2 would find nothing.
    """
    began = time.perf_counter()
    options = SmoothLinkClassifier(embedding="identity", kernel="linear", random_state=seed, **params)._options()
    scaling = choose_scaling(split.train.X)
    setup = set_up(scaling(split.train.X), split.train.Y, None, options, False, None)
    cuts = [cut(setup.rows, setup.Y, held, setup.stage) for held in holdouts(setup.rows.w, options)]
    tried = {ridge: held_out(setup, cuts, ridge, operator) for ridge in map(float, axis(options.ridge, RIDGES))}
    ridge = min(tried, key=lambda r: tried[r].brier())
    model = fixed_model(setup, scaling, ridge, operator, tried[ridge])
    seconds = time.perf_counter() - began
    return Answer(predictions(model, model.embed(split.test.X), split.test.Y), seconds, {"ridge": ridge})


def held_out(setup: Setup, cuts: list[Fold], ridge: float, operator: Operator) -> Histogram:
    """The scores of rows that neither the classifiers nor C have seen, against their labels."""
    histogram = Histogram("squared")
    for fold in cuts:
        P = setup.stage.fit(fold.train, fold.system, ridge).H[fold.held]
        histogram.add(P @ operator(setup.Y[fold.train.w > 0]), fold.held_labels, fold.held_weights)
    return histogram


def fixed_model(setup: Setup, scaling: Scaling, ridge: float, operator: Operator, held: Histogram) -> Model:
    """A model whose decoder is C, with nothing added by the constant."""
    C = operator(setup.Y)  # symmetric, so P C are the rows Cp
    c = len(C)
    return Model(
        scaling=scaling,
        input_features=None,
        W=ArrayWeights(setup.stage.fit(setup.rows, setup.stage.prepare(setup.rows), ridge).W),
        classifier=None,
        normalize=False,
        features=Features(np.zeros((c, 0), np.float32), np.zeros(0, np.float32)),
        V=ArrayWeights(np.vstack([C, np.zeros((1, c), np.float32)])),
        loss="squared",
        multiclass=False,
        calibration=held.monotone(),
        counts=np.bincount(setup.Y.indices, minlength=c).astype(np.float64),
        total=float(setup.rows.n),
        thresholds=np.full(c, 0.5),
    )
