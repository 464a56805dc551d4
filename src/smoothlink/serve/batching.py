"""Requests that arrive together are predicted together, and a large one does not hold up the others.

An idle server starts at once. While one batch is predicted, in the one thread that uses the model, the next gathers;
where the last batch held several requests, a busy server also waits a little, so that batches are fewer and larger.
Requests of several pieces, or of one large piece, have a queue of their own; batches of the two queues take turns.
While small requests come, a batch of the other queue is one piece, so that they wait for no more than that.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from smoothlink.serve.schema import RefusedRequest

Request = TypeVar("Request")
Result = TypeVar("Result")


class Piece(NamedTuple, Generic[Request]):
    """A part of a request that is predicted at once, and for how many rows it counts."""

    request: Request
    rows: int


@dataclass
class QueuedRequest(Generic[Request, Result]):
    """A request without a result yet: the pieces that are left, and the results of the first ones."""

    pieces: deque[Piece[Request]]
    client: str | None
    check: Callable[[Result], None]
    done: asyncio.Future[list[Result]]
    count: int  # of all pieces
    results: list[Result] = field(default_factory=list)

    def add(self, result: Result | Exception) -> None:
        """Takes the result of the next piece; an error, or one that `check` raises, is that of the whole request."""
        if self.done.done():
            return
        try:
            if isinstance(result, Exception):
                raise result
            self.check(result)
        except Exception as error:
            self.done.set_exception(error)
            return
        self.results.append(result)
        if len(self.results) == self.count:
            self.done.set_result(self.results)


class Queue(Generic[Request, Result]):
    """Requests in the order of their arrival, and how many rows of each client they count for."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.requests: deque[QueuedRequest[Request, Result]] = deque()
        self.rows: Counter[str | None] = Counter()  # by client

    def check_room(self, rows: int, client: str | None) -> None:
        """Raises RefusedRequest where too many rows wait: of all clients, or half as many of this one."""
        for status, waiting, most, whose in (
            (503, self.rows.total(), self.max_rows, ""),
            (429, self.rows[client], self.max_rows // 2, " of this client"),
        ):
            if waiting and waiting + rows > most:
                reason = f"{waiting} rows{whose} are waiting already. Try again in a second."
                raise RefusedRequest(status, reason, {"Retry-After": "1"})

    def forget(self, client: str | None, rows: int) -> None:
        """Takes rows off the count of those that wait."""
        self.rows[client] -= rows
        if not self.rows[client]:
            del self.rows[client]

    def next_pieces(self, most: int) -> list[tuple[QueuedRequest[Request, Result], Piece[Request]]]:
        """Returns and removes the next pieces whose clients still wait: of `most` rows, or a larger one."""
        found: list[tuple[QueuedRequest[Request, Result], Piece[Request]]] = []
        rows = 0
        while self.requests:
            queued = self.requests[0]
            if queued.done.done():
                self.requests.popleft()
                self.forget(queued.client, sum(piece.rows for piece in queued.pieces))
                continue
            if found and rows + queued.pieces[0].rows > most:
                break
            piece = queued.pieces.popleft()
            self.forget(queued.client, piece.rows)
            if not queued.pieces:
                self.requests.popleft()
            found.append((queued, piece))
            rows += piece.rows
        return found


class Batcher(Generic[Request, Result]):
    """Calls `predict_batch` with pieces of many requests at a time.

    `initializer` is called once in the thread, `on_batch` with the number of pieces before each batch.
    """

    def __init__(
        self,
        predict_batch: Callable[[list[Request]], Sequence[Result | Exception]],
        *,
        batch_rows: int,
        piece_rows: int,
        max_waiting: int,
        wait: float,
        initializer: Callable[[], None] | None = None,
        on_batch: Callable[[int], None] = lambda pieces: None,
    ) -> None:
        self.predict_batch, self.wait = predict_batch, wait
        self.batch_rows, self.piece_rows = batch_rows, piece_rows
        self.on_batch = on_batch
        self.small: Queue[Request, Result] = Queue(max_waiting)
        self.large: Queue[Request, Result] = Queue(max_waiting)
        self.last = self.large
        self.thread = ThreadPoolExecutor(1, "smoothlink", initializer)
        self.second_thread = ThreadPoolExecutor(1, "smoothlink-prepare")
        self.running: asyncio.Task[None] | None = None

    @property
    def rows(self) -> int:
        """How many rows wait."""
        return self.small.rows.total() + self.large.rows.total()

    async def submit(
        self,
        pieces: Sequence[Piece[Request]],
        *,
        client: str | None = None,
        check: Callable[[Result], None] = lambda result: None,
        prepare: Callable[[], Sequence[Piece[Request]]] | None = None,
    ) -> list[Result]:
        """Returns the results of a request's pieces, in order, or raises its first error or that of `check`.

        `prepare` replaces the pieces by others, in a second thread: what takes long and does not use the model.
        """
        rows = sum(piece.rows for piece in pieces)
        queue = self.small if len(pieces) == 1 and rows <= self.piece_rows else self.large
        queue.check_room(rows, client)
        queue.rows[client] += rows
        loop = asyncio.get_running_loop()
        if prepare is not None:
            try:
                pieces = await loop.run_in_executor(self.second_thread, prepare)
                queue.rows[client] += sum(piece.rows for piece in pieces)
            finally:
                queue.forget(client, rows)
        queued: QueuedRequest[Request, Result] = QueuedRequest(
            deque(pieces), client, check, loop.create_future(), len(pieces)
        )
        queue.requests.append(queued)
        if self.running is None:
            self.running = asyncio.create_task(self._run())
        return await queued.done

    async def _run(self) -> None:
        crowded = False
        try:
            while self.small.requests or self.large.requests:
                if crowded and self.rows < self.batch_rows:
                    await asyncio.sleep(self.wait)
                after_small = self.last is self.small
                other = self.large if after_small else self.small
                self.last = other if other.requests else self.last
                takes_turns = after_small and self.last is self.large
                batch = self.last.next_pieces(self.piece_rows if takes_turns else self.batch_rows)
                crowded = len(batch) > 1
                if batch:
                    self.on_batch(len(batch))
                    await self._predict(batch)
        finally:
            self.running = None

    async def _predict(self, batch: list[tuple[QueuedRequest[Request, Result], Piece[Request]]]) -> None:
        """Adds the results of a batch; if it fails as a whole, each piece is tried alone, so that none suffers."""
        requests = [piece.request for _, piece in batch]
        results: Sequence[Result | Exception]
        try:
            results = await asyncio.get_running_loop().run_in_executor(self.thread, self.predict_batch, requests)
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    await self._predict([one])
                return
            results = [error]
        for (queued, _), result in zip(batch, results, strict=True):
            queued.add(result)
