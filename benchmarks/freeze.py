"""Records what a redesign must not change, and compares a later state of the code with the record.

    python benchmarks/freeze.py record  [--only models|sets|imports] [--suite-seconds N] [--large] [--again]
    python benchmarks/freeze.py compare [--only models|sets|imports] [--suite-seconds N] [--large] [--against REV]

- models: predictions and `summary_` (without seconds and memory) of many settings on small data, on the processor
  ("cpu"), with torch on the processor ("torch") and on two Dask workers ("local:2"). A setting that a place refuses is
  recorded as refused.
- sets: P@1, P@5, seconds of the fit and peak memory of README's data sets, with effort full and quick, each in a
  process of its own. Data are read from $SMOOTHLINK_DATA; benchmarks/vectorise.py writes text sets to --scratch.
- imports: seconds of `import smoothlink` and `import smoothlink.estimator`, and how many of our modules each loads.

The record is results/freeze/record.json, with predictions in results/freeze/predictions.npz. `record` replaces the
parts that it is asked for and leaves the others; cells of data sets that were measured with the same source code are
kept unless --again is given, so that a run may be stopped and started again.

`compare` prints one line for each difference and exits with 1 where there is one. Predictions may differ by 1e-5 on the
same machine, numbers of the summary by a share of 1e-4, P@1 and P@5 by 1e-4. Seconds and memory depend on what else the
machine does, so they are compared only with --against REV: that revision is checked out into a temporary folder, and
both are measured in turn in the same run, until the ratio of their best figures is at most --ratio or enough was tried.
Where the record lacks a set, its P@1 and P@5 are compared with those of that revision.

Changes that are meant are listed in results/freeze/intended.json and printed with their reason:

    {"NAME": {"reason": "...", "covers": ["models/calibrated on */probabilities"],
              "p@1": {"bibtex full": [BEFORE, AFTER]}}}

`covers` has patterns (as of file names) for the names that the lines of `compare` begin with. A cell of a data set that
an entry lists under "p@1" may be worse than the record by 0.1 points, and must have the P@1 of the last entry's AFTER.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from fnmatch import fnmatchcase
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import smoothlink  # before NumPy, whose idle threads would otherwise slow the fits

# isort: split
import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from smoothlink import Cholesky, ConjugateGradient, DualCholesky, PerLabel, SmoothLinkClassifier, TextSmoothLink
from smoothlink.choices import nest
from smoothlink_paper import LabelSpace

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("models", "sets", "imports")
PREDICTION_TOLERANCE, SUMMARY_TOLERANCE, ACCURACY_TOLERANCE = 1e-5, 1e-4, 1e-4
INTENDED_LOSS = 1e-3  # of P@1 and P@5, as fractions, where a change is meant
PREDICTED_ROWS, TOP = 12, 5
# Seconds and memory. Which bytes go over the network depends on where Dask happens to run a task.
UNSTABLE_SUMMARY = ("seconds", "peak_memory_mb", "peak_device_mb", "bytes_moved")

# ---------------------------------------------------------------------------------------------------------------------
# The one table of settings. Names on the left stay; parameters are edited when the estimator's parameters change, and
# SUMMARY_NAMES when names in summary_ change (name now -> name in the record).
# ---------------------------------------------------------------------------------------------------------------------

# A cluster cannot scale columns to unit variance, the default for dense tables; a setting's own scale goes first.
PLACES: dict[str, dict[str, Any]] = {"cpu": {}, "torch": {"device": "torch"}, "local:2": {"scale": "unit"}}
SUMMARY_NAMES = {"sparse_weights": "direct_weights", "partitioned": "shared_out"}
EMBEDDING: dict[str, Any] = {"rank": 4, "ridge": 1.0}
LINK: dict[str, Any] = {"kernel.bandwidth": 2.0, "kernel.features": 40}
DECODER: dict[str, Any] = {"final_ridge": 0.1, "loss": "squared", "calibrate": False}


class Setting(NamedTuple):
    data: str  # a name that `data_of` knows
    parameters: dict[str, Any]  # by dotted name, as `smoothlink.choices.nest` takes them
    places: tuple[str, ...] = tuple(PLACES)
    needs_torch: bool = False
    rank_by: str = "probability"  # of the labels on top
    kind: type = SmoothLinkClassifier


def fixed(data: str, changes: dict[str, Any] | None = None, *, rank_by: str = "probability", **more: Any) -> Setting:
    """Returns a setting that leaves nothing to held-out rows but what `changes` and `more` do.

    What a learner has no use for, and would refuse, is left out.
    """
    asked = {**(changes or {}), **more}
    embedding = asked.get("embedding")
    per_label, x_itself = embedding == "per_label" or isinstance(embedding, PerLabel), embedding == "none"
    unused = {"rank"} if per_label or x_itself else set()
    unused |= {"ridge"} if x_itself or getattr(embedding, "classifier", None) is not None else set()
    unused |= set(LINK) if asked.get("kernel") == "linear" else set()
    parameters = {name: value for name, value in {**EMBEDDING, **LINK, **DECODER}.items() if name not in unused}
    return Setting(data, parameters | asked, rank_by=rank_by)


def label_space(data: str, method: str) -> Setting:
    return Setting(data, {"method": method, **EMBEDDING}, kind=LabelSpace)


ONE_PLACE, HOST = ("cpu",), ("cpu", "torch")
SAMPLED = {"training": "joint", "training.negatives": 3, "training.passes": 2, "rank": 4}
FINE_TUNED = {"training": "finetune", "training.passes": 1, "loss.passes": 1}
MODELS: dict[str, Setting] = {
    "squared": fixed("multilabel"),
    "calibrated": fixed("multilabel", calibrate=True),
    "logistic": fixed("multilabel", {"loss.passes": 2}, loss="logistic"),
    "words": fixed("words"),
    "sparse words": fixed("sparse words", loss="logistic", calibrate=True),
    "softmax of texts": fixed("texts", {"loss.passes": 2}, loss="softmax"),
    "calibrated softmax": fixed("classes", loss="softmax", calibrate=True),
    "squared classes": fixed("gaps", calibrate=True),
    "objects": fixed("objects"),
    "bools": fixed("bools"),
    "unsigned": fixed("unsigned"),
    "bytes": fixed("bytes"),
    "floats": fixed("floats"),
    "linear": fixed("multilabel", kernel="linear"),
    "matern": fixed("multilabel", kernel="matern(2.5)"),
    "plst": label_space("multilabel", "plst"),
    "cplst": label_space("words", "cplst"),
    "random": fixed("multilabel", embedding="random"),
    "principal": fixed("multilabel", embedding="principal"),
    "identity": fixed("multilabel", embedding="per_label"),
    "none": fixed("multilabel", embedding="none"),
    "none of words": fixed("words", embedding="none", scale="unit"),
    "input kernel": fixed("multilabel", {"input_kernel.features": 20}, input_kernel="gaussian"),
    "input kernel at random": fixed(
        "multilabel", {"input_kernel.features": 20, "input_kernel.map": "random"}, input_kernel="gaussian"
    ),
    "input kernel of words": fixed("words", {"input_kernel.features": 20}, input_kernel="laplacian"),
    "input kernel of classes": fixed(
        "texts",
        {"input_kernel.features": 12, "input_kernel.map": "random"},
        input_kernel="gaussian",
        scale="variance",
    ),
    "linear first stage": fixed("words", embedding=PerLabel(LogisticRegression())),
    "normalized": fixed("words", normalize_embedding=True),
    "variance": fixed("words", scale="variance"),
    "no scale": fixed("multilabel", scale="none"),
    "many parameters": fixed(
        "multilabel",
        solver=ConjugateGradient(tol=1e-4, iterations=77),
        class_weight={2: 3, 1: 0.5},
        rank=3,
        ridge=0.5,
        kernel="matern(3)",
        random_state=7,
        rank_by="psp",
    ),
    "cholesky": fixed("multilabel", solver=Cholesky()),
    "dual": fixed("words", solver=DualCholesky()),
    "weighted labels": fixed("multilabel", class_weight=[1, 2, 3, 4, 5, 6]),
    "balanced labels": fixed("multilabel", class_weight="balanced"),
    "balanced classes": fixed("classes", class_weight="balanced"),
    "share of the labels as rank": fixed("words", rank=0.8),
    "everything auto": Setting("multilabel", {"kernel.features": 30}),
    "quick": Setting("multilabel", {"kernel.features": 30, "effort": "quick"}),
    "quick softmax": Setting("classes", {"kernel.features": 30, "effort": "quick"}),
    # Sampled negatives and fine-tuning
    "sampled negatives": Setting("words", SAMPLED),
    "sampled negatives without sparse weights": Setting("words", SAMPLED | {"training.sparse_weights": False}),
    "sampled negatives, medical": Setting(
        "medical", SAMPLED | {"training.negatives": 10, "rank": 16, "training.passes": 3}, HOST
    ),
    "fine-tuned": fixed("words", FINE_TUNED, loss="logistic")._replace(needs_torch=True),
    "fine-tuned dense": fixed(
        "multilabel", FINE_TUNED | {"training.passes": 2, "training.dropout": 0.1}, loss="logistic"
    )._replace(needs_torch=True),
    "fine-tuned classes": fixed("classes", FINE_TUNED, loss="softmax")._replace(places=HOST, needs_torch=True),
    # Real data with defaults
    "emotions": Setting("emotions", {}, ONE_PLACE),
    "emotions, quick": Setting("emotions", {"effort": "quick"}),
    "scene, quick": Setting("scene", {"effort": "quick"}),
    "yeast, quick": Setting("yeast", {"effort": "quick"}, ONE_PLACE),
    "medical": Setting("medical", {}, ONE_PLACE),
    "medical, quick": Setting("medical", {"effort": "quick"}),
    "enron, quick": Setting("enron", {"effort": "quick"}, HOST),
    # Texts
    "documents": Setting("documents", {}, ONE_PLACE),
    "documents, quick": Setting("documents", {"effort": "quick"}),
    "documents, fixed": fixed("documents"),
    "documents, sampled negatives": Setting("documents", SAMPLED | {"training.negatives": 2}, HOST),
}

CLASS_IDS = {
    "classes": np.array([0, 1, 2]),
    "texts": np.array(["a", "bé", "日本語"]),
    "objects": np.array(["a", "bb", "ccc"], dtype=object),
    "gaps": np.array([-5, 7, 10**12]),
    "bools": np.array([False, True, True]),
    "unsigned": np.array([3, 5, 2**64 - 1], np.uint64),
    "bytes": np.array([1, 2, 255], np.uint8),
    "floats": np.array([1.0, 2.0, 4.0], np.float32),
}
REAL_ROWS = {"emotions": 391, "scene": 400, "yeast": 400, "medical": 333, "enron": 400}
WORDS = {"fruit": "apple pear plum", "metal": "iron copper zinc", "colour": "red green blue", "rare": "okapi tapir"}

# README's data sets, and those that take minutes.
SETS = ("bibtex", "delicious", "rcv1-topics-28k", "debtags", "cooking-stackexchange")
LARGE_SETS = ("yso-finna-en", "citeulike-t")
TEXT_SETS = ("debtags", "cooking-stackexchange", "yso-finna-en")
EFFORTS: dict[str, dict[str, Any]] = {"full": {}, "quick": {"effort": "quick"}}
IMPORTS = ("smoothlink", "smoothlink.estimator")


class Rows(NamedTuple):
    """Training data, and the rows to predict."""

    X: Any
    y: Any
    unseen: Any


def data_of(name: str) -> Rows:
    """Returns the data of a setting: made here with a fixed seed, or the first rows of a small real set."""
    rng, n = np.random.default_rng(0), 90 + PREDICTED_ROWS
    if name in REAL_ROWS:
        train, test = (smoothlink.read(file_of(data_folder() / name, part)) for part in ("train", "test"))
        return Rows(train.X[: REAL_ROWS[name]], train.Y[: REAL_ROWS[name]], test.X[:PREDICTED_ROWS])
    if name == "documents":
        texts, labels = documents(rng, n)
        return Rows(texts[:90], labels[:90], texts[90:])
    if name in CLASS_IDS:
        y = np.concatenate([np.arange(3), rng.integers(0, 3, n - 3)])
        X = 1.5 * rng.standard_normal((3, 6))[y] + rng.standard_normal((n, 6))
        return Rows(X[:90], CLASS_IDS[name][y[:90]], X[90:])
    X = rng.standard_normal((n, 10)) if name == "multilabel" else rng.poisson(0.15, (n, 40)).astype(np.float64)
    scores = X @ rng.standard_normal((X.shape[1], 6)) + 0.5 * rng.standard_normal((n, 6))
    Y = (scores > np.quantile(scores, 0.7, axis=0)).astype(np.int64)
    if name == "multilabel":
        return Rows(X[:90], Y[:90], X[90:])
    return Rows(sp.csr_array(X[:90]), sp.csr_array(Y[:90]) if name == "sparse words" else Y[:90], sp.csr_array(X[90:]))


def documents(rng: np.random.Generator, n: int) -> tuple[list[str], list[list[str]]]:
    """Returns texts that contain words of their labels; every tenth has no label."""
    texts, labels = [], []
    for row in range(n):
        names = rng.choice(list(WORDS), size=rng.integers(1, 3), replace=False, p=[0.4, 0.3, 0.2, 0.1]).tolist()
        names = [] if row % 10 == 9 else names
        words = [rng.choice(WORDS[name].split()) for name in names for _ in range(3)]
        texts.append(" ".join([*words, *rng.choice(["the", "of", "and"], 3)]))
        labels.append(names)
    return texts, labels


def data_folder() -> Path:
    if "SMOOTHLINK_DATA" not in os.environ:
        sys.exit("Where are the data sets? Set SMOOTHLINK_DATA to their folder.")
    return Path(os.environ["SMOOTHLINK_DATA"])


def file_of(folder: Path, part: str) -> Path:
    """Returns FOLDER/PART.txt, plain or compressed."""
    found = [path for end in ("", ".xz", ".gz", ".zst") if (path := folder / f"{part}.txt{end}").exists()]
    if not found:
        sys.exit(f"There is no {part}.txt in {folder}, neither plain nor compressed.")
    return found[0]


# ---------------------------------------------------------------------------------------------------------------------
# Models
# ---------------------------------------------------------------------------------------------------------------------

Arrays = dict[str, np.ndarray[Any, Any]]


class Fitted(NamedTuple):
    """What is kept of a model; both are empty but for "refused" where the place refused the setting."""

    facts: dict[str, Any]
    arrays: Arrays


def missing_library(setting: Setting, place: str) -> str | None:
    """Returns the library that a model needs and that is not installed."""
    needed = ["torch"] * (setting.needs_torch or place == "torch") + ["distributed"] * (place == "local:2")
    return next((name for name in needed if importlib.util.find_spec(name) is None), None)


def fit(setting: Setting, place: str) -> Fitted:
    rows = data_of(setting.data)
    make = TextSmoothLink if setting.data == "documents" else setting.kind
    try:
        model = make(**nest(PLACES[place] | setting.parameters)).fit(rows.X, rows.y)
    except Exception as error:  # whatever it is, the other settings go on
        return Fitted({"refused": f"{type(error).__name__}: {error}".splitlines()[0]}, {})
    classes = model.classes_.tolist()
    probabilities = np.asarray(model.predict_proba(rows.unseen), np.float32)
    ranked = {} if setting.data == "documents" else {"rank_by": setting.rank_by}
    top: Any = model.predict_topk(rows.unseen, k=min(TOP, len(classes)), **ranked)
    sets: Any = model.predict_f1(rows.unseen)
    best: Any
    chosen: Any
    if setting.data == "documents":
        best = [[classes.index(name) for name, _ in row] for row in top]
        chosen = [[name in row for name in classes] for row in sets]
    else:
        best = np.asarray(top.indices).reshape(top.shape[0], -1)
        chosen = sets.toarray() if sp.issparse(sets) else sets
        if np.ndim(chosen) == 1:  # class ids
            chosen = [[label == name for name in classes] for label in chosen.tolist()]
    facts = {"summary": stable(model.summary_), "classes": classes, "class_type": model.classes_.dtype.str}
    arrays: Arrays = {
        "probabilities": probabilities,
        "top": np.asarray(best, np.int16),
        "f1_sets": np.asarray(chosen, np.int64).astype(np.uint8),
    }
    return Fitted(json.loads(json.dumps(facts, default=float)), arrays)


def stable(summary: dict[str, Any]) -> dict[str, Any]:
    """Returns the summary without seconds and memory, under the names of the record."""
    return {SUMMARY_NAMES.get(name, name): value for name, value in summary.items() if name not in UNSTABLE_SUMMARY}


def fit_models(names: Sequence[str], places: Sequence[str]) -> dict[str, Fitted]:
    """Fits each setting at each of its places -> what is kept, by "NAME on PLACE"; says which were left out."""
    found: dict[str, Fitted] = {}
    for place in places:
        wanted = [name for name in names if place in MODELS[name].places]
        absent = {name: missing_library(MODELS[name], place) for name in wanted}
        for library in sorted(set(filter(None, absent.values()))):
            left_out = [name for name in wanted if absent[name] == library]
            print(f"Note: {library} is not installed; {len(left_out)} models on {place} are left out.")
        wanted = [name for name in wanted if absent[name] is None]
        with contextlib.ExitStack() as stack:
            if place == "local:2" and wanted:
                stack.enter_context(smoothlink.cluster(place))
            for name in wanted:
                found[f"{name} on {place}"] = fit(MODELS[name], place)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Data sets and imports, each in a process of its own
# ---------------------------------------------------------------------------------------------------------------------


def measure(train: str, test: str, effort: str) -> dict[str, Any]:
    """Fits one data set in this process -> accuracies, seconds of the fit and peak memory of the process."""
    data = smoothlink.read(train)
    began = time.perf_counter()
    model = SmoothLinkClassifier(**EFFORTS[effort]).fit(data.X, data.Y)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KiB
    held = smoothlink.read(test)
    metrics = model.evaluate(held.X, held.Y, bootstraps=0).metrics
    accuracies = {key: round(float(metrics[key].value), 6) for key in ("p@1", "p@5")}
    return {**accuracies, "seconds": round(seconds, 3), "peak_mb": round(peak, 1), "package": smoothlink.__file__}


def in_process(tree: Path, command: Sequence[str]) -> dict[str, Any]:
    """Runs Python with the package of a tree -> the JSON that it printed last, checked to come from that package."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    ran = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{' '.join(command[-4:])} failed:\n{ran.stderr}")
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    package = Path(found.pop("package"))
    if not package.is_relative_to(tree):
        sys.exit(f"smoothlink was loaded from {package}, not from {tree / 'src'}.")
    return found


