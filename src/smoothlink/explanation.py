"""Why a model says what it says of a row: what each feature adds to a label's score, and which labels are near it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.matching import label_names, unnamed
from smoothlink.errors import DataError, plural
from smoothlink.machines.half_precision import Half
from smoothlink.machines.shards import Shards
from smoothlink.model import Model
from smoothlink.parameters import Values, check_value
from smoothlink.predict import likely, ranked
from smoothlink.steps.contributions import (
    Parts,
    Row,
    Way,
    cosine_way,
    identity_way,
    kernel_way,
    nearest,
    plain_way,
    score_parts,
    then_weights,
    to_unit_length,
)
from smoothlink.steps.landmarks import Landmarks

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.features import TextFeatures

Array = NDArray[Any]

NEIGHBOURS = 5


class Reason(NamedTuple):
    """What one feature of the row adds to the score."""

    feature: int
    name: str  # its number where it has no name
    value: float  # in the row, before it is scaled
    added: float


class Neighbour(NamedTuple):
    """A label that points in nearly the same direction."""

    label: int
    name: Any
    similarity: float  # cosine, above 0


class Explained(NamedTuple):
    """One label's answer: base + the `added` of all reasons + rest = score, up to rounding."""

    label: int
    name: Any
    score: float
    probability: float
    base: float  # the score of a row without any feature
    reasons: tuple[Reason, ...]  # the largest first, by size
    rest: float  # what all other features of the row add
    neighbours: tuple[Neighbour, ...]


def explain(
    model: Any, row: Any, labels: Sequence[Any] | None = None, k: int = 5, top: int | None = 10
) -> list[Explained]:
    """What speaks for and against labels, of one row or one text.

    model: a fitted SmoothLinkClassifier or TextSmoothLink. row: a text for the latter; else one row, sparse (1, d) or
    dense (d,). labels: names, or positions in classes_; None: the k best. top: how many features each label shows, of
    the largest effect; None: all.

    A feature's part is its share of the way from the empty row to this one (`smoothlink.steps.contributions`).
    """
    if top is not None and top < 1:
        raise ValueError(f"top is {top!r}; it is the number of features to show, at least 1, or None for all of them.")
    classifier, X, words = opened(model, row)
    if classifier.model_.classifier is not None:
        raise ValueError(
            f"The embedding of this model is a fitted {type(classifier.embedding.classifier).__name__}, which cannot "
            "be explained.\nUse a linear classifier (with coef_ and intercept_), or PerLabel() without one."
        )
    names = label_names(classifier)
    with unnamed():
        X = classifier._validated_rows(X)
    at, scores, P = answered(classifier, X, None if labels is None else resolved(labels, names), k)
    row_of, parts = score_terms(classifier.model_, X, at)
    near = neighbours(classifier, at.tolist())
    values = X[:, row_of.numbers].toarray()[0] if sp.issparse(X) else np.asarray(X)[0, row_of.numbers]
    found = []
    for j, label in enumerate(at.tolist()):
        kept, rest = largest(parts.added[:, j], top)
        numbers = row_of.numbers[kept].tolist()
        each = zip(numbers, map(words, numbers), values[kept].tolist(), parts.added[kept, j].tolist(), strict=True)
        said = float(scores[j]), float(P[j]), float(parts.base[j])
        found.append(Explained(label, names[label], *said, tuple(map(Reason._make, each)), rest, tuple(near[j])))
    return found


def answered(classifier: SmoothLinkClassifier, X: Any, labels: Array | None, k: int) -> tuple[Array, Array, Array]:
    """Labels, the k best where none are given, with their scores and probabilities; the row is featurized once."""
    check_value("k", k, Values(whole=1))
    model = classifier.model_
    seen = model.see(model.embed_rows(X))
    if labels is None:
        best = ranked(model, seen, k)
        return best.indices[0], model.score(seen, best.indices[0])[0], best.values[0]
    return labels, model.score(seen, labels)[0], likely(model, seen, labels)[0]


def opened(model: Any, row: Any) -> tuple[SmoothLinkClassifier, Any, Callable[[int], str]]:
    """The classifier, the row as its matrix of one row, and what names a feature by its number."""
    inner = getattr(model, "classifier_", None)
    if inner is not None:
        if not isinstance(row, str):
            raise TypeError(f"This model reads texts; row is {type(row).__name__}. Pass one text, as a str.")
        return inner, sp.csr_array(model.features_.transform([row])), words_of(model.features_, row)
    if isinstance(row, str):
        raise TypeError("This model reads rows of features, not texts. Pass one row of numbers (1, d).")
    X = sp.csr_array(row) if sp.issparse(row) else np.atleast_2d(np.asarray(row))
    if X.shape[0] != 1:
        raise DataError(f"{plural(X.shape[0], 'row')} came; one is explained at a time. Pass X[[i]].")
    known = getattr(model, "feature_names_in_", None)
    return model, X, (str if known is None else lambda i: str(known[i]))


def words_of(features: TextFeatures, text: str) -> Callable[[int], str]:
    """What names a column: the n-grams of the text that are counted there, or one of others."""
    known = spelled(features.terms(text))
    return lambda column: known.get(column) or str(features.get_feature_names_out()[column])


