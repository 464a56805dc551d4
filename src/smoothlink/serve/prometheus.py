"""Counts for Prometheus, in memory that all worker processes share: whichever is asked, it tells of all.

Each process adds to a row of its own, so no lock is needed and none can stay locked by a process that was killed.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterator
from itertools import product
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

PATHS = ("/predict", "/explain", "/labels", "/model", "/health", "/metrics", "/", "other")
STATUSES = (200, 304, 400, 401, 404, 405, 408, 413, 415, 422, 499, 500, 503, 504, 0)  # 0: any other
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TIMED = ("/predict", "/explain", "/labels")
ROWS = 1024  # processes that are started together have numbers next to each other, and so rows of their own


class Layout:
    """Where each number is kept."""

    def __init__(self) -> None:
        self.names: dict[Any, int] = {}
        for key in product(("requests",), PATHS, STATUSES):
            self.names[key] = len(self.names)
        for path in TIMED:
            self.histogram(("seconds", path), len(SECONDS))
        self.histogram(("batch",), len(SIZES))
        for name in ("rows", "waiting"):
            self.names[name] = len(self.names)

    def histogram(self, name: tuple[str, ...], bounds: int) -> None:
        for part in (*range(bounds + 1), "sum"):
            self.names[*name, part] = len(self.names)


LAYOUT = Layout()


class Shared:
    """The numbers of all processes. Made by the first one and handed to those it starts."""

    def __init__(self, rows: int = ROWS) -> None:
        self.rows = rows
        self.memory = get_context("spawn").RawArray("d", rows * len(LAYOUT.names))
        self.since = time.time()

    def numbers(self) -> NDArray[np.float64]:
        """A row for each process."""
        return np.frombuffer(self.memory).reshape(self.rows, len(LAYOUT.names))


class Metrics:
    """What one process counts, and what all have counted."""

    def __init__(self, info: dict[str, str], shared: Shared | None = None) -> None:
        self.info = info
        self.shared = shared or Shared(1)
        self.start = os.getpid() % self.shared.rows * len(LAYOUT.names)
        self.numbers = self.shared.memory
        self.set("waiting", 0)

    def add(self, name: Any, amount: float = 1) -> None:
        self.numbers[self.start + LAYOUT.names[name]] += amount

    def set(self, name: Any, value: float) -> None:
        self.numbers[self.start + LAYOUT.names[name]] = value

    def request(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self.add(("requests", path if path in PATHS else "other", status if status in STATUSES else 0))
        if path in TIMED:
            self.add(("seconds", path, bisect_left(SECONDS, seconds)))
            self.add(("seconds", path, "sum"), seconds)

    def batch(self, questions: int, rows: int, waiting: int) -> None:
        """A batch was begun, and so many rows still wait."""
        self.set("waiting", waiting)
        self.add(("batch", bisect_left(SIZES, questions)))
        self.add(("batch", "sum"), questions)
        self.add("rows", rows)

    def total(self, name: Any) -> float:
        """The sum over all processes."""
        return float(self.shared.numbers()[:, LAYOUT.names[name]].sum())

    def text(self) -> str:
        """In Prometheus's format."""
        return "".join(f"{line}\n" for line in self.lines())

    def lines(self) -> Iterator[str]:
        yield from head("smoothlink_model_info", "gauge", "What is served.")
        yield f"smoothlink_model_info{labels(**self.info)} 1"
        yield from head("smoothlink_start_time_seconds", "gauge", "When the server was started, in Unix time.")
        yield f"smoothlink_start_time_seconds {self.shared.since:.3f}"
        yield from head("smoothlink_requests_total", "counter", "Requests by path and status.")
        for path, status in product(PATHS, STATUSES):
            count = self.total(("requests", path, status))
            if count:
                shown = labels(path=path, status=str(status or "other"))
                yield f"smoothlink_requests_total{shown} {count:.0f}"
        yield from head("smoothlink_rows_total", "counter", "Texts and vectors that were answered.")
        yield f"smoothlink_rows_total {self.total('rows'):.0f}"
        yield from head("smoothlink_waiting_rows", "gauge", "Texts and vectors that wait to be answered.")
        yield f"smoothlink_waiting_rows {self.total('waiting'):.0f}"
        name = "smoothlink_request_seconds"
        yield from head(name, "histogram", "Seconds from the head of a request to the end of its answer.")
        for path in TIMED:
            yield from self.histogram(name, ("seconds", path), SECONDS, path=path)
        name = "smoothlink_batch_requests"
        yield from head(name, "histogram", "Requests that were answered together.")
        yield from self.histogram(name, ("batch",), SIZES)

    def histogram(self, name: str, key: tuple[str, ...], bounds: tuple[float, ...], **told: str) -> Iterator[str]:
        count = 0.0
        for i, bound in enumerate((*bounds, "+Inf")):
            count += self.total((*key, i))
            yield f"{name}_bucket{labels(**told, le=str(bound))} {count:.0f}"
        yield f"{name}_sum{labels(**told)} {self.total((*key, 'sum')):.6f}"
        yield f"{name}_count{labels(**told)} {count:.0f}"


def head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def labels(**told: str) -> str:
    """{path="/predict",status="200"}"""
    if not told:
        return ""
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, value in told.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
