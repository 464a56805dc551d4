"""Rows to test a model on, from arrays or from files, as the model takes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import scipy.sparse as sp

from smoothlink.data.matching import Reading, inside, unnamed
from smoothlink.distributed.input_files import local_copy
from smoothlink.file_evaluation import all_labels, read_test
from smoothlink.file_predictions import FileRequest, file_request
from smoothlink.machines.rows import stack
from smoothlink.reports.lists import Case
from smoothlink.text.documents import from_meta, read_documents


class Trial(NamedTuple):
    """Rows as a classifier takes them, with their labels."""

    case: Case
    Y: sp.csr_array  # (n, >= c), labels unknown to the classifier last
    rank_by: str = "probability"


def given_trial(model: Any, X: Any, y: Any) -> Trial:
    """Rows and labels as `evaluate` takes them; of a text model the rows are texts."""
    inner = getattr(model, "classifier_", None)
    if inner is not None:
        texts = list(model._texts(X))
        return Trial(Case(inner, model.transform(texts), model.features_, texts), model._read_labels(y).Y)
    with unnamed():
        return Trial(Case(model, model._validated_rows(X)), model._true_labels(y))


def trial_in_files(
    model: str | os.PathLike[str],
    paths: Any,
    *,
    rank_by: str = "probability",
    how: Reading | None = None,
    strict: bool = False,
    device: str = "cpu",
    note: Callable[[str], None] | None = None,
) -> Trial:
    """The rows of data files for the model in a file."""
    question, inputs = file_request(model, paths, rank_by, how, strict, device)
    found = [read_test(question, path) for path in inputs]
    Y = all_labels([tested.truth for tested in found], inputs, note)
    whole = question.whole()
    loaded = inside(whole)
    with unnamed():
        X = loaded._validated_rows(stack([tested.rows for tested in found]))
    texts = [text for path in inputs for text in texts_in(path, question)] if whole is not loaded else None
    return Trial(Case(loaded, X, getattr(whole, "features_", None), texts), Y, rank_by)


def texts_in(path: str, question: FileRequest) -> list[str]:
    """The documents of a file, in the order of its rows."""
    trained = from_meta(getattr(question.whole(), "source_", None))
    local = local_copy(path)
    return read_documents(local, question.how.source(local, trained), labels_matter=False).texts
