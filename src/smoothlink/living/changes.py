"""Rows and labels come and go: what changes in a fitted classifier, and the report of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.conformal import Conformal
from smoothlink.errors import DataError, plural
from smoothlink.living.known_rows import KnownRows
from smoothlink.living.store import StoredSums
from smoothlink.machines.copies import row_hashes, sampled, upper_half
from smoothlink.model import Model
from smoothlink.weights import ArrayWeights

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier

Array = NDArray[Any]

EXACT, BY_STEPS = "exact", "by training steps"
SHARED_MAP = (0.0, 0.0, 1.0, 0.0, 0.0)  # of a label without a map of its own: a, b, e, r and t of `Calibration`


class Batch(NamedTuple):
    """Rows to add or to remove, with labels in the order of the model's; new ones come last."""

    X: Any  # (n, d)
    Y: sp.csr_array  # (n, c), and a column for each new label
    w: Array  # (n,)
    names: list[Any]  # of the new labels


def joined(batches: Sequence[Batch]) -> Batch:
    """Returns several batches as one, in their order; labels that one brings have the same columns in later ones."""
    if len(batches) == 1:
        return batches[0]
    X, c = [batch.X for batch in batches], max(batch.Y.shape[1] for batch in batches)
    Y = [sp.csr_array((one.Y.data, one.Y.indices, one.Y.indptr), (one.Y.shape[0], c)) for one in batches]
    return Batch(
        sp.csr_array(sp.vstack(X, format="csr")) if all(map(sp.issparse, X)) else np.vstack([dense(one) for one in X]),
        sp.csr_array(sp.vstack(Y, format="csr")),
        np.concatenate([batch.w for batch in batches]),
        [name for batch in batches for name in batch.names],
    )


def dense(X: Any) -> Array:
    return X.toarray() if sp.issparse(X) else np.asarray(X)


def is_exact(model: Model) -> bool:
    """Returns whether a model is determined by its sums, given the embedding."""
    return model.loss == "squared" and model.sparse_weights is None


def state_of(classifier: SmoothLinkClassifier) -> KnownRows:
    """Returns what a classifier remembers of its rows, from its file where it was loaded; raises an error where it has
    nothing."""
    if isinstance(classifier._living, StoredSums):
        classifier._living = classifier._living.load(classifier._model)
    if classifier._living is None:
        raise DataError(
            "This model was trained without what updates need.\n"
            "Train it with updatable=True (--updatable on the command line)."
        )
    return classifier._living


def update(classifier: SmoothLinkClassifier, batch: Batch) -> dict[str, Any]:
    """Adds rows to a classifier; returns the report of it."""
    state = state_of(classifier)
    void_guarantee(classifier, "rows were added to the model.")
    add_labels(classifier, batch.names)
    w = batch.w if state.class_weight is None else batch.w * state.class_weight[batch.Y.indices]
    classifier.model_, outcome = state.update(classifier._model, batch.X, batch.Y, w)
    if not state.changed:
        classifier.summary_ |= state.held_out
    rows = classifier.training_rows_
    if rows is not None:
        new = upper_half(sampled(row_hashes(batch.X), rows.every))
        classifier.training_rows_ = rows._replace(hashes=np.union1d(rows.hashes, new))
    labels = [str(name) for name in batch.names]
    return report(classifier, rows_added=batch.Y.shape[0], labels_added=labels, **outcome)


def void_guarantee(classifier: SmoothLinkClassifier, reason: str) -> None:
    """Removes the conformal rows of a classifier, if it has any: other weights have other probabilities."""
    if classifier.conformal_ is not None:
        classifier.conformal_ = Conformal.voided(reason)


def forget(classifier: SmoothLinkClassifier, batch: Batch) -> dict[str, Any]:
    """Removes rows from a classifier, and what only they had: features, labels; returns the report of it."""
    state = state_of(classifier)
    if batch.names:
        raise DataError(f"No row of the model has the label {batch.names[0]!r}. Nothing was changed.")
    found = list(state.digests.of(batch.X, batch.Y))
    state.check_there(found)
    void_guarantee(classifier, "rows of the model were forgotten.")
    classifier.model_ = state.remove(classifier._model, batch.X, batch.Y, found)
    last = [not state.digests.has_features(digest) for digest in found]
    rows = classifier.training_rows_
    if rows is not None:
        lost = upper_half(sampled(row_hashes(batch.X)[last], rows.every))
        classifier.training_rows_ = rows._replace(hashes=np.setdiff1d(rows.hashes, lost))
    features, labels = state.gone(batch.X, batch.Y)
    remove_features(classifier, features)
    remove_labels(classifier, labels)
    return report(
        classifier,
        rows_removed=batch.Y.shape[0],
        labels_removed=len(labels),
        features_removed=features.tolist(),
        approximate=state.approximate,
    )


def report(classifier: SmoothLinkClassifier, **found: Any) -> dict[str, Any]:
    """Returns what happened, which `summary_["living"]` holds until the next time."""
    state = state_of(classifier)
    outcome = {**found, "rows": len(state.digests), "calibration_rows": state.calibration_rows}
    classifier.summary_ |= {"rows": outcome["rows"], "labels": state.n_labels, "living": outcome}
    return outcome


