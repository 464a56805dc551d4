"""docs/api.md from the docstrings of the public names and their signatures in the sources."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import smoothlink
from smoothlink import types

HEAD = """# Python names

All names are those of `smoothlink` itself: `from smoothlink import SmoothLinkClassifier`. Whatever is not here may
change without notice.
"""
WRITTEN = "Written by `python docs/generate` from the docstrings and signatures."
GROUPS = {
    "Classifiers": "SmoothLinkClassifier TextSmoothLink TextFeatures Document load",
    "Choices": """Gaussian Laplacian Exponential Matern Linear Squared Logistic Softmax Randomized PerLabel Joint
        FineTune InputKernel""",
    "Names of labels": "read_vocabulary Vocabulary",
    "Data": "read write Data Reading Files stratified_split",
    "Evaluation, explanation and search": "evaluate report compare explain neighbours tune Space",
    "Labels and rows that look wrong": "audit Watch expected_metrics",
    "Clusters and many files": "cluster predict_files evaluate_files",
    "Solvers": "Cholesky DualCholesky ConjugateGradient",
    "Errors": "SmoothLinkError DataError ModelFileError DeviceError ClusterError",
}
TYPES = """## Types

Signatures name these, which are in `smoothlink.types`. A `Frame` is a pandas or polars table, a `ColumnStore` one of
pyarrow or a Hugging Face data set.

| | |
|---|---|"""
BAR = "&#124;"  # within a table a bar ends the cell
INNER = ("Reading", "TextFeatures")  # their methods serve the other names
WIDEST = 100  # characters of a signature on one line
SECTION = re.compile(r"^(\w[\w ]*)\n-+\n", re.MULTILINE)
Definition = ast.FunctionDef | ast.ClassDef


def api_page() -> str:
    """The whole text, group by group."""
    grouped = [name for names in GROUPS.values() for name in names.split()]
    missing = set(smoothlink.__all__) - {"__version__"} ^ set(grouped)
    if missing:
        raise SystemExit(f"docs/generate/api_page.py and smoothlink.__all__ differ in {', '.join(sorted(missing))}.")
    lines = [HEAD]
    for title, names in GROUPS.items():
        lines += [f"**{title}**", "", "| | |", "|---|---|", *(listed(name) for name in names.split()), ""]
    for title, names in GROUPS.items():
        lines += [f"## {title}", ""]
        for name in names.split():
            lines += public(name)
    lines += [TYPES, *(f"| `{name}` | {meaning} |" for name, meaning in type_aliases()), ""]
    return "\n".join([*lines, WRITTEN, ""])


def type_aliases() -> list[tuple[str, str]]:
    """The names that signatures use for types, with what they stand for, from smoothlink/types.py."""
    source = Path(inspect.getsourcefile(types) or "").read_text(encoding="utf-8")
    found = re.findall(r"^(\w+): TypeAlias = (.+?)(?:  # (.+))?$", source, re.MULTILINE)
    return [
        (
            name,
            " or ".join(f"`{part}`" for part in value.strip('"').split(" | ")) + (f"<br>{meaning}" if meaning else ""),
        )
        for name, value, meaning in found
    ]


def listed(name: str) -> str:
    """A line of the contents: the name, what it is, and links to its methods."""
    first = (inspect.getdoc(getattr(smoothlink, name)) or "").split("\n\n")[0]
    links = [f"[{method.name}](#{f'{name}{method.name}'.lower()})" for method in methods(name)]
    more = f"<br>{', '.join(links)}" if links else ""
    return f"| [{name}](#{name.lower()}) | {' '.join(first.split()).replace('|', BAR)}{more} |"


def methods(name: str) -> list[ast.FunctionDef]:
    """The methods of a class that have a section of their own."""
    found = definition(getattr(smoothlink, name))
    if not isinstance(found, ast.ClassDef) or name in INNER:
        return []
    return [method for method in found.body if isinstance(method, ast.FunctionDef) and shown(method)]


def public(name: str) -> list[str]:
    """A function, or a class with its public methods."""
    found = definition(getattr(smoothlink, name))
    docstring = inspect.getdoc(getattr(smoothlink, name)) or ""  # that of the classifier has its parameters filled in
    lines = [f"### {name}", "", *signature(found, name), *markdown(docstring)]
    for method in methods(name):
        lines += [f"#### {name}.{method.name}", "", *signature(method, method.name)]
        lines += markdown(ast.get_docstring(method) or "")
    return lines


def definition(thing: Any) -> Definition:
    """Where a name is defined, as a tree."""
    source = Path(inspect.getsourcefile(importlib.import_module(thing.__module__)) or "").read_text(encoding="utf-8")
    kinds = ast.FunctionDef, ast.ClassDef
    return next(n for n in ast.parse(source).body if isinstance(n, kinds) and n.name == thing.__name__)


def shown(method: ast.FunctionDef) -> bool:
    """Public methods that say what they do."""
    return not method.name.startswith("_") and ast.get_docstring(method) is not None


def signature(found: Definition, name: str) -> list[str]:
    """The call as a block; classes by their __init__, or by their fields."""
    init = found if isinstance(found, ast.FunctionDef) else constructor(found)
    if init is None:
        return []
    if isinstance(init, ast.FunctionDef):
        arguments = [a for a in split(init.args) if a not in ("self", "cls")]
        arrow = f" -> {ast.unparse(init.returns)}" if found is init and init.returns is not None else ""
    else:
        arguments, arrow = [ast.unparse(field) for field in init], ""
    whole = f"{name}({', '.join(arguments)}){arrow}"
    if len(whole) > WIDEST:
        whole = "\n".join([f"{name}(", *(f"    {argument}," for argument in arguments), f"){arrow}"])
    return ["``` { .python .signature }", whole, "```", ""]


def constructor(found: ast.ClassDef) -> ast.FunctionDef | list[ast.AnnAssign] | None:
    """__init__; the fields of a named tuple or dataclass; None where there is nothing to pass."""
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return node
    return [node for node in found.body if isinstance(node, ast.AnnAssign)] or None


def split(given: ast.arguments) -> list[str]:
    """The arguments with their types and defaults, one text each."""
    ordinary = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(ordinary) - len(given.defaults)) + list(given.defaults)
    texts = [argument(a, d) for a, d in zip(ordinary, defaults, strict=True)]
    if given.kwonlyargs:
        texts.append("*" if given.vararg is None else f"*{given.vararg.arg}")
    texts += [argument(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return texts + ([f"**{given.kwarg.arg}"] if given.kwarg else [])


def argument(a: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(a.annotation)}" if a.annotation is not None else ""
    value = "" if default is None else f"{' = ' if kind else '='}{ast.unparse(default)}"
    return f"{a.arg}{kind}{value}"


def markdown(docstring: str) -> list[str]:
    """Prose as it is; the sections of numpydoc as lists."""
    first, *rest = SECTION.split(docstring)
    lines = [first.strip(), ""]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        entries = re.findall(r"^(\S[^\n:]*?)(?: : (.*))?\n((?:[ \t]+.*\n?|\n(?=[ \t]))*)", body + "\n", re.MULTILINE)
        if title in ("Parameters", "Attributes"):
            lines += [f"**{title}**", "", *(entry(*parts) for parts in entries), ""]
        else:
            lines += [f"**{title}**", "", body.strip(), ""]
    return lines


def entry(name: str, kind: str, text: str) -> str:
    described = " ".join(text.split())
    return f"- `{name}`" + (f" : {kind}" if kind else "") + (f"  \n  {described}" if described else "")
