"""What workers send to the one process that updates the model, and how they follow its changes."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.data.matching import inside
from smoothlink.device_model import DeviceCopy
from smoothlink.errors import SmoothLinkError
from smoothlink.living.low_rank import CorrectedWeights, share_codes
from smoothlink.model import Model
from smoothlink.serve.schema import RefusedRequest
from smoothlink.weights import ArrayWeights

Array = NDArray[Any]

SOCKET = "updater"  # its name in the folder that the processes of a server share
RETRY = 0.1  # seconds until a worker tries again to reach the updater
FIRST_MODEL = 600  # seconds in which the updater has loaded the model and its sums
UPDATE, FORGET = "update", "forget"
AWAY = "The process that updates the model has just ended, and is started again. Try again in a second."
MAYBE = (
    "The process that updates the model ended before it acknowledged this request, which may have been taken or not. "
    "It is started again."
)


class Change(NamedTuple):
    """A request of a worker: rows to add or to remove."""

    number: int  # by which the worker knows the reply
    kind: str
    rows: Any  # texts, or X (n, d)
    labels: list[list[str]]


class Reply(NamedTuple):
    """What became of a change: the report, or a status and a reason."""

    number: int
    outcome: dict[str, Any] | None
    changes: int = 0  # accepted so far, this one included: a published model with as many has it
    status: int = 0
    reason: str = ""


class PublishedModel(NamedTuple):
    """The model as it is now: a file, and what updates have changed since it was written."""

    changes: int  # that are in it
    file: str  # a model file that stays as it is
    V: str | None = None  # a file of V (s + 1, c) in float32; None: the model file has it
    correction: tuple[Array, Array] | None = None  # Z (s + 1, r) and E (r, c), which V is corrected by
    fields: dict[str, Any] | None = None  # of Model; None: nothing has changed
    attributes: dict[str, Any] | None = None  # of the classifier


def connect(folder: str) -> Connection:
    """Returns a connection to the updater of this server."""
    return Client(str(Path(folder) / SOCKET), "AF_UNIX", authkey=bytes(multiprocessing.current_process().authkey))


def set_result(done: asyncio.Future[Reply], reply: Reply) -> None:
    """Sets the result of a request whose client may have left."""
    if not done.done():
        done.set_result(reply)


class UpdateClient:
    """The updater as a worker sees it. `follow` calls a function with each new model, `send` returns what becomes of a
    change. One thread receives, another makes models, the newest only; both go on when the updater is started anew."""

    def __init__(self, folder: str, load: Callable[[str], Any]) -> None:
        self.folder, self.load = folder, load  # a file -> a model
        self.use: Callable[[Any], None] = lambda model: None
        self.seen: Callable[[float], None] = lambda seconds: None  # called when a change is visible here
        self.connection: Connection | None = None
        self.sending = threading.Lock()
        self.replies: dict[int, asyncio.Future[Reply]] = {}
        self.unseen: list[tuple[int, float]] = []  # the count and the time of changes that are not visible here yet
        self.number = 0
        self.published: PublishedModel | None = None
        self.news = threading.Condition()
        self.base: tuple[str, Any] = "", None  # a model file and its model
        self.coded: tuple[tuple[str, str | None], Model] | None = None  # files, and the model whose V has codes
        threading.Thread(target=self._receive, name="smoothlink-updates", daemon=True).start()
        with self.news:
            if not self.news.wait_for(lambda: self.published is not None, FIRST_MODEL):
                raise SmoothLinkError("The process that updates the model does not respond.")
        self.model = self._newest()

    def follow(self, use: Callable[[Any], None], seen: Callable[[float], None]) -> None:
        """Calls `use` with each model from now on, and `seen` with the seconds until a change was visible here."""
        self.use, self.seen = use, seen
        threading.Thread(target=self._follow, name="smoothlink-models", daemon=True).start()

    async def send(self, kind: str, rows: Any, labels: list[list[str]]) -> dict[str, Any]:
        """Returns the report of a change that the updater acknowledged; else raises RefusedRequest."""
        loop, began = asyncio.get_running_loop(), time.perf_counter()
        self.number += 1
        number, done = self.number, loop.create_future()
        self.replies[number] = done
        try:
            await loop.run_in_executor(None, self._send, Change(number, kind, rows, labels))
            reply: Reply = await done
        finally:
            self.replies.pop(number, None)
        if reply.outcome is None:
            raise RefusedRequest(reply.status, reply.reason, {"Retry-After": "1"} if reply.status == 503 else None)
        self.unseen.append((reply.changes, began))
        with self.news:
            self.news.notify_all()  # the model that has it may be here already
        return reply.outcome

    def _send(self, change: Change) -> None:
        with self.sending:
            if self.connection is None:
                raise RefusedRequest(503, AWAY, {"Retry-After": "1"})
            try:
                self.connection.send(change)
            except OSError as error:
                raise RefusedRequest(503, MAYBE, {"Retry-After": "1"}) from error

    def _receive(self) -> None:
        while True:
            with suppress(OSError, EOFError, multiprocessing.AuthenticationError):
                self.connection = connect(self.folder)
                while True:
                    message = self.connection.recv()
                    if isinstance(message, Reply):
                        self._resolve(message)
                    else:
                        with self.news:
                            self.published = message
                            self.news.notify_all()
            self.connection = None
            self.unseen.clear()
            for number in list(self.replies):
                self._resolve(Reply(number, None, status=503, reason=MAYBE))
            time.sleep(RETRY)

    def _resolve(self, reply: Reply) -> None:
        done = self.replies.get(reply.number)
        if done is not None:
            with suppress(RuntimeError):  # the loop has ended, since the server has
                done.get_loop().call_soon_threadsafe(set_result, done, reply)

    def _follow(self) -> None:
        used = self.published
        while True:
            newest = self._wait(used)
            if newest is not used:
                try:
                    self.model = self._newest()
                except (OSError, SmoothLinkError):  # a newer one has replaced its file
                    time.sleep(RETRY)
                    continue
                try:
                    self.use(self.model)
                except RuntimeError:  # the server has ended, with the thread that predicts
                    return
                used = newest
            self._count_visible(used)

    def _wait(self, used: PublishedModel | None) -> PublishedModel | None:
        """Returns the newest model once there is another, or a change turns out to be in the one that is used."""
        with self.news:
            self.news.wait_for(lambda: self.published is not used or self._is_visible(used))
            return self.published

    def _is_visible(self, used: PublishedModel | None) -> bool:
        return used is not None and any(count <= used.changes for count, _ in list(self.unseen))

    def _count_visible(self, used: PublishedModel | None) -> None:
        now = time.perf_counter()
        for one in list(self.unseen):
            if used is not None and one[0] <= used.changes:
                self.unseen.remove(one)
                self.seen(now - one[1])

    def _newest(self) -> Any:
        """Returns the model that was published last, ready to be used."""
        found = self.published
        assert found is not None
        if self.base[0] != found.file:
            self.base = found.file, self.load(found.file)
        model = self.base[1]
        if found.fields is not None and found.attributes is not None:
            model = copy.copy(model)
            classifier = inside(model)
            if classifier is not model:
                model.classifier_ = classifier = copy.copy(classifier)
            for name, value in {**found.attributes, "_device_copy": DeviceCopy()}.items():
                setattr(classifier, name, value)
            V = classifier._model.V if found.V is None else ArrayWeights(np.load(found.V, mmap_mode="r"))
            classifier.model_ = replace(classifier._model, V=V, **found.fields)
        own, of = inside(model)._model, (found.file, found.V)
        if self.coded is None or self.coded[0] != of:
            own.candidate_search.prepare()
            self.coded = of, own
        if found.correction is not None:
            inside(model).model_ = corrected = replace(own, V=CorrectedWeights(own.V, *found.correction))
            share_codes(corrected, self.coded[1])
        return model
