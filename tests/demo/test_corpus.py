"""The demo's corpus: sensible sizes, known documents, nothing private, nothing imported, the same every time."""

import gc
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smoothlink.demo import corpus as module
from smoothlink.demo.corpus import Corpus, Document, build_corpus

SOURCE = '''
"""The docstring of the module itself."""
def dumps(obj):
    """Serialize an object, in two
       lines of text."""
    def inner():
        """A function inside a function is not public."""
def short():
    """Too short."""
def _private():
    """The docstring of a private function."""
class _Hidden:
    """The docstring of a private class."""
    def method(self):
        """The docstring of its method."""
class JSONDecoder:
    """The docstring of a class."""
    async def raw_decode(self):
        """The docstring of a method."""
    def _scan(self):
        """The docstring of a private method."""
try:
    import fast
except ImportError:
    def slow():
        """Defined where an import fails."""
if True:
    add_newdoc("numpy", "absolute", """
        Added to a function in C.
        """)
add_newdoc("gamma", "Added with no place given.")
add_newdoc("numpy", "flatiter", ("base", "Added to an attribute."))
add_newdoc("numpy", "dtype", [("kind", "Added from a list of pairs."), ("_x", "Added to a private attribute.")])
add_newdoc("numpy", "_hidden", "Added to a private function.")
add_newdoc("numpy", "computed", "Made when %s." % "run")
add_newdoc("numpy", "number", 3)
print("neither of the above")
'''
FOUND = {
    "dumps": "Serialize an object, in two\nlines of text.",
    "short": "Too short.",
    "JSONDecoder": "The docstring of a class.",
    "JSONDecoder.raw_decode": "The docstring of a method.",
    "slow": "Defined where an import fails.",
    "absolute": "Added to a function in C.",
    "gamma": "Added with no place given.",
    "flatiter.base": "Added to an attribute.",
    "dtype.kind": "Added from a list of pairs.",
}


@pytest.fixture(scope="module")
def built() -> Corpus:
    return build_corpus()


def labels_of(built: Corpus, name: str) -> set[str]:
    row = built.labels[[built.names.index(name)]]
    return {built.label_names[j] for j in row.indices}


def digest(built: Corpus) -> str:
    arrays = [built.labels.indptr.tolist(), built.labels.indices.tolist()]
    return hashlib.sha256(repr([built.texts, built.label_names, arrays, built.names]).encode()).hexdigest()


def test_sizes_are_those_of_a_demo_and_every_label_has_five_documents(built):
    n, c = built.labels.shape
    assert 5_000 <= n <= 12_000
    assert 200 <= c <= 1_500
    assert len(built.texts) == len(built.names) == n
    assert len(built.label_names) == c
    assert built.labels.dtype == np.float32
    assert set(built.labels.data) == {1.0}
    assert built.labels.has_canonical_format
    assert built.labels.sum(axis=1).min() >= 1
    assert built.labels.sum(axis=0).min() >= 5


def test_no_label_or_name_is_private_or_a_test(built):
    parts = {part for name in built.names for part in name.split(".")}
    assert not [part for part in parts if part.startswith("_")]
    assert not {"test", "tests", "conftest", "externals", "idlelib", "array_api_compat"} & set(built.label_names)


def test_names_are_sorted_and_texts_distinct(built):
    assert built.names == sorted(set(built.names))
    assert len(set(built.texts)) == len(built.texts)
    assert min(len(text) for text in built.texts) >= module.SHORTEST


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("json.dumps", {"json"}),
        ("numpy.ndarray", {"numpy"}),
        ("scipy.sparse.linalg.spsolve", {"scipy", "sparse", "linalg"}),
        ("scipy.special.comb", {"scipy", "special"}),
        ("sklearn.linear_model.LogisticRegression", {"sklearn", "linear_model"}),
    ],
)
def test_known_objects_have_the_labels_of_their_modules(built, name, labels):
    assert labels_of(built, name) == labels


