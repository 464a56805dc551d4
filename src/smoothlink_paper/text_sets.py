"""Text sets of the experiments: labelled lines in one of three forms -> TF-IDF rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.data.files_on_disk import load
from smoothlink.data.read import Data
from smoothlink.errors import DataError
from smoothlink_paper.data_sets import ENDINGS, Split

Array = NDArray[Any]
MARK = "__label__"


class LabelledText(NamedTuple):
    """One line of a file: a text with its labels."""

    labels: list[str]
    text: str


class Form(NamedTuple):
    """How the files of a set are written."""

    parse: Callable[[str], LabelledText]
    line: str  # what a line looks like
    ending: str = ".tsv"
    listed: bool = False  # labels are ids, and labels.tsv (id, URI, name, ...) lists them

    @property
    def parts(self) -> dict[str, str]:
        """Returns the names of the files that must be there, by what they hold."""
        files = {"train": f"train{self.ending}", "test": f"test{self.ending}"}
        return files | ({"labels": "labels.tsv"} if self.listed else {})


def parse_by_id(line: str) -> LabelledText:
    ids, _, text = line.partition("\t")
    return LabelledText([i for i in ids.split(",") if i.strip()], text)


def parse_described(line: str, only: str = "") -> LabelledText:
    """Returns the text of a line of four columns; of its labels those that begin with `only`."""
    columns = line.split("\t")
    if len(columns) != 4:
        raise DataError(f"a line has {len(columns)} columns, not 4.\nIt begins: {line[:60]}")
    _, labels, short, long = columns
    return LabelledText([name for name in labels.split(",") if name and name.startswith(only)], f"{short} {long}")


def parse_marked(line: str) -> LabelledText:
    """Returns the text of a line of fastText's form."""
    words = line.split()
    return LabelledText(
        [word.removeprefix(MARK) for word in words if word.startswith(MARK)],
        " ".join(word for word in words if not word.startswith(MARK)),
    )


BY_ID = Form(parse_by_id, "`label ids,comma` TAB `text`", listed=True)
FORMS = {
    "yso-finna-en": BY_ID,
    "debtags": Form(parse_described, "`package` TAB `tags,comma` TAB `short` TAB `long description`"),
    "cooking-stackexchange": Form(parse_marked, f"`{MARK}x {MARK}y text`", ".txt"),
    "reuters21578": Form(partial(parse_described, only="topics:"), "`id` TAB `labels,comma` TAB `title` TAB `body`"),
}


def find_text(folder: Path, name: str) -> dict[str, Path]:
    """Returns the files of a set, plain or compressed: those that exist."""
    parts = FORMS.get(name, BY_ID).parts
    paths = {part: [folder / name / f"{file}{ending}" for ending in ENDINGS] for part, file in parts.items()}
    return {part: path for part, among in paths.items() for path in among if path.exists()}


def vectorised(folder: Path, name: str, rows: int | None = None) -> Split:
    """Returns TF-IDF of the words of each text, fitted to the training rows, in unit rows; labels by their ids.

    Labels that are not listed anywhere are numbered in the order of their names, those of the test rows included.
    `rows` takes only as many lines of each part.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    form, paths = FORMS.get(name, BY_ID), all_files(folder, name)
    train, test = (list(islice(read_texts(paths[part], form), rows)) for part in ("train", "test"))
    if form.listed:
        names = [line.split("\t")[2] for line in lines(paths["labels"])]
        numbers = {str(i): i for i in range(len(names))}
    else:
        names = sorted({label for row in (*train, *test) for label in row.labels})
        numbers = {label: i for i, label in enumerate(names)}
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    X = words.fit_transform(row.text for row in train)
    X_test = words.transform(row.text for row in test)
    features = words.get_feature_names_out().tolist()
    parts = ((X, train, paths["train"]), (X_test, test, paths["test"]))
    return Split(*(Data(tidy(M), indicator(part, numbers, path), names, features) for M, part, path in parts))


def all_files(folder: Path, name: str) -> dict[str, Path]:
    """Returns all files of a set; where one is absent, raises an error that says what goes where."""
    form, paths = FORMS.get(name, BY_ID), find_text(folder, name)
    for part, file in form.parts.items():
        if part not in paths:
            listing = " and labels.tsv (id, URI, name)" if form.listed else ""
            raise DataError(
                f"{name}/{file} is not in {folder}.\n"
                f"Put train{form.ending} and test{form.ending} ({form.line}){listing} in {name}/, plain or compressed."
            )
    return paths


def read_texts(path: Path, form: Form) -> Iterator[LabelledText]:
    for line in lines(path):
        try:
            yield form.parse(line)
        except DataError as error:
            raise DataError(f"{path}: {error}\nA line is {form.line}.") from error


def lines(path: Path) -> Iterator[str]:
    """Yields the lines of a file that are not blank."""
    for line in load(str(path)).data.tobytes().decode().split("\n"):
        if line.strip():
            yield line.rstrip("\r")


def tidy(X: Any) -> sp.csr_array:
    """Returns a CSR array with sorted 32-bit columns."""
    A = sp.csr_array(X)
    A.sort_indices()
    return A


def indicator(rows: list[LabelledText], numbers: dict[str, int], path: Path) -> sp.csr_array:
    """Returns Y (n, c) of the labels of each row."""
    try:
        ids = [sorted({numbers[label.strip()] for label in row.labels}) for row in rows]
    except KeyError as error:
        outside = f"label {error.args[0]} is outside 0..{len(numbers) - 1}"
        raise DataError(f"{path}: {outside}.\nList every label in labels.tsv.") from error
    ptr = np.cumsum([0, *map(len, ids)])
    indices = np.fromiter((i for row in ids for i in row), np.int32, int(ptr[-1]))
    return sp.csr_array((np.ones(len(indices), np.float32), indices, ptr.astype(np.int32)), (len(rows), len(numbers)))
