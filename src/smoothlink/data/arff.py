"""ARFF: mulan's (an XML says which attributes are labels) and MEKA's (`-C k` in @relation; k < 0: at the end).

Features: numbers stay numbers; {0,1} is 0 or 1; another attribute of two values is 0 for the first and 1 for the
second; one of more values becomes a column `name=value` for each. Zeros are not stored. In a sparse row an attribute
that is not named has, as ARFF says, the number 0 or the *first* of its values.
"""

import re
from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, hstack

from smoothlink.data.files_on_disk import bare_name, compressed_variants, load, replacing, shown
from smoothlink.data.matrices_from_rows import checked, csr, fits
from smoothlink.data.print_rows import Style, write_rows
from smoothlink.data.read import Data, Options
from smoothlink.errors import DataError

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_TOKEN = re.compile(rf"""{_QUOTED}|[^\s,{{}}'"][^\s,{{}}]*""")
# Spaces before an end are stripped later: to leave them out here would take the square of their number.
_DENSE_CELL = re.compile(rf"\s*(?:({_QUOTED})\s*|([^,]*))(,|\Z)".encode())
_SPARSE_CELL = re.compile(rf"\s+(?:({_QUOTED})\s*|([^,}}]*))(,|}}|\Z)".encode())
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
# Rows without quotes, words or nan, which Python reads fast.
_NUMERIC_DENSE = re.compile(rb"[-+.,\d\seE]+")
_NUMERIC_SPARSE = re.compile(rb"\{\s*\d{1,9}\s+[-+.\deE]+\s*(?:,\s*\d{1,9}\s+[-+.\deE]+\s*)*\}")
_MEKA = re.compile(r"(?:^|\s)-[Cc]\s+(-?\d{1,9})(?![\d.])")
IMPLIED_ONES, IMPLIED_ONES_PER_BYTE = 10_000_000, 8  # that sparse rows may leave out: so many, or for each byte
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class Attribute:
    """A line `@attribute name type` of the header."""

    def __init__(self, name: str, values: tuple[str, ...] | None) -> None:
        self.name, self.values = name, values  # None: a number
        self.is_binary = values is not None and set(values) <= {"0", "1"}
        self.is_nominal = values is not None and not self.is_binary

    @cached_property
    def columns(self) -> list[str]:
        """Returns the names of its columns in X."""
        if self.values is None or len(self.values) <= 2:
            return [self.name]
        return [f"{self.name}={value}" for value in self.values]

    @property
    def starts_with_one(self) -> bool:
        """Returns whether its first value, which sparse rows leave out, is a 1 in X."""
        return len(self.columns) > 1 or (self.is_binary and (self.values or ())[0] == "1")

    @cached_property
    def places(self) -> dict[str | float, int]:
        """Returns the place of each nominal value, by its word, and by its number where it is one."""
        places: dict[str | float, int] = {}
        for place, value in enumerate(self.values or ()):
            places.setdefault(value, place)
            if _NUMBER.fullmatch(value):
                places.setdefault(float(value), place)
        return places


class ArffRows(NamedTuple):
    """The cells of all rows; a nominal value is its place among those declared."""

    lines: NDArray[np.int64]  # (n,) the line in the file, from 1
    is_sparse: NDArray[np.bool_]  # (n,) the row is in braces: attributes it does not name have their first value
    row: NDArray[np.int64]  # of each cell
    attribute: NDArray[np.int32]
    value: NDArray[np.float32]


def read(path: str, options: Options) -> Data:
    """Returns the data of a file."""
    content = load(path).data.tobytes()
    lines = content.split(b"\n")
    relation, attributes, start = _read_header(path, lines)
    labels = _label_attributes(path, relation, attributes, options.labels_path)
    for label in labels:
        if attributes[label].is_nominal:
            possible = ",".join(attributes[label].values or ())[:100]
            raise DataError(
                f"{path}: label '{attributes[label].name}' has the values {{{possible}}}, only {{0,1}} can be read.\n"
                "Recode it, or pass the right XML with --labels-file."
            )
    rows = _read_rows(path, lines, start, attributes)
    ones = int(rows.is_sparse.sum()) * sum(attribute.starts_with_one for attribute in attributes)
    if ones > IMPLIED_ONES and ones > IMPLIED_ONES_PER_BYTE * len(content):
        what = f"its sparse rows leave out up to {ones:,} first values of attributes that are not 0."
        raise DataError(f"{path}: {what}\nPut a value first that most rows have, or write rows without braces.")
    is_label = np.zeros(len(attributes), np.bool_)
    is_label[labels] = True
    is_binary = is_label | np.array([attribute.is_binary for attribute in attributes], np.bool_)
    odd = np.flatnonzero(is_binary[rows.attribute] & (rows.value != 0) & (rows.value != 1))
    if len(odd):
        name, line = attributes[rows.attribute[odd[0]]].name, rows.lines[rows.row[odd[0]]]
        what = f"the value of '{name}' is {rows.value[odd[0]]:g}, neither 0 nor 1."
        raise _error(path, line, what, "Recode it, or declare it numeric if it is no label.")
    X, feature_names = _matrix(rows, attributes, np.flatnonzero(~is_label))
    Y, label_names = _matrix(rows, attributes, labels)
    return Data(X, Y, label_names, feature_names)


