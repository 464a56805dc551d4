"""Peer libraries as rows of the tables; the package `peers` in the benchmarks folder of a checkout runs them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, NoReturn, Protocol

from smoothlink.errors import SmoothLinkError
from smoothlink_paper.data_sets import Split

PEER_TIMEOUT = 3600.0  # seconds; a peer that takes longer is stopped, and the page says so
CHECKOUT = Path(__file__).resolve().parents[2] / "benchmarks"  # not there where the package is installed from a wheel


class PeerFailed(SmoothLinkError, RuntimeError):  # noqa: N818
    """A peer without predictions: the reason, or the last lines of its output."""


class Peers(Protocol):
    """The functions of the runners that experiments call."""

    def absent(self, name: str) -> str | None:
        """Returns None where the peer can be run, else one sentence that says why not."""

    def run(self, name: str, split: Split, seed: int, *, limit: float | None = None, **settings: Any) -> Any:
        """Returns the peer's `result.Result`, or raises `PeerFailed`."""

    def report(
        self, name: str, split: Split, seed: int, *, top: int | None = None, limit: float | None = None, **settings: Any
    ) -> Any:
        """Returns the result with its costs, or raises `PeerFailed`."""


class NoPeers:
    """Replaces the runners where there is no checkout: every peer is left out, and the reason is recorded."""

    def absent(self, name: str) -> str:
        return f"{name} was left out: a checkout of the project runs it; pass its benchmarks folder as --peers."

    def report(self, name: str, *_: Any, **__: Any) -> NoReturn:
        raise PeerFailed(self.absent(name))

    run = report


NO_PEERS = NoPeers()


def load_peers(folder: Path | None = None) -> Peers:
    """Loads the runners in a benchmarks folder: the one given, or that of the checkout this file lies in."""
    package = (folder or CHECKOUT) / "peers" / "__init__.py"
    if not package.is_file():
        if folder is None:
            return NO_PEERS
        raise SmoothLinkError(
            f"{package} does not exist, so {folder} has no peers to run.\n"
            "Pass --peers with the benchmarks folder of a checkout, or leave it out."
        )
    known = sys.modules.get("peers")
    if known is None or Path(known.__file__ or "").resolve() != package.resolve():
        spec = importlib.util.spec_from_file_location(
            "peers", package, submodule_search_locations=[str(package.parent)]
        )
        assert spec is not None
        assert spec.loader is not None
        known = sys.modules["peers"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(known)
    found: Any = known
    return found