def cell(tree: Path, name: str, effort: str, scratch: Path) -> dict[str, Any]:
    """Measures one set with one effort, by the script of the tree itself, whose parameter names fit."""
    folder = scratch if name in TEXT_SETS else data_folder()
    if name in TEXT_SETS and not (scratch / name / "train.txt").exists():
        vectorise = [sys.executable, str(ROOT / "benchmarks" / "vectorise.py"), str(scratch), name]
        subprocess.run(vectorise, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True)
    script = tree / "benchmarks" / "freeze.py"
    files = [str(file_of(folder / name, part)) for part in ("train", "test")]
    return in_process(tree, [str(script if script.exists() else Path(__file__)), "measure", *files, effort])


IMPORTED = """
import json, sys, time
began = time.perf_counter()
import {module}
seconds = time.perf_counter() - began
import smoothlink
ours = [name for name in sys.modules if name.partition(".")[0] in ("smoothlink", "smoothlink_paper")]
print(json.dumps(dict(seconds=round(seconds, 4), modules=len(ours), package=smoothlink.__file__)))
"""


def imported(tree: Path, module: str) -> dict[str, Any]:
    """Measures one import -> seconds and the number of our modules that it loads."""
    return in_process(tree, ["-c", IMPORTED.format(module=module)])


# ---------------------------------------------------------------------------------------------------------------------
# The record
# ---------------------------------------------------------------------------------------------------------------------


