"""Lets memory run out at every large allocation of each command, and under limits of the address space.

    python tests/torture/allocations.py [--short] [COMMAND ...]

Runs are those of faults.py. The k-th array of NumPy of at least 64 KiB gets no memory, for k = 1, 2, ... until a run
allocates fewer; then the address space may grow by no more than 0, 1, 2, ... MiB, until a run passes. After each the
command ended well or with one message that says that memory ran out and what needs less, never with a traceback or a
signal; outputs are the old ones or the new ones; and the same command, run again, ends well and leaves nothing behind.
"""

import argparse
import ctypes
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import faults
import numpy as np
from faults import COMMANDS, SHORT, Campaign, Fault, campaigns

LEAST_BYTES = 64 << 10  # of an allocation that is counted
LARGE_BYTES = 256 << 20  # by which the address space may grow at most
SET_HANDLER, GET_HANDLER = 304, 305  # places of PyDataMem_SetHandler and PyDataMem_GetHandler among NumPy's functions
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
MALLOC, CALLOC = ctypes.CFUNCTYPE(POINTER, POINTER, SIZE), ctypes.CFUNCTYPE(POINTER, POINTER, SIZE, SIZE)
REALLOC = ctypes.CFUNCTYPE(POINTER, POINTER, POINTER, SIZE)
kept: list[object] = []  # what NumPy points to


class Handler(ctypes.Structure):
    """PyDataMem_Handler of NumPy: where the memory of its arrays comes from."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", POINTER),
        ("malloc", MALLOC),
        ("calloc", CALLOC),
        ("realloc", REALLOC),
        ("free", ctypes.CFUNCTYPE(None, POINTER, POINTER, SIZE)),
    ]


def allocate_by(fails: Callable[[], bool]) -> None:
    """Has NumPy ask `fails` before each large allocation of this process."""
    make, address = ctypes.pythonapi.PyCapsule_New, ctypes.pythonapi.PyCapsule_GetPointer
    make.restype, make.argtypes = ctypes.py_object, [POINTER, ctypes.c_char_p, POINTER]
    address.restype, address.argtypes = POINTER, [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(address(np._core._multiarray_umath._ARRAY_API, None), ctypes.POINTER(POINTER))
    present = ctypes.PYFUNCTYPE(ctypes.py_object)(table[GET_HANDLER])()
    old = Handler.from_address(address(present, b"mem_handler"))
    new, context = (
        Handler.from_buffer_copy(old),
        old.context,
    )  # which frees as the old one: a callback cannot, in an error

    def no_room(size: int) -> bool:
        return size >= LEAST_BYTES and fails()

    def held(function: object, *types: type) -> Callable:  # NumPy's functions want the interpreter's lock
        return ctypes.PYFUNCTYPE(POINTER, POINTER, *types)(ctypes.cast(function, POINTER).value)

    malloc, calloc, realloc = held(old.malloc, SIZE), held(old.calloc, SIZE, SIZE), held(old.realloc, POINTER, SIZE)
    new.malloc = MALLOC(lambda _, size: None if no_room(size) else malloc(context, size))
    new.calloc = CALLOC(lambda _, n, size: None if no_room(n * size) else calloc(context, n, size))
    new.realloc = REALLOC(lambda _, at, size: None if no_room(size) else realloc(context, at, size))
    name = ctypes.create_string_buffer(b"mem_handler")
    capsule = make(ctypes.addressof(new), name, None)
    ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[SET_HANDLER])(capsule)
    kept.extend([present, new, name, capsule])


def run_out(folder: Path, fault: Fault | None, steps_out: int) -> None:
    """Puts the fault under the allocations that this process makes from now on, and reports the large ones."""
    if fault is None:
        return
    if fault.kind == "space":
        with open("/proc/self/statm") as file:
            held = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + fault.at, held + fault.at))
        return
    count = 0

    def fails() -> bool:
        nonlocal count
        count += 1
        os.write(steps_out, b"allocation\n")
        return count == fault.at

    allocate_by(fails)


class Allocations(Campaign):
    """All allocations of one command."""

    def faults(self) -> Iterator[Fault]:
        """Yields faults until a run passes without one; a short campaign has some of the allocations."""
        count = len(faults.run(self.work, self.args, Fault("allocation", 0, "none")).steps)
        self.steps = ["allocation"] * count
        some = np.unique(np.linspace(1, count, min(count, 12) if self.short else count).astype(int))
        yield from (Fault("allocation", at, "MemoryError") for at in some.tolist())
        if self.name == "parquet":  # its threads start in the fork, and numba waits for ever for one that cannot
            return
        for at in range(0, LARGE_BYTES, (16 if self.short else 1) << 20):
            self.passed = False
            yield Fault("space", at, "MemoryError")
            if self.passed:
                return
        self.failures.append(f"{self.name}: no run passes")

    def problems(self, fault: Fault) -> Iterator[str]:
        passed = self.outcomes["passed"]
        yield from super().problems(fault)
        self.passed = self.outcomes["passed"] > passed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", help=", ".join(COMMANDS))
    parser.add_argument("--short", action="store_true", help="fewer commands and allocations")
    given = parser.parse_args()
    faults.break_down, faults.labelled = run_out, partial(faults.labelled, n=1_500, d=300, c=20)
    faults.REMEDIES["MemoryError"] = "Memory ran out"
    failed = 0
    for found in campaigns(given.commands or [*(SHORT if given.short else COMMANDS)], given.short, 0, Allocations):
        print(json.dumps(found), flush=True)
        failed += len(found["failures"])
    sys.exit(failed > 0)
