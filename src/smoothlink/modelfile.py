"""A fitted classifier <-> the arrays and JSON of a model file."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink import vocabulary
from smoothlink.choices import from_former, from_json, to_json
from smoothlink.conformal import Conformal
from smoothlink.device_model import DeviceCopy
from smoothlink.errors import ModelFileError
from smoothlink.living import store
from smoothlink.living.changes import state_of
from smoothlink.machines.copies import TrainingRows
from smoothlink.machines.grouped_codes import GROUP, Codes, from_upper_half
from smoothlink.machines.rows_in_files import pieces
from smoothlink.machines.seeded_numbers import SEED_BITS
from smoothlink.machines.sparse_weights import SparseWeights
from smoothlink.model import Model
from smoothlink.parameters import DTYPES, Interval, Values, check_value
from smoothlink.safetensors_file import Loaded, Verification, canonical, checksum, has_names, pack_names, unpack_names
from smoothlink.safetensors_file import load as load_file
from smoothlink.safetensors_file import save as save_file
from smoothlink.solve import Cholesky, ConjugateGradient, DualCholesky
from smoothlink.steps.calibrate import Calibration
from smoothlink.steps.featurize import DISTRIBUTIONS, Draw, Features, parse_kernel
from smoothlink.steps.landmarks import Landmarks
from smoothlink.steps.reference import BINS, reference_of
from smoothlink.steps.scale import Scaling
from smoothlink.steps.thresholds import HALF
from smoothlink.steps.trees import LINKS, Trees
from smoothlink.weights import (
    ArrayWeights,
    CodedWeights,
    HalfWeights,
    Weights,
    check_sound,
    open_shards,
    read_arrays,
    sound,
)

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.classifier import TextSmoothLink
    from smoothlink.text.model_section import Section

Array = NDArray[Any]

SOLVERS = {solver.__name__: solver for solver in (Cholesky, ConjugateGradient, DualCholesky)}
SCALES = ("V_scale", "W_scale", "D_scale")  # present where those arrays are not float32
PRUNED = Values(number=Interval(0, 1))  # share of the sparse weights that are left out
DRAWN_BYTES = 1 << 32  # of random features that are drawn again: a small file may not ask for any amount of memory
EXACT_BYTES = 16 << 20  # of weights in float32, up to which those of a fitted model are stored so
SPARSE_ARRAYS = ("D_indptr", "D_labels", "D_values")  # present where labels have sparse weights
FREQUENCIES = {"R": "b", "input_R": "input_b"}  # of random features, and their phases
MEASURED = ("seconds", "peak_memory_mb", "plan")  # in the summary of a fit, other in each run of it
CONFORMAL_ARRAYS = {  # where a model has conformal rows
    "conformal_indptr": np.int64,
    "conformal_labels": np.int32,
    "conformal_probabilities": np.float32,
    "conformal_confidence": np.float32,
    "conformal_precision": np.float32,
}
TREE_ARRAYS = ("tree_roots", "tree_feature", "tree_threshold", "tree_children", "tree_values")  # where there are trees
TREE_START = "tree_start"  # with them; files before 0.13 have none
LARGEST_GAIN = 1e30  # of what trees predict


def save(
    classifier: SmoothLinkClassifier,
    path: str | os.PathLike[str],
    dtype: str | None = None,
    prune: float = 0.0,
    text: Section | None = None,
) -> None:
    """Writes a fitted classifier, with what makes it a text model; refuses what a file without code cannot hold."""
    check_value("dtype", dtype, DTYPES)
    check_value("prune", prune, PRUNED)
    model = classifier.model_
    if prune and model.sparse_weights is None:
        raise ModelFileError(f"prune is {prune:g}, and this model has no sparse weights to leave out.\nLeave it out.")
    if prune and classifier._living is not None:
        raise ModelFileError(f"prune is {prune:g}, and updates of this model need all of its weights.\nLeave it out.")
    if model.classifier is not None:
        raise ModelFileError(
            "The embedding of this model is a fitted "
            f"{type(classifier.get_params()['embedding__classifier']).__name__}, "
            "which a file cannot hold without running code.\n"
            "Use a classifier with coef_ and intercept_, or pickle the estimator."
        )
    model.finish_verification()  # damage would have a right checksum in the new file
    path = Path(path)
    replaced = shards_of(path) | sums_of(path)
    sums = saved_sums(classifier, path)
    with removed_unless_named(path, {one["file"] for one in sums.values()} - replaced):
        model = classifier.model_  # with all rows folded in
        dtype = dtype or classifier._stored_dtype or default_dtype(model)
        arrays, meta = model_arrays(classifier, dtype, prune), {**model_meta(classifier), "dtype": dtype, **sums}
        conformal = conformal_to_save(classifier, dtype, prune)
        if conformal is not None:
            values = (
                conformal.indptr,
                conformal.labels,
                conformal.probabilities,
                conformal.confidence,
                conformal.precision,
            )
            arrays |= dict(zip(CONFORMAL_ARRAYS, values, strict=True))
            meta["conformal"] = {"void": conformal.void}
        if text is not None:
            arrays, meta = {**arrays, **text.arrays}, {**meta, "text": text.meta}
        check_sound(arrays, path)
        V = model.V.store(path, "int8" if dtype == "int4" and not int4_decoder(model) else dtype)
        check_sound(V.arrays, path)
        save_file(path, {**arrays, **V.arrays}, {**meta, **V.meta})
    kept = {*V.meta.get("shards", ()), *(one["file"] for one in sums.values())}
    for name in replaced - kept:
        with suppress(OSError):  # Windows removes no file that is mapped
            (path.parent / name).unlink()
    store.remove_abandoned_sums(path)


@contextmanager
def removed_unless_named(path: Path, sums: set[str]) -> Iterator[None]:
    """Removes these new files of sums after an error; where the model file was replaced before it and names one of
    them, the others."""
    try:
        yield
    except BaseException:
        with suppress(OSError, ModelFileError):
            named = load_file(path).meta.get("sums", {}).get("file") if path.exists() else None
            for name in sums_of(path) - {named} if named in sums else sums:
                (Path(os.path.realpath(path)).parent / name).unlink()
        raise


def conformal_to_save(classifier: SmoothLinkClassifier, dtype: str, prune: float) -> Conformal | None:
    """Returns the conformal rows, void where the file's weights give other probabilities than theirs."""
    conformal, coarse = classifier.conformal_, dtype in ("int8", "int4") and dtype != classifier._stored_dtype
    if conformal is None or conformal.void is not None or not (coarse or prune):
        return conformal
    what = f"{100 * prune:g} % of the sparse weights were left out" if prune else f"the weights were saved in {dtype}"
    return Conformal.voided(f"{what}, which changes probabilities.")


