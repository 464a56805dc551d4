"""Random numbers as a function of a seed and a position: the same bits on every machine and with every NumPy.

Whole numbers are SplitMix64 (Steele, Lea and Flood 2014). What is made of them uses only +, -, *, / and square roots,
which IEEE 754 rounds in one way, and no function of a mathematical library, whose last bit may differ: a checksum of
the results holds wherever a model file is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

GAMMA, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of SplitMix64
SEED_BITS = 53  # whole numbers that every reader of JSON keeps

# The quantile of the normal distribution by P. J. Acklam: ratios of polynomials of (p - 1/2)^2 in the middle and of
# sqrt(-2 log p) in the tails, the highest power first. They are within 1.2e-9 of it, which float32 does not see.
TAIL = 0.02425
MIDDLE_ABOVE = (
    *(-3.969683028665376e01, 2.209460984245205e02, -2.759285104469687e02),
    *(1.383577518672690e02, -3.066479806614716e01, 2.506628277459239e00),
)
MIDDLE_BELOW = (
    *(-5.447609879822406e01, 1.615858368580409e02, -1.556989798598866e02),
    *(6.680131188771972e01, -1.328068155288572e01, 1.0),
)
TAIL_ABOVE = (
    *(-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e00),
    *(-2.549732539343734e00, 4.374664141464968e00, 2.938163982698783e00),
)
TAIL_BELOW = (7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e00, 3.754408661907416e00, 1.0)
LOG_SERIES = tuple(2 / n for n in range(21, 0, -2))  # of log((1 + f) / (1 - f)) / f in powers of f^2, to 1e-17
LOG_2 = 0.6931471805599453


def derive_seed(*numbers: int) -> int:
    """Returns a seed of SEED_BITS bits that depends on all these numbers and on their order."""
    state = 0
    for number in numbers:
        state = int(_mix(np.array([(state + GAMMA + number) % 2**64], np.uint64))[0])
    return state >> (64 - SEED_BITS)


def whole_numbers(seed: int, start: int, count: int) -> NDArray[np.uint64]:
    """Returns the numbers start .. start + count - 1 of SplitMix64 with this seed, of 64 bits each."""
    return _mix(np.uint64(seed) + np.arange(start + 1, start + count + 1, dtype=np.uint64) * np.uint64(GAMMA))


def uniforms(seed: int, start: int, count: int) -> Array:
    """Returns numbers that are uniform between 0 and 1, neither of them included, in float64."""
    return ((whole_numbers(seed, start, count) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def normals(seed: int, start: int, count: int) -> Array:
    """Returns standard normal numbers in float64, each of the uniform number at its position."""
    p = uniforms(seed, start, count)
    q = p - 0.5
    r = q * q
    found = q * _polynomial(MIDDLE_ABOVE, r) / _polynomial(MIDDLE_BELOW, r)
    tail = np.flatnonzero(np.abs(q) > 0.5 - TAIL)
    t = np.sqrt(-2 * _logarithm(np.minimum(p[tail], 1 - p[tail])))
    found[tail] = np.where(q[tail] < 0, 1, -1) * (_polynomial(TAIL_ABOVE, t) / _polynomial(TAIL_BELOW, t))
    return found


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(SECOND)
    return z ^ (z >> np.uint64(31))


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """Returns the polynomial of these coefficients, the highest power first."""
    value = np.full(x.shape, coefficients[0])
    for coefficient in coefficients[1:]:
        value *= x
        value += coefficient
    return value


def _logarithm(x: Array) -> Array:
    """Returns log(x) of positive numbers: of the mantissa in 1/2 .. 1 times sqrt(2) by a series, and the exponent."""
    mantissa, exponent = np.frexp(x)
    f = (mantissa * np.sqrt(2.0) - 1) / (mantissa * np.sqrt(2.0) + 1)
    return f * _polynomial(LOG_SERIES, f * f) + (exponent - 0.5) * LOG_2
