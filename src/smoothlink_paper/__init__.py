"""The paper's experiments, one file each: rerun from their protocol, recorded as JSON, shown as a page.

Its baselines PLST and CPLST are here too, as the estimator `LabelSpace`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothlink_paper.label_space import LabelSpace as LabelSpace

NAMES = {
    "link": "section 3, fixed, linear and kernel links over the same independent classifiers",
    "mulan": "Table 2, Hamming loss and macro-F1 on bibtex, corel5k, mediamill and yeast",
    "flexibility": "section 7.2, kernels on the inputs against kernels in the link on RCV1",
    "odp": "section 7.3, multiclass error of the low-rank softmax on ODP, aloi and made data of ODP's shape",
    "lshtc": "section 7.4, precision with a Laplacian kernel on LSHTC or, where it is absent, yso-finna-en",
}

WITH_PEERS = ("mulan", "odp", "lshtc")  # their `run` takes the runners of peer libraries


def experiment(name: str) -> Any:
    """The module of an experiment: `run(...)` gives its record, `page(record)` the text, `plot(record)` a picture."""
    return importlib.import_module(f"smoothlink_paper.reproduce_{name}")


def __getattr__(name: str) -> Any:
    if name != "LabelSpace":
        raise AttributeError(f"module 'smoothlink_paper' has no attribute {name!r}")
    return importlib.import_module("smoothlink_paper.label_space").LabelSpace
