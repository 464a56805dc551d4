"""Decimal text <-> float32 in numba: bit for bit what Python's float(), rounded to float32, gives."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.machines.compiled import compiled

Bytes = NDArray[np.uint8]

_REACH = 280
_POWERS = np.array([float(f"1e{k}") for k in range(-_REACH, _REACH + 1)])  # 1ek, each correctly rounded
_KEEP = 10**17  # digits are taken in while below this, so that 18 of them fit an int64
_EXACT = 2**53  # integers up to here, and powers up to 1e22, are float64 numbers without rounding
_SLACK = 2.0**-50


@compiled()
def scaled(mantissa: int, exponent: int) -> tuple[np.float32, bool]:
    """Returns the float32 of mantissa * 10^exponent, and whether it is certain to be the one that float() leads to.

    Small numbers take one correctly rounded operation (Clinger's fast path). Others are off by at most 3 roundings
    and 1e-17 of digits left out, well within _SLACK; rounding to float32 is monotone, so where both ends of that
    interval round to the same float32, it is the right one. About 1 in 2^26 values remains open.
    """
    if mantissa == 0:
        return np.float32(0.0), True
    if mantissa <= _EXACT and -22 <= exponent <= 22:
        if exponent < 0:
            return np.float32(mantissa / _POWERS[_REACH - exponent]), True
        return np.float32(mantissa * _POWERS[_REACH + exponent]), True
    if -_REACH <= exponent <= _REACH:
        x = mantissa * _POWERS[_REACH + exponent]
        low, high = np.float32(x * (1 - _SLACK)), np.float32(x * (1 + _SLACK))
        return low, low == high
    return np.float32(0.0), False


@compiled()
def _digits(buf: Bytes, p: int, stop: int, mantissa: int) -> tuple[int, int, int, int]:
    """Takes digits into the mantissa; returns it, the place after them, digits taken, digits left out."""
    kept, dropped = 0, 0
    while p < stop:
        digit: Any = np.int64(buf[p]) - 48
        if digit < 0 or digit > 9:
            break
        if mantissa < _KEEP:
            mantissa = mantissa * 10 + digit
            kept += 1
        else:
            dropped += 1  # the mantissa is far beyond _EXACT now, so `scaled` knows that it is not exact
        p += 1
    return mantissa, p, kept, dropped


@compiled()
def number(buf: Bytes, p: int, stop: int) -> tuple[bool, np.float32, int]:
    """Returns whether a number starts at p, its float32 (NaN: float() must read it), and the place after it."""
    negative = p < stop and buf[p] == 45
    if p < stop and (buf[p] == 45 or buf[p] == 43):
        p += 1
    mantissa, p, kept, exponent = _digits(buf, p, stop, 0)
    seen = kept
    if p < stop and buf[p] == 46:
        mantissa, p, kept, _ = _digits(buf, p + 1, stop, mantissa)
        exponent -= kept
        seen += kept
    if seen == 0:
        return False, np.float32(0.0), p
    if p < stop and (buf[p] == 101 or buf[p] == 69):
        p += 1
        minus = p < stop and buf[p] == 45
        if p < stop and (buf[p] == 45 or buf[p] == 43):
            p += 1
        power, p, kept, _ = _digits(buf, p, stop, 0)
        if kept == 0:
            return False, np.float32(0.0), p
        power = min(power, 10**9)
        exponent += -power if minus else power
    x, certain = scaled(mantissa, exponent)
    if not certain:
        x = np.float32(np.nan)
    return True, -x if negative else x, p


@compiled()
def shortest(x: np.float32) -> tuple[int, int]:
    """Returns the fewest digits that `number` reads back as the positive float32 x: mantissa, exponent of 10."""
    wide = np.float64(x)
    lead: Any = np.int64(np.floor(np.log10(wide)))
    mantissa: Any = np.int64(0)
    exponent: Any = np.int64(0)
    for n in range(1, 11):  # pragma: no branch (nine are always enough; one more in case log10 rounded up)
        exponent = lead + 1 - n
        mantissa = np.int64(np.rint(wide * _POWERS[_REACH - exponent]))
        back, certain = scaled(mantissa, exponent)
        if certain and back == x:
            break
    while mantissa % 10 == 0:
        mantissa //= 10
        exponent += 1
    return mantissa, exponent


@compiled()
def put_integer(out: Bytes, p: int, value: int) -> int:
    """Writes a non-negative integer at p; returns the place after it."""
    size, rest = 1, value
    while rest >= 10:
        size += 1
        rest //= 10
    for i in range(p + size - 1, p - 1, -1):
        out[i] = 48 + value % 10
        value //= 10
    return p + size


@compiled()
def put_float(out: Bytes, p: int, x: np.float32) -> int:
    """Writes a finite float32 at p, in at most 16 bytes; returns the place after it."""
    if np.signbit(x):
        out[p] = 45
        p, x = p + 1, -x
    if x == 0:
        out[p] = 48
        return p + 1
    mantissa, exponent = shortest(x)
    start, p = p, put_integer(out, p, mantissa)
    before = p - start + exponent  # digits in front of the decimal point
    if exponent >= 0 and before <= 9:
        out[p : p + exponent] = 48
        return p + exponent
    if exponent < 0 and before > 0:
        return _insert_point(out, start + before, p)
    if exponent < 0 and before > -4:
        zeros = 2 - before
        for i in range(p - 1, start - 1, -1):
            out[i + zeros] = out[i]
        out[start : start + zeros] = 48
        out[start + 1] = 46
        return p + zeros
    return _put_scientific(out, start, p, before - 1)


@compiled()
def _insert_point(out: Bytes, at: int, p: int) -> int:
    for i in range(p, at, -1):
        out[i] = out[i - 1]
    out[at] = 46
    return p + 1


@compiled()
def _put_scientific(out: Bytes, start: int, p: int, power: int) -> int:
    if p > start + 1:
        p = _insert_point(out, start + 1, p)
    out[p] = 101
    p += 1
    if power < 0:
        out[p] = 45
        p += 1
    return put_integer(out, p, abs(power))
