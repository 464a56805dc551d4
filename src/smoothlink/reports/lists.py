"""The sections of a report that are lists: labels said too often or too seldom, confused ones, rows, the training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.explanation import explain, words_of
from smoothlink.metrics.evaluate import row_sums
from smoothlink.reports.html import Safe, name_of, pair, section, table, tag
from smoothlink.reports.measurements import Measured

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier

Array = NDArray[Any]

MOST = 10  # labels of a list
SURPRISING = 1.0  # standard deviations from which on a count is worth a line
LONGEST = 320  # characters of a text
RIGHT, WRONG = 4, 8  # rows shown
MANY = 12  # labels of a row shown


class Case(NamedTuple):
    """What the rows of a test are, beside their labels."""

    classifier: SmoothLinkClassifier
    X: Any  # (n, d), as the classifier takes it
    features: Any = None  # TextFeatures, where it was made from texts
    texts: Sequence[str] | None = None

    def shown(self, row: int) -> str:
        """A row in words: its text, or its largest features."""
        if self.texts is not None:
            return cut_off(self.texts[row])
        x = self.X[[row]].toarray()[0] if sp.issparse(self.X) else np.asarray(self.X[row])
        best = [j for j in np.argsort(-np.abs(x), kind="stable")[:12].tolist() if x[j]]
        return ", ".join(map(self.naming(row), best)) or "no features"

    def naming(self, row: int) -> Callable[[int], str]:
        """What names a feature of a row."""
        if self.texts is not None:
            return words_of(self.features, self.texts[row])
        known = getattr(self.classifier, "feature_names_in_", None)
        return (lambda j: f"feature {j}") if known is None else (lambda j: str(known[j]))


def cut_off(text: str) -> str:
    """The beginning of a text, whole words where possible."""
    text = " ".join(text.split())
    if len(text) <= LONGEST:
        return text or "an empty text"
    head = text[: LONGEST - 1]
    return (head.rsplit(maxsplit=1)[0] if " " in head else head) + " …"


def labels(m: Measured) -> Safe:
    """Labels whose expected count is far from the true one, and pairs that are taken for each other."""
    order = np.argsort(m.counts.surprise, kind="stable")
    under = [j for j in order[:MOST].tolist() if m.counts.surprise[j] <= -SURPRISING]
    over = [j for j in order[::-1][:MOST].tolist() if m.counts.surprise[j] >= SURPRISING]
    lead = (
        "Expected is the sum of a label's probabilities over all rows: were they right, it would be near the count of "
        "true rows. Labels are sorted by the difference in standard deviations."
    )
    both = pair(surprises(m, over, "Said too often", "more"), surprises(m, under, "Said too seldom", "less"))
    return section("labels", "Which labels go wrong?", lead, both, confused(m))


def surprises(m: Measured, chosen: list[int], caption: str, tone: str) -> Safe:
    """One side of the list."""
    c = m.counts
    rows = [
        (
            name_of(m.names[j]),
            f"{c.true[j]:,}",
            tag("span", f"{c.expected[j]:,.1f}", class_=tone),
            f"{c.sets[j]:,}",
            f"{c.train[j]:,.0f}",
        )
        for j in chosen
    ]
    if not rows:
        return tag("div", tag("h3", caption), tag("p", "No label by more than a standard deviation.", class_="quiet"))
    return table(["label", ">true", ">expected", ">said at ½", ">in training"], rows, caption)


def confused(m: Measured) -> Safe:
    """The pairs of labels that are taken for each other most often."""
    rows = [
        (name_of(m.names[one.true]), name_of(m.names[one.said]), f"{one.rows:,}", f"{100 * one.rows / one.of:.0f}")
        for one in m.confused
    ]
    if not rows:
        return tag("p", "No label stood in another's place.", class_="quiet")
    headings = ["true, but missed", "said in its place", ">rows", ">% of the label's rows"]
    return table(headings, rows, "Labels most often confused")


def examples(m: Measured, case: Case, seed: int) -> Safe:
    """Rows that are right, drawn at random, and the surest mistakes."""
    right, wrong = exact_rows(m), np.flatnonzero(~m.hit[:, 0])
    drawn = np.random.default_rng(seed).permutation(right)[:RIGHT]
    assert m.said.top_probability is not None
    surest = wrong[np.argsort(-m.said.top_probability[wrong], kind="stable")][:WRONG]
    lead = (
        f"All labels of {len(right):,} of {m.n:,} rows are exactly right at probability ½. Four of these were drawn; "
        "below them are the rows whose first label is wrong although it was said most surely; some may be mistakes of "
        "the data. ✗ marks what was missed, or said wrongly at more than ½."
    )
    content = []
    for title, rows in (("Right", drawn), ("Wrong, and sure of it", surest)):
        if len(rows):
            shown = [example(m, case, row, why=title != "Right") for row in rows.tolist()]
            content += [tag("h3", title), tag("ul", shown, class_="rows")]
    return section("rows", "Rows, one by one", lead, *content)


def exact_rows(m: Measured) -> Array:
    """Rows that have labels, and exactly those that are predicted."""
    sets = m.said.sets
    assert sets is not None
    hits, per_row = row_sums(m.Y[:, : sets.shape[1]].multiply(sets)), np.diff(m.Y.indptr)
    return np.flatnonzero((hits == per_row) & (row_sums(sets) == per_row) & (per_row > 0))


def example(m: Measured, case: Case, row: int, *, why: bool) -> Safe:
    """A row with its labels, what was said of it, and what spoke for the first label."""
    true, (said, chances), found = m.true(row), m.ranked(row), set(m.chosen(row))
    most = max(3, min(5, len(true) + 1))
    truth = [chip(label_of(m, j), None, "hit" if j in found else "miss") for j in true[:MANY]]
    if len(true) > MANY:
        truth.append(tag("span", f"and {len(true) - MANY} more", class_="quiet"))
    first = [
        chip(label_of(m, j), f"{100 * p:.0f} %", "hit" if j in set(true) else "miss" if p > 0.5 else "")
        for j, p in list(zip(said, chances, strict=True))[:most]
    ]
    pairs = tag("dl", tag("dt", "true"), tag("dd", truth), tag("dt", "said"), tag("dd", first), class_="said")
    text = tag("p", tag("bdi", case.shown(row)), class_="text")
    return tag(
        "li", tag("div", f"row {row:,}", class_="number"), text, pairs, reasons(case, row, said[0]) if why else None
    )


def label_of(m: Measured, label: int) -> Any:
    return m.names[label] if label < len(m.names) else "a label unknown to the model"


def chip(name: Any, chance: str | None, kind: str) -> Safe:
    """A label; a hit is ticked and a miss crossed, beside their colours."""
    return tag("span", name_of(name), tag("small", chance) if chance else None, class_=f"chip {kind}".strip())


def reasons(case: Case, row: int, label: int) -> Safe | None:
    """What spoke for a label of a row."""
    if case.classifier.model_.classifier is not None:  # not looked into
        return None
    (one,) = explain(case.classifier, case.X[[row]], labels=[label], top=12)
    parts = [reason for reason in one.reasons if abs(reason.added) >= 0.005]
    sides = [r for r in parts if r.added > 0][:3], [r for r in parts if r.added < 0][:2]
    name = case.naming(row)
    spoke, against = (", ".join(f"{name(r.feature)} {signed(r.added)}" for r in side) for side in sides)
    return tag(
        "p",
        ["Spoke for ", name_of(one.name), ": ", tag("bdi", spoke)] if spoke else None,
        [". Against: " if spoke else "Against: ", tag("bdi", against)] if against else None,
        class_="why",
    )


def signed(value: float) -> str:
    """+0.43 and −0.07"""
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


def setting(summary: dict[str, Any], name: str) -> str:
    """A setting as it is read; nothing where there is none."""
    value = summary.get(name)
    if name == "captured_share" and value is not None:
        return f"{100 * value:.1f} %"
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def settings(summary: dict[str, Any], facts: Sequence[tuple[str, str]]) -> Safe:
    """How the model was trained, and what it took."""
    names = [name for name in SETTINGS if summary.get(name) not in (None, "", 0)]
    chosen = [
        (name.replace("_", " "), setting(summary, name), summary.get("chosen_by", {}).get(name, "")) for name in names
    ]
    seconds = summary.get("seconds") or {}
    peak = summary.get("peak_memory_mb") or {}
    stages = [
        (stage, f"{seconds[stage]:,.1f}", "" if peak.get(stage) is None else f"{peak[stage] / 1024:.2f}")
        for stage in sorted(seconds, key=seconds.__getitem__, reverse=True)
    ]
    stages.append(
        ("total", f"{sum(seconds.values()):,.1f}", f"{max((v for v in peak.values() if v), default=0) / 1024:.2f}")
    )
    both = pair(
        table(["setting", ">value", "chosen by"], chosen, "Settings"),
        tag(
            "div",
            table(["stage", ">seconds", ">peak memory, GB"], stages, "Time"),
            table(["", ""], [(name, tag("bdi", text)) for name, text in facts], "Files and versions"),
        ),
    )
    return section("training", "How was it trained?", None, both)


SETTINGS = (
    *("task", "rows", "features", "labels", "scale", "input_kernel", "rank", "captured_share", "ridge", "kernel"),
    *("bandwidth", "random_features", "final_ridge", "loss", "passes", "negatives", "direct_weights", "solver"),
    "held_out_rows",
)
