"""Every option checked before anything is fitted; a message says what came and what is possible."""

from __future__ import annotations

from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothlink.fitting.first_stage import EMBEDDINGS
from smoothlink.fitting.options import Options
from smoothlink.fitting.plan import parse_memory
from smoothlink.steps.featurize import KERNELS, Kernel, parse_kernel

Array = NDArray[Any]

SOLVERS = ("auto", "cholesky", "dual", "cg")
LOSSES = ("auto", "squared", "logistic", "softmax")


def check_options(o: Options, *, multiclass: bool) -> Options:
    """The options themselves, if they make sense together."""
    if o.embedding in ("plst", "cplst"):
        raise ValueError(
            f"embedding is {o.embedding!r}, which has moved: use smoothlink_paper.LabelSpace(method={o.embedding!r}). "
            f"Possible here are {', '.join(map(repr, EMBEDDINGS))}."
        )
    one_of("embedding", o.embedding, EMBEDDINGS)
    one_of("loss", o.loss, LOSSES)
    one_of("effort", o.effort, ("full", "quick"))
    if not isinstance(o.finetune, (bool, np.bool_)):
        whole("finetune", o.finetune, 1, also="True or False")
    number("dropout", o.dropout, least=0, below=1)
    one_of("quasi_random", o.quasi_random, (None, "sobol", "latin"))
    one_of("scale", o.scale, ("auto", "none", "unit", "variance"))
    if o.kernel != "auto":
        check_kernel("kernel", o.kernel)
    if o.input_kernel not in (None, "auto") and check_kernel("input_kernel", o.input_kernel).name == "linear":
        raise ValueError("input_kernel is 'linear', which is no kernel stage at all: leave it None.")
    check_rank(o.rank)
    check_solver(o.solver)
    for name, value in (("ridge", o.ridge), ("final_ridge", o.final_ridge)):
        number(name, value, least=0, auto=True)
    number("bandwidth", o.bandwidth, above=0, auto=True)
    number("learning_rate", o.learning_rate, above=0)
    number("input_bandwidth", o.input_bandwidth, above=0, auto=True)
    number("momentum", o.momentum, least=0, below=1)
    number("decay", o.decay, above=0, most=1)
    number("label_smoothing", o.label_smoothing, above=0.5, most=1)
    number("holdout", o.holdout, above=0, most=0.5)
    whole("n_features", o.n_features, 1, auto=True)
    whole("passes", o.passes, 1, auto=True)
    whole("input_features", o.input_features, 1, auto=True)
    one_of("input_map", o.input_map, ("auto", "landmarks", "random"))
    if o.negatives != "all":
        whole("negatives", o.negatives, 1, auto=True, also="'all'")
    whole("power", o.power, 1)
    whole("oversample", o.oversample, 0)
    for name, value in (("batch_rows", o.batch_rows), ("block_rows", o.block_rows)):
        if value is not None:
            whole(name, value, 1)
    parse_memory(o.memory)
    if o.checkpoint is not None and not (isinstance(o.checkpoint, (str, PathLike)) and fspath(o.checkpoint)):
        raise ValueError(f"checkpoint is {o.checkpoint!r}; possible are None and the path of a folder.")
    for name in ("normalize_embedding", "direct", "half_step", "penalize_constant", "calibrate"):
        if not isinstance(getattr(o, name), (bool, np.bool_)):
            raise ValueError(f"{name} is {getattr(o, name)!r}; possible are True and False.")
    check_together(o, multiclass)
    return o


