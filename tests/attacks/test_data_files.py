"""Hostile data files, each with its verdict: refused with these words, or read as these rows."""

import io
import json
import re
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hostile import COMPRESS, archive, limited, npy, npy_of

from smoothlink.data.read import read
from smoothlink.errors import DataError
from smoothlink.text.documents import DocumentSource, read_documents

ONE = "1 1 1\n0 0:1\n"  # one row, with one feature and one label
ROW = ([[1.0]], [[0]])  # which is read as its features and labels


def matrices(**changed):
    """The arrays of an .npz with ONE."""
    one = {"data": np.ones(1, np.float32), "indices": np.zeros(1, np.int32), "indptr": [0, 1], "shape": [1, 1]}
    sound = {f"{letter}_{name}.npy": npy_of(array) for letter in "XY" for name, array in one.items()}
    given = {f"{name}.npy": npy_of(value) for name, value in changed.items() if not isinstance(value, bytes)}
    return sound | given | {f"{name}.npy": value for name, value in changed.items() if isinstance(value, bytes)}


def encrypted(content):
    """A zip archive whose entries say that they are encrypted."""
    made = bytearray(content)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for found in re.finditer(re.escape(mark), content):
            made[found.start() + place] |= 1
    return bytes(made)


def twice(name):
    """A zip archive that holds an entry twice."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as target, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry, content in [*matrices().items(), (name, npy_of([7.0]))]:
            target.writestr(entry, content)
    return made.getvalue()


SHAPE = "{{'descr': '<f4', 'fortran_order': False, 'shape': ({},)}}"
ARFF = "@relation 'r: -C 1'\n@attribute l {0,1}\n@attribute f numeric\n@data\n"
MULAN = "@relation r\n@attribute l {0,1}\n@attribute f numeric\n@data\n1,1\n"
LAUGHS = "<!DOCTYPE l [" + "".join(f"<!ENTITY a{i} '{f'&a{i - 1};' * 10}'>" for i in range(1, 10)) + "]><l>&a9;</l>"
NOT_ARCHIVE, NOT_MATRIX = "is not a complete .npz archive of plain arrays", "does not hold a sound sparse matrix"

# Format -> case -> the file (or several by name), and the words of its refusal, or what it is read as.
NUMBERS = {
    "xmc": {
        "a sound file": (ONE, ROW),
        "line ends of Windows": (ONE.replace("\n", "\r\n"), ROW),
        "a byte order mark": ("\ufeff" + ONE, ROW),
        "blank lines behind the rows": (ONE + "\n\n\n", ROW),
        "no line end": (ONE[:-1], ROW),
        "a line end of old Macs": (ONE.replace("\n", "\r"), "is not a header"),
        "zeros behind the rows": (ONE.encode() + bytes(9), "is neither a label id nor a feature"),
        "a negative number of rows": ("-1 1 1\n0 0:1\n", "is not a header"),
        "a number of rows with a fraction": ("1.0 1 1\n0 0:1\n", "is not a header"),
        "rows beyond 64 bits": ("99999999999999999999 1 1\n0 0:1\n", "is not a header"),
        "rows that are not there": ("999999999999999999 1 1\n0 0:1\n", "rows, the file has 1"),
        "no columns": ("1 0 0\n0 0:1\n", "label 0 is outside 0..-1"),
        "digits of another script": ("1 1 1\n\u0660 0:1\n", "is neither a label id"),
        "a full-width colon": ("1 1 1\n0 0\uff1a1\n", "is not a feature"),
        "a hexadecimal value": ("1 1 1\n0 0:0x1\n", "'0x1' in '0:0x1' is not a number"),
        "a value of a million digits": (f"1 1 1\n0 0:{'9' * 10**6}\n", "is too large"),
        "a value of a million decimals": (f"1 1 1\n0 0:1.{'0' * 10**6}\n", ROW),
        "an id of a million digits": (f"1 1 1\n0 {'9' * 10**6}:1\n", "is outside 0..0"),
        "an id of a million zeros": (f"1 1 1\n0 {'0' * 10**6}:1\n", ROW),
        "an id that wraps around 32 bits": ("1 1 1\n0 4294967296:1\n", "feature 4294967296 is outside 0..0"),
        "an id that wraps around 64 bits": ("1 1 1\n0 18446744073709551616:1\n", "is outside 0..0"),
        "a label that wraps around 32 bits": ("1 1 1\n4294967296 0:1\n", "label 4294967296 is outside 0..0"),
        "a minus zero": ("1 1 1\n0 0:-0\n", ([[0.0]], [[0]])),
        "two rows in one line": ("2 1 1\n0 0:1 0 0:1\n", "'0' is not a feature"),
        "a comment": ("1 1 1\n0 0:1 # a\n", "'#' is not a feature"),
        "an escape": ("1 1 1\n\x1b[2J 0:1\n", r"'\x1b[2J' is neither a label id"),
        "a script": ("#!/bin/sh\nrm -rf /\n", "is not a header"),
        "a pickle": (b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00.", "is not a header"),
        "names of another number": ({"a.txt": ONE, "labels.txt": "a\nb\n"}, ROW),
        "names that are not UTF-8": ({"a.txt": ONE, "labels.txt": b"\xff\n"}, "line 1: the name is not UTF-8"),
        "a labels file that is not asked for": ({"a.txt": ONE, "labels.txt": b""}, ROW),
    },
    "xmc-new": {
        "a sound pair": ({"a_Xf.txt": "1 1\n0:1\n", "a_Y.txt": "1 1\n0:1\n"}, ROW),
        "labels that point at themselves": ({"a_Xf.txt": "1 1\n0:1\n"}, "the half with the labels was not found"),
        "labels that are weights": ({"a_Xf.txt": "1 1\n0:1\n", "a_Y.txt": "1 1\n0:2\n"}, "has the value 2"),
        "labels of another number of rows": ({"a_Xf.txt": "1 1\n0:1\n", "a_Y.txt": "2 1\n0:1\n\n"}, "announces 1 rows"),
        "labels that are compressed": ({"a_Xf.txt": "1 1\n0:1\n", "a_Y.txt.gz": COMPRESS["gz"](b"1 1\n0:1\n")}, ROW),
    },
    "svmlight": {
        "a label that is no number": ("x 1:1\n", "'x' is neither a label id"),
        "a label with an exponent": ("1e5 1:1\n", "'1e5' is neither a label id"),
        "a minus label": ("-1 1:1\n", "label -1 is negative"),
        "a query without a number": ("0 qid: 1:1\n", ROW),
        "only comments": ("# a\n# b\n", ([], [])),
        "the largest id": ("0 2147483647:1\n", "feature 2147483647 is outside 0..2147483646"),
        "a feature twice": ("0 1:1 1:1\n", "feature 1 is twice in this row"),
        "features out of order": ("0 2:1 1:1\n", ([[1, 1]], [[0]])),
    },
    "vw": {
        "no bar": ("1 a\n", "the line has no bar"),
        "costs": ("1:0.5 | a\n", "is not a list of labels"),
        "a feature without a name": ("1 | :1\n", "is a feature without a name"),
        "a weight of nan": ("1 nan | a\n", "is not a finite 32-bit number"),
        "values whose product is too large": ("1 |n:1e30 a:1e30\n", "is not a finite 32-bit number"),
        "values whose sum is too large": ("1 | a:3e38 a:3e38\n", "sum to more than 3.4e38"),
        "a label twice": ("1,1 | a\n", "a label is twice"),
        "a tag without a space": ("1| a\n", "touches the bar"),
        "bytes that are not UTF-8": (b"1 | \xff\n", "the text is not UTF-8"),
        "an empty namespace": ("0 | a\n", ROW),
    },
    "arff": {
        "a sound file": (ARFF + "1,1\n", ROW),
        "no @data": ("@relation 'r: -C 1'\n", "there is no @data line"),
        "a missing value": (ARFF + "1,?\n", "is missing (?)"),
        "an infinite value": (ARFF + "1,inf\n", "'inf' is not a number"),
        "a value too large": (ARFF + "1,1e39\n", "is too large"),
        "an attribute twice in a row": (ARFF + "{1 1, 1 2}\n", "an attribute is twice in this row"),
        "an attribute that is not there": (ARFF + "{9 1}\n", "attribute 9 is outside 0..1"),
        "an attribute of a million digits": (ARFF + "{" + "9" * 10**6 + " 1}\n", "is outside 0..1"),
        "a row that does not end": (ARFF + "{1 1\n", "does not end with }"),
        "a row of too few values": (ARFF + "1\n", "does not have the 2 values"),
        "more labels than attributes": (ARFF.replace("-C 1", "-C 3") + "1,1\n", "announces more labels than the 2"),
        "a type that is not read": ("@relation 'r: -C 1'\n@attribute a string\n@data\n", "is of type 'string'"),
        "an attribute without a type": ("@relation 'r: -C 1'\n@attribute a\n@data\n", "is not a name and a type"),
        "two attributes of one name": (ARFF.replace(" f ", " l ") + "1,1\n", ROW),
        "a label of three values": ({"a.arff": ARFF.replace("{0,1}", "{a,b,c}") + "a,1\n"}, "only {0,1} can be read"),
        "no labels at all": (MULAN, "nothing says which attributes are labels"),
        "labels in XML": ({"a.arff": MULAN, "a.xml": '<labels><label name="l"/></labels>'}, ROW),
        "a billion laughs": ({"a.arff": MULAN, "a.xml": LAUGHS}, "it declares entities, which are not read"),
        "an external entity": (
            {"a.arff": MULAN, "a.xml": '<!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/passwd">]><l>&x;</l>'},
            "it declares entities, which are not read",
        ),
        "XML in UTF-16 with entities": ({"a.arff": MULAN, "a.xml": LAUGHS.encode("utf-16")}, "the text is UTF-16"),
        "XML that is nested deep": ({"a.arff": MULAN, "a.xml": "<l>" * 10**5}, "this is not mulan's XML of labels"),
        "XML of an unknown encoding": (
            {"a.arff": MULAN, "a.xml": '<?xml version="1.0" encoding="x-no"?><labels/>'},
            "this is not mulan's XML of labels",
        ),
        "a label that is no attribute": (
            {"a.arff": MULAN, "a.xml": '<labels><label name="x"/></labels>'},
            "there is no attribute 'x'",
        ),
    },
    "npz": {
        "a sound file": (archive(matrices()), ROW),
        "names": (archive(matrices(label_names=np.frombuffer(b'["a"]', np.uint8))), ROW),
        "a pickled array": (archive(matrices(X_data=np.array([{}], object))), NOT_ARCHIVE),
        "a lone array": (npy_of([1.0]), NOT_ARCHIVE),
        "an entry that is no array": (archive(matrices() | {"X_data.npy": b"text"}), "no array X_data"),
        "a path that leads out": (archive(matrices() | {"../../evil.npy": npy_of([1])}), ROW),
        "an entry twice": (twice("X_data.npy"), ([[7.0]], [[0]])),
        "an encrypted archive": (encrypted(archive(matrices())), NOT_ARCHIVE),
        "an archive cut short": (archive(matrices())[:-30], NOT_ARCHIVE),
        "an archive within an archive": (archive({"X.npy": archive(matrices())}), "no array Y_data|holds one matrix"),
        "a compressed archive": (COMPRESS["gz"](archive(matrices())), ROW),
        "an empty archive": (archive({}), "holds one matrix, and the labels were not found"),
        "an array that announces 4 GB": (archive(matrices(X_data=npy(SHAPE.format(10**9)))), NOT_ARCHIVE),
        "an array that announces 4 EB": (archive(matrices(X_data=npy(SHAPE.format(10**18)))), NOT_ARCHIVE),
        "an array of a negative size": (archive(matrices(X_data=npy(SHAPE.format(-1)))), NOT_ARCHIVE),
        "a header that calls": (archive(matrices(X_data=npy("__import__('os').abort()"))), NOT_ARCHIVE),
        "a header of 60 kB": (archive(matrices(X_data=npy("[" * 60_000))), NOT_ARCHIVE),
        "an index out of range": (archive(matrices(X_indices=[1])), NOT_MATRIX),
        "a negative index": (archive(matrices(X_indices=[-1])), NOT_MATRIX),
        "an index that wraps around 32 bits": (archive(matrices(X_indices=[2**32])), NOT_MATRIX),
        "an index of an unsigned type": (archive(matrices(X_indices=np.array([2**64 - 1], np.uint64))), NOT_MATRIX),
        "indices with fractions": (archive(matrices(X_indices=[0.0])), NOT_MATRIX),
        "pointers that fall": (archive(matrices(X_indptr=[0, 2, 1], X_shape=[2, 1])), NOT_MATRIX),
        "pointers too few": (archive(matrices(X_indptr=[0])), NOT_MATRIX),
        "pointers that begin elsewhere": (archive(matrices(X_indptr=[1, 1])), NOT_MATRIX),
        "fewer values than indices": (archive(matrices(X_data=np.zeros(0, np.float32))), NOT_MATRIX),
        "a shape of three": (archive(matrices(X_shape=[1, 1, 1])), NOT_MATRIX),
        "a negative shape": (archive(matrices(X_shape=[-1, -1])), NOT_MATRIX),
        "a shape of nan": (archive(matrices(X_shape=[np.nan, 1])), NOT_MATRIX),
        "a shape beyond 32 bits": (archive(matrices(X_shape=[1, 2**40])), NOT_MATRIX),
        "an entry of a row twice": (
            archive(matrices(X_indices=[0, 0], X_indptr=[0, 2], X_data=np.ones(2, np.float32))),
            "holds an entry twice",
        ),
        "nan": (archive(matrices(X_data=np.array([np.nan], np.float32))), "values must be finite"),
        "infinity after rounding": (archive(matrices(X_data=np.array([1e300]))), "values must be finite"),
        "labels that are weights": (archive(matrices(Y_data=np.array([0.5]))), "a label is there (1) or not (0)"),
        "more labels than rows": (
            archive(matrices(Y_indptr=[0, 1, 1], Y_shape=[2, 1])),
            "X has 1 rows, Y 2",
        ),
        "names of another number": (
            archive(matrices(label_names=np.frombuffer(b'["a", "b"]', np.uint8))),
            "label_names is not a list of 1 names",
        ),
        "names that are numbers": (archive(matrices(label_names=np.frombuffer(b"[1]", np.uint8))), "is not a list"),
        "names that are nested deep": (
            archive(matrices(label_names=np.frombuffer(b"[" * 10**5, np.uint8))),
            "holds label_names that are not UTF-8 JSON",
        ),
        "another form of matrix": (archive(matrices(format=np.array(b"coo"))), "its form is 'coo'"),
        "no labels": (archive({"X.npy": npy_of([[1.0]])}), "no array Y_data"),
        "three dimensions": (archive({"X.npy": npy_of([[[1.0]]]), "Y.npy": npy_of([[1.0]])}), "X has 3 dimensions"),
    },
}  # fmt: skip
COLUMNS = '{"text": "a", "labels": ["b"]}'
READ = (["a"], [["b"]])
TEXTS = {
    "jsonl": {
        "a sound file": (COLUMNS, READ),
        "UTF-16": (COLUMNS.encode("utf-16"), READ),
        "UTF-32": (COLUMNS.encode("utf-32"), READ),
        "a key twice": ('{"text": "x", "text": "a", "labels": ["b"]}', READ),
        "a list": (f"[{COLUMNS}]", READ),
        "a list of lists": ("[[1]]", "an object is wanted"),
        "a number": ("1", "an object is wanted"),
        "an object that does not end": ('{"text": "a"', "line 1: this is not JSON"),
        "a number of 5,000 digits": ('{"text": ' + "1" * 5000 + "}", "this is not JSON"),
        "a text that is an object": ('{"text": {"a": 1}, "labels": ["b"]}', "the text is a dict"),
        "a text that is true": ('{"text": true, "labels": ["b"]}', "the text is a bool"),
        "labels that are objects": ('{"text": "a", "labels": [{}]}', "is a dict"),
        "labels that are true": ('{"text": "a", "labels": [true]}', "is a bool"),
        "labels that are nan": ('{"text": "a", "labels": NaN}', "no row has a label"),
        "bytes that are not UTF-8": (b'{"text": "\xff"}', "the byte 0xff is not UTF-8"),
        "zeros": (bytes(100), "not UTF-8 text"),
        "a pickle": (b"\x80\x04\x95.", "the byte 0x80 is not UTF-8"),
        "an object without fields": ("{}\n{}", "has no columns: its rows have no fields"),
        "names of columns that are escapes": ('{"\\u001b[2J": 1}', "has no column text"),
    },
    "csv": {
        "a sound file": ("text,labels\na,b\n", READ),
        "quotes that do not end": ('text,labels\n"a,b\n', "Mend the quotes"),
        "text behind quotes": ('text,labels\n"a"x,b\n', "Mend the quotes"),
        "a row too long": ("text,labels\na,b,c\n", "3 cells, where the first line has 2"),
        "a cell of a million letters": (f"text,labels\n{'a' * 10**6},b\n", (["a" * 10**6], [["b"]])),
        "two columns of one name": ("text,text,labels\na,a,b\n", "has several columns text"),
        "100,000 columns": ("text,labels" + ",x" * 10**5 + "\na,b" + "," * 10**5 + "\n", READ),
        "a formula": ("text,labels\n=1+1,b\n", (["=1+1"], [["b"]])),
        "a header alone": ("text,labels\n", "has no rows"),
        "zeros within": ("text,labels\na\0,b\n", "not UTF-8 text"),
        "a line of separators": (f"text,labels\na,{'|' * 1000}b\n", "it is not clear whether '|' separates|" + "b"),
    },
    "xlsx": {
        "no archive": (b"PK\x03\x04" + bytes(50), "the XLSX file cannot be read"),
        "an archive of something else": (archive({"a.txt": b"a"}), "the XLSX file cannot be read"),
        "an old workbook": (b"\xd0\xcf\x11\xe0" + bytes(500), "is an old .xls, or has a password"),
        "a workbook without sheets": (
            archive({"[Content_Types].xml": b"<Types/>", "xl/workbook.xml": b"<workbook/>"}),
            "the XLSX file cannot be read",
        ),
        "a billion laughs": (
            archive({"[Content_Types].xml": LAUGHS.encode(), "xl/workbook.xml": LAUGHS.encode()}),
            "the XLSX file cannot be read",
        ),
    },
    "parquet": {
        "nothing but a mark": (b"PAR1", "the Parquet file cannot be read"),
        "a footer that announces 4 GB": (b"PAR1" + b"\xff\xff\xff\xffPAR1", "the Parquet file cannot be read"),
        "an encrypted footer": (b"PARE" + bytes(20) + b"\x08\x00\x00\x00PARE", "the Parquet file cannot be read"),
        "a footer of zeros": (b"PAR1" + bytes(100) + b"\x40\x00\x00\x00PAR1", "the Parquet file cannot be read"),
    },
    "fasttext": {
        "a sound file": ("__label__b a\n", READ),
        "a mark without a name": ("__label__ a\n", "no row has a label"),
        "marks alone": ("__label__b\n", ([""], [["b"]])),
    },
}  # fmt: skip
SUFFIX = {"xmc": "a.txt", "xmc-new": "a_Xf.txt", "svmlight": "a.svm"}


def cases(table):
    return [
        pytest.param(kind, files, verdict, id=f"{kind}: {case}")
        for kind, found in table.items()
        for case, (files, verdict) in found.items()
    ]


@pytest.fixture(scope="module", autouse=True)
def ready(tmp_path_factory):
    """Readers that are compiled and imported."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("openpyxl")
    folder = tmp_path_factory.mktemp("ready")
    (folder / "a.txt").write_text(ONE)
    read(folder / "a.txt")


