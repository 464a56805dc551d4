"""Real data sets in small files, for a machine that has nothing but what is sent to it: NAME.npz, exact.

Columns are stored as differences within a row, byte by byte, which compress better; values as numbers of the distinct
ones. Words of titles are counted, not weighed: TF-IDF is made of the counts again, the same to the last bit. Pairs of
words that follow each other are in a file of their own, NAME-pairs.npz.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bench.circumstances import ROOT
from smoothlink.data.read import Data
from smoothlink.errors import DataError
from smoothlink_paper.data_sets import Split, load
from smoothlink_paper.large_sets import without_names
from smoothlink_paper.text_sets import FORMS, all_files, read_texts, tidy, vectorised

Array = NDArray[Any]

SETS = ("yso-finna-en", "aloi", "bibtex", "delicious")
PARTS = ("train", "test")
PAIRED = ("yso-finna-en",)  # sets of which pairs are counted too
PAIR_ROWS, PAIR_WEIGHT = 3, 0.5  # rows that a pair is in at least, and its weight beside that of a word


def data_folder(given: str | None) -> Path:
    """The folder of the data sets: the one given, $SMOOTHLINK_DATA, or the one that is shared beside this project."""
    return Path(given or os.environ.get("SMOOTHLINK_DATA") or ROOT.parent / "shared" / "data")


def rows_of(folder: Path, name: str) -> Split:
    """A data set from its small file, or from the files it was made of."""
    path = folder / f"{name}.npz"
    if path.exists():
        return unpacked(path)
    if not (folder / name).exists():
        raise DataError(
            f"The data set {name} is not here: neither {name}.npz nor a folder {name}.\n"
            "Pass --data FOLDER; python benchmarks/gpu.py pack --to FOLDER makes small files to take along."
        )
    return original(folder, name)


def paired(folder: Path, name: str) -> Split:
    """A data set of titles whose features are words and pairs of words that follow each other, in unit rows."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.preprocessing import normalize

    split, path = rows_of(folder, name), folder / f"{name}-pairs.npz"
    if path.exists():
        with np.load(path) as file:
            pairs = [restored(file, part) for part in PARTS]
    else:
        pairs = word_counts(folder, name, pairs=True)
    words = unweighed(folder, name)
    tfidf = [TfidfTransformer(sublinear_tf=True, norm=None).fit(counts[0]) for counts in (words, pairs)]
    Xs = []
    for part in range(len(PARTS)):
        found = [weigh.transform(counts[part]) for weigh, counts in zip(tfidf, (words, pairs), strict=True)]
        X = sp.hstack([found[0], PAIR_WEIGHT * found[1]], format="csr", dtype=np.float32)
        Xs.append(tidy(normalize(X)))
    return Split(*(part._replace(X=X, feature_names=None) for part, X in zip(split, Xs, strict=True)))


def unweighed(folder: Path, name: str) -> list[sp.csr_array]:
    """Counts of words, from the small file or from the texts."""
    path = folder / f"{name}.npz"
    if not path.exists():
        return word_counts(folder, name)
    with np.load(path) as file:
        return [restored(file, f"{part}_X") for part in PARTS]


def original(folder: Path, name: str) -> Split:
    """A data set from the files it comes in."""
    return without_names(vectorised(folder, name) if name in FORMS else load(folder, name))


def pack(folder: Path, name: str, to: Path) -> Path:
    """Writes NAME.npz."""
    split = original(folder, name)
    counts = word_counts(folder, name) if name in FORMS else None
    arrays: dict[str, Any] = {"counted": np.array(counts is not None)}
    if counts is not None and not all(same(*pair) for pair in zip(weighed(counts), (p.X for p in split), strict=True)):
        raise DataError(f"TF-IDF of {name} is not what its counts give: look at smoothlink_paper.text_sets.")
    for i, (part, rows) in enumerate(zip(PARTS, split, strict=True)):
        arrays |= stored(f"{part}_X", rows.X if counts is None else counts[i]) | stored(f"{part}_Y", rows.Y)
    to.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(to / f"{name}.npz", **arrays)
    if name in PAIRED:
        followed: dict[str, Any] = {}
        for part, A in zip(PARTS, word_counts(folder, name, pairs=True), strict=True):
            followed |= stored(part, A)
        np.savez_compressed(to / f"{name}-pairs.npz", **followed)
    return to / f"{name}.npz"


def unpacked(path: Path) -> Split:
    with np.load(path) as file:
        Xs, Ys = ([restored(file, f"{part}_{M}") for part in PARTS] for M in "XY")
        return Split(*map(Data, weighed(Xs) if file["counted"] else Xs, Ys))


def word_counts(folder: Path, name: str, *, pairs: bool = False) -> list[sp.csr_array]:
    """How often each word is in each text, of the words that `vectorised` weighs; or each pair of words."""
    from sklearn.feature_extraction.text import CountVectorizer

    form, paths = FORMS[name], all_files(folder, name)
    choice: dict[str, Any] = {"min_df": PAIR_ROWS, "ngram_range": (2, 2)} if pairs else {"min_df": 2}
    words = CountVectorizer(dtype=np.float32, **choice)
    train, test = ((row.text for row in read_texts(paths[part], form)) for part in PARTS)
    return [tidy(words.fit_transform(train)), tidy(words.transform(test))]


def weighed(counts: list[sp.csr_array]) -> list[sp.csr_array]:
    """Sublinear TF-IDF in unit rows, as `vectorised` makes it."""
    from sklearn.feature_extraction.text import TfidfTransformer

    weights = TfidfTransformer(sublinear_tf=True).fit(counts[0])
    return [tidy(weights.transform(part)) for part in counts]


def same(A: sp.csr_array, B: sp.csr_array) -> bool:
    return A.shape == B.shape and all(
        np.array_equal(getattr(A, x), getattr(B, x)) for x in ("indptr", "indices", "data")
    )


def stored(key: str, A: sp.csr_array) -> dict[str, Array]:
    """The arrays of a sparse matrix with sorted columns."""
    A = tidy(A)
    steps = np.diff(A.indices, prepend=0)
    firsts = A.indptr[:-1][np.diff(A.indptr) > 0]
    steps[firsts] = A.indices[firsts]
    values, which = np.unique(A.data.astype(np.float32), return_inverse=True)
    return {
        f"{key}_shape": np.array(A.shape),
        f"{key}_lengths": small(np.diff(A.indptr)),
        f"{key}_steps": np.ascontiguousarray(steps.astype("<u4").view(np.uint8).reshape(-1, 4).T),
        f"{key}_values": values,
        f"{key}_which": small(which),
    }


def small(numbers: Array) -> Array:
    """The same numbers, none of them negative, in the shortest type that holds them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def restored(file: Any, key: str) -> sp.csr_array:
    """The matrix of what `stored` made."""
    lengths = file[f"{key}_lengths"].astype(np.int32)
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    steps = np.ascontiguousarray(file[f"{key}_steps"].T).view("<u4").ravel().astype(np.int64)
    total = np.cumsum(steps)
    before = np.concatenate([[0], total])[ptr[:-1]]  # what the rows above add up to
    indices = (total - np.repeat(before, lengths)).astype(np.int32)
    data = file[f"{key}_values"][file[f"{key}_which"]]
    return sp.csr_array((data, indices, ptr), tuple(int(side) for side in file[f"{key}_shape"]))