def saved_sums(classifier: SmoothLinkClassifier, path: Path) -> dict[str, Any]:
    """Writes the sums of a model that can be updated beside its file; returns what its meta says of them.

    Where they are lost, the model is saved without, with a warning.
    """
    if classifier._living is None:
        return {}
    if isinstance(classifier._living, store.StoredSums) and classifier._living.belongs_to(path):
        return {"sums": classifier._living.meta}  # nothing changed since the model was loaded from there
    try:
        state = state_of(classifier)
    except ModelFileError as error:
        warnings.warn(f"{error}\nThe model is saved without sums.", UserWarning, stacklevel=3)
        return {}
    classifier.model_ = state.model_to_save(classifier.model_)
    return {"sums": store.write(state, path)}


def sums_of(path: Path) -> set[str]:
    """Returns the files beside the model at `path` with sums of it, those that a killed process left too."""
    folder = Path(os.path.realpath(path)).parent
    return (
        {file.name for file in folder.iterdir() if store.is_sums_name(path.stem, file.name)}
        if folder.is_dir()
        else set()
    )


def int4_decoder(model: Model) -> bool:
    """Returns whether V may have 4 bits. Where it is multiplied with random features, or is a ridge regression, its
    large weights cancel each other: debtags lost 1.6 of P@1 by int4, and 0.1 by int8."""
    return model.features.linear and model.loss != "squared"


def default_dtype(model: Model, exact_bytes: int = EXACT_BYTES) -> str:
    """Returns how the weights of a fitted model are stored: exactly where that takes little room, or V is in shards."""
    W, D = model.W, model.sparse_weights
    entries = math.prod(model.V.shape) + (0 if W is None else math.prod(W.shape)) + (0 if D is None else D.size)
    return "float32" if model.V.files or 4 * entries <= exact_bytes else "float16"


def shards_of(path: Path) -> set[str]:
    """Returns the files that hold V of the model at `path`, if there is one; those of another name are not its own."""
    try:
        names = load_file(path).meta.get("shards")
    except ModelFileError:
        return set()
    names = names if isinstance(names, list) else []
    own = f"{path.stem}-V-"
    return {name for name in names if isinstance(name, str) and Path(name).name == name and name.startswith(own)}


