"""Compiled functions work whatever is the matter with numba's cache, and use it where nothing is."""

import errno
import os
import subprocess
import sys

import numba
import pytest
from numba.core.caching import IndexDataCacheFile

from smoothlink.machines.compiled import compiled


def double(x):
    return 2 * x


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The only folder that numba may keep compiled functions in."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "UserProvidedCacheLocator")
    return tmp_path / "cache"


def cache_hits():
    """Calls the function, compiled anew or loaded -> how often it was loaded."""
    function = compiled()(double)
    assert function(21) == 42
    return sum(function.stats.cache_hits.values())


def test_a_compiled_function_is_loaded_from_the_cache(folder):
    assert [cache_hits(), cache_hits()] == [0, 1]


@pytest.mark.parametrize("damaged", [lambda file: b"", lambda file: file[: len(file) // 2], lambda file: b"x" * 99])
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_damaged_file_of_the_cache_is_written_anew(folder, suffix, damaged):
    cache_hits()
    (file,) = folder.glob(f"*/*.{suffix}")
    file.write_bytes(damaged(file.read_bytes()))
    assert [cache_hits(), cache_hits()] == [0, 1]


def test_functions_are_compiled_where_the_folder_cannot_be_made(folder):
    folder.write_text("a file")
    assert [cache_hits(), cache_hits()] == [0, 0]
    assert folder.read_text() == "a file"


@pytest.mark.parametrize("step", ["_save_index", "_save_data"])
def test_a_full_disk_leaves_no_index_without_its_data(folder, monkeypatch, step):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, step, full)
    assert cache_hits() == 0
    assert not list(folder.glob("*/*.nbi"))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such rights")
def test_no_code_is_loaded_from_a_folder_that_anyone_may_write_to(folder):
    assert [cache_hits(), cache_hits()] == [0, 1]
    (inner,) = folder.iterdir()
    inner.chmod(0o777)
    assert cache_hits() == 0
    inner.chmod(0o755)
    assert cache_hits() == 1
    if os.geteuid() == 0:
        os.chown(inner, 65534, -1)
        assert cache_hits() == 0


PROGRAM = """
import numpy as np
import smoothlink.machines.kernels
from smoothlink.machines.sorting import sort_by
order = np.arange(3)
sort_by(np.array([3, 1, 2]), order)
print(order.tolist())
"""


def test_the_package_works_where_no_cache_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    nowhere = {"NUMBA_CACHE_DIR": f"{tmp_path}/file/cache", "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | nowhere, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[1, 2, 0]"
