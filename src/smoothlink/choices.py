"""Values of parameters that have parameters of their own: `kernel=Gaussian(bandwidth=2.0)`, `loss=Logistic(passes=5)`.

They hold what was given and no logic, as scikit-learn's contract wants it, so that `clone`, `GridSearchCV` and
`set_params(loss__momentum=.5)` work. What is possible is in smoothlink.parameters; nothing is checked before `fit`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from smoothlink.parameters import CHOICES, FORMER, LIMITS, MATERN, PARAMETERS, example_of, flat_table, unknown_parameter
from smoothlink.scikit_learn import BaseEstimator


class ShortHtml:
    """A mixin for estimators whose HTML form lists the parameters that were changed, as their repr does."""

    def _get_params_html(self, *args: Any, **given: Any) -> Any:
        found = super()._get_params_html(*args, **given)  # type: ignore[misc]
        for name in found.keys() - set(found.non_default):
            del found[name]
        return found


class Gaussian(BaseEstimator):
    """The Gaussian kernel of the link function."""

    def __init__(self, bandwidth: float | str = "auto", features: int | str = "auto") -> None:
        self.bandwidth = bandwidth
        self.features = features


class Laplacian(BaseEstimator):
    """The product of Laplace kernels, one per coordinate of the embedding."""

    def __init__(self, bandwidth: float | str = "auto", features: int | str = "auto") -> None:
        self.bandwidth = bandwidth
        self.features = features


class Exponential(BaseEstimator):
    """The exponential kernel of the link function."""

    def __init__(self, bandwidth: float | str = "auto", features: int | str = "auto") -> None:
        self.bandwidth = bandwidth
        self.features = features


class Matern(BaseEstimator):
    """The kernel whose random frequencies have a Student distribution of `nu` degrees of freedom."""

    def __init__(self, nu: float = 3.0, bandwidth: float | str = "auto", features: int | str = "auto") -> None:
        self.nu = nu
        self.bandwidth = bandwidth
        self.features = features


class Linear(BaseEstimator):
    """A link that is linear in the embedding: no random features."""


class Squared(BaseEstimator):
    """Least squares, solved in closed form."""


class Logistic(BaseEstimator):
    """One logistic loss per label, minimised by SGD."""

    def __init__(
        self,
        passes: int | str = "auto",
        learning_rate: float = 1.0,
        momentum: float = 0.9,
        decay: float = 0.9,
        batch_rows: int | None = None,
    ) -> None:
        self.passes = passes
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.decay = decay
        self.batch_rows = batch_rows


class Softmax(BaseEstimator):
    """The softmax loss of rows that have exactly one label, minimised by SGD."""

    def __init__(
        self,
        passes: int | str = "auto",
        learning_rate: float = 1.0,
        momentum: float = 0.9,
        decay: float = 0.9,
        batch_rows: int | None = None,
    ) -> None:
        self.passes = passes
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.decay = decay
        self.batch_rows = batch_rows


class Randomized(BaseEstimator):
    """The label directions that the features predict best (Algorithm 1)."""

    def __init__(self, power: int = 1, oversample: int = 20) -> None:
        self.power = power
        self.oversample = oversample


class PerLabel(BaseEstimator):
    """One direction per label (Algorithm 2): ridge regression, or the decision functions of a classifier."""

    def __init__(self, classifier: BaseEstimator | None = None) -> None:
        self.classifier = classifier


class Joint(BaseEstimator):
    """Embedding, decoder and sparse per-label weights trained together by SGD with sampled negatives."""

    def __init__(
        self,
        negatives: int | str = "auto",
        sparse_weights: bool = True,
        passes: int | str = "auto",
        learning_rate: float = 1.0,
        batch_rows: int | None = None,
    ) -> None:
        self.negatives = negatives
        self.sparse_weights = sparse_weights
        self.passes = passes
        self.learning_rate = learning_rate
        self.batch_rows = batch_rows


class FineTune(BaseEstimator):
    """A stepwise fit whose weights are then all trained together by SGD (torch)."""

    def __init__(
        self,
        passes: int | str = "auto",
        dropout: float = 0.3,
        sparse_weights: bool = True,
        learning_rate: float = 1.0,
        batch_rows: int | None = None,
    ) -> None:
        self.passes = passes
        self.dropout = dropout
        self.sparse_weights = sparse_weights
        self.learning_rate = learning_rate
        self.batch_rows = batch_rows


class InputKernel(BaseEstimator):
    """A kernel of x, on which the embedding is then linear."""

    def __init__(
        self, kernel: str = "gaussian", bandwidth: float | str = "auto", features: int | str = "auto", map: str = "auto"
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.features = features
        self.map = map


CLASSES: dict[str, type[BaseEstimator]] = {choice.name: globals()[choice.name] for choice in CHOICES}


def as_choice(parameter: str, value: Any) -> Any:
    """Returns the choice object that a value stands for: "gaussian" -> Gaussian(), "matern(5)" -> Matern(nu=5.0).

    A word that stands for no choice, such as "auto", is returned as it is.
    """
    if not isinstance(value, str):
        return value
    if parameter == "input_kernel" and value != "auto":
        return InputKernel(kernel=value)
    found = re.fullmatch(MATERN, value)
    if found:
        return Matern(nu=float(found[1]))
    name = next((c.name for c in CHOICES if c.parameter == parameter and c.word == value), None)
    return value if name is None else CLASSES[name]()


def nest(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns parameters of the estimator from settings by dotted name.

    {"kernel": "gaussian", "kernel.bandwidth": 2.0} becomes {"kernel": Gaussian(bandwidth=2.0)}. Where the parameter is
    not among the settings, or "auto", the choice is the first that has such a parameter, if it does not matter which.
    """
    found = {name: value for name, value in settings.items() if "." not in name}
    for name, value in settings.items():
        parameter, dot, own = name.partition(".")
        if not dot:
            continue
        current = as_choice(parameter, found.get(parameter, "auto"))
        if not isinstance(current, BaseEstimator):
            if current != "auto":
                raise ValueError(f"{parameter} is {current!r}, which has no parameter {own}; give {example_of(name)}.")
            with_it = [c for c in CHOICES if c.parameter == parameter and any(p.name == own for p in c.parameters)]
            if not with_it:
                raise ValueError(f"{name} is no parameter; known are {', '.join(flat_table())}.")
            if len(with_it) > 1 and parameter != "kernel":
                words = " or ".join(f"--{parameter} {c.word}" for c in with_it)
                raise ValueError(f"{name} goes with {words}; say which.")
            current = CLASSES[with_it[0].name]()
        if own not in current.get_params():
            raise ValueError(f"{type(current).__name__} has no parameter {own}, so {name} cannot be set.")
        found[parameter] = current.set_params(**{own: value})
    return found


