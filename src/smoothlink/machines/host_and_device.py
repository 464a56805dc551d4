"""The machines: the host (NumPy and numba) and devices (torch), with the sizes of blocks that suit each.

torch is imported only when a device is named.
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

BLOCK_ROWS = 65536  # of X in a block on the host
HOST_COLUMNS = 64  # that conjugate gradients advance together there: what the kernels like best
SCORE_BYTES = 256 << 20  # of scores in memory together there
BLOCK_COLUMNS = 1024  # for which blocks of rows on a device are sized
MOST_ENTRIES = 1 << 30  # of a sparse block, whose indices have 32 bits
LEAST_MEMORY_SHARE = 2.0**-8  # of the memory that is free: below it smaller blocks do not help
FRACTION = "get_per_process_memory_fraction"  # of torch.cuda, from 2.8 on: what a process may take of a GPU
DEVICE_NAMES = "'cpu' (NumPy), 'auto', 'cuda', 'cuda:1' and so on, and 'torch' (torch on the processor)"


class Speeds(NamedTuple):
    """Operations per second, for the choice of a solver: only ratios matter."""

    factor: float  # Cholesky factors and solves, float64
    dense: float  # float32 matrix products
    panel: float  # products with sparse X and X'
    pair: float | None  # pairs of non-zeros in a sparse Gram matrix; None: it is made of dense rows
    kernel: float  # non-zeros times rows in a sparse kernel matrix
    vector: float  # numbers in the (d, m) arrays of an iteration


class Host:
    """NumPy and numba."""

    name = "cpu"
    # Measured on two cores (decision 0009); dense products and vectors are estimates. A sparse Gram matrix jumps about
    # in memory: a pair of non-zeros costs as much as 200 dense operations.
    speeds = Speeds(factor=40e9, dense=120e9, panel=9.6e9, pair=0.5e9, kernel=1.2e9, vector=1e9)
    peak_mb: float | None = None  # the most memory of a device that was held
    speed = 1.0  # how many times faster than two cores large products are
    half = False  # whether half-precision products are fast

    def __repr__(self) -> str:
        return self.name

    def to_device(self, A: Any) -> Any:
        """Returns A, which is where it belongs."""
        return A

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return np.zeros(shape, dtype)

    def matrix(self, A: Any) -> Any:
        return matrix(A)

    def block_rows(self, n: int, entries: int) -> int:
        return BLOCK_ROWS

    def columns(self, d: int) -> int:
        """Returns how many columns conjugate gradients advance together."""
        return HOST_COLUMNS

    def block_bytes(self) -> int | None:
        """Returns the bytes that blocks of X may take here; None: no limit."""
        return None

    def keeps(self, size: int) -> bool:
        """Returns whether an array of so many bytes may stay here while others are used."""
        return True

    def scores(self) -> int:
        """Returns the bytes that scores of some rows and labels may take."""
        return SCORE_BYTES

    def smaller(self) -> None:
        """Returns None: the host has no smaller blocks."""
        return


HOST = Host()


@dataclass(frozen=True, repr=False)
class Device:
    """A device of torch. Sizes of blocks depend on the memory that was free when it was found."""

    name: str  # in torch
    free: int  # bytes
    share: float = 1.0  # of them that blocks are sized by: less after a fit ran out of memory

    # Estimates for one H200, from its data sheet and a few probes: they choose a solver and nothing else.
    speeds = Speeds(factor=20e12, dense=40e12, panel=1.5e12, pair=None, kernel=1e12, vector=4e11)

    def __repr__(self) -> str:
        return "torch" if self.name == "cpu" else self.name

    @property
    def speed(self) -> float:
        return 200.0 if self.half else 1.0

    @property
    def peak_mb(self) -> float | None:
        """Returns the most memory of a GPU that was held since it was found."""
        if not self.half:
            return None
        import torch

        return float(torch.cuda.max_memory_allocated(self.name)) / (1 << 20)

    @property
    def half(self) -> bool:
        """Returns whether half-precision products are fast: on a GPU. Some processors crash at them."""
        return self.name.startswith("cuda")

    @property
    def bytes(self) -> int:
        return int(self.free * self.share)

    def to_device(self, A: Any) -> Any:
        """Returns arrays of the host, or named tuples of them, on the device; anything else as it is."""
        if isinstance(A, np.ndarray):
            return copy_to_device(A, self.name)
        if isinstance(A, tuple) and hasattr(A, "_fields"):
            return type(A)(*map(self.to_device, A))
        return A

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        import torch

        kinds = {np.float32: torch.float32, np.float64: torch.float64}
        return torch.zeros(shape, dtype=kinds[dtype], device=self.name)

    def matrix(self, A: Any) -> Any:
        from smoothlink.machines.device_matrices import tensor_matrix

        return tensor_matrix(A, self.name)

    def block_rows(self, n: int, entries: int) -> int:
        """Returns as many rows as make arrays of 1024 columns take an eighth of the memory."""
        few = MOST_ENTRIES * n // max(1, entries)
        return max(1024, min(self.bytes // (8 * 4 * BLOCK_COLUMNS), few))

    def columns(self, d: int) -> int:
        """Returns as many columns g as make eight (d, g) arrays take half of the memory."""
        return max(8, self.bytes // (2 * 8 * 4 * max(1, d)) // 8 * 8)

    def block_bytes(self) -> int:
        return self.bytes // 4

    def keeps(self, size: int) -> bool:
        """Returns whether an array is small enough: one that takes more of the memory waits on the host."""
        return size <= self.bytes // 8

    def scores(self) -> int:
        return max(1 << 20, self.bytes // 8)

    def smaller(self) -> Device | None:
        """Returns the same device with blocks for a quarter of the memory; None where that would not help any more."""
        share = self.share / 4
        return Device(self.name, self.free, share) if share >= LEAST_MEMORY_SHARE else None


Machine = Host | Device
Result = TypeVar("Result")


def find_machine(name: Any) -> Machine:
    """Returns the machine of this name; raises an error that says what is possible."""
    if isinstance(name, Host | Device):
        return name
    if not isinstance(name, str) or not (name in ("cpu", "auto", "torch") or name.split(":")[0] == "cuda"):
        raise ValueError(f"device is {name!r}; possible are {DEVICE_NAMES}.")
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
    return find_gpu(name)


def find_gpu(name: str) -> Device:
    """Returns a GPU by name: 'auto' and 'cuda' are the current one."""
    import torch

    count = torch.cuda.device_count()
    number = name.partition(":")[2] if name != "auto" else ""
    if number and not (number.isdecimal() and int(number) < count):
        raise DeviceError(f"device is {name!r}; the GPUs here are 'cuda:0' to 'cuda:{count - 1}'.")
    full = f"cuda:{int(number) if number else torch.cuda.current_device()}"
    torch.cuda.reset_peak_memory_stats(full)
    free, whole = torch.cuda.mem_get_info(full)
    used = torch.cuda.memory_allocated(full)
    idle = torch.cuda.memory_reserved(full) - used  # reserved by torch
    limit = torch.cuda.get_per_process_memory_fraction(full) if hasattr(torch.cuda, FRACTION) else 1.0
    return Device(full, min(int(free) + idle, int(limit * whole) - used))


def host_memory() -> int:
    """Returns the bytes of memory that the host has; 8 GB where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 << 30


def out_of_memory(error: BaseException) -> bool:
    """Returns whether this error says that a device is out of memory."""
    return type(error).__name__ == "OutOfMemoryError"


def release_memory(machine: Machine) -> None:
    """Gives memory back that torch has reserved on a device."""
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
