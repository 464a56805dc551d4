"""A model that is fitted anew to all of its rows, with the settings that its fit selected: no search is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.choices import InputKernel, as_choice, nest
from smoothlink.conformal import Conformal
from smoothlink.errors import DataError, ModelFileError
from smoothlink.fitting.choose import ALL_DIRECTIONS
from smoothlink.living.changes import state_of
from smoothlink.parameters import chosen_word

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier

Array = NDArray[Any]


def selected_parameters(classifier: SmoothLinkClassifier, labels: int) -> dict[str, Any]:
    """Returns the parameters of a fitted classifier, with what its fit selected in place of "auto", for a fit with this
    number of labels. What is left "auto" are rules, which cost no search."""
    parameters, summary = classifier.get_params(deep=False), classifier.summary_
    parameters |= {"task": summary["task"], "scale": summary["scale"], "checkpoint": None}
    by, training = summary["chosen_by"].get("rank", ""), chosen_word(parameters, "training")
    if "negatives" in summary:
        return parameters | {"training": "joint" if training == "auto" else parameters["training"]}
    if training == "auto":
        parameters["training"] = "stepwise"
    if by.startswith("full rank"):  # which is fitted where nothing but its ridge is given
        return parameters | {"training": "auto", "ridge": summary["ridge"]}
    if by == "every column":  # logistic regression of x itself
        parameters |= {"embedding": "none", "kernel": "linear", "input_kernel": None, "trees": False}
    elif parameters["embedding"] != "none" and getattr(parameters["embedding"], "classifier", None) is None:
        if parameters["ridge"] == "auto":
            parameters["ridge"] = summary["ridge"]
        if (
            parameters["rank"] == "auto"
            and labels > ALL_DIRECTIONS
            and chosen_word(parameters, "embedding") != "per_label"
        ):
            parameters["rank"] = summary["rank"]
    inputs = as_choice("input_kernel", parameters["input_kernel"])
    if inputs is not None and summary["input_kernel"] is None:
        parameters["input_kernel"] = None
    elif inputs is not None:
        own = InputKernel() if inputs == "auto" else inputs
        width = {"kernel": summary["input_kernel"], "bandwidth": summary["input_bandwidth"]}
        parameters["input_kernel"] = InputKernel(**own.get_params() | width)
    if parameters["trees"] == "auto":
        parameters["trees"] = summary["trees"] > 0
    if parameters["final_ridge"] == "auto":
        parameters["final_ridge"] = summary["final_ridge"]
    selected: dict[str, Any] = {"kernel": summary["kernel"], "loss": summary["loss"]}
    found = {name: as_choice(name, parameters[name]) for name in selected}
    found |= {name: selected[name] for name in selected if found[name] == "auto"}
    if summary["kernel"] != "linear":
        found |= {"kernel.bandwidth": summary["bandwidth"], "kernel.features": summary["random_features"]}
    if summary["passes"]:
        found["loss.passes"] = summary["passes"]
    if summary.get("finetune_passes"):
        found |= {"training": as_choice("training", parameters["training"])}
        found |= {"training.passes": summary["finetune_passes"]}
    return parameters | nest(found)


def take_over(fresh: SmoothLinkClassifier, former: SmoothLinkClassifier) -> None:
    """Gives a classifier that was fitted anew what another one has besides its fit: parameters, names, how it is
    stored. What was selected stays selected by what it was."""
    fresh.set_params(**former.get_params(deep=False))
    given = {name: by for name, by in former.summary_["chosen_by"].items() if name != "scale"}
    fresh.summary_["chosen_by"] |= given
    for name in ("vocabulary_", "zero_based_", "_stored_dtype", "_sparse"):
        setattr(fresh, name, getattr(former, name))
    for name in ("feature_names_in_", "n_features_in_"):
        if hasattr(former, name) and not hasattr(fresh, name):
            setattr(fresh, name, getattr(former, name))
    if former.conformal_ is not None and fresh.conformal_ is None:
        fresh.conformal_ = Conformal.voided("the model was fitted anew.")


def differences(
    fresh: SmoothLinkClassifier, former: SmoothLinkClassifier, X: Any, Y: sp.csr_array, names: list[Any]
) -> dict[str, Any]:
    """Returns the report of a refresh by rows X (n, d) and their labels Y (n, m), both as the former model numbers
    them. names (m): what the labels are called, new ones last."""
    before, after = former.summary_, fresh.summary_
    outcome: dict[str, Any] = {
        "rows_before": before["rows"],
        "labels_added": [str(name) for name in names[former._model.n_labels :]],
        "labels_removed": int(removed_labels(names).sum()),
        "labels_without_rows": int(np.count_nonzero(fresh.model_.counts == 0)),
        "held_out_metrics": {"before": before["held_out_metrics"], "after": after["held_out_metrics"]},
        **rows_in_common(former, X, Y),
        "rows": X.shape[0],
        "calibration_rows": after["held_out_rows"],
    }
    after["living"] = outcome
    return outcome


def rows_in_common(former: SmoothLinkClassifier, X: Any, Y: sp.csr_array) -> dict[str, int]:
    """Returns how many of these rows a model did not have, and how many that it had are not among them; nothing where
    the model does not know its rows."""
    try:
        state = state_of(former)
    except DataError:  # trained without what updates need
        return {}
    except ModelFileError:  # which is lost: a refresh makes it anew
        return {}
    found = Counter(state.digests.of(X, Y))
    both = sum(min(count, state.digests.count(digest)) for digest, count in found.items())
    return {"rows_new": X.shape[0] - both, "rows_gone": len(state.digests) - both}


def removed_labels(names: Sequence[Any]) -> Array:
    """Returns which labels (c,) `forget` has taken the last row and the name of."""
    return np.array([name == f"(removed {j})" for j, name in enumerate(names)], bool)
