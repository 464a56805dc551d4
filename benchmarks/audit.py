"""How many wrong and missing labels `smoothlink.audit` finds, next to cleanlab with five-fold probabilities.

    python benchmarks/audit.py [SET ...] --cleanlab PYTHON    # an interpreter that has cleanlab and scikit-learn
    python benchmarks/audit.py page                           # writes the table of docs/audit.md

5 % of the labels of training rows are changed: "random": a label is replaced by one of all others, each as likely;
"confusable": by one that occurs together with it, in proportion to how often; "missing": it is removed. Wrong labels
are ranked among those given, missing ones among those not given, and the average precision of the ranking is measured.
cleanlab ranks by `get_label_quality_scores_per_class` with its defaults, once with the probabilities of a one-vs-rest
logistic regression (liblinear, defaults), once with those of our quick model, both from five folds. Seconds are of
whole runs from X and Y in memory to the ranking, in turn. Of each set the first 2,000 training rows are taken.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from results import DATA, ROOT, results, store

Array = NDArray[Any]

SETS = ("medical", "bibtex", "rcv1-subset1", "cooking-stackexchange", "debtags")
KINDS = ("random", "confusable", "missing")
SHARE, SEED, ROWS, FOLDS = 0.05, 0, 2000, 5
RANKED = 100_000  # pairs without a label that are ranked; further down they add nothing to the average precision
PEER = """
import sys, time, warnings
import numpy as np, scipy.sparse as sp
warnings.filterwarnings("ignore")
from cleanlab.internal.multilabel_utils import onehot2int
from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
folder = sys.argv[1]
X, Y = sp.load_npz(folder + "/X.npz"), sp.load_npz(folder + "/Y.npz")
dense, seconds = Y.toarray().astype(int), {}
for name in ("logistic", "quick"):
    began = time.perf_counter()
    if name == "logistic":
        folds = KFold(5, shuffle=True, random_state=0)
        model = OneVsRestClassifier(LogisticRegression(solver="liblinear"))
        P = cross_val_predict(model, X, dense, cv=folds, method="predict_proba")
    else:
        P = np.load(folder + "/quick.npy")
    scores = get_label_quality_scores_per_class(onehot2int(dense), P)
    seconds[name] = time.perf_counter() - began
    np.save(folder + f"/{name}_scores.npy", scores)
