"""Forges model files, loads them and predicts: each is refused in words, or predicts.

    python tests/torture/forged_models.py [--files 100000] [--seconds 600] [--seed 0]

Half of them have another value somewhere in their JSON or arrays and right checksums, as whoever forges a file would
write them; these may predict anything, but nothing else may be raised, and nothing may take more than 5 s. Of the other
half some bytes are changed: these must be refused, or be what they were. Among them are the sums, the rows to replay
and the journals of models that are updated: rows come and go with them.
"""

import argparse
import contextlib
import json
import math
import os
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "attacks"))

import numpy as np
from hostile import memory_folder, with_other_value
from small import classes, fixed, multilabel, words

import smoothlink
from smoothlink import InputKernel, Joint, ModelFileError, TextSmoothLink
from smoothlink import safetensors_file as files
from smoothlink.living.changes import state_of
from smoothlink.living.living_file import LivingFile
from smoothlink.living.store import checksum_of
from smoothlink.living.update_journal import line_of

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


class ModelFile:
    """A model file that is forged, loaded, and predicts."""

    forged_only = False

    def __init__(self, path: Path, rows: Any) -> None:
        self.path, self.rows = path, rows
        self.sound, self.raw = files.load(path, mmap=False), path.read_bytes()

    def forge(self, rng: random.Random) -> None:
        sound = self.sound
        meta = with_other_value(sound.meta, rng) if rng.random() < 0.6 else sound.meta
        arrays = forged_arrays(sound.arrays, rng) if meta is sound.meta or rng.random() < 0.3 else sound.arrays
        files.save(self.path, arrays, meta)

    def change(self, rng: random.Random) -> None:
        self.path.write_bytes(changed_bytes(self.raw, rng))

    def use(self) -> None:
        model = smoothlink.load(self.path)
        if isinstance(model, TextSmoothLink) == isinstance(self.rows, list):
            model.predict_proba(self.rows)
            model.predict(self.rows)

    def is_sound(self) -> bool:
        return same(files.load(self.path, mmap=False), self.sound)


class SumsFile(ModelFile):
    """The sums, or the rows to replay, of a model that is updated: rows come and go, and the model predicts."""

    def __init__(self, path: Path, model: Path, rows: Any, labels: Any) -> None:
        super().__init__(path, rows)
        self.labels, self.model, self.loaded = labels, model, files.load(model, mmap=False)
        self.model_raw = model.read_bytes()

    def forge(self, rng: random.Random) -> None:
        super().forge(rng)
        meta = dict(self.loaded.meta)
        meta["sums"] = meta["sums"] | {"crc32": checksum_of(files.load(self.path).checksums)}
        files.save(self.model, self.loaded.arrays, meta)

    def change(self, rng: random.Random) -> None:
        super().change(rng)
        self.model.write_bytes(self.model_raw)

    def use(self) -> None:
        model = smoothlink.load(self.model)
        model.update(self.rows, self.labels).predict_proba(self.rows)
        model.forget(self.rows, self.labels).predict(self.rows)


class JournalFile(SumsFile):
    """The journal of a model that is updated, which is applied."""

    forged_only = True  # its checksums are those of lines: tests/attacks/fuzz.py changes its bytes

    def __init__(self, path: Path, model: Path, rows: Any, labels: Any) -> None:
        super().__init__(model, model, rows, labels)
        with LivingFile(model) as living:
            self.records = [{"generation": state_of(living.classifier).generation}]
            for _ in range(2):
                living.update(rows, labels)
            self.path, self.raw = path, path.read_bytes()
        self.records += [json.loads(line[9:]) for line in self.raw.splitlines()[1:]]

    def forge(self, rng: random.Random) -> None:
        self.model.write_bytes(self.model_raw)
        records, content, checksum = list(self.records), b"", 0
        records[1] = with_other_value(records[1], rng)
        for record in records:
            with contextlib.suppress(ValueError):  # half of a surrogate pair
                line, checksum = line_of(record, checksum)
                content += line
        self.path.write_bytes(content)

    def use(self) -> None:
        with LivingFile(self.model) as living:
            living.model.predict(self.rows)


def model_files(folder: Path) -> list[ModelFile]:
    """Returns files of every form."""
    found: list[ModelFile] = []
    for number, (model, rows) in enumerate(made()):
        for dtype in ("float32", "float16", "int8", "int4"):
            model.save(folder / f"{number}-{dtype}", dtype=dtype)
            found.append(ModelFile(folder / f"{number}-{dtype}", rows))
    (X, Y), (C, y) = words(np.random.default_rng(1)), classes(np.random.default_rng(1))
    living: list[tuple[dict[str, Any], Any, Any]] = [
        ({"calibrate": True}, X, Y),
        ({"loss": "logistic"}, X, Y),
        ({"class_weight": "balanced"}, C, y),
    ]
    for number, (changes, rows, labels) in enumerate(living):
        model = fixed(updatable=True, **changes).fit(rows[:-4], labels[:-4])
        path, own = folder / f"living{number}.safetensors", folder / f"journal{number}.safetensors"
        for one in (path, own):
            model.save(one)
        (sums,) = folder.glob(f"living{number}-sums-*")
        found.append(SumsFile(sums, path, rows[-4:], labels[-4:]))
        found.append(JournalFile(own.with_suffix(".journal"), own, rows[-4:], labels[-4:]))
    return found


def campaign(folder: Path, seconds: float, seed: int, most: float = math.inf) -> dict[str, Any]:
    """Returns how many files were refused and loaded, and what went wrong."""
    rng, outcomes, wrong = random.Random(seed), Counter[str](), Counter[str]()
    bases = model_files(folder)
    end = time.monotonic() + seconds
    while time.monotonic() < end and outcomes.total() < most:
        base = rng.choice(bases)
        forged = base.forged_only or rng.random() < 0.5
        (base.forge if forged else base.change)(rng)
        begun, outcome = time.process_time(), "loaded" if forged else "the same"
        try:
            base.use()
            if not forged and not base.is_sound():
                wrong["a change went unnoticed"] += 1
        except ValueError as error:  # that of forged numbers may come from scikit-learn's look at the rows
            outcome = "refused"
            if not forged and not isinstance(error, ModelFileError):
                wrong["a change was noticed only at the prediction"] += 1
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            outcome = "wrong"
            wrong[f"{error!r:.200} at {os.path.basename(frame.filename)}:{frame.lineno}"] += 1
        outcomes[outcome] += 1
        if (taken := time.process_time() - begun) > 5 and outcomes.total() > 500:  # the first ones compile
            wrong[f"{taken:.0f} s"] += 1
    return {"files": outcomes.total(), **outcomes, "failures": dict(wrong)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, help="at most so long; 600 where no --files are given")
    parser.add_argument("--files", type=int, help="so many; without it, as many as the time allows")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    files.os.fsync = lambda handle: None
    with tempfile.TemporaryDirectory(prefix="smoothlink-forged-", dir=memory_folder()) as place:
        seconds = given.seconds or (600.0 if given.files is None else math.inf)
        found = campaign(Path(place), seconds, given.seed, given.files or math.inf)
    print(json.dumps(found))
    sys.exit(bool(found["failures"]))