def check_together(o: Options, multiclass: bool) -> None:
    if o.loss == "softmax" and not multiclass:
        raise ValueError("loss is 'softmax' but rows have several labels or none; use 'logistic' or 'squared'.")
    if o.loss == "logistic" and multiclass:
        raise ValueError("loss is 'logistic' but every row has exactly one label; use 'softmax', or task='multilabel'.")
    if o.first_stage is not None and o.embedding != "identity":
        raise ValueError(f"first_stage goes with embedding='identity' (Algorithm 2); embedding is {o.embedding!r}.")
    if o.first_stage is not None and (not hasattr(o.first_stage, "fit") or isinstance(o.first_stage, type)):
        raise ValueError(f"first_stage is {o.first_stage!r}; possible are None and a scikit-learn classifier.")
    if o.input_map == "landmarks" and (o.embedding == "none" or o.first_stage is not None):
        which = "first_stage" if o.first_stage is not None else "embedding='none'"
        raise ValueError(f"input_map is 'landmarks', which needs a linear map behind it; {which} takes 'random'.")
    if o.memory is not None and o.first_stage is not None:
        raise ValueError(f"memory is {o.memory!r}, but what a first_stage needs cannot be planned; leave memory None.")


def check_weights(w: Array, Y: Any, label_weight: Array | None, o: Options) -> None:
    """Whether example weights w (n,) and label weights (c,) leave something to learn from the 0/1 matrix Y."""
    if not (w > 0).any():
        raise ValueError("All sample weights are zero: there is nothing to learn from.")
    if not w @ np.diff(Y.indptr) > 0:
        raise ValueError("No row of positive weight has a label: there is nothing to learn from.")
    if label_weight is None:
        return
    if o.embedding == "none" or o.first_stage is not None:
        which = "first_stage" if o.first_stage is not None else f"embedding={o.embedding!r}"
        raise ValueError(f"Label weights (class_weight of multilabel y) enter the embedding, and {which} has no room.")
    if not (label_weight > 0).any():
        raise ValueError("All class weights are zero: there is nothing to learn from.")


def check_kernel(name: str, kernel: Any) -> Kernel:
    try:
        return parse_kernel(kernel)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {kernel!r}; possible are {KERNELS}.") from None


def check_solver(solver: Any) -> None:
    known = solver in SOLVERS if isinstance(solver, str) else callable(getattr(solver, "prepare", None))
    if not known or isinstance(solver, type):
        raise ValueError(
            f"solver is {solver!r}; possible are {', '.join(map(repr, SOLVERS))}, Cholesky(), DualCholesky() and "
            "ConjugateGradient()."
        )


def check_rank(rank: Any) -> None:
    if isinstance(rank, str) and rank in ("auto", "adaptive"):
        return
    fine = isinstance(rank, (Integral, Real)) and not isinstance(rank, bool)
    if fine and isinstance(rank, Integral):
        fine = int(rank) >= 1
    elif fine:
        fine = 0 < float(rank) <= 1
    if not fine:
        raise ValueError(f"rank is {rank!r}; possible are a whole number, a share such as 0.9, 'adaptive' and 'auto'.")


def one_of(name: str, value: Any, possible: tuple[Any, ...]) -> None:
    if not (value is None or isinstance(value, str)) or value not in possible:
        raise ValueError(f"{name} is {value!r}; possible are {', '.join(map(repr, possible))}.")


def whole(name: str, value: Any, least: int, *, auto: bool = False, also: str = "") -> None:
    if auto and isinstance(value, str) and value == "auto":
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        others = [*(["'auto'"] if auto else []), *([also] if also else [])]
        said = f", or {' or '.join(others)}" if others else ""
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}{said}.")


def number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    auto: bool = False,
) -> None:
    if auto and isinstance(value, str) and value == "auto":
        return
    fine = not isinstance(value, bool) and isinstance(value, Real) and bool(np.isfinite(float(value)))
    fine = fine and (least is None or value >= least) and (above is None or value > above)
    fine = fine and (most is None or value <= most) and (below is None or value < below)
    if not fine:
        bounds = [(least, "at least"), (above, "above"), (most, "at most"), (below, "below")]
        said = " and ".join(f"{word} {bound:g}" for bound, word in bounds if bound is not None)
        or_auto = ", or 'auto'" if auto else ""
        raise ValueError(f"{name} is {value!r}; it must be a number {said}{or_auto}.")
