"""The public names: all there, loaded on first use, so that the import is fast."""

import importlib
import importlib.metadata
import pkgutil
import subprocess
import sys

import pytest

import smoothlink

HEAVY = ("numba", "sklearn", "scipy.stats", "scipy.optimize", "pandas", "torch", "rich", "typer")

# What users may import; a name that comes or goes is a line here and in CHANGELOG.md.
PUBLIC = [
    "Cholesky",
    "ClusterError",
    "ConjugateGradient",
    "Data",
    "DataError",
    "DeviceError",
    "Document",
    "DualCholesky",
    "Exponential",
    "Files",
    "FineTune",
    "Gaussian",
    "InputKernel",
    "Joint",
    "Laplacian",
    "Linear",
    "Logistic",
    "Matern",
    "ModelFileError",
    "PerLabel",
    "Randomized",
    "Reading",
    "SmoothLinkClassifier",
    "SmoothLinkError",
    "Softmax",
    "Space",
    "Squared",
    "TextFeatures",
    "TextSmoothLink",
    "Vocabulary",
    "Watch",
    "__version__",
    "audit",
    "cluster",
    "compare",
    "evaluate",
    "evaluate_files",
    "expected_metrics",
    "explain",
    "load",
    "neighbours",
    "predict_files",
    "read",
    "read_vocabulary",
    "report",
    "stratified_split",
    "tune",
    "write",
]


def python(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_import_takes_less_than_a_second():
    program = "import time; t = time.perf_counter(); import smoothlink; print(time.perf_counter() - t)"
    assert min(float(python(program)) for _ in range(5)) < 1.0


def test_import_leaves_heavy_libraries_alone():
    loaded = python("import sys, smoothlink; print(*sys.modules)").split()
    assert not [name for name in HEAVY if name in loaded]


def test_the_classifier_waits_for_the_first_kernel_to_load_numba():
    program = "import sys, smoothlink; smoothlink.SmoothLinkClassifier(); print('numba' in sys.modules)"
    assert python(program).strip() == "False"


def test_the_public_names_are_these():
    assert sorted(smoothlink.__all__) == PUBLIC


def test_every_public_name_resolves_and_is_listed_once():
    assert len(set(smoothlink.__all__)) == len(smoothlink.__all__)
    for name in smoothlink.__all__:
        assert getattr(smoothlink, name) is not None
    assert dir(smoothlink) == sorted(smoothlink.__all__)
    namespace = {}
    exec("from smoothlink import *", namespace)
    assert set(smoothlink.__all__) - {"__version__"} <= set(namespace)


def test_a_name_is_the_one_of_its_module():
    for name, place in smoothlink._PLACES.items():
        assert getattr(smoothlink, name) is getattr(importlib.import_module(place), name)


def test_no_module_has_the_name_of_a_public_function():
    """Importing such a module would put it in the place of the function."""
    modules = {module.name for module in pkgutil.iter_modules(smoothlink.__path__)}
    assert not modules & set(smoothlink.__all__)


def test_names_that_do_not_exist_say_so():
    with pytest.raises(AttributeError, match="no attribute 'Smooth'"):
        smoothlink.Smooth  # noqa: B018
    assert not hasattr(smoothlink, "numpy")


def test_the_version_is_that_of_the_package():
    assert smoothlink.__version__ == importlib.metadata.version("smoothlink")
