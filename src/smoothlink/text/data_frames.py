"""Columns of tables in memory (pandas, polars, pyarrow, Hugging Face datasets, dicts of columns) -> texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

from smoothlink.errors import DataError
from smoothlink.text.label_cells import text_of


class TextColumns(NamedTuple):
    """Texts, and the columns that they are from."""

    texts: Iterable[Any]
    columns: tuple[str, ...]  # none where no name came with them


def column_names(given: Any) -> list[Any] | None:
    """Returns the names of the columns of a table; None where it is none."""
    if isinstance(given, Mapping):
        return list(given)
    if not hasattr(given, "__getitem__"):
        return None
    # pyarrow's `columns` are the columns themselves, so its names come first.
    names = getattr(given, "column_names", None)
    if names is None:
        names = getattr(given, "columns", None)
    return None if names is None or callable(names) else list(names)


def list_names(names: Iterable[Any]) -> str:
    """Returns some names as they are shown in a message."""
    first = [f"{name!s:.30}" for name in islice(names, 21)]
    return ", ".join([*first[:20], *(["..."] if len(first) > 20 else [])])


def values_of(column: Any) -> Any:
    """Returns the values of a column as Python's, which pyarrow does not iterate over."""
    return column.to_pylist() if hasattr(column, "to_pylist") else column


def ranked_frame(
    labels: list[Any], probabilities: list[float], ptr: Sequence[int], like: Any, names: list[str] | None
) -> Any:
    """Returns a data frame of lists of labels, their names if any and probabilities, one row between two of `ptr`.

    It is one of polars where `like` is, else one of pandas with the index of `like`.
    """
    given = {"labels": labels, "names": names, "probabilities": probabilities}
    columns = {name: [values[i:j] for i, j in pairwise(ptr)] for name, values in given.items() if values is not None}
    library = type(like).__module__.partition(".")[0]
    if library == "polars":
        import polars

        return polars.DataFrame(columns)
    try:
        import pandas
    except ImportError as error:
        raise DataError("as_frame=True needs pandas, or texts of polars.\nType: pip install pandas") from error
    return pandas.DataFrame(columns, index=like.index if library == "pandas" else None)


def read_texts(given: Any, trained: Sequence[str]) -> TextColumns:
    """Returns the texts in a list, a column or a table: of a table those in the columns that a model was trained on.

    Where the columns are not known they must be one.
    """
    names = column_names(given)
    if names is None:
        if getattr(given, "ndim", 1) != 1:
            shape = " x ".join(map(str, given.shape))
            raise DataError(
                f"An array of {shape} values came where a list of texts belongs.\nPass one text for each row."
            )
        name = getattr(given, "name", None)  # of a pandas or polars series
        return TextColumns(values_of(given), (name,) if isinstance(name, str) else ())
    place = {str(name): name for name in names}
    came = f"A table with the columns {list_names(names)} came" if names else "A table without columns came"
    if len(place) < len(names):
        raise DataError(f"{came}, some of them with the same name.\nRename them, or pass a list of texts.")
    missing = [name for name in trained if name not in place]
    if missing:
        raise DataError(
            f"{came}, and the model was trained on the text in {list_names(trained)}.\n"
            f"Pass a table with {'these columns' if len(trained) > 1 else 'this column'}, or a list of texts."
        )
    if not trained and len(names) != 1:
        choice = f"Pass one of its columns, such as table[{names[0]!r}]" if names else "Pass a list of texts"
        raise DataError(f"{came}, and it is not known which of them holds the text.\n{choice}.")
    columns = tuple(trained or place)
    values = {name: values_of(given[place[name]]) for name in columns}
    for name, column in values.items():
        if isinstance(column, str | bytes) or not isinstance(column, Iterable):
            what = f"{column!r:.60}, of type {type(column).__name__}"
            raise DataError(
                f"The column {name} of a table holds {what}, where a list of texts belongs.\n"
                "If the table is one document, pass its text in a list: [text]."
            )
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name}: {n}" for name, n in lengths.items())
        raise DataError(f"The columns of a table have different lengths ({counts}).\nPass columns of one length.")
    rows = enumerate(zip(*values.values(), strict=True))
    where, remedy = list_names(columns), "Pass columns of text."
    return TextColumns([text_of(row, f"Row {i} of {where}", remedy) for i, row in rows], columns)
