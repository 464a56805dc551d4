"""A many-label corpus from the docstrings of Python, NumPy, SciPy and scikit-learn, read from their sources.

A document is the docstring of a public module, class, function or method, with the object's own name in front; its
labels are the parts of the public path of its module: `scipy.sparse.linalg.spsolve` has scipy, sparse and linalg.
The sources are parsed, never imported, so building the corpus runs none of their code.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import inspect
import json
import re
import sysconfig
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from smoothlink.data.files_on_disk import replacing

PACKAGES = ("numpy", "scipy", "sklearn")
TESTS = {"test", "tests", "testing", "_testing", "testutils", "_testutils", "conftest"}
VENDORED = {"externals", "_external", "_vendor", "_vendored", "vendored", "array_api_compat", "array_api_extra"}
TOOLS = {"_build_utils", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "setup", "turtledemo"}
LEFT_OUT = TESTS | VENDORED | TOOLS | {"_lib", "__main__", "__pycache__"}  # folders and modules
SHORTEST = 20  # characters in a docstring worth reading
MOST_DOCUMENTS = 8000  # for a demo that trains in under a minute on two cores


class Corpus(NamedTuple):
    """n documents with c labels, in the order of their names."""

    texts: list[str]  # n, the words of the object's name, then its docstring
    label_names: list[str]  # c, sorted
    labels: csr_array  # (n, c) float32, 1 where the document has the label
    names: list[str]  # n, such as "scipy.sparse.linalg.spsolve"

    def save(self, path: str | Path) -> int:
        """Writes a JSON object per document, with its name, text and labels, all or none; returns how many."""
        ends = zip(self.labels.indptr[:-1].tolist(), self.labels.indptr[1:].tolist(), strict=True)
        labels = [[self.label_names[j] for j in self.labels.indices[a:b].tolist()] for a, b in ends]
        with replacing(str(path)) as file:
            for name, text, of_it in zip(self.names, self.texts, labels, strict=True):
                line = json.dumps({"name": name, "text": text, "labels": of_it}, ensure_ascii=False)
                file.write(f"{line}\n".encode())
        return len(self.names)


class Document(NamedTuple):
    """One docstring and where it comes from."""

    module: tuple[str, ...]  # ("scipy", "sparse", "linalg")
    within: tuple[str, ...]  # ("LinearOperator", "matvec"); () for the module's own docstring
    docstring: str

    @property
    def name(self) -> str:
        return ".".join(self.module + self.within)


def build_corpus(min_documents: int = 5, documents: Iterable[Document] | None = None) -> Corpus:
    """Returns the corpus, the same at every call; labels with fewer than `min_documents` documents are left out.

    documents: in place of those that are installed.
    """
    documents = _sample(_distinct(_all_documents() if documents is None else documents), MOST_DOCUMENTS)
    counts = Counter(label for document in documents for label in set(document.module))
    label_names = sorted(label for label, count in counts.items() if count >= min_documents)
    column = {label: j for j, label in enumerate(label_names)}

    rows = [sorted({column[part] for part in document.module if part in column}) for document in documents]
    kept = [(document, row) for document, row in zip(documents, rows, strict=True) if row]
    indptr = np.cumsum([0, *(len(row) for _, row in kept)])
    indices = np.array([j for _, row in kept for j in row], dtype=np.int32)
    ones = np.ones(len(indices), dtype=np.float32)
    return Corpus(
        texts=[_text(document) for document, _ in kept],
        label_names=label_names,
        labels=csr_array((ones, indices, indptr.astype(np.int32)), shape=(len(kept), len(label_names))),
        names=[document.name for document, _ in kept],
    )


def _text(document: Document) -> str:
    """Returns the words of the name within the module, then the docstring; a module's own name is its label."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+", " ", " ".join(document.within))
    return f"{words.strip()}\n{document.docstring}".lstrip()


def _distinct(documents: Iterable[Document]) -> list[Document]:
    """Returns one document for each name and each docstring (inherited ones are often copied), sorted by name."""
    names: set[str] = set()
    texts: set[str] = set()
    distinct = []
    for document in sorted(documents, key=lambda d: (d.name, -len(d.docstring), d.docstring)):
        text = " ".join(document.docstring.split())
        if len(text) >= SHORTEST and text not in texts and document.name not in names:
            names.add(document.name)
            texts.add(text)
            distinct.append(document)
    return distinct


