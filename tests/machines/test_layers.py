"""Imports point one way, and only machines/ knows where arrays live."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import smoothlink

ROOT = Path(smoothlink.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# From the ground up. What is not named stands on top: nothing below may import it.
LAYERS = [
    {"errors"},
    {"machines"},
    {"solve"},
    {"steps"},
    {"model"},
    {"predict", "targets", "fitting"},
    {"estimator", "text", "datafiles", "persist"},  # each model file knows its class, and each class its file
]
TOP = len(LAYERS)


def room(path):
    """The part of the package that a file belongs to."""
    return path.relative_to(ROOT).with_suffix("").parts[0]


def height(name):
    return next((i for i, layer in enumerate(LAYERS) if name in layer), TOP)


def imported(path):
    """The absolute names of all modules that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", [p for p in FILES if p.name != "__init__.py" or p.parent != ROOT], ids=str)
def test_imports_point_down(path):
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "smoothlink" or len(parts) < 2:
            continue
        assert height(parts[1]) <= height(room(path)), f"{path} imports {name}"


@pytest.mark.parametrize("path", [p for p in FILES if room(p) in ("steps", "solve")], ids=str)
def test_no_step_and_no_solver_knows_a_device(path):
    assert not [name for name in imported(path) if re.match(r"(torch|cupy|numba\.cuda|dask|distributed)\b", name)]
    assert not re.findall(r"\b(torch|cuda|cupy|gpu|device)\b", path.read_text("utf-8"), re.IGNORECASE)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_only_one_command_knows_the_experiments_and_none_the_benchmarks(path):
    outer = {name.split(".")[0] for name in imported(path)} & {"smoothlink_paper", "peers", "bench", "benchmarks"}
    assert outer == ({"smoothlink_paper"} if path == ROOT / "cli" / "reproduce.py" else set())


@pytest.mark.parametrize("path", sorted((ROOT.parent / "smoothlink_paper").rglob("*.py")), ids=str)
def test_the_experiments_never_import_the_benchmarks(path):
    assert not {name.split(".")[0] for name in imported(path)} & {"peers", "bench", "benchmarks"}


def test_the_command_loads_the_experiments_when_it_is_used():
    code = "import sys, smoothlink.cli.app; print('smoothlink_paper' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_every_layer_exists():
    rooms = {room(path) for path in FILES}
    for layer in LAYERS:
        assert layer <= rooms


def compiled_sorts(path):
    """Calls of NumPy's sorts inside functions that numba compiles."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and any("compiled" in ast.unparse(d) for d in node.decorator_list):
            yield from re.findall(r"\.(?:arg|lex)?sort\(|np\.unique\(|\bsorted\(", ast.unparse(node))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_compiled_function_calls_a_sort_whose_name_in_the_cache_may_be_taken(path):
    assert not list(compiled_sorts(path))


@pytest.mark.parametrize("path", [p for p in FILES if p != ROOT / "machines" / "compiled.py"], ids=str)
def test_no_function_is_compiled_but_with_the_cache_that_may_fail(path):
    assert not [name for name in imported(path) if re.match(r"numba\.(jit|njit|vectorize|guvectorize)\b", name)]