class Record:
    """record.json and predictions.npz of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = {"models": {}, "sets": {}, "imports": {}}
        self.arrays: Arrays = {}
        if self.path.exists():
            self.facts = json.loads(self.path.read_text())
            with np.load(self.path.with_name("predictions.npz")) as stored:
                self.arrays = dict(stored)

    @property
    def path(self) -> Path:
        return self.folder / "record.json"

    def model(self, name: str) -> Fitted:
        mine = {key.rpartition("/")[2]: array for key, array in self.arrays.items() if key.rpartition("/")[0] == name}
        return Fitted(self.facts["models"][name], mine)

    def put_model(self, name: str, fitted: Fitted) -> None:
        self.drop_model(name)
        self.facts["models"][name] = fitted.facts
        self.arrays |= {f"{name}/{key}": array for key, array in fitted.arrays.items()}

    def drop_model(self, name: str) -> None:
        self.facts["models"].pop(name, None)
        self.arrays = {key: array for key, array in self.arrays.items() if key.rpartition("/")[0] != name}

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        with open(part, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **self.arrays)
        part.replace(self.path.with_name("predictions.npz"))
        part.write_text(json.dumps(self.facts, indent=1, ensure_ascii=False) + "\n")
        part.replace(self.path)


def source() -> str:
    """Returns the revision of src/ in git; with "+" where files differ from it."""
    found, changed = (
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        for words in (["rev-parse", "HEAD:src"], ["status", "--porcelain", "src"])
    )
    return (found[:12] or "unknown") + "+" * bool(changed)


def circumstances() -> dict[str, Any]:
    libraries = {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "numba")}
    made = {"date": date.today().isoformat(), "source": source(), "python": platform.python_version(), **libraries}
    return {**made, "cores": os.cpu_count(), "machine": platform.machine()}


def record(given: argparse.Namespace) -> None:
    kept = Record(given.folder)
    if "models" in given.only:
        for place in given.places:
            found = fit_models(given.models or list(MODELS), [place])
            if not given.models:  # all of this place: nothing of settings that are gone stays
                for name in [name for name in kept.facts["models"] if name.rpartition(" on ")[2] == place]:
                    kept.drop_model(name)
            for name, fitted in found.items():
                kept.put_model(name, fitted)
                if "refused" in fitted.facts:
                    print(f"Refused: {name}: {fitted.facts['refused']}")
            kept.facts["models_made"] = circumstances()
            kept.save()
    if "sets" in given.only:
        for name, effort in cells(given):
            before, now = kept.facts["sets"].get(f"{name} {effort}"), source()
            if before and before["source"] == now and not now.endswith("+") and not given.again:
                print(f"{name} {effort}: there already")
                continue
            load = os.getloadavg()[0]
            found = cell(ROOT, name, effort, given.scratch)
            told = {"load_before": round(load, 2), "under_load": load > 0.5, "source": now}
            kept.facts["sets"][f"{name} {effort}"] = {**found, **told}
            kept.save()
            print(f"{name} {effort}: {found}", flush=True)
    if "imports" in given.only:
        for module in IMPORTS:
            tries = [imported(ROOT, module) for _ in range(5)]
            kept.facts["imports"][module] = min(tries, key=lambda found: float(found["seconds"]))
            print(f"import {module}: {kept.facts['imports'][module]}")
        kept.save()
    if given.suite_seconds is not None:
        kept.facts["suite_seconds"] = given.suite_seconds
        kept.save()


def cells(given: argparse.Namespace) -> list[tuple[str, str]]:
    names = given.sets or [*SETS, *(LARGE_SETS if given.large else ())]
    return [(name, effort) for name in names for effort in given.efforts]


# ---------------------------------------------------------------------------------------------------------------------
# The comparison
# ---------------------------------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    name: str  # of the thing, with slashes
    told: str


def compare_model(name: str, before: Fitted, now: Fitted) -> Iterator[Difference]:
    """Yields what differs between two models of one setting."""
    name = f"models/{name}"
    refusals = [fitted.facts.get("refused") for fitted in (before, now)]
    if any(refusals):
        if not refusals[0]:
            yield Difference(name, f"was fitted, is refused now: {refusals[1]}")
        elif not refusals[1]:
            yield Difference(name, "was refused, is fitted now")
        return
    for key in ("classes", "class_type"):
        if before.facts[key] != now.facts[key]:
            yield Difference(f"{name}/{key}", f"{before.facts[key]} before, {now.facts[key]} now")
    yield from compare_facts(f"{name}/summary", before.facts["summary"], now.facts["summary"])
    for key, old in before.arrays.items():
        if old.shape != now.arrays[key].shape:
            yield Difference(f"{name}/{key}", f"shape {old.shape} before, {now.arrays[key].shape} now")
            return
    old, new = before.arrays["probabilities"], now.arrays["probabilities"]
    if not (gap := float(np.max(np.abs(old - new), initial=0))) <= PREDICTION_TOLERANCE:
        yield Difference(f"{name}/probabilities", f"differ by up to {gap:.2g}")
    # Labels of equal probability may change places.
    ranked = [np.take_along_axis(old, fitted.arrays["top"].astype(int), axis=1) for fitted in (before, now)]
    moved = np.abs(ranked[0] - ranked[1]) > PREDICTION_TOLERANCE
    if moved.any():
        yield Difference(f"{name}/top", f"{int(moved.any(axis=1).sum())} of {len(old)} rows have other labels on top")
    changed = (before.arrays["f1_sets"] != now.arrays["f1_sets"]).any(axis=1)
    if changed.any():
        yield Difference(f"{name}/f1_sets", f"{int(changed.sum())} of {len(old)} rows have other labels by predict_f1")


def compare_facts(name: str, before: Any, now: Any) -> Iterator[Difference]:
    """Yields what differs between two values of JSON; numbers may differ by a small share."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            if key not in now or key not in before:
                where = "is missing" if key not in now else "is new"
                yield Difference(f"{name}/{key}", f"{where}: {(before | now)[key]}")
            else:
                yield from compare_facts(f"{name}/{key}", before[key], now[key])
        return
    same = before == now
    with contextlib.suppress(TypeError, ValueError):
        numbers = np.array(before, float), np.array(now, float)
        if not same and numbers[0].shape == numbers[1].shape:
            same = np.allclose(*numbers, SUMMARY_TOLERANCE, 1e-8, equal_nan=True)
    if not same:
        yield Difference(name, f"{before} before, {now} now")


