"""The types of what the public functions take."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.classifier import TextSmoothLink


class Frame(Protocol):
    """A table with named columns: pandas or polars."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, name: Any, /) -> Any: ...


class ColumnStore(Protocol):
    """A table with named columns: pyarrow or Hugging Face datasets."""

    @property
    def column_names(self) -> Any: ...

    def __getitem__(self, name: Any, /) -> Any: ...


FilePath: TypeAlias = str | os.PathLike[str]
FilePaths: TypeAlias = FilePath | Sequence[FilePath]  # an asterisk in a name fits anything
Table: TypeAlias = Frame | ColumnStore | Mapping[str, Sequence[Any]]
Texts: TypeAlias = Iterable[str] | Table  # one text for each document, or a table with columns of text
Matrix: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix  # (n, d) numbers, dense or sparse
Targets: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix  # (n,) class ids, or a 0/1 matrix (n, c), dense or sparse
Labels: TypeAlias = Sequence[str] | Sequence[Sequence[str]] | Matrix | Table  # names of each document, or a 0/1 matrix
LabelMatrix: TypeAlias = NDArray[Any] | sp.csr_array  # (n, c) 0/1, or (n,) class ids, as the labels were in training
Weights: TypeAlias = ArrayLike  # (n,) one for each row
RowGroups: TypeAlias = Iterable[Any]  # (n,) one value for each row, the same for rows that belong together
Seed: TypeAlias = int | np.random.RandomState
FittedModel: TypeAlias = "SmoothLinkClassifier | TextSmoothLink"
