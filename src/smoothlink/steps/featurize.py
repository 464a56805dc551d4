"""h -> phi: random Fourier features of the embedding, for several shift-invariant kernels."""

from __future__ import annotations

import re
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from smoothlink.machines.arrays import cosines, empty, to_device_of
from smoothlink.machines.seeded_numbers import derive_seed, normals, uniforms

Array = NDArray[Any]

MEDIAN_ROWS = 500  # rows whose distances set the length scale
LARGEST_FREQUENCY = 1e20  # the tails of a Student of few degrees of freedom would overflow float32
DRAWN_TOGETHER = 1 << 18  # numbers
DISTRIBUTIONS = ("normal", "cauchy")


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


class Draw(NamedTuple):
    """How frequencies were drawn: numbers of a seed, those of feature t times factor[t]. A model file holds this in
    place of R."""

    distribution: str  # one of DISTRIBUTIONS
    seed: int
    factor: Array  # (s,) float64

    def frequencies(self, k: int) -> Array:
        """Returns R (k, s), with the same bits on every machine; the first features are those of a smaller s."""
        s = len(self.factor)
        R, step = np.empty((k, s), np.float32), max(1, DRAWN_TOGETHER // max(1, k))
        for start in range(0, s, step):
            some = slice(start, min(s, start + step))
            found = self._numbers(start * k, (some.stop - start) * k).reshape(-1, k) * self.factor[some, None]
            R[:, some] = np.clip(found, -LARGEST_FREQUENCY, LARGEST_FREQUENCY).T
        return R

    def _numbers(self, start: int, count: int) -> Array:
        """Returns numbers of the distribution; the ratio of two normal numbers is one of Cauchy."""
        if self.distribution == "normal":
            return normals(self.seed, start, count)
        pairs = normals(self.seed, 2 * start, 2 * count)
        return np.asarray(pairs[::2] / pairs[1::2])


class Features(NamedTuple):
    """phi_t(h) = sqrt(2) cos(r_t'h + b_t); without columns phi(h) = h, the linear link."""

    R: Any  # (k, s) float32
    b: Any  # (s,) float32
    draw: Draw | None = None  # which makes R; None where it was trained, or where there are no columns

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


def draw_features(kernel: Kernel, k: int, count: int, length: float, bandwidth: float, seed: int) -> Features:
    """Returns `count` frequencies and phases for a kernel on k numbers; `length` is the median squared distance m.

    gaussian: exp(-|d|^2 / (beta^2 m)). matern(nu): a multivariate Student of nu degrees of freedom, one chi2 shared
    by the coordinates of a frequency. laplacian: independent Cauchy coordinates, exp(-|d|_1 sqrt(2/m) / beta).
    """
    if kernel.name == "linear":
        return Features(np.zeros((k, 0), np.float32), np.zeros(0, np.float32))
    factor = np.full(count, np.sqrt(2 / length) / bandwidth)
    if kernel.name == "matern":
        chi2 = chdtri(kernel.nu, uniforms(derive_seed(seed, 1), 0, count))
        factor *= np.sqrt(kernel.nu / (2 * np.maximum(chi2, np.finfo(np.float64).tiny)))
    draw = Draw("cauchy" if kernel.name == "laplacian" else "normal", seed, factor)
    phases = 2 * np.pi * uniforms(derive_seed(seed, 2), 0, count)
    return Features(draw.frequencies(k), phases.astype(np.float32), draw)


def median_squared_distance(H: Array, w: Array | None = None, rows: int = MEDIAN_ROWS) -> float:
    """Returns the median of |h_i - h_j|^2 over pairs of rows that differ, each of weight w_i w_j; 1, with a warning, if
    none do.

    Pairs of equal rows do not count, so that a row given twice is a row of weight two.
    """
    H = H[:rows].astype(np.float64)
    squares = np.einsum("ij,ij->i", H, H)
    distances = pairs_of(np.maximum(squares[:, None] + squares - 2 * H @ H.T, 0))
    # The distance of equal rows is what rounding leaves.
    differ = distances >= 1e-12 * max(squares.max(initial=0.0), np.finfo(np.float64).tiny)
    if not differ.any():
        warnings.warn(
            "All embedded rows are equal; the length scale of the kernel is set to 1.", RuntimeWarning, stacklevel=2
        )
        return 1.0
    if w is None or (w == w[0]).all():
        return float(np.median(distances[differ]))
    v = w[: len(H)].astype(np.float64)
    return weighted_median(distances[differ], pairs_of(v[:, None] * v)[differ])


def pairs_of(A: Array) -> Array:
    """Returns what a square matrix has above its diagonal, row by row; index arrays would take three times as long."""
    return np.concatenate([np.zeros(0), *(row[i + 1 :] for i, row in enumerate(A))])


def weighted_median(values: Array, weights: Array) -> float:
    """Returns the value with half of the weight on either side; the middle of two where the weight divides there."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    low, high = np.searchsorted(share, (0.5 - 1e-12, 0.5 + 1e-12))
    return float(values[order[low]] + values[order[min(high, len(order) - 1)]]) / 2
