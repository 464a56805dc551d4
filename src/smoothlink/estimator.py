"""SmoothLinkClassifier: the scikit-learn face of the path. It checks, calls the steps, and does no mathematics."""

from __future__ import annotations

import datetime
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from smoothlink.choices import (
    Exponential,
    FineTune,
    Gaussian,
    InputKernel,
    Joint,
    Laplacian,
    Linear,
    Logistic,
    Matern,
    PerLabel,
    Randomized,
    ShortHtml,
    Softmax,
    Squared,
    check_names,
)
from smoothlink.conformal import (
    DELTA,
    Conformal,
    Review,
    checked_conformal,
    observe,
    release_threshold,
    set_thresholds,
)
from smoothlink.data.matching import label_names
from smoothlink.device_model import DeviceCopy
from smoothlink.distributed import current
from smoothlink.errors import DataError
from smoothlink.fitting.checks import check_task, check_weights, few_rows_notes
from smoothlink.fitting.holdout import ConformalRows, conformal_rows, one_of_each
from smoothlink.fitting.prepare import feature_count
from smoothlink.fitting.run import run
from smoothlink.fitting.settings import Notify, Request, TrainingData
from smoothlink.fitting.summary import Fitted, with_contents
from smoothlink.fitting.train_jointly import wants_joint
from smoothlink.labels import (
    label_weights,
    matrix_and_names,
    read_classes,
    read_indicator,
    read_labels,
    read_targets,
    weigh,
)
from smoothlink.living.changes import BY_STEPS, EXACT, Batch, add_labels, forget, is_exact, report, state_of, update
from smoothlink.living.known_rows import KnownRows
from smoothlink.living.refresh import differences, removed_labels, selected_parameters, take_over
from smoothlink.living.row_digests import calibrating, calibration_share
from smoothlink.living.state import new_state
from smoothlink.living.steps_state import new_steps_state, steps_bytes
from smoothlink.living.store import StoredSums, sums_bytes
from smoothlink.machines.copies import RowContents, group_numbers, notable, row_hashes
from smoothlink.machines.rows_in_files import MappedMatrix, check_sparse
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
    sets_above,
)
from smoothlink.scikit_learn import (
    BaseEstimator,
    ClassifierMixin,
    _check_sample_weight,
    available_if,
    check_is_fitted,
    check_random_state,
    validate_data,
)
from smoothlink.solve import Cholesky, ConjugateGradient, DualCholesky
from smoothlink.steps.thresholds import threshold_array
from smoothlink.text.data_frames import ranked_frame
from smoothlink.types import FilePath, Frame, LabelMatrix, Matrix, RowGroups, Seed, Targets, Weights

if TYPE_CHECKING:
    from smoothlink.distributed.input_files import Files
    from smoothlink.metrics.evaluate import Evaluation, Predictions
    from smoothlink.vocabulary import Vocabulary

Array = NDArray[Any]
Result = TypeVar("Result")

FIRST_ROWS = 10  # that the first call of partial_fit must have: it fits the embedding
FEW_ENTRIES = 1 << 16  # of rows that are looked through in the blink that scikit-learn's own checks take


