"""The data sets of the experiments: folders of XMC files that the user has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from smoothlink.data.read import Data, read
from smoothlink.errors import DataError

ENDINGS = ("", ".xz", ".gz", ".bz2", ".zst")


class Split(NamedTuple):
    """A data set as its authors split it."""

    train: Data
    test: Data


def root(given: str | None) -> Path:
    """Returns the folder of all data sets: the one given, or $SMOOTHLINK_DATA."""
    place = given or os.environ.get("SMOOTHLINK_DATA")
    if place is None:
        raise DataError("Where are the data sets? Pass --data FOLDER, or set SMOOTHLINK_DATA.")
    return Path(place)


def find(folder: Path, name: str, part: str) -> Path | None:
    """Returns the path of NAME/train.txt or NAME/test.txt, plain or compressed; None where there is none."""
    paths = (folder / name / f"{part}.txt{ending}" for ending in ENDINGS)
    return next((path for path in paths if path.exists()), None)


def load(folder: Path, name: str) -> Split:
    """Returns one data set; where it is absent, raises an error that says where its files go."""
    parts = [find(folder, name, part) for part in ("train", "test")]
    if None in parts:
        raise DataError(
            f"The data set {name} is not in {folder}.\n"
            f"Put its XMC files there as {name}/train.txt and {name}/test.txt, plain or compressed."
        )
    return Split(*(read(path) for path in parts if path is not None))
