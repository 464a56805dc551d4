"""The names of metrics and what they mean; nothing else, so that help texts are fast."""

from typing import Any

MEANINGS = {
    "p": "of the first {k}, the share that is true",
    "ndcg": "the same, earlier places counting more",
    "psp": "P@{k} with rare labels counting more",
    "psndcg": "nDCG@{k} with rare labels counting more",
    "hamming": "share of all (row, label) pairs that are wrong",
    "micro_f1": "F1 of all pairs, at probability 1/2",
    "macro_f1": "mean F1 of the labels, at probability 1/2",
    "example_f1": "mean F1 of the rows, at probability 1/2",
    "macro_f1_alg4": "mean F1 of the labels, by Algorithm 4",
    "error": "share of rows whose first label is wrong",
    "logloss": "mean over rows, natural logarithm",
    "ece_top": "calibration error of the first label's probability",
}
LESS_IS_BETTER = ("hamming", "error", "logloss", "ece_top")


def meaning(key: str) -> str:
    """What a metric is, in a few words."""
    name, _, k = key.partition("@")
    return MEANINGS[name].format(k=k)


def better(key: str, difference: Any) -> int:
    """Of a paired difference: 1 where the first model is better by more than chance, -1 where the second is, else 0."""
    if not (difference.low > 0 or difference.high < 0):
        return 0
    sign = 1 if difference.value > 0 else -1
    return -sign if key in LESS_IS_BETTER else sign
