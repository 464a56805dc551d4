"""Every parameter of a fit, declared once: name, default, possible values, help, and which learners use it.

From these tables come the check of the estimator's parameters, the options of `smoothlink train`, the page
docs/parameters.md, and the errors. The `__init__` methods of SmoothLinkClassifier and of the choices repeat names and
defaults, because scikit-learn reads signatures; a test compares them with the tables.

Nothing heavy is imported here: `smoothlink train --help` reads the tables too.
"""

from __future__ import annotations

import difflib
import math
import re
import textwrap
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any, NamedTuple


class Interval(NamedTuple):
    """Numbers between two bounds, each of which may belong to it."""

    low: float
    high: float = math.inf
    with_low: bool = True
    with_high: bool = True

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            return False
        value = float(value)
        above = value >= self.low if self.with_low else value > self.low
        return above and (value <= self.high if self.with_high else value < self.high)

    def __str__(self) -> str:
        low = f"{'at least' if self.with_low else 'above'} {self.low:g}"
        high = "" if self.high == math.inf else f" and {'at most' if self.with_high else 'below'} {self.high:g}"
        return f"a number {low}{high}"


@dataclass(frozen=True)
class Values:
    """The values that a parameter may have."""

    words: tuple[str, ...] = ()  # such as "auto"
    pattern: str = ""  # of further words, such as matern(NU)
    whole: int | None = None  # whole numbers of at least this
    number: Interval | None = None
    flag: bool = False  # True and False
    none: bool = False
    objects: str = ""  # in words: what else is possible, in Python alone
    accepts: Callable[[Any], bool] = lambda value: False  # whether a value is one of those objects

    def __contains__(self, value: Any) -> bool:
        if value is None:
            return self.none
        if isinstance(value, str):
            return (
                value in self.words or bool(self.pattern and re.fullmatch(self.pattern, value)) or self.accepts(value)
            )
        if type(value).__name__ in ("bool", "bool_"):
            return self.flag or self.accepts(value)
        if self.whole is not None and isinstance(value, Integral):
            return int(value) >= self.whole
        if self.number is not None and value in self.number:
            return True
        return self.accepts(value)

    @property
    def listed(self) -> list[str]:
        """What is possible, each in words."""
        found = [repr(word) for word in self.words]
        found += [repr(self.pattern_shown)] if self.pattern else []
        found += ["True", "False"] if self.flag else []
        found += [f"a whole number of at least {self.whole}"] if self.whole is not None else []
        found += [str(self.number)] if self.number is not None else []
        found += [self.objects] if self.objects else []
        return found + (["None"] if self.none else [])

    @property
    def pattern_shown(self) -> str:
        return "matern(NU)" if self.pattern else ""

    def __str__(self) -> str:
        return alternatives(self.listed)

    @property
    def typed(self) -> str:
        """What the command line can give, in words: all but objects."""
        return alternatives([text for text in self.listed if "(...)" not in text])

    def parse(self, text: str) -> Any:
        """The value that text from the command line stands for; ValueError where it is none of the possible ones."""
        words = {"none": None, "true": True, "false": False}
        candidates: list[Any] = [text] if text in self.words else []
        candidates += [words[text.lower()]] if text.lower() in words else []
        for kind, possible in ((int, self.whole is not None), (float, self.number is not None)):
            with suppress(ValueError):
                candidates += [kind(text)] if possible else []
        candidates.append(text)
        found = [value for value in candidates if value in self]
        if not found:
            raise ValueError(text)
        return found[0]


def alternatives(texts: list[str]) -> str:
    """Returns "a, b or c"."""
    *most, last = texts
    return f"{', '.join(most)} or {last}" if most else last


class Parameter(NamedTuple):
    """One parameter of the estimator, or of a choice."""

    name: str
    default: Any
    values: Values
    help: str
    group: str = "Model"
    common: bool = False  # whether `smoothlink train --help` shows it; --help-all shows all
    typed: bool = True  # whether the command line can give it


