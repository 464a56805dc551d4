"""Where arrays are and products are made: the host (NumPy and numba), or a device (torch).

A device is asked for by name, and only then is torch imported.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from smoothlink.errors import DeviceError
from smoothlink.machines.arrays import Array, copy_to_device
from smoothlink.machines.matrices import matrix

BLOCK_ROWS = 65536  # of X that are seen together on the host
HOST_COLUMNS = 64  # that conjugate gradients advance together there: what the kernels like best
SCORE_BYTES = 256 << 20  # of scores looked at together there
WIDE = 1024  # columns that a block of rows on a device is made for
MOST_ENTRIES = 1 << 30  # of a sparse block: its indices have 32 bits
LEAST_SHARE = 2.0**-8  # of the memory that is free: below it there is no use in trying smaller blocks
NAMES = "'cpu' (NumPy), 'auto', 'cuda', 'cuda:1' and so on, and 'torch' (torch on the processor)"


class Rates(NamedTuple):
    """Operations a second, for the choice of a solver: only ratios matter."""

    factor: float  # Cholesky factors and solves, float64
    dense: float  # float32 matrix products
    panel: float  # products with sparse X and X'
    pair: float | None  # pairs of non-zeros in a sparse Gram matrix; None: it is made of dense rows
    kernel: float  # non-zeros times rows in a sparse kernel matrix
    vector: float  # numbers in the (d, m) arrays of an iteration


class Host:
    """NumPy and numba."""

    name = "cpu"
    # Of two cores (decision 0009); those of dense products and of vectors are estimates. A sparse Gram matrix jumps
    # about in memory: a pair of non-zeros costs as much as 200 dense operations.
    rates = Rates(factor=40e9, dense=120e9, panel=9.6e9, pair=0.5e9, kernel=1.2e9, vector=1e9)
    peak_mb: float | None = None  # of a device's memory
    speed = 1.0  # how many times faster than two cores large products are
    half = False  # whether products of halves are fast

    def __repr__(self) -> str:
        return self.name

    def place(self, A: Any) -> Any:
        return A

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return np.zeros(shape, dtype)

    def matrix(self, A: Any) -> Any:
        return matrix(A)

    def block_rows(self, n: int, entries: int) -> int:
        return BLOCK_ROWS

    def columns(self, d: int) -> int:
        """That conjugate gradients advance together."""
        return HOST_COLUMNS

    def room(self) -> int | None:
        """Bytes that blocks of X may take here; None: no limit."""
        return None

    def scores(self) -> int:
        """Bytes of scores that are looked at together."""
        return SCORE_BYTES

    def smaller(self) -> None:
        """The host has no smaller blocks to offer."""
        return


HOST = Host()


@dataclass(frozen=True, repr=False)
class Device:
    """A device of torch. Sizes of blocks go by the memory that was free when it was asked for."""

    name: str  # as torch says it
    free: int  # bytes
    share: float = 1.0  # of them that is counted on: less after a fit ran out of memory

    # Estimates for one H200, from its data sheet and a few probes: they choose a solver and nothing else.
    rates = Rates(factor=20e12, dense=40e12, panel=1.5e12, pair=None, kernel=1e12, vector=4e11)

    def __repr__(self) -> str:
        return "torch" if self.name == "cpu" else self.name

    @property
    def speed(self) -> float:
        return 200.0 if self.half else 1.0

    @property
    def peak_mb(self) -> float | None:
        """The most memory of a card that was held since it was asked for."""
        if not self.half:
            return None
        import torch

        return float(torch.cuda.max_memory_allocated(self.name)) / (1 << 20)

    @property
    def half(self) -> bool:
        """Halves are for the matrix units of a card; some processors crash at their products."""
        return self.name.startswith("cuda")

    @property
    def bytes(self) -> int:
        return int(self.free * self.share)

    def place(self, A: Any) -> Any:
        """Arrays of the host, alone or in named tuples, on the device; anything else as it is."""
        if isinstance(A, np.ndarray):
            return copy_to_device(A, self.name)
        if isinstance(A, tuple) and hasattr(A, "_fields"):
            return type(A)(*map(self.place, A))
        return A

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        import torch

        kinds = {np.float32: torch.float32, np.float64: torch.float64}
        return torch.zeros(shape, dtype=kinds[dtype], device=self.name)

    def matrix(self, A: Any) -> Any:
        from smoothlink.machines.device_matrices import tensor_matrix

        return tensor_matrix(A, self.name)

    def block_rows(self, n: int, entries: int) -> int:
        """All, or so many that some (b, 1024) arrays of them take an eighth of the memory."""
        few = MOST_ENTRIES * n // max(1, entries)
        return max(1024, min(self.bytes // (8 * 4 * WIDE), few))

    def columns(self, d: int) -> int:
        """So many that eight (d, g) arrays take half of the memory."""
        return max(8, self.bytes // (2 * 8 * 4 * max(1, d)) // 8 * 8)

    def room(self) -> int:
        return self.bytes // 4

    def scores(self) -> int:
        return max(1 << 20, self.bytes // 8)

    def smaller(self) -> Device | None:
        """The same with a quarter of the memory counted on; None where that is no use any more."""
        share = self.share / 4
        return Device(self.name, self.free, share) if share >= LEAST_SHARE else None


Machine = Host | Device
Result = TypeVar("Result")


def find_machine(name: Any) -> Machine:
    """The machine of this name; an error says what is possible."""
    if isinstance(name, Host | Device):
        return name
    if not isinstance(name, str) or not (name in ("cpu", "auto", "torch") or name.split(":")[0] == "cuda"):
        raise ValueError(f"device is {name!r}; possible are {NAMES}.")
    if name == "cpu":
        return HOST
    try:
        import torch
    except ImportError:
        if name == "auto":
            return HOST
        raise DeviceError(
            f"device is {name!r}, and torch is not installed.\npip install 'smoothlink[gpu]', or leave device 'cpu'."
        ) from None
    if name == "torch":
        return Device("cpu", host_memory() // 2)
    if not torch.cuda.is_available():
        if name == "auto":
            return HOST
        raise DeviceError(
            f"device is {name!r}, and torch {torch.__version__} sees no CUDA device here.\n"
            "Look at nvidia-smi and at the build of torch, or leave device 'cpu'."
        )
    return cuda(name)


def cuda(name: str) -> Device:
    """A card by name: 'auto' and 'cuda' are the current one."""
    import torch

    count = torch.cuda.device_count()
    number = name.partition(":")[2] if name != "auto" else ""
    if number and not (number.isdecimal() and int(number) < count):
        raise DeviceError(f"device is {name!r}; the cards here are 'cuda:0' to 'cuda:{count - 1}'.")
    full = f"cuda:{int(number) if number else torch.cuda.current_device()}"
    torch.cuda.reset_peak_memory_stats(full)
    idle = torch.cuda.memory_reserved(full) - torch.cuda.memory_allocated(full)  # kept by torch for what comes next
    return Device(full, int(torch.cuda.mem_get_info(full)[0]) + idle)


def host_memory() -> int:
    """Bytes of memory that the host has; 8 GB where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 << 30


def out_of_memory(error: BaseException) -> bool:
    """Whether a device had no room left."""
    return type(error).__name__ == "OutOfMemoryError"


def release_memory(machine: Machine) -> None:
    """Gives the memory back that a device's library keeps for what comes next."""
    gc.collect()
    if machine.half:
        import torch

        torch.cuda.empty_cache()


def retry_with_smaller_blocks(
    machine: Machine, work: Callable[[Machine], Result], failure: str, note: Callable[[str], None] | None = None
) -> Result:
    """Returns work(machine); where the device runs out of memory, the work is done again with smaller blocks.

    Raises a DeviceError with the message `failure` where no blocks are small enough.
    """
    while True:
        try:
            return work(machine)
        except Exception as error:
            if not out_of_memory(error):
                raise
        release_memory(machine)  # outside of the handler: the error held what filled the memory
        smaller = machine.smaller()
        if smaller is None:
            raise DeviceError(failure)
        machine = smaller
        if note is not None:
            note(f"{machine} ran out of memory: beginning again with smaller blocks.")
