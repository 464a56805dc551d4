"""SmoothLinkClassifier: the scikit-learn face of the path. It checks, calls the steps, and does no mathematics."""

from __future__ import annotations

import datetime
import os
import sys
import warnings
from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from smoothlink.choices import check_names
from smoothlink.device_model import DeviceCopy
from smoothlink.distributed import current
from smoothlink.fitting.checks import check_loss, check_weights
from smoothlink.fitting.prepare import feature_count
from smoothlink.fitting.run import run
from smoothlink.fitting.settings import Notify, Request, TrainingData
from smoothlink.fitting.summary import Fitted, with_contents
from smoothlink.labels import read_classes, read_indicator, read_targets, weigh
from smoothlink.machines.copies import Groups, RowContents, group_numbers, row_hashes
from smoothlink.machines.rows_in_files import MappedMatrix
from smoothlink.machines.threads import single_thread
from smoothlink.model import Model
from smoothlink.parameters import PARAMETERS, RANK_BY, Values, check, check_value, documented
from smoothlink.predict import (
    one_each,
    predict_f1,
    predict_proba,
    predict_scores,
    predict_sets,
    predict_topk,
    predictions,
)

if TYPE_CHECKING:
    from smoothlink.distributed.input_files import Files
    from smoothlink.metrics.evaluate import Evaluation, Predictions

Array = NDArray[Any]
Result = TypeVar("Result")

FEW_ENTRIES = 1 << 16  # of rows that are looked through in the blink that scikit-learn's own checks take


