"""The one process of a server that changes the model: it journals, applies and publishes what workers send.

A change is acknowledged once its line is in the journal, on disk. One thread applies what came meanwhile, as one batch,
and publishes the model that results. Forgetting is acknowledged once model, sums and journal are replaced.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import secrets
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from smoothlink.data.matching import label_names, unnamed
from smoothlink.errors import ModelFileError, SmoothLinkError
from smoothlink.living.changes import Batch
from smoothlink.living.living_file import LivingFile
from smoothlink.living.low_rank import CorrectedWeights
from smoothlink.living.state import embed, featurize
from smoothlink.machines.copies import RowContents, row_hashes
from smoothlink.machines.parent_process import when_parent_ends
from smoothlink.machines.threads import limit_threads
from smoothlink.serve.limits import INTERNAL_ERROR
from smoothlink.serve.schema import RefusedRequest
from smoothlink.serve.updates import FORGET, SOCKET, Change, PublishedModel, Reply

FIELDS = ("counts", "total", "calibration", "thresholds", "threshold")  # of a model that updates change, besides V
ATTRIBUTES = ("label_names_", "classes_", "label_directions_")  # and of a classifier, where labels are added
SAVE_AFTER = 30.0  # seconds without a change until the journal is emptied into the model file
JOURNAL_BYTES = 64 << 20  # from which on that is done in any case
BUSY_AFTER = 2.0  # seconds that a change waits while the model file is written
ORPHANED = 60.0  # seconds that workers whose server was killed may go on sending
START_AGAIN = 1.0  # seconds until an updater that ended is started again
APPLY_NICENESS = 10
BACKLOG = 64  # workers that wait to be connected
BUSY = "The model file is being written, and changes must wait. Try again in a second."
log = logging.getLogger("smoothlink.serve")


class Updater:
    """A living file, the changes that wait, and the model that results."""

    def __init__(self, path: str, folder: Path, threads: int = 1, save_after: float = SAVE_AFTER) -> None:
        self.save_after = save_after
        self.living, self.folder, self.threads = LivingFile(path, serves=True), folder, threads
        # Held where labels or words change, and while the journal is written or emptied: nothing is accepted meanwhile.
        self.lock = threading.Condition(threading.RLock())
        self.accepted: list[Batch] = []  # but not applied
        self.forgets: list[tuple[Change, Callable[[Reply], None]]] = []
        self.count = 0  # changes accepted
        self.unsaved = bool(self.living.journal.batches)
        self.published: PublishedModel | None = None
        self.unpublished = self.unsaved
        self.numbers: dict[str, int] | None = None  # of labels by name; None: labels were removed
        self.news = threading.Condition()
        self.V: Any = None  # the array that workers have
        self.file_labels = 0  # that the file has which workers have
        self.publish_file()
        if self.unsaved:
            self.V, self.file_labels = None, 0  # the journal may have labels that the file has not
            self.publish(0)

    def warm_up(self) -> None:
        """Compiles and imports what the first changes would wait for, with a row that is not kept."""
        classifier, model = self.living.classifier, self.living.classifier._model
        X = sp.csr_array(([1.0], [0], [0, 1]), (1, classifier.n_features_in_))
        Y = sp.csr_array(([1.0], [0], [0, 1]), (1, model.n_labels), dtype=np.float32)
        X = X if classifier._living.feature_rows is not None else X.toarray()
        RowContents.of(X, Y)
        row_hashes(X)
        featurize(model, embed(model, X))
        if classifier._living.factor is None:  # then each change solves anew, which takes no second
            classifier._living.refreshed(model)

    # Changes

    def receive(self, change: Change, reply: Callable[[Reply], None]) -> None:
        """Accepts a change, and replies once it is on disk."""
        if not self.lock.acquire(timeout=BUSY_AFTER):
            reply(Reply(change.number, None, status=503, reason=BUSY))
            return
        try:
            if change.kind == FORGET:
                self.forgets.append((change, reply))
                self.lock.notify_all()
                return
            batch = self.read(change)
            # A label that is new here may be new in a batch that waits as well: then it must have its number first.
            while batch.names and any(waiting.names for waiting in self.accepted):
                self.lock.wait()
                batch = self.read(change)
            self.living.accept(batch)
            self.accepted.append(batch)
            self.count += 1
            outcome = {"rows": batch.Y.shape[0], "new_labels": [str(name) for name in batch.names]}
            self.lock.notify_all()
            reply(Reply(change.number, outcome, self.count))
        except Exception as error:
            reply(refusal(change, error))
        finally:
            self.lock.release()

    def read(self, change: Change) -> Batch:
        """Returns the rows and labels of a change as the model takes them."""
        with unnamed():
            return self.living.read(change.rows, *self.labels(change))

    def labels(self, change: Change) -> tuple[Any, list[Any] | None]:
        """Returns the labels of a change as the model takes them, and which of them it does not have."""
        classifier = self.living.classifier
        if classifier is not self.living.model:
            return change.labels, None
        known = label_names(classifier)
        if self.numbers is None or len(self.numbers) < len(known):
            self.numbers = {str(name): j for j, name in reversed(list(enumerate(known)))}
        place = self.numbers
        new = sorted({name for row in change.labels for name in row if name not in place})
        if new and (classifier.label_names_ is None and classifier.classes_.dtype.kind not in "UO"):
            raise RefusedRequest(
                422,
                f"The labels of this model have no names but numbers from 0 to {len(known) - 1}, and not {new[0]!r}.",
            )
        numbers = place | {name: len(known) + j for j, name in enumerate(new)} if new else place
        if classifier._indicator:
            indices = [sorted({numbers[name] for name in row}) for row in change.labels]
            indptr = np.cumsum([0, *map(len, indices)])
            columns = np.array([j for row in indices for j in row], np.int32)
            shape = len(indices), len(known) + len(new)
            return sp.csr_array((np.ones(len(columns), np.float32), columns, indptr), shape), new
        if any(len(row) != 1 for row in change.labels):
            raise RefusedRequest(422, "The model is multiclass: each row has exactly one label.")
        ids = [*known, *new]
        return np.array([ids[numbers[name]] for (name,) in change.labels]), None

    def forget(self, change: Change, reply: Callable[[Reply], None]) -> None:
        """Removes rows, and replies once no file has what only they had."""
        digests = self.living.classifier._living.digests
        rows = len(digests)
        try:
            with unnamed():
                labels, new = self.labels(change)
                if new:
                    raise RefusedRequest(422, f"No row of the model has the label {new[0]!r}. Nothing was changed.")
                outcome = self.living.forget(change.rows, labels)
        except Exception as error:
            if len(digests) != rows:  # the model in memory is neither the old one nor in a file
                raise
            reply(refusal(change, error))
            return
        self.count += 1
        self.unsaved, self.numbers = False, None
        self.publish_file()
        found = {"rows": outcome["rows_removed"], "labels_removed": outcome["labels_removed"]}
        found |= {"features_removed": len(outcome["features_removed"]), "approximate": outcome["approximate"]}
        reply(Reply(change.number, found, self.count))

    def apply(self, batches: list[Batch]) -> None:
        if batches:
            self.living.apply(batches)
            self.unsaved = self.unpublished = True

    def run(self) -> None:
        """Applies and publishes what was accepted, again and again; empties the journal when nothing comes."""
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self.accepted or self.forgets, self.save_after)
                batches, self.accepted = self.accepted, []
                forgets, self.forgets = self.forgets, []
                idle, full = not batches and not forgets, self.living.journal.path.stat().st_size > JOURNAL_BYTES
                if forgets or full or any(batch.names for batch in batches):
                    self.apply(batches)
                    batches = []
                for change, reply in forgets:
                    self.forget(change, reply)
                if self.unsaved and (idle or full):
                    self.living.save()
                    self.unsaved = False
                    self.publish_file()
                count = self.count
                self.lock.notify_all()
            self.apply(batches)
            if self.unpublished:
                self.publish(count)

    # Models

    def publish_file(self) -> None:
        """Publishes the model file as it is, and removes what was published before."""
        file = self.new_file("model.safetensors")
        try:
            os.link(self.living.path, file)
        except OSError:  # on another disk
            shutil.copyfile(self.living.path, file)
        for former in self.folder.glob("*-*"):
            if former != file:
                former.unlink()
        state, V = self.living.classifier._living, self.living.classifier._model.V
        self.V = state.solved if state.solved is not None else getattr(V, "values", None)
        self.unpublished, self.file_labels = False, V.shape[1]
        self.tell(PublishedModel(self.count, str(file)))

    def new_file(self, name: str) -> Path:
        """Returns a file whose name none had before, also of an updater that was killed: workers know files by it."""
        return self.folder / f"{secrets.token_hex(8)}-{name}"

    def publish(self, count: int) -> None:
        """Publishes what updates have changed since the model file was published."""
        assert self.published is not None
        classifier = self.living.classifier
        model, name = classifier.model_, self.published.V
        corrected = isinstance(model.V, CorrectedWeights)
        V = model.V.base.values if corrected else model.V.values
        if V is not self.V:
            name = str(self.new_file("V.npy"))
            np.save(name, V)
            self.V = V
        fields = {field: getattr(model, field) for field in FIELDS}
        added = model.n_labels > self.file_labels
        attributes = {attribute: getattr(classifier, attribute) for attribute in ATTRIBUTES} if added else {}
        former, self.unpublished = self.published.V, False
        correction = (model.V.Z, model.V.E) if corrected else None
        self.tell(PublishedModel(count, self.published.file, name, correction, fields, attributes))
        if former is not None and former != name:
            os.unlink(former)

    def tell(self, model: PublishedModel) -> None:
        with self.news:
            self.published = model
            self.news.notify_all()

    # Workers

    def serve(self, connection: Connection) -> None:
        """Takes the changes of a worker, and sends it each model, or the newest where it is slow."""
        sending, open_ = threading.Lock(), True

        def send(message: Reply | PublishedModel) -> None:
            with sending, suppress(OSError):
                connection.send(message)

        def next_model(sent: PublishedModel | None) -> PublishedModel | None:
            with self.news:
                self.news.wait_for(lambda: self.published is not sent or not open_)
                return self.published if open_ else None

        def push() -> None:
            sent = None
            while (sent := next_model(sent)) is not None:
                send(sent)

        threading.Thread(target=push, name="smoothlink-push", daemon=True).start()
        with suppress(EOFError, OSError):
            while True:
                self.receive(connection.recv(), send)
        open_ = False
        with self.news:
            self.news.notify_all()
        connection.close()


def refusal(change: Change, error: Exception) -> Reply:
    """Returns the reply to a change that was not accepted."""
    if isinstance(error, RefusedRequest):
        return Reply(change.number, None, status=error.status_code, reason=error.detail)
    if isinstance(error, (SmoothLinkError, ValueError)) and not isinstance(error, ModelFileError):
        return Reply(change.number, None, status=422, reason=str(error).replace("\n", " "))
    if isinstance(error, (OSError, ModelFileError)):
        reason = f"The server could not write this change to its disk ({error}). Nothing was changed."
        return Reply(change.number, None, status=507, reason=reason)
    log.error("A change failed.", exc_info=error)
    return Reply(change.number, None, status=500, reason=INTERNAL_ERROR)


def start(updater: Updater) -> list[threading.Thread]:
    """Lets workers connect and changes be applied, in threads; returns those of the workers, as they come."""
    address, workers = updater.folder / SOCKET, list[threading.Thread]()
    address.unlink(missing_ok=True)  # of an updater that was killed
    listener = Listener(str(address), "AF_UNIX", BACKLOG, authkey=bytes(multiprocessing.current_process().authkey))

    def accept() -> None:
        while True:
            with suppress(OSError, EOFError, multiprocessing.AuthenticationError):
                one = threading.Thread(target=updater.serve, args=(listener.accept(),), daemon=True)
                workers.append(one)
                one.start()

    def apply() -> None:
        limit_threads(updater.threads)
        if hasattr(os, "setpriority"):  # of this thread: predictions come first, and so do acknowledgements
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), APPLY_NICENESS)
        try:
            updater.run()
        except BaseException:
            log.exception("The process that updates the model ends, and is started again.")
            os._exit(1)

    threading.Thread(target=accept, name="smoothlink-accept", daemon=True).start()
    threading.Thread(target=apply, name="smoothlink-apply", daemon=True).start()
    return workers


def run_updater(path: str, folder: str, threads: int, control: Connection) -> None:
    """Updates a model until the server, at the other end of `control`, has ended; says first whether it can."""
    for number in ("SIGTERM", "SIGINT", "SIGHUP"):  # they reach all processes, and workers have to finish theirs
        if hasattr(signal, number):
            signal.signal(getattr(signal, number), signal.SIG_IGN)
    limit_threads(threads)
    try:
        updater = Updater(path, Path(folder), threads)
        updater.warm_up()
    except (SmoothLinkError, OSError) as error:
        control.send(str(error))
        sys.exit(1)
    workers = start(updater)

    def end() -> None:
        with updater.lock:  # no file is being written
            os._exit(0)

    def end_after_workers() -> None:
        for one in workers:
            one.join(ORPHANED)
        end()

    when_parent_ends(end_after_workers)
    control.send(None)
    with suppress(EOFError, OSError):
        control.recv()
        end()
    threading.Event().wait()  # the server was killed: until its workers have ended


class UpdaterProcess:
    """The updater as the server sees it: it is started, and started again when it was killed."""

    def __init__(self, path: str, folder: str, threads: int) -> None:
        """Starts it; raises SmoothLinkError where the model cannot be updated."""
        self.arguments, self.stopping = (path, folder, threads), threading.Event()
        self.start()
        failure = self.control.recv()
        if failure is not None:
            self.process.join()
            raise SmoothLinkError(failure)
        threading.Thread(target=self.watch, name="smoothlink-updater", daemon=True).start()

    def start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.control, theirs = spawn.Pipe()
        self.process = spawn.Process(target=run_updater, args=(*self.arguments, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def watch(self) -> None:
        while True:
            self.process.join()
            if self.stopping.is_set():
                return
            code = self.process.exitcode
            log.error("The process that updates the model ended with code %s. It is started again.", code)
            if self.stopping.wait(START_AGAIN):
                return
            self.start()
            with suppress(EOFError, OSError):
                failure = self.control.recv()
                if failure is not None:
                    log.error("%s", failure)

    def stop(self, seconds: float) -> None:
        """Ends it, once the workers have ended; after so many seconds in any way: the journal has all changes."""
        self.stopping.set()
        with suppress(OSError):
            self.control.send(None)
        self.process.join(seconds)
        self.process.kill()
