"""`smoothlink.compare`: two models on the same rows, with paired bootstrap differences."""

from __future__ import annotations

import datetime
import os
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DataError, plural
from smoothlink.metrics.evaluate import Paired, Predictions, paired
from smoothlink.reports.comparison_page import rendered
from smoothlink.reports.measurements import Measured, measure
from smoothlink.reports.report_page import Drawn, save_page
from smoothlink.reports.test_data import Trial, given_trial

Array = NDArray[Any]


class Agreement(NamedTuple):
    """Rows by whose first label is true."""

    both: int
    first: int  # the first model's only
    second: int
    neither: int


class Comparison(NamedTuple):
    """Two models side by side."""

    names: tuple[str, str]
    metrics: dict[str, Paired]
    agreement: Agreement
    measured: tuple[Measured, Measured]
    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page; it appears when it is whole."""
        save_page(path, self.html)


def compare(
    first: Any,
    second: Any,
    X: Any,
    y: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    names: tuple[str, str] = ("A", "B"),
    source: str = "",
    bootstraps: int = 1000,
    seed: int = 0,
    date: datetime.date | None = None,
) -> Comparison:
    """Which of two models is better, on rows that neither has seen, by how much, and whether that is chance.

    first, second: fitted classifiers, or text models. X, y: test rows (or texts) and their labels, as for `report`.
    Differences are the first's metric minus the second's, both under the same draws of rows. Labels that only one of
    them knows are misses of the other; they are matched by name. The other arguments are those of `report`.
    """
    trials = given_trial(first, X, y), given_trial(second, X, y)
    found = compared(trials, names, source, Drawn(bootstraps, seed, date))
    if path is not None:
        found.save(path)
    return found


def compared(trials: tuple[Trial, Trial], names: tuple[str, str], source: str, drawn: Drawn) -> Comparison:
    """Two models and rows that are ready for each."""
    check_rows(trials)
    sides = [measure(t.case.classifier, t.case.X, t.Y, bootstraps=0, rank_by=t.rank_by) for t in trials]
    models = [trial.case.classifier.model_ for trial in trials]
    shared = union([[str(name) for name in side.names] for side in sides])
    truth = joint_truth([side.Y for side in sides], shared)
    counts = np.zeros(shared.size)
    for place, model in reversed(list(zip(shared.places, models, strict=True))):  # the first model's word counts
        counts[place] = model.counts
    metrics = paired(
        truth,
        *(moved(side.said, place, shared.size) for side, place in zip(sides, shared.places, strict=True)),
        label_counts=counts,
        n_train=max(1, round(models[0].total)),
        ks=range(1, min(max(side.ks) for side in sides) + 1),
        task="multiclass" if all(model.multiclass for model in models) else "multilabel",
        bootstraps=drawn.bootstraps,
        seed=drawn.seed,
    )
    right = [side.hit[:, 0] for side in sides]
    shares = [right[0] & right[1], right[0] & ~right[1], ~right[0] & right[1], ~right[0] & ~right[1]]
    agreement = Agreement(*(int(np.count_nonzero(share)) for share in shares))
    found = Comparison(names, metrics, agreement, (sides[0], sides[1]), "")
    return found._replace(html=rendered(found, trials, source, drawn))


def check_rows(trials: tuple[Trial, Trial]) -> None:
    n = [trial.Y.shape[0] for trial in trials]
    if n[0] != n[1]:
        raise DataError(f"The first model was given {plural(n[0], 'row')} and the second {n[1]:,}. Pass the same rows.")


class Union(NamedTuple):
    """The labels of two models."""

    places: tuple[Array, Array]  # where each label of either is among all
    size: int


def union(names: list[list[str]]) -> Union:
    """The first model's labels, then those that only the second knows."""
    place = {name: j for j, name in enumerate(names[0])}
    if not place.keys() & set(names[1]):
        raise DataError(
            f"The models have no label in common: one has {names[0][0]!r}, the other {names[1][0]!r}.\n"
            "Compare models of the same labels."
        )
    for name in names[1]:
        place.setdefault(name, len(place))
    first, second = (np.array([place[name] for name in side], np.int64) for side in names)
    return Union((first, second), len(place))


def moved(said: Predictions, place: Array, count: int) -> Predictions:
    """Predictions with their labels at other places."""

    def move(A: sp.csr_array | None) -> sp.csr_array | None:
        if A is None or (A.shape[1] == count and (place == np.arange(count)).all()):
            return A
        return sp.csr_array((A.data, place[A.indices], A.indptr), (A.shape[0], count))

    return said._replace(topk=move(said.topk), sets=move(said.sets), f1_sets=move(said.f1_sets))


def joint_truth(truths: list[sp.csr_array], shared: Union) -> sp.csr_array:
    """What either model knows of the true labels; those unknown to both are counted in columns of their own."""
    n = truths[0].shape[0]
    total = np.diff(truths[0].indptr)
    known = sp.csr_array((n, shared.size))
    for Y, place in zip(truths, shared.places, strict=True):
        inner = sp.csr_array(Y[:, : len(place)])
        known = known + sp.csr_array((np.ones(inner.nnz), place[inner.indices], inner.indptr), (n, shared.size))
    known = sp.csr_array(known > 0).astype(np.float32)
    left = np.maximum(0, total - np.diff(known.indptr))
    rows = np.repeat(np.arange(n), left)
    columns = np.arange(len(rows)) - np.repeat(np.cumsum(left) - left, left)
    width = int(left.max(initial=0))
    unknown = sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(n, width)) if width else None
    return known if unknown is None else sp.csr_array(sp.hstack([known, unknown]))
