"""ARFF: mulan's (an XML says which attributes are labels) and MEKA's (`-C k` in @relation; k < 0: at the end).

Features: numbers stay numbers; {0,1} is 0 or 1; another attribute of two values is 0 for the first and 1 for the
second; one of more values becomes a column `name=value` for each. Zeros are not stored. In a sparse row an attribute
that is not named has, as ARFF says, the number 0 or the *first* of its values.
"""

import re

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, hstack

from smoothlink.data import arff_cells as _cells
from smoothlink.data.arff_attributes import Attribute, header, label_attributes, quoted, unquoted
from smoothlink.data.arff_cells import Cells
from smoothlink.data.byte_parser import order_rows
from smoothlink.data.files_on_disk import Text, load, replacing, shown
from smoothlink.data.matrices_from_rows import checked, csr, fits
from smoothlink.data.print_rows import Style, write_rows
from smoothlink.data.read import Data, Options
from smoothlink.errors import DataError

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_CELL = re.compile(rb"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,}]*""")


def read(path: str, options: Options) -> Data:
    text = load(path)
    head = header(text)
    labels = label_attributes(text, head, options.labels_path)
    cells = _parsed(text, head.end, head.attributes)
    values = _encoded(text, cells, head.attributes)
    is_label = np.zeros(len(head.attributes), np.bool_)
    is_label[labels] = True
    _check_binary(text, cells, values, head.attributes, is_label)
    X, feature_names = _matrix(cells, values, head.attributes, ~is_label)
    Y, label_names = _matrix(cells, values, head.attributes, is_label)
    return Data(X, Y, label_names, feature_names)


def write(data: Data, path: str) -> None:
    """MEKA's sparse form, labels at the end. Nameless columns are called f0, f1, ... and l0, l1, ..."""
    d, c = data.X.shape[1], data.Y.shape[1]
    features = data.feature_names if data.feature_names is not None else [f"f{i}" for i in range(d)]
    labels = data.label_names if data.label_names is not None else [f"l{i}" for i in range(c)]
    both = checked(hstack([data.X, data.Y], format="csr"), "X and Y", binary=False)
    with replacing(path) as stream:
        stream.write(f"@relation 'data: -C {-c}'\n\n".encode())
        stream.write("".join(f"@attribute {quoted(name)} numeric\n" for name in features).encode())
        stream.write("".join(f"@attribute {quoted(name)} {{0,1}}\n" for name in labels).encode())
        stream.write(b"\n@data\n")
        style = Style(opening=b"{", after_labels=b"", between_features=b",", before_value=b" ", closing=b"}\n")
        none = csr(np.zeros(len(both.indptr), both.indptr.dtype), np.empty(0, np.int32), None, 0)
        write_rows(stream, both, none, style)


def _parsed(text: Text, start: int, attributes: list[Attribute]) -> Cells:
    cells = _cells.parse_cells(text.data, start, len(attributes))
    place = cells.place
    word = shown(text.slice(place, min(place + 30, text.end_of_line(place))))
    match cells.code:
        case _cells.BAD_INDEX:
            raise text.error(place, f"'{word}' is not `index value`.", "Write sparse rows as {0 1, 3 0.5}.")
        case _cells.INDEX_RANGE:
            what = f"attribute {word.split()[0]} is outside 0..{len(attributes) - 1}."
            raise text.error(place, what, "Declare it with @attribute, or fix the index.")
        case _cells.NOT_CLOSED:
            raise text.error(place, "a sparse row does not end with }.", "Write sparse rows as {0 1, 3 0.5}.")
        case _cells.WRONG_COUNT:
            what = f"the row does not have the {len(attributes)} values that the header announces."
            raise text.error(place, what, "Give one value for each @attribute, or use sparse rows {0 1, 3 0.5}.")
    row = order_rows(cells.ptr, cells.attributes.copy(), cells.values.copy())
    if row >= 0:
        raise text.error(int(cells.starts[row]), "an attribute stands twice in this row.", "Name each once a row.")
    return cells


def _encoded(text: Text, cells: Cells, attributes: list[Attribute]) -> Floats:
    """The cells as numbers; a choice is the place of its value among those declared."""
    values, words = cells.values.copy(), iter(cells.words)
    is_choice = np.array([attribute.is_choice for attribute in attributes], np.bool_)
    tables = [_table(attribute) for attribute in attributes]
    for i in np.flatnonzero(np.isnan(values) | is_choice[cells.attributes]):
        number = int(cells.attributes[i])
        if np.isnan(values[i]):
            place = int(next(words))
            word = _word(text, place)
            found = tables[number].get(word) if is_choice[number] else _number(text, place, word, attributes[number])
        else:
            place, word = _line_of(cells, int(i)), f"{values[i]:g}"
            found = tables[number].get(float(values[i]))
        if found is None:
            raise _not_declared(text, place, word, attributes[number])
        values[i] = found
    return values