def compare_cell(
    name: str, before: dict[str, Any], now: dict[str, Any], intended: dict[str, Any]
) -> Iterator[Difference]:
    """Yields what differs between two measurements of a data set in P@1 and P@5."""
    listed = [entry["p@1"][name][1] for entry in intended.values() if name in entry.get("p@1", {})]
    for key in ("p@1", "p@5"):
        told = f"{before[key]:.4f} before, {now[key]:.4f} now"
        if not listed and abs(now[key] - before[key]) > ACCURACY_TOLERANCE:
            yield Difference(f"sets/{name}/{key}", told)
        elif listed and before[key] - now[key] > INTENDED_LOSS:
            yield Difference(f"sets/{name}/{key}", f"{told}: worse by over 0.1 points, though a change is listed")
        elif listed and key == "p@1" and abs(now[key] - listed[-1]) > ACCURACY_TOLERANCE:
            yield Difference(f"sets/{name}/{key}", f"{told}; the intended change says {listed[-1]:.4f}")


def compare_figures(
    name: str, keys: Sequence[str], trees: Sequence[Path], run: Callable[[Path], dict[str, Any]], given: Any
) -> tuple[dict[str, Any], dict[str, Any], list[Difference]]:
    """Measures the other tree and this one in turn -> a measurement of each, and what got worse by the ratio."""
    found: list[list[dict[str, Any]]] = [[], []]
    slower: dict[str, float] = {}
    for round_ in range(3 * given.repeats):
        for tree, measured in zip(trees, found, strict=True):
            measured.append(run(tree))
        best = [{key: min(float(one[key]) for one in measured) for key in keys} for measured in found]
        ratios = {key: best[1][key] / best[0][key] for key in keys}
        slower = {key: ratio for key, ratio in ratios.items() if ratio > given.ratio}
        if round_ + 1 >= given.repeats and not slower:
            break
    told = ", ".join(f"{key} {best[0][key]:g} there, {best[1][key]:g} here, {ratios[key]:.3f} times" for key in keys)
    print(f"Ratio: {name}: {told}", flush=True)
    worse = [Difference(f"{name}/{key}", f"{ratio:.3f} times that of {given.against}") for key, ratio in slower.items()]
    return found[0][-1], found[1][-1], worse


