"""A randomized Nystrom correction of the diagonal preconditioner (Frangella, Tropp and Udell 2021)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from smoothlink.machines.threads import calm

Array = NDArray[Any]

SUM_ROWS = 65536  # float32 products of at most so many rows are added in float64


class Sketch(NamedTuple):
    """X'WX seen through random columns."""

    probes: Array  # (d, r)
    image: Array  # (d, r) X'WX probes


class Correction(NamedTuple):
    """M = D + V diag(shrink) V', D the inverse diagonal: the largest eigenvalues of D^1/2 A D^1/2 shrink to the least.

    In the words of the paper, P^-1 = lambda_r U Lambda^-1 U' + (I - UU') for the matrix scaled to a unit diagonal,
    which already holds the ridge.
    """

    V: Array  # (d, r) D^1/2 U
    shrink: Array  # (r,) lambda_r / lambda - 1
    levels: Array  # (r,) lambda, ascending

    def __call__(self, R: Array, size: Array) -> tuple[Array, Array]:
        """r'Mr of each column, given r'Dr, and the coefficients K of the correction V K of MR."""
        projected = self.V.T @ R
        coefficients = self.shrink[:, None] * projected
        return size + np.einsum("ij,ij->j", projected, coefficients, dtype=np.float64), coefficients


def correction(sketch: Sketch, rho: Array, root: Array) -> Correction:
    """The correction for A = X'WX + rho, where `root` (d,) is the inverse square root of its diagonal."""
    inverse = np.divide(1, root, out=np.zeros_like(root), where=root > 0)
    probes = sketch.probes * inverse[:, None]  # of the scaled matrix: scaled back, one product serves every ridge
    image = (sketch.image + rho[:, None] * sketch.probes) * root[:, None]
    nu = float(np.sqrt(len(root)) * np.finfo(np.float32).eps * np.linalg.norm(image))
    image += np.float32(nu) * probes  # the shift that keeps the next factor stable
    K = products(probes, image)
    with calm(len(K)):
        L = scipy.linalg.cholesky((K + K.T) / 2, lower=True)
        half = scipy.linalg.solve_triangular(L, np.eye(len(L)), lower=True).T.astype(np.float32)
        B = image @ half  # BB' is the Nystrom approximation
        lam, E = np.linalg.eigh(products(B, B))
    keep = lam > 2 * nu
    lam, E = lam[keep], E[:, keep] / np.sqrt(lam[keep])
    level = np.maximum(lam - nu, nu)
    V = (B @ E.astype(np.float32)) * root[:, None]
    return Correction(V, (level.min(initial=1.0) / level - 1).astype(np.float32), level)


def products(A: Array, B: Array) -> Array:
    """A'B (r, r) in float64."""
    parts = range(0, len(A), SUM_ROWS)
    return np.sum([(A[i : i + SUM_ROWS].T @ B[i : i + SUM_ROWS]).astype(np.float64) for i in parts], axis=0)
