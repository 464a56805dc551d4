"""Documents that are nearly the same, by MinHash of their three-word runs; time grows with the text, not its square.

The share of runs that two documents have in common (Jaccard) is the chance that the least hash of their runs is the
same. A signature holds PERMUTATIONS such minima. Documents that agree in all minima of a band are compared, each with
the one before it and with the first of its band, so that even a band that all share costs no more than two comparisons
per document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from smoothlink.machines.compiled import compiled
from smoothlink.machines.copies import RowContents, first_equal

Array = NDArray[Any]

SIMILAR = 0.8  # share of common runs from which on documents are nearly the same
RUN = 3  # words
# At a share of .8 two documents agree in one band at least with probability 1 - (1 - .8^5)^24 = .9999, and the share
# that signatures show is within .08 of the true one.
BANDS, BAND_ROWS = 24, 5
PERMUTATIONS = BANDS * BAND_ROWS
COMPARED_AT_A_TIME = 1 << 16  # pairs
# Up to here near-duplicates cost little beside a fit: some two seconds, and 480 bytes of signature per text.
MOST_TEXTS, MOST_CHARACTERS = 100_000, 50_000_000
LARGEST_SHARE = 0.1  # of the texts that are taken for copies of one another: forms that all fill in are not
OWN_WORD = 0xE3  # from this first byte on a character is a word: Chinese, Japanese and Korean


class NearDuplicates(NamedTuple):
    """Pairs of documents that are nearly the same, and the groups that they form."""

    first: Array  # (p,) numbers of documents
    second: Array  # (p,)
    share: Array  # (p,) of their runs that both have, estimated
    group: Array  # (n,) the group of each document; those that resemble no other are alone in theirs


def find_near_duplicates(texts: Sequence[str], least: float = SIMILAR) -> NearDuplicates:
    """Returns which documents have at least this share of their three-word runs in common."""
    n, S = len(texts), signatures(texts)
    full = np.flatnonzero(S[:, 0] < np.iinfo(np.uint32).max)  # the others have no word
    found = [candidates(S[full, start : start + BAND_ROWS]) for start in range(0, PERMUTATIONS, BAND_ROWS)]
    pairs = full[np.unique(np.concatenate(found), axis=0)] if len(full) else np.zeros((0, 2), np.int64)
    share = np.empty(len(pairs))
    for start in range(0, len(pairs), COMPARED_AT_A_TIME):
        part = slice(start, start + COMPARED_AT_A_TIME)
        share[part] = (S[pairs[part, 0]] == S[pairs[part, 1]]).mean(axis=1)
    pairs, share = pairs[share >= least], share[share >= least]
    linked = coo_array((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), (n, n))
    return NearDuplicates(pairs[:, 0], pairs[:, 1], share, connected_components(linked, directed=False)[1])


def groups_of_texts(texts: Sequence[str], contents: RowContents) -> Array:
    """Returns the first row (n,) of each text's group: of texts that are copies, or nearly the same with the same
    labels. Where texts are too many to compare, only copies count."""
    n, copies = len(texts), contents.first_copies()
    if n > MOST_TEXTS or sum(map(len, texts)) > MOST_CHARACTERS:
        return copies
    near = first_equal(find_near_duplicates(texts).group)
    near = np.where(np.bincount(near, minlength=n)[near] > max(2, LARGEST_SHARE * n), np.arange(n), near)
    ends = np.concatenate([contents.of_same_labels(near), copies])
    linked = coo_array((np.ones(2 * n, bool), (np.tile(np.arange(n), 2), ends)), (n, n))
    return first_equal(connected_components(linked, directed=False)[1])


def candidates(band: Array) -> Array:
    """Returns pairs (p, 2) of documents whose minima (n, BAND_ROWS) are all the same, the lower number first."""
    keys = np.zeros(len(band), np.uint64)
    for column in band.T:
        keys = (keys ^ column) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    begins = np.flatnonzero(np.append(True, ~same))
    first = np.repeat(begins, np.diff(np.append(begins, len(order))))[1:]
    before, one, other = order[:-1][same], order[first[same]], order[1:][same]
    return np.unique(np.concatenate([np.stack([before, other], 1), np.stack([one, other], 1)]), axis=0)


def signatures(texts: Sequence[str]) -> Array:
    """Returns the minima (n, PERMUTATIONS) of the hashes of each document's runs; all are the largest where it has no
    word."""
    encoded = [text.lower().encode("utf-8", "replace") for text in texts]
    ends = np.cumsum([0, *map(len, encoded)])
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 1 << 31, PERMUTATIONS, np.uint32) * np.uint32(2) + np.uint32(1)
    offsets = rng.integers(0, 1 << 32, PERMUTATIONS, np.uint32)
    least = np.full((len(texts), PERMUTATIONS), np.iinfo(np.uint32).max, np.uint32)
    add_minima(np.frombuffer(b"".join(encoded), np.uint8), ends, factors, offsets, least)
    return least


@compiled()
def add_minima(content: Array, ends: Array, factors: Array, offsets: Array, least: Array) -> None:
    """Puts the minima of the permuted hashes of each document's runs of words into `least` (n, PERMUTATIONS)."""
    prime = np.uint64(0x100000001B3)
    basis = np.uint64(0xCBF29CE484222325)
    for i in range(len(ends) - 1):
        words = 0
        h = basis  # of the word so far (FNV-1a)
        inside = False
        last, last_but_one = basis, basis
        for at in range(ends[i], ends[i + 1] + 1):
            byte = content[at] if at < ends[i + 1] else np.uint8(32)
            letter = byte >= 128 or 48 <= byte <= 57 or 97 <= byte <= 122
            begins = byte >= OWN_WORD  # a character that is a word of its own ends the one before it
            if inside and (begins or not letter):
                words += 1
                mixed = (last_but_one * prime + last) * prime + h
                mixed ^= mixed >> np.uint64(32)
                mixed *= np.uint64(0xD6E8FEB86659FD93)
                mixed ^= mixed >> np.uint64(32)
                if words >= RUN:
                    add_hash(np.uint32(mixed & np.uint64(0xFFFFFFFF)), factors, offsets, least[i])
                last_but_one, last = last, h
                h = basis
                inside = False
            if letter:
                h = (h ^ np.uint64(byte)) * prime
                inside = True
        if 0 < words < RUN:
            mixed = (last_but_one * prime + last) * prime
            mixed ^= mixed >> np.uint64(32)
            add_hash(np.uint32(mixed & np.uint64(0xFFFFFFFF)), factors, offsets, least[i])


@compiled()
def add_hash(x: Any, factors: Array, offsets: Array, least: Array) -> None:
    """Lowers the minima (PERMUTATIONS,) by the permutations of one hash."""
    for p in range(len(factors)):
        permuted = np.uint32(factors[p] * x + offsets[p])
        if permuted < least[p]:
            least[p] = permuted