def put(folder, kind, files):
    """Writes the files of a case; returns the path of the first."""
    given = files if isinstance(files, dict) else {SUFFIX.get(kind, f"a.{kind}"): files}
    for name, content in given.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(folder / next(iter(given)))


def judged(use, verdict):
    """What was read; None where it was refused with the words of the verdict."""
    found = refused = None
    with limited():
        try:
            found = use()
        except DataError as error:
            refused = str(error)
    assert refused is None or (isinstance(verdict, str) and len(refused) < 1000), refused
    assert refused is None or any(words in refused for words in verdict.split("|")), refused
    return found


@pytest.mark.parametrize(("kind", "files", "verdict"), cases(NUMBERS))
def test_a_file_of_numbers_is_refused_in_words_or_read(tmp_path, kind, files, verdict):
    path = put(tmp_path, kind, files)
    data = judged(lambda: read(path, format=kind), verdict)
    if data is not None:
        labels = [data.Y.indices[a:b].tolist() for a, b in zip(data.Y.indptr[:-1], data.Y.indptr[1:], strict=True)]
        assert (data.X.toarray().tolist(), labels) == verdict
    assert not Path(tmp_path.parent, "evil.npy").exists()


@pytest.mark.parametrize(("kind", "files", "verdict"), cases(TEXTS))
def test_a_file_of_texts_is_refused_in_words_or_read(tmp_path, kind, files, verdict):
    path = put(tmp_path, kind, files)
    found = judged(lambda: read_documents(path, DocumentSource(kind)), verdict)
    if found is not None and not isinstance(verdict, str):
        assert (found.texts, found.labels) == verdict
    elif found is not None:
        assert found.labels == [[verdict.split("|")[-1]]]


