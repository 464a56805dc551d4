"""SmoothLinkClassifier: the scikit-learn face of the path. It checks, calls the steps, and does no mathematics."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from numbers import Integral
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from smoothlink import persist
from smoothlink.fitting.checks import check_options, check_weights, one_of, whole
from smoothlink.fitting.cluster import spread_arrays, spread_files, train_spread
from smoothlink.fitting.files import Files
from smoothlink.fitting.options import Notify, Options
from smoothlink.fitting.setup import feature_count
from smoothlink.fitting.train import Trained, train
from smoothlink.machines.cluster import current
from smoothlink.machines.files import Mapped
from smoothlink.machines.threads import alone
from smoothlink.model import Model
from smoothlink.predict import (
    Placement,
    one_each,
    predict_f1,
    predict_proba,
    predict_scores,
    predict_sets,
    predict_topk,
    predictions,
)
from smoothlink.steps.evaluate import Evaluation, Predictions, evaluate
from smoothlink.targets import read_classes, read_indicator, read_targets, weigh

Array = NDArray[Any]
Answer = TypeVar("Answer")

RANKINGS = ("probability", "psp")
FEW_ENTRIES = 1 << 16  # of rows that are looked through in the blink that scikit-learn's own checks take


class SmoothLinkClassifier(ClassifierMixin, BaseEstimator):
    """Multilabel and multiclass classification through a smooth, low-rank link function.

    Nothing has to be tuned: whatever is "auto" is settled on held-out rows, cut before anything is fitted.

    Parameters
    ----------
    rank : "auto", int, float in (0, 1] or "adaptive", default="auto"
        Label directions kept. A share is the paper's rule: the fewest that hold this much of tr Y'Y (multiclass: of
        tr Y'PY). "adaptive" adds 64 at a time while they pay. "auto": all where labels are few, else by held-out rows.
    embedding : {"randomized", "random", "principal", "identity", "none"}, default="randomized"
        Which label directions: those the features predict best (Algorithm 1), Gaussian ones (compressed sensing), top
        eigenvectors of Y'Y, one a label (Algorithm 2), or none (the link sees x itself).
    ridge : "auto" or float, default="auto"
        Relative ridge of the first stage: a multiple of the mean diagonal of X'X.
    kernel : str, default="auto"
        "gaussian", "matern(NU)", "exponential", "laplacian" or "linear" (no random features, so no bandwidth). "auto":
        "gaussian", but "linear" where labels are drawn (see `negatives`).
    bandwidth : "auto" or float, default="auto"
        Kernel width in units of the median distance between embedded rows; larger is smoother.
    n_features : "auto" or int, default="auto"
        Random features.
    final_ridge : "auto" or float, default="auto"
        Relative ridge of the decoder.
    loss : {"auto", "squared", "logistic", "softmax"}, default="auto"
        Loss of the decoder; softmax is for multiclass.
    task : {"auto", "multilabel", "multiclass"}, default="auto"
        "auto" is multiclass when every training row has exactly one label.
    passes : "auto" or int, default="auto"
        Passes of the logistic or softmax descent; "auto" stops on held-out rows.
    learning_rate : float, default=1.0
        Of the descent, in units of the rate that stays stable with this ridge, batch and momentum.
    momentum : float, default=0.9
        Of the descent.
    decay : float, default=0.9
        Of the learning rate, a pass.
    batch_rows : int or None, default=None
        Rows a step of the descent; None is a tenth of all, of very many rows a 64th; 544 where labels are drawn, 512 in
        fine-tuning.
    negatives : "auto", "all" or int, default="auto"
        With very many labels and sparse rows: labels drawn at random for each batch of alike rows, which sees these and
        those that its rows have; embedding and decoder are then trained together. "all": every batch sees every label,
        as in the paper. "auto": all, or 500 where from 2000 labels on passes over all of them would take too long.
    direct : bool, default=True
        Whether labels also have weights for the single features they were seen with, where labels are drawn or the
        model is fine-tuned, and such pairs are less than 200 million.
    label_smoothing : float in (0.5, 1], default=1.0
        a: labels become (2a-1) y + (1-a), or for multiclass a y + (1-a)/c. 1 leaves them as they are.
    class_weight : None, "balanced", dict or array, default=None
        One weight a label, by id or in the order of classes_. Multiclass: example weights by class, as in
        scikit-learn. Multilabel: weights of labels in the embedding, where embedding has one to weigh.
    rank_by : {"probability", "psp"}, default="probability"
        What `predict_topk` sorts by; "psp" favours rare labels by their inverse propensity.
    scale : {"auto", "none", "unit", "variance"}, default="auto"
        Rows to unit length (text) or dense columns to unit variance; part of the model.
    normalize_embedding : bool, default=False
        Whether embedded rows are scaled to unit length.
    quasi_random : {None, "sobol", "latin"}, default=None
        Evenly spread instead of independent frequencies.
    input_kernel : "auto", str or None, default="auto"
        A kernel that the first stage sees x through; None: x itself. "auto": a Gaussian where X is a dense table,
        `ridge` is "auto" and held-out rows clearly like it.
    input_bandwidth : "auto" or float, default="auto"
        Its width, in units of the median distance between rows.
    input_features : "auto" or int, default="auto"
        How many landmarks or random features it has; "auto" is one a row up to 2000.
    input_map : {"auto", "landmarks", "random"}, default="auto"
        Kernel values at training rows, exact where every row is one, or random Fourier features, as embedding="none"
        and a `first_stage` need them. "auto": landmarks where possible.
    first_stage : scikit-learn classifier or None, default=None
        With embedding="identity": its decision functions, one clone a label, are what the link sees (Algorithm 2).
    power : int, default=1
        Power steps of the embedding, at least 1.
    oversample : int, default=20
        Directions probed beyond the rank.
    half_step : bool, default=False
        Directions from the left singular vectors of Y'XZ: half a power step, for one more solve.
    penalize_constant : bool, default=False
        Whether the ridge of the first stage counts and penalises the constant, as the authors' code does.
    solver : {"auto", "cholesky", "dual", "cg"} or a solver of smoothlink.solve, default="auto"
        How ridge systems are solved: exactly over features, exactly over rows, or by conjugate gradients; "auto" by
        predicted cost. `summary_` has the iterations and the residual of the last.
    effort : {"full", "quick"}, default="full"
        "quick": what is "auto" follows rules of thumb instead of trials, and one fit does without the 5 % of the rows
        (5000 at most) that calibrate it. In about a tenth of the time of "full", 0 to 2.2 points of P@1 below it on the
        five sets of the benchmarks; on tables that mix numbers with one-hot columns more may be lost.
    finetune : bool or int, default=False
        Beyond the paper: from the fitted embedding on, W, the frequencies and phases, V and, for sparse rows, weights
        of labels for single features are trained together by gradient steps (torch), as long as held-out rows gain, at
        most 4 passes; a number: that many. The loss is logistic or softmax.
    dropout : float in [0, 1), default=0.3
        Share of the features of a row that a step of the fine-tuning does not see.
    device : str, default="cpu"
        "cpu", "cuda", "cuda:1" and so on (torch), "auto" for a card where there is one, or "torch" for torch on the
        processor. Where the fit and the predictions run; results differ by rounding alone.
    holdout : float, default=0.1
        Share of rows held out by each "auto" and by the calibration.
    calibrate : bool, default=True
        Whether scores become probabilities through a map fitted on held-out rows.
    block_rows : int or None, default=None
        Rows a block; results do not depend on it beyond rounding.
    memory : int, str or None, default=None
        What the process may hold while it fits, such as "4G" (or bytes): X, the embedding and V then go in parts or
        to files. Too little is refused at once, with what is needed. None: as much as it takes.
    checkpoint : str or None, default=None
        A folder where the fit puts its state by: killed and started again in the same way, it goes on from there and
        ends with the same model. Remove the folder afterwards.
    random_state : int, RandomState or None, default=0
        Seeds every draw; a number makes runs repeat exactly on one machine.
    verbose : int, default=0
        1 writes each stage to standard error.

    Attributes
    ----------
    classes_ : class ids, or 0 .. c - 1 for an indicator matrix.
    summary_ : rank, captured share, ridges, what chose them, seconds and memory of each stage.
    thresholds_ : one a label, fitted by Algorithm 4 on held-out rows.
    label_directions_ : U (c, k), or None.
    label_names_, n_features_in_, feature_names_in_ : as usual.
    zero_based_ : whether the svmlight files it was trained on count features from 0; None for other data.

    Notes
    -----
    A parameter speaks to one part of the model, and is not looked at where that part is absent:

    - `rank`: not with embedding="identity" or "none". `power`, `oversample`, `half_step`: only with "randomized", and
      without effect where rank + oversample reaches the number of labels, since then every direction is probed.
    - `ridge`, `penalize_constant`, `solver`: not with embedding="none", nor with a `first_stage`, which has its own.
    - `bandwidth`, `n_features`, `quasi_random`: not with kernel="linear".
    - `passes`, `learning_rate`, `momentum`, `decay`, `batch_rows`: only with the logistic and softmax losses.
    - `dropout`: only with `finetune`. `direct`: only there and where labels are drawn. Where they are, embedded rows
      always have unit length, `momentum` and `decay` are not looked at, `ridge`, `power` and `oversample` only serve to
      find alike rows, and `rank` "auto" is 512.
    - `input_bandwidth`, `input_features`, `input_map`: only with an `input_kernel`; `quasi_random` applies to its
      draws as well where they are random features.
    - `effort`: not where labels are drawn, which has no trials. `holdout`: not with effort="quick".
    """

    def __init__(
        self,
        rank: Any = "auto",
        *,
        embedding: str = "randomized",
        ridge: Any = "auto",
        kernel: str = "auto",
        bandwidth: Any = "auto",
        n_features: Any = "auto",
        final_ridge: Any = "auto",
        loss: str = "auto",
        task: str = "auto",
        passes: Any = "auto",
        learning_rate: float = 1.0,
        momentum: float = 0.9,
        decay: float = 0.9,
        batch_rows: int | None = None,
        negatives: Any = "auto",
        direct: bool = True,
        label_smoothing: float = 1.0,
        class_weight: Any = None,
        rank_by: str = "probability",
        scale: str = "auto",
        normalize_embedding: bool = False,
        quasi_random: str | None = None,
        input_kernel: str | None = "auto",
        input_bandwidth: Any = "auto",
        input_features: Any = "auto",
        input_map: str = "auto",
        first_stage: Any = None,
        power: int = 1,
        oversample: int = 20,
        half_step: bool = False,
        penalize_constant: bool = False,
        solver: Any = "auto",
        effort: str = "full",
        finetune: Any = False,
        dropout: float = 0.3,
        device: str = "cpu",
        holdout: float = 0.1,
        calibrate: bool = True,
        block_rows: int | None = None,
        memory: Any = None,
        checkpoint: Any = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.embedding = embedding
        self.ridge = ridge
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.n_features = n_features
        self.final_ridge = final_ridge
        self.loss = loss
        self.task = task
        self.passes = passes
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.decay = decay
        self.batch_rows = batch_rows
        self.negatives = negatives
        self.direct = direct
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight
        self.rank_by = rank_by
        self.scale = scale
        self.normalize_embedding = normalize_embedding
        self.quasi_random = quasi_random
        self.input_kernel = input_kernel
        self.input_bandwidth = input_bandwidth
        self.input_features = input_features
        self.input_map = input_map
        self.first_stage = first_stage
        self.power = power
        self.oversample = oversample
        self.half_step = half_step
        self.penalize_constant = penalize_constant
        self.solver = solver
        self.effort = effort
        self.finetune = finetune
        self.dropout = dropout
        self.device = device
        self.holdout = holdout
        self.calibrate = calibrate
        self.block_rows = block_rows
        self.memory = memory
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = True
        return tags

    def set_params(self, **params: Any) -> Self:
        """As in scikit-learn; another `device` lets go of what the last one holds of the model."""
        super().set_params(**params)
        if "device" in params and hasattr(self, "_placement"):
            self._placement.drop()
        return self

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fits to X (n, d), CSR or dense, and y: class ids (n,), or a 0/1 matrix (n, c), sparse or dense.

        Within `with smoothlink.cluster(...)` the fit runs on a cluster; there X may be `smoothlink.Files`, which the
        workers read themselves, labels included.

        Weights count rows: weight 2 is the row seen twice. So they should be about 1 on average, not sum to 1: label
        frequencies are smoothed by half a row, and propensities depend on how many rows there are.
        """
        if isinstance(X, Files):
            if y is not None or sample_weight is not None:
                raise ValueError("Files hold their labels and have no weights: pass nothing but them.")
            return self._fit_files(X)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        if isinstance(X, Mapped):  # looked through when it was read
            self.n_features_in_ = X.shape[1]
        else:
            X = _tidy(validate_data(self, X, accept_sparse="csr", dtype=np.float32))
        targets = read_targets(y, self.task)
        if targets.Y.shape[0] != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {targets.Y.shape[0]}; they must be as many.")
        options = check_options(self._options(), multiclass=targets.multiclass)
        one_of("rank_by", self.rank_by, RANKINGS)
        whole("verbose", self.verbose if not isinstance(self.verbose, bool) else int(self.verbose), 0)
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        w, label_weight = weigh(targets, w, self.class_weight)
        check_weights(w, targets.Y, label_weight, options)
        notify = getattr(self, "_notify", None) or (_to_stderr if self.verbose else None)
        cluster = current()
        if cluster is not None:
            spread = spread_arrays(cluster, X, targets.Y)
            task = "multiclass" if targets.multiclass else "multilabel"
            trained, _ = train_spread(spread, w.astype(np.float32), options, task, label_weight, notify, self._noted())
            return self._keep(trained, targets.classes, indicator=targets.indicator, sparse=targets.sparse)
        with alone(_largest_product(X, targets.Y.shape[1], options)):
            trained = self._train(
                X, targets.Y, w, options, multiclass=targets.multiclass, label_weight=label_weight, notify=notify
            )
        return self._keep(trained, targets.classes, indicator=targets.indicator, sparse=targets.sparse)

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
        """Fits a model to checked arrays; subclasses fit models of other kinds."""
        return train(
            X, Y, w, options, multiclass=multiclass, label_weight=label_weight, notify=notify, note=self._noted()
        )

    def _fit_files(self, files: Files) -> Self:
        """Fits to files that the workers of a cluster read themselves."""
        cluster = current()
        if cluster is None:
            raise ValueError("Files are for clusters: use `with smoothlink.cluster(...)`, or pass X and y.")
        if self.class_weight is not None:
            raise ValueError(f"class_weight is {self.class_weight!r}, which files cannot have; pass X and y, or None.")
        one_of("rank_by", self.rank_by, RANKINGS)
        notify = getattr(self, "_notify", None) or (_to_stderr if self.verbose else None)
        spread = spread_files(cluster, files)
        trained, _ = train_spread(spread, None, self._options(), self.task, None, notify, self._noted())
        header = spread.header
        self.n_features_in_ = header.features
        self._keep(trained, np.arange(header.labels), indicator=True, sparse=True, names=header.label_names)
        self.zero_based_: bool | None = header.zero_based
        if header.feature_names is not None:
            self.feature_names_in_ = np.array(header.feature_names, dtype=object)
        return self

    def _noted(self) -> Any:
        return getattr(self, "_note", None) or (_note_to_stderr if self.verbose else None)

    def _keep(
        self, trained: Trained, classes: Array, *, indicator: bool, sparse: bool, names: list[str] | None = None
    ) -> Self:
        """What a fit leaves."""
        self.classes_ = classes
        self.model_: Model = trained.model
        self._placement = Placement()
        self.label_directions_ = trained.U
        self.summary_ = trained.summary
        self.thresholds_ = trained.model.thresholds
        self.label_names_ = names
        self.zero_based_ = None
        self._indicator, self._sparse = indicator, sparse
        return self

    def _options(self) -> Options:
        seed = self.random_state
        if isinstance(seed, Integral):
            whole("random_state", seed, 0)
        elif seed is None and self.checkpoint is not None:
            raise ValueError("random_state is None, but a fit with a checkpoint must repeat itself: give it a number.")
        else:
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        return Options(
            seed=int(seed), **{name: getattr(self, name) for name in Options.__dataclass_fields__ if name != "seed"}
        )

    def _checked(self, X: Any) -> Any:
        """Rows as the model wants them."""
        ready = self._ready(X)
        if ready is None:
            check_is_fitted(self)
            ready = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        return _tidy(ready)

    def _ask(self, X: Any, question: Callable[..., Answer], *args: Any, **given: Any) -> Answer:
        """What the model, on its device, says of checked rows."""
        return self._placement.ask(
            self.model_, self.device, lambda model: question(model, model.sight(X), *args, **given)
        )

    def _ready(self, X: Any) -> Any:
        """What `validate_data` returns of a few CSR rows that are as they should be, without the time it takes, which
        is longer than all else that one row needs; None of all others."""
        if not (sp.issparse(X) and X.format == "csr" and X.ndim == 2 and X.nnz <= FEW_ENTRIES and X.dtype.kind == "f"):
            return None
        fits = X.shape[0] > 0 and X.shape[1] == getattr(self, "n_features_in_", None) and hasattr(self, "model_")
        if not fits or hasattr(self, "feature_names_in_"):
            return None
        with np.errstate(over="ignore"):
            X = X if X.dtype == np.float32 else X.astype(np.float32)
        return X if np.isfinite(X.data).all() else None

    def predict(self, X: Any) -> Any:
        """Class ids, or label sets at probability > 1/2: CSR when y was sparse, else a dense 0/1 array."""
        sets = self._ask(self._checked(X), predict_sets)
        if not self._indicator:
            return self.classes_[sets.indices]
        return sets if self._sparse else sets.toarray()

    def predict_proba(self, X: Any, labels: Any = None) -> Array:
        """Probabilities (n, c), dense; of some labels (positions in classes_) where given."""
        X = self._checked(X)
        return self._ask(X, predict_proba, None if labels is None else self._positions(labels))

    def _positions(self, labels: Any) -> Array:
        positions = np.asarray(labels, dtype=None if np.size(labels) else np.int64)
        if positions.ndim != 1 or positions.dtype.kind not in "iu":
            raise ValueError("labels must be a list of positions in classes_, such as labels=[0, 7].")
        if len(positions) and not (positions.min() >= 0 and positions.max() < self.model_.n_labels):
            raise ValueError(f"labels are outside 0..{self.model_.n_labels - 1}.")
        return positions

    def decision_function(self, X: Any, labels: Any = None) -> Array:
        """Scores (n, c) before calibration; binary class ids: (n,), positive for the second class."""
        X = self._checked(X)
        S = self._ask(X, predict_scores, None if labels is None else self._positions(labels))
        np.maximum(S, np.finfo(S.dtype).min, out=S)  # labels never seen: below all others, but finite
        if not self._indicator and len(self.classes_) == 2 and labels is None:
            return np.asarray(S[:, 1] - S[:, 0])
        return S

    def predict_topk(self, X: Any, k: int = 5) -> sp.csr_array:
        """The k best labels of each row with their probabilities: CSR, k entries a row in descending order.

        `P.indices.reshape(n, -1)` are the ranked labels (positions in classes_). Never makes an n x c array.
        """
        whole("k", k, 1)
        X = self._checked(X)
        one_of("rank_by", self.rank_by, RANKINGS)
        return self._ask(X, predict_topk, int(k), rank_by=self.rank_by)

    def predict_f1(self, X: Any, over: str = "thresholds") -> Any:
        """Label sets for a high F1 of each label (Algorithm 4).

        over="thresholds": by `thresholds_`, so that a row's answer does not depend on its neighbours; over="batch":
        the paper's form, from the probabilities of these very rows. For class ids too the result is a 0/1 matrix.
        """
        sets = self._ask(self._checked(X), predict_f1, over=over)
        return sets if self._sparse or not self._indicator else sets.toarray()

    def evaluate(self, X: Any, y: Any, *, bootstraps: int = 1000, seed: int = 0) -> Evaluation:
        """All metrics with 90 % intervals; y as in `fit`, or with more columns than labels known."""
        X, truth = self._checked(X), self._truth(y)
        if truth.shape[0] != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {truth.shape[0]}; they must be as many.")
        return self._measured(truth, self._ask(X, predictions, truth, rank_by=self.rank_by), bootstraps, seed)

    def _measured(self, truth: sp.csr_array, said: Predictions, bootstraps: int, seed: int) -> Evaluation:
        """The metrics of what the model said of rows whose labels are known."""
        model = self.model_
        return evaluate(
            truth,
            said,
            label_counts=model.counts,
            n_train=max(1, round(model.total)),
            task="multiclass" if model.multiclass else "multilabel",
            bootstraps=bootstraps,
            seed=seed,
        )

    def _truth(self, y: Any) -> sp.csr_array:
        """y as a 0/1 matrix with at least a column for each label known; class ids unknown to the model come last."""
        c = len(self.classes_)
        if self._indicator:
            Y = read_indicator(y)
            return sp.csr_array((Y.data, Y.indices, Y.indptr), (Y.shape[0], max(c, Y.shape[1])))
        ids = read_classes(y)
        place = np.clip(np.searchsorted(self.classes_, ids), 0, c - 1)
        known = self.classes_[place] == ids
        return one_each(np.where(known, place, c), c + 1).astype(np.float32)

    def save(self, path: str | os.PathLike[str], dtype: str | None = None) -> None:
        """Writes the fitted model to one safetensors file (docs/file-format.md).

        dtype="float16" stores the weights in half the space, at a cost in accuracy that is hard to measure, and a
        loaded model computes from the halves; "float32" widens them again; None leaves them as they are.
        """
        check_is_fitted(self)
        persist.save(self, path, dtype)


def _largest_product(X: Any, c: int, options: Options) -> float:
    """About how many operations the largest product of a fit takes: X'X, Phi'Phi or Phi V."""
    n, d = X.shape
    s = feature_count(options, n, c)
    kernel = 0 if options.input_features == "auto" else options.input_features
    inputs = n * kernel**2 if options.input_kernel else (X.nnz if sp.issparse(X) else n * d) * d
    return float(max(inputs, n * s * max(s, c)))


def _tidy(X: Any) -> Any:
    """Sparse rows as a CSR array without stored zeros and repeated entries; what was given stays as it is.

    The steps never see a scipy matrix, whose * is a product.
    """
    if not sp.issparse(X):
        return X
    A = sp.csr_array(X)
    if not A.has_canonical_format or not A.data.all():
        A = A.copy()
        A.sum_duplicates()
        A.eliminate_zeros()
    return A


def _to_stderr(stage: str, share: float) -> None:
    if share == 0.0:
        print(f"smoothlink: {stage}", file=sys.stderr)


def _note_to_stderr(text: str) -> None:
    print(f"smoothlink: {text}", file=sys.stderr)