def _table(attribute: Attribute) -> dict[str | float, float]:
    """A choice's values, as words and as numbers where they are numbers -> their places."""
    table: dict[str | float, float] = {}
    for place, value in enumerate(attribute.values or ()):
        table.setdefault(value, place)
        if _NUMBER.fullmatch(value):
            table.setdefault(float(np.float32(value)), place)
    return table


def _word(text: Text, place: int) -> str:
    line = text.slice(place, text.end_of_line(place))
    found = _CELL.match(line)
    assert found is not None  # it matches nothing at all, too
    try:
        return unquoted(found[0].strip().decode())
    except UnicodeDecodeError as e:
        raise text.error(place, f"the text is not UTF-8 ({e.reason}).", "Save the file as UTF-8.") from e


def _number(text: Text, place: int, word: str, attribute: Attribute) -> float:
    """A cell that the parser left open: a long number, or none."""
    if word == "?":
        what = f"the value of attribute '{attribute.name}' is missing (?)."
        raise text.error(place, what, "Missing values cannot be read: fill them in first.")
    if not _NUMBER.fullmatch(word):
        what = f"'{word[:40]}' is not a number, as attribute '{attribute.name}' wants."
        raise text.error(place, what, "Values must be finite numbers, written as 1, -0.5 or 2.5e-3.")
    if not fits(float(word)):
        raise text.error(place, f"the value {word[:40]} is too large.", "Values go up to 3.4e38.")
    return float(word)


def _not_declared(text: Text, place: int, word: str, attribute: Attribute) -> DataError:
    if word == "?":
        return text.error(place, f"'{attribute.name}' is missing (?).", "Fill missing values in first.")
    possible = ",".join(attribute.values or ())
    what = f"'{word[:40]}' is not a value of attribute '{attribute.name}'."
    return text.error(place, what, f"Possible are {{{possible[:100]}}}.")


def _line_of(cells: Cells, i: int) -> int:
    return int(cells.starts[np.searchsorted(cells.ptr, i, side="right") - 1])


def _check_binary(text: Text, cells: Cells, values: Floats, attributes: list[Attribute], is_label: Flags) -> None:
    """Labels, and attributes declared {0,1}, are 0 or 1."""
    for attribute, label in zip(attributes, is_label, strict=True):
        if label and attribute.is_choice:
            possible = ",".join(attribute.values or ())[:100]
            raise DataError(
                f"{text.path}: label '{attribute.name}' has the values {{{possible}}}, only {{0,1}} can be read.\n"
                "Recode it, or pass the right XML with --labels-file."
            )
    binary = is_label | np.array([attribute.is_binary for attribute in attributes], np.bool_)
    odd = np.flatnonzero(binary[cells.attributes] & (values != 0) & (values != 1))
    if len(odd):
        name = attributes[cells.attributes[odd[0]]].name
        what = f"the value of '{name}' is {values[odd[0]]:g}, neither 0 nor 1."
        raise text.error(_line_of(cells, int(odd[0])), what, "Recode it, or declare it numeric if it is no label.")


def _matrix(cells: Cells, values: Floats, attributes: list[Attribute], chosen: Flags) -> tuple[csr_array, list[str]]:
    """The columns of the chosen attributes, and their names."""
    names: list[str] = []
    base, spread = np.zeros(len(attributes), np.int64), np.zeros(len(attributes), np.bool_)
    for i in np.flatnonzero(chosen):
        columns = attributes[i].columns
        base[i], spread[i] = len(names), len(columns) > 1
        names += columns
    kept = chosen[cells.attributes]
    owner, value = cells.attributes[kept], values[kept]
    rows = np.repeat(np.arange(len(cells.starts)), np.diff(cells.ptr))[kept]
    places = base[owner] + np.where(spread[owner], value, 0).astype(np.int64)
    value = np.where(spread[owner], np.float32(1), value)
    extra_rows, extra_places = _left_out(cells, attributes, chosen, base)
    matrix = coo_array(
        (
            np.concatenate([value, np.ones(len(extra_rows), np.float32)]),
            (np.concatenate([rows, extra_rows]), np.concatenate([places, extra_places])),
        ),
        shape=(len(cells.starts), len(names)),
    ).tocsr()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return csr(matrix.indptr, matrix.indices, matrix.data, len(names)), names


def _left_out(cells: Cells, attributes: list[Attribute], chosen: Flags, base: Ints) -> tuple[Ints, Ints]:
    """Rows and columns of the ones that sparse rows do not name: an attribute's first value, where it is not 0."""
    rows, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    needed = [i for i in np.flatnonzero(chosen) if len(attributes[i].columns) > 1 or attributes[i].first_is_one]
    if needed and cells.is_sparse.any():
        shape = (len(cells.starts), len(attributes))
        named = csr(cells.ptr, cells.attributes, None, shape[1]).tocsc()
        for i in needed:
            silent = cells.is_sparse.copy()
            silent[named.indices[named.indptr[i] : named.indptr[i + 1]]] = False
            rows.append(np.flatnonzero(silent))
            places.append(np.full(len(rows[-1]), base[i]))
    return np.concatenate(rows), np.concatenate(places)
