"""Estimates of P@1 without labels on slices of test rows, and alarms of a watch.

    python benchmarks/drift.py develop [SET ...]    # slices of other sets, on which corrections are chosen
    python benchmarks/drift.py estimate [SET ...]   # the five sets: estimates against truth, alarms of watches
    python benchmarks/drift.py page                 # the tables of docs/drift.md

The slices are a third of the test rows each, and were fixed before any of them was measured. Four are chosen by the
features of the rows; the fifth by their true labels, which nothing that is without labels can know.
"""

from __future__ import annotations

import json
import lzma
import sys
import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import smoothlink
from results import DATA, ROOT, results, store

SETS = ("yso-finna-en", "cooking-stackexchange", "debtags", "rcv1-topics-28k", "delicious")
DEVELOPMENT = ("bibtex", "enron", "rcv1-subset1", "corel5k", "medical", "yeast")  # and reuters21578, of texts
BY_FEATURES = ("few features", "unknown words", "unlike the mean", "a topic")
PARTS = {"yso-finna-en": (40_000, 20_000)}  # rows that are fitted and tested, the first after a shuffle
BAR = 2.0  # points of P@1
FALSE_ALARMS, WATCHES, WATCHED_ROWS = 0.01, 1000, 1000
DELAYS, STEP = 20, 20  # watches of each slice, and rows after which each is looked at


class Rows(NamedTuple):
    """The rows of a set: texts or a matrix, and labels."""

    rows: Any
    Y: Any  # names of each text, or a 0/1 matrix


def read(name: str) -> tuple[Rows, Rows]:
    """Returns training and test rows."""
    if name in ("bibtex", "enron", "rcv1-subset1", "corel5k", "medical", "yeast", "rcv1-topics-28k", "delicious"):
        train, test = (smoothlink.read(DATA / name / f"{part}.txt.xz") for part in ("train", "test"))
        d, c = max(train.X.shape[1], test.X.shape[1]), max(train.Y.shape[1], test.Y.shape[1])
        for data in (train, test):
            data.X.resize(data.X.shape[0], d)
            data.Y.resize(data.Y.shape[0], c)
        return Rows(train.X, train.Y), Rows(test.X, test.Y)
    return texts(name, "train"), texts(name, "test")


