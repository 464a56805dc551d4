"""A fitted classifier <-> the arrays and JSON of a model file."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.errors import ModelFileError
from smoothlink.model import Model
from smoothlink.solve import Cholesky, ConjugateGradient
from smoothlink.steps.calibrate import Calibration
from smoothlink.steps.featurize import Features
from smoothlink.steps.save import Loaded, pack_names, unpack_names
from smoothlink.steps.save import load as load_file
from smoothlink.steps.save import save as save_file
from smoothlink.steps.scale import Scaling

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier

Array = NDArray[Any]

SOLVERS = {solver.__name__: solver for solver in (Cholesky, ConjugateGradient)}


def save(classifier: SmoothLinkClassifier, path: str | os.PathLike[str]) -> None:
    """Writes a fitted classifier; refuses what a file without code cannot hold."""
    model = classifier.model_
    if model.classifier is not None:
        raise ModelFileError(
            f"This model's first stage is a fitted {type(classifier.first_stage).__name__}, which a model file cannot "
            "hold without running code.\nUse a linear classifier (with coef_ and intercept_), or pickle the estimator."
        )
    save_file(path, model_arrays(classifier), model_meta(classifier))


def model_arrays(classifier: SmoothLinkClassifier) -> dict[str, Array]:
    """The arrays of a model file, by name (docs/file-format.md lists them)."""
    model = classifier.model_
    arrays: dict[str, Array] = {
        "V": model.V,
        "R": model.features.R,
        "b": model.features.b,
        "counts": model.counts,
        "thresholds": model.thresholds,
        "calibration_knots": model.calibration.knots,
        "calibration_values": model.calibration.values,
        "scale_shift": model.scaling.shift,
        "scale_factor": model.scaling.factor,
    }
    if model.W is not None:
        arrays["W"] = model.W
    if classifier.label_directions_ is not None:
        arrays["U"] = classifier.label_directions_
    if model.input_features is not None:
        arrays["input_R"], arrays["input_b"] = model.input_features
    if not classifier._indicator:
        arrays |= pack_classes(classifier.classes_)
    if classifier.label_names_ is not None:
        arrays |= pack_names(classifier.label_names_, "label_names")
    if hasattr(classifier, "feature_names_in_"):
        arrays |= pack_names([str(name) for name in classifier.feature_names_in_], "feature_names")
    return arrays


def pack_classes(classes: Array) -> dict[str, Array]:
    """Class ids: numbers as they are, text as packed names."""
    if classes.dtype.kind in "iufb":
        return {"classes": classes}
    if all(isinstance(name, str) for name in classes.tolist()):
        return pack_names(classes.tolist(), "class_names")
    raise ModelFileError(f"Class ids of type {classes.dtype} cannot be saved; use numbers or text.")


def model_meta(classifier: SmoothLinkClassifier) -> dict[str, Any]:
    """The JSON of a model file: parameters, what the arrays do not say, and the story of the fit."""
    model = classifier.model_
    return {
        "parameters": {name: storable(name, value) for name, value in classifier.get_params(deep=False).items()},
        "n_features_in": int(classifier.n_features_in_),
        "indicator": classifier._indicator,
        "sparse_labels": classifier._sparse,
        "scale": model.scaling.kind,
        "dense": model.scaling.dense,
        "normalize": model.normalize,
        "loss": model.loss,
        "multiclass": model.multiclass,
        "temperature": model.calibration.temperature,
        "total": model.total,
        "summary": classifier.summary_,
    }


def storable(name: str, value: Any) -> Any:
    """A parameter as JSON. A linear first stage is already in W; a RandomState is not kept."""
    if isinstance(value, (Cholesky, ConjugateGradient)):
        return {"solver": type(value).__name__, **dataclasses.asdict(value)}
    if name == "first_stage" or isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if name == "class_weight" and isinstance(value, dict):
        return {"pairs": [[k.item() if isinstance(k, np.generic) else k, float(v)] for k, v in value.items()]}
    return value


def restored(value: Any) -> Any:
    if isinstance(value, dict) and "solver" in value:
        kind = SOLVERS[value["solver"]]
        return kind(**{k: v for k, v in value.items() if k != "solver"})
    if isinstance(value, dict) and "pairs" in value:
        return dict(value["pairs"])
    return value


def load(path: str | os.PathLike[str], *, mmap: bool = True) -> SmoothLinkClassifier:
    """The classifier in a model file. Runs no code from it; arrays are memory-mapped unless `mmap` is False."""
    from smoothlink.estimator import SmoothLinkClassifier

    loaded = load_file(path, mmap=mmap)
    try:
        meta, arrays = loaded.meta, loaded.arrays
        classifier = SmoothLinkClassifier(**{k: restored(v) for k, v in meta["parameters"].items()})
        model = rebuild(loaded)
        classifier.model_ = model
        classifier.n_features_in_ = meta["n_features_in"]
        classifier.summary_ = meta["summary"]
        classifier.thresholds_ = model.thresholds
        classifier._indicator, classifier._sparse = meta["indicator"], meta["sparse_labels"]
        classifier.label_directions_ = arrays.get("U")
        classifier.classes_ = unpack_classes(arrays, model.n_labels)
        named = "label_names_utf8" in arrays
        classifier.label_names_ = unpack_names(arrays, "label_names") if named else None
        if "feature_names_utf8" in arrays:
            classifier.feature_names_in_ = np.array(unpack_names(arrays, "feature_names"), dtype=object)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(
            f"{os.fspath(path)} is a smoothlink file, but its content does not make a model ({error!r}).\n"
            "Save the model again with this version of smoothlink."
        ) from error
    return classifier


def unpack_classes(arrays: dict[str, Array], c: int) -> Array:
    if "classes" in arrays:
        return np.array(arrays["classes"])
    if "class_names_utf8" in arrays:
        return np.array(unpack_names(arrays, "class_names"))
    return np.arange(c)


def rebuild(loaded: Loaded) -> Model:
    """The model from its arrays, with shapes that fit together."""
    arrays, meta = loaded.arrays, loaded.meta
    shift, factor = arrays["scale_shift"], arrays["scale_factor"]
    model = Model(
        scaling=Scaling(meta["scale"], shift, factor, meta["dense"]),
        input_features=Features(arrays["input_R"], arrays["input_b"]) if "input_R" in arrays else None,
        W=arrays.get("W"),
        classifier=None,
        normalize=meta["normalize"],
        features=Features(arrays["R"], arrays["b"]),
        V=arrays["V"],
        loss=meta["loss"],
        multiclass=meta["multiclass"],
        calibration=Calibration(arrays["calibration_knots"], arrays["calibration_values"], meta["temperature"]),
        counts=arrays["counts"],
        total=meta["total"],
        thresholds=arrays["thresholds"],
    )
    c, inputs = model.n_labels, meta["n_features_in"] if model.input_features is None else len(arrays["input_b"])
    k = inputs if model.W is None else model.W.shape[1]
    fits = model.V.shape[0] == model.features.width(k) and model.counts.shape == model.thresholds.shape == (c,)
    fits = (
        fits
        and (model.W is None or model.W.shape[0] == inputs + 1)
        and (model.features.linear or len(model.features.R) == k)
    )
    if not fits:
        raise ModelFileError("The arrays of this model file do not fit together. Save the model again.")
    return model