def compare(given: argparse.Namespace) -> int:
    """Prints what differs from the record -> 1 if anything does that is not intended."""
    kept = Record(given.folder)
    if not kept.path.exists():
        sys.exit(f"There is no record in {given.folder}. Type: python benchmarks/freeze.py record")
    intended: dict[str, Any] = {}
    if (path := given.folder / "intended.json").exists():
        intended = json.loads(path.read_text())
    differences: list[Difference] = []
    if "models" in given.only:
        differences += compare_models(kept, given)
    with other_tree(given.against) as other:
        if "sets" in given.only:
            for name, effort in cells(given):
                title, run = f"{name} {effort}", partial(cell, name=name, effort=effort, scratch=given.scratch)
                before = kept.facts["sets"].get(title)
                if other is not None:
                    keys = ("seconds", "peak_mb")
                    there, now, worse = compare_figures(f"sets/{title}", keys, (other, ROOT), run, given)
                    before = before or there
                    differences += worse
                elif before:
                    now = run(ROOT)
                else:
                    differences.append(Difference(f"sets/{title}", "is not in the record; record it"))
                    continue
                differences += compare_cell(title, before, now, intended)
        if "imports" in given.only:
            for module in IMPORTS:
                now = imported(ROOT, module)
                if other is not None:
                    one = partial(imported, module=module)
                    _, now, worse = compare_figures(f"imports/{module}", ("seconds",), (other, ROOT), one, given)
                    differences += worse
                before = kept.facts["imports"].get(module, {"modules": 0})["modules"]
                if now["modules"] > before:
                    told = f"{before} of our modules before, {now['modules']} now"
                    differences.append(Difference(f"imports/{module}/modules", told))
    before = kept.facts.get("suite_seconds")
    if None not in (before, given.suite_seconds) and given.suite_seconds > given.ratio * before:
        differences.append(Difference("suite_seconds", f"{before:g} before, {given.suite_seconds:g} now"))
    return report(differences, intended)