def model_arrays(classifier: SmoothLinkClassifier, dtype: str, prune: float = 0.0) -> dict[str, Array]:
    """Returns the arrays of a model file but V, by name (docs/file-format.md lists them); W, D and U of a `dtype`, D
    without a share of its smallest weights."""
    model = classifier.model_
    arrays: dict[str, Array] = {
        **features_arrays("R", model.features),
        "counts": model.counts,
        "thresholds": model.thresholds,
        "calibration_knots": model.calibration.knots,
        "calibration_values": model.calibration.values,
        "scale_shift": model.scaling.shift,
        "scale_factor": model.scaling.factor,
    }
    if model.calibration.labels is not None:
        arrays["calibration_labels"] = model.calibration.labels
    if model.reference is not None:
        arrays |= model.reference.arrays
    if model.W is not None:
        # The sums are of rows that this very W embeds, and V can be solved for anew.
        arrays |= model.W.to_arrays("W", dtype if classifier._living is None else "float32")
    if model.sparse_weights is not None:
        *D, scale = model.sparse_weights.without_smallest(prune).stored(dtype, model.n_labels)
        arrays |= dict(zip(SPARSE_ARRAYS, D, strict=True)) | ({} if scale is None else {"D_scale": scale})
    if classifier.label_directions_ is not None:
        arrays["U"] = classifier.label_directions_.astype("float32" if dtype == "float32" else "float16", copy=False)
    if isinstance(model.input_features, Landmarks):
        arrays["input_points"] = model.input_features.points
    elif model.input_features is not None:
        arrays |= features_arrays("input_R", model.input_features)
    if model.trees is not None:
        found: tuple[Any, ...] = model.trees[1:7]
        arrays |= dict(zip((*TREE_ARRAYS, TREE_START), found, strict=True))
    if classifier.training_rows_ is not None:
        arrays["training_rows"] = np.ascontiguousarray(classifier.training_rows_.hashes).view(np.int32)
    if not classifier._indicator:
        arrays |= pack_classes(classifier.classes_)
    if classifier.label_names_ is not None:
        if len(classifier.label_names_) != model.n_labels:
            raise ModelFileError(f"label_names_ has {len(classifier.label_names_)} names for {model.n_labels} labels.")
        arrays |= pack_names(classifier.label_names_, "label_names")
    if hasattr(classifier, "feature_names_in_"):
        arrays |= pack_names([str(name) for name in classifier.feature_names_in_], "feature_names")
    if classifier.vocabulary_ is not None:
        arrays |= vocabulary.to_arrays(classifier.vocabulary_)
    return arrays


def features_arrays(name: str, features: Features) -> dict[str, Array]:
    """Returns what a file holds of random features: their frequencies, or else the factors of the numbers drawn."""
    kept = {name: features.R} if features.draw is None else {f"{name}_factor": features.draw.factor}
    return {**kept, FREQUENCIES[name]: features.b}


def draws(model: Model) -> dict[str, Any]:
    """Returns how frequencies that the file does not hold were drawn, by their name, with a checksum of them."""
    inputs = model.input_features if isinstance(model.input_features, Features) else None
    found = {name: features for name, features in (("R", model.features), ("input_R", inputs)) if features is not None}
    return {
        name: {
            "distribution": features.draw.distribution,
            "seed": features.draw.seed,
            "shape": list(features.R.shape),
            "crc32": checksum(features.R),
        }
        for name, features in found.items()
        if features.draw is not None
    }


def pack_classes(classes: Array) -> dict[str, Array]:
    """Returns class ids: numbers as they are (unsigned ones as int64, which wraps), text as packed names."""
    if classes.dtype.kind in "ifb":
        return {"classes": classes}
    if classes.dtype.kind == "u":
        return {"classes": classes.astype(np.int64)}
    if classes.dtype.kind in "UO" and all(isinstance(name, str) for name in classes.tolist()):
        return pack_names(classes.tolist(), "class_names")
    raise ModelFileError(f"Class ids of type {classes.dtype} cannot be saved; use numbers or text.")


def model_meta(classifier: SmoothLinkClassifier) -> dict[str, Any]:
    """Returns the JSON of a model file: parameters, what the arrays do not say, and the summary of the fit."""
    model = classifier.model_
    inputs = model.input_features
    return {
        "parameters": {name: storable(name, value) for name, value in classifier.get_params(deep=False).items()},
        "parameters_of": "0.2",
        "n_features_in": int(classifier.n_features_in_),
        "indicator": classifier._indicator,
        "sparse_labels": classifier._sparse,
        "class_dtype": classifier.classes_.dtype.str,
        "scale": model.scaling.kind,
        "dense": bool(model.scaling.dense),
        "normalize": bool(model.normalize),
        "loss": model.loss,
        "multiclass": model.multiclass,
        "temperature": float(model.calibration.temperature),
        **({"threshold": model.threshold} if model.has_aim else {}),
        **({"first": list(model.calibration.top1)} if model.calibration.recalibrates_top1 else {}),
        "total": float(model.total),
        **({} if model.reference is None else {"reference": model.reference.numbers}),
        **({} if classifier.zero_based_ is None else {"zero_based": classifier.zero_based_}),
        **({} if classifier.training_rows_ is None else {"training_rows_every": classifier.training_rows_.every}),
        **({} if model.trees is None else {"trees": [model.trees.link, float(model.trees.gain)]}),
        "landmarks": None if not isinstance(inputs, Landmarks) else [str(inputs.kernel), float(inputs.length)],
        **({} if classifier.vocabulary_ is None else {"vocabulary": vocabulary.to_meta(classifier.vocabulary_)}),
        "draws": draws(model),
        "summary": finite(classifier.summary_),
    }