def write(data: Data, path: str) -> None:
    """Writes MEKA's sparse form, labels at the end. Nameless columns are called f0, f1, ... and l0, l1, ..."""
    d, c = data.X.shape[1], data.Y.shape[1]
    features = data.feature_names if data.feature_names is not None else [f"f{i}" for i in range(d)]
    labels = data.label_names if data.label_names is not None else [f"l{i}" for i in range(c)]
    both = checked(hstack([data.X, data.Y], format="csr"), "X and Y", binary=False)
    with replacing(path) as stream:
        stream.write(f"@relation 'data: -C {-c}'\n\n".encode())
        stream.write("".join(f"@attribute {_quoted(name)} numeric\n" for name in features).encode())
        stream.write("".join(f"@attribute {_quoted(name)} {{0,1}}\n" for name in labels).encode())
        stream.write(b"\n@data\n")
        style = Style(opening=b"{", after_labels=b"", between_features=b",", before_value=b" ", closing=b"}\n")
        none = csr(np.zeros(len(both.indptr), both.indptr.dtype), np.empty(0, np.int32), None, 0)
        write_rows(stream, both, none, style)


def _error(path: str, line: int, what: str, remedy: str) -> DataError:
    return DataError(f"{path}, line {line}: {what}\n{remedy}")


def _decoded(path: str, line: int, content: bytes) -> str:
    try:
        return content.decode().strip()
    except UnicodeDecodeError as e:
        raise _error(path, line, f"the text is not UTF-8 ({e.reason}).", "Save the file as UTF-8.") from e


def _unquoted(token: str) -> str:
    if len(token) < 2 or token[0] not in "'\"" or token[-1] != token[0]:
        return token
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), token[1:-1], flags=re.DOTALL)


def _quoted(name: str) -> str:
    for plain, escape in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        name = name.replace(plain, escape)
    return f"'{name}'"


# The header: attributes, and which of them are labels


def _read_header(path: str, lines: Sequence[bytes]) -> tuple[str, list[Attribute], int]:
    """Returns the relation, the attributes, and how many lines there are up to @data."""
    relation, attributes = "", list[Attribute]()
    for number, content in enumerate(lines, 1):
        line = _decoded(path, number, content)
        keyword = line.split(maxsplit=1)[0].lower() if line else ""
        if keyword == "@data":
            return relation, attributes, number
        if keyword == "@relation":
            relation = _unquoted(line[len(keyword) :].strip())
        elif keyword == "@attribute":
            attributes.append(_read_attribute(path, number, line[len(keyword) :]))
        elif keyword and not keyword.startswith("%"):
            raise _error(path, number, f"'{line[:40]}' is not a line of an ARFF header.", "Fix it, or pass --format.")
    raise DataError(f"{path}: there is no @data line.\nFetch the file again if it was cut short, or pass --format.")


def _read_attribute(path: str, line: int, content: str) -> Attribute:
    content = content.lstrip()
    token = _TOKEN.match(content)
    kind = content[token.end() :].strip() if token else ""
    if token is None or not kind:
        what = f"'{content.strip()[:40]}' is not a name and a type."
        raise _error(path, line, what, "Write @attribute name numeric.")
    name = _unquoted(token[0])
    if kind.split()[0].lower() in ("numeric", "real", "integer"):
        return Attribute(name, None)
    if not (kind.startswith("{") and kind.endswith("}")):
        remedy = "Only numeric, real, integer and {a,b,...} can be read: remove it, or turn it into numbers."
        raise _error(path, line, f"attribute '{name[:40]}' is of type '{kind[:40]}'.", remedy)
    values = tuple(_unquoted(value) for value in _TOKEN.findall(kind[1:-1]))
    if not values:
        raise _error(path, line, f"attribute '{name[:40]}' has no values.", "Write {a,b,...}.")
    return Attribute(name, values)


