"""A model file that rows and labels come to and go from: one process at a time, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np
import scipy.sparse as sp

from smoothlink import modelfile
from smoothlink.data.atomic import remedy
from smoothlink.data.matching import inside, label_names
from smoothlink.data.overwrite import is_model
from smoothlink.errors import ModelFileError
from smoothlink.living import changes
from smoothlink.living.changes import Batch, joined, state_of
from smoothlink.living.update_journal import Journal, Shape

if sys.platform != "win32":  # pragma: no branch
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smoothlink.types import Labels, Targets


def lock_model(path: Path) -> BinaryIO:
    """Returns the open lock of the model file at `path`; raises an error if another process has it."""
    name = path.with_name(f"{path.stem}.lock")
    try:
        lock = open(name, "ab")  # noqa: SIM115
    except OSError as error:
        raise ModelFileError(f"{name}: cannot be written: {error.strerror or error}.\n{remedy(error)}") from error
    try:
        if sys.platform != "win32":
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise ModelFileError(
            f"{path} is being updated by another process.\nWait until that has ended, and try again."
        ) from error
    except BaseException:
        lock.close()
        raise
    return lock


@contextmanager
def locked_for_update(path: str | os.PathLike[str]) -> Iterator[None]:
    """Keeps other processes from updating the model file at `path`, if there is one of a model that can be updated,
    while it is replaced; raises an error if one does now."""
    target = Path(os.path.realpath(path))
    there = target.is_file() and is_model(str(target))
    if not there or inside(modelfile.load(target, verify="never"))._living is None:
        yield
        return
    with lock_model(target):
        yield


class LivingFile:
    """A model file and its sums, open for updates. `with LivingFile(path) as living: living.update(texts, labels)`.

    `update` and `add_labels` return once a line of the journal is on disk; `forget` and `save` once model and sums are
    replaced. After a kill at any moment, the next LivingFile has all that was acknowledged.
    """

    def __init__(self, path: str | os.PathLike[str], *, serves: bool = False) -> None:
        """Loads the model and its sums, and what the journal has of it; raises an error if another process updates
        it. serves: whether predictions are wanted after few rows, not only after many."""
        self.path = Path(os.path.realpath(path))
        self._lock = lock_model(self.path)
        try:
            self.model: Any = modelfile.load(self.path)
            state = state_of(self.classifier)
            if serves:
                state.prepare(self.classifier._model)
            classifier, model = self.classifier, self.classifier._model
            shape = Shape(classifier.n_features_in_, model.n_labels, state.feature_rows is not None, model.multiclass)
            self.journal = Journal(self.path.with_name(f"{self.path.stem}.journal"), str(state.generation), shape)
            if self.journal.batches:
                self.apply(self.journal.batches)
        except BaseException:
            self._lock.close()
            raise

    @property
    def classifier(self) -> Any:
        return inside(self.model)

    def update(
        self, rows: Any, labels: Labels | Targets, sample_weight: Any = None, names: Sequence[Any] | None = None
    ) -> dict[str, Any]:
        """Adds rows, or texts of a text model; returns the report once they are in the journal, on disk.

        names: of labels that are new, the last columns of a 0/1 matrix.
        """
        texts, batch = self._read(rows, labels, sample_weight, names)
        self.accept(batch)
        outcome = self.apply([batch])
        if texts is not None:
            outcome["unknown_words"] = self.model.features_.unknown_share(texts)
        return outcome

    def read(self, rows: Any, labels: Labels | Targets, names: Sequence[Any] | None = None) -> Batch:
        """Returns rows, as `update` takes them, for `accept` and `apply`, which together are `update`."""
        return self._read(rows, labels, None, names)[1]

    def accept(self, batch: Batch) -> None:
        """Writes a batch to the journal; labels that it brings must be applied before other batches are read."""
        self.journal.append(batch)

    def apply(self, batches: Sequence[Batch]) -> dict[str, Any]:
        """Adds what the journal has to the model, all at once; returns the report."""
        batch = joined(batches)
        if batch.Y.shape[0]:
            return changes.update(self.classifier, batch)
        changes.add_labels(self.classifier, batch.names)
        return changes.report(self.classifier, labels_added=[str(name) for name in batch.names])

    def add_labels(self, names: Sequence[Any] | int) -> dict[str, Any]:
        """Adds labels that no row has yet; returns the report once they are in the journal, on disk."""
        before = len(self.classifier.classes_)
        self.model.add_labels(names)
        known = label_names(self.classifier)
        empty = sp.csr_array((0, self.classifier.n_features_in_)), sp.csr_array((0, len(known)), dtype=np.float32)
        self.accept(Batch(*empty, np.zeros(0), known[before:]))
        return dict(self.model.summary_["living"])

    def forget(self, rows: Any, labels: Labels | Targets) -> dict[str, Any]:
        """Removes rows; returns the report once no file holds what only they had."""
        self.model.forget(rows, labels)
        outcome = dict(self.model.summary_["living"])
        self.save()
        return outcome

    def save(self) -> None:
        """Replaces model and sums by those of all rows that there are now, and empties the journal."""
        self.model.save(self.path)
        self.journal.clear(str(state_of(self.classifier).generation))

    def close(self) -> None:
        """Lets other processes update the model; what is in the journal stays there."""
        self._lock.close()

    def _read(
        self, rows: Any, labels: Any, sample_weight: Any, names: Sequence[Any] | None
    ) -> tuple[Sequence[str] | None, Batch]:
        """Returns the texts, if they are such, and the checked rows of an update."""
        read = self.model._batch(rows, labels, sample_weight)
        texts, batch = (None, read) if self.model is self.classifier else read
        return texts, batch if names is None else batch._replace(names=list(names))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
