"""Imports point one way, and only machines/ knows where arrays live."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import smoothlink

ROOT = Path(smoothlink.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# From the ground up: a layer may import itself and those below. The top is not named: cli, serve, reports, demo.
LAYERS = [
    {"errors", "types", "scikit_learn"},
    {"machines"},
    {"solve"},
    {"steps"},
    {"joint", "parameters", "choices", "data/atomic", "data/files_on_disk", "text/label_cells", "text/data_frames"},
    {"safetensors_file", "labels"},
    {"weights"},
    {"model", "candidates"},
    {"metrics", "device_model"},
    {"predict", "data", "synth", "conformal"},
    {"fitting"},
    {"distributed"},
    {"living"},
    # Each model file knows its class, and each class its file.
    {
        "estimator",
        "text",
        "modelfile",
        "vocabulary",
        "explanation",
        "file_prediction",
        "file_evaluation",
        "data/matching",
        "data/predictions",
        "living/living_file",
    },
    {"search"},
]


def height(name):
    return next((i for i, layer in enumerate(LAYERS) if name in layer), len(LAYERS))


def layer_of(module):
    """The height of a module of the package: that of its file where it is named above, or of its folder."""
    parts = module.split(".")[1:]
    file = "/".join(parts[:2])
    return height(file if file in set().union(*LAYERS) else parts[0])


@cache
def parsed(path):
    return ast.parse(path.read_text("utf-8"))


@cache
def imported(path):
    """The absolute names of all modules that a file imports when it runs, wherever in the file."""
    nodes, names = [parsed(path)], []
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def test_imports_point_down():
    for path in FILES:
        module = ".".join(["smoothlink", *path.relative_to(ROOT).with_suffix("").parts])
        for name in imported(path):
            if re.match(r"smoothlink\.(?!__version__)", name):
                assert layer_of(name) <= layer_of(module), f"{path} imports {name}"
    names = {str(path.relative_to(ROOT).with_suffix("")) for path in FILES} | {path.parent.name for path in FILES}
    assert set().union(*LAYERS) <= names


def test_no_step_and_no_solver_knows_a_device():
    for path in (path for path in FILES if path.parent.name in ("steps", "solve")):
        assert not [name for name in imported(path) if re.match(r"(torch|cupy|dask|distributed)\b", name)], path
        assert not re.findall(r"\b(torch|cuda|cupy|gpu|device)\b", path.read_text("utf-8"), re.IGNORECASE), path


def test_only_one_command_knows_the_paper_and_nothing_the_benchmarks():
    outer = {path: {name.split(".")[0] for name in imported(path)} for path in FILES}
    assert [path.name for path, names in outer.items() if "smoothlink_paper" in names] == ["reproduce_command.py"]
    outer |= {
        path: {n.split(".")[0] for n in imported(path)} for path in (ROOT.parent / "smoothlink_paper").rglob("*.py")
    }
    assert not set().union(*outer.values()) & {"peers", "bench", "benchmarks"}
    code = "import sys, smoothlink.cli.app; print('smoothlink_paper' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_compiled_functions_use_the_cache_that_may_fail_and_call_no_sort_whose_name_in_it_may_be_taken():
    for path in FILES:
        if path.name != "compiled.py":
            assert not [n for n in imported(path) if re.match(r"numba\.(jit|njit|vectorize|guvectorize)\b", n)], path
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef) and any("compiled" in ast.unparse(d) for d in node.decorator_list):
                sorts = re.findall(r"\.(?:arg|lex)?sort\(|np\.unique\(|\bsorted\(", ast.unparse(node))
                assert not sorts, f"{path}: {node.name}"
