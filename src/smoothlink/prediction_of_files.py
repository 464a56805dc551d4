"""Files of rows -> files of predictions, one for each: on the workers of a cluster, or here one after the other."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from smoothlink.data.files_on_disk import bare_name, expanded
from smoothlink.data.matching import Note, Reading, inside, matched, read_for, unnamed
from smoothlink.data.overwrite import writable
from smoothlink.data.predictions import WRITERS, LabelRequest, check_library, write
from smoothlink.distributed.input_files import check_seen, for_all
from smoothlink.distributed.rows_on_workers import Cluster, current, library
from smoothlink.distributed.tasks import fetched, told
from smoothlink.errors import ClusterError, DataError
from smoothlink.machines.shards import Shards
from smoothlink.modelfile import load
from smoothlink.parameters import RANK_BY, Values, check_value

if TYPE_CHECKING:
    from smoothlink.data.read import Data
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.classifier import TextSmoothLink


class FileRequest(NamedTuple):
    """What is asked of every file."""

    model: str  # its path
    rank_by: str
    how: Reading
    strict: bool  # whether features unknown to the model are refused
    device: str = "cpu"

    def classifier(self) -> SmoothLinkClassifier:
        """The classifier, memory-mapped; it stays open for the next file."""
        return inside(self.whole())

    def whole(self) -> SmoothLinkClassifier | TextSmoothLink:
        """The model with the features of its texts, if it has any."""
        stamp = os.stat(self.model)
        return opened_model(self.model, (stamp.st_mtime_ns, stamp.st_size), self.device)

    def read(self, path: str, *, labels_matter: bool = True, note: Note) -> Data:
        """The rows of a file for the model."""
        return read_for(self.whole(), path, self.how, labels_matter=labels_matter, note=note)


class Written(NamedTuple):
    """The predictions of one file."""

    path: str
    rows: int
    notes: list[str]  # what there was to say of the input


@functools.lru_cache(maxsize=1)
def opened_model(path: str, stamp: tuple[int, int], device: str) -> SmoothLinkClassifier | TextSmoothLink:
    """The model in a file of this time and size."""
    return load(path).set_params(device=device)


def predict_files(
    model: str | os.PathLike[str],
    paths: Any,
    folder: str | os.PathLike[str],
    *,
    k: int | None = None,
    threshold: float | None = None,
    f1: bool = False,
    sets: bool = False,
    only: Sequence[Any] = (),
    rank_by: str = "probability",
    output_format: str = "jsonl",
    how: Reading | None = None,
    strict: bool = False,
    device: str = "cpu",
    force: bool = False,
    notify: Callable[[Written], None] | None = None,
) -> list[Written]:
    """Predicts the labels of each row of each file, into a file of its own in `folder`: a.txt.xz -> a.jsonl.

    Within `with smoothlink.cluster(...)` the files are shared out among the workers: each reads the model, which is
    mapped, and its files, and writes what it predicts. All must see model, files and folder under the same names. A
    file of predictions appears when it is whole.

    model, paths: a model file; one data file or several, * in a name fitting anything. k, threshold, f1, sets, only,
    rank_by, output_format, strict, device, force: as for the command `smoothlink predict`. how: `smoothlink.Reading`,
    where files do not speak for themselves. notify: told of each file that was written.
    """
    check_value("output_format", output_format, Values(tuple(WRITERS)))
    check_library(output_format)
    check_value("rank_by", rank_by, RANK_BY)
    question, inputs = file_request(model, paths, rank_by, how, strict, device)
    cluster = current()
    if cluster is not None:
        folder = os.path.abspath(folder)
    outputs = output_names(inputs, os.fspath(folder), output_format)
    for path in outputs if os.path.isdir(folder) else ():  # a new folder holds nothing to be overwritten
        writable(path, question.model, *inputs, kind="data", force=force)
    ask = LabelRequest(k, threshold, f1, sets, tuple(str(name) for name in only), rank_by).resolved(
        question.classifier()
    )
    if cluster is not None:
        check_workers(cluster, question, inputs)
    make_folder(folder)
    if cluster is not None:
        check_folder(cluster, folder)
    jobs = [(question, ask, output_format, path, output) for path, output in zip(inputs, outputs, strict=True)]
    found = []
    for written in each(cluster, "predict", predict_file, jobs):
        found.append(written)
        if notify is not None:
            notify(written)
    place = {path: i for i, path in enumerate(outputs)}
    return sorted(found, key=lambda written: place[written.path])


def predict_file(question: FileRequest, ask: LabelRequest, form: str, path: str, output: str) -> Written:
    """Predicts one file; the output appears when it is whole."""
    model, notes = question.classifier(), list[str]()
    local = fetched(path)
    data = question.read(local, labels_matter=False, note=notes.append)
    X = matched(data, local, question.how, model, strict=question.strict, note=notes.append).X
    with unnamed():
        write(output, model, X, ask, form, lambda rows: None)
    return Written(output, X.shape[0], notes)


# Before work starts


def file_request(
    model: str | os.PathLike[str], paths: Any, rank_by: str, how: Reading | None, strict: bool, device: str
) -> tuple[FileRequest, list[str]]:
    """What is asked of which files; on a cluster by names that all machines understand."""
    inputs = expanded(paths)
    reading = (how or Reading()).for_many(inputs)
    question = FileRequest(os.fspath(model), rank_by, reading, strict, device)
    if current() is None:
        for path in inputs:
            reading.format_of(path)  # which says what is wrong with a file that is not there
        return question, inputs
    if device != "cpu":
        raise ValueError(f"device is {device!r}, which a cluster cannot do; leave device as it is by default.")
    return question._replace(model=os.path.abspath(model), how=reading.absolute()), for_all(inputs)


def output_names(inputs: list[str], folder: str, form: str) -> list[str]:
    """Where the predictions of each file go: under its name, without what says how the data are written."""
    known: dict[str, str] = {}
    for path in inputs:
        output = os.path.join(folder, Path(bare_name(path)).stem + WRITERS[form].suffixes[0])
        if output in known:
            raise DataError(
                f"{known[output]} and {path} would both be written to {output}.\n"
                "Rename one, or predict them into two folders."
            )
        known[output] = path
    return list(known)


def make_folder(folder: str | os.PathLike[str]) -> None:
    """Makes the folder, if it is not there yet."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise DataError(f"{os.fspath(folder)}: {error.strerror}.\nName a folder of yours, or a new one.") from error


