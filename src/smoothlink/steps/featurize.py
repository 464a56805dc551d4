"""h -> phi: random Fourier features of the embedding, for several shift-invariant kernels."""

from __future__ import annotations

import re
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtri

from smoothlink.machines.arrays import cosines, empty, to_device_of

Array = NDArray[Any]

MEDIAN_ROWS = 1000  # rows whose distances set the length scale
LARGEST_FREQUENCY = 1e20  # the tails of a Student of few degrees of freedom would overflow float32


class Kernel(NamedTuple):
    """A kernel by name; `nu` is the degrees of freedom of the Matern family."""

    name: str
    nu: float = np.inf

    def __str__(self) -> str:
        return f"matern({self.nu:g})" if self.name == "matern" else self.name


KERNELS = "gaussian, matern(NU) such as matern(3), exponential, laplacian, linear"


def parse_kernel(text: str | Kernel) -> Kernel:
    """Returns the kernel named "gaussian", "laplacian", "exponential", "linear", or "matern(nu)" for any nu > 0."""
    if isinstance(text, Kernel):
        return text
    if text in ("gaussian", "laplacian", "linear"):
        return Kernel(text)
    if text == "exponential":
        return Kernel("matern", 1.0)
    matched = re.fullmatch(r"matern\(?([0-9]+\.?[0-9]*|\.[0-9]+)\)?", text)
    if matched and float(matched[1]) > 0:
        return Kernel("matern", float(matched[1]))
    raise ValueError(f"kernel is {text!r}; possible are {KERNELS}.")


class Features(NamedTuple):
    """phi_t(h) = sqrt(2) cos(r_t'h + b_t); without columns phi(h) = h, the linear link."""

    R: Any  # (k, s) float32
    b: Any  # (s,) float32

    @property
    def linear(self) -> bool:
        return len(self.b) == 0

    def width(self, k: int) -> int:
        """Returns how many features there are, with the intercept."""
        return (k if self.linear else len(self.b)) + 1

    def __call__(self, H: Any) -> Any:
        """Returns Phi (n, s + 1) of the rows of H (n, k), dense or sparse, the intercept last."""
        Phi = empty(H, (H.shape[0], self.width(H.shape[1])))
        Phi[:, -1] = 1
        if self.linear:
            Phi[:, :-1] = H
        else:
            cosines(H, to_device_of(H, self.R), to_device_of(H, self.b), Phi[:, :-1])
        return Phi


def draw_features(
    kernel: Kernel,
    k: int,
    count: int,
    length: float,
    bandwidth: float,
    rng: np.random.Generator,
) -> Features:
    """Returns `count` frequencies and phases for a kernel on k numbers; `length` is the median squared distance m.

    gaussian: exp(-|d|^2 / (beta^2 m)). matern(nu): a multivariate Student of nu degrees of freedom, one chi2 shared
    by the coordinates of a frequency. laplacian: independent Cauchy coordinates, exp(-|d|_1 sqrt(2/m) / beta).
    """
    if kernel.name == "linear":
        return Features(np.zeros((k, 0), np.float32), np.zeros(0, np.float32))
    u = np.clip(rng.random((count, k + 2)), 1e-12, 1 - 1e-12)  # coordinates, chi2 and phase together
    if kernel.name == "laplacian":
        R = np.tan(np.pi * (u[:, :k] - 0.5)) * np.sqrt(2 / length)
    elif kernel.name == "matern":
        chi2 = np.maximum(chdtri(kernel.nu, u[:, k]), np.finfo(np.float64).tiny)
        shared = np.sqrt(kernel.nu / chi2)
        R = ndtri(u[:, :k]) * shared[:, None] / np.sqrt(length)
    else:
        R = ndtri(u[:, :k]) * np.sqrt(2 / length)
    R = np.clip(R / bandwidth, -LARGEST_FREQUENCY, LARGEST_FREQUENCY)
    return Features(np.ascontiguousarray(R.T, np.float32), (2 * np.pi * u[:, k + 1]).astype(np.float32))


def median_squared_distance(H: Array, w: Array | None = None, rows: int = MEDIAN_ROWS) -> float:
    """Returns the median of |h_i - h_j|^2 over pairs of rows that differ, each of weight w_i w_j; 1, with a warning, if
    none do.

    Pairs of equal rows do not count, so that a row given twice is a row of weight two.
    """
    H = H[:rows].astype(np.float64)
    squares = np.einsum("ij,ij->i", H, H)
    i, j = np.triu_indices(len(H), 1)
    distances = np.maximum(squares[:, None] + squares - 2 * H @ H.T, 0)[i, j]
    # The distance of equal rows is what rounding leaves.
    differ = distances >= 1e-12 * max(squares.max(initial=0.0), np.finfo(np.float64).tiny)
    if not differ.any():
        warnings.warn(
            "All embedded rows are equal; the length scale of the kernel is set to 1.", RuntimeWarning, stacklevel=2
        )
        return 1.0
    if w is None or (w == w[0]).all():
        return float(np.median(distances[differ]))
    return weighted_median(distances[differ], (w[i].astype(np.float64) * w[j])[differ])


def weighted_median(values: Array, weights: Array) -> float:
    """Returns the value with half of the weight on either side; the middle of two where the weight divides there."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    low, high = np.searchsorted(share, (0.5 - 1e-12, 0.5 + 1e-12))
    return float(values[order[low]] + values[order[min(high, len(order) - 1)]]) / 2
