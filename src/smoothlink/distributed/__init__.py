"""Fits, predictions and metrics on a Dask cluster. What happens when a worker dies: `worker_failure`."""

from __future__ import annotations

import importlib
from contextvars import ContextVar
from typing import Any

from smoothlink.errors import ClusterError


def dask_module(name: str) -> Any:
    """Returns a module of Dask, which is imported only where a cluster is used."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ClusterError("Dask is not installed.\npip install 'smoothlink[cluster]'.") from None


_current: ContextVar[Any] = ContextVar("cluster", default=None)


def current() -> Any:
    """Returns the cluster that fits of this context run on, or None; a fit without one loads no other module."""
    return _current.get()
