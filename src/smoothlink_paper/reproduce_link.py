"""Section 3 in one picture: which link function makes the best joint predictions of independent activations?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothlink.fitting.choose import BANDWIDTHS
from smoothlink.metrics.evaluate import evaluate, paired_difference
from smoothlink.metrics.names import is_better, metric_of
from smoothlink_paper.data_sets import Split, find, load
from smoothlink_paper.fixed_links import fixed_link, g0, identity
from smoothlink_paper.methods import on_device, ours
from smoothlink_paper.plots import COLOURS, GREY, MARKERS, Curve, canvas, curves, image, legend, level, styled
from smoothlink_paper.record import circumstances, figure, provenance, row_counts, stem, training
from smoothlink_paper.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETS = ("bibtex", "corel5k", "delicious")
METRICS = {"hamming": "Hamming loss", "p@1": "P@1", "macro_f1_alg4": "macro-F1 (Algorithm 4)"}
DIGITS = {"hamming": 5, "p@1": 4, "macro_f1_alg4": 4}
IDENTITY, G0, LINEAR = "identity", "g0 = Y'Y/n", "linear"
FIXED = {IDENTITY: identity, G0: g0}
KERNELS = ("gaussian", "matern(5)", "matern(3)", "exponential", "laplacian")
LINKS = (*FIXED, LINEAR, *KERNELS)
LEARNED: dict[str, Any] = {"loss": "squared", "task": "multilabel"}

FEATURES = 2000  # of the table and of the curves over ranks
SIZES = (125, 250, 500, 1000, 2000, 4000)
RANKS = (5, 10, 20, 40, 80, 160, 320)  # those below the number of labels, which comes last
QUICK_SIZES, QUICK_RANKS = (10, 20), (2,)
QUICK: dict[str, Any] = {"holdout": 0.5, "ridge": 1.0}  # two folds in place of ten, little to choose
QUICK_BANDWIDTH = 2.0


def run(
    folder: Path, *, trials: int, quick: bool, seed: int, notify: Callable[[str], None], device: str = "cpu"
) -> dict[str, Any]:
    """Runs all links on every set that is there, and curves on the first; `trials` is not used. Learned links are
    fitted on the device, fixed ones on the host."""
    learned = LEARNED | on_device(device)
    began = time.perf_counter()
    present = [name for name in SETS if find(folder, name, "train")]
    if not present:
        load(folder, SETS[0])  # raises an error that says where the files go
    sets: dict[str, Any] = {}
    grown: dict[str, Any] = {}
    rows = {}
    for name in present[: 1 if quick else None]:
        split = load(folder, name)
        if quick:
            split = Split(*(part._replace(X=part.X[:150], Y=part.Y[:150]) for part in split))
        rows[name] = row_counts(split)
        sets[name] = one_set(split, name, quick, seed, learned, notify)
        if not grown:
            grown = {"set": name, **grow(split, sets[name]["links"], quick, seed, learned, notify)}
    record = circumstances("link", seed, time.perf_counter() - began)
    return {**record, "quick": quick, "rows": rows, "sets": sets, "curves": grown}


def one_set(
    split: Split, name: str, quick: bool, seed: int, learned: dict[str, Any], notify: Callable[[str], None]
) -> dict[str, Any]:
    """Returns every link over the activations of independent ridge classifiers, and its gain on the linear link."""
    features, common = (QUICK_SIZES[-1], QUICK) if quick else (FEATURES, {})
    fits: dict[str, Callable[[], Result]] = {
        link: partial(fixed_link, split, seed, operator, **common) for link, operator in FIXED.items()
    }
    for link in (LINEAR, *KERNELS):
        params = {"embedding": "per_label", **kernel_settings(link, features, QUICK_BANDWIDTH if quick else "auto")}
        fits[link] = partial(ours, split, seed, **learned, **params, **common)
    results: dict[str, Result] = {}
    for link, fit in fits.items():
        notify(f"{name}: {link}")
        results[link] = fit()
    linear = results[LINEAR].predictions
    return {
        "features": features,
        "links": {link: measured(result, split, seed) for link, result in results.items()},
        "difference": {  # to the linear link, under the same draws of test rows
            link: {
                metric: paired_difference(
                    metric, split.test.Y, results[link].predictions, linear, **training(split), seed=seed
                )._asdict()
                for metric in METRICS
            }
            for link in KERNELS
        },
    }


def measured(result: Result, split: Split, seed: int) -> dict[str, Any]:
    """Returns the metrics of a result with intervals, the seconds of its fit and its settings."""
    found = evaluate(split.test.Y, result.predictions, **training(split), seed=seed).metrics
    metrics = {metric: found[metric]._asdict() for metric in METRICS}
    return {"metrics": metrics, "seconds": round(result.seconds, 2), "settings": result.settings}


def grow(
    split: Split,
    links: dict[str, Any],
    quick: bool,
    seed: int,
    learned: dict[str, Any],
    notify: Callable[[str], None],
) -> dict[str, Any]:
    """Returns each learned link with more and more random features, and over more and more directions.

    The ridge of the embedding is the table's, the final ridge is chosen anew. So is the bandwidth along ranks, since
    distances in few and in many directions are not alike (the laplacian's best width grows as the root of the rank).
    """
    sizes, features = (QUICK_SIZES, QUICK_SIZES[-1]) if quick else (SIZES, FEATURES)
    ranks = [k for k in (QUICK_RANKS if quick else RANKS) if k < split.train.Y.shape[1]] + [split.train.Y.shape[1]]
    by_features: dict[str, Any] = {}
    by_rank: dict[str, Any] = {}
    for link in (LINEAR, *KERNELS):
        notify(f"curves: {link}")
        chosen = links[link]["settings"]
        params = {**learned, "ridge": chosen["ridge"], **(QUICK if quick else {})}
        narrow = {**params, **kernel_settings(link, features, QUICK_BANDWIDTH if quick else "auto")}
        by_rank[link] = points(split, seed, "rank", ranks, narrow)
        if link != LINEAR:
            wide = {**params, "embedding": "per_label", **kernel_settings(link, features, chosen["bandwidth"])}
            by_features[link] = points(split, seed, "kernel.features", sizes, wide)
    return {"by_features": by_features, "by_rank": by_rank, "features": features}


def kernel_settings(kernel: str, features: int, bandwidth: Any) -> dict[str, Any]:
    """Returns the settings of a kernel; the linear one has none of its own."""
    own = {} if kernel == LINEAR else {"kernel.features": features, "kernel.bandwidth": bandwidth}
    return {"kernel": kernel, **own}


def points(split: Split, seed: int, name: str, values: Sequence[int], params: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the link at each value of one setting."""
    return [{"at": v, **measured(ours(split, seed, **{**params, name: v}), split, seed)} for v in values]


def page(record: dict[str, Any]) -> str:
    """Returns the record as a page."""
    grown = record["curves"]
    lines = [
        "# Section 3: which link function?",
        "",
        "A link function turns the activations of independent ridge classifiers, one per label, into joint",
        "predictions: as they are (identity), through the fixed g0(p) = Cp with C = Y'Y/n,",
        "through a learned linear map, or through random features of a kernel.",
        "Ridges, bandwidths and one calibration map per link were chosen on held-out training rows, by the same",
        "criterion; each test set was used only to measure. 90 % bootstrap intervals over test rows.",
        "",
        image(
            stem(record),
            f"Accuracy on {grown['set']} against the number of random features and the rank, one curve per link",
        ),
        "",
        "Bars at the right of a panel are the intervals of the last points. Along the number of random features, ridge",
        "and bandwidth are those of the table; along ranks (directions of Algorithm 1) the bandwidth is chosen anew.",
        "The final ridge is chosen anew everywhere. Each point is one draw of random features.",
        "",
        *findings(record),
    ]
    for name, found in ((n, record["sets"][n]) for n in SETS if n in record["sets"]):
        lines += ["", f"## {name}", "", f"Kernels with {found['features']} random features.", ""]
        lines += table(found)
    lines += [
        "",
        *along(grown, "by_features", "random features", f"More random features: {grown['set']}, all directions"),
    ]
    lines += [
        "",
        *along(grown, "by_rank", "rank", f"More directions: {grown['set']}, {grown['features']} random features"),
    ]
    return "\n".join([*lines, "", provenance(record), ""])


def best_of(links: dict[str, Any], metric: str) -> str:
    """Returns the link of the best value."""
    best = LINKS[0]
    for link in LINKS:
        if is_better(metric, links[link]["metrics"][metric]["value"], links[best]["metrics"][metric]["value"]):
            best = link
    return best


def in_order(by_link: dict[str, Any]) -> list[tuple[str, Any]]:
    """Returns the entries of all links in the order of LINKS; a stored record has them by name."""
    return [(link, by_link[link]) for link in LINKS if link in by_link]


def arrow(metric: str) -> str:
    return "less is better" if metric_of(metric).lower_is_better else "more is better"


def findings(record: dict[str, Any]) -> list[str]:
    """Returns the findings in sentences."""
    cases = [(name, metric) for name in SETS if name in record["sets"] for metric in METRICS]
    best = {case: best_of(record["sets"][case[0]]["links"], case[1]) for case in cases}
    worst_g0 = sum(is_worst(record["sets"][name]["links"], G0, metric) for name, metric in cases)
    signs = [decided_sign(record["sets"][name]["difference"][KERNELS[0]][metric], metric) for name, metric in cases]
    kernels = sum(link in KERNELS for link in best.values())
    lines = [
        f"Of {len(cases)} columns below (a set and a metric each), a kernel is best in {kernels} and g0 is worst in",
        f"{worst_g0}. The {KERNELS[0]} kernel, the default, is better than the learned linear link in "
        f"{signs.count(1)} and worse in",
        f"{signs.count(-1)} by a paired difference whose interval lies on one side of 0; the rest are undecided.",
        "",
    ]
    grown = record["curves"]
    for metric, title in METRICS.items():
        link, found = best[grown["set"], metric], record["sets"][grown["set"]]
        shown = f"{figure(found['links'][link]['metrics'][metric], DIGITS[metric])}{lead(record, link, metric)}"
        if link in KERNELS:
            shown += f" ({figure(found['difference'][link][metric], DIGITS[metric])} minus the linear link, paired)"
        lines.append(f"- {title} on {grown['set']}: the best link is {link}, {shown}. {at_equal_rank(grown, metric)}")
    return lines


def at_equal_rank(grown: dict[str, Any], metric: str) -> str:
    """Returns a sentence on the default kernel against the linear link over the same directions."""
    pairs = {
        one["at"]: (one["metrics"][metric]["value"], other["metrics"][metric]["value"])
        for one, other in zip(grown["by_rank"][KERNELS[0]], grown["by_rank"][LINEAR], strict=True)
    }
    wins = sum(is_better(metric, *pair) for pair in pairs.values())
    sign = -1 if metric_of(metric).lower_is_better else 1
    most = max(pairs, key=lambda k: sign * (pairs[k][0] - pairs[k][1]))
    mine, linear = (f"{value:.{DIGITS[metric]}f}" for value in pairs[most])
    return (
        f"Over the same directions {KERNELS[0]} is better than linear at {wins} of {len(pairs)} ranks; "
        f"its difference is most favourable at rank {most}, {mine} against {linear}."
    )


def is_worst(links: dict[str, Any], link: str, metric: str) -> bool:
    values = {name: found["metrics"][metric]["value"] for name, found in links.items()}
    return not any(is_better(metric, values[link], value) for name, value in values.items() if name != link)


def decided_sign(difference: dict[str, float], metric: str) -> int:
    """Returns 1 where the whole interval of a difference is for the better, -1 for the worse, 0 where it holds 0."""
    if difference["low"] <= 0 <= difference["high"]:
        return 0
    return 1 if is_better(metric, difference["value"], 0.0) else -1


def lead(record: dict[str, Any], link: str, metric: str) -> str:
    """Returns from how many random features, and from which rank on, a kernel beats the linear link of full rank."""
    if link not in KERNELS:
        return ""
    grown = record["curves"]
    linear = record["sets"][grown["set"]]["links"][LINEAR]["metrics"][metric]["value"]
    leads = []
    for curve, unit in (("by_features", "random features"), ("by_rank", "directions")):
        ahead = None  # the first point from which on all are better
        for point in reversed(grown[curve][link]):
            if not is_better(metric, point["metrics"][metric]["value"], linear):
                break
            ahead = point["at"]
        if ahead is not None:
            leads.append(f"{ahead} {unit}")
    return f", ahead of the linear link from {' or '.join(leads)} on" if leads else ""


def table(found: dict[str, Any]) -> list[str]:
    """Returns the table of one set, and the kernels' paired differences to the linear link."""
    heads = [f"{title} ({arrow(metric)})" for metric, title in METRICS.items()]
    lines = [f"| link | {' | '.join(heads)} | ridge | bandwidth | final ridge | fit s |", "|---|" + "---|" * 7]
    best = {metric: best_of(found["links"], metric) for metric in METRICS}
    for link in LINKS:
        row = found["links"][link]
        cells = [figure(row["metrics"][metric], DIGITS[metric]) for metric in METRICS]
        cells = [f"**{cell}**" if best[m] == link else cell for cell, m in zip(cells, METRICS, strict=True)]
        settings = row["settings"]
        used = ("ridge", *(("bandwidth",) if link in KERNELS else ()), *(() if link in FIXED else ("final_ridge",)))
        cells += [f"{settings[k]:.3g}" if k in used else "" for k in ("ridge", "bandwidth", "final_ridge")]
        lines.append(f"| {link} | {' | '.join(cells)} | {row['seconds']:.1f} |")
    edge = [link for link in KERNELS if found["links"][link]["settings"]["bandwidth"] == BANDWIDTHS[-1]]
    if edge:
        widest = f"{BANDWIDTHS[-1]:g}, the widest tried: a wider one might do better"
        lines += ["", f"The bandwidth of {' and '.join(edge)} is {widest}."]
    lines += ["", "Minus the linear link, paired:", ""]
    lines += [f"| link | {' | '.join(METRICS.values())} |", "|---|" + "---|" * len(METRICS)]
    for link in KERNELS:
        cells = [figure(found["difference"][link][metric], DIGITS[metric]) for metric in METRICS]
        lines.append(f"| {link} | {' | '.join(cells)} |")
    return lines


def along(grown: dict[str, Any], curve: str, unit: str, title: str) -> list[str]:
    """Returns the values of the curves in tables."""
    at = [point["at"] for point in grown[curve][KERNELS[0]]]
    lines = [f"## {title}"]
    for metric, name in METRICS.items():
        lines += ["", f"| {name} at {unit} | {' | '.join(map(str, at))} |", "|---|" + "---|" * len(at)]
        for link, points in in_order(grown[curve]):
            cells = [f"{point['metrics'][metric]['value']:.{DIGITS[metric]}f}" for point in points]
            lines.append(f"| {link} | {' | '.join(cells)} |")
    return lines


@styled
def plot(record: dict[str, Any]) -> Figure:
    """Draws the metrics of the first set against the number of random features (above) and the rank (below)."""
    grown = record["curves"]
    links = record["sets"][grown["set"]]["links"]
    drawing, axes = canvas(2, len(METRICS), 9.5, 5.6)
    looks = dict(zip((*KERNELS, LINEAR), zip((*COLOURS[:5], GREY), MARKERS, strict=True), strict=True))
    for across, (metric, title) in enumerate(METRICS.items()):
        for down, curve in enumerate(("by_features", "by_rank")):
            ax = axes[down, across]
            if curve == "by_features":
                level(ax, links[LINEAR]["metrics"][metric], "linear, full rank")
            level(ax, links[IDENTITY]["metrics"][metric], IDENTITY, ":")
            curves(
                ax,
                [
                    Curve(link, [p["at"] for p in points], [p["metrics"][metric] for p in points], *looks[link])
                    for link, points in in_order(grown[curve])
                ],
            )
        axes[0, across].set_title(f"{title} ({arrow(metric)})")
        axes[0, across].set_xlabel("random features s, all directions")
        axes[1, across].set_xlabel(f"rank k, {grown['features']} random features")
    legend(drawing, axes.flat, 8)
    drawing.suptitle(f"{grown['set']}: link functions over independent ridge classifiers", fontsize=10)
    return drawing