def to_json(value: Any) -> Any:
    """Returns a choice object as its name and values, without the classifier of PerLabel; other values as they are."""
    if type(value).__name__ not in CLASSES:
        return value
    own = {name: plain(item) for name, item in value.get_params(deep=False).items() if name != "classifier"}
    return {"choice": type(value).__name__, **own}


def from_json(value: Any) -> Any:
    """Returns the choice object that `to_json` described; only the classes of this module are made."""
    if isinstance(value, dict) and "choice" in value:
        return CLASSES[value["choice"]](**{name: item for name, item in value.items() if name != "choice"})
    return value


def plain(value: Any) -> Any:
    """Returns a NumPy number as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def from_former(parameters: dict[str, Any]) -> dict[str, Any]:
    """Returns parameters of the estimator from those of 0.1 in its model files, without those that were ignored."""
    found = nest(settings_from_former(parameters))
    for limit in LIMITS:
        if limit.applies({p.name: p.default for p in PARAMETERS} | found):
            found = {k: v for k, v in found.items() if k not in limit.values or v in limit.values[k]}
    return found


def settings_from_former(parameters: dict[str, Any]) -> dict[str, Any]:
    """Returns settings by dotted name from parameters of 0.1; those that its learner ignored are left out."""
    old = dict(parameters)
    for name in ("half_step", "penalize_constant", "quasi_random", "rank_by"):
        if old.pop(name, None) not in (None, False, "probability"):
            warnings.warn(f"{name} of 0.1 is no parameter of a fit any more and is left out.", stacklevel=2)
    training = former_training(old)
    found = {FORMER.get(name, name): value for name, value in old.items()}
    if found.get("embedding") == "identity":
        found["embedding"] = "per_label"
    unused = {
        "loss.": found.get("loss", "auto") in ("auto", "squared") or training.get("training") == "joint",
        "kernel.": found.get("kernel") == "linear",
        "input_kernel.": found.get("input_kernel") in (None, "auto"),
        "embedding.": found.get("embedding", "randomized") not in ("randomized", "per_label"),
        "rank": found.get("embedding") in ("none", "per_label"),
        "embedding.power": found.get("embedding") == "per_label",
        "embedding.oversample": found.get("embedding") == "per_label",
        "embedding.classifier": found.get("embedding") != "per_label" or found.get("embedding.classifier") is None,
        "holdout": found.get("effort") == "quick",
    }
    defaults = {name: p.default for name, p in flat_table().items()}
    return training | {
        name: value
        for name, value in found.items()
        if not any(unused[prefix] and name.startswith(prefix) for prefix in unused)
        and ("." not in name or name not in defaults or value != defaults[name])
    }


def former_training(old: dict[str, Any]) -> dict[str, Any]:
    """Takes the parameters of joint training and fine-tuning from those of 0.1; returns them by their new names."""
    negatives, finetune = old.pop("negatives", "auto"), old.pop("finetune", False)
    direct, dropout = old.pop("direct", True), old.pop("dropout", 0.3)
    shared = {f"training.{name}": old[name] for name in ("learning_rate", "batch_rows") if name in old}
    shared |= {"training.sparse_weights": direct}
    if finetune:
        passes = {} if finetune is True else {"training.passes": finetune}
        return {"training": "finetune", "training.dropout": dropout, **passes, **shared}
    if negatives == "all":
        return {"training": "stepwise"}
    if negatives == "auto":
        return {}
    passes = {"training.passes": old["passes"]} if old.get("passes", "auto") != "auto" else {}
    return {"training": "joint", "training.negatives": negatives, **passes, **shared}


def check_names(estimator: BaseEstimator, names: Iterable[str]) -> None:
    """Raises ValueError for a name that `set_params` cannot set, such as loss__momentum where loss is a word."""
    given, known = set(names), estimator.get_params(deep=False)
    for name in given:
        parameter, nested, rest = name.partition("__")
        if parameter not in known:
            raise ValueError(unknown_parameter(name, known))
        if not nested or parameter in given:
            continue
        value, own = known[parameter], rest.partition("__")[0]
        if isinstance(value, BaseEstimator) and own in value.get_params(deep=False):
            continue
        if f"{parameter}.{own}" not in flat_table():
            raise ValueError(unknown_parameter(f"{parameter}.{own}"))
        raise ValueError(
            f"{parameter} is {value!r}, which has no parameter {own}; give {example_of(f'{parameter}.{own}')}."
        )
