"""Files of rows -> files of predictions, one for each: on the workers of a cluster, or here one after the other."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from smoothlink.data.files_on_disk import bare_name, expanded
from smoothlink.data.matching import Note, Reading, RowsToPredict, inside, matched, read_for, unnamed
from smoothlink.data.overwrite import writable
from smoothlink.data.predictions import OUTPUT_SUFFIXES, LabelRequest, OutputForm, write
from smoothlink.distributed import current
from smoothlink.distributed.client import Cluster, raise_error
from smoothlink.distributed.input_files import absolute_paths, check_visible, local_copy
from smoothlink.errors import ClusterError, DataError
from smoothlink.modelfile import load
from smoothlink.parameters import RANK_BY, Values, check_value
from smoothlink.text.documents import from_meta
from smoothlink.text.tables import check_library
from smoothlink.vocabulary import Vocabulary, with_vocabulary

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.classifier import TextSmoothLink
    from smoothlink.types import FilePath, FilePaths


class FileRequest(NamedTuple):
    """The model that every file is read for, and how; it goes to workers, which open the model themselves."""

    model: str  # its path
    rank_by: str
    how: Reading
    strict: bool  # whether features unknown to the model are refused
    device: str = "cpu"
    vocabulary: Vocabulary | None = None  # in place of the model's own
    threshold: float | None = None  # of label sets that are evaluated; None: the model's own

    def model_in_file(self) -> SmoothLinkClassifier | TextSmoothLink:
        """Returns the model with the features of its texts, if it has any."""
        model = open_model(self.model, self.device)
        return model if self.vocabulary is None else with_vocabulary(model, self.vocabulary)

    def classifier(self) -> SmoothLinkClassifier:
        """Returns the classifier, without the features of texts."""
        return inside(self.model_in_file())

    def read(self, path: str, *, labels_matter: bool = True, all_columns: bool = False, note: Note) -> RowsToPredict:
        """Returns the rows of a file for the model."""
        given: dict[str, Any] = {"labels_matter": labels_matter, "all_columns": all_columns}
        return read_for(self.model_in_file(), path, self.how, note=note, **given)


def open_model(path: str | os.PathLike[str], device: str) -> SmoothLinkClassifier | TextSmoothLink:
    """Returns the model in a file, memory-mapped. It stays open: a second call loads it again only if it changed."""
    if not os.path.isfile(path):
        return load(path)  # which says what is wrong
    stamp = os.stat(path)
    return load_once(os.fspath(path), (stamp.st_ino, stamp.st_mtime_ns, stamp.st_size), device)


@functools.lru_cache(maxsize=1)
def load_once(path: str, stamp: tuple[int, int, int], device: str) -> SmoothLinkClassifier | TextSmoothLink:
    """Returns the model in a file of this inode, time and size."""
    return load(path).set_params(device=device)


class Written(NamedTuple):
    """The predictions of one file."""

    path: str
    rows: int
    notes: list[str]  # what there was to say of the input


def predict_files(
    model: FilePath,
    paths: FilePaths,
    folder: str | os.PathLike[str],
    *,
    k: int | None = None,
    threshold: float | None = None,
    f1: bool = False,
    sets: bool = False,
    only: Sequence[Any] = (),
    rank_by: str = "probability",
    coverage: float | None = None,
    recall: float | None = None,
    precision: float | None = None,
    output_format: str = "jsonl",
    long: bool = False,
    all_columns: bool = False,
    how: Reading | None = None,
    vocabulary: Vocabulary | None = None,
    strict: bool = False,
    device: str = "cpu",
    force: bool = False,
    notify: Callable[[Written], None] | None = None,
) -> list[Written]:
    """Predicts the labels of each row of each file, into a file of its own in `folder`: a.txt.xz -> a.jsonl.

    Within `with smoothlink.cluster(...)` the files are distributed among the workers: each reads the model, which is
    mapped, and its files, and writes its predictions. All must see model, files and folder under the same names. A file
    of predictions appears when it is complete.

    model, paths: a model file; one data file or several, * in a name fitting anything. k, threshold, f1, sets, only,
    rank_by, output_format, long, all_columns, strict, device, force: as for the command `smoothlink predict`; coverage,
    recall, precision: as its options --guarantee-coverage and so on, each file with a review queue of its own. how:
    `smoothlink.Reading`, where files do not speak for themselves. vocabulary: `smoothlink.Vocabulary` of names for the
    labels, in place of that in the model. notify: called with each file that was written.
    """
    check_value("output_format", output_format, Values(tuple(OUTPUT_SUFFIXES)))
    check_library(output_format)
    check_columns(output_format, how or Reading(), long=long, all_columns=all_columns, review=precision is not None)
    check_value("rank_by", rank_by, RANK_BY)
    request, inputs = file_request(model, paths, rank_by, how, strict, device)
    request = request._replace(vocabulary=vocabulary)
    cluster = current()
    if cluster is not None:
        folder = os.path.abspath(folder)
    outputs = output_names(inputs, os.fspath(folder), output_format)
    for path in outputs if os.path.isdir(folder) else ():  # a new folder holds nothing to be overwritten
        writable(path, request.model, *inputs, kind="data", force=force)
    names = tuple(str(name) for name in only)
    asked = LabelRequest(k, threshold, f1, sets, names, rank_by, coverage, recall, precision)
    labels = asked.resolved(request.classifier())
    if cluster is not None:
        check_workers(cluster, request, inputs)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise DataError(f"{os.fspath(folder)}: {error.strerror}.\nName a folder of yours, or a new one.") from error
    form = OutputForm(output_format, long, label_separator(request.model_in_file()))
    files = [(request, labels, form, all_columns, *names) for names in zip(inputs, outputs, strict=True)]
    results: Iterator[Written]
    if cluster is None:
        results = (predict_file(*file) for file in files)
    else:
        check_folder(cluster, folder)
        cluster.step = "predict"
        tasks = [
            cluster.submit_checked(f"file {i}/{len(files)}", predict_file, *file) for i, file in enumerate(files, 1)
        ]
        results = cluster.results_as_completed(tasks)
    found = {}
    for written in results:
        found[written.path] = written
        if notify is not None:
            notify(written)
    return [found[path] for path in outputs]


def label_separator(model: SmoothLinkClassifier | TextSmoothLink) -> str | None:
    """Returns what separated labels in the training file of a model, if anything did."""
    source = from_meta(getattr(model, "source_", None))
    return None if source is None else source.separator


def check_columns(form: str, how: Reading, *, long: bool, all_columns: bool, review: bool = False) -> None:
    """Raises an error for options of tables where the format has no columns, or no row for some documents."""
    if review and long:
        raise DataError(
            "--long has no row for documents without predicted labels, which --guarantee-precision is to list.\n"
            "Leave --long out."
        )
    given = {"--long": long, "--all-columns": all_columns, "--id": how.id is not None, "--guarantee-precision": review}
    wrong = [option for option, value in given.items() if value]
    if form == "xmc" and wrong:
        raise DataError(f"The format xmc has labels by number only: {wrong[0]} means nothing.\nLeave it out.")


def predict_file(
    request: FileRequest, labels: LabelRequest, form: OutputForm, all_columns: bool, path: str, output: str
) -> Written:
    """Predicts one file; the output appears when it is complete."""
    model, notes = request.classifier(), list[str]()
    local = local_copy(path)
    found = request.read(local, labels_matter=False, all_columns=all_columns, note=notes.append)
    X = matched(found.data, local, model, strict=request.strict, note=notes.append).X
    with unnamed():
        write(output, model, X, labels, form, lambda rows: None, found.kept)
    return Written(output, X.shape[0], notes)


def file_request(
    model: str | os.PathLike[str], paths: Any, rank_by: str, how: Reading | None, strict: bool, device: str
) -> tuple[FileRequest, list[str]]:
    """Returns the request for all files and their paths, on a cluster as all machines know them."""
    inputs = expanded(paths)
    reading = (how or Reading()).for_many(inputs)
    request = FileRequest(os.fspath(model), rank_by, reading, strict, device)
    if current() is None:
        for path in inputs:
            reading.for_model(request.model_in_file(), path)  # which says what is wrong with a file that is not there
        return request, inputs
    if device != "cpu":
        raise ValueError(f"device is {device!r}, which a cluster cannot do; leave device as it is by default.")
    return request._replace(model=os.path.abspath(model), how=reading.absolute()), absolute_paths(inputs)


def output_names(inputs: list[str], folder: str, form: str) -> list[str]:
    """Returns where the predictions of each file go: under its name, without what says how the data are written."""
    known: dict[str, str] = {}
    for path in inputs:
        output = os.path.join(folder, Path(bare_name(path)).stem + OUTPUT_SUFFIXES[form][0])
        if output in known:
            raise DataError(
                f"{known[output]} and {path} would both be written to {output}.\n"
                "Rename one, or predict them into two folders."
            )
        known[output] = path
    return list(known)


def check_workers(cluster: Cluster, request: FileRequest, inputs: list[str]) -> None:
    """Raises ClusterError where a worker does not see the model, with the files that its decoder may be in, or an
    input."""
    shards = [str(path) for path in request.classifier().model_.V.files]
    check_visible(cluster, [request.model, *shards, *request.how.others, *inputs])


def check_folder(cluster: Cluster, folder: Any) -> None:
    """Raises ClusterError where a worker cannot write to the folder."""
    check_visible(cluster, [folder])
    for worker, fine in cluster.run_on_each(os.access, folder, os.W_OK).items():
        if not raise_error(fine):
            raise ClusterError(f"The worker {worker} cannot write to {folder}.\nName a folder where all may.")
