"""A randomized Nystrom correction of the diagonal preconditioner (Frangella, Tropp and Udell 2021)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.arrays import SUM_ROWS, Array, column_dots, eigh, lower_inverse, to_device_of, to_host

HostArray = NDArray[Any]


class Sketch(NamedTuple):
    """X'WX times random columns."""

    probes: Array  # (d, r)
    image: Array  # (d, r) X'WX probes


class Correction(NamedTuple):
    """M = D + V diag(shrink) V', D the inverse diagonal: the largest eigenvalues of D^1/2 A D^1/2 shrink to the least.

    In the letters of the paper, P^-1 = lambda_r U Lambda^-1 U' + (I - UU') for the matrix scaled to a unit diagonal,
    which already holds the ridge.
    """

    V: Array  # (d, r) D^1/2 U
    shrink: Array  # (r,) lambda_r / lambda - 1
    levels: HostArray  # (r,) lambda, ascending

    def __call__(self, R: Array, size: HostArray) -> tuple[HostArray, Array]:
        """Returns r'Mr of each column, given r'Dr, and the coefficients K of the correction V K of MR."""
        projected = self.V.T @ R
        coefficients = self.shrink[:, None] * projected
        return size + column_dots(projected, coefficients), coefficients


def correction(sketch: Sketch, rho: HostArray, root: HostArray) -> Correction:
    """Returns the correction for A = X'WX + rho, where `root` (d,) is the inverse square root of its diagonal."""
    probes, scale = sketch.probes, to_device_of(sketch.probes, root)[:, None]
    inverse = np.divide(1, root, out=np.zeros_like(root), where=root > 0)
    image = (sketch.image + to_device_of(probes, rho)[:, None] * probes) * scale
    probes = probes * to_device_of(probes, inverse)[:, None]  # scaled back, one serves every ridge
    nu = float(np.sqrt(len(root)) * np.finfo(np.float32).eps * np.sqrt(column_dots(image, image).sum()))
    image += nu * probes  # the shift that keeps the next factor stable
    K = products(probes, image)
    B = image @ to_device_of(image, lower_inverse((K + K.T) / 2).T.astype(np.float32))  # BB' approximates
    lam, E = eigh(products(B, B))
    keep = lam > 2 * nu
    lam, E = lam[keep], E[:, keep] / np.sqrt(lam[keep])
    level = np.maximum(lam - nu, nu)
    V = (B @ to_device_of(B, E.astype(np.float32))) * scale
    return Correction(V, to_device_of(V, (level.min(initial=1.0) / level - 1).astype(np.float32)), level)


def products(A: Array, B: Array) -> HostArray:
    """Returns A'B (r, r) in float64."""
    parts = range(0, len(A), SUM_ROWS)
    return np.sum([to_host(A[i : i + SUM_ROWS].T @ B[i : i + SUM_ROWS]).astype(np.float64) for i in parts], axis=0)