class SmoothLinkClassifier(ShortHtml, ClassifierMixin, BaseEstimator):
    """Multilabel and multiclass classification through a smooth, low-rank link function.

    Nothing has to be tuned: what is "auto" is chosen on rows that are held out before anything is fitted. A value that
    is not possible, and a parameter that the chosen learner does not use, is an error.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    classes_ : class ids, or 0 .. c - 1 for an indicator matrix.
    summary_ : rank, captured share, ridges, what each was selected by, seconds and memory of each step.
    thresholds_ : the least probability of each label that `predict` returns, by the `aim`; infinite for labels without
        training rows. What they reached on held-out rows is in `summary_["threshold"]`.
    label_directions_ : U (c, k), or None.
    label_names_ : names of the labels, of a data frame y its columns; or None.
    n_features_in_, feature_names_in_ : as usual.
    training_rows_ : hashes of the rows it was trained on, which tell how many test rows are among them.
    conformal_ : what guarantees are computed from (`conformal`, `recalibrate_sets`); None: there are none. Its
        `void` says why they hold no more, if so.
    zero_based_ : whether the svmlight files it was trained on count features from 0; None for other data.
    vocabulary_ : names of the labels in a controlled vocabulary (`set_vocabulary`), or None.
    """

    vocabulary_: Vocabulary | None = None
    conformal_: Conformal | None = None
    summary_: dict[str, Any]
    _model: Model
    _living: KnownRows | StoredSums | None = None

    def __init__(
        self,
        rank: float | str = "auto",
        *,
        embedding: str | Randomized | PerLabel = "randomized",
        ridge: float | str = "auto",
        kernel: str | Gaussian | Laplacian | Exponential | Matern | Linear = "auto",
        final_ridge: float | str = "auto",
        loss: str | Squared | Logistic | Softmax = "auto",
        training: str | Joint | FineTune = "auto",
        task: str = "auto",
        label_smoothing: float = 1.0,
        class_weight: str | Mapping[Any, float] | Weights | None = None,
        scale: str = "auto",
        normalize_embedding: bool = False,
        trees: bool | str = "auto",
        input_kernel: str | InputKernel | None = "auto",
        solver: str | Cholesky | DualCholesky | ConjugateGradient = "auto",
        effort: str = "full",
        holdout: float = 0.1,
        calibrate: bool = True,
        aim: str = "half",
        conformal: float = 0.0,
        device: str = "cpu",
        memory: int | str | None = None,
        block_rows: int | None = None,
        checkpoint: FilePath | None = None,
        updatable: bool = False,
        random_state: Seed | None = 0,
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
        self.trees = trees
        self.input_kernel = input_kernel
        self.solver = solver
        self.effort = effort
        self.holdout = holdout
        self.calibrate = calibrate
        self.aim = aim
        self.conformal = conformal
        self.device = device
        self.memory = memory
        self.block_rows = block_rows
        self.checkpoint = checkpoint
        self.updatable = updatable
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

    def fit(
        self,
        X: Matrix | Files,
        y: Targets | None = None,
        sample_weight: Weights | None = None,
        groups: RowGroups | None = None,
    ) -> Self:
        """Fits to X (n, d), CSR or dense, and y: class ids (n,), or a 0/1 matrix (n, c), sparse, dense or a data frame.

        Within `with smoothlink.cluster(...)` the fit runs on a cluster; there X may be `smoothlink.Files`, which the
        workers read themselves, labels included.

        Weights count rows: weight 2 is the row seen twice. So they should be about 1 on average, not sum to 1: label
        frequencies are smoothed by half a row, and propensities depend on how many rows there are.

        Where more than 3 % of the rows are copies of others, features and labels the same, they count as one row of
        that weight. With groups (n,), one value for each row, rows of the same group, such as an author or a patient,
        are held out together when settings are chosen and the model is calibrated.
        """
        return self._fit(X, y, sample_weight, groups)

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any, classes: Any = None) -> Self:
        """`fit`; classes: all class ids, where y need not have each."""
        cluster = current()
        request = self._request(cluster=cluster is not None)
        if cluster is not None:
            from smoothlink.distributed.distributed_fit import check_shards

            check_shards(cluster, request)
        if hasattr(X, "sources"):
            if y is not None or sample_weight is not None or groups is not None:
                raise ValueError("Files hold their labels and have no weights or groups: pass nothing but them.")
            return self._fit_files(cast("Files", X), request)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        if isinstance(X, MappedMatrix):  # looked through when it was read
            self.n_features_in_ = X.shape[1]
        else:
            X = _tidy(validate_data(self, check_sparse(X, "X"), accept_sparse="csr", dtype=_value_types(X)))
        y, names = matrix_and_names(y)
        targets = read_targets(y, self.task, classes)
        named: dict[str, Any] = {"names": names if targets.indicator else None}
        if targets.Y.shape[0] != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {targets.Y.shape[0]}; they must be as many.")
        check_task(request, multiclass=targets.multiclass)
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        given = group_numbers(groups, X.shape[0])
        contents = RowContents.of(X, targets.Y) if cluster is None or self.conformal else None
        if self.conformal and contents is not None:
            reserved = self._conformal_rows(X, contents, request, given)
            used, kept = reserved.used[w[reserved.used] > 0], np.flatnonzero(~reserved.taken)
            given = None if given is None else given[kept]
            apart, contents = (X[used], targets.Y[used]), RowContents(*(part[kept] for part in contents))
            X, targets, w = X[kept], targets._replace(Y=targets.Y[kept]), w[kept]
        w, label_weight = weigh(targets, w, self.class_weight)
        check_weights(w, targets.Y, label_weight, request)
        notify = getattr(self, "_notify", None) or (_to_stderr if self.verbose else None)
        if cluster is not None:
            from smoothlink.distributed.distributed_fit import fit_partitioned, partition_arrays

            task, rows = "multiclass" if targets.multiclass else "multilabel", partition_arrays(cluster, X, targets.Y)
            reports: dict[str, Any] = {"groups": given, "notify": notify, "note": self._noted()}
            trained = fit_partitioned(rows, w.astype(np.float32), request, task, label_weight, **reports)
            self._keep(trained, targets.classes, indicator=targets.indicator, sparse=targets.sparse, **named)
            return self._set_conformal(*apart) if self.conformal else self
        assert contents is not None
        first = notable(contents.first_copies())
        self._say_copies(contents, first)
        held = None
        if self.updatable:
            self._say_state(X, targets.Y.shape[1], request, weighted=label_weight is not None)
            if self.calibrate:
                held = calibrating(contents, calibration_share(X.shape[0]), request.seed, given)
        whole = TrainingData(X, targets.Y, w, targets.multiclass, label_weight, given, held)
        data = whole.merged(first, request)
        state: KnownRows | None = None
        with single_thread(_largest_product(data.X, targets.Y.shape[1], request)):
            trained = with_contents(self._train(data, request, notify), contents, first)
            if self.updatable:
                trained.summary["updates"] = EXACT if is_exact(trained.model) else BY_STEPS
                weighs = targets.multiclass and self.class_weight is not None
                class_weight = label_weights(targets, self.class_weight) if weighs else None
                state = self._new_state(trained, whole, data, class_weight, request)
        self._keep(trained, targets.classes, indicator=targets.indicator, sparse=targets.sparse, **named)
        self._living = state
        if state is not None:
            self._model = state.model_to_save(self._model)
            self.summary_ |= state.held_out
        return self._set_conformal(*apart) if self.conformal else self

    def _new_state(
        self, trained: Fitted, whole: TrainingData, data: TrainingData, class_weight: Array | None, request: Request
    ) -> KnownRows:
        """Returns what updates need: sums of the whole data where these determine V, else rows to replay. In the data
        that the model was trained on, copies may be one row."""
        if not is_exact(trained.model):
            return new_steps_state(trained, whole, data, class_weight, request)
        assert whole.w is not None
        return new_state(
            trained.model,
            whole.X,
            whole.Y,
            whole.w,
            whole.held,
            ridge=trained.summary["final_ridge"],
            smoothing=self.label_smoothing,
            share=calibration_share(whole.X.shape[0]),
            seed=request.seed,
            class_weight=class_weight,
            aim=request.threshold_aim,
        )

    def _say_state(self, X: Any, c: int, request: Request, *, weighted: bool) -> None:
        """Notes how large the second file of a model that can be updated will be."""
        if (note := self._noted()) is None:
            return
        n, sparse = X.shape[0], sp.issparse(X)
        s = feature_count(request, n, c)
        joint = request.training == "finetune" or wants_joint(request, n, s, c, sparse, weighted)
        sums = 0 if joint or request.loss not in ("auto", "squared") else sums_bytes(s + 1, c)
        steps = steps_bytes(X, c) if joint or request.loss != "squared" else 0
        note(
            f"updatable: what updates need takes about {max(sums, steps) / 1e6:,.0f} MB in memory and beside the model "
            "file."
        )

    # Rows and labels that come and go

    @property
    def model_(self) -> Model:
        """Returns the fitted model; after updates, that of the rows that there are now."""
        try:
            model = self._model
        except AttributeError:
            raise AttributeError(f"This {type(self).__name__} has no model_ before it is fitted.") from None
        state = self._living
        if isinstance(state, KnownRows) and state.changed:
            self.model_ = model = state.refreshed(model)
            self.summary_ |= state.held_out
        return model

    @model_.setter
    def model_(self, model: Model) -> None:
        self._model = model
        if hasattr(self, "_device_copy"):
            self._device_copy.drop()

    def update(self, X: Matrix, y: Targets, sample_weight: Weights | None = None) -> Self:
        """Adds rows to a model that was fitted with updatable=True; y as in `fit`, labels unknown so far are added.

        With the squared loss the decoder is then that of a fit to all rows, given the embedding and the ridge
        (docs/living.md); calibration and thresholds are computed anew. Models of other losses and of joint training go
        on training. `summary_["living"]` has a report.
        """
        update(self, self._batch(X, y, sample_weight))
        return self

    def forget(self, X: Matrix, y: Targets) -> Self:
        """Removes rows, with all of their labels; features and labels that no other row has are removed as well.

        With the squared loss it is as if the decoder had never seen the rows; weights that were trained otherwise still
        reflect them in part. Rows that the model does not have are an error, and nothing changes.
        """
        forget(self, self._batch(X, y, None))
        return self

    def add_labels(self, names: Sequence[Any] | int) -> Self:
        """Adds labels that no row has yet, by name or class id; where labels have neither, so many. The predictions of
        others stay as they are."""
        check_is_fitted(self)
        state = state_of(self)
        known = self.classes_.tolist() if not self._indicator else self.label_names_
        if known is None:
            if not isinstance(names, Integral) or names < 1:
                raise ValueError("The labels of this model have numbers, not names: pass how many are to be added.")
            new: list[Any] = list(range(state.n_labels, state.n_labels + int(names)))
        else:
            given: Any = [] if isinstance(names, Integral) else names
            new = [given] if isinstance(given, str) else list(given)
            taken, counts = set(known), Counter(new)
            twice = [name for name in new if name in taken or counts[name] > 1]
            if not new or twice:
                what = f"has the label {twice[0]!r} already" if twice else "names its labels"
                raise DataError(f"The model {what}; pass a list of names that are new.")
        add_labels(self, new)
        report(self, labels_added=[str(name) for name in new])
        return self

    def refresh(
        self, X: Matrix, y: Targets, sample_weight: Weights | None = None, groups: RowGroups | None = None
    ) -> Self:
        """Fits the model anew to all rows that it is to have, embedding and scaling included, with the settings that
        its fit selected: it takes one fit and its calibration, and no search.

        X has the columns of the fit; y, sample_weight and groups as in `fit`. Labels keep their numbers, new ones
        follow. The parameters stay what they were, so that `fit` would select again. A model that can be updated stays
        so. Where this fails, the model is as it was. `summary_["living"]` says what changed.
        """
        check_is_fitted(self)
        return self._refresh(X, *self._updated_labels(y), sample_weight, groups)

    def _refresh(self, X: Any, Y: sp.csr_array, new: list[Any], sample_weight: Any, groups: Any) -> Self:
        """`refresh` by labels Y (n, c) in the order of the model's, and what new ones, which come last, are called."""
        X = self._validated_rows(X)
        if Y.shape[0] != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {Y.shape[0]}; they must be as many.")
        names = [*label_names(self), *new]
        kept = np.flatnonzero(~removed_labels(names))
        left = [names[j] for j in kept.tolist()]
        fresh = SmoothLinkClassifier(**selected_parameters(self, len(left)))
        for hook in ("_notify", "_note"):
            setattr(fresh, hook, getattr(self, hook, None))
        if self._indicator:
            fresh._fit(X, Y[:, kept], sample_weight, groups)
            fresh.label_names_ = None if self.label_names_ is None else left
        else:
            fresh._fit(X, np.array([names[j] for j in Y.indices.tolist()]), sample_weight, groups, np.array(left))
        for hook in ("_notify", "_note"):
            delattr(fresh, hook)
        take_over(fresh, self)
        differences(fresh, self, X, Y, names)
        self.__dict__.update(vars(fresh))
        return self

    @available_if(lambda self: self.updatable)
    def partial_fit(
        self, X: Matrix, y: Targets, classes: ArrayLike | None = None, sample_weight: Weights | None = None
    ) -> Self:
        """Fits to the first rows, and adds later ones as `update` does. classes: all class ids, if the first rows lack
        some; others are added when they come."""
        if hasattr(self, "classes_"):
            return self.update(X, y, sample_weight)
        rows = number_of_rows(X)
        if rows < FIRST_ROWS:
            raise ValueError(
                f"The first call of partial_fit has n_samples={rows}, from which no embedding can be fitted; pass at "
                f"least {FIRST_ROWS} rows, and others one by one later."
            )
        return self._fit(X, y, sample_weight, None, classes)

    def _batch(self, X: Any, y: Any, sample_weight: Any) -> Batch:
        """Returns checked rows as updates take them."""
        check_is_fitted(self)
        state_of(self)
        X = self._validated_rows(X)
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        Y, names = self._updated_labels(y)
        if Y.shape[0] != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {Y.shape[0]}; they must be as many.")
        if self._model.multiclass and (np.diff(Y.indptr) != 1).any():
            row = int(np.argmax(np.diff(Y.indptr) != 1))
            raise ValueError(
                f"Row {row} has {np.diff(Y.indptr)[row]} labels, and the model is multiclass: each row has exactly one."
            )
        return Batch(X, Y, w, names)

    def _updated_labels(self, y: Any) -> tuple[sp.csr_array, list[Any]]:
        """Returns y (n, c) with a column for each label of the model, new ones behind, and what these are called."""
        matrix, names = matrix_and_names(y)
        flat = not sp.issparse(matrix) and np.ndim(matrix) < 2
        c = len(self.classes_)
        if self._indicator and flat:
            raise ValueError(
                f"y has one class id per row; the model was fitted to a 0/1 matrix of {c} labels, pass one."
            )
        if self._indicator and self.label_names_ is not None and names is not None:
            found = read_labels(y, self.label_names_)
            return found.Y, found.names[c:]
        if self._indicator:
            Y = read_indicator(matrix)
            if Y.shape[1] < c:
                raise ValueError(f"y has {Y.shape[1]} columns, and the model {c} labels; pass a column for each.")
            return Y, list(range(c, Y.shape[1]))
        if not flat and np.shape(matrix)[1] != 1:
            raise ValueError("y is a matrix, and the model was fitted to class ids; pass one class id per row.")
        ids = read_classes(matrix)
        numbers = self.classes_.dtype.kind in "biuf"
        if numbers != (ids.dtype.kind in "biuf"):
            raise ValueError(f"y has class ids such as {ids[0]!r}, and those of the model are {self.classes_.dtype}.")
        new = np.setdiff1d(ids, self.classes_)
        place = {name: j for j, name in enumerate([*self.classes_.tolist(), *new.tolist()])}
        return one_each(np.array([place[name] for name in ids.tolist()]), len(place)).astype(np.float32), new.tolist()

    def _conformal_rows(self, X: Any, contents: RowContents, request: Request, groups: Array | None) -> ConformalRows:
        """Returns the rows that are taken out before anything is computed from them."""
        if isinstance(X, MappedMatrix):
            raise ValueError(
                f"conformal is {self.conformal:g}, which needs rows in memory, and these are mapped. Hold rows out "
                "with `smoothlink split`, and pass them to recalibrate_sets (`smoothlink recalibrate`)."
            )
        return conformal_rows(contents, float(self.conformal), request.seed, groups)

    def _set_conformal(self, X: Any, Y: sp.csr_array) -> Self:
        """Computes what guarantees need from checked rows and their labels (m, >= c)."""
        self.conformal_ = self._run_prediction(X, Conformal.of, Y)
        self.summary_["conformal_rows"] = self.conformal_.n
        return self

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
        if self.conformal:
            raise ValueError(
                f"conformal is {self.conformal:g}, which needs rows in memory, and these are read by workers. Hold "
                "rows out with `smoothlink split`, and pass them to recalibrate_sets (`smoothlink recalibrate`)."
            )
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

    def _say_copies(self, contents: RowContents, first: Array | None) -> None:
        """Notes how many rows are copies of others; warns where nobody reads notes and all rows are the same."""
        text, note = contents.describe(first), self._noted()
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
        self._model = trained.model
        self._living = None
        self._device_copy = DeviceCopy()
        self._stored_dtype: str | None = None  # of the file that it comes from
        self.label_directions_ = trained.U
        self.summary_ = {**trained.summary, "date": datetime.date.today().isoformat()}
        self.label_names_ = names
        self.vocabulary_ = None
        self.conformal_ = None
        self.zero_based_ = None
        self.training_rows_ = trained.training_rows
        self._indicator, self._sparse = indicator, sparse
        if (note := self._noted()) is not None:
            for text in few_rows_notes(self.summary_["rows"], self.model_.counts):
                note(text)
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
        X = check_sparse(X, "X")
        ready = self._ready(X)
        if ready is None:
            check_is_fitted(self)
            ready = validate_data(self, X, accept_sparse="csr", dtype=_value_types(X), reset=False)
        return _tidy(ready)

    def _run_prediction(self, X: Any, prediction: Callable[..., Result], *args: Any, **given: Any) -> Result:
        """What the model, on its device, says of checked rows."""
        return self._device_copy.run(
            self.model_, self.device, lambda model: prediction(model, model.embed_rows(X), *args, **given)
        )

    def _ready(self, X: Any) -> Any:
        """What `validate_data` returns of a few CSR rows that are as they should be, without the time it takes, which
        is longer than all else that one row needs; None of all others."""
        if not (sp.issparse(X) and X.format == "csr" and X.ndim == 2 and X.nnz <= FEW_ENTRIES):
            return None
        fits = X.shape[0] > 0 and X.shape[1] == getattr(self, "n_features_in_", None) and hasattr(self, "_model")
        if not fits or hasattr(self, "feature_names_in_"):
            return None
        return X if X.dtype in (np.float32, np.float64) and np.isfinite(X.data).all() else None

    @property
    def thresholds_(self) -> Array:
        if not hasattr(self, "model_"):
            raise AttributeError(f"This {type(self).__name__} has no thresholds_ before it is fitted.")
        return self.model_.own_thresholds

    def predict(self, X: Matrix, threshold: ArrayLike | None = None) -> LabelMatrix:
        """Class ids, or sets of the labels whose probability is at least a threshold: CSR when y was sparse, else a
        dense 0/1 array.

        threshold: a number, or one for each label; None: `thresholds_`, which are chosen by `aim`.
        """
        X = self._validated_rows(X)
        sets = self._run_prediction(X, predict_sets, self._thresholds(threshold))
        if not self._indicator:
            return self.classes_[sets.indices]
        return sets if self._sparse else sets.toarray()

    def score(self, X: Matrix, y: Targets, sample_weight: Weights | None = None) -> float:
        """The share of rows whose class, or whole set of labels, is predicted."""
        return float(super().score(X, check_sparse(y, "y"), sample_weight))

    def _thresholds(self, threshold: ArrayLike | None) -> Array | None:
        """Returns thresholds (c,) that were given; None where they are the model's own."""
        if threshold is None:
            return None
        if self.model_.multiclass:
            raise ValueError("threshold is given, but a multiclass model predicts the one best class; leave it out.")
        return threshold_array(threshold, self.model_.n_labels)

    def predict_proba(self, X: Matrix, labels: Sequence[int] | Array | None = None) -> Array:
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

    def decision_function(self, X: Matrix, labels: Sequence[int] | Array | None = None) -> Array:
        """Scores (n, c) that labels are ranked by: log-odds, or without calibration those of the decoder; binary class
        ids: (n,), positive for the second class."""
        X = self._validated_rows(X)
        S = self._run_prediction(X, predict_scores, None if labels is None else self._positions(labels))
        np.maximum(S, np.finfo(S.dtype).min, out=S)  # labels never seen: below all others, but finite
        if not self._indicator and len(self.classes_) == 2 and labels is None:
            return np.asarray(S[:, 1] - S[:, 0])
        return S

    @overload
    def predict_topk(
        self, X: Matrix, k: int = ..., *, rank_by: str = ..., as_frame: Literal[False] = ...
    ) -> sp.csr_array: ...

    @overload
    def predict_topk(self, X: Matrix, k: int = ..., *, rank_by: str = ..., as_frame: Literal[True]) -> Frame: ...

    def predict_topk(
        self, X: Matrix, k: int = 5, *, rank_by: str = "probability", as_frame: bool = False
    ) -> sp.csr_array | Frame:
        """The k best labels of each row with their probabilities: CSR, k entries per row in descending order.

        rank_by="psp" ranks by probability times inverse propensity, which favours rare labels. as_frame=True: a data
        frame with lists of labels and of probabilities, of polars where X is one, else of pandas with the index of X.

        `P.indices.reshape(n, -1)` are the ranked labels (positions in classes_). Never makes an n x c array.
        """
        check_value("k", k, Values(whole=1))
        check_value("rank_by", rank_by, RANK_BY)
        check_value("as_frame", as_frame, Values(flag=True))
        best = self._run_prediction(self._validated_rows(X), predict_topk, int(k), rank_by=rank_by)
        if not as_frame:
            return best
        names = self.classes_.tolist() if self.label_names_ is None else self.label_names_
        labels = [names[j] for j in best.indices.tolist()]
        shown = None if self.vocabulary_ is None else self.vocabulary_.names(labels)
        return ranked_frame(labels, best.data.tolist(), best.indptr.tolist(), X, shown)

    def predict_f1(self, X: Matrix, over: str = "auto") -> LabelMatrix:
        """Label sets for a high F1 of each label (Algorithm 4).

        over="batch": the paper's form, from the probabilities of these very rows, which is better; over="thresholds":
        by thresholds from held-out rows, which with aim="f1" are `thresholds_`, so that a row's prediction does not
        depend on its neighbours; "auto": the first from 100 rows on, else the second. For class ids too the result is
        a 0/1 matrix.
        """
        sets = self._run_prediction(self._validated_rows(X), predict_f1, over=over)
        return sets if self._sparse or not self._indicator else sets.toarray()

    def predict_set(
        self,
        X: Matrix,
        *,
        coverage: float | None = None,
        recall: float | None = None,
        label_groups: ArrayLike | None = None,
    ) -> LabelMatrix:
        """Sets of labels with a guarantee: with the probability `coverage` a set holds all labels of its row, or on
        average it holds the share `recall` of them, for rows that are exchangeable with the conformal ones
        (docs/guarantees.md).

        label_groups: one value for each label (c,), to have the promise for the labels of each group, among the rows
        that have some of it. The sets are as `predict` returns them; for class ids too the result is a 0/1 matrix.
        """
        X = self._validated_rows(X)
        thresholds = self._guaranteed_thresholds(coverage, recall, label_groups)
        sets = self._run_prediction(X, sets_above, thresholds)
        return sets if self._sparse or not self._indicator else sets.toarray()

    def _guaranteed_thresholds(
        self, coverage: float | None, recall: float | None, label_groups: ArrayLike | None = None
    ) -> Array:
        """Returns the threshold (c,) of each label for a guarantee; infinite for labels without training rows."""
        conformal, c = checked_conformal(self.conformal_), self.model_.n_labels
        return self.model_.for_trained_labels(set_thresholds(conformal, c, coverage, recall, label_groups))

    def review(self, X: Matrix, *, precision: float = 0.95, delta: float = DELTA) -> Review:
        """Which rows may be released without a person, and a queue of the others, the least certain first.

        Released rows have on average this precision: the share of their predicted labels (`predict`) that is true, with
        a probability of at least 1 - delta over the draw of the conformal rows. Rows for which no label is predicted
        are always in the queue.
        """
        X = self._validated_rows(X)
        bound = release_threshold(checked_conformal(self.conformal_), precision, delta)
        nothing = sp.csr_array((X.shape[0], self.model_.n_labels), dtype=np.float32)
        return Review.of(self._run_prediction(X, observe, nothing).confidence, bound)

    def recalibrate_sets(self, X: Matrix, y: Targets, groups: RowGroups | None = None) -> Self:
        """Computes guarantees anew from labelled rows that were used for nothing else, in place of what there was.

        y: as in `evaluate`. groups: as in `fit`; one row of each is used. A warning says how many rows the model was
        trained on: with them nothing is guaranteed.
        """
        X, truth = self._validated_rows(X), self._true_labels(y)
        if truth.shape[0] != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {truth.shape[0]}; they must be as many.")
        return self._recalibrate(X, truth, group_numbers(groups, X.shape[0]))

    def _recalibrate(self, X: Any, truth: sp.csr_array, given: Array | None = None) -> Self:
        """Computes guarantees anew from checked rows, their labels (n, >= c) and perhaps groups."""
        hashes = row_hashes(X)
        known = self._count_training_rows(hashes)
        if known:
            warnings.warn(
                f"{known:,} of {X.shape[0]:,} rows are among those that the model was trained on: guarantees need rows "
                "that were used for nothing else.",
                UserWarning,
                stacklevel=3,
            )
        if given is not None:
            used = one_of_each(given, hashes)
            X, truth = X[used], truth[used]
        return self._set_conformal(X, truth)

    def evaluate(
        self,
        X: Matrix,
        y: Targets,
        *,
        threshold: ArrayLike | None = None,
        bootstraps: int = 1000,
        seed: int = 0,
        rank_by: str = "probability",
        groups: RowGroups | None = None,
    ) -> Evaluation:
        """All metrics with 90 % intervals; y as in `fit`, or with more columns than labels known.

        threshold: of the label sets, as for `predict`. groups: as in `fit`; intervals are over draws of groups, or of
        rows that are not copies of others.
        """
        check_value("rank_by", rank_by, RANK_BY)
        X, truth = self._validated_rows(X), self._true_labels(y)
        if truth.shape[0] != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {truth.shape[0]}; they must be as many.")
        given = group_numbers(groups, X.shape[0])
        thresholds = self._thresholds(threshold)
        predicted = self._run_prediction(X, predictions, truth, rank_by=rank_by, thresholds=thresholds)
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

        if groups is None:
            groups = notable(RowContents(features, row_hashes(truth)).first_copies())
        found = model_statistics(self.model_, truth, predicted)._replace(groups=groups)
        return evaluation(found, truth, bootstraps, seed)._replace(n_training_rows=self._count_training_rows(features))

    def _count_training_rows(self, features: Array) -> int:
        """Returns how many rows, by hashes of their features, are in the training data; 0 where that is not known."""
        known = 0 if self.training_rows_ is None else self.training_rows_.overlap(features)
        every = known > 0 and known == np.count_nonzero(features)  # of those that have features
        return len(features) if every else known

    def _true_labels(self, y: Any) -> sp.csr_array:
        """y as a 0/1 matrix with at least a column for each label known; class ids unknown to the model come last."""
        c = len(self.classes_)
        if self._indicator and self.label_names_ is not None and matrix_and_names(y)[1] is not None:
            return read_labels(y, self.label_names_).Y  # columns by name, in whatever order they are
        if self._indicator:
            Y = read_indicator(y)
            return sp.csr_array((Y.data, Y.indices, Y.indptr), (Y.shape[0], max(c, Y.shape[1])))
        ids, order = read_classes(y), np.argsort(self.classes_, kind="stable")  # classes that came later are last
        place = order[np.clip(np.searchsorted(self.classes_, ids, sorter=order), 0, c - 1)]
        known = self.classes_[place] == ids
        return one_each(np.where(known, place, c), c + 1).astype(np.float32)

    def set_vocabulary(self, vocabulary: Vocabulary | FilePath | None) -> Self:
        """Gives the labels the names of a controlled vocabulary, or of a file of one; None removes them.

        Reports, explanations, tables and the server show them, and `save` stores them. A warning says which labels
        lack a name.
        """
        check_is_fitted(self)
        from smoothlink.vocabulary import checked

        self.vocabulary_ = None if vocabulary is None else checked(vocabulary, label_names(self), warnings.warn)
        return self

    def save(self, path: FilePath, dtype: str | None = None, prune: float = 0.0) -> None:
        """Writes the fitted model to one safetensors file (docs/file-format.md).

        dtype="float16" stores the weights in 16 bits each, which no metric shows; "int8" in a quarter of the space of
        "float32" and "int4" in an eighth, at a cost in accuracy (docs/file-format.md says which). A loaded model
        computes from what is stored. None: as the file of a loaded model has them; those of a fitted one in float32
        up to 16 MiB, in float16 beyond. prune=0.5 leaves out half of the sparse weights of labels, the smallest.
        """
        check_is_fitted(self)
        from smoothlink import modelfile

        modelfile.save(self, path, dtype, prune)


