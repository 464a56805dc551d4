"""Several processes that do the same until a signal comes. One that is killed is started again."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from smoothlink.errors import SmoothLinkError

SHORT = 5.0  # seconds: a process that is killed before them would be so again


def supervise(count: int, target: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Runs target(*args) in `count` processes; SIGTERM and SIGINT end them in good order."""
    stop = threading.Event()
    former = {name: signal.signal(name, lambda *_: stop.set()) for name in (signal.SIGTERM, signal.SIGINT)}
    started: dict[BaseProcess, float] = {}

    def start() -> None:
        process = get_context("spawn").Process(target=target, args=args)
        process.start()
        started[process] = time.monotonic()

    try:
        for _ in range(count):
            start()
        while not stop.is_set():
            wait([process.sentinel for process in started], timeout=0.2)
            for process in [process for process in started if not process.is_alive()]:
                if stop.is_set():
                    break
                lived, code = time.monotonic() - started.pop(process), process.exitcode or 0
                if code > 0 or lived < SHORT:
                    raise SmoothLinkError(f"A process of the server ended with code {code}: all are stopped.")
                start()
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join()
        for name, handler in former.items():
            signal.signal(name, handler)
