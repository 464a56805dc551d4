"""Text sets of the experiments: lines `label ids TAB text` -> TF-IDF rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.errors import DataError
from smoothlink.experiments.data import ENDINGS, Split
from smoothlink.steps.formats._files import load
from smoothlink.steps.read import Data

Array = NDArray[Any]
PARTS = ("train", "test", "labels")


def find_text(folder: Path, name: str) -> dict[str, Path]:
    """NAME/train.tsv, test.tsv and labels.tsv, plain or compressed: those that exist."""
    paths = {part: [folder / name / f"{part}.tsv{ending}" for ending in ENDINGS] for part in PARTS}
    return {part: path for part, among in paths.items() for path in among if path.exists()}


def vectorised(folder: Path, name: str, rows: int | None = None) -> Split:
    """TF-IDF of the words of each text, fitted to the training rows, in unit rows; labels by their ids.

    `rows` takes only as many lines of each part. labels.tsv (id, URI, name, ...) says how many labels there are.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    paths = find_text(folder, name)
    if missing := [part for part in PARTS if part not in paths]:
        raise DataError(
            f"{name}/{missing[0]}.tsv is not in {folder}.\n"
            f"Put train.tsv and test.tsv (`label ids,comma` TAB `text`) and labels.tsv (id, URI, name) in {name}/, "
            "plain or compressed."
        )
    names = [line.split("\t")[2] for line in lines(paths["labels"])]
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    train, test = (list(islice(lines(paths[part]), rows)) for part in ("train", "test"))
    X = words.fit_transform(texts(train))
    X_test = words.transform(texts(test))
    features = words.get_feature_names_out().tolist()
    parts = ((X, train, paths["train"]), (X_test, test, paths["test"]))
    return Split(*(Data(tidy(M), labels(said, len(names), path), names, features) for M, said, path in parts))


def lines(path: Path) -> Iterator[str]:
    """The lines of a file that say something."""
    for line in load(str(path)).data.tobytes().decode().split("\n"):
        if line.strip():
            yield line.rstrip("\r")


def texts(said: list[str]) -> Iterator[str]:
    return (line.partition("\t")[2] for line in said)


def tidy(X: Any) -> sp.csr_array:
    """CSR with sorted 32-bit columns."""
    A = sp.csr_array(X)
    A.sort_indices()
    return A


def labels(said: list[str], c: int, path: Path) -> sp.csr_array:
    """Y (n, c) of the ids before the tab."""
    ids = [sorted({int(i) for i in line.partition("\t")[0].split(",") if i.strip()}) for line in said]
    ptr = np.cumsum([0, *map(len, ids)])
    indices = np.fromiter((i for row in ids for i in row), np.int64, int(ptr[-1]))
    if len(indices) and not 0 <= indices.min() <= indices.max() < c:
        raise DataError(f"{path}: label {indices.max()} is outside 0..{c - 1}.\nList every label in labels.tsv.")
    return sp.csr_array(
        (np.ones(len(indices), np.float32), indices.astype(np.int32), ptr.astype(np.int32)), (len(said), c)
    )