def file(name, content):
    """Returns a function that writes a file in a folder: its bytes, its text or an array."""
    made = content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else npy_of(content)
    return lambda folder: (folder / name).write_bytes(made)


def header(**changes):
    """Returns a function that changes a header."""

    def change(folder):
        known = json.loads((folder / "header.json").read_text())
        (folder / "header.json").write_text(json.dumps(known | changes))

    return change


def replaced(name, make):
    """Returns a function that puts something else in the place of a file."""

    def replace(folder):
        (folder / name).unlink()
        make(folder / name)

    return replace


def f4(*values):
    return np.array(values, np.float32)


def i4(*values):
    return np.array(values, np.int32)


OBJECTS = npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(8))
NO_ROW, CHECKSUM, NO_ARRAY = "hold what no row can have", "does not match its checksum", "not as it should be"
FOLDERS = {
    "no header": (lambda folder: (folder / "header.json").unlink(), "is a folder, not a file"),
    "a header of another format": (file("header.json", '{"format": "x"}'), "cannot be read"),
    "a header that is a list": (file("header.json", "[]"), "cannot be read"),
    "a header of a newer version": (header(version=2), "this smoothlink reads 1"),
    "a header with a negative size": (header(rows=-1), "does not describe a data folder"),
    "a header with a size that is true": (header(rows=True), "does not describe a data folder"),
    "a header with other sizes": (header(rows=7), CHECKSUM),
    "a header with checksums that are a list": (header(crc32=[]), "does not describe a data folder"),
    "a header that is not UTF-8": (file("header.json", b"\xff"), "cannot be read"),
    "an array that is gone": (lambda folder: (folder / "x_data.npy").unlink(), NO_ARRAY),
    "an array that is empty": (file("x_data.npy", b""), NO_ARRAY),
    "an array that is a folder": (replaced("x_data.npy", Path.mkdir), NO_ARRAY),
    "an array that leads nowhere": (replaced("x_data.npy", lambda path: path.symlink_to("/nowhere/at/all")), NO_ARRAY),
    "an array of another type": (file("x_data.npy", [1.0]), "it is not one list"),
    "an array of objects": (file("x_data.npy", OBJECTS), "it is not one list"),
    "an array of two dimensions": (file("x_data.npy", [f4(1)]), "it is not one list"),
    "an array that is longer": (file("x_data.npy", npy_of(f4(1)) + b"1234"), "it was cut short"),
    "an array with another value": (file("x_data.npy", f4(2)), CHECKSUM),
    "an array with nan": (file("x_data.npy", f4(np.nan)), NO_ROW),
    "an index out of range": (file("x_indices.npy", i4(1)), NO_ROW),
    "a negative index": (file("y_indices.npy", i4(-1)), NO_ROW),
    "pointers that fall": (file("x_indptr.npy", [1, 0]), "do not fit the header"),
    "names of another number": (file("label_names.json", '["a", "b"]'), "is not a list of 1 names"),
    "other names": (file("label_names.json", '["b"]'), CHECKSUM),
    "names that are not UTF-8": (file("label_names.json", b'["\xff"]'), "the names cannot be read"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_data_folder_that_is_not_as_it_was_written_is_refused(tmp_path, case):
    from smoothlink.data.read import write

    harm, words = FOLDERS[case]
    (tmp_path / "a.txt").write_text(ONE)
    write(read(tmp_path / "a.txt")._replace(label_names=["a"], feature_names=["b"]), tmp_path / "a.sl")
    harm(tmp_path / "a.sl")
    assert judged(lambda: read(tmp_path / "a.sl"), words) is None
