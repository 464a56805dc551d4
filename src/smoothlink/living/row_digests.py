"""Which rows a model holds, by keyed hashes of what is in them; nobody without the key can test a guess."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.holdout import ONE_FIT_ROWS, ONE_FIT_SHARE
from smoothlink.machines.copies import RowContents
from smoothlink.machines.rows import row_hash

Array = NDArray[Any]

PART = 8  # bytes of the hash of a row's features, and of that of its labels
CALIBRATION_ROWS, MOST_SHARE = 1000, 0.2  # so many rows calibrate a model that will be updated, of few rows a fifth


class Digest(NamedTuple):
    """A keyed hash of a row."""

    features: bytes
    labels: bytes


class RowDigests:
    """The rows of a model by their digests, each with its weight; rows may occur more than once."""

    def __init__(self, key: bytes | None = None) -> None:
        self.key = secrets.token_bytes(32) if key is None else key
        self.weights: dict[bytes, dict[bytes, list[float]]] = {}  # features -> labels -> weight of each copy
        self.size = 0

    def of(self, X: Any, Y: sp.csr_array) -> Iterator[Digest]:
        """Yields the digest of each row of X (n, d) with labels Y (n, c)."""
        for row in range(Y.shape[0]):
            if sp.issparse(X):
                part = slice(X.indptr[row], X.indptr[row + 1])
                content = X.indices[part].astype("<i8").tobytes() + X.data[part].astype("<f4").tobytes()
            else:
                content = np.asarray(X[row], "<f4").tobytes()
            labels = np.sort(Y.indices[Y.indptr[row] : Y.indptr[row + 1]]).astype("<i8").tobytes()
            yield Digest(self._hash(content), self._hash(labels))

    def _hash(self, content: bytes) -> bytes:
        return blake2b(content, key=self.key, digest_size=PART).digest()

    def add(self, digest: Digest, weight: float) -> None:
        self.weights.setdefault(digest.features, {}).setdefault(digest.labels, []).append(weight)
        self.size += 1

    def count(self, digest: Digest) -> int:
        """Returns how many rows have this digest."""
        return len(self.weights.get(digest.features, {}).get(digest.labels, ()))

    def remove(self, digest: Digest) -> float:
        """Removes one row, the latest of its copies, and returns its weight."""
        alike = self.weights[digest.features]
        weight = alike[digest.labels].pop()
        self.size -= 1
        if not alike[digest.labels]:
            del alike[digest.labels]
        if not alike:
            del self.weights[digest.features]
        return weight

    def has_features(self, digest: Digest) -> bool:
        """Returns whether a row with these features is left, whatever its labels."""
        return digest.features in self.weights

    def to_arrays(self) -> dict[str, Array]:
        """Returns the digests, in their own order, which says nothing of that of the rows, and the weights."""
        rows = [
            (features + labels, weight)
            for features in sorted(self.weights)
            for labels in sorted(self.weights[features])
            for weight in self.weights[features][labels]
        ]
        joined = np.frombuffer(b"".join(digest for digest, _ in rows), np.uint8).reshape(-1, 2 * PART)
        return {
            "row_key": np.frombuffer(self.key, np.uint8),
            "row_digests": joined,
            "row_weights": np.array([weight for _, weight in rows], np.float64),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> RowDigests:
        found = cls(arrays["row_key"].tobytes())
        for digest, weight in zip(arrays["row_digests"], arrays["row_weights"].tolist(), strict=True):
            found.add(digest_of(digest), weight)
        return found

    def __len__(self) -> int:
        return self.size


def digest_of(row: Array) -> Digest:
    """Returns the digest of 2 * PART bytes."""
    raw = row.tobytes()
    return Digest(raw[:PART], raw[PART:])


def calibration_share(n: int) -> float:
    """Returns the share of n rows that calibrate a model that will be updated."""
    return min(max(ONE_FIT_SHARE, CALIBRATION_ROWS / n), MOST_SHARE, max(ONE_FIT_ROWS / n, 1e-9))


def calibrating(contents: RowContents, share: float, seed: int, groups: Array | None = None) -> Array:
    """Returns whether each row (n,) calibrates, by what is in it: the same row is always in or out, whatever others
    there are. Rows of one group go together."""
    own = np.where(contents.features > 0, contents.features, contents.labels)
    if groups is not None:
        first = np.full(int(groups.max(initial=-1)) + 1, np.iinfo(np.uint64).max, np.uint64)
        np.minimum.at(first, groups, own)
        own = first[groups]
    return np.asarray(row_hash(own, seed) < np.uint64(share * 2.0**64))
