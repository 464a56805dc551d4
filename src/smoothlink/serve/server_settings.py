"""What a server allows, in one place: the command line shows these defaults, the OpenAPI description states them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """The limits of a server."""

    token: str | None = field(default=None, repr=False)  # what requests must bring; None: nothing
    max_body: int = 1 << 20  # bytes of a request
    max_rows: int = 1000  # texts or vectors of a request
    max_labels: int = 1000  # labels of an answer to one text
    max_answers: int = 100_000  # labels of an answer to a request
    max_waiting: int = 10_000  # rows that wait to be answered; more requests are sent away
    batch_rows: int = 256  # rows that are answered together
    batch_wait: float = 0.002  # seconds that a busy server waits for more of them
    timeout: float = 10.0  # seconds until a request is given up
    threads: int | None = None  # that a product may take; None: all
    in_memory: int = 1 << 30  # bytes of the model's copies, one in each process, up to which it is not mapped
    reload: bool = False  # whether a changed model file is loaded
