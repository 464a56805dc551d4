"""Rows to test a model on, from arrays or from files, as the model takes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from smoothlink.data.matching import Reading, inside, unnamed
from smoothlink.distributed.input_files import local_copy
from smoothlink.errors import DataError, plural
from smoothlink.explanation import words_of
from smoothlink.file_evaluation import all_labels, read_test
from smoothlink.file_prediction import file_request
from smoothlink.labels import read_labels
from smoothlink.machines.rows import stack
from smoothlink.text.documents import describe, from_meta, join_documents, read_documents

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.classifier import TextSmoothLink

LONGEST_TEXT = 320  # characters of a row that a page shows


class LabelledRows(NamedTuple):
    """Test rows as a classifier takes them, with their labels."""

    model: SmoothLinkClassifier | TextSmoothLink
    X: Any  # (n, d)
    Y: sp.csr_array  # (n, >= c), labels unknown to the classifier last
    features: Any = None  # TextFeatures, where X was made from texts
    texts: Sequence[str] | None = None
    rank_by: str = "probability"
    ids: Sequence[str] | None = None  # of the rows
    threshold: Any = None  # of label sets; None: the model's own

    @property
    def classifier(self) -> SmoothLinkClassifier:
        return inside(self.model)

    def name(self, row: int) -> str:
        """Returns what a row is called: its id, or its number from 0 on."""
        return f"row {row:,}" if self.ids is None else self.ids[row]

    def describe(self, row: int) -> str:
        """Returns a row in words: its text, or its largest features."""
        if self.texts is not None:
            return shorten(self.texts[row])
        x = self.X[[row]].toarray()[0] if sp.issparse(self.X) else np.asarray(self.X[row])
        largest = [j for j in np.argsort(-np.abs(x), kind="stable")[:12].tolist() if x[j]]
        return ", ".join(map(self.feature_names(row), largest)) or "no features"

    def feature_names(self, row: int) -> Callable[[int], str]:
        """Returns the function that names a feature of a row."""
        if self.texts is not None:
            return words_of(self.features, self.texts[row])
        known = getattr(self.classifier, "feature_names_in_", None)
        return (lambda j: f"feature {j}") if known is None else (lambda j: str(known[j]))


def shorten(text: str) -> str:
    """Returns the beginning of a text, whole words where possible."""
    text = " ".join(text.split())
    if len(text) <= LONGEST_TEXT:
        return text or "an empty text"
    head = text[: LONGEST_TEXT - 1]
    return (head.rsplit(maxsplit=1)[0] if " " in head else head) + " …"


def labelled_rows(model: Any, X: Any, y: Any, ids: Sequence[Any] | None = None) -> LabelledRows:
    """Returns rows and labels as `evaluate` takes them; of a text model the rows are texts."""
    if hasattr(model, "classifier_"):
        texts = list(model._texts(X))
        found = labelled_texts(model, texts, model._read_labels(y).Y)
    else:
        with unnamed():
            found = LabelledRows(model, model._validated_rows(X), model._true_labels(y))
    if ids is None:
        return found
    if len(ids) != found.Y.shape[0]:
        raise DataError(f"There are {len(ids):,} ids for {plural(found.Y.shape[0], 'row')}. Pass one for each row.")
    return found._replace(ids=[str(one) for one in ids])


def labelled_texts(model: Any, texts: list[str], Y: sp.csr_array) -> LabelledRows:
    return LabelledRows(model, model.features_.transform(texts), Y, model.features_, texts)


def labelled_rows_in_files(
    path: str | os.PathLike[str],
    data: Any,
    *,
    rank_by: str = "probability",
    threshold: float | None = None,
    how: Reading | None = None,
    strict: bool = False,
    device: str = "cpu",
    note: Callable[[str], None] | None = None,
) -> LabelledRows:
    """Returns the rows of data files for the model in a file; each file is read once."""
    request, inputs = file_request(path, data, rank_by, how, strict, device)
    model: Any = request.model_in_file()
    inside(model).model_.finish_verification()
    if inside(model) is not model:
        local = [local_copy(name) for name in inputs]
        trained = from_meta(model.source_)
        found = [read_documents(name, request.how.source(name, trained)) for name in local]
        for name, documents in zip(local, found, strict=True):
            if note is not None:
                note(describe(name, documents, without_text="which get the labels' frequencies"))
        documents = join_documents(found)
        Y = read_labels(documents.labels, model.classes_.tolist()).Y
        ids = None if documents.ids is None else [str(one) for one in documents.ids]
        return labelled_texts(model, documents.texts, Y)._replace(rank_by=rank_by, threshold=threshold, ids=ids)
    tested = [read_test(request, name) for name in inputs]
    Y = all_labels([part.truth for part in tested], inputs, note)
    with unnamed():
        X = model._validated_rows(stack([part.rows for part in tested]))
    return LabelledRows(model, X, Y, rank_by=rank_by, threshold=threshold)