def texts(name: str, part: str) -> Rows:
    """Returns the texts of a set with the names of their labels; rows without a label are left out."""
    suffix = "txt" if name == "cooking-stackexchange" else "tsv"
    with lzma.open(DATA / name / f"{part}.{suffix}.xz", "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if name == "cooking-stackexchange":
            words = line.split(" ")
            labels = [word.removeprefix("__label__") for word in words if word.startswith("__label__")]
            found.append((" ".join(words[len(labels) :]), labels))
        elif name == "yso-finna-en":
            ids, title = line.split("\t", 1)
            found.append((title, ids.split(",")))
        else:
            _, labels_, *text = line.split("\t")
            prefix = "topics:" if name == "reuters21578" else ""
            each = [label for label in labels_.split(",") if label.startswith(prefix)]
            found.append(("\n".join(text), each))
    found = [(text, labels) for text, labels in found if any(labels)]
    if name in PARTS:
        order = np.random.default_rng(0).permutation(len(found))[: PARTS[name][part == "test"]]
        found = [found[i] for i in order]
    return Rows([text for text, _ in found], [labels for _, labels in found])


def fit(train: Rows) -> Any:
    """Returns a model with default settings of a quick fit."""
    if isinstance(train.rows, list):
        return smoothlink.TextSmoothLink(effort="quick", label_separator="none").fit(train.rows, train.Y)
    return smoothlink.SmoothLinkClassifier(effort="quick").fit(train.rows, train.Y)


class Tested(NamedTuple):
    """Test rows as a model gets them, and their true labels."""

    X: sp.csr_array
    Y: sp.csr_array  # (n, >= c)
    slices: dict[str, Any]  # numbers of the rows of each


def third(keys: Any) -> Any:
    """Returns the numbers, in order, of the third of the rows whose keys are smallest."""
    return np.sort(np.argsort(keys, kind="stable")[: len(keys) // 3])


def test_slices(model: Any, train: Rows, test: Rows) -> Tested:
    """Returns the test rows and their slices."""
    from sklearn.decomposition import TruncatedSVD

    of_texts = isinstance(train.rows, list)
    A = model.transform(train.rows) if of_texts else sp.csr_array(train.rows)
    X = model.transform(test.rows) if of_texts else sp.csr_array(test.rows)
    Y = model._read_labels(test.Y).Y if of_texts else sp.csr_array(test.Y)
    counts = (model.classifier_ if of_texts else model).model_.counts
    if of_texts:
        words = model.features_.unknown_words(test.rows)
        novelty = words[:, 0] / np.maximum(words[:, 1], 1)
    else:  # vectors have no unknown words: the mean rarity of their features
        rarity = np.log((1 + A.shape[0]) / (1 + np.bincount(A.indices, minlength=A.shape[1])))
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        novelty = np.bincount(rows, rarity[X.indices], X.shape[0]) / np.maximum(np.diff(X.indptr), 1)
    mean = np.asarray(A.mean(axis=0)).ravel()
    lengths = np.maximum(sp.linalg.norm(X, axis=1), 1e-12)
    directions = TruncatedSVD(2, random_state=0).fit(A[: min(A.shape[0], 20_000)])
    frequency = np.concatenate([counts, np.zeros(Y.shape[1] - len(counts))])
    most = sp.csr_array((frequency[Y.indices], Y.indices, Y.indptr), Y.shape).max(axis=1).toarray().ravel()
    return Tested(
        X,
        Y,
        {
            "all rows": np.arange(X.shape[0]),
            "few features": third(np.diff(X.indptr)),
            "unknown words": third(-novelty),
            "unlike the mean": third((X @ mean) / lengths),
            "a topic": third(-directions.transform(X)[:, 1] / lengths),
            "rare labels": third(most),
        },
    )


class Measured(NamedTuple):
    """A fitted model and what it computes of the test rows."""

    model: Any
    tested: Tested
    hits: Any  # (n,) whether the top label is true
    plain: Any  # (n,) probability of the top label
    corrected: Any  # (n,) the same, given also how many features the row has
    seconds: float
    statistics: dict[str, Any]  # of each test row, as the test of a watch takes them


def measure(name: str) -> Measured:
    from smoothlink.drift import NewRows
    from smoothlink.steps.reference import correct_by_size

    train, test = read(name)
    began = time.perf_counter()
    model = fit(train)
    seconds = time.perf_counter() - began
    tested = test_slices(model, train, test)
    fitted = getattr(model, "classifier_", model).model_
    new = NewRows.of(model, test.rows)
    scored = new.scored(model)
    hits = np.asarray(tested.Y[np.arange(len(scored.labels)), scored.labels]).ravel() > 0
    corrected = correct_by_size(fitted.reference.by_size, scored.top, new.sizes)
    found = {"top": scored.top, "frequency": fitted.counts[scored.labels] / fitted.total}
    found |= {} if scored.lengths is None else {"length": scored.lengths}
    found |= {} if new.unknown is None else {"unknown": new.unknown}
    return Measured(model, tested, hits, scored.top, corrected, seconds, found)


def estimates(name: str, found: Measured) -> dict[str, Any]:
    """Returns the estimates and the truth of each slice, in points, with the standard error of the truth."""
    cells = {}
    for key, rows in found.tested.slices.items():
        hits = found.hits[rows]
        cells[key] = {
            "rows": len(rows),
            "true": 100 * float(hits.mean()),
            "error": 100 * float(np.sqrt(hits.var() / len(rows))),
            "plain": 100 * float(found.plain[rows].mean()),
            "estimated": 100 * float(found.corrected[rows].mean()),
        }
        cell = cells[key]
        print(
            f"{name:22} {key:16} {len(rows):6} true {cell['true']:6.2f} +- {cell['error']:.2f} "
            f"gap {cell['estimated'] - cell['true']:+.2f}, plain {cell['plain'] - cell['true']:+.2f}"
        )
    mean = mean_gap(cells)
    print(
        f"{name:22} mean gap of {len(BY_FEATURES)} slices: {mean:.2f}, plain {mean_gap(cells, 'plain'):.2f}", flush=True
    )
    return cells


def mean_gap(cells: dict[str, Any], kind: str = "estimated") -> float:
    """Returns the mean absolute difference from the truth over the slices that are chosen by features."""
    return float(np.mean([abs(cells[key][kind] - cells[key]["true"]) for key in BY_FEATURES]))


def develop(name: str) -> None:
    """Stores the estimates on slices of sets that do not count."""
    store(results("drift", "development"), name, {"slices": estimates(name, measure(name))})


def estimate(name: str) -> None:
    """Stores the estimates on slices of the five sets, and the alarms of watches over their rows."""
    found = measure(name)
    record = {"slices": estimates(name, found), "seconds": found.seconds, "seed": 0}
    record |= {"rows": int(found.tested.X.shape[0]), "command": "python benchmarks/drift.py estimate"}
    store(results("drift"), name, record)
    store(results("drift", "alarms"), name, alarms(name, found))


def alarms(name: str, found: Measured) -> dict[str, Any]:
    """Returns the share of watches without a shift that raise an alarm, and after how many rows of a slice they do.

    "exchangeable": a watch is compared with one half of the test rows and sees the other. "model": it is compared with
    the held-out rows of the fit, scored by a model that was fitted to fewer rows, and sees test rows.
    """
    from smoothlink.drift import SequentialTest
    from smoothlink.steps.reference import count

    rng, n = np.random.default_rng(0), len(found.hits)
    reference = getattr(found.model, "classifier_", found.model).model_.reference
    unknown = getattr(getattr(found.model, "features_", None), "unknown_", None)
    known = {"top": reference.top, "frequency": reference.frequency, "length": reference.length}
    known |= {} if unknown is None else {"unknown": unknown.texts}
    known = {key: counts for key, counts in known.items() if counts is not None and key in found.statistics}

    def watch(counts: dict[str, Any], rows: Any) -> SequentialTest:
        test = SequentialTest(counts, FALSE_ALARMS)
        for key in counts:
            test.add(key, found.statistics[key][rows])
        return test

    false = {"exchangeable": 0, "model": 0}
    for _ in range(WATCHES):
        order = rng.permutation(n)
        half, rows = order[: n // 2], order[n // 2 :][:WATCHED_ROWS]
        counts = {key: count(key, found.statistics[key][half]) for key in known}
        false["exchangeable"] += watch(counts, rows).alarm
        false["model"] += watch(known, rows).alarm
    delays = {}
    for key, rows in found.tested.slices.items():
        if key == "all rows":
            continue
        each = []
        for _ in range(DELAYS):
            order, test = rng.permutation(rows), SequentialTest(known, FALSE_ALARMS)
            seen = 0
            while seen < len(order) and not test.alarm:
                for statistic in known:
                    test.add(statistic, found.statistics[statistic][order[seen : seen + STEP]])
                seen = min(len(order), seen + STEP)
            each.append(seen if test.alarm else None)
        raised = [value for value in each if value is not None]
        delays[key] = {"alarms": len(raised), "of": DELAYS, "median_rows": float(np.median(raised)) if raised else None}
        print(f"{name:22} {key:16} alarms {len(raised)} of {DELAYS}, median rows {delays[key]['median_rows']}")
    rates = {key: value / WATCHES for key, value in false.items()}
    print(f"{name:22} false alarms {rates} at {FALSE_ALARMS}", flush=True)
    return {
        "false_alarms": rates,
        "rate": FALSE_ALARMS,
        "watches": WATCHES,
        "rows": WATCHED_ROWS,
        "held_out": float(reference.rows),
        "delays": delays,
        "seed": 0,
        "command": "python benchmarks/drift.py estimate",
    }


def page() -> None:
    """Writes the tables of docs/drift.md between its marks."""
    found = json.loads(results("drift").read_text())
    watched = json.loads(results("drift", "alarms").read_text())
    developed = json.loads(results("drift", "development").read_text())
    keys = ("all rows", *BY_FEATURES, "rare labels")
    lines = [
        f"| set | {' | '.join(keys)} | mean of the four |",
        f"|---|{'---|' * len(keys)}---|",
    ]
    within = 0
    for name in [name for name in SETS if name in found]:
        cells = found[name]["slices"]
        pairs = [(cells[key]["estimated"], cells[key]["true"]) for key in keys]
        shown = [f"{estimate:.1f} / {true:.1f} ({estimate - true:+.1f})" for estimate, true in pairs]
        mean = mean_gap(cells)
        within += mean <= BAR
        lines.append(f"| {name} | {' | '.join(shown)} | {mean:.1f} (plain {mean_gap(cells, 'plain'):.1f}) |")
    last = found[next(iter(found))]
    each = [record["slices"][key] for record in found.values() for key in BY_FEATURES]
    close = sum(abs(cell["estimated"] - cell["true"]) <= BAR for cell in each)
    lines += [
        "",
        f"Within {BAR:.0f} points on average of the four slices: {within} of {len(found)} sets. Of slices chosen",
        f"by features {close} of {len(each)} are within {BAR:.0f} points. The standard error of the truth is between",
        f"{min(cell['error'] for cell in each):.1f} and {max(cell['error'] for cell in each):.1f} points.",
        "",
        "| set that chose the correction | mean of the four | plain |",
        "|---|---|---|",
        *(
            f"| {name} | {mean_gap(cell['slices']):.1f} | {mean_gap(cell['slices'], 'plain'):.1f} |"
            for name, cell in developed.items()
        ),
        "",
        "| set | held-out rows | false alarms, exchangeable rows | false alarms, held-out rows of the fit | "
        + " | ".join(keys[1:])
        + " |",
        f"|---|---|---|---|{'---|' * (len(keys) - 1)}",
    ]
    for name in [name for name in SETS if name in watched]:
        cell = watched[name]
        delays = [
            f"{d['median_rows']:.0f} ({d['alarms']} of {d['of']})" if (d := cell["delays"][key])["alarms"] else "none"
            for key in keys[1:]
        ]
        rates = [f"{cell['false_alarms'][kind]:.3f}" for kind in ("exchangeable", "model")]
        lines.append(f"| {name} | {cell['held_out']:.0f} | {' | '.join([*rates, *delays])} |")
    stated = ", ".join(f"{key} {value}" for key, value in last["versions"].items())
    lines += ["", f"Measured {last['date']} by `python benchmarks/drift.py estimate` with {stated}; seed 0."]
    path = ROOT / "docs" / "drift.md"
    begin, end = "<!-- figures -->", "<!-- end of figures -->"
    before, rest = path.read_text().split(begin)
    path.write_text("\n".join([before + begin, "", *lines, "", end + rest.split(end)[1]]))


if __name__ == "__main__":
    kind, names = sys.argv[1], sys.argv[2:]
    if kind == "page":
        page()
    else:
        for name in names or ((*DEVELOPMENT, "reuters21578") if kind == "develop" else SETS):
            {"develop": develop, "estimate": estimate}[kind](name)
