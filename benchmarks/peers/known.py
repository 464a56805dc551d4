"""The peers: which script runs each, with what settings, in which interpreter, and what it cannot do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
BENCH = "pip install 'smoothlink[bench]', or name an interpreter that has it in SMOOTHLINK_PEERS"
OWN = (
    "it needs old NumPy and SciPy: make a virtual environment of its own (pip install 'numpy<2' 'scipy<1.14' "
    "scikit-learn, then pip install --no-deps libpecos) and name its python in SMOOTHLINK_PECOS"
)


class Peer(NamedTuple):
    """A row of the tables."""

    script: Path
    about: str
    settings: dict[str, Any]
    variables: tuple[str, ...] = ("SMOOTHLINK_PEERS",)  # of the environment, that may name the interpreter
    remedy: str = BENCH
    one_label_only: bool = False
    own_scaling: bool = False  # it gets the rows as they are
    # (n, d, c) -> bytes of its dense arrays that grow with two of them; most peers have none.
    dense: Callable[[int, int, int], int] = lambda n, d, c: 0


def _peer(library: str, about: str, settings: dict[str, Any] | None = None, **rest: Any) -> Peer:
    return Peer(HERE / f"run_{library}.py", about, settings or {}, **rest)


def _weights(n: int, d: int, c: int) -> int:
    return 8 * d * c


def _targets(n: int, d: int, c: int) -> int:
    return 2 * 4 * n * c + 8 * d * c  # Y, its centred copy and the weights


OURS = "smoothlink"
QUICK = "smoothlink, quick"
ALGORITHM_3 = "smoothlink, Algorithm 3"  # where the default is another learner

PEERS = {
    OURS: _peer("smoothlink", 'everything on "auto"', variables=(), own_scaling=True),
    QUICK: _peer("smoothlink", 'effort="quick"', {"effort": "quick"}, variables=(), own_scaling=True),
    ALGORITHM_3: _peer(
        "smoothlink",
        'training="stepwise", for sets on which the default is another learner',
        {"training": "stepwise"},
        variables=(),
        own_scaling=True,
    ),
    "omikuji": _peer("omikuji", "three balanced label trees (Parabel), squared hinge loss"),
    "omikuji, Bonsai-like": _peer(
        "omikuji",
        "three wide, shallow, unbalanced label trees (Bonsai)",
        {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3},
    ),
    "omikuji, logistic loss": _peer("omikuji", "three balanced label trees, logistic loss", {"loss": "log"}),
    "napkinXC PLT": _peer("napkinxc", "a probabilistic label tree, logistic loss, C = 10", {"model": "PLT"}),
    "napkinXC BR": _peer("napkinxc", "binary relevance: a logistic regression per label, C = 10", {"model": "BR"}),
    "LibMultiLabel linear": _peer(
        "libmultilabel", "linear one-vs-rest support vector machines (LIBLINEAR)", dense=_weights
    ),
    "LibMultiLabel tree": _peer("libmultilabel", "a label tree of linear support vector machines", {"tree": True}),
    "PECOS XR-Linear": _peer(
        "pecos",
        "a label tree of linear machines on PIFA clusters",
        variables=("SMOOTHLINK_PECOS", "SMOOTHLINK_PEERS"),
        remedy=OWN,
    ),
    "Vowpal Wabbit recall_tree": _peer(
        "vowpalwabbit", "an online tree with candidates at its nodes; multiclass", one_label_only=True
    ),
    "scikit-learn one-vs-rest logistic": _peer(
        "sklearn",
        "a logistic regression per label (LIBLINEAR), C = 1",
        {"model": "logistic"},
        variables=(),
        dense=_weights,
    ),
    "scikit-learn ridge on dense unit rows": _peer(
        "sklearn",
        "one ridge regression onto all labels, alpha = 1 unless a ridge is given, X made dense where it fits",
        {"model": "ridge"},
        variables=(),
        dense=_targets,
    ),
}