def add_labels(classifier: SmoothLinkClassifier, names: Sequence[Any]) -> None:
    """Adds labels that no row has yet; those of other labels stay as they are."""
    if not names:
        return
    state, model, count = state_of(classifier), classifier._model, len(names)
    void_guarantee(classifier, "labels were added to the model.")
    c = model.n_labels + count
    state.add_labels(count)
    V = np.column_stack([model.V.columns(), np.zeros((model.V.shape[0], count), np.float32)])
    calibration = model.calibration
    if calibration.labels is not None:
        maps = np.repeat(np.array(SHARED_MAP)[: len(calibration.labels), None], count, axis=1)
        calibration = calibration._replace(labels=np.column_stack([calibration.labels, maps]))
    reference = model.reference
    if reference is not None:
        reference = reference._replace(labels=np.append(reference.labels, np.zeros(count, np.float32)))
    classifier.model_ = replace(
        model,
        V=ArrayWeights(V),
        calibration=calibration,
        counts=np.append(model.counts, np.zeros(count)),
        thresholds=np.append(model.thresholds, np.full(count, 0.5)),
        reference=reference,
    )
    if classifier.label_directions_ is not None:
        U = classifier.label_directions_
        classifier.label_directions_ = np.vstack([U, np.zeros((count, U.shape[1]), U.dtype)])
    if classifier.label_names_ is not None:
        classifier.label_names_ = [*classifier.label_names_, *map(str, names)]
    classifier.classes_ = np.arange(c) if classifier._indicator else np.append(classifier.classes_, names)


def remove_features(classifier: SmoothLinkClassifier, features: Array) -> None:
    """Removes the weights and names of features that no row has any more; the others keep their numbers."""
    model = classifier._model
    if not len(features):
        return
    if model.W is not None and model.linear_in_x:
        W = model.W.columns()
        W = W if W.flags.writeable else np.array(W)  # what is mapped from a file is never changed
        W[features] = 0
        classifier.model_ = replace(model, W=ArrayWeights(W))
    if hasattr(classifier, "feature_names_in_"):
        names = classifier.feature_names_in_.astype(object)
        names[features] = [f"(removed {j})" for j in features.tolist()]
        classifier.feature_names_in_ = names


def remove_labels(classifier: SmoothLinkClassifier, labels: Array) -> None:
    """Removes the names and directions of labels that no row has any more; the others keep their numbers."""
    if not len(labels):
        return
    if classifier.label_directions_ is not None:
        U = np.array(classifier.label_directions_)
        U[labels] = 0
        classifier.label_directions_ = U
    if classifier.label_names_ is not None:
        classifier.label_names_ = [
            f"(removed {j})" if j in set(labels.tolist()) else name for j, name in enumerate(classifier.label_names_)
        ]
    if not classifier._indicator and classifier.classes_.dtype.kind in "UO":
        classes = classifier.classes_.astype(object)
        classes[labels] = [f"(removed {j})" for j in labels.tolist()]
        classifier.classes_ = classes


def described(outcome: dict[str, Any]) -> list[str]:
    """Returns the sentences of a report."""
    found = []
    if "rows_before" in outcome:
        found.append(
            f"The model was fitted anew, with the settings that it had, to {plural(outcome['rows'], 'row')}; it had "
            f"{outcome['rows_before']:,}."
        )
    if "rows_new" in outcome:
        found.append(
            f"{plural(outcome['rows_new'], 'row')} of these it did not have, and {outcome['rows_gone']:,} that it had "
            "are not among them."
        )
    if outcome.get("labels_without_rows"):
        found.append(f"{plural(outcome['labels_without_rows'], 'label')} that it keeps without rows: never predicted.")
    if "rows_added" in outcome:
        found.append(f"{plural(outcome['rows_added'], 'row')} added.")
    if "rows_removed" in outcome:
        features, labels = (
            plural(len(outcome["features_removed"]), "feature"),
            plural(outcome["labels_removed"], "label"),
        )
        found.append(
            f"{plural(outcome['rows_removed'], 'row')} removed, with {features} and {labels} that no other has."
        )
    if outcome.get("labels_added"):
        names = ", ".join(outcome["labels_added"][:5])
        more = "" if len(outcome["labels_added"]) <= 5 else ", ..."
        found.append(f"{plural(len(outcome['labels_added']), 'new label')}: {names}{more}.")
    found.append(
        f"The model now has {plural(outcome['rows'], 'row')}, and was calibrated on "
        f"{plural(outcome['calibration_rows'], 'row')} of them."
    )
    before, after = (outcome.get("held_out_metrics", {}).get(when) or {} for when in ("before", "after"))
    both = [f"{name} {before[name]:.4g}, now {after[name]:.4g}" for name in after if name in before and name != "rows"]
    if both:
        found.append(f"On its held-out rows, which are others now: {'; '.join(both)}.")
    if outcome.get("method"):
        lost = ", ".join(f"{name} {by['criterion']:.4g}" for name, by in outcome["compared"].items())
        found.append(
            f"Training went on by {outcome['method']}{f' (criterion on held-out rows: {lost})' if lost else ''}."
        )
    if outcome.get("missed_by_embedding") is not None:
        new, old = 100 * outcome["missed_by_embedding"], 100 * outcome["missed_in_training"]
        found.append(f"The embedding misses {new:.0f} % of the new rows' length, and missed {old:.0f} % in training.")
    if outcome.get("unknown_words") is not None:
        found.append(f"{100 * outcome['unknown_words']:.0f} % of their words are not in the vocabulary.")
    if outcome.get("approximate"):
        found.append(outcome["approximate"])
    return found