def test_text_starts_with_the_words_of_the_name_without_the_module(built):
    text = dict(zip(built.names, built.texts, strict=True))
    assert text["sklearn.linear_model.LogisticRegression"].startswith("Logistic Regression\nLogistic Regression (aka")
    assert module._text(Document(("json",), ("JSONDecoder", "raw_decode"), "Doc.")) == "JSON Decoder raw decode\nDoc."
    assert module._text(Document(("json",), (), "Doc.")) == "Doc."


@pytest.mark.slow
def test_another_process_imports_nothing_and_finds_the_same(built):
    script = f"""
import sys
from smoothlink.demo.corpus import build_corpus
before = set(sys.modules)
built = build_corpus()
print([name for name in set(sys.modules) - before if name.split(".")[0] in {module.PACKAGES}])
sys.path.insert(0, {str(Path(__file__).parent)!r})
from {Path(__file__).stem} import digest
print(digest(built))
"""
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["[]", digest(built)]


def test_a_file_gives_its_public_docstrings_only(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    found = {document.name: document.docstring for document in module._read(path, ("pkg", "_private", "inner"))}
    assert found == {f"pkg.{name}": docstring for name, docstring in FOUND.items()}
    public = {document.name: document.docstring for document in module._read(path, ("pkg", "open"))}
    assert public.pop("pkg.open") == "The docstring of the module itself."
    assert public == {f"pkg.open.{name}": docstring for name, docstring in FOUND.items()}


@pytest.mark.parametrize("content", [b"def f(:\n", b"'''\xff\xfe'''\n", b"x = 1\x00\n"])
def test_a_file_that_does_not_parse_gives_nothing(tmp_path, content):
    path = tmp_path / "broken.py"
    path.write_bytes(content)
    assert list(module._read(path, ("broken",))) == []
    assert list(module._read(tmp_path / "absent.py", ("absent",))) == []


def test_files_below_a_folder_leave_out_tests_and_vendored_code(tmp_path):
    inside = [
        "__init__.py",
        "a.py",
        "_b/c.py",
        "tests/t.py",
        "externals/e.py",
        "conftest.py",
        "test_x.py",
        "no-name/d.py",
    ]
    for name in inside:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = {parts for parts, _ in module._files_below(tmp_path, ("pkg",))}
    assert found == {("pkg",), ("pkg", "a"), ("pkg", "_b", "c")}
    assert list(module._files_below(tmp_path / "absent", ("pkg",))) == []


def test_one_document_stands_for_each_name_and_each_docstring():
    long, other = "A docstring that is long enough.", "Another docstring, longer than the first."
    documents = [
        Document(("b",), ("g",), long + "\n"),
        Document(("a",), ("f",), long),
        Document(("c",), ("h",), long + " "),
        Document(("c",), ("h",), other),
        Document(("d",), ("i",), "Too short."),
    ]
    assert [(document.name, document.docstring) for document in module._distinct(documents)] == [
        ("a.f", long),
        ("c.h", other),
    ]


def test_methods_are_the_first_to_go_and_the_order_stays():
    functions = [Document(("m",), (f"f{i}",), "Doc.") for i in range(5)]
    methods = [Document(("m",), ("C", f"g{i}"), "Doc.") for i in range(5)]
    documents = sorted(functions + methods)
    kept = module._sample(documents, 7)
    assert set(functions) < set(kept)
    assert len(kept) == 7
    assert kept == [document for document in documents if document in kept]
    assert set(module._sample(documents, 3)) < set(functions)


def test_min_documents_decides_which_labels_and_rows_stay():
    documents = [Document(("p", "q"), (f"f{i}",), f"The docstring of function {i}.") for i in range(3)]
    documents.append(Document(("r",), ("g",), "The docstring of another function."))
    assert build_corpus(3, documents).label_names == ["p", "q"]
    assert build_corpus(3, documents).names == ["p.q.f0", "p.q.f1", "p.q.f2"]
    assert build_corpus(1, documents).labels.toarray().tolist() == [[1, 1, 0]] * 3 + [[0, 0, 1]]


def test_the_garbage_collector_is_left_as_it_was():
    with module._quick_and_quiet():
        assert not gc.isenabled()
        with module._quick_and_quiet():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