class SmoothLinkClassifier(ClassifierMixin, BaseEstimator):
    """Multilabel and multiclass classification through a smooth, low-rank link function.

    Nothing has to be tuned: what is "auto" is chosen on rows that are held out before anything is fitted. A value that
    is not possible, and a parameter that the chosen learner does not use, is an error.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    classes_ : class ids, or 0 .. c - 1 for an indicator matrix.
    summary_ : rank, captured share, ridges, what each was chosen by, seconds and memory of each step.
    thresholds_ : one per label, fitted by Algorithm 4 on held-out rows.
    label_directions_ : U (c, k), or None.
    label_names_, n_features_in_, feature_names_in_ : as usual.
    training_rows_ : hashes of the rows it was trained on, which tell how many test rows are among them.
    zero_based_ : whether the svmlight files it was trained on count features from 0; None for other data.
    """

    def __init__(
        self,
        rank: Any = "auto",
        *,
        embedding: Any = "randomized",
        ridge: Any = "auto",
        kernel: Any = "auto",
        final_ridge: Any = "auto",
        loss: Any = "auto",
        training: Any = "auto",
        task: str = "auto",
        label_smoothing: float = 1.0,
        class_weight: Any = None,
        scale: str = "auto",
        normalize_embedding: bool = False,
        input_kernel: Any = "auto",
        solver: Any = "auto",
        effort: str = "full",
        holdout: float = 0.1,
        calibrate: bool = True,
        device: str = "cpu",
        memory: Any = None,
        block_rows: int | None = None,
        checkpoint: Any = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.embedding = embedding
        self.ridge = ridge
        self.kernel = kernel
        self.final_ridge = final_ridge
        self.loss = loss
        self.training = training
        self.task = task
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight
        self.scale = scale
        self.normalize_embedding = normalize_embedding
        self.input_kernel = input_kernel
        self.solver = solver
        self.effort = effort
        self.holdout = holdout
        self.calibrate = calibrate
        self.device = device
        self.memory = memory
        self.block_rows = block_rows
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
        check_names(self, params)
        super().set_params(**params)
        if "device" in params and hasattr(self, "_device_copy"):
            self._device_copy.drop()
        return self

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fits to X (n, d), CSR or dense, and y: class ids (n,), or a 0/1 matrix (n, c), sparse or dense.

        Within `with smoothlink.cluster(...)` the fit runs on a cluster; there X may be `smoothlink.Files`, which the
        workers read themselves, labels included.

        Weights count rows: weight 2 is the row seen twice. So they should be about 1 on average, not sum to 1: label
        frequencies are smoothed by half a row, and propensities depend on how many rows there are.

        Rows of the same features are held out together when settings are chosen and the model is calibrated. With
        groups (n,), one value for each row, it is rows of the same group, such as an author or a patient.
        """
        cluster = current()
        request = self._request(cluster=cluster is not None)
        if cluster is not None:
            from smoothlink.distributed.distributed_fit import check_shards

            check_shards(cluster, request)
        if hasattr(X, "sources"):  # Files
            if y is not None or sample_weight is not None or groups is not None:
                raise ValueError("Files hold their labels and have no weights or groups: pass nothing but them.")
            return self._fit_files(X, request)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        if isinstance(X, MappedMatrix):  # looked through when it was read
            self.n_features_in_ = X.shape[1]
        else:
            X = _tidy(validate_data(self, X, accept_sparse="csr", dtype=np.float32))
        targets = read_targets(y, self.task)
        if targets.Y.shape[0] != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {targets.Y.shape[0]}; they must be as many.")
        check_loss(request, multiclass=targets.multiclass)
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        w, label_weight = weigh(targets, w, self.class_weight)
        check_weights(w, targets.Y, label_weight, request)
        notify = getattr(self, "_notify", None) or (_to_stderr if self.verbose else None)
        given = group_numbers(groups, X.shape[0])
        if cluster is not None:
            from smoothlink.distributed.distributed_fit import fit_partitioned, partition_arrays

            task, rows = "multiclass" if targets.multiclass else "multilabel", partition_arrays(cluster, X, targets.Y)
            reports: dict[str, Any] = {"groups": given, "notify": notify, "note": self._noted()}
            trained = fit_partitioned(rows, w.astype(np.float32), request, task, label_weight, **reports)
            return self._keep(trained, targets.classes, indicator=targets.indicator, sparse=targets.sparse)
        contents = RowContents.of(X, targets.Y)
        together = contents.groups(given)
        self._say_copies(contents, together)
        data = TrainingData(X, targets.Y, w, targets.multiclass, label_weight, together)
        with single_thread(_largest_product(X, targets.Y.shape[1], request)):
            trained = with_contents(self._train(data, request, notify), contents, together)
        return self._keep(trained, targets.classes, indicator=targets.indicator, sparse=targets.sparse)

    def _train(self, data: TrainingData, request: Request, notify: Notify | None) -> Fitted:
        """Fits a model to checked arrays; subclasses fit models of other kinds."""
        return run(data, request, notify=notify, note=self._noted())

    def _fit_files(self, files: Files, request: Request) -> Self:
        """Fits to files that the workers of a cluster read themselves."""
        from smoothlink.distributed.distributed_fit import fit_partitioned, partition_files

        cluster = current()
        if cluster is None:
            raise ValueError("Files are for clusters: use `with smoothlink.cluster(...)`, or pass X and y.")
        if self.class_weight is not None:
            raise ValueError(f"class_weight is {self.class_weight!r}, which files cannot have; pass X and y, or None.")
        notify = getattr(self, "_notify", None) or (_to_stderr if self.verbose else None)
        rows = partition_files(cluster, files)
        trained = fit_partitioned(rows, None, request, self.task, notify=notify, note=self._noted())
        header = rows.header
        self.n_features_in_ = header.features
        self._keep(trained, np.arange(header.labels), indicator=True, sparse=True, names=header.label_names)
        self.zero_based_: bool | None = header.zero_based
        if header.feature_names is not None:
            self.feature_names_in_ = np.array(header.feature_names, dtype=object)
        return self

    def _say_copies(self, contents: RowContents, groups: Groups | None) -> None:
        """Notes how many rows repeat others; warns where nobody reads notes and all rows are the same."""
        text, note = contents.describe(groups), self._noted()
        if text is not None and note is not None:
            note(text)
        elif text is not None and contents.all_same:
            warnings.warn(text, UserWarning, stacklevel=3)

    def _noted(self) -> Any:
        return getattr(self, "_note", None) or (_note_to_stderr if self.verbose else None)

    def _keep(
        self, trained: Fitted, classes: Array, *, indicator: bool, sparse: bool, names: list[str] | None = None
    ) -> Self:
        """Sets the attributes of a fitted estimator."""
        self.classes_ = classes
        self.model_: Model = trained.model
        self._device_copy = DeviceCopy()
        self.label_directions_ = trained.U
        self.summary_ = {**trained.summary, "date": datetime.date.today().isoformat()}
        self.thresholds_ = trained.model.thresholds
        self.label_names_ = names
        self.zero_based_ = None
        self.training_rows_ = trained.training_rows
        self._indicator, self._sparse = indicator, sparse
        return self

    def _request(self, *, cluster: bool = False) -> Request:
        """Returns the checked parameters as the fit takes them."""
        parameters = self.get_params(deep=False)
        check(parameters, cluster=cluster)
        seed = self.random_state
        if seed is None and self.checkpoint is not None:
            raise ValueError("random_state is None, but a fit with a checkpoint must repeat itself: give it a number.")
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        return Request.of(parameters, int(seed))

    def _validated_rows(self, X: Any) -> Any:
        """Rows as the model wants them."""
        ready = self._ready(X)
        if ready is None:
            check_is_fitted(self)
            ready = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        return _tidy(ready)

    def _run_prediction(self, X: Any, prediction: Callable[..., Result], *args: Any, **given: Any) -> Result:
        """What the model, on its device, says of checked rows."""
        return self._device_copy.run(
            self.model_, self.device, lambda model: prediction(model, model.embed_rows(X), *args, **given)
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
        sets = self._run_prediction(self._validated_rows(X), predict_sets)
        if not self._indicator:
            return self.classes_[sets.indices]
        return sets if self._sparse else sets.toarray()

    def predict_proba(self, X: Any, labels: Any = None) -> Array:
        """Probabilities (n, c), dense; of some labels (positions in classes_) where given."""
        X = self._validated_rows(X)
        return self._run_prediction(X, predict_proba, None if labels is None else self._positions(labels))

    def _positions(self, labels: Any) -> Array:
        positions = np.asarray(labels, dtype=None if np.size(labels) else np.int64)
        if positions.ndim != 1 or positions.dtype.kind not in "iu":
            raise ValueError("labels must be a list of positions in classes_, such as labels=[0, 7].")
        if len(positions) and not (positions.min() >= 0 and positions.max() < self.model_.n_labels):
            raise ValueError(f"labels are outside 0..{self.model_.n_labels - 1}.")
        return positions

    def decision_function(self, X: Any, labels: Any = None) -> Array:
        """Scores (n, c) before calibration; binary class ids: (n,), positive for the second class."""
        X = self._validated_rows(X)
        S = self._run_prediction(X, predict_scores, None if labels is None else self._positions(labels))
        np.maximum(S, np.finfo(S.dtype).min, out=S)  # labels never seen: below all others, but finite
        if not self._indicator and len(self.classes_) == 2 and labels is None:
            return np.asarray(S[:, 1] - S[:, 0])
        return S

    def predict_topk(self, X: Any, k: int = 5, *, rank_by: str = "probability") -> sp.csr_array:
        """The k best labels of each row with their probabilities: CSR, k entries per row in descending order.

        rank_by="psp" ranks by probability times inverse propensity, which favours rare labels.

        `P.indices.reshape(n, -1)` are the ranked labels (positions in classes_). Never makes an n x c array.
        """
        check_value("k", k, Values(whole=1))
        check_value("rank_by", rank_by, RANK_BY)
        return self._run_prediction(self._validated_rows(X), predict_topk, int(k), rank_by=rank_by)

    def predict_f1(self, X: Any, over: str = "thresholds") -> Any:
        """Label sets for a high F1 of each label (Algorithm 4).

        over="thresholds": by `thresholds_`, so that a row's prediction does not depend on its neighbours; over="batch":
        the paper's form, from the probabilities of these very rows. For class ids too the result is a 0/1 matrix.
        """
        sets = self._run_prediction(self._validated_rows(X), predict_f1, over=over)
        return sets if self._sparse or not self._indicator else sets.toarray()

    def evaluate(
        self,
        X: Any,
        y: Any,
        *,
        bootstraps: int = 1000,
        seed: int = 0,
        rank_by: str = "probability",
        groups: Any = None,
    ) -> Evaluation:
        """All metrics with 90 % intervals; y as in `fit`, or with more columns than labels known.

        groups: as in `fit`; intervals are over draws of groups, or of rows of the same features.
        """
        check_value("rank_by", rank_by, RANK_BY)
        X, truth = self._validated_rows(X), self._true_labels(y)
        if truth.shape[0] != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {truth.shape[0]}; they must be as many.")
        given = group_numbers(groups, X.shape[0])
        predicted = self._run_prediction(X, predictions, truth, rank_by=rank_by)
        return self._evaluation(truth, predicted, bootstraps, seed, row_hashes(X), given)

    def _evaluation(
        self,
        truth: sp.csr_array,
        predicted: Predictions,
        bootstraps: int,
        seed: int,
        features: Array,
        groups: Array | None = None,
    ) -> Evaluation:
        """Returns the metrics of predictions for rows whose labels are known; features (n,) are hashes of the rows."""
        from smoothlink.metrics.evaluate import evaluation, model_statistics

        together = RowContents(features, row_hashes(truth)).groups(groups)
        found = model_statistics(self.model_, truth, predicted)._replace(groups=together)
        return evaluation(found, truth, bootstraps, seed)._replace(n_training_rows=self._count_training_rows(features))

    def _count_training_rows(self, features: Array) -> int:
        """Returns how many rows, by hashes of their features, are in the training data; 0 where that is not known."""
        known = 0 if self.training_rows_ is None else self.training_rows_.overlap(features)
        every = known > 0 and known == np.count_nonzero(features)  # of those that have features
        return len(features) if every else known

    def _true_labels(self, y: Any) -> sp.csr_array:
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
        from smoothlink import modelfile

        modelfile.save(self, path, dtype)


SmoothLinkClassifier.__doc__ = (SmoothLinkClassifier.__doc__ or "").replace("{parameters}", documented(PARAMETERS))


def _largest_product(X: Any, c: int, request: Request) -> float:
    """About how many operations the largest product of a fit takes: X'X, Phi'Phi or Phi V."""
    n, d = X.shape
    s = feature_count(request, n, c)
    kernel = 0 if request.input_features == "auto" else request.input_features
    inputs = n * kernel**2 if request.input_kernel else (X.nnz if sp.issparse(X) else n * d) * d
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