SmoothLinkClassifier.__doc__ = (SmoothLinkClassifier.__doc__ or "").replace("{parameters}", documented(PARAMETERS))


def number_of_rows(rows: Any) -> int:
    """Returns how many rows or texts there are."""
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def _largest_product(X: Any, c: int, request: Request) -> float:
    """About how many operations the largest product of a fit takes: X'X, Phi'Phi or Phi V."""
    n, d = X.shape
    s = feature_count(request, n, c)
    kernel = 0 if request.input_features == "auto" else request.input_features
    inputs = n * kernel**2 if request.input_kernel else (X.nnz if sp.issparse(X) else n * d) * d
    return float(max(inputs, n * s * max(s, c)))


def _value_types(X: Any) -> Any:
    """Returns the types that values of X may have: float32 where it holds them exactly, else as they came or float64.

    Scaling makes float32 of them.
    """
    return np.float32 if hasattr(X, "dtype") and np.can_cast(X.dtype, np.float32) else [np.float64, np.float32]


def _tidy(X: Any) -> Any:
    """Sparse rows as a CSR array without stored zeros and repeated entries; what was given stays as it is.

    The steps never see a scipy matrix, whose * is a product.
    """
    if not sp.issparse(X):
        return X
    A = X if isinstance(X, sp.csr_array) else sp.csr_array(X)
    if not A.has_canonical_format or not A.data.all():
        A = A.copy()
        A.sum_duplicates()
        A.eliminate_zeros()
    return A


def _to_stderr(stage: str, share: float, words: str) -> None:
    if share == 0.0:
        print(f"smoothlink: {stage}", file=sys.stderr)


def _note_to_stderr(text: str) -> None:
    print(f"smoothlink: {text}", file=sys.stderr)
