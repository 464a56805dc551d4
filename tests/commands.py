"""Running commands in this process, on small data files, for the tests of the command line."""

import contextlib
import io
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from small import classes, words

from smoothlink.cli import main
from smoothlink.data.read import Data, write

# Every setting given and nothing calibrated: a fit takes a few milliseconds.
FIXED = [
    *(
        "--rank",
        "4",
        "--ridge",
        "1",
        "--set",
        "kernel.bandwidth=2",
        "--set",
        "kernel.features=40",
        "--final-ridge",
        "0.1",
    ),
    *("--loss", "squared", "--no-calibrate"),
]


class Ran(NamedTuple):
    """What became of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def run(*args) -> Ran:
    """`smoothlink ARGS`, in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(arg) for arg in args])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Ran(code, out.getvalue(), err.getvalue())


def succeed(*args) -> Ran:
    ran = run(*args)
    assert ran.code == 0, ran.err
    return ran


class Files(NamedTuple):
    """A folder with train.txt, test.txt and the names of labels and features, and a model of the first."""

    folder: Path
    train: Path
    test: Path
    model: Path
    tested: Data


def labelled(rng, n=60, d=12, c=5) -> Data:
    """Word counts with names of features and labels."""
    X, Y = words(rng, n, d, c)
    names = [f"label{j}" for j in range(c)], [f"word{j}" for j in range(d)]
    return Data(sp.csr_array(X.astype(np.float32)), sp.csr_array(Y.astype(np.float32)), *names)


def one_label_each(rng, n=60) -> Data:
    """Multiclass data without names."""
    X, y = classes(rng, n)
    Y = sp.csr_array((np.ones(n, np.float32), y, np.arange(n + 1)), (n, 3))
    return Data(sp.csr_array(X.astype(np.float32)), Y)


def prepared(folder: Path, seed: int) -> Files:
    """The files, and a model trained through the command."""
    rng = np.random.default_rng([2015, seed])
    data = labelled(rng, 90)
    halves = [data._replace(X=data.X[rows], Y=data.Y[rows]) for rows in (slice(60), slice(60, 90))]
    files = Files(folder, folder / "train.txt", folder / "test.txt", folder / "model.safetensors", halves[1])
    for half, path in zip(halves, (files.train, files.test), strict=True):
        write(half, path)
    succeed("train", files.train, "-o", files.model, *FIXED)
    return files


def left(folder: Path) -> list[str]:
    """The names in a folder."""
    return sorted(path.name for path in folder.iterdir())
