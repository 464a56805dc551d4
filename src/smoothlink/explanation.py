"""A model, a row, labels -> what each feature of the row adds to their scores, and which labels are near them.

A score is followed from the empty row (the intercept alone) to the row, all features growing together. On this path
each cosine is replaced by its secant, (cos v - cos u) / (v - u): the mean of its gradient, in closed form. So the
contributions of a row sum to the change of the score, up to rounding, and with a linear link they are its terms. The
length of the row and of its embedding, where they are scaled to 1, are held at what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.matching import inside, label_names, unnamed
from smoothlink.errors import DataError, plural
from smoothlink.machines.rows_in_files import check_sparse
from smoothlink.model import Model
from smoothlink.parameters import Values, check_value
from smoothlink.predict import block_probabilities, with_probabilities
from smoothlink.steps.featurize import Features
from smoothlink.steps.landmarks import Landmarks
from smoothlink.vocabulary import display_names, label_text

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.features import TextFeatures
    from smoothlink.types import FittedModel, Matrix

Array = NDArray[Any]

NEIGHBOURS = 5
NEAR = 1e-4  # distances closer than this, in units of the kernel's width, are moved apart: their secant is rounding


class Reason(NamedTuple):
    """The contribution of one feature of the row to the score."""

    feature: int
    name: str  # its number where it has no name
    value: float  # in the row, before it is scaled
    added: float


class LabelNeighbour(NamedTuple):
    """A label that points in nearly the same direction."""

    label: int
    name: Any
    similarity: float  # cosine, above 0
    display_name: str  # in the model's vocabulary, where it has one


class LabelExplanation(NamedTuple):
    """The explanation of one label: base + the `added` of all reasons + rest = score, up to rounding."""

    label: int
    name: Any
    score: float  # before calibration
    probability: float
    base: float  # the score of a row without any feature
    reasons: tuple[Reason, ...]  # the largest first, by size
    rest: float  # what all other features of the row add
    neighbours: tuple[LabelNeighbour, ...]
    display_name: str  # in the model's vocabulary, where it has one


def explain(
    model: FittedModel, row: str | Matrix, labels: Sequence[str | int] | None = None, k: int = 5, top: int | None = 10
) -> list[LabelExplanation]:
    """Returns what speaks for and against labels, of one row or one text.

    model: a fitted SmoothLinkClassifier or TextSmoothLink. row: a text for the latter; else one row, sparse (1, d) or
    dense (d,). labels: names, or positions in classes_; None: the k best. top: how many features each label shows, of
    the largest effect; None: all.

    A feature's contribution is its part of the change of the score from the empty row to this one, by the mean of the
    gradient on the way.
    """
    if top is not None and top < 1:
        raise ValueError(f"top is {top!r}; it is the number of features to show, at least 1, or None for all of them.")
    classifier, X, words = classifier_and_row(model, row)
    if classifier.model_.classifier is not None:
        raise ValueError(
            "The embedding of this model is a fitted "
            f"{type(classifier.get_params()['embedding__classifier']).__name__}, "
            "which cannot be explained.\n"
            "Use a linear classifier (with coef_ and intercept_), or PerLabel() without one."
        )
    names = label_names(classifier)
    with unnamed():
        X = classifier._validated_rows(X)
    at, scores, P = predicted(classifier, X, None if labels is None else label_positions(labels, classifier), k)
    row_of, parts = contributions_of_row(without_maps(classifier.model_), X, at)
    near = neighbours(classifier, at.tolist())
    values = X[:, row_of.numbers].toarray()[0] if sp.issparse(X) else np.asarray(X)[0, row_of.numbers]
    found = []
    for j, label in enumerate(at.tolist()):
        kept, rest = largest(parts.added[:, j], top)
        numbers = row_of.numbers[kept].tolist()
        each = zip(numbers, map(words, numbers), values[kept].tolist(), parts.added[kept, j].tolist(), strict=True)
        found.append(
            LabelExplanation(
                label=label,
                name=names[label],
                score=float(scores[j]),
                probability=float(P[j]),
                base=float(parts.base[j]),
                reasons=tuple(map(Reason._make, each)),
                rest=rest,
                neighbours=tuple(near[j]),
                display_name=label_text(classifier, label),
            )
        )
    return found


def predicted(classifier: SmoothLinkClassifier, X: Any, labels: Array | None, k: int) -> tuple[Array, Array, Array]:
    """Returns labels, the k best where none are given, with their scores before calibration and probabilities; the row
    is featurized once."""
    check_value("k", k, Values(whole=1))
    model = classifier.model_
    inputs = model.featurize(model.embed_rows(X))
    if labels is None:
        best = with_probabilities(model, model.best_labels(inputs, k))
        return best.indices[0], without_maps(model).score(inputs, best.indices[0])[0], best.values[0]
    return labels, without_maps(model).score(inputs, labels)[0], block_probabilities(model, inputs, labels)[0]


def without_maps(model: Model) -> Model:
    """Returns the model whose scores are sums over features: labels have no maps of their own."""
    return replace(model, calibration=model.calibration._replace(labels=None))


def classifier_and_row(model: Any, row: Any) -> tuple[SmoothLinkClassifier, Any, Callable[[int], str]]:
    """Returns the classifier, the row as a matrix of one row, and a function that names a feature by its number."""
    inner = getattr(model, "classifier_", None)
    if inner is not None:
        if not isinstance(row, str):
            raise TypeError(f"This model reads texts; row is {type(row).__name__}. Pass one text, as a str.")
        return inner, sp.csr_array(model.features_.transform([row])), words_of(model.features_, row)
    if isinstance(row, str):
        raise TypeError("This model reads rows of features, not texts. Pass one row of numbers (1, d).")
    X = sp.csr_array(check_sparse(row, "row")) if sp.issparse(row) else np.atleast_2d(np.asarray(row))
    if X.shape[0] != 1:
        raise DataError(f"{plural(X.shape[0], 'row')} were given; one is explained at a time. Pass X[[i]].")
    known = getattr(model, "feature_names_in_", None)
    return model, X, (str if known is None else lambda i: str(known[i]))


def words_of(features: TextFeatures, text: str) -> Callable[[int], str]:
    """Returns a function that names a column: the n-grams of the text that are counted there, or one of others."""
    known = spelled(features.terms(text))
    return lambda column: known.get(column) or str(features.get_feature_names_out()[column])


def spelled(terms: Iterable[tuple[int, str]]) -> dict[int, str]:
    """Returns the n-gram of each column of a text; where hashing made several share one, all of them."""
    found: dict[int, list[str]] = {}
    for column, term in dict.fromkeys(terms):
        found.setdefault(column, []).append(term)
    return {column: " / ".join(shared) for column, shared in found.items()}


def label_positions(labels: Sequence[Any], classifier: SmoothLinkClassifier) -> Array:
    """Returns positions of labels that are given by name, also that in the vocabulary, or by position."""
    if isinstance(labels, (str, int, np.integer)):
        raise TypeError(f"labels is {labels!r}; pass a list, such as labels=[{labels!r}].")
    names = label_names(classifier)
    place: dict[str, int] = {}
    if any(isinstance(label, str) for label in labels):
        for known in (display_names(classifier), map(str, names)):
            place |= {name: j for j, name in reversed(list(enumerate(known)))}
    found = []
    for label in labels:
        at = place.get(label) if isinstance(label, str) else int(label)
        if at is None or not 0 <= at < len(names):
            what = f"label {label!r}" if isinstance(label, str) else f"label number {label}"
            raise DataError(f"The model has no {what}; it has {plural(len(names), 'label')}, such as {names[0]!r}.")
        found.append(at)
    return np.array(found, np.int64)


def contributions_of_row(model: Model, X: Any, labels: Array) -> tuple[Row, Contributions]:
    """Returns the features of one checked row X (1, d), and what they add to the scores of labels.

    No feature has a part in the scores of a row without features, nor in those of a label without training rows.
    """
    A = model.scaling(X)
    if sp.issparse(A):
        row = Row(A.indices[:-1], A.data[:-1])
    else:
        numbers = np.flatnonzero(A[0, :-1])
        row = Row(numbers, A[0, numbers])
    if sp.issparse(A) and not len(row.numbers):
        base = np.where(model.untrained, -np.inf, model.prior_scores)[labels]
        return row, Contributions(base, np.zeros((0, len(labels))))
    added = None if model.trees is None else model.trees.contributions(A[0, :-1])  # (d, k)
    path = path_to(model, row if added is None else row_with_predictions(A[0, :-1], added))
    path = to_unit_length(path) if model.normalize else path
    parts = contributions(path, model.features, model.V.columns(labels))
    if added is not None:
        row, parts = Row(np.arange(len(added)), A[0, :-1]), to_columns(parts, added)
    if model.sparse_weights is not None:
        parts = parts._replace(added=parts.added + row.values[:, None] * model.sparse_weights.of(row.numbers, labels))
    untrained = model.untrained[labels]
    return row, Contributions(np.where(untrained, -np.inf, parts.base), np.where(untrained, 0, parts.added))


def path_to(model: Model, row: Row) -> EmbeddingPath:
    """Returns the path from the empty row's h to this row's, through whatever the first stage is."""
    W, inputs = model.W, model.input_features
    if inputs is None:
        if W is None:
            return identity_path(row, len(model.features.R))
        weights = W.rows(np.append(row.numbers, W.shape[0] - 1))
        return linear_path(row, weights[:-1], weights[-1])
    path = landmark_path(row, inputs) if isinstance(inputs, Landmarks) else cosine_path(row, inputs)
    if W is None:
        return path
    weights = W.columns()
    return through_weights(path, weights[:-1], weights[-1])


def row_with_predictions(x: Array, added: Array) -> Row:
    """Returns the columns of a scaled row x (d,) and the predictions of trees beside it, to which they add (d, k)."""
    return Row(np.arange(sum(added.shape)), np.concatenate([x, added.sum(axis=0)]).astype(np.float32))


def to_columns(parts: Contributions, added: Array) -> Contributions:
    """Returns contributions of columns (d, m), which get what the predictions of trees contribute by their part in
    each prediction (d, k)."""
    d, total = len(added), added.sum(axis=0)
    share = added / np.where(total == 0, 1, total)
    return parts._replace(added=parts.added[:d] + share @ parts.added[d:])


class Row(NamedTuple):
    """The features of a scaled row that are not zero, without the intercept."""

    numbers: Array  # (p,)
    values: Array  # (p,)


class EmbeddingPath(NamedTuple):
    """From the empty row to a row, in the space of embeddings."""

    start: Array  # (k,) h of the empty row
    end: Array  # (k,) h of the row
    back: Callable[[Array], Array]  # slopes of scores in h (k, m) -> what each feature adds (p, m)


class Contributions(NamedTuple):
    """base + the sum of each column of `added` is the score."""

    base: Array  # (m,) scores of the empty row
    added: Array  # (p, m) by each feature


def secants(start: Array, change: Array) -> Array:
    """Returns mean slopes (s,) of sqrt(2) cos between `start` and `start + change`, exact where the change is 0 too."""
    half = np.asarray(change, np.float64) / 2
    return -np.sqrt(2) * np.sin(start + half) * np.sinc(half / np.pi)


def linear_path(row: Row, weights: Array, intercept: Array) -> EmbeddingPath:
    """Returns the path of h = W'x: `weights` (p, k) are the row's own rows of W, `intercept` (k,) the last."""
    added = row.values[:, None] * weights
    return EmbeddingPath(intercept, intercept + added.sum(axis=0), lambda G: added @ G)


def identity_path(row: Row, d: int) -> EmbeddingPath:
    """Returns the path of h = x."""
    end = np.zeros(d, np.float32)
    end[row.numbers] = row.values
    return EmbeddingPath(np.zeros_like(end), end, lambda G: row.values[:, None] * G[row.numbers])


def cosine_path(row: Row, features: Features) -> EmbeddingPath:
    """Returns the path of the random features of x that an `input_kernel` makes, without the intercept."""
    R = features.R[row.numbers]  # (p, s)
    change = row.values @ R
    slopes = secants(features.b, change).astype(np.float32)

    def back(G: Array) -> Array:
        return row.values[:, None] * (R @ (slopes[:, None] * G))

    start = np.sqrt(2) * np.cos(features.b)
    return EmbeddingPath(start, start + slopes * change, back)


def landmark_path(row: Row, landmarks: Landmarks) -> EmbeddingPath:
    """Returns the path of kernel values at landmarks: each depends on a distance, to which every feature
    adds its own term."""
    points, x = landmarks.points[:, row.numbers].astype(np.float64), row.values.astype(np.float64)
    if landmarks.kernel.name == "laplacian":
        terms = (np.abs(x - points) - np.abs(points)) * np.sqrt(2 / landmarks.length)  # (s, p)
        start = np.abs(landmarks.points).sum(axis=1) * np.sqrt(2 / landmarks.length)
    else:
        terms = x * (x - 2 * points) / landmarks.length
        start = np.einsum("ij,ij->i", landmarks.points, landmarks.points, dtype=np.float64) / landmarks.length
    change = terms.sum(axis=1)
    apart = np.where(np.abs(change) < NEAR, NEAR, change)
    middle = np.maximum(start + change / 2, NEAR / 2)
    ends = np.maximum(middle - apart / 2, 0), np.maximum(middle + apart / 2, 0)
    slopes = (landmarks.at(ends[1]) - landmarks.at(ends[0])) / (ends[1] - ends[0])
    values = landmarks.at(start)
    return EmbeddingPath(values, values + slopes * change, lambda G: terms.T @ (slopes[:, None] * G))


def through_weights(path: EmbeddingPath, W: Array, intercept: Array) -> EmbeddingPath:
    """Returns the path of an input kernel after its weights W (s, k) to h."""
    return EmbeddingPath(path.start @ W + intercept, path.end @ W + intercept, lambda G: path.back(W @ G))


def to_unit_length(path: EmbeddingPath) -> EmbeddingPath:
    """Returns a path whose end is scaled to length 1; the scale is held, so the start gets the same."""
    length = np.linalg.norm(path.end) or 1.0
    return EmbeddingPath(path.start / length, path.end / length, lambda G: path.back(G) / length)


def contributions(path: EmbeddingPath, features: Features, V: Array) -> Contributions:
    """Returns what each feature adds to scores of labels whose decoder is V (s + 1, m), the intercept last."""
    V = V.astype(np.float32, copy=False)
    if features.linear:
        return Contributions(path.start @ V[:-1] + V[-1], path.back(V[:-1]))
    ends = np.stack([path.start, path.end - path.start]).astype(np.float32) @ features.R  # (2, s)
    angles = ends[0] + features.b
    slopes = secants(angles, ends[1]).astype(np.float32)
    G = features.R @ (slopes[:, None] * V[:-1])  # (k, m)
    return Contributions(np.sqrt(2) * np.cos(angles) @ V[:-1] + V[-1], path.back(G))


def largest(added: Array, top: int | None) -> tuple[Array, float]:
    """Returns which contributions are the largest by size, largest first, and the sum of the others."""
    order = np.argsort(-np.abs(added), kind="stable")
    order = order[np.abs(added[order]) > 0]
    kept = order if top is None else order[:top]
    return kept, float(np.delete(added, kept).sum())


def neighbours(model: FittedModel, labels: Sequence[str | int], k: int = NEIGHBOURS) -> list[list[LabelNeighbour]]:
    """Returns for each label (by name or position) the k labels that are predicted from the same features,
    nearest first.

    The angle is that of their rows of U, each direction weighted by the root of what it captures: its cosine is the
    co-occurrence that the features predict, an entry of Y'PY, over those of the two labels with themselves. Models
    without U have it of their decoders where the link is linear; others have no neighbours.
    """
    classifier = inside(model)
    names = label_names(classifier)
    at = label_positions(labels, classifier)
    A = label_vectors(classifier)
    if A is None or not len(at):
        return [[] for _ in at]
    ids, cosines = nearest(A, at, k)
    return [
        [
            LabelNeighbour(j, names[j], float(c), label_text(classifier, j))
            for j, c in zip(*pair, strict=True)
            if c > 1e-6
        ]
        for pair in zip(ids.tolist(), cosines.tolist(), strict=True)
    ]


def label_vectors(classifier: SmoothLinkClassifier) -> Array | None:
    """Returns a vector (c, r) for each label; None where the model has none."""
    U, model = classifier.label_directions_, classifier.model_
    if U is not None:
        weight = np.sqrt(np.asarray(classifier.summary_.get("spectrum") or np.ones(U.shape[1]), np.float32))
        return np.asarray(U[:, : len(weight)], np.float32) * weight[: U.shape[1]]
    if model.features.linear:
        return np.asarray(model.V.columns()[:-1].T)
    return None


def nearest(A: Array, at: Array, k: int) -> tuple[Array, Array]:
    """Returns the k rows of A (c, r) nearest to each of the rows `at` (m,) by their angle, best first: ids and
    cosines (m, k).

    A row without length is near to none; a label is no neighbour of itself.
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", A, A))
    C = A[at] @ A.T
    C /= np.maximum(lengths[at], np.finfo(np.float32).tiny)[:, None]
    C /= np.maximum(lengths, np.finfo(np.float32).tiny)
    C[np.arange(len(at)), at] = -np.inf
    k = min(k, len(A) - 1)
    if k < 1:
        return np.empty((len(at), 0), np.int64), np.empty((len(at), 0), np.float32)
    best = np.argpartition(-C, k - 1, axis=1)[:, :k]
    order = np.lexsort((best, -np.take_along_axis(C, best, axis=1)), axis=1)
    best = np.take_along_axis(best, order, axis=1)
    return best, np.take_along_axis(C, best, axis=1)