def finite(value: Any) -> Any:
    """Returns the same with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def storable(name: str, value: Any) -> Any:
    """Returns a parameter as JSON. A linear classifier of PerLabel is already in W; a RandomState and a foreign solver
    are not kept."""
    if type(value) in SOLVERS.values():
        return {"solver": type(value).__name__, **dataclasses.asdict(value)}
    if name == "solver":
        return value if isinstance(value, str) else "auto"
    if isinstance(value, np.random.RandomState):
        return None
    if name == "class_weight" and isinstance(value, dict):
        return {"pairs": [[storable("", key), float(weight)] for key, weight in value.items()]}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return to_json(value)


def restored(value: Any) -> Any:
    """Returns the parameter that `storable` made JSON."""
    if isinstance(value, dict) and "solver" in value:
        kind = SOLVERS[value["solver"]]
        return kind(**{k: v for k, v in value.items() if k != "solver"})
    if isinstance(value, dict) and "pairs" in value:
        return dict(value["pairs"])
    return from_json(value)


def load(
    path: str | os.PathLike[str], *, mmap: bool = True, verify: bool | str = "background"
) -> SmoothLinkClassifier | TextSmoothLink:
    """Returns the model in a file: a TextSmoothLink where it was made from texts, else a SmoothLinkClassifier.

    Runs no code from it. Arrays are memory-mapped unless `mmap` is False. Mapped arrays of 1 MiB and more are compared
    with their checksums in a thread, and the next prediction raises a ModelFileError where one does not match;
    verify="now" (or True) reads them whole first, "never" (or False) does without.
    """
    loaded, classifier = read_classifier(path, mmap=mmap, verify=verify)
    if "text" not in loaded.meta:
        return classifier
    from smoothlink.text.model_section import text_model

    with naming_file(path):
        return text_model(loaded, classifier)


def read_classifier(
    path: str | os.PathLike[str], *, mmap: bool, verify: bool | str
) -> tuple[Loaded, SmoothLinkClassifier]:
    """Returns the content of a model file and the classifier that it makes."""
    when = {True: "now", False: "never"}[verify] if isinstance(verify, bool) else verify
    check_value("verify", when, Values(("now", "background", "never")))
    loaded = load_file(path, mmap=mmap, verify=when == "now")
    check_sound(read_arrays(loaded), Path(path))
    with naming_file(path):
        classifier = classifier_of(loaded, path, mmap=mmap, verify=when == "now")
    if loaded.unchecked and when == "background":
        classifier.model_ = dataclasses.replace(classifier.model_, verification=Verification(loaded.unchecked, sound))
    return loaded, classifier


@contextmanager
def naming_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raises what does not make a model as a ModelFileError with the name of the file."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ModelFileError(
            f"{os.fspath(path)} is a smoothlink file, but its content does not make a model ({error!r}).\n"
            "Save the model again with this version of smoothlink."
        ) from error


def classifier_of(
    loaded: Loaded, path: str | os.PathLike[str], *, mmap: bool = True, verify: bool = False
) -> SmoothLinkClassifier:
    """Returns the classifier that a file's arrays and meta make."""
    from smoothlink.estimator import SmoothLinkClassifier

    meta, arrays = loaded.meta, {**loaded.arrays, **draw_frequencies(loaded)}
    V: Weights
    if "shards" in meta:
        V = shards = open_shards(
            Path(path).parent, meta["shards"], mmap=mmap, verify=verify, unchecked=loaded.unchecked
        )
        shards.check(meta)
    else:
        V = weights_of(arrays, "V", sizes_of(arrays, meta))
    model = build_model(arrays, meta, V)
    parameters = {k: restored(v) for k, v in meta["parameters"].items() if k != "device"}  # which another may lack
    if "parameters_of" not in meta:
        parameters = from_former(parameters)
    classifier = SmoothLinkClassifier(**parameters)
    classifier.model_ = model
    classifier._living = store.StoredSums.of(Path(path).parent, meta["sums"]) if "sums" in meta else None
    classifier._device_copy = DeviceCopy()
    classifier._stored_dtype = stored_dtype(loaded)
    classifier.n_features_in_ = meta["n_features_in"]
    classifier.summary_ = meta["summary"]
    classifier.zero_based_ = meta.get("zero_based")
    classifier._indicator, classifier._sparse = meta["indicator"], meta["sparse_labels"]
    classifier.label_directions_ = arrays.get("U")
    classifier.training_rows_ = training_rows_of(arrays, meta)
    classifier.classes_ = unpack_classes(loaded, model.n_labels)
    classifier.label_names_ = unpack_count(arrays, "label_names", model.n_labels)
    classifier.vocabulary_ = vocabulary.from_file(arrays, meta["vocabulary"]) if "vocabulary" in meta else None
    classifier.conformal_ = conformal_of(arrays, meta, model.n_labels) if "conformal" in meta else None
    features = unpack_count(arrays, "feature_names", classifier.n_features_in_)
    if features is not None:
        classifier.feature_names_in_ = np.array(features, dtype=object)
    return classifier


