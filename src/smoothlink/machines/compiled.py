"""Functions compiled by numba, cached where files can be read and written, and compiled anew where not."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from numba import njit
from numba.core import caching

NumbaCache: Any = caching.FunctionCache  # which has no types


class OptionalCache(NumbaCache):
    """numba's cache of one function, without which the function still works."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Returns the compiled function, or None where there is none or its files are damaged."""
        # Damaged files are pickles cut anywhere, and fail with nearly any error.
        try:
            return super().load_overload(sig, target_context)
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Writes the compiled function; a damaged index is begun anew, and where nothing can be written nothing is."""
        for _ in range(2):
            try:
                super().save_overload(sig, data)
                return
            except Exception:
                # numba writes the index before the data: one that is left alone may name the data of older source code.
                with suppress(OSError):
                    os.unlink(self._cache_file._index_path)


def trusted(cache: str, source: str) -> bool:
    """Returns whether nobody may write to the folder of the cache who may not write to that of the source code: both
    are code that runs."""
    found, code = os.stat(cache), os.stat(source)
    owners = code.st_uid, 0, os.geteuid() if hasattr(os, "geteuid") else found.st_uid
    return found.st_uid in owners and not found.st_mode & ~code.st_mode & stat.S_IWOTH


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Returns a decorator like numba's `njit`, without the GIL and with a cache that no function depends on."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(nogil=True, error_model="numpy", **options)(function)
        with suppress(RuntimeError, OSError):  # no folder for a cache can be written
            cache = OptionalCache(function)
            if trusted(cache.cache_path, os.path.dirname(function.__code__.co_filename)):
                dispatcher._cache = cache
        return dispatcher

    return decorate
