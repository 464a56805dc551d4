"""PLST and CPLST as an estimator: the ridge is selected on held-out rows, everything else is as published."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from smoothlink.fitting.first_stage import Embedded
from smoothlink.fitting.inputs import with_width
from smoothlink.fitting.judge import Verdict
from smoothlink.fitting.options import Chosen, Clock, Notify, Options, Setup
from smoothlink.fitting.setup import inputs_for, set_up
from smoothlink.fitting.train import Trained, summarise

from smoothlink.distributed.client import current
from smoothlink.estimator import SmoothLinkClassifier
from smoothlink.fitting.checkpoint import Work
from smoothlink.fitting.checks import one_of
from smoothlink.fitting.choose import RIDGES, axis, holdouts
from smoothlink.machines.arrays import to_host
from smoothlink.machines.rows import Rows
from smoothlink.model import Model
from smoothlink.steps.calibrate import Histogram, no_calibration
from smoothlink.steps.embed import embed_rows, label_counts, label_means
from smoothlink.steps.featurize import draw_features, parse_kernel
from smoothlink.steps.infer import f1_thresholds
from smoothlink.steps.scale import choose_scaling
from smoothlink_paper.baselines import LinearLabelSpace, cplst, plst

Array = NDArray[Any]

METHODS = {"plst": plst, "cplst": cplst}


class LabelSpace(SmoothLinkClassifier):
    """Principal label space transformation (PLST) and its conditional form (CPLST), without a link function.

    The labels are projected to a few directions, these are predicted by ridge regression and decoded linearly, and
    labels above 1/2 are predicted. Probabilities are the decoded scores, not calibrated. Predictions, `evaluate` and
    `save` are those of SmoothLinkClassifier; a saved model loads as one.

    Parameters
    ----------
    method : {"plst", "cplst"}, default="plst"
        "plst": directions are the top eigenvectors of Yc'Yc (Tai and Lin 2012). "cplst": those of Yc'XX^+Yc (Chen and
        Lin 2012). Yc are the centred labels.
    rank, ridge, task, class_weight, rank_by, scale, input_kernel, input_bandwidth, input_features, input_map, \
