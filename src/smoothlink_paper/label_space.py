"""PLST and CPLST as an estimator: the ridge is selected on held-out rows, everything else is as published."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from smoothlink.estimator import SmoothLinkClassifier
from smoothlink.fitting.calibration import Calibrated, HeldOut, calibrate, criterion, not_calibrated
from smoothlink.fitting.checkpoint import FitState
from smoothlink.fitting.choose import RIDGES, START, grid
from smoothlink.fitting.embedding import Embedded
from smoothlink.fitting.holdout import holdouts, without
from smoothlink.fitting.input_kernel import with_width
from smoothlink.fitting.link import label_totals
from smoothlink.fitting.prepare import make_problem, number_of_entries, scaled_inputs, start_settings
from smoothlink.fitting.settings import ChosenSettings, Clock, Notify, Problem, Request, Settings, TrainingData
from smoothlink.fitting.summary import Fitted, summarise
from smoothlink.machines.arrays import to_host
from smoothlink.machines.rows import Rows
from smoothlink.model import Model
from smoothlink.parameters import Values, check_value
from smoothlink.steps.calibrate import no_calibration
from smoothlink.steps.embed import embed_rows, label_means
from smoothlink.steps.featurize import draw_features, parse_kernel
from smoothlink.steps.scale import choose_scaling
from smoothlink.weights import ArrayWeights
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
    rank, ridge, task, class_weight, scale, input_kernel, solver, device, holdout, block_rows, random_state, verbose
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
        scale: str = "auto",
        input_kernel: Any = None,
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
            training="stepwise",
            task=task,
            class_weight=class_weight,
            scale=scale,
            input_kernel=input_kernel,
            solver=solver,
            device=device,
            holdout=holdout,
            calibrate=False,
            block_rows=block_rows,
            random_state=random_state,
            verbose=verbose,
        )
        self.method = method

    def _request(self, *, cluster: bool = False) -> Request:
        check_value("method", self.method, Values(tuple(METHODS)))
        if isinstance(self.input_kernel, str) and self.input_kernel == "auto":
            raise ValueError("input_kernel is 'auto', which LabelSpace cannot select; possible are None and a kernel.")
        if cluster:
            raise ValueError("LabelSpace cannot be fitted on a cluster; fit it outside of `with smoothlink.cluster()`.")
        return self._as_classifier()._request()

    def _as_classifier(self) -> SmoothLinkClassifier:
        """Returns a SmoothLinkClassifier with the same parameters and, once fitted, the same model."""
        plain = SmoothLinkClassifier()
        plain.__dict__.update({name: value for name, value in vars(self).items() if name != "method"})
        return plain

    def _train(self, data: TrainingData, request: Request, notify: Notify | None) -> Fitted:
        """Selects the ridge on held-out rows, then fits all of them; nothing is calibrated."""
        if data.label_weight is not None:
            raise ValueError("Label weights (class_weight of multilabel y) enter the embedding; LabelSpace has none.")
        clock, state = Clock(notify), FitState()
        with clock.step("scale"):
            scaling = choose_scaling(data.X, request.scale, data.w)
            A = scaled_inputs(data.X, scaling, request, state.plan)

        def pose(request: Request) -> tuple[Problem, Settings]:
            problem = make_problem(A, data, scaling, request, state)
            entries = number_of_entries(A) if problem.inputs.kernel is None else problem.rows.n * problem.rows.d
            return problem, start_settings(problem, request, entries)

        with clock.step("choose"):
            problem, settings = pose(with_width(request, pose))
            ridge, calibrated = choose_ridge(self.method, problem, settings, request)
        rows = problem.rows
        with clock.step("fit"):
            space = fit_space(self.method, settings, rows, ridge)
        rank = space.U.shape[1]
        model = Model(
            scaling=scaling,
            input_features=problem.inputs.features,
            W=ArrayWeights(problem.inputs.weights(space.W)),  # as in a model file: BLAS may round another order
            classifier=None,
            normalize=False,
            features=draw_features(parse_kernel("linear"), rank, 0, 1.0, 1.0, 0),
            V=ArrayWeights(np.ascontiguousarray(space.V)),
            loss="squared",
            multiclass=data.multiclass,
            calibration=no_calibration(),
            thresholds=calibrated.thresholds,
            **label_totals(rows),
        )
        settings = replace(settings, ridge=ridge, rank=rank, bandwidth=1.0, final_ridge=0.0)
        choice = ChosenSettings(problem, settings, {"ridge": "held-out rows" if request.ridge == "auto" else "given"})
        embedded = Embedded(space.U, space.W, None, np.zeros((0, rank)), np.zeros(0), float("nan"))
        summary = summarise(choice, embedded, calibrated, {}, clock)
        return Fitted(model, space.U, {**summary, "device": str(rows.machine), "peak_device_mb": rows.machine.peak_mb})

    def save(self, path: str | os.PathLike[str], dtype: str | None = None, prune: float = 0.0) -> None:
        """Writes the fitted model to a file, which loads as a SmoothLinkClassifier that predicts the same."""
        check_is_fitted(self)
        self._as_classifier().save(path, dtype, prune)


def fit_space(method: str, settings: Settings, rows: Rows, ridge: float) -> LinearLabelSpace:
    """Returns the label space of the rows of positive weight."""
    embedder = settings.embedder
    system = embedder.prepare(rows)
    assert system is not None
    return METHODS[method](rows, embedder.rank, system, ridge, np.random.default_rng([embedder.seed, 1]))


def choose_ridge(method: str, problem: Problem, settings: Settings, request: Request) -> tuple[float, Calibrated]:
    """Returns the ridge of the least held-out Brier score, and the thresholds that held-out rows give there."""
    ridges = [float(ridge) for ridge in grid(request.ridge, RIDGES)]
    folds = holdouts(problem.rows.w, request, problem.groups)
    if not folds:
        return (START["ridge"] if len(ridges) > 1 else ridges[0]), not_calibrated(problem.rows.c)
    tried = {ridge: [held_out(method, problem, settings, held, ridge) for held in folds] for ridge in ridges}
    best = min(ridges, key=lambda ridge: criterion(tried[ridge], "squared", multiclass=False)[0])
    frequencies = np.clip(label_means(problem.rows), 0, 1)
    return best, calibrate(tried[best], frequencies, "squared", multiclass=False, maps=False)


def held_out(method: str, problem: Problem, settings: Settings, held: Array, ridge: float) -> HeldOut:
    """Returns the rows numbered `held` with their scores from a fit without them."""
    space = fit_space(method, settings, without(problem.rows, held), ridge)
    H = to_host(problem.rows.take(held).map(embed_rows, space.W))
    S = H @ space.V[:-1] + space.V[-1]
    return HeldOut(lambda labels, count: S[:count, labels], problem.Y[held], problem.rows.w[held].astype(np.float64))