def check_workers(cluster: Cluster, question: FileRequest, inputs: list[str]) -> None:
    """Whether every worker sees the model, with the files that its decoder may be in, and all that is read."""
    V = question.classifier().model_.V
    shards = [str(path) for path in V.files] if isinstance(V, Shards) else []
    check_seen(cluster, [question.model, *shards, *question.how.others, *inputs])


def check_folder(cluster: Cluster, folder: Any) -> None:
    """Whether every worker can write there."""
    check_seen(cluster, [folder])
    with cluster.speaking():
        answers = cluster.client.run(os.access, folder, os.W_OK)
    for worker, fine in answers.items():
        if not fine:
            raise ClusterError(f"The worker {worker} cannot write to {folder}.\nName a folder where all may.")


# The work


def each(cluster: Cluster | None, stage: str, f: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """f of every job, as they end: on the workers, or here. The first that fails ends all."""
    if cluster is None:
        yield from (f(*job) for job in jobs)
        return
    cluster.stage = stage
    tasks = [cluster.submit(f"file {i}/{len(jobs)}", told, f, *job) for i, job in enumerate(jobs, 1)]
    with cluster.speaking():
        for _, answer in library("distributed").as_completed(tasks, with_results=True):
            if isinstance(answer, Exception):
                cluster.client.cancel(tasks)
                raise answer
            yield answer