class Choice(NamedTuple):
    """A value of a parameter that has parameters of its own: `kernel=Gaussian(bandwidth=2.0)`."""

    name: str  # of the class in smoothlink.choices
    parameter: str  # of the estimator
    word: str  # that stands for the choice with its defaults
    help: str
    parameters: tuple[Parameter, ...] = ()


AUTO = ("auto",)
MATERN = r"matern\((?=[0-9.]*[1-9])([0-9]+\.?[0-9]*|\.[0-9]+)\)"  # a number above 0
POSITIVE = Interval(0, with_low=False)


def is_choice(*names: str) -> Callable[[Any], bool]:
    """Returns a test whether a value is an object of one of these choices."""
    return lambda value: type(value).__name__ in names and type(value).__module__ == "smoothlink.choices"


def is_weights(value: Any) -> bool:
    """Whether a value may hold weights of labels; `labels.weigh` checks them against the labels."""
    return not isinstance(value, (str, bool))


def is_path(value: Any) -> bool:
    return isinstance(value, (str, PathLike)) and bool(fspath(value))


def is_memory(value: Any) -> bool:
    """Whether a value is a number of bytes, or text such as "4G"."""
    return isinstance(value, (str, Integral)) and memory_bytes(value) is not None


UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def memory_bytes(value: Any) -> int | None:
    """Returns the bytes that "4G", "500M" or a number stands for; None where it stands for nothing."""
    found = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*([KMGT]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
    count = int(float(found[1]) * UNITS[found[2].upper()]) if found else 0
    return count if count >= 1 else None


AIMS = {"precision": Interval(0, 1, with_low=False), "recall": Interval(0, 1, with_low=False), "labels": POSITIVE}


def parse_aim(value: Any) -> tuple[str, float] | None:
    """Returns the name and the number of an aim such as "f1" or "precision=0.9"; None where it is none."""
    if not isinstance(value, str) or value in ("half", "f1"):
        return (value, math.nan) if isinstance(value, str) else None
    name, _, number = value.partition("=")
    with suppress(ValueError):
        return (name.strip(), float(number)) if float(number) in AIMS.get(name.strip(), ()) else None
    return None


def is_solver(value: Any) -> bool:
    return callable(getattr(value, "prepare", None)) and not isinstance(value, type)


def is_classifier(value: Any) -> bool:
    return hasattr(value, "fit") and not isinstance(value, type)


BANDWIDTH = Parameter(
    "bandwidth",
    "auto",
    Values(AUTO, number=POSITIVE),
    "Width of the kernel in units of the median distance between embedded rows; larger is smoother.",
)
FEATURES = Parameter("features", "auto", Values(AUTO, whole=1), "Number of random Fourier features.")
SGD = (
    Parameter(
        "passes",
        "auto",
        Values(AUTO, whole=1),
        'Passes (epochs) of the SGD over the rows; "auto" stops on held-out rows.',
    ),
    Parameter(
        "learning_rate",
        1.0,
        Values(number=POSITIVE),
        "Learning rate of the SGD, in units of the largest rate that stays stable with this ridge, batch and momentum.",
    ),
    Parameter("momentum", 0.9, Values(number=Interval(0, 1, with_high=False)), "Momentum of the SGD."),
    Parameter("decay", 0.9, Values(number=Interval(0, 1, with_low=False)), "Decay of the learning rate per pass."),
    Parameter(
        "batch_rows",
        None,
        Values(whole=1, none=True),
        "Rows per batch; None: a tenth of all, of very many a 64th.",
    ),
)
SPARSE_WEIGHTS = Parameter(
    "sparse_weights",
    True,
    Values(flag=True),
    "Whether each label also has weights for the single features that it occurs with, where X is sparse and such pairs "
    "are less than 200 million.",
)
RATE_FACTOR = Parameter(
    "learning_rate",
    1.0,
    Values(number=POSITIVE),
    "Factor of the learning rates of all weights.",
)

CHOICES = (
    Choice("Gaussian", "kernel", "gaussian", "The Gaussian kernel.", (BANDWIDTH, FEATURES)),
    Choice("Laplacian", "kernel", "laplacian", "A product of Laplace kernels.", (BANDWIDTH, FEATURES)),
    Choice("Exponential", "kernel", "exponential", "The exponential kernel.", (BANDWIDTH, FEATURES)),
    Choice(
        "Matern",
        "kernel",
        "",
        "The kernel whose frequencies have a Student distribution.",
        (Parameter("nu", 3.0, Values(number=POSITIVE), "Degrees of freedom of the frequencies."), BANDWIDTH, FEATURES),
    ),
    Choice("Linear", "kernel", "linear", "No random features: the link is linear in the embedding."),
    Choice("Squared", "loss", "squared", "Least squares, in closed form."),
    Choice("Logistic", "loss", "logistic", "One logistic loss per label, by SGD.", SGD),
    Choice("Softmax", "loss", "softmax", "The softmax loss of multiclass rows, by SGD.", SGD),
    Choice(
        "Randomized",
        "embedding",
        "randomized",
        "The label directions that the features predict best (Algorithm 1).",
        (
            Parameter("power", 1, Values(whole=1), "Power iterations of the randomized embedding."),
            Parameter("oversample", 20, Values(whole=0), "Directions that are probed beyond the rank."),
        ),
    ),
    Choice(
        "PerLabel",
        "embedding",
        "per_label",
        "One direction per label (Algorithm 2).",
        (
            Parameter(
                "classifier",
                None,
                Values(none=True, objects="a scikit-learn classifier", accepts=is_classifier),
                "The classifier whose decision functions, one clone per label, embed a row; None: ridge regression.",
                typed=False,
            ),
        ),
    ),
    Choice(
        "Joint",
        "training",
        "joint",
        "Embedding, decoder and sparse weights trained together by SGD with sampled negatives, for very many labels.",
        (
            Parameter(
                "negatives",
                "auto",
                Values(AUTO, whole=1),
                'Labels sampled at random for each batch, beside those of its rows and hard negatives; "auto" is 300.',
            ),
            SPARSE_WEIGHTS,
            Parameter(
                "passes",
                "auto",
                Values(AUTO, whole=1),
                'Passes (epochs) over the rows; "auto" is 4, or 6 from 100,000 rows on.',
            ),
            RATE_FACTOR,
            Parameter("batch_rows", None, Values(whole=1, none=True), "Rows per batch; None is 544."),
        ),
    ),
    Choice(
        "FineTune",
        "training",
        "finetune",
        "A stepwise fit, whose weights are then all trained together by SGD with torch.",
        (
            Parameter(
                "passes",
                "auto",
                Values(AUTO, whole=1),
                'Passes (epochs) of fine-tuning; "auto": at most 4, as long as held-out rows gain.',
            ),
            Parameter(
                "dropout",
                0.3,
                Values(number=Interval(0, 1, with_high=False)),
                "Share of the features of a row that a fine-tuning step leaves out.",
            ),
            SPARSE_WEIGHTS,
            RATE_FACTOR,
            Parameter("batch_rows", None, Values(whole=1, none=True), "Rows per batch; None is 512."),
        ),
    ),
    Choice(
        "InputKernel",
        "input_kernel",
        "",
        "A kernel of x, on which the embedding is linear.",
        (
            Parameter(
                "kernel",
                "gaussian",
                Values(("gaussian", "laplacian", "exponential"), pattern=MATERN),
                "The kernel.",
            ),
            Parameter(
                "bandwidth",
                "auto",
                Values(AUTO, number=POSITIVE),
                "Width of the kernel in units of the median distance between rows.",
            ),
            Parameter(
                "features",
                "auto",
                Values(AUTO, whole=1),
                'Number of landmark rows or random features; "auto" is one per row, up to 2000.',
            ),
            Parameter(
                "map",
                "auto",
                Values(("auto", "landmarks", "random")),
                "Kernel values at landmark rows (exact where every row is one), or random Fourier features, which "
                'embedding="none" and PerLabel(classifier) need. "auto": landmarks where possible.',
            ),
        ),
    ),
)


def words_of(parameter: str) -> tuple[str, ...]:
    """Returns the words that stand for choices of a parameter."""
    return tuple(choice.word for choice in CHOICES if choice.parameter == parameter and choice.word)


def objects_of(parameter: str) -> dict[str, Any]:
    """Returns how `Values` describes and accepts the choices of a parameter."""
    own = [choice for choice in CHOICES if choice.parameter == parameter]
    shown = " or ".join(f"{choice.name}(...)" for choice in own if choice.parameters)
    return {"objects": shown, "accepts": is_choice(*(choice.name for choice in own))}


MODEL, DATA, MACHINE, RUN = "Model", "Data", "Machine", "Run"
PARAMETERS = (
    Parameter(
        "rank",
        "auto",
        Values(("auto", "adaptive"), whole=1, number=Interval(0, 1, with_low=False)),
        "Number of label directions that the embedding keeps. A share such as 0.9 is the paper's rule: the fewest "
        "directions that hold this share "
        'of tr Y\'Y (multiclass: of tr Y\'PY). "adaptive" adds 64 at a time while they pay. "auto": all where labels '
        "are few, else chosen on held-out rows.",
        MODEL,
        common=True,
    ),
    Parameter(
        "embedding",
        "randomized",
        Values((*words_of("embedding"), "random", "principal", "none"), **objects_of("embedding")),
        'Which label directions: those that the features predict best ("randomized", Algorithm 1), Gaussian ones '
        '("random"), the leading eigenvectors of Y\'Y ("principal"), one per label ("per_label", Algorithm 2), or '
        'none: the link sees x itself ("none").',
        MODEL,
    ),
    Parameter(
        "ridge",
        "auto",
        Values(AUTO, number=Interval(0)),
        "Relative ridge of the embedding: a multiple of the mean diagonal of X'X.",
        MODEL,
    ),
    Parameter(
        "kernel",
        "auto",
        Values((*AUTO, *words_of("kernel")), pattern=MATERN, **objects_of("kernel")),
        'Kernel of the link function. "linear" has no random features. "auto": "gaussian", or where training is joint '
        '"linear".',
        MODEL,
        common=True,
    ),
    Parameter("final_ridge", "auto", Values(AUTO, number=Interval(0)), "Relative ridge of the decoder.", MODEL),
    Parameter(
        "loss",
        "auto",
        Values((*AUTO, *words_of("loss")), **objects_of("loss")),
        'Loss of the decoder; "softmax" is for multiclass, "logistic" for multilabel.',
        MODEL,
        common=True,
    ),
    Parameter(
        "training",
        "auto",
        Values(("auto", "stepwise", *words_of("training")), **objects_of("training")),
        'How embedding and decoder are trained. "stepwise" fits one after the other, as in the paper. "joint" trains '
        "both together with sampled "
        'negatives. "finetune" goes on from a stepwise fit with gradient steps of all weights (torch). "auto": '
        "stepwise, or from 2000 labels on, where X is sparse and passes over all labels would take too long, joint. "
        "Where labels, rows and features are all more than 1024, and rows or features at most 10,000, it is ridge "
        "regression onto all labels, without an embedding, unless held-out rows prefer a link.",
        MODEL,
        common=True,
    ),
    Parameter(
        "task",
        "auto",
        Values(("auto", "multilabel", "multiclass")),
        'Whether rows have any number of labels or exactly one; "auto": as the training rows do.',
        DATA,
        common=True,
    ),
    Parameter(
        "label_smoothing",
        1.0,
        Values(number=Interval(0.5, 1, with_low=False)),
        "a: labels become (2a-1) y + (1-a), or for multiclass a y + (1-a)/c. 1 leaves them as they are.",
        MODEL,
    ),
    Parameter(
        "class_weight",
        None,
        Values(("balanced",), none=True, objects="a dict or an array of weights", accepts=is_weights),
        "One weight per label, by id or in the order of classes_. Multiclass: example weights by class, as in "
        "scikit-learn. Multilabel: weights of labels in the embedding.",
        DATA,
    ),
    Parameter(
        "scale",
        "auto",
        Values(("auto", "none", "unit", "variance")),
        "Rows scaled to unit length (text), or columns to unit variance (tables); the scaling is part of the model.",
        DATA,
    ),
    Parameter(
        "normalize_embedding", False, Values(flag=True), "Whether embedded rows are scaled to unit length.", MODEL
    ),
    Parameter(
        "trees",
        "auto",
        Values(AUTO, flag=True),
        'Whether predictions of gradient-boosted trees stand beside the columns of x. "auto": where X is a dense table '
        'of up to 1,000 columns, `input_kernel` and `ridge` are "auto", and held-out rows clearly prefer it.',
        MODEL,
    ),
    Parameter(
        "input_kernel",
        "auto",
        Values(
            ("auto", "gaussian", "laplacian", "exponential"),
            pattern=MATERN,
            none=True,
            **objects_of("input_kernel"),
        ),
        'A kernel of x, on which the embedding is then linear; None: x itself. "auto": a Gaussian where X is a dense '
        'table, `ridge` is "auto" and held-out rows clearly prefer it.',
        MODEL,
    ),
    Parameter(
        "solver",
        "auto",
        Values(
            ("auto", "cholesky", "dual", "cg"),
            objects="Cholesky(), DualCholesky() or ConjugateGradient(...)",
            accepts=is_solver,
        ),
        'How ridge systems are solved: exactly over features, exactly over rows, or by conjugate gradients; "auto" by '
        "predicted cost. `summary_` has the iterations and the residual of the last.",
        MODEL,
    ),
    Parameter(
        "effort",
        "full",
        Values(("full", "quick")),
        'How much is tried before the fit. "full": what is "auto" is chosen on held-out rows. "quick": it follows '
        "rules of thumb, and the model is "
        "fitted once, without the 5 % of the rows (5000 at most) that calibrate it, in a tenth of the time or so; up "
        "to 5000 rows folds calibrate it, and all rows are fitted. It "
        'was 0 to 2.2 points of P@1 below "full" on the five sets of the benchmarks; on tables that mix numbers with '
        "one-hot columns more may be lost.",
        RUN,
        common=True,
    ),
    Parameter(
        "holdout",
        0.1,
        Values(number=Interval(0, 0.5, with_low=False)),
        'Share of the rows that is held out for each "auto" and for the calibration, or twice that where it is '
        "200 to 900 rows.",
        RUN,
    ),
    Parameter(
        "calibrate",
        True,
        Values(flag=True),
        "Whether held-out rows map scores to probabilities.",
        RUN,
    ),
    Parameter(
        "aim",
        "half",
        Values(
            ("half", "f1"),
            objects="'precision=P', 'recall=R' (shares), 'labels=N' (labels per row)",
            accepts=lambda value: parse_aim(value) is not None,
        ),
        "What the thresholds of the labels that `predict` returns are chosen for: half, f1, precision=P, recall=R or "
        'labels=N. "half": labels more likely than not. '
        'Others are chosen on held-out rows: "f1" one per label for a high mean F1 over labels, "precision=0.9" '
        'the smallest threshold at which this share of the predicted labels is true, "recall=0.9" the largest at which '
        'this share of the true labels is predicted, "labels=4" the one that predicts so many labels per row. New rows '
        "may differ: the aim was reached on held-out rows, which is no guarantee. Multiclass models predict the one "
        'best label, and take "half".',
        RUN,
        common=True,
    ),
    Parameter(
        "conformal",
        0.0,
        Values(number=Interval(0, 0.5)),
        "Share of the rows that is used for nothing but guarantees (`predict_set`, `review`): neither for choosing, "
        "calibration and thresholds nor for the final fit. 0: none; `recalibrate_sets` takes other rows later.",
        RUN,
        common=True,
    ),
    Parameter(
        "device",
        "cpu",
        Values(objects="'cpu', 'cuda', 'cuda:1' and so on, 'auto' or 'torch'", accepts=lambda value: True),
        'Where the fit and the predictions run. "cpu", a GPU ("cuda", "cuda:1" and so on, by torch), "auto" for a GPU '
        'where there is one, or "torch" for '
        "torch on the processor; results differ by rounding alone.",
        MACHINE,
        common=True,
    ),
    Parameter(
        "memory",
        None,
        Values(none=True, objects="a number of bytes or text such as '4G'", accepts=is_memory),
        'Memory that the process may use while it fits, such as "4G". X, the embedding and V are then kept in parts or '
        "in files. Too little is refused at once, with what is needed. None: as much as it takes.",
        MACHINE,
        common=True,
    ),
    Parameter(
        "block_rows",
        None,
        Values(whole=1, none=True),
        "Rows per block; results do not depend on it beyond rounding.",
        MACHINE,
    ),
    Parameter(
        "checkpoint",
        None,
        Values(none=True, objects="the path of a folder", accepts=is_path),
        "A folder where the fit saves its state. Killed and started again in the same way, it goes on from there and "
        "ends with the same model. Remove the folder afterwards.",
        RUN,
        common=True,
    ),
    Parameter(
        "updatable",
        False,
        Values(flag=True),
        "Whether rows and labels can be added to the model and removed from it later (`update`, `forget`). Its sums "
        "are kept for that, or with other losses a sample of its rows, in a second file beside the model file. With "
        "the squared loss updates are exact, given the embedding; `summary_` says whether they are.",
        RUN,
        common=True,
    ),
    Parameter(
        "random_state",
        0,
        Values(whole=0, none=True, objects="a RandomState", accepts=lambda value: hasattr(value, "randint")),
        "Seed of every random draw. A number makes runs repeat exactly on one machine.",
        RUN,
        common=True,
    ),
    Parameter("verbose", 0, Values(whole=0, flag=True), "1 writes each step to standard error.", RUN),
)


RANK_BY = Values(("probability", "psp"))  # of a prediction: "psp" favours rare labels by their inverse propensity
LEVEL = Values(number=Interval(0, 1, with_low=False, with_high=False))  # of a guarantee
DTYPES = Values(("float32", "float16", "int8", "int4"), none=True)  # of the weights in a model file


class Limit(NamedTuple):
    """What a learner or a machine has no use for: parameters whose values must then be among these."""

    who: str
    applies: Callable[[dict[str, Any]], bool]
    values: dict[str, Values]


def chosen_word(parameters: dict[str, Any], name: str) -> Any:
    """Returns the word of a parameter's value, whether it was given as a word or as a choice object."""
    value = parameters[name]
    found = next((choice for choice in CHOICES if is_choice(choice.name)(value)), None)
    return value if found is None else found.word or found.name


def has_classifier(value: Any) -> bool:
    return getattr(value, "classifier", None) is not None


UNUSED = Values(AUTO)
ONLY_CPU = Values(objects="'cpu'", accepts=lambda value: value == "cpu")
ONLY_NONE = Values(none=True)
NOT_SMOOTHED = Values(objects="1.0", accepts=lambda value: value == 1)
X_ITSELF = Values(AUTO, none=True)
NO_TREES = Values(AUTO, objects="False", accepts=lambda value: value is False)
NOT_UPDATABLE = Values(objects="False", accepts=lambda value: value is False)
WITHOUT_LANDMARKS = Values(
    ("auto", "gaussian", "laplacian", "exponential"),
    pattern=MATERN,
    none=True,
    objects="InputKernel(map='random')",
    accepts=lambda value: is_choice("InputKernel")(value) and value.map != "landmarks",
)
WITHOUT_CLASSIFIER = Values(
    (*words_of("embedding"), "random", "principal", "none"),
    objects="PerLabel() without a classifier",
    accepts=lambda value: is_choice("Randomized", "PerLabel")(value) and not has_classifier(value),
)

JOINT = Limit(
    "training='joint'",
    lambda p: chosen_word(p, "training") == "joint",
    {
        "kernel": Values(("auto", "linear"), accepts=is_choice("Linear")),
        "final_ridge": UNUSED,
        "loss": Values(("auto", "logistic", "softmax")),
        "embedding": Values(("randomized",), objects="Randomized(...)", accepts=is_choice("Randomized")),
        "rank": Values(AUTO, whole=1),
        "label_smoothing": NOT_SMOOTHED,
        "normalize_embedding": Values(objects="False", accepts=lambda value: not value),
        "trees": NO_TREES,
        "input_kernel": X_ITSELF,
        "solver": UNUSED,
    },
)
CLUSTER = Limit(
    "a cluster",
    lambda p: False,  # an argument of `check` says so
    {
        "device": ONLY_CPU,
        "training": Values(("auto", "stepwise", "joint"), objects="Joint(...)", accepts=is_choice("Joint")),
        "memory": ONLY_NONE,
        "updatable": NOT_UPDATABLE,
        "trees": NO_TREES,
        "input_kernel": X_ITSELF,
        "embedding": WITHOUT_CLASSIFIER,
        "solver": Values(
            ("auto", "cholesky", "cg"),
            objects="Cholesky() or ConjugateGradient(...)",
            accepts=lambda value: is_solver(value) and type(value).__name__ != "DualCholesky",
        ),
    },
)
LIMITS = (
    JOINT,
    Limit(
        "training='finetune'",
        lambda p: chosen_word(p, "training") == "finetune",
        {
            "loss": Values(
                ("auto", "logistic", "softmax"), objects="Logistic(...)", accepts=is_choice("Logistic", "Softmax")
            ),
            "embedding": Values(
                tuple(word for word in WITHOUT_CLASSIFIER.words if word != "none"),
                objects=WITHOUT_CLASSIFIER.objects,
                accepts=WITHOUT_CLASSIFIER.accepts,
            ),
            "label_smoothing": NOT_SMOOTHED,
            "trees": NO_TREES,
            "input_kernel": X_ITSELF,
            "memory": ONLY_NONE,
        },
    ),
    Limit(
        "embedding='none'",
        lambda p: p["embedding"] == "none",
        {"rank": UNUSED, "ridge": UNUSED, "solver": UNUSED, "input_kernel": WITHOUT_LANDMARKS},
    ),
    Limit("embedding='per_label'", lambda p: chosen_word(p, "embedding") == "per_label", {"rank": UNUSED}),
    Limit(
        "embedding=PerLabel(classifier)",
        lambda p: has_classifier(p["embedding"]),
        {"ridge": UNUSED, "solver": UNUSED, "memory": ONLY_NONE, "input_kernel": WITHOUT_LANDMARKS},
    ),
    Limit(
        "effort='quick'",
        lambda p: p["effort"] == "quick",
        {"holdout": Values(objects="0.1", accepts=lambda value: value == 0.1)},
    ),
    Limit("updatable=True", lambda p: bool(p["updatable"]), {"memory": ONLY_NONE, "trees": NO_TREES}),
    Limit("calibrate=False", lambda p: not p["calibrate"], {"aim": Values(("half",))}),
)


def check(parameters: dict[str, Any], *, cluster: bool = False) -> None:
    """Raises ValueError for a value that is not possible, or that the chosen learner does not use."""
    for p in PARAMETERS:
        check_value(p.name, parameters[p.name], p.values)
    for name, value in parameters.items():
        for p in parameters_of(value):
            check_value(f"{name}.{p.name}", getattr(value, p.name), p.values)
    for limit in (*LIMITS, *([CLUSTER] if cluster else [])):
        if limit is CLUSTER or limit.applies(parameters):
            reason = conflict(limit, parameters)
            if reason is not None:
                raise ValueError(reason)


def check_value(name: str, value: Any, values: Values) -> None:
    """Raises ValueError where a value is not possible."""
    if name == "embedding" and value in ("plst", "cplst", "identity"):
        became = '"per_label"' if value == "identity" else f"smoothlink_paper.LabelSpace(method={value!r})"
        raise ValueError(f"embedding is {value!r}, which is now {became}; possible are {values}.")
    if value not in values:
        raise ValueError(f"{name} is {value!r}; possible are {values}.")


def conflict(limit: Limit, parameters: dict[str, Any]) -> str | None:
    """Returns a sentence on the first parameter that a learner or a machine has no use for, or None."""
    for name, values in limit.values.items():
        if parameters[name] not in values:
            return f"{name} is {parameters[name]!r}, which {limit.who} cannot use; possible there: {values}."
    return None


def parameters_of(value: Any) -> tuple[Parameter, ...]:
    """Returns the parameters of a choice object; none of other values."""
    return next((choice.parameters for choice in CHOICES if is_choice(choice.name)(value)), ())


def flat_table() -> dict[str, Parameter]:
    """Returns every parameter by the name that the command line gives it: "rank", "kernel.bandwidth"."""
    found = {p.name: p for p in PARAMETERS}
    for choice in CHOICES:
        found |= {f"{choice.parameter}.{p.name}": p for p in choice.parameters}
    return found


# What became of the parameters of 0.1: a name of `flat_table`, or a sentence.
FORMER = {
    "bandwidth": "kernel.bandwidth",
    "n_features": "kernel.features",
    "passes": "loss.passes",
    "learning_rate": "loss.learning_rate",
    "momentum": "loss.momentum",
    "decay": "loss.decay",
    "batch_rows": "loss.batch_rows",
    "negatives": "training.negatives",
    "direct": "training.sparse_weights",
    "finetune": "It is now training='finetune' (on the command line: --training finetune).",
    "dropout": "training.dropout",
    "power": "embedding.power",
    "oversample": "embedding.oversample",
    "first_stage": "embedding.classifier",
    "input_bandwidth": "input_kernel.bandwidth",
    "input_features": "input_kernel.features",
    "input_map": "input_kernel.map",
    "rank_by": "It is an argument of predict_topk and evaluate, and an option of the commands predict and evaluate.",
    "quasi_random": "It was removed: quasi-random frequencies gained nothing on any data set.",
    "half_step": "It is an argument of the function smoothlink.steps.embed.label_embedding.",
    "penalize_constant": "It is the argument penalize_intercept of the solvers' prepare method, in smoothlink.solve.",
}


def example_of(name: str) -> str:
    """Returns how Python gives a parameter of a choice: "kernel.bandwidth" -> "kernel=Gaussian(bandwidth=...)"."""
    parameter, _, own = name.partition(".")
    choice = next((c for c in CHOICES if c.parameter == parameter and any(p.name == own for p in c.parameters)), None)
    return f"{parameter}={choice.name}({own}=...)" if choice else f"{parameter}=..."


def unknown_parameter(name: str, known: Iterable[str] = ()) -> str:
    """Returns a sentence on a name that is no parameter: what it is called now, or what it may be a slip of."""
    became = FORMER.get(name)
    if became is not None and " " in became:
        return f"There is no parameter {name}. {became}"
    if became is not None:
        return f"The parameter {name} is now {example_of(became)} (on the command line: --set {became}=...)."
    near = difflib.get_close_matches(name, list(known) or list(flat_table()), 3, 0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"There is no parameter {name}.{hint}"


def parse_setting(text: str) -> tuple[str, Any]:
    """Returns name and value of "kernel.bandwidth=2"; ValueError with a sentence where it is not possible."""
    name, equals, value = text.partition("=")
    name = name.strip().replace("__", ".").replace("-", "_")
    if not equals:
        raise ValueError(f"{text!r} has no value; write name=value, such as kernel.bandwidth=2.")
    known = flat_table()
    if name not in known:
        raise ValueError(unknown_parameter(name, known))
    if not known[name].typed:
        raise ValueError(f"{name} is an object, which only Python can give: {example_of(name)}.")
    possible = [p.values for p in every_parameter(name)]
    for values in possible:
        try:
            return name, values.parse(value.strip())
        except ValueError:
            continue
    raise ValueError(f"{name} is {value.strip()!r}; possible are {possible[0].typed}.")


def every_parameter(name: str) -> list[Parameter]:
    """Returns the parameters that a name of `flat_table` stands for: choices may differ in what is possible."""
    parameter, _, own = name.partition(".")
    if not own:
        return [p for p in PARAMETERS if p.name == parameter]
    return [p for c in CHOICES if c.parameter == parameter for p in c.parameters if p.name == own]


def documented(parameters: Iterable[Parameter], indent: str = "    ") -> str:
    """Returns the section "Parameters" of a docstring, in NumPy's form, without its heading."""
    entries = []
    for p in parameters:
        text = textwrap.fill(p.help, 120 - 2 * len(indent), initial_indent=indent, subsequent_indent=indent)
        entries.append(f"{p.name} : {p.values}, default={p.default!r}\n{text}")
    return textwrap.indent("\n".join(entries), indent).lstrip()