def _label_attributes(path: str, relation: str, attributes: list[Attribute], labels_path: str | None) -> list[int]:
    """Returns the numbers of the attributes that are labels: those of the XML, else as many as MEKA's -C says."""
    meka, size = _MEKA.search(relation), len(attributes)
    if labels_path is None and meka:
        count = int(meka[1])
        if abs(count) > size:
            what = f"-C {count} in @relation announces more labels than the {size} attributes."
            raise DataError(f"{path}: {what}\nFix the number; a negative one counts from the end.")
        return list(range(count)) if count >= 0 else list(range(size + count, size))
    xml = labels_path or _find_xml(path)
    if xml is None:
        raise DataError(
            f"{path}: nothing says which attributes are labels: no -C in @relation, no XML next to the file.\n"
            "Pass mulan's XML with --labels-file."
        )
    wanted, places = _xml_labels(xml), {attribute.name: i for i, attribute in enumerate(attributes)}
    missing = [name for name in wanted if name not in places]
    if missing:
        raise DataError(f"{xml}: there is no attribute {missing[0]!r} in {path}.\nPass the XML of the same data.")
    return sorted({places[name] for name in wanted})


def _find_xml(path: str) -> str | None:
    """Returns bibtex.xml for bibtex.arff, bibtex-train.arff, bibtex_test.arff.xz; else the only XML in the folder."""
    stem = Path(bare_name(path)).stem
    for name in dict.fromkeys((stem, re.sub(r"[-_.]?(train|test|valid)$", "", stem))):
        found = next(compressed_variants(Path(path).with_name(f"{name}.xml")), None)
        if found:
            return str(found)
    only = [p for p in Path(path).parent.iterdir() if bare_name(p).endswith(".xml") and p.is_file()]
    return str(only[0]) if len(only) == 1 else None


def _xml_labels(path: str) -> list[str]:
    content = load(path).data.tobytes()
    try:
        if b"<!DOCTYPE" in (letters := content.replace(b"\0", b"")) or b"<!ENTITY" in letters:  # of UTF-16 too
            raise ValueError("it declares entities, which are not read")
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as e:
        raise DataError(f"{path}: this is not mulan's XML of labels: {e}.\nPass another --labels-file.") from e
    names = [e.attrib["name"] for e in root.iter() if e.tag.rpartition("}")[2] == "label" and "name" in e.attrib]
    if not names:
        raise DataError(f'{path}: the XML names no labels.\nWrite <labels><label name="..."></label>...</labels>.')
    return names


# The rows


def _read_rows(path: str, lines: Sequence[bytes], start: int, attributes: list[Attribute]) -> ArffRows:
    width, nominal = len(attributes), any(attribute.is_nominal for attribute in attributes)
    numbers, is_sparse, counts = array("q"), array("b"), array("q")
    named, values = array("i"), array("d")
    for number, content in enumerate(lines[start:], start + 1):
        line = content.strip()
        if not line or line.startswith(b"%"):
            continue
        cells = None if nominal else _numeric_row(line, width)
        places, found = cells or _any_row(path, number, line, attributes)
        named.extend(places)
        values.extend(found)
        counts.append(len(found))
        numbers.append(number)
        is_sparse.append(line.startswith(b"{"))
    return ArffRows(
        np.array(numbers, np.int64),
        np.array(is_sparse, np.bool_),
        np.repeat(np.arange(len(counts)), np.array(counts, np.int64)),
        np.array(named, np.int32),
        np.array(values, np.float32),
    )


def _numeric_row(line: bytes, width: int) -> tuple[Sequence[int], list[float]] | None:
    """Returns the attributes of a row of nothing but numbers, and their values; None where it is anything else."""
    places: Sequence[int] = range(width)
    try:
        if _NUMERIC_SPARSE.fullmatch(line):
            cells = line[1:-1].replace(b",", b" ").split()
            places, values = list(map(int, cells[::2])), list(map(float, cells[1::2]))
            sound = max(places) < width and len(set(places)) == len(places)
        elif _NUMERIC_DENSE.fullmatch(line):
            values = list(map(float, line.split(b",")))
            sound = len(values) == width
        else:
            return None
    except ValueError:
        return None
    return (places, values) if sound and fits(max(values)) and fits(min(values)) else None


