"""What a process holds before its fit begins, once all the code that a fit uses is there."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from smoothlink.fitting.options import Options
from smoothlink.solve import DualCholesky

ROWS, FEATURES, LABELS = 40, 30, 5
UNKNOWN = 400 << 20  # bytes, where the system does not say
GIVEN: dict[str, Any] = {"rank": 2, "ridge": 1.0, "bandwidth": 1.0, "final_ridge": 0.1, "n_features": 4, "passes": 1}
PLAIN: dict[str, Any] = {"scale": "unit", "input_kernel": None, "holdout": 0.5, "block_rows": 25, "batch_rows": None}
PLAIN |= {"training": "stepwise", "memory": None, "checkpoint": None}


def loaded_bytes(options: Options, multiclass: bool) -> int:
    """The resident memory after fits to a few rows: libraries and compiled loops differ by machine, and count."""
    from smoothlink.fitting.train import train

    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.poisson(0.1, (ROWS, FEATURES)), dtype=np.float32)
    Y = sp.csr_array(np.eye(LABELS, dtype=np.float32)[np.arange(ROWS) % LABELS])
    solvers: list[Any] = ["cg", "cholesky", DualCholesky()] if options.solver == "auto" else [options.solver]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for solver in solvers:
            small = replace(options, **GIVEN, **PLAIN, solver=solver)
            train(X, Y, None, small, multiclass=multiclass)
    for kind in (np.float32, np.float64):  # large products fill the buffers of BLAS
        A = np.ones((1024, 2048), kind)
        A @ A.T
    del A
    return resident_bytes()


def resident_bytes() -> int:
    """The memory this process holds now."""
    try:
        with open("/proc/self/status") as file:
            found = next(line for line in file if line.startswith("VmRSS:"))
        return int(found.split()[1]) << 10
    except (OSError, StopIteration, ValueError):
        return UNKNOWN
