"""Files of rows with their labels -> metrics over all rows together: on the workers of a cluster, or here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.matching import Reading, label_names, matched, matched_labels, read_groups, truth, unnamed
from smoothlink.distributed import current
from smoothlink.distributed.client import Cluster
from smoothlink.distributed.input_files import local_copy
from smoothlink.distributed.remote_array import split_evenly
from smoothlink.errors import DataError, plural
from smoothlink.file_prediction import FileRequest, check_workers, file_request
from smoothlink.machines.copies import group_numbers, row_hashes
from smoothlink.machines.rows import stack
from smoothlink.metrics.evaluate import Evaluation
from smoothlink.model import EmbeddedRows
from smoothlink.parameters import RANK_BY, check_value
from smoothlink.predict import Batch, LabelPart, label_part, merge_label_parts, predictions
from smoothlink.text.documents import from_meta
from smoothlink.types import FilePath, FilePaths

Array = NDArray[Any]


class Truth(NamedTuple):
    """The labels of the rows of a file, and what there was to say of it."""

    Y: sp.csr_array  # (n, >= c), those unknown to the model last
    unknown: list[str] | None  # their names; None: they are known by their numbers
    notes: list[str]


class Tested(NamedTuple):
    """The rows of a file as the decoder takes them, with their labels."""

    rows: Any  # what `Model.embed_rows` returns, or X itself
    normalisers: Array | None  # (n,) multiclass: over all labels
    truth: Truth
    features: Array | None = None  # (n,) hashes of the rows, where `rows` are embedded


def evaluate_files(
    model: FilePath,
    paths: FilePaths,
    *,
    rank_by: str = "probability",
    threshold: float | None = None,
    how: Reading | None = None,
    strict: bool = False,
    device: str = "cpu",
    bootstraps: int = 1000,
    seed: int = 0,
    groups: str | None = None,
    note: Callable[[str], None] | None = None,
) -> Evaluation:
    """Returns all metrics of a model, with 90 % intervals, over the rows of all files together.

    Within `with smoothlink.cluster(...)` workers read and embed the files. Then the labels are partitioned: each worker
    scores all rows for some of them, so that Algorithm 4 sees every row. Embedded rows, rows x rank x 4 bytes, go to
    every worker; the k best, sets and losses come back. All must see model and files under the same names.

    model, paths: a model file; one data file or several, * in a name fitting anything. rank_by, threshold, strict,
    device, bootstraps, seed: as for the command `smoothlink evaluate`. how: `smoothlink.Reading`, where files do not
    speak for themselves. groups: column of texts, or file with a line for each row, whose rows of the same value are
    drawn together for the intervals; without it, copies are. note: called with what there is to say of the files.
    """
    check_value("rank_by", rank_by, RANK_BY)
    request, inputs = file_request(model, paths, rank_by, how, strict, device)
    request = request._replace(threshold=threshold)
    loaded, cluster = request.classifier(), current()
    thresholds = loaded._thresholds(threshold)
    if cluster is None:
        found = [read_test(request, path) for path in inputs]
        Y = all_labels([tested.truth for tested in found], inputs, note)
        with unnamed():
            X = loaded._validated_rows(stack([tested.rows for tested in found]))
        predicted = loaded._run_prediction(X, predictions, Y, rank_by=rank_by, thresholds=thresholds)
        features = row_hashes(X)
    else:
        check_workers(cluster, request, inputs)
        Y, features, parts = evaluate_on_workers(cluster, request, inputs, loaded.model_.n_labels, note)
        predicted = merge_label_parts(loaded.model_, parts, Y, rank_by=rank_by, thresholds=thresholds)
    given = None
    if groups is not None:
        trained = from_meta(getattr(request.model_in_file(), "source_", None))
        names = read_groups([local_copy(path) for path in inputs], request.how, groups, Y.shape[0], trained)
        given = group_numbers(names, Y.shape[0])
    loaded.model_.finish_verification()
    return loaded._evaluation(Y, predicted, bootstraps, seed, features, given)


def evaluate_on_workers(
    cluster: Cluster, request: FileRequest, inputs: Sequence[str], c: int, note: Callable[[str], None] | None
) -> tuple[sp.csr_array, Array, list[LabelPart]]:
    """Returns the labels of all rows, hashes of their features, and what each part of the labels contributes."""
    cluster.step = "evaluate"
    files = [
        cluster.submit_checked(f"embed {i}/{len(inputs)}", embed_test, request, path)
        for i, path in enumerate(inputs, 1)
    ]
    found = cluster.results([cluster.submit("truth", truth_of, tested) for tested in files])
    Y, features = all_labels([truth for truth, _ in found], inputs, note), np.concatenate([part for _, part in found])
    parts = split_evenly(c, len(cluster.workers))
    tasks = [
        cluster.submit_checked(f"labels {i}/{len(parts)}", evaluate_labels, request, files, labels)
        for i, labels in enumerate(parts, 1)
    ]
    return Y, features, cluster.results(tasks)


def read_test(request: FileRequest, path: str) -> Tested:
    """Returns X with the features of the model, and the labels."""
    path = local_copy(path)
    model, notes = request.classifier(), list[str]()
    data = request.read(path, note=notes.append).data
    counts = (data.X.shape[0], "row"), (data.X.shape[1], "feature"), (data.Y.shape[1], "label")
    notes.insert(0, f"{path}: {', '.join(plural(count, noun) for count, noun in counts)}.")
    data = matched_labels(data, path, model)
    data = matched(data, path, model, strict=request.strict, note=notes.append)
    Y = model._true_labels(truth(data, path, model))
    named = model._indicator and data.label_names is not None and model.label_names_ is not None
    unknown = data.label_names[len(label_names(model)) :] if named and data.label_names is not None else None
    return Tested(data.X, None, Truth(Y, unknown, notes))


def embed_test(request: FileRequest, path: str) -> Tested:
    """Returns the rows of a file as they are scored."""
    found, loaded = read_test(request, path), request.classifier()
    with unnamed():
        X = loaded._validated_rows(found.rows)
    model, rows, normalisers = loaded.model_, loaded.model_.embed_rows(X), None
    if model.multiclass:
        parts = [model.all_normalisers(model.featurize(rows[part])) for part in model.feature_blocks(len(rows))]
        normalisers = np.concatenate(parts)
    return Tested(rows, normalisers, found.truth, row_hashes(X))


def truth_of(tested: Any) -> Any:
    """Returns the labels of a file and hashes of its rows, or the error that reading it gave."""
    return (tested.truth, tested.features) if isinstance(tested, Tested) else tested


def evaluate_labels(request: FileRequest, files: list[Tested], labels: slice) -> LabelPart:
    """Returns what some labels contribute to the metrics, over all rows."""
    loaded = request.classifier()
    rows = files[0].rows
    if len(files) > 1 and isinstance(rows, EmbeddedRows):
        rows = EmbeddedRows(np.concatenate([f.rows.H for f in files]), stack([f.rows.X for f in files]))
    elif len(files) > 1:
        rows = np.concatenate([f.rows for f in files])
    normalisers = np.concatenate([f.normalisers for f in files]) if loaded.model_.multiclass else None
    Y = stack([f.truth.Y[:, : loaded.model_.n_labels] for f in files])
    batch = Batch(loaded.model_, rows, normalisers)
    thresholds = loaded._thresholds(request.threshold)
    loaded.model_.finish_verification()
    return label_part(loaded.model_, batch, Y, labels, rank_by=request.rank_by, thresholds=thresholds)


def all_labels(found: list[Truth], inputs: Sequence[str], note: Callable[[str], None] | None) -> sp.csr_array:
    """Returns the labels of the rows of all files; a label unknown to the model has one column for all."""
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
