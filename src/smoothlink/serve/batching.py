"""Requests that arrive together are predicted together.

An idle server starts at once. While one batch is predicted, in the one thread that uses the model, the next gathers;
where the last batch held several requests, a busy server also waits a little, so that batches are fewer and larger.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from smoothlink.serve.schema import RefusedRequest

Request = TypeVar("Request")
Result = TypeVar("Result")


class QueuedRequest(NamedTuple, Generic[Request, Result]):
    """A request without a result yet."""

    request: Request
    rows: int
    result: asyncio.Future[Result]


class Batcher(Generic[Request, Result]):
    """Calls `predict_batch` with many requests at a time.

    `initializer` is called once in the thread, `on_batch` with the numbers of requests and rows before each batch.
    """

    def __init__(
        self,
        predict_batch: Callable[[list[Request]], Sequence[Result | Exception]],
        *,
        batch_rows: int,
        max_waiting: int,
        wait: float,
        initializer: Callable[[], None] | None = None,
        on_batch: Callable[[int, int], None] = lambda requests, rows: None,
    ) -> None:
        self.predict_batch, self.batch_rows, self.max_waiting, self.wait = predict_batch, batch_rows, max_waiting, wait
        self.on_batch = on_batch
        self.queue: deque[QueuedRequest[Request, Result]] = deque()
        self.rows = 0  # in the queue
        self.thread = ThreadPoolExecutor(1, "smoothlink", initializer)
        self.running: asyncio.Task[None] | None = None

    async def submit(self, request: Request, rows: int) -> Result:
        """Returns the result of a request, or raises its error."""
        if self.rows + rows > self.max_waiting and self.queue:
            reason = f"{self.rows} rows are waiting already. Try again in a second."
            raise RefusedRequest(503, reason, {"Retry-After": "1"})
        queued = QueuedRequest(request, rows, asyncio.get_running_loop().create_future())
        self.queue.append(queued)
        self.rows += rows
        if self.running is None:
            self.running = asyncio.create_task(self._run())
        return await queued.result

    async def _run(self) -> None:
        crowded = False
        try:
            while self.queue:
                if crowded and self.rows < self.batch_rows:
                    await asyncio.sleep(self.wait)
                batch = self._next_batch()
                crowded = len(batch) > 1
                if batch:
                    await self._predict(batch)
        finally:
            self.running = None

    def _next_batch(self) -> list[QueuedRequest[Request, Result]]:
        """Returns the next requests whose clients still wait, as many as make a batch."""
        batch: list[QueuedRequest[Request, Result]] = []
        rows = 0
        while self.queue and (not batch or rows + self.queue[0].rows <= self.batch_rows):
            queued = self.queue.popleft()
            self.rows -= queued.rows
            if not queued.result.done():
                batch.append(queued)
                rows += queued.rows
        if batch:
            self.on_batch(len(batch), rows)
        return batch

    async def _predict(self, batch: list[QueuedRequest[Request, Result]]) -> None:
        """Sets the results of a batch; if it fails as a whole, each request is tried alone, so that none suffers."""
        requests = [queued.request for queued in batch]
        results: Sequence[Result | Exception]
        try:
            results = await asyncio.get_running_loop().run_in_executor(self.thread, self.predict_batch, requests)
        except Exception as error:
            if len(batch) > 1:
                for queued in batch:
                    await self._predict([queued])
                return
            results = [error]
        for queued, result in zip(batch, results, strict=True):
            if queued.result.done():
                continue
            if isinstance(result, Exception):
                queued.result.set_exception(result)
            else:
                queued.result.set_result(result)