penalize_constant, solver, device, holdout, block_rows, random_state, verbose
        As in SmoothLinkClassifier. `class_weight` is for one class per row. `input_kernel` is None by default.
    """

    def __init__(
        self,
        method: str = "plst",
        *,
        rank: Any = "auto",
        ridge: Any = "auto",
        task: str = "auto",
        class_weight: Any = None,
        rank_by: str = "probability",
        scale: str = "auto",
        input_kernel: str | None = None,
        input_bandwidth: Any = "auto",
        input_features: Any = "auto",
        input_map: str = "auto",
        penalize_constant: bool = False,
        solver: Any = "auto",
        device: str = "cpu",
        holdout: float = 0.1,
        block_rows: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            rank=rank,
            ridge=ridge,
            kernel="linear",
            loss="squared",
            task=task,
            negatives="all",
            class_weight=class_weight,
            rank_by=rank_by,
            scale=scale,
            input_kernel=input_kernel,
            input_bandwidth=input_bandwidth,
            input_features=input_features,
            input_map=input_map,
            penalize_constant=penalize_constant,
            solver=solver,
            device=device,
            holdout=holdout,
            calibrate=False,
            block_rows=block_rows,
            random_state=random_state,
            verbose=verbose,
        )
        self.method = method

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fits to X (n, d) and y, which are as in SmoothLinkClassifier."""
        one_of("method", self.method, tuple(METHODS))
        if self.input_kernel == "auto":
            raise ValueError("input_kernel is 'auto', which LabelSpace cannot select; possible are None and a kernel.")
        if current() is not None:
            raise ValueError("LabelSpace cannot be fitted on a cluster; fit it outside of `with smoothlink.cluster()`.")
        return super().fit(X, y, sample_weight)

    def _train(
        self,
        X: Any,
        Y: sp.csr_array,
        w: Array,
        options: Options,
        *,
        multiclass: bool,
        label_weight: Array | None,
        notify: Notify | None,
    ) -> Trained:
        """Selects the ridge on held-out rows, then fits all of them; nothing is calibrated."""
        if label_weight is not None:
            raise ValueError("Label weights (class_weight of multilabel y) enter the embedding; LabelSpace has none.")
        clock = Clock(notify)
        with clock.stage("scale"):
            scaling = choose_scaling(X, options.scale, w)
            A = inputs_for(X, scaling, options, Work().plan)

        def make(options: Options) -> Setup:
            return set_up(A, Y, w, options, multiclass, None)

        with clock.stage("choose"):
            setup = make(with_width(options, make))
            ridge, thresholds, held = choose_ridge(self.method, setup, options)
        with clock.stage("fit"):
            space = fit_space(self.method, setup, setup.rows, ridge)
        rank = space.U.shape[1]
        model = Model(
            scaling=scaling,
            input_features=setup.inputs.features,
            W=setup.inputs.weights(space.W),  # as a model file has them: BLAS may round another order otherwise
            classifier=None,
            normalize=False,
            features=draw_features(parse_kernel("linear"), rank, 0, 1.0, 1.0, np.random.default_rng(0)),
            V=np.ascontiguousarray(space.V),
            loss="squared",
            multiclass=multiclass,
            calibration=no_calibration(),
            counts=setup.rows.sum(label_counts, out=(setup.rows.c,), dtype=np.float64),
            total=float(setup.rows.w.sum(dtype=np.float64)),
            thresholds=thresholds,
        )
        chosen = Chosen(ridge, rank, 1.0, 0.0, "squared", 0)
        how = {"ridge": "held-out rows" if options.ridge == "auto" else "given"}
        first = Embedded(space.U, space.W, None, np.zeros((0, rank)), np.zeros(0), float("nan"))
        verdict = Verdict(chosen, model.calibration, thresholds, held, {})
        summary = summarise(chosen, how, first, setup, verdict, clock, scaling.kind)
        machine = setup.rows.machine
        return Trained(model, space.U, {**summary, "device": str(machine), "peak_device_mb": machine.peak_mb})

    def save(self, path: str | os.PathLike[str], dtype: str | None = None) -> None:
        """Writes the fitted model to a file, which loads as a SmoothLinkClassifier that predicts the same."""
        check_is_fitted(self)
        plain = SmoothLinkClassifier()
        plain.__dict__.update({name: value for name, value in vars(self).items() if name != "method"})
        plain.save(path, dtype)


def fit_space(method: str, setup: Setup, rows: Rows, ridge: float) -> LinearLabelSpace:
    """Fits the label space of the rows of positive weight."""
    system = setup.stage.prepare(rows)
    assert system is not None
    return METHODS[method](rows, setup.stage.rank, system, ridge, np.random.default_rng([setup.stage.seed, 1]))


def choose_ridge(method: str, setup: Setup, options: Options) -> tuple[float, Array, int]:
    """Returns the ridge of the least held-out Brier score, Algorithm 4's thresholds there, and the rows held out."""
    grid = [float(v) for v in axis(options.ridge, RIDGES)]
    held = holdouts(setup.rows.w, options)
    if not held:
        return (1.0 if len(grid) > 1 else grid[0]), np.full(setup.rows.c, 0.5), 0
    w = setup.rows.w
    weights = np.concatenate([w[h] for h in held]).astype(np.float64)
    tried = {ridge: held_scores(method, setup, held, ridge) for ridge in grid}

    def loss(ridge: float) -> float:
        histogram = Histogram("squared")
        histogram.add(tried[ridge], setup.Y[np.concatenate(held)], weights)
        return histogram.brier()

    best = min(grid, key=loss)
    share = np.clip(label_means(setup.rows), 0, 1)
    return best, f1_thresholds(np.clip(tried[best], 0, 1), share, weights), len(weights)


def held_scores(method: str, setup: Setup, held: list[Array], ridge: float) -> Array:
    """Returns the scores of the held-out rows of every fold, each from a fit without them."""
    scores = []
    for numbers in held:
        w = setup.rows.w.copy()
        w[numbers] = 0
        space = fit_space(method, setup, setup.rows.weighted(w), ridge)
        H = to_host(setup.rows.take(numbers).map(embed_rows, space.W))
        scores.append(H @ space.V[:-1] + space.V[-1])
    return np.concatenate(scores)
