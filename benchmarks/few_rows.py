"""More labels than rows: 5,600 library titles from text, beside one tuned ridge regression onto all labels.

    python benchmarks/few_rows.py ours     # TextSmoothLink, defaults, seed 0
    python benchmarks/few_rows.py ridge    # the same n-grams, its ridge by a fifth of the training rows
    python benchmarks/few_rows.py compare  # the difference, over 1000 draws of the test rows

yso-finna-en of $SMOOTHLINK_DATA: 5,600 training and 20,000 test titles, drawn with seed 0. The ridge has scikit-learn's
TF-IDF (sublinear, as many columns) of the n-grams that smoothlink chose, words and characters scaled alike, an
intercept, and is solved by a Cholesky factor of its kernel matrix. Seconds are of the fit, of the processor and of the
clock. The figures are in results/few_rows.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from results import DATA, results, store

Array = NDArray[Any]

TRAIN, TEST, DRAWS = 5600, 20_000, 1000
RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
NAME = "yso-finna-en"


def titles(part: str, count: int) -> tuple[list[str], list[list[str]]]:
    """Returns random titles of a part, with the ids of their labels."""
    from smoothlink_paper.text_sets import FORMS, all_files, read_texts

    rows = list(read_texts(all_files(DATA, NAME)[part], FORMS[NAME]))
    some = np.sort(np.random.default_rng(0).permutation(len(rows))[:count])
    return [rows[i].text for i in some], [[label.strip() for label in rows[i].labels] for i in some]


def hits(best: Array, labels: list[list[str]], names: list[str]) -> Array:
    """Returns which of the best labels (n, 5) are true."""
    return np.array([[names[j] in true for j in row] for row, true in zip(best, labels, strict=True)])


def record(best: Array, labels: list[list[str]], names: list[str], **others: Any) -> None:
    """Stores P@1 and P@5, and the hits themselves for `compare`."""
    kind, true = sys.argv[1], hits(best, labels, names)
    np.save(results("few_rows").with_name(f"partial-{kind}.npy"), true)
    found = {"p@1": interval(true[:, 0]), "p@5": interval(true.mean(axis=1)), **others}
    store(results("few_rows"), kind, found | {"command": f"python benchmarks/few_rows.py {kind}"})
    print(kind, found)


def interval(values: Array) -> list[float]:
    """Returns the mean in %, and its 90 % interval over draws of rows."""
    rng = np.random.default_rng(0)
    means = [100 * values[rng.integers(0, len(values), len(values))].mean() for _ in range(DRAWS)]
    low, high = np.quantile(means, (0.05, 0.95))
    return [round(float(v), 3) for v in (100 * values.mean(), low, high)]


def ours() -> None:
    from smoothlink import TextSmoothLink

    texts, labels = titles("train", TRAIN)
    clock, busy = time.perf_counter(), time.process_time()
    model = TextSmoothLink(random_state=0).fit(texts, labels)
    seconds = {"seconds": round(time.perf_counter() - clock, 1), "cpu": round(time.process_time() - busy, 1)}
    texts, labels = titles("test", TEST)
    best = model.classifier_.predict_topk(model.transform(texts), k=5).indices.reshape(-1, 5)
    kept = {key: model.summary_[key] for key in ("ngrams", "rank", "ridge", "chosen_by", "peak_memory_mb", "labels")}
    names = model.classes_.tolist()
    blocks = [[block.kind, *block.ngrams, block.width] for block in model.features_.blocks_]
    record(best, labels, names, **seconds, settings=kept, ngrams=blocks, steps=model.summary_["seconds"])


def ridge() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import FeatureUnion

    from smoothlink.labels import read_labels

    blocks = json.loads(results("few_rows").read_text())["ours"]["ngrams"]
    kinds = {"words": "word", "characters": "char_wb"}

    def tfidf(kind: str, low: int, high: int, width: int) -> Any:
        return TfidfVectorizer(
            analyzer=kinds[kind], ngram_range=(low, high), min_df=2, max_features=width, sublinear_tf=True
        )

    texts, labels = titles("train", TRAIN)
    test_texts, test_labels = titles("test", TEST)
    clock, busy = time.perf_counter(), time.process_time()
    features = FeatureUnion([(block[0], tfidf(*block)) for block in blocks])
    X = sp.csr_array(features.fit_transform(texts), dtype=np.float32) / len(blocks) ** 0.5
    given = read_labels(labels)
    held, kept = np.split(np.random.default_rng(1).permutation(TRAIN), [TRAIN // 5])
    tried = {}
    for alpha in RIDGES:
        S = scores(X[kept], given.Y[kept], X[held], alpha)
        tried[alpha] = float(np.mean(given.Y[held, :].toarray()[np.arange(len(held)), S.argmax(axis=1)]))
        tried[alpha] += float(np.take_along_axis(given.Y[held, :].toarray(), top5(S), 1).mean())
    alpha = max(tried, key=lambda value: tried[value])
    coefficients = dual(X, given.Y, alpha)
    seconds = {"seconds": round(time.perf_counter() - clock, 1), "cpu": round(time.process_time() - busy, 1)}
    T = sp.csr_array(features.transform(test_texts), dtype=np.float32) / len(blocks) ** 0.5
    best = np.concatenate([top5(predicted(X, T[i : i + 2000], *coefficients)) for i in range(0, TEST, 2000)])
    record(best, test_labels, given.names, **seconds, alpha=alpha, tried=tried)


def dual(X: Any, Y: Any, alpha: float) -> tuple[Array, Array]:
    """Returns dual coefficients (n, c) and intercepts (c,) of ridge regression."""
    K = (X @ X.T).toarray()
    K[np.diag_indices(len(K))] += np.float32(alpha)
    factor = scipy.linalg.cho_factor(K, overwrite_a=True)
    ones = scipy.linalg.cho_solve(factor, np.ones(len(K), np.float32))
    A = scipy.linalg.cho_solve(factor, Y.toarray().astype(np.float32))
    intercepts = A.sum(axis=0) / ones.sum()
    return A - np.outer(ones, intercepts), intercepts


def predicted(X: Any, T: Any, A: Array, intercepts: Array) -> Array:
    return (T @ X.T).toarray() @ A + intercepts


def scores(X: Any, Y: Any, T: Any, alpha: float) -> Array:
    return predicted(X, T, *dual(X, Y, alpha))


def top5(S: Array) -> Array:
    best = np.argpartition(-S, 5, axis=1)[:, :5]
    return np.take_along_axis(best, np.argsort(-np.take_along_axis(S, best, 1), axis=1), 1)


def compare() -> None:
    mine, other = (np.load(results("few_rows").with_name(f"partial-{kind}.npy")) for kind in ("ours", "ridge"))
    difference = mine.astype(float) - other
    found = {"p@1": interval(difference[:, 0]), "p@5": interval(difference.mean(axis=1))}
    store(results("few_rows"), "difference", found)
    print(found)


def section() -> list[str]:
    """The table of docs/results.md."""
    found = json.loads(results("few_rows").read_text())
    lines = [
        "## More labels than rows",
        "",
        f"`python benchmarks/few_rows.py`: {TRAIN:,} titles of yso-finna-en, drawn with seed 0, with "
        f"{found['ours']['settings']['labels']:,} labels, from text; {TEST:,}",
        "test titles. Ridge: one ridge regression onto all labels, its penalty by a fifth of the training rows, with",
        "the same n-grams as TF-IDF of scikit-learn, words and characters scaled alike. Means in % and 90 % intervals;",
        "seconds of the fit, of the processor, on cores with other work. Both are ridge regressions. They differ in",
        "how much of a row characters are, which held-out texts chose, in the penalty, and in small weights left out.",
        "",
        "| | P@1 | P@5 | seconds |",
        "|---|---|---|---|",
    ]
    for kind, name in (("ours", "smoothlink"), ("ridge", "ridge"), ("difference", "difference")):
        cells = (f"{mean:.2f} [{low:.2f}, {high:.2f}]" for mean, low, high in (found[kind][m] for m in ("p@1", "p@5")))
        lines.append(f"| {name} | {' | '.join(cells)} | {found[kind].get('cpu', '')} |")
    stated = ", ".join(f"{k} {v}" for k, v in found["ours"]["versions"].items())
    chose = found["ours"]["settings"]["ngrams"]
    return [*lines, "", f"It chose {chose}. Measured {found['ours']['date']} with {stated}."]


if __name__ == "__main__":
    {"ours": ours, "ridge": ridge, "compare": compare}[sys.argv[1]]()