def digest(path: str | os.PathLike[str]) -> str:
    """Returns the SHA-256 of a model: of its arrays, those in shards too, and of what its file says of them but the
    seconds and memory of the fit, and names of shards. Fits of equal data, parameters, seed, versions and threads have
    the same."""
    loaded = load_file(path, verify=True)
    meta = {name: value for name, value in loaded.meta.items() if name not in ("shards", "sums")}
    meta["summary"] = {name: value for name, value in meta.get("summary", {}).items() if name not in MEASURED}
    shapes = {name: [array.dtype.str, *array.shape] for name, array in loaded.arrays.items()}
    found = hashlib.sha256(canonical({"meta": meta, "versions": loaded.versions, "arrays": shapes}).encode())
    shards = open_shards(Path(path).parent, loaded.meta["shards"]).parts if "shards" in loaded.meta else []
    for array in [*(loaded.arrays[name] for name in sorted(loaded.arrays)), *shards]:
        for piece in pieces(array.reshape(-1)):
            found.update(piece.data)
    return found.hexdigest()


def stored(loaded: Loaded) -> dict[str, Any]:
    """Returns how a file holds the weights of its model: the type and the bytes of each part, and what is drawn from a
    seed."""
    arrays, found = loaded.arrays, {}
    for name, values in (("W", "W"), ("V", "V"), ("D", "D_values"), ("R", "R"), ("input_R", "input_R")):
        if values in arrays:
            dtype = "int4" if arrays[values].dtype == np.uint8 else str(arrays[values].dtype)
            parts = [array.nbytes for key, array in arrays.items() if key == name or key.startswith(f"{name}_")]
            found[name] = dtype, sum(parts)
    return {"dtype": stored_dtype(loaded), "arrays": found, "drawn": list(loaded.meta.get("draws", {}))}


def stored_dtype(loaded: Loaded) -> str:
    """Returns the numbers that a file was saved in; those before 0.5 do not say."""
    return str(loaded.meta.get("dtype", "float16" if "V_scale" in loaded.arrays else "float32"))


def training_rows_of(arrays: dict[str, Array], meta: dict[str, Any]) -> TrainingRows | None:
    """Returns the sketch of the training rows; early files have none."""
    if "training_rows" not in arrays and "training_rows_every" not in meta:
        return None
    hashes, every = arrays["training_rows"], meta["training_rows_every"]
    fits = hashes.dtype == np.int32 and hashes.ndim == 1 and type(every) is int and every > 0
    if not fits or every & (every - 1):
        raise ModelFileError("its sketch of the training rows does not fit (training_rows). Save the model again.")
    return TrainingRows(hashes.view(np.uint32), every)


def conformal_of(arrays: dict[str, Array], meta: dict[str, Any], c: int) -> Conformal:
    """Returns the conformal rows; raises an error where they do not fit together."""
    indptr, labels, probabilities, confidence, precision = (arrays[name] for name in CONFORMAL_ARRAYS)
    found = Conformal(indptr, labels, probabilities, confidence, precision, meta["conformal"]["void"])
    void, m, shares = found.void, len(found.labels), (found.probabilities, found.confidence, found.precision)
    fits = all(arrays[name].dtype == kind and arrays[name].ndim == 1 for name, kind in CONFORMAL_ARRAYS.items())
    fits = fits and len(found.probabilities) == m and len(found.confidence) == len(found.precision) == found.n
    fits = fits and found.n >= 0 and found.indptr[0] == 0 and found.indptr[-1] == m
    fits = fits and bool((np.diff(found.indptr) >= 0).all()) and (void is None or isinstance(void, str))
    fits = fits and all(not len(each) or (each.min() >= 0 and each.max() <= 1 + 1e-6) for each in shares)
    if not fits or (m and not (found.labels.min() >= 0 and found.labels.max() <= c)):
        raise ModelFileError("its conformal rows do not fit the model. Save the model again.")
    return found


def unpack_count(arrays: dict[str, Array], key: str, count: int) -> list[str] | None:
    """Returns the packed names under this key, None if there are none; raises an error if they are not `count`."""
    if not has_names(arrays, key):
        return None
    names = unpack_names(arrays, key)
    if len(names) != count:
        raise ModelFileError(f"it has {len(names)} {key} where there must be {count}. Save the model again.")
    return names


def unpack_classes(loaded: Loaded, c: int) -> Array:
    """Returns class ids of the type they had."""
    if loaded.meta["indicator"]:
        return np.arange(c)
    names = unpack_count(loaded.arrays, "class_names", c)
    classes = np.array(loaded.arrays["classes"] if names is None else names)
    kind = np.dtype(loaded.meta["class_dtype"])
    if classes.shape != (c,) or kind.kind not in "biufUO":
        raise ModelFileError(f"its class ids do not fit {c} classes. Save the model again.")
    return classes.astype(kind)


