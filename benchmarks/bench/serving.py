"""A server of the demo's model in a process of its own, for the scripts that measure and maltreat it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from smoothlink import TextSmoothLink, __version__
from smoothlink.demo.corpus import Corpus, build_corpus
from smoothlink.demo.demo_run import QUICK, SELECTED

LIBRARIES = ("fastapi", "starlette", "uvicorn", "pydantic", "scikit-learn", "numpy", "numba")
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")


def demo_model(path: Path, **changes: Any) -> Corpus:
    """The corpus of the demo, and its model as a text model in this file, trained if it is not there."""
    corpus = build_corpus()
    if not path.exists():
        Y, names = corpus.labels, np.array(corpus.label_names, object)
        labels = [
            names[Y.indices[start:stop]].tolist() for start, stop in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)
        ]
        options: dict[str, Any] = {"word_ngrams": (1, 1), **QUICK, **SELECTED, **changes}
        TextSmoothLink(**options).fit(corpus.texts, labels).save(path)
    return corpus


@contextmanager
def served(model: Path, *options: str) -> Iterator[tuple[int, int]]:
    """`smoothlink serve`: the number of its process and its port, once it answers.

    Its log is a file: a pipe that nobody reads is full after an hour of reloads, and stops whoever writes to it.
    """
    line = [sys.executable, "-m", "smoothlink", "serve", str(model), "--port", "0", *options]
    with tempfile.NamedTemporaryFile("w+") as log:
        process = subprocess.Popen(line, stderr=log)
        try:
            while (found := ADDRESS.search(Path(log.name).read_text())) is None or not answers(int(found.group(1))):
                if process.poll() is not None:
                    raise RuntimeError(Path(log.name).read_text())
                time.sleep(0.1)
            yield process.pid, int(found.group(1))
        finally:
            process.terminate()
            process.wait()


def answers(port: int) -> bool:
    """Whether a server does its work."""
    body = b'{"texts": ["solve a sparse linear system"]}'
    request = urllib.request.Request(f"http://127.0.0.1:{port}/predict", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def circumstances() -> dict[str, Any]:
    """When, and with what."""
    versions = {"smoothlink": __version__, **{name: version(name) for name in LIBRARIES}}
    return {"date": datetime.now(UTC).date().isoformat(), "python": sys.version.split()[0], "versions": versions}