print(seconds["logistic"], seconds["quick"])
"""


def with_noise(Y: sp.csr_array, kind: str) -> tuple[sp.csr_array, Array]:
    """Returns labels of which some were changed, and the pairs (m, 2) of row and label that are to be found."""
    rng = np.random.default_rng([SEED, KINDS.index(kind)])
    n, c = Y.shape
    rows, labels = np.repeat(np.arange(n), np.diff(Y.indptr)), Y.indices.copy()
    together = sp.csr_array(Y.T @ Y)
    given, kept, found = set(zip(rows.tolist(), labels.tolist(), strict=True)), np.ones(len(labels), bool), []
    for at in np.sort(rng.choice(len(labels), round(SHARE * len(labels)), replace=False)).tolist():
        i, j = int(rows[at]), int(labels[at])
        if kind == "missing":
            kept[at] = False
            found.append((i, j))
            continue
        weights = np.ones(c) if kind == "random" else together[[j]].toarray()[0].astype(np.float64)
        weights[[k for k in range(c) if (i, k) in given]] = 0
        if not weights.any():
            continue
        labels[at] = k = int(rng.choice(c, p=weights / weights.sum()))
        given.discard((i, j))
        given.add((i, k))
        found.append((i, k))
    made = sp.csr_array((np.ones(int(kept.sum()), np.float32), (rows[kept], labels[kept])), (n, c))
    made.sort_indices()
    return made, np.array(found)


def average_precision(pairs: Array, wanted: Array, c: int) -> float:
    """Returns the average precision of pairs (m, 2), the most certain first."""
    hits = np.isin(pairs @ (c, 1), wanted @ (c, 1))
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].sum() / len(wanted))


def quick_probabilities(X: Any, Y: sp.csr_array) -> Array:
    """Returns five-fold probabilities of our quick model."""
    from smoothlink import SmoothLinkClassifier

    P, fold = np.empty(Y.shape, np.float32), np.random.default_rng(SEED).permutation(len(Y.indptr) - 1) % FOLDS
    for number in range(FOLDS):
        held = fold == number
        model = SmoothLinkClassifier(effort="quick", task="multilabel").fit(X[~held], Y[~held])
        P[held] = model.predict_proba(X[held])
    return P


def measure(X: Any, truth: sp.csr_array, kind: str, peer: str) -> dict[str, Any]:
    """Returns average precisions and seconds of the three, for one kind of noise."""
    from smoothlink import audit

    Y, wanted = with_noise(truth, kind)
    c = Y.shape[1]
    began = time.perf_counter()
    found = audit(X, Y, limit=RANKED)
    seconds = {"smoothlink": time.perf_counter() - began}
    suspects = found.missing if kind == "missing" else found.wrong
    pairs = np.array([(one.row, one.number) for one in suspects])
    precision = {"smoothlink": average_precision(pairs, wanted, c)}
    first = suspects[: len(wanted)]
    expected = sum(one.sureness for one in first)
    hits = int(np.isin(pairs[: len(wanted)] @ (c, 1), wanted @ (c, 1)).sum())
    began = time.perf_counter()
    P = quick_probabilities(X, Y)
    fitting = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        sp.save_npz(f"{folder}/X.npz", sp.csr_matrix(X))
        sp.save_npz(f"{folder}/Y.npz", sp.csr_matrix(Y))
        np.save(f"{folder}/quick.npy", P)
        ran = subprocess.run([peer, "-c", PEER, folder], check=True, capture_output=True, text=True)
        seconds["cleanlab_logistic"], ranking = map(float, ran.stdout.split())
        seconds["cleanlab_quick"] = fitting + ranking
        among = Y.toarray() > 0 if kind != "missing" else Y.toarray() == 0
        for name in ("logistic", "quick"):
            scores = np.where(among, np.load(f"{folder}/{name}_scores.npy"), np.inf)
            order = np.argsort(scores, axis=None, kind="stable")[: int(among.sum())]
            precision[f"cleanlab_{name}"] = average_precision(np.stack([order // c, order % c], axis=1), wanted, c)
    return {
        "average_precision": precision,
        "seconds": seconds,
        "changed": len(wanted),
        "found_at_equal_number": hits,
        "sum_of_sureness": expected,
    }


def load(name: str) -> tuple[Any, sp.csr_array]:
    """Returns the first training rows of a set, and the labels that they have."""
    import smoothlink

    file = ROOT / "data" / "vectorised" / name / "train.txt"  # benchmarks/vectorise.py writes those of texts
    data = smoothlink.read(file if file.exists() else DATA / name / "train.txt.xz")
    X, Y = data.X[:ROWS], sp.csr_array(data.Y[:ROWS])
    return X, sp.csr_array(Y[:, np.bincount(Y.indices, minlength=Y.shape[1]) > 0])


def table() -> list[str]:
    """Returns the table of docs/audit.md."""
    found = json.loads(results("audit").read_text())
    lines = ["| set | mistakes | smoothlink | cleanlab, logistic regression | cleanlab, our quick model | seconds |"]
    lines += ["|---|---|---|---|---|---|"]
    for name in (name for name in SETS if name in found):
        for kind in KINDS:
            cell = found[name][kind]
            ap, s = cell["average_precision"], cell["seconds"]
            names = ("smoothlink", "cleanlab_logistic", "cleanlab_quick")
            best = max(ap.values())
            shown = [f"**{ap[k]:.3f}**" if ap[k] == best else f"{ap[k]:.3f}" for k in names]
            lines.append(f"| {name} | {kind} | {' | '.join(shown)} | {' / '.join(f'{s[k]:.1f}' for k in names)} |")
    return lines


def page() -> None:
    """Writes the table between its marks in docs/audit.md."""
    path, begin, end = ROOT / "docs" / "audit.md", "<!-- figures -->\n", "<!-- end of figures -->"
    head, rest = path.read_text().split(begin)
    path.write_text(head + begin + "\n" + "\n".join(table()) + "\n\n" + end + rest.split(end)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; all where none is named")
    parser.add_argument("--cleanlab", metavar="PYTHON", default=sys.executable)
    given = parser.parse_args()
    if given.sets == ["page"]:
        page()
        return
    import smoothlink

    X, Y = load("medical")
    smoothlink.audit(X, Y)  # compiles what is compiled
    version = [given.cleanlab, "-c", "import cleanlab, sklearn; print(cleanlab.__version__, sklearn.__version__)"]
    peer = subprocess.run(version, check=True, capture_output=True, text=True).stdout.split()
    for name in given.sets or SETS:
        X, Y = load(name)
        cells: dict[str, Any] = {"rows": int(X.shape[0]), "features": int(X.shape[1]), "labels": int(Y.shape[1])}
        for kind in KINDS:
            cells[kind] = measure(X, Y, kind, given.cleanlab)
            ap, seconds = cells[kind]["average_precision"], cells[kind]["seconds"]
            print(name, kind, " ".join(f"{k} {ap[k]:.3f} ({seconds[k]:.1f} s)" for k in ap), flush=True)
        cells |= {"seed": SEED, "share": SHARE, "cleanlab": peer[0], "scikit-learn of cleanlab": peer[1]}
        store(results("audit"), name, {**cells, "command": "python benchmarks/audit.py --cleanlab PYTHON"})


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