def build_model(arrays: dict[str, Array], meta: dict[str, Any], V: Weights) -> Model:
    """Returns the model of a file's content; raises an error where that does not fit together."""
    check_meta(meta)
    check_arrays(arrays, meta, V)
    if meta["dense"] and "D_values" in arrays:
        raise ModelFileError("it has sparse weights (D) for dense rows. Save the model again.")
    if not meta["dense"] and "tree_roots" in arrays:
        raise ModelFileError("it has trees for sparse rows. Save the model again.")
    shift, factor = (arrays[name].astype(np.float64) for name in ("scale_shift", "scale_factor"))
    return Model(
        scaling=Scaling(meta["scale"], shift, factor, meta["dense"]),
        input_features=input_features(arrays, meta),
        W=weights_of(arrays, "W", sizes_of(arrays, meta)) if "W" in arrays else None,
        classifier=None,
        normalize=meta["normalize"],
        features=features_of(arrays, meta, "R"),
        V=V,
        loss=meta["loss"],
        multiclass=meta["multiclass"],
        calibration=Calibration(
            arrays["calibration_knots"],
            arrays["calibration_values"],
            meta["temperature"],
            top1_of(meta),
            label_maps_of(arrays),
        ),
        counts=arrays["counts"],
        total=meta["total"],
        thresholds=arrays["thresholds"],
        threshold=meta.get("threshold", HALF),
        sparse_weights=sparse_weights_of(arrays, meta["n_features_in"], V.shape[1]),
        trees=trees_of(arrays, meta),
        reference=reference_of(arrays, meta.get("reference")),
    )


def label_maps_of(arrays: dict[str, Any]) -> NDArray[Any] | None:
    """Returns the maps (5, c) of labels; files of 0.4 have three numbers of each."""
    maps = arrays.get("calibration_labels")
    return maps if maps is None or len(maps) == 5 else np.vstack([maps, np.zeros((2, maps.shape[1]))])


def top1_of(meta: dict[str, Any]) -> tuple[float, float]:
    """Returns how the best label of a row is recalibrated; early files do not say."""
    a, b = meta.get("first", [0.0, 1.0])
    if not (isinstance(a, float) and isinstance(b, float) and b > 0):
        raise ModelFileError(f"its description does not make a model (first = {[a, b]}). Save the model again.")
    return a, b


def sparse_weights_of(arrays: dict[str, Array], d: int, c: int) -> SparseWeights | None:
    """Returns the sparse weights, where the file has them; a label that does not exist would be written to."""
    if not arrays.keys() & set(SPARSE_ARRAYS):
        return None
    indptr, labels, values = (arrays[name] for name in SPARSE_ARRAYS)
    D = SparseWeights(indptr, labels, values, arrays.get("D_scale"))
    count = len(D.values)
    weights = (np.float32,) if D.scale is None else (np.int16, np.int8)
    arrays_of_d = (
        *(
            (D.indptr, (np.int64,), (d + 2,)),
            (D.labels, (np.int32, np.uint16), (count,)),
            (D.values, weights, (count,)),
        ),
        *(() if D.scale is None else ((D.scale, (np.float32,), (d + 1,)),)),
    )
    fits = all(found.dtype in kinds and found.shape == shape for found, kinds, shape in arrays_of_d)
    fits = fits and D.indptr[0] == 0 and D.indptr[-1] == count and bool((np.diff(D.indptr) >= 0).all())
    if not fits or (count and not (D.labels.min() >= 0 and D.labels.max() < c)):
        raise ModelFileError("its sparse weights (D) do not fit the model. Save the model again.")
    return D


def trees_of(arrays: dict[str, Array], meta: dict[str, Any]) -> Trees | None:
    """Returns the trees, where the file has them; a child that is not after its parent would be a way without end."""
    if not arrays.keys() & {*TREE_ARRAYS, TREE_START}:
        return None
    d, said = meta["n_features_in"], meta.get("trees", ["identity", 1.0])
    if not fits_trees(said) or ("trees" in meta) != (TREE_START in arrays):
        raise ModelFileError(f"its description does not make a model (trees = {said!r}). Save the model again.")
    roots, feature, threshold, children, values = (arrays[name] for name in TREE_ARRAYS)
    start = arrays[TREE_START] if "trees" in meta else np.zeros(values.shape[1:2], np.float32)
    trees = Trees(d, roots, feature, threshold, children, values, start, *said)
    m, nodes = len(trees.feature), np.arange(len(trees.feature))
    shapes = (
        *((trees.roots, np.int32, (trees.roots.size,)), (trees.feature, np.int32, (m,))),
        *((trees.threshold, np.float32, (m,)), (trees.children, np.int32, (m, 2))),
        (trees.values, np.float32, (m, *(trees.values.shape[1:2] or (0,)))),
        (trees.start, np.float32, trees.values.shape[1:2]),
    )
    fits = all(found.dtype == kind and found.shape == shape for found, kind, shape in shapes) and trees.values.size > 0
    inner = nodes[trees.feature >= 0] if fits else nodes
    fits = fits and bool((trees.feature < d).all() and ((trees.roots >= 0) & (trees.roots < m)).all())
    if not fits or not ((trees.children[inner] > inner[:, None]) & (trees.children[inner] < m)).all():
        raise ModelFileError("its trees do not fit the model. Save the model again.")
    return trees