def _any_row(path: str, number: int, line: bytes, attributes: list[Attribute]) -> tuple[Sequence[int], list[float]]:
    """Returns the attributes that a row names, and their values; raises an error that says what is wrong with it."""
    width = len(attributes)
    if not line.startswith(b"{"):
        words = [_word(cell) for cell in _DENSE_CELL.finditer(line) if cell[0] or line.endswith(b",")]
        if len(words) != width:
            what = f"the row does not have the {width} values that the header announces."
            raise _error(path, number, what, "Give one value for each @attribute, or use sparse rows {0 1, 3 0.5}.")
        return range(width), [_value(path, number, *cell) for cell in zip(words, attributes, strict=True)]
    places, values, end, form = list[int](), list[float](), 1, "Write sparse rows as {0 1, 3 0.5}."
    closed = re.match(rb"\{\s*\}", line)
    while not closed:
        index = re.compile(rb"\s*(\d*)").match(line, end)
        assert index is not None  # it matches nothing at all, too
        cell = _SPARSE_CELL.match(line, index.end())
        if cell is None or not index[1]:
            word = shown(line[index.start(1) : index.start(1) + 30])
            raise _error(path, number, f"'{word}' is not `index value`.", form)
        if len(index[1]) > 10 or int(index[1]) >= width:
            what = f"attribute {shown(index[1])} is outside 0..{width - 1}."
            raise _error(path, number, what, "Declare it with @attribute, or fix the index.")
        places.append(int(index[1]))
        values.append(_value(path, number, _word(cell), attributes[places[-1]]))
        end = cell.end()
        if cell[3] != b",":
            closed = cell if cell[3] else None
            break
    if not closed or closed.end() != len(line):
        raise _error(path, number, "a sparse row does not end with }.", form)
    if len(set(places)) < len(places):
        raise _error(path, number, "an attribute is twice in this row.", "Name each once per row.")
    return places, values


def _word(cell: re.Match[bytes]) -> bytes:
    return cell[1] if cell[1] is not None else cell[2].rstrip()


def _value(path: str, line: int, content: bytes, attribute: Attribute) -> float:
    """Returns a cell's number, or the place of its nominal value."""
    raw = _decoded(path, line, content)
    word, is_number = _unquoted(raw), _NUMBER.fullmatch(raw)
    if attribute.is_nominal:
        found = attribute.places.get(float(raw) if is_number else word)
        if found is not None:
            return found
        if word == "?":
            raise _error(path, line, f"'{attribute.name}' is missing (?).", "Fill missing values in first.")
        what = f"'{word[:40]}' is not a value of attribute '{attribute.name}'."
        raise _error(path, line, what, f"Possible are {{{','.join(attribute.values or ())[:100]}}}.")
    if word == "?":
        what = f"the value of attribute '{attribute.name}' is missing (?)."
        raise _error(path, line, what, "Missing values cannot be read: fill them in first.")
    if not _NUMBER.fullmatch(word):
        what = f"'{word[:40]}' is not a number, as attribute '{attribute.name}' wants."
        raise _error(path, line, what, "Values must be finite numbers, written as 1, -0.5 or 2.5e-3.")
    if not fits(float(word)):
        raise _error(path, line, f"the value {word[:40]} is too large.", "Values go up to 3.4e38.")
    return float(word)


def _matrix(rows: ArffRows, attributes: list[Attribute], wanted: Iterable[int]) -> tuple[csr_array, list[str]]:
    """Returns the columns of some attributes, and their names."""
    names: list[str] = []
    first, is_wanted = np.zeros(len(attributes), np.int64), np.zeros(len(attributes), np.bool_)
    several = np.array([len(attribute.columns) > 1 for attribute in attributes], np.bool_)
    for i in wanted:
        first[i], is_wanted[i] = len(names), True
        names += attributes[i].columns
    implied = np.flatnonzero(is_wanted & np.array([attribute.starts_with_one for attribute in attributes], np.bool_))
    place = np.full(len(attributes), -1)
    place[implied] = np.arange(len(implied))
    left_out = np.repeat(rows.is_sparse[:, None], len(implied), axis=1)
    named = place[rows.attribute] >= 0
    left_out[rows.row[named], place[rows.attribute[named]]] = False
    silent, which = np.nonzero(left_out)
    kept = is_wanted[rows.attribute]
    owner, value = rows.attribute[kept], rows.value[kept]
    columns = first[owner] + np.where(several[owner], value, 0).astype(np.int64)
    places = np.hstack([np.stack([rows.row[kept], columns]), np.stack([silent, first[implied[which]]])])
    value = np.where(several[owner], np.float32(1), value)
    value = np.concatenate([value, np.ones(places.shape[1] - len(value), np.float32)])
    matrix = coo_array((value, tuple(places)), shape=(len(rows.lines), len(names))).tocsr()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return csr(matrix.indptr, matrix.indices, matrix.data, len(names)), names
