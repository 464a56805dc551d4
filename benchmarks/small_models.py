"""What fewer bits save in a model file, and what they cost, on a tenth of the training rows that is held out.

    python benchmarks/small_models.py FOLDER [SET ...]    # writes results/small_models/figures.json

Models are fitted to the other rows with the defaults (yso-finna-en: two passes, not calibrated), or taken from
FOLDER/SET.safetensors where they are there, and saved there in float32. Each step alone, then whole files. Test rows
are not read.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from calibration import VECTORISED
from numpy.typing import NDArray

import smoothlink
from results import DATA, results, versions
from smoothlink import Joint, SmoothLinkClassifier
from smoothlink.model import Model
from smoothlink.modelfile import load
from smoothlink.safetensors_file import load as load_file
from smoothlink.weights import convert

SETS = ["bibtex", "debtags", "citeulike-t", "yso-finna-en"]
ROWS = 10_000  # of those measured at most
FILES: list[dict[str, Any]] = [
    *({"dtype": dtype} for dtype in ("float32", "float16", "int8", "int4")),
    *({"dtype": "int4", "prune": share} for share in (0.5, 0.8)),
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="*", default=SETS)
    given = parser.parse_args()
    target = results("small_models")
    known = json.loads(target.read_text()) if target.exists() else {"sets": {}}
    for name in given.sets:
        model, rows = fitted(name, given.folder / f"{name}.safetensors")
        known["sets"][name] = list(measured(model, rows.X[:ROWS], rows.Y[:ROWS]))
        circumstances = {"date": time.strftime("%Y-%m-%d"), "versions": versions(), "seed": 0, "rows": ROWS}
        record = {**circumstances, "command": "python benchmarks/small_models.py FOLDER", **known}
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(record, indent=1) + "\n")


def fitted(name: str, path: Path) -> tuple[SmoothLinkClassifier, smoothlink.Data]:
    """Returns the model of nine tenths of the training rows, and the others."""
    texts = VECTORISED / name / "train.txt"
    data = smoothlink.read(texts if texts.exists() else DATA / name / "train.txt.xz")
    n = data.X.shape[0]
    held = np.sort(np.random.default_rng(0).permutation(n)[: n // 10])
    if not path.exists():
        kept = np.setdiff1d(np.arange(n), held)
        quick: dict[str, Any] = {"training": Joint(passes=2), "calibrate": False} if name == "yso-finna-en" else {}
        model = SmoothLinkClassifier(random_state=0, **quick).fit(data.X[kept], data.Y[kept])
        model.save(path, dtype="float32")
    found = load(path)
    assert isinstance(found, SmoothLinkClassifier)
    return found, data._replace(X=data.X[held], Y=data.Y[held])


def measured(classifier: SmoothLinkClassifier, X: sp.csr_array, Y: sp.csr_array) -> Iterator[dict[str, Any]]:
    """Yields what each step alone and each file costs."""
    model, exact = classifier.model_, best(classifier, X)
    for step, changes in single_steps(model):
        classifier.model_ = replace(model, **changes)
        yield shown({"step": step}, best(classifier, X), exact, Y)
    classifier.model_ = model
    with tempfile.TemporaryDirectory() as folder:
        for options in FILES:
            if options.get("prune") and model.sparse_weights is None:
                continue
            path = Path(folder) / "m.safetensors"
            classifier.save(path, **options)
            parts = {name: array.nbytes for name, array in load_file(path).arrays.items()}
            largest = dict(sorted(parts.items(), key=lambda item: -item[1])[:8])
            found = shown({"file": options, "bytes": path.stat().st_size}, best(load(path), X), exact, Y)
            yield found | {"largest": largest}


def single_steps(model: Model) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each part of the weights in fewer bits."""
    for dtype in ("float16", "int8", "int4"):
        yield f"V {dtype}", {"V": convert(np.asarray(model.V), dtype)}
        if model.W is not None:
            yield f"W {dtype}", {"W": convert(np.asarray(model.W), dtype)}
    D = model.sparse_weights
    if D is not None:
        yield "D int16", {"sparse_weights": D.stored("float16", model.n_labels)}
        yield "D int8", {"sparse_weights": D.stored("int8", model.n_labels)}
        for share in (0.25, 0.5, 0.75, 0.8, 0.9):
            yield f"D pruned {share:g}", {"sparse_weights": D.without_smallest(share)}


def best(classifier: Any, X: sp.csr_array) -> NDArray[Any]:
    return np.asarray(classifier.predict_topk(X, 5).indices.reshape(-1, 5))


def shown(what: dict[str, Any], ids: NDArray[Any], exact: NDArray[Any], Y: sp.csr_array) -> dict[str, Any]:
    """Returns P@1 and P@5 in %, and the share of rows whose best label is another one."""
    true = sp.csr_matrix(Y)
    hits = np.asarray(true[np.arange(len(ids))[:, None], ids].todense()) > 0
    found = what | {
        "p@1": round(100 * float(hits[:, 0].mean()), 2),
        "p@5": round(100 * float(hits.mean()), 2),
        "other_best_label": round(100 * float(np.mean(ids[:, 0] != exact[:, 0])), 2),
    }
    print(found, flush=True)
    return found


if __name__ == "__main__":
    main()