def weights_of(arrays: dict[str, Array], name: str, sizes: Sizes) -> ArrayWeights | HalfWeights | CodedWeights:
    """Returns V or W as the file has it: float32, float16 with a scale for each column, or codes."""
    values, scale = arrays[name], arrays.get(f"{name}_scale")
    if scale is None:
        return ArrayWeights(values)
    if values.dtype == np.float16:
        return HalfWeights(values, scale)
    return CodedWeights(Codes(values, from_upper_half(scale), sizes.V[0] if name == "V" else sizes.W[0]))


def input_features(arrays: dict[str, Array], meta: dict[str, Any]) -> Features | Landmarks | None:
    """Returns the kernel first stage, where the file has one."""
    if "input_points" in arrays:
        kernel, length = meta["landmarks"]
        return Landmarks(arrays["input_points"], parse_kernel(kernel), float(length))
    return features_of(arrays, meta, "input_R") if "input_R" in arrays else None


def features_of(arrays: dict[str, Array], meta: dict[str, Any], name: str) -> Features:
    """Returns random features, with what their frequencies were drawn from where the file holds that."""
    drawn = meta.get("draws", {}).get(name)
    draw = None if drawn is None else Draw(drawn["distribution"], drawn["seed"], arrays[f"{name}_factor"])
    return Features(arrays[name], arrays[FREQUENCIES[name]], draw)


def draw_frequencies(loaded: Loaded) -> dict[str, Array]:
    """Returns the frequencies that the file holds as seeds, drawn again; raises an error unless they are the same."""
    found: dict[str, Array] = {}
    if not loaded.meta.get("draws"):
        return found
    sizes = sizes_of(loaded.arrays, loaded.meta)
    rows = {"R": sizes.k, "input_R": sizes.columns}
    for name, drawn in loaded.meta["draws"].items():
        draw = Draw(drawn["distribution"], drawn["seed"], loaded.arrays[f"{name}_factor"])
        k, s = drawn["shape"]
        fits = all(type(number) is int and number >= 0 for number in (k, s, draw.seed)) and draw.seed < 2**SEED_BITS
        fits = fits and name in FREQUENCIES and name not in loaded.arrays and draw.distribution in DISTRIBUTIONS
        fits = fits and k == rows[name] and 4 * k * s <= DRAWN_BYTES
        if not fits or draw.factor.shape != (s,) or draw.factor.dtype != np.float64:
            raise ModelFileError(f"its description does not make a model (draws of {name}). Save the model again.")
        found[name] = draw.frequencies(k)
        if checksum(found[name]) != drawn["crc32"]:
            raise ModelFileError(
                f"its random features ({name}) were drawn by smoothlink {loaded.versions.get('smoothlink')}, and this "
                "version draws others from their seed.\nLoad it with that version, or train again."
            )
    return found


def check_meta(meta: dict[str, Any]) -> None:
    """Raises an error unless each key is of its kind."""
    flags = ("indicator", "sparse_labels", "dense", "normalize", "multiclass")
    fits = {
        **{name: isinstance(meta[name], bool) for name in flags},
        **{name: isinstance(meta[name], float) and meta[name] > 0 for name in ("temperature", "total")},
        **{name: isinstance(meta[name], dict) for name in ("parameters", "summary")},
        "n_features_in": type(meta["n_features_in"]) is int and meta["n_features_in"] > 0,
        "zero_based": isinstance(meta.get("zero_based"), bool | None),
        "dtype": meta.get("dtype") in DTYPES,
        "draws": isinstance(meta.get("draws", {}), dict),
        "threshold": isinstance(meta.get("threshold"), float | None),
        "reference": fits_reference(meta.get("reference")),
        "landmarks": meta["landmarks"] is None or fits_landmarks(meta["landmarks"]),
        "scale": meta["scale"] in ("none", "unit", "variance"),
        "loss": meta["loss"] in (("squared", "softmax") if meta["multiclass"] else ("squared", "logistic")),
    }
    wrong = [f"{name} = {meta.get(name)!r}" for name, fine in fits.items() if not fine]
    if wrong:
        raise ModelFileError(f"its description does not make a model ({'; '.join(wrong)}). Save the model again.")


def fits_landmarks(found: Any) -> bool:
    """Returns whether this is a kernel and its squared width."""
    if not (isinstance(found, list) and len(found) == 2 and isinstance(found[0], str)):
        return False
    return parse_kernel(found[0]).name != "linear" and isinstance(found[1], float) and found[1] > 0


def fits_trees(found: Any) -> bool:
    """Returns whether this is what makes predictions of the sums over trees, and what they are multiplied by."""
    if not (isinstance(found, list) and len(found) == 2 and isinstance(found[0], str)):
        return False
    return found[0] in LINKS and isinstance(found[1], float) and 0 < found[1] < LARGEST_GAIN


