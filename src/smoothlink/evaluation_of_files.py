"""Files of rows with their labels -> metrics over all rows together: on the workers of a cluster, or here."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.matching import Reading, label_names, matched, matched_labels, truth, unnamed
from smoothlink.distributed.decoder import label_parts
from smoothlink.distributed.input_files import answered
from smoothlink.distributed.rows_on_workers import Cluster, current
from smoothlink.distributed.tasks import fetched, told
from smoothlink.errors import DataError, plural
from smoothlink.machines.rows import stack
from smoothlink.metrics.evaluate import Evaluation
from smoothlink.model import EmbeddedRows
from smoothlink.parameters import RANK_BY, check_value
from smoothlink.predict import Batch, LabelPart, label_part, predictions, put_together
from smoothlink.prediction_of_files import FileRequest, check_workers, file_request

if TYPE_CHECKING:
    pass

Array = NDArray[Any]


class Truth(NamedTuple):
    """The labels of the rows of a file, and what there was to say of it."""

    Y: sp.csr_array  # (n, >= c), those unknown to the model last
    unknown: list[str] | None  # their names; None: they are known by their numbers
    notes: list[str]


class Tested(NamedTuple):
    """The rows of a file as the decoder sees them, with their labels."""

    rows: Any  # what `Model.sight` gives, or on the host X itself
    normalisers: Array | None  # (n,) multiclass: over all labels
    truth: Truth


def evaluate_files(
    model: str | os.PathLike[str],
    paths: Any,
    *,
    rank_by: str = "probability",
    how: Reading | None = None,
    strict: bool = False,
    device: str = "cpu",
    bootstraps: int = 1000,
    seed: int = 0,
    note: Callable[[str], None] | None = None,
) -> Evaluation:
    """All metrics of a model, with 90 % intervals, over the rows of all files together.

    Within `with smoothlink.cluster(...)` workers read and embed the files, and then share out the labels: each scores
    all rows for some of them, so that Algorithm 4 sees every row. Embedded rows, rows x rank x 4 bytes, go to every
    worker; the k best, sets and losses come back. All must see model and files under the same names.

    model, paths: a model file; one data file or several, * in a name fitting anything. rank_by, strict, device,
    bootstraps, seed: as for the command `smoothlink evaluate`. how: `smoothlink.Reading`, where files do not speak for
    themselves. note: is told what there is to say of the files.
    """
    check_value("rank_by", rank_by, RANK_BY)
    question, inputs = file_request(model, paths, rank_by, how, strict, device)
    loaded, cluster = question.classifier(), current()
    if cluster is None:
        found = [read_test(question, path) for path in inputs]
        Y = all_labels([tested.truth for tested in found], inputs, note)
        with unnamed():
            X = loaded._validated_rows(stack([tested.rows for tested in found]))
        said = loaded._run_prediction(X, predictions, Y, rank_by=rank_by)
    else:
        check_workers(cluster, question, inputs)
        Y, parts = on_workers(cluster, question, inputs, loaded.model_.n_labels, note)
        said = put_together(loaded.model_, parts, Y, rank_by=rank_by)
    return loaded._evaluation(Y, said, bootstraps, seed)


def on_workers(
    cluster: Cluster, question: FileRequest, inputs: Sequence[str], c: int, note: Callable[[str], None] | None
) -> tuple[sp.csr_array, list[LabelPart]]:
    """The labels of all rows, and what the workers found of each part of the labels."""
    cluster.stage = "evaluate"
    files = [
        cluster.submit(f"embed {i}/{len(inputs)}", told, embed_test, question, path) for i, path in enumerate(inputs, 1)
    ]
    truths = answered(cluster, [cluster.submit("truth", truth_of, tested) for tested in files])
    Y = all_labels(truths, inputs, note)
    shared = label_parts(c, len(cluster.workers))
    tasks = [
        cluster.submit(f"labels {i}/{len(shared)}", told, judge_labels, question, files, labels)
        for i, labels in enumerate(shared, 1)
    ]
    return Y, answered(cluster, tasks)


# On a worker, or here


def read_test(question: FileRequest, path: str) -> Tested:
    """X with the features of the model, and the labels."""
    path = fetched(path)
    model, how, notes = question.classifier(), question.how, list[str]()
    data = question.read(path, note=notes.append)
    counts = (data.X.shape[0], "row"), (data.X.shape[1], "feature"), (data.Y.shape[1], "label")
    notes.insert(0, f"{path}: {', '.join(plural(count, noun) for count, noun in counts)}.")
    data = matched_labels(data, path, how, model)
    data = matched(data, path, how, model, strict=question.strict, note=notes.append)
    Y = model._true_labels(truth(data, path, model))
    named = model._indicator and data.label_names is not None and model.label_names_ is not None
    unknown = data.label_names[len(label_names(model)) :] if named and data.label_names is not None else None
    return Tested(data.X, None, Truth(Y, unknown, notes))


def embed_test(question: FileRequest, path: str) -> Tested:
    """The rows of a file as they are scored."""
    found, loaded = read_test(question, path), question.classifier()
    with unnamed():
        X = loaded._validated_rows(found.rows)
    model, rows, normalisers = loaded.model_, loaded.model_.embed_rows(X), None
    if model.multiclass:
        parts = [model.all_normalisers(model.see(rows[part])) for part in model.feature_blocks(len(rows))]
        normalisers = np.concatenate(parts)
    return Tested(rows, normalisers, found.truth)


def truth_of(tested: Any) -> Any:
    """The labels of a file, or the error that came of reading it."""
    return tested.truth if isinstance(tested, Tested) else tested


def judge_labels(question: FileRequest, files: list[Tested], labels: slice) -> LabelPart:
    """What some labels are worth, of all rows."""
    loaded = question.classifier()
    rows = files[0].rows
    if len(files) > 1 and isinstance(rows, EmbeddedRows):
        rows = EmbeddedRows(np.concatenate([f.rows.H for f in files]), stack([f.rows.X for f in files]))
    elif len(files) > 1:
        rows = np.concatenate([f.rows for f in files])
    normalisers = np.concatenate([f.normalisers for f in files]) if loaded.model_.multiclass else None
    Y = stack([f.truth.Y[:, : loaded.model_.n_labels] for f in files])
    batch = Batch(loaded.model_, rows, normalisers)
    return label_part(loaded.model_, batch, Y, labels, rank_by=question.rank_by)


# Here


def all_labels(found: list[Truth], inputs: Sequence[str], note: Callable[[str], None] | None) -> sp.csr_array:
    """The labels of the rows of all files; a label unknown to the model has one column, whatever file it is in."""
    for text in [text for known in found for text in known.notes]:
        if note is not None:
            note(text)
    places: dict[str, int] = {}
    moved = []
    for Y, unknown, _ in found:
        if unknown:
            c = Y.shape[1] - len(unknown)
            table = np.append(np.arange(c), [c + places.setdefault(name, len(places)) for name in unknown])
            Y = sp.csr_array((Y.data, table[Y.indices], Y.indptr), (Y.shape[0], int(table.max()) + 1))
        moved.append(Y)
    width = max(Y.shape[1] for Y in moved)
    whole: sp.csr_array = stack([sp.csr_array((Y.data, Y.indices, Y.indptr), (Y.shape[0], width)) for Y in moved])
    if not whole.nnz:
        raise DataError(
            f"{inputs[0]} has no row with a label: there is nothing to measure.\nTo label it: smoothlink predict."
        )
    return whole
