"""Requests that come together are answered together.

An idle server starts at once. While one batch is answered, in the one thread that asks the model, the next one gathers;
where the last batch had company, a busy server also waits a little, so that fewer and larger batches are made.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from smoothlink.serve.http_errors import Refused

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Anything = TypeVar("Anything")


class Waiting(NamedTuple, Generic[Question, Answer]):
    """A question that has no answer yet."""

    question: Question
    rows: int
    answer: asyncio.Future[Answer]


class Batcher(Generic[Question, Answer]):
    """Puts questions to `answer_all`, many at a time."""

    def __init__(
        self,
        answer_all: Callable[[list[Question]], Sequence[Answer | Exception]],
        *,
        batch_rows: int,
        max_waiting: int,
        wait: float,
        begin: Callable[[], None] | None = None,
        notify: Callable[[int, int], None] = lambda questions, rows: None,
    ) -> None:
        self.answer_all, self.batch_rows, self.max_waiting, self.wait = answer_all, batch_rows, max_waiting, wait
        self.notify = notify
        self.queue: deque[Waiting[Question, Answer]] = deque()
        self.rows = 0  # in the queue
        self.thread = ThreadPoolExecutor(1, "smoothlink", begin)
        self.running: asyncio.Task[None] | None = None

    async def ask(self, question: Question, rows: int) -> Answer:
        """The answer, or the error that this question earned."""
        if self.rows + rows > self.max_waiting and self.queue:
            raise Refused(503, f"{self.rows} rows are waiting already. Try again in a second.", {"Retry-After": "1"})
        waiting = Waiting(question, rows, asyncio.get_running_loop().create_future())
        self.queue.append(waiting)
        self.rows += rows
        if self.running is None:
            self.running = asyncio.create_task(self._run())
        return await waiting.answer

    async def aside(self, work: Callable[[], Anything]) -> Anything:
        """Other work for the thread that asks the model."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, work)

    def close(self) -> None:
        """Ends the thread after what it has begun."""
        self.thread.shutdown()

    async def _run(self) -> None:
        crowded = False
        try:
            while self.queue:
                if crowded and self.rows < self.batch_rows:
                    await asyncio.sleep(self.wait)
                batch = self._take()
                crowded = len(batch) > 1
                if batch:
                    await self._answer(batch)
        finally:
            self.running = None

    def _take(self) -> list[Waiting[Question, Answer]]:
        """The next questions whose askers still wait, as many as make a batch."""
        batch: list[Waiting[Question, Answer]] = []
        rows = 0
        while self.queue and (not batch or rows + self.queue[0].rows <= self.batch_rows):
            waiting = self.queue.popleft()
            self.rows -= waiting.rows
            if not waiting.answer.done():
                batch.append(waiting)
                rows += waiting.rows
        self.notify(len(batch), rows)
        return batch

    async def _answer(self, batch: list[Waiting[Question, Answer]]) -> None:
        """Answers a batch; if it fails as a whole, each question alone, so that none suffers for another."""
        try:
            said = await self.aside(lambda: self.answer_all([waiting.question for waiting in batch]))
        except Exception as error:
            if len(batch) > 1:
                for waiting in batch:
                    await self._answer([waiting])
                return
            said = [error]
        for waiting, answer in zip(batch, said, strict=True):
            if waiting.answer.done():
                continue
            if isinstance(answer, Exception):
                waiting.answer.set_exception(answer)
            else:
                waiting.answer.set_result(answer)