def fits_reference(found: Any) -> bool:
    """Returns whether this is None, or the numbers of a reference."""
    return found is None or (
        isinstance(found, list) and len(found) == 3 and all(isinstance(number, float) for number in found)
    )


class Sizes(NamedTuple):
    """Sizes of a model's arrays."""

    d: int  # features
    c: int  # labels
    columns: int  # of x and of what trees predict
    inputs: int  # of the embedding
    k: int
    s: int

    @property
    def W(self) -> tuple[int, int]:
        return self.inputs + 1, self.k

    @property
    def V(self) -> tuple[int, int]:
        return (self.s or self.k) + 1, self.c


def sizes_of(arrays: dict[str, Array], meta: dict[str, Any]) -> Sizes:
    """Returns the sizes that the smaller arrays of a file state."""
    d, s = meta["n_features_in"], arrays["b"].size
    columns = d + (0 if (trees := trees_of(arrays, meta)) is None else trees.values.shape[1])
    inputs = arrays["input_b"].size if "input_b" in arrays else columns
    inputs = arrays["input_points"].shape[0] if "input_points" in arrays else inputs
    k = arrays["W"].shape[-1] if "W" in arrays else inputs
    return Sizes(d, arrays["counts"].size, columns, inputs, k, s)


def check_arrays(arrays: dict[str, Array], meta: dict[str, Any], V: Weights) -> None:
    """Raises an error unless the arrays are those of one model, of the types and shapes in docs/file-format.md."""
    sizes = sizes_of(arrays, meta)
    d, c, columns, inputs, k, s = sizes
    scaled = (d if meta["scale"] == "variance" else 0,)
    knots = (arrays["calibration_knots"].size,)
    expected: dict[str, tuple[Any, tuple[int, ...]]] = {
        **compact_shapes(arrays, "V", sizes.V),
        **compact_shapes(arrays, "W", sizes.W),
        "U": (np.float16 if "U" in arrays and arrays["U"].dtype == np.float16 else np.float32, (c, k)),
        "R": (np.float32, (k, s)),
        "b": (np.float32, (s,)),
        "input_R": (np.float32, (columns, inputs)),
        "input_b": (np.float32, (inputs,)),
        "input_points": (np.float32, (inputs, columns)),
        "counts": (np.float64, (c,)),
        "thresholds": (np.float64, (c,)),
        "calibration_knots": (np.float64, knots),
        "calibration_values": (np.float64, knots),
        **{f"reference_{name}": (np.float64, (BINS,)) for name in ("top", "frequency", "length")},
        "reference_labels": (np.float32, (c,)),
        "reference_by_size": (np.float64, (2,)),
        "calibration_labels": (np.float64, (3 if len(arrays.get("calibration_labels", ())) == 3 else 5, c)),
    }
    for name in ("scale_shift", "scale_factor"):  # files before 0.4 have them in float32
        expected[name] = np.float32 if arrays[name].dtype == np.float32 else np.float64, scaled
    optional = {"W", "U"} if meta["landmarks"] is not None else {"W", "U", "input_points"}
    if "calibration_labels" not in arrays:  # files before 0.4, and models without calibration
        optional |= {"calibration_labels"}
    elif not knots[0]:
        raise ModelFileError("it has maps of labels, but not the one that they share. Save the model again.")
    if meta.get("reference") is None:  # files before 0.9, and models without held-out rows
        optional |= {f"reference_{name}" for name in ("top", "frequency", "labels", "by_size")}
    optional |= {"reference_length"}
    if not {"input_R", "input_b"} & arrays.keys():
        optional |= {"input_R", "input_b"}
    if V.files:  # which hold it
        optional |= {"V"}
        if V.shape != sizes.V:
            raise misfit("V", str(V.shape), str(sizes.V))
    for name, (kind, shape) in expected.items():
        if name in optional and name not in arrays:
            continue
        found = arrays[name]
        if found.shape != shape or found.dtype != kind:
            raise misfit(name, f"{found.dtype} {found.shape}", f"{np.dtype(kind)} {shape}")


def compact_shapes(
    arrays: dict[str, Array], name: str, shape: tuple[int, int]
) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Returns the type and shape of V or W and of its scale, where it has one, by the type that it has in the file."""
    (rows, width), scale = shape, f"{name}_scale"
    if scale not in arrays:
        return {name: (np.float32, shape)}
    groups = np.uint16, (-(-rows // GROUP), width)
    if arrays[name].dtype == np.int8:
        return {name: (np.int8, shape), scale: groups}
    if arrays[name].dtype == np.uint8:
        return {name: (np.uint8, (-(-rows // 2), width)), scale: groups}
    return {name: (np.float16, shape), scale: (np.float32, (width,))}


def misfit(name: str, found: str, expected: str) -> ModelFileError:
    return ModelFileError(
        f"its arrays do not fit together: {name} is {found}, where a model has {expected}. Save the model again."
    )
