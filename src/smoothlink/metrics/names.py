"""The one table of metrics. It imports nothing heavy, so that help texts are fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from smoothlink.metrics.bootstrap import Metric

KS = (1, 3, 5)  # places of the ranking at which metrics are shown


class MetricDefinition(NamedTuple):
    """What a metric is called, what it means and how it is read."""

    name: str
    meaning: str
    at_k: bool = False  # its keys are name@k
    lower_is_better: bool = False
    highest: float = 1.0  # possible value; the lowest is 0
    decimals: int = 4


METRICS = {
    metric.name: metric
    for metric in (
        MetricDefinition("p", "share of right labels among the top {k}", at_k=True),
        MetricDefinition("ndcg", "P@{k} with higher ranks counting more", at_k=True),
        MetricDefinition("psp", "P@{k} with rare labels counting more", at_k=True),
        MetricDefinition("psndcg", "nDCG@{k} with rare labels counting more", at_k=True),
        # Of thousands of labels nearly all are false for a row: four decimals would not distinguish two models.
        MetricDefinition("hamming", "share of all (row, label) pairs that are wrong", lower_is_better=True, decimals=6),
        MetricDefinition("micro_f1", "F1 of all pairs, at the model's threshold"),
        MetricDefinition("macro_f1", "mean F1 of the labels, at the model's threshold"),
        MetricDefinition("example_f1", "mean F1 of the rows, at the model's threshold"),
        MetricDefinition("macro_f1_alg4", "mean F1 of the labels, by Algorithm 4"),
        MetricDefinition("error", "share of rows whose top label is wrong", lower_is_better=True),
        MetricDefinition("logloss", "mean over rows, natural logarithm", lower_is_better=True, highest=float("inf")),
        MetricDefinition("ece_top", "calibration error of the top label's probability", lower_is_better=True),
    )
}


def metric_of(key: str) -> MetricDefinition:
    """Returns the definition of a key such as p@5 or hamming."""
    return METRICS[key.partition("@")[0]]


def meaning(key: str) -> str:
    """Returns what a metric is, in a few words."""
    return metric_of(key).meaning.format(k=key.partition("@")[2])


def format_value(key: str, value: float, sign: str = "") -> str:
    """Returns a value of a metric as tables show it; with sign="+" a difference."""
    return f"{value:{sign}.{metric_of(key).decimals}f}"


def interval_text(key: str, metric: Metric, dash: str = "-") -> str:
    """Returns the interval of a metric as tables show it; nothing where none was drawn."""
    drawn = metric.low == metric.low  # else NaN
    return f"{format_value(key, metric.low)} {dash} {format_value(key, metric.high)}" if drawn else ""


def shown_keys() -> list[str]:
    """Returns the keys that tables show and a search can be steered by."""
    return [key for name, metric in METRICS.items() for key in ([f"{name}@{k}" for k in KS] if metric.at_k else [name])]


def check_metric(key: str) -> str:
    """Returns the key, or raises ValueError where it names no metric."""
    if key not in shown_keys():
        raise ValueError(f"{key!r} is not a metric; possible are {', '.join(shown_keys())}.")
    return key


def is_better(key: str, value: float, other: float) -> bool:
    """Returns whether a value of a metric is better than another."""
    return value < other if metric_of(key).lower_is_better else value > other


def better_side(key: str, difference: Metric) -> int:
    """Returns 1 where the first of two models is better by more than chance, -1 where the second is, else 0."""
    if not (difference.low > 0 or difference.high < 0):
        return 0
    return 1 if is_better(key, difference.value, 0.0) else -1
