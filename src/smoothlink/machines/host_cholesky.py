"""Cholesky factors and their solves on the host, by the threads of `threads.py`.

BLAS has threads of its own, but these meet at every panel of a factor and spin beside compiled loops.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.threads import in_threads, parts, single_blas_thread, thread_count

Array = NDArray[Any]

FACTORED_COLUMNS = 512  # of a matrix whose factor is one call of LAPACK
SOLVED_COLUMNS = 64  # of a right-hand side that a thread solves for at a time
LETTERS = {"f": "s", "d": "d"}  # by which BLAS calls float32 and float64


def factor(A: Array) -> None:
    """Overwrites A' (n, n), on and below its diagonal, with its Cholesky factor; A is C-contiguous, of floats.

    Raises LinAlgError where A is not positive definite. What A' has above its diagonal stays.
    """
    with single_blas_thread(0):
        _factor(A, slice(0, len(A)))


def _factor(A: Array, some: slice) -> None:
    """`factor` of some rows and the same columns.

    By halves: L11 L11' = A11, L21 = A21 L11'^-1, and L22 L22' = A22 - L21 L21'. Three quarters of the operations are
    in the second and third step, which threads share: of 2,000 columns 38 ms on two threads, 63 in one call of LAPACK.
    """
    letter = LETTERS[A.dtype.char]
    number = ctypes.c_float if letter == "s" else ctypes.c_double
    one, minus_one = ctypes.byref(number(1)), ctypes.byref(number(-1))

    def size(rows: slice) -> Any:
        return ctypes.byref(ctypes.c_int(rows.stop - rows.start))

    def part(rows: slice, columns: slice) -> tuple[Any, Any]:
        """Returns the address of a part of A', and the distance of its columns."""
        return ctypes.c_void_p(A[columns.start :, rows.start :].ctypes.data), ctypes.byref(ctypes.c_int(len(A)))

    if some.stop - some.start <= FACTORED_COLUMNS:
        failed = ctypes.c_int()
        _fortran("lapack", f"{letter}potrf")(b"L", size(some), *part(some, some), ctypes.byref(failed))
        if failed.value:
            raise np.linalg.LinAlgError("not positive definite")
        return
    middle = (some.start + some.stop) // 2
    first, second = slice(some.start, middle), slice(middle, some.stop)
    solve, multiply, square = (_fortran("blas", f"{letter}{name}") for name in ("trsm", "gemm", "syrk"))

    def divide(i: slice) -> None:
        """L21 = A21 L11'^-1."""
        solve(b"R", b"L", b"T", b"N", size(i), size(first), one, *part(first, first), *part(i, first))

    def subtract(i: slice, j: slice) -> None:
        """A22 - L21 L21', on and below the diagonal."""
        if i == j:
            square(b"L", b"N", size(i), size(first), minus_one, *part(i, first), one, *part(i, i))
        else:
            sizes = size(i), size(j), size(first)
            multiply(b"N", b"T", *sizes, minus_one, *part(i, first), *part(j, first), one, *part(i, j))

    _factor(A, first)
    rows = [slice(middle + each.start, middle + each.stop) for each in parts(some.stop - middle, thread_count())]
    in_threads(partial(divide, i) for i in rows)
    below = [(i, j) for number, j in enumerate(rows) for i in rows[number + 1 :]]  # twice as long as the others
    in_threads(partial(subtract, i, j) for i, j in [*below, *((i, i) for i in rows)])
    _factor(A, second)


def solve(L: Array, B: Array) -> Array:
    """Returns (LL')^-1 B, in the memory of B where its columns are contiguous."""
    kind = np.result_type(L, B)
    L, out = np.asfortranarray(L, kind), np.asfortranarray(B, kind)
    potrs, side, failed = _fortran("lapack", f"{LETTERS[kind.char]}potrs"), ctypes.c_int(len(L)), ctypes.c_int()

    def solve(columns: slice) -> None:
        some = out[:, columns]
        size, count = ctypes.byref(side), ctypes.byref(ctypes.c_int(some.shape[1]))
        matrix, solution = ctypes.c_void_p(L.ctypes.data), ctypes.c_void_p(some.ctypes.data)
        potrs(b"L", size, count, matrix, size, solution, size, ctypes.byref(failed))

    in_threads(partial(solve, part) for part in parts(out.shape[1], -(-out.shape[1] // SOLVED_COLUMNS)))
    return out


@cache
def _fortran(library: str, name: str) -> Callable[..., None]:
    """Returns a function of BLAS or LAPACK, whose arguments are pointers.

    SciPy's own calls hold the GIL, so that threads would take turns.
    """
    from numba.extending import get_cython_function_address

    return ctypes.CFUNCTYPE(None)(get_cython_function_address(f"scipy.linalg.cython_{library}", name))