def compare_models(kept: Record, given: argparse.Namespace) -> Iterator[Difference]:
    """Yields what differs between the models of the record and those fitted now."""
    recorded = [
        name
        for name in kept.facts["models"]
        for setting, _, place in [name.rpartition(" on ")]
        if place in given.places and (not given.models or setting in given.models)
    ]
    names = [name for name in given.models or MODELS if name in MODELS]
    found = fit_models(names, given.places)
    for name in recorded:
        setting, _, place = name.rpartition(" on ")
        if name in found:
            yield from compare_model(name, kept.model(name), found[name])
        elif setting not in MODELS or place not in MODELS[setting].places:
            yield Difference(f"models/{name}", "is missing")
    for name in found:
        if name not in recorded:
            yield Difference(f"models/{name}", "is not in the record; record it")


@contextlib.contextmanager
def other_tree(revision: str | None) -> Iterator[Path | None]:
    """Checks a revision out into a temporary folder, which is removed at the end -> its path, or None for None."""
    if revision is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="smoothlink-freeze-") as folder:
        tree = Path(folder).resolve() / "tree"
        added = ["git", "worktree", "add", "--quiet", "--detach", str(tree), revision]
        if (ran := subprocess.run(added, cwd=ROOT, capture_output=True, text=True)).returncode:
            sys.exit(f"git cannot check out {revision}: {ran.stderr.strip()}")
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def report(differences: Sequence[Difference], intended: dict[str, Any]) -> int:
    unexpected = 0
    for difference in differences:
        reasons = [
            f"{name}: {entry['reason']}"
            for name, entry in intended.items()
            if any(fnmatchcase(difference.name, pattern) for pattern in entry.get("covers", ()))
        ]
        unexpected += not reasons
        print(f"{'Intended' if reasons else 'Differs'}: {difference.name}: {difference.told}", *reasons, sep="; ")
    for name, entry in intended.items():
        for title, (before, after) in entry.get("p@1", {}).items():
            print(f"Intended: {title}: P@1 {before:.4f} before, {after:.4f} after; {name}: {entry['reason']}")
    print(f"{unexpected} differences that are not intended.")
    return int(unexpected > 0)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("record", "compare"):
        command = commands.add_parser(name)
        command.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts; all where none is named")
        command.add_argument("--models", nargs="+", metavar="NAME", help="of the table of settings; all by default")
        command.add_argument("--places", nargs="+", choices=PLACES, default=list(PLACES), help="all by default")
        command.add_argument("--sets", nargs="+", choices=[*SETS, *LARGE_SETS], help="data sets")
        command.add_argument("--efforts", nargs="+", choices=EFFORTS, default=list(EFFORTS))
        command.add_argument("--large", action="store_true", help=f"also {' and '.join(LARGE_SETS)}")
        command.add_argument("--suite-seconds", type=float, metavar="N", help="what the test suite took")
        command.add_argument("--folder", type=Path, default=ROOT / "results" / "freeze", help="of the record")
        scratch = Path(tempfile.gettempdir()) / "smoothlink-vectorised"
        command.add_argument("--scratch", type=Path, default=scratch, help="where text sets go as vectors")
        if name == "record":
            command.add_argument("--again", action="store_true", help="measure data sets that are there already again")
        else:
            command.add_argument("--against", metavar="REV", help="a revision to measure seconds and memory against")
            command.add_argument("--ratio", type=float, default=1.05, help="of seconds and memory, at most (1.05)")
            command.add_argument("--repeats", type=int, default=3, help="measurements of each; up to three times these")
    command = commands.add_parser("measure", help="one data set in this process; the other commands call this")
    for name in ("train", "test", "effort"):
        command.add_argument(name)
    given = parser.parse_args(words)
    if given.command == "measure":
        print(json.dumps(measure(given.train, given.test, given.effort)))
        return 0
    if not Path(smoothlink.__file__).is_relative_to(ROOT):
        parser.error(f"smoothlink was loaded from {smoothlink.__file__}. Type PYTHONPATH=src before the command.")
    if given.command == "compare":
        return compare(given)
    if unknown := set(given.models or ()) - set(MODELS):
        parser.error(f"{min(unknown)} is no model of the table.")
    record(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
