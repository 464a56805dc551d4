"""What goes at a time in a fit, and what is in files; without a memory budget everything goes at once."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from smoothlink.machines.machine import BLOCK_ROWS

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SEARCH_ROWS = 20_000
SEES_X = ("choose", "embed")  # the stages that look at X
LARGEST_RANK = 512  # that a fit within a budget considers where the rank is not a number


@dataclass(frozen=True)
class Plan:
    """Sizes of parts; those of a fit without a budget are the defaults."""

    memory: int | None = None  # bytes that were promised
    block_rows: int = BLOCK_ROWS
    columns: int | None = None  # that conjugate gradients advance together; None: as the solver says
    kept: int | None = None  # bytes of X that may stay in memory once read; None: all of X is there
    embedding_in_file: bool = False  # whether h (n, k) is in a file
    label_group: int | None = None  # labels whose Phi'Y is summed at a time, and then in a file; None: all, in memory
    search_rows: int = SEARCH_ROWS
    judged_rows: int | None = None  # held-out rows that are looked at; None: all
    pairs: int | None = None  # scores of held-out rows at a time; None: as many as judge.py says
    factors: bool = True  # whether solver "auto" may factor X'X or XX'
    descent: bool = True  # whether loss "auto" may try the logistic or softmax loss
    needs: dict[str, int] | None = None  # bytes by stage, as expected, without X
    inputs: int = 0  # bytes of X in memory, as expected, as far as it stays there
    whole: bool = True  # whether all of it stays
    disk: int = 0  # bytes of files, as expected

    def told(self) -> dict[str, Any] | None:
        """For the summary: numbers a model file can keep; nothing where nothing was planned."""
        return None if self.memory is None else asdict(self) | {"expected": self.expected}

    @property
    def peak(self) -> tuple[str, int]:
        """The stage that needs most, and its bytes, X included where it is looked at."""
        found = {stage: need + (stage in SEES_X) * self.inputs for stage, need in (self.needs or {"fit": 0}).items()}
        stage = max(found, key=lambda name: found[name])
        return stage, found[stage]

    @property
    def expected(self) -> int:
        """Bytes at the worst moment."""
        return self.peak[1]

    def __str__(self) -> str:
        """For people."""
        stage, expected = self.peak
        parts = [f"{'X' if self.whole else size(self.inputs) + ' of X'} stays in memory"]
        parts.append(f"blocks have {self.block_rows:,} rows")
        if self.columns:
            parts.append(f"solves go {self.columns} columns at a time")
        if self.label_group:
            parts.append(f"V goes {self.label_group:,} labels at a time")
        if self.disk:
            parts.append(f"files take {size(self.disk)}")
        total = size(self.memory or 0)
        return f"Memory: {size(expected)} of {total} expected, most to {stage}; {', '.join(parts)}."


def parse_memory(value: Any) -> int | None:
    """ "4G", "500M" or a number of bytes -> bytes."""
    if value is None:
        return None
    found = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*([KMGT]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
    if isinstance(value, bool) or not found or float(found[1]) * UNITS[found[2].upper()] < 1:
        raise ValueError(f"memory is {value!r}; possible are None, a number of bytes, and text such as '4G' or '500M'.")
    return int(float(found[1]) * UNITS[found[2].upper()])


def size(count: float) -> str:
    """Bytes as `parse_memory` reads them."""
    return f"{count / UNITS['G']:.2f}G" if count >= UNITS["G"] else f"{count / UNITS['M']:.0f}M"