def _sample(documents: list[Document], most: int) -> list[Document]:
    """Returns at most `most` documents, in the same order: methods go first, in the order of a hash of their names."""

    def rank(document: Document) -> tuple[bool, int]:
        return len(document.within) > 1, zlib.crc32(document.name.encode())

    kept = {document.name for document in sorted(documents, key=rank)[:most]}
    return [document for document in documents if document.name in kept]


@contextmanager
def _quick_and_quiet() -> Iterator[None]:
    """Pauses the garbage collector (parsing is a fifth faster) and warnings about the strings of the sources."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if collecting:
            gc.enable()


def _all_documents() -> list[Document]:
    """Returns the documents of every source file that has a public path."""
    with _quick_and_quiet():
        return [document for parts, path in _source_files() if _public(parts) for document in _read(path, parts)]


def _read(path: Path, parts: tuple[str, ...]) -> Iterator[Document]:
    """Yields the documents of one file; none where it does not parse."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    module = _public(parts)
    if module == parts:  # the docstring of a private module is about the file, not about the public module
        yield from _own(tree, module, ())
    yield from _inside(tree.body, module, ())


def _public(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the path before its first private part: scipy.sparse.linalg for scipy.sparse.linalg._isolve.iterative.

    Empty for `_pyio`, whose public name cannot be read from its path.
    """
    private = (i for i, part in enumerate(parts) if part.startswith("_"))
    return parts[: next(private, len(parts))]


def _source_files() -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yields (module path, file) of the standard library and the packages, less the names in LEFT_OUT."""
    yield from _files_below(Path(sysconfig.get_paths()["stdlib"]), ())
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)  # of a top-level name: finds without importing
        for folder in (spec and spec.submodule_search_locations) or ():
            yield from _files_below(Path(folder), (package,))


def _files_below(folder: Path, parts: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yields (module path, file) for each Python file under a folder whose own module path is `parts`."""
    try:
        paths = list(folder.iterdir())
    except OSError:  # a standard library in a zip file, a folder that may not be read
        return
    for path in paths:
        if path.stem in LEFT_OUT or path.stem.startswith("test_"):
            continue
        if path.name == "__init__.py":
            yield parts, path
        elif path.suffix == ".py":
            yield (*parts, path.stem), path
        elif path.name.isidentifier() and path.is_dir() and not path.is_symlink():
            yield from _files_below(path, (*parts, path.name))


Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _own(node: Documented, module: tuple[str, ...], within: tuple[str, ...]) -> Iterator[Document]:
    """Yields the document of one object, if it has a docstring."""
    docstring = ast.get_docstring(node)
    if docstring:
        yield Document(module, within, docstring)


def _inside(body: list[ast.stmt], module: tuple[str, ...], within: tuple[str, ...]) -> Iterator[Document]:
    """Yields the documents of the public classes and functions among the statements, and of their public methods."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("_"):
                continue
            yield from _own(node, module, (*within, node.name))
            if isinstance(node, ast.ClassDef):
                yield from _inside(node.body, module, (*within, node.name))
        elif isinstance(node, ast.If | ast.Try):
            caught = [line for handler in getattr(node, "handlers", ()) for line in handler.body]
            yield from _inside(node.body + caught + node.orelse, module, within)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield from _added(node.value, module)


def _added(call: ast.Call, module: tuple[str, ...]) -> Iterator[Document]:
    """Yields the documents of `add_newdoc([place,] name, doc)`, as NumPy and SciPy document what they write in C.

    doc is a docstring, a pair (attribute, docstring) or a list of pairs.
    """
    if not (isinstance(call.func, ast.Name) and call.func.id == "add_newdoc"):
        return
    try:
        *_, name, added = [ast.literal_eval(argument) for argument in call.args]
    except (ValueError, TypeError):  # computed when run
        return
    for attribute, docstring in _pairs(added):
        within = (str(name), attribute) if attribute else (str(name),)
        if not any(part.startswith("_") for part in within):
            yield Document(module, within, inspect.cleandoc(docstring))


def _pairs(added: object) -> list[tuple[str, str]]:
    """Returns (attribute, docstring) for each docstring of one call; the attribute is "" for the object's own."""
    match added:
        case str():
            return [("", added)]
        case (str(attribute), str(docstring)):
            return [(attribute, docstring)]
        case list():
            return [pair for item in added for pair in _pairs(item)]
    return []