def spelled(terms: Iterable[tuple[int, str]]) -> dict[int, str]:
    """The n-gram of each column of a text; where hashing made several share one, all of them."""
    found: dict[int, list[str]] = {}
    for column, term in dict.fromkeys(terms):
        found.setdefault(column, []).append(term)
    return {column: " / ".join(shared) for column, shared in found.items()}


def resolved(labels: Sequence[Any], names: list[Any]) -> Array:
    """Positions of labels that are given by name or by position."""
    if isinstance(labels, (str, int, np.integer)):
        raise TypeError(f"labels is {labels!r}; pass a list, such as labels=[{labels!r}].")
    place = {str(name): j for j, name in reversed(list(enumerate(names)))} if any_text(labels) else {}
    found = []
    for label in labels:
        at = place.get(label) if isinstance(label, str) else int(label)
        if at is None or not 0 <= at < len(names):
            what = f"label {label!r}" if isinstance(label, str) else f"label number {label}"
            raise DataError(f"The model has no {what}; it has {plural(len(names), 'label')}, such as {names[0]!r}.")
        found.append(at)
    return np.array(found, np.int64)


def any_text(labels: Sequence[Any]) -> bool:
    return any(isinstance(label, str) for label in labels)


def score_terms(model: Model, X: Any, labels: Array) -> tuple[Row, Parts]:
    """The features of one checked row X (1, d), and what they add to the scores of labels.

    A row without features, and a label never seen, have an answer that no feature has a part in.
    """
    A = model.scaling(X)
    if sp.issparse(A):
        row = Row(A.indices[:-1], A.data[:-1])
    else:
        numbers = np.flatnonzero(A[0, :-1])
        row = Row(numbers, A[0, numbers])
    if sp.issparse(A) and not len(row.numbers):
        return row, Parts(np.where(model.unseen, -np.inf, model.prior_scores)[labels], np.zeros((0, len(labels))))
    way = way_to(model, row)
    way = to_unit_length(way) if model.normalize else way
    V = model.V.wide(labels) if isinstance(model.V, Half | Shards) else model.V[:, labels]
    parts = score_parts(way, model.features, V)
    if model.D is not None:
        parts = parts._replace(added=parts.added + row.values[:, None] * model.D.of(row.numbers, labels))
    never = model.unseen[labels]
    return row, Parts(np.where(never, -np.inf, parts.base), np.where(never, 0, parts.added))


def way_to(model: Model, row: Row) -> Way:
    """From the empty row's h to this row's, through whatever the first stage is."""
    W, inputs = model.W, model.input_features
    if inputs is None:
        if W is None:
            return identity_way(row, len(model.features.R))
        weights = rows_of(W, np.append(row.numbers, W.shape[0] - 1))
        return plain_way(row, weights[:-1], weights[-1])
    way = kernel_way(row, inputs) if isinstance(inputs, Landmarks) else cosine_way(row, inputs)
    if W is None:
        return way
    weights = W.wide() if isinstance(W, Half) else W
    return then_weights(way, weights[:-1], weights[-1])


def rows_of(W: Any, numbers: Array) -> Array:
    return np.asarray(W.rows(numbers) if isinstance(W, Half) else W[numbers])


def largest(added: Array, top: int | None) -> tuple[Array, float]:
    """Which parts are the largest by size, largest first, and the sum of the others."""
    order = np.argsort(-np.abs(added), kind="stable")
    order = order[np.abs(added[order]) > 0]
    kept = order if top is None else order[:top]
    return kept, float(np.delete(added, kept).sum())


def neighbours(model: Any, labels: Sequence[Any], k: int = NEIGHBOURS) -> list[list[Neighbour]]:
    """For each label (by name or position) the k labels that are predicted from the same features, nearest first.

    The angle is that of their rows of U, each direction weighted by the root of what it captures: its cosine is the
    co-occurrence that the features predict, an entry of Y'PY, over those of the two labels with themselves. Models
    without U have it of their decoders where the link is linear; others have no neighbours.
    """
    classifier = getattr(model, "classifier_", model)
    names = label_names(classifier)
    at = resolved(labels, names)
    A = label_vectors(classifier)
    if A is None or not len(at):
        return [[] for _ in at]
    ids, cosines = nearest(A, at, k)
    return [
        [Neighbour(j, names[j], float(c)) for j, c in zip(*pair, strict=True) if c > 1e-6]
        for pair in zip(ids.tolist(), cosines.tolist(), strict=True)
    ]


def label_vectors(classifier: SmoothLinkClassifier) -> Array | None:
    """A vector (c, r) for each label."""
    U, model = classifier.label_directions_, classifier.model_
    if U is not None:
        weight = np.sqrt(np.asarray(classifier.summary_.get("spectrum") or np.ones(U.shape[1]), np.float32))
        return np.asarray(U[:, : len(weight)], np.float32) * weight[: U.shape[1]]
    if model.features.linear:
        V = model.V.wide() if isinstance(model.V, Half | Shards) else model.V
        return np.asarray(V[:-1].T)
    return None
