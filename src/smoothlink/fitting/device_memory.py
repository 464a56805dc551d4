"""What a fit must hold on a device at once, array by array; a device that has less is refused before the fit begins.

Only what no smaller block avoids is counted: blocks of rows, of labels and of right-hand sides take what is left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from smoothlink.errors import DeviceError
from smoothlink.fitting.memory import size as text
from smoothlink.fitting.settings import Settings
from smoothlink.machines.host_and_device import Host, Machine
from smoothlink.machines.rows import Rows
from smoothlink.steps.sgd import default_batch


def check_link(rows: Rows, settings: Settings) -> None:
    """Raises a DeviceError where the device of these rows does not hold a stepwise fit with these settings."""
    machine, d, c = rows.machine, rows.d, rows.c
    embedder = settings.embedder
    if embedder.embedding == "randomized" and embedder.classifier is None:
        check_device(
            machine,
            f"an embedding of rank {embedder.rank:,} of {c:,} labels and {d:,} features",
            embedder.rank,
            lambda rank: embedding_bytes(d, c, rank + embedder.oversample),
            "rank={}",
        )
    if settings.loss != "squared":
        linear = settings.kernel.name == "linear"
        s = settings.rank if linear else settings.features
        check_device(
            machine,
            f"SGD for {c:,} labels with {s:,} {'directions' if linear else 'random features'}",
            s,
            lambda s: sgd_bytes(c, s, settings.sgd.batch or default_batch(rows.n, c, s, softmax=False)),
            "rank={}" if linear else f"kernel={settings.kernel.name.capitalize()}(features={{}})",
            " loss='squared' needs a third, and training='joint' less still.",
        )


def check_joint(rows: Rows, rank: int, entries: int, weights: int) -> None:
    """Raises a DeviceError where the device of these rows does not hold joint training; X has so many entries, and
    labels so many sparse weights."""
    check_device(
        rows.machine,
        f"joint training of rank {rank:,} with {rows.c:,} labels, {rows.d:,} features and {weights:,} sparse weights",
        rank,
        lambda rank: joint_bytes(rows.d, rows.c, rank, entries, weights),
        "rank={}",
        " Joint(sparse_weights=False) needs less." if weights else "",
    )


def embedding_bytes(d: int, c: int, columns: int) -> int:
    """Right-hand sides (d, k + l), and three arrays (c, k + l)."""
    return 4 * columns * (d + 3 * c)


def sgd_bytes(c: int, s: int, batch: int) -> int:
    """V, its velocity and its targets (s, c) in float32 and V in halves; features of a batch, three times and in
    halves. Where they are large, embeddings, their directions and the sums of labels wait on the host."""
    return 14 * s * (c + batch)


def joint_bytes(d: int, c: int, k: int, entries: int, weights: int) -> int:
    """W (d, k) and V (c, k), both twice when they are copied to the host; X, and four numbers and the order per
    sparse weight."""
    return 8 * k * (d + c) + 8 * entries + 24 * weights


def check_device(
    machine: Machine, what: str, size: int, bytes_of: Callable[[int], int], remedy: str, others: str = ""
) -> None:
    """Raises a DeviceError where a device has less free than bytes_of(size), which says what size would fit."""
    if isinstance(machine, Host) or bytes_of(size) <= machine.free:
        return
    fits = bisect_right(range(1, size), machine.free, key=bytes_of)
    would = f"{remedy.format(fits)} would fit." if fits else "No smaller size would fit."
    raise DeviceError(
        f"device is {str(machine)!r} with {text(machine.free)} of memory free, and {what} needs {text(bytes_of(size))} "
        f"there.\n{would}{others} Or leave device 'cpu'."
    )
