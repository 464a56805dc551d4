"""Processes that end with the one that started them, even where it was killed and could not end them."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable


def when_parent_ends(act: Callable[[], None]) -> None:
    """Calls `act` in a thread when the process that started this one, by multiprocessing, has ended."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            act()

    threading.Thread(target=wait, name="smoothlink-parent", daemon=True).start()
