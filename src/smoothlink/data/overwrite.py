"""Decides where a command may write, before it does any work: only an older output of the same kind is replaced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from smoothlink.errors import DataError, ModelFileError

PAGE_GENERATOR = '<meta name="generator" content="smoothlink'  # near the beginning of every page we write
WATCH_KEY = "smoothlink_watch"  # the first key of a file in which a watch goes on
SETTINGS_KEY = "smoothlink_params"  # the first key of a file that `tune` writes


def is_model(path: str) -> bool:
    from smoothlink.safetensors_file import KEY, _header

    with open(path, "rb") as file:
        try:
            metadata = _header(file, Path(path))[0].get("__metadata__")
        except ModelFileError:
            return False
    return isinstance(metadata, dict) and KEY in metadata


def begins_with(mark: str) -> Callable[[str], bool]:
    """Returns a function that says whether the first kilobyte of a file holds `mark`."""

    def holds(path: str) -> bool:
        with open(path, "rb") as file:
            return mark.encode() in file.read(1024)

    return holds


# What is replaced, and what is said of others. Data has no entry: a table of rows or predictions does not say who wrote
# it, so none is replaced.
OURS: dict[str, tuple[Callable[[str], bool], str]] = {
    "model": (is_model, " and is not a model of smoothlink"),
    "page": (begins_with(PAGE_GENERATOR), " and is not a page that smoothlink wrote"),
    "watch": (begins_with(f'"{WATCH_KEY}"'), " and is not the state of a watch"),
    "settings": (begins_with(f'"{SETTINGS_KEY}"'), " and does not hold settings of `smoothlink tune`"),
}


def writable(path: str, *inputs: str, kind: str, force: bool = False, folder_too: bool = False) -> str:
    """Returns the path if an output of this kind can be written there, to a data folder too with `folder_too`.

    kind: "data", or a key of OURS. force: replace whatever file is there, but never one of the `inputs`.
    """
    from smoothlink.data.folder import is_folder

    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise DataError(f"{path}: the folder {folder} does not exist.\nType: mkdir -p {folder}")
    if os.path.isdir(path) and not (folder_too and is_folder(path)):
        raise DataError(f"{path} is a folder.\nName a file in it.")
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise DataError(f"{path} is neither a file nor a folder.\nName a file.")
    if not os.access(folder, os.W_OK):
        raise DataError(f"{path}: the folder {folder} is not writable.\nName a file in a folder of yours.")
    for other in inputs:
        if os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other):
            raise DataError(f"{path} would be written over what is read.\nName another file.")
    is_ours, why = OURS.get(kind, (lambda path: False, ""))
    if os.path.exists(path) and not force and not replaceable(path, is_ours):
        raise DataError(f"{path} is there already{why}.\nName another one, or pass --force to overwrite it.")
    return path


def replaceable(path: str, is_ours: Callable[[str], bool]) -> bool:
    """Returns whether the file is empty or an older output of ours."""
    try:
        return os.path.isfile(path) and (os.path.getsize(path) == 0 or is_ours(path))
    except OSError:  # what cannot be read is not known to be ours
        return False
