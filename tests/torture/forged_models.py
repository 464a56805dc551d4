"""Forges model files, loads them and predicts: each is refused in words, or predicts.

    python tests/torture/forged_models.py [--seconds 600] [--seed 0]

Half of them have another value somewhere in their JSON or arrays and right checksums, as whoever forges a file would
write them; these may predict anything, but nothing else may be raised, and nothing may take more than 5 s. Of the other
half some bytes are changed: these must be refused, or be what they were.
"""

import argparse
import copy
import json
import os
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from small import classes, fixed, multilabel, words

import smoothlink
from smoothlink import InputKernel, Joint, ModelFileError, TextSmoothLink
from smoothlink import safetensors_file as files

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 1e308, -1e308, 1e-320, 0.5, "", "x", "\ud800", "../.."),
    *("a" * 9999, [], {}, [[]], {"a": 1}, [None], [1, 2, 3], "linear", "gaussian", "nan", ["gaussian", 1e-300]),
]  # fmt: skip
TYPES = ("f4", "f8", "i4", "i8", "u1", "?", "f2", "i1", "u2")


def made() -> list[tuple[Any, Any]]:
    """Returns fitted models of every form, and rows for each."""
    rng = np.random.default_rng(1)
    (X, Y), (S, labels), (C, y) = multilabel(rng), words(rng), classes(rng)
    inputs = InputKernel(bandwidth=2.0, features=12, map="random")
    texts = ["iron and tin", "plum or pear", "tin of plums", "pear, iron"]
    return [
        (fixed(trees=True, input_kernel=inputs, scale="variance", calibrate=True).fit(X, Y), X[:5]),
        (fixed(input_kernel=InputKernel(bandwidth=2.0, features=12)).fit(X, Y), X[:5]),
        (fixed(ridge="auto", training=Joint(4, passes=1)).fit(S, labels), S[:5]),
        (fixed(loss="softmax").fit(C, np.array(["a", "b", "c"])[y]), C[:5]),
        (TextSmoothLink(effort="quick").fit(texts * 6, [["x"], ["y"], ["x", "y"], ["z"]] * 6), texts),
    ]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the way to each value in JSON."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:5]) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*path, key))


def forged_meta(meta: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    meta = json.loads(json.dumps(meta))
    *way, last = rng.choice(list(places(meta)))
    place: Any = meta
    for key in way:
        place = place[key]
    if isinstance(place, dict) and rng.random() < 0.15:
        del place[last]
    else:
        place[last] = copy.deepcopy(rng.choice(VALUES))
    return meta


def forged_arrays(arrays: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    arrays, name = dict(arrays), rng.choice(list(arrays))
    array = arrays[name]
    kinds: dict[str, Any] = {
        "missing": None,
        "flat": array.reshape(-1),
        "other type": array.astype(rng.choice(TYPES)),
        "shorter": array[:-1] if array.ndim else array,
        "twice": np.concatenate([array, array]) if array.ndim else array,
        "transposed": array.T.copy(),
        "empty": np.zeros((0,) * max(array.ndim, 1), array.dtype),
        "numbers": other_numbers(array, rng),
    }
    kind = rng.choice(list(kinds))
    arrays |= {name: kinds[kind]}
    return {key: value for key, value in arrays.items() if value is not None}


def other_numbers(array: Any, rng: random.Random) -> Any:
    changed = array.copy().reshape(-1)
    for place in [rng.randrange(array.size) for _ in range(3)] if array.size else []:
        limits = np.finfo(array.dtype) if array.dtype.kind == "f" else None
        if array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
        changed[place] = rng.choice([0, 1] if limits is None else [0, 1, limits.min, limits.max])
    return changed.reshape(array.shape)


def changed_bytes(raw: bytes, rng: random.Random) -> bytes:
    content = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(len(content))
        match rng.randrange(4):
            case 0:
                content[place] ^= 1 << rng.randrange(8)
            case 1:
                content[place] = rng.randrange(256)
            case 2:
                del content[place : place + rng.randrange(1, 9)]
            case _:
                content[place:place] = rng.randbytes(rng.randrange(1, 9))
    return bytes(content)


def same(first: files.Loaded, second: files.Loaded) -> bool:
    arrays = {name: (array.dtype, array.shape, array.tobytes()) for name, array in first.arrays.items()}
    return first.meta == second.meta and arrays == {
        name: (array.dtype, array.shape, array.tobytes()) for name, array in second.arrays.items()
    }


def campaign(folder: Path, seconds: float, seed: int, most: int | None = None) -> dict[str, Any]:
    """Returns how many files were refused and loaded, and what went wrong."""
    rng, path, outcomes, wrong = random.Random(seed), folder / "m", Counter[str](), Counter[str]()
    bases = []
    for model, rows in made():
        for dtype in ("float32", "float16", "int8", "int4"):
            model.save(path, dtype=dtype)
            bases.append((files.load(path, mmap=False), path.read_bytes(), rows))
    end = time.monotonic() + seconds
    while time.monotonic() < end and (most is None or outcomes.total() < most):
        base, raw, rows = rng.choice(bases)
        forged = rng.random() < 0.5
        if forged:
            meta = forged_meta(base.meta, rng) if rng.random() < 0.6 else base.meta
            arrays = forged_arrays(base.arrays, rng) if meta is base.meta or rng.random() < 0.3 else base.arrays
            files.save(path, arrays, meta)
        else:
            path.write_bytes(changed_bytes(raw, rng))
        begun = time.monotonic()
        try:
            model = smoothlink.load(path)
            if isinstance(model, TextSmoothLink) == isinstance(rows, list):
                model.predict_proba(rows)
                model.predict(rows)
            outcomes["loaded" if forged else "the same"] += 1
            if not forged and not same(files.load(path, mmap=False), base):
                wrong["a change went unnoticed"] += 1
        except ValueError as error:  # that of forged numbers may come from scikit-learn's look at the rows
            outcomes["refused"] += 1
            if not forged and not isinstance(error, ModelFileError):
                wrong["a change was noticed only at the prediction"] += 1
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            outcomes["wrong"] += 1
            wrong[f"{error!r:.200} at {os.path.basename(frame.filename)}:{frame.lineno}"] += 1
        if time.monotonic() - begun > 5 and outcomes.total() > 500:  # the first ones compile
            wrong[f"{time.monotonic() - begun:.0f} s"] += 1
    return {"files": outcomes.total(), **outcomes, "failures": dict(wrong)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--files", type=int, help="at most so many")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    files.os.fsync = lambda handle: None
    with tempfile.TemporaryDirectory(prefix="smoothlink-forged-") as place:
        found = campaign(Path(place), given.seconds, given.seed, given.files)
    print(json.dumps(found))
    sys.exit(bool(found["failures"]))
