"""Arguments and options that several commands share, and options that come in groups."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from smoothlink.cli.screen import Screen
from smoothlink.errors import plural
from smoothlink.parameters import DTYPES, RANK_BY

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.classifier import TextSmoothLink
    from smoothlink.vocabulary import Vocabulary

WORDS: dict[Any, str] = {bool: "", int: "N", float: "NUMBER", str: "TEXT"}  # for the value of an option

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model file, as `train` writes it.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file, whatever it holds.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only: no notes, no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a file with features that the model does not know.")]
Dtype = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Numbers that weights are stored in: float32, float16, int8 or int4; without it exact up to 16 MiB of "
        "weights, float16 beyond. int8 and int4 cost accuracy.",
    ),
]
RankBy = Annotated[
    str,
    typer.Option(
        metavar="probability|psp", help="How labels are ranked: by probability, or by psp, which favours rare labels."
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        metavar="P",
        help="Measure label sets at this probability, not at the model's own.",
        show_default=False,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Where predictions are made: cpu, cuda, cuda:1 and so on, auto (a GPU if there is one), or torch.",
    ),
]
FitDevice = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Where fits run: cpu, cuda, cuda:1 and so on, auto (a GPU if there is one), or torch.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="A Dask cluster to run on: tcp://HOST:8786, or local:4 for four processes of this machine.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN|FILE",
        help="Column of texts whose rows of the same value, such as an author, stay on one side of every split; for "
        "rows of numbers, a file with one value per line. Without it, copies do.",
    ),
]

Tests = Annotated[
    list[str], typer.Argument(metavar="TEST", help="Data files with the true labels; * in a name stands for any text.")
]


class Measuring(NamedTuple):
    """How models are measured on test files."""

    bootstraps: int
    seed: int
    rank_by: str
    threshold: float | None
    device: str
    strict: bool

    @property
    def predicting(self) -> dict[str, Any]:
        """Returns the options of the predictions that are measured."""
        given: dict[str, Any] = {"rank_by": self.rank_by, "threshold": self.threshold}
        return given | {"device": self.device, "strict": self.strict}

    def check(self, *models: str) -> None:
        """Raises errors that name the option or the model file, before any data is read."""
        for model in models:
            load_model(model, self.rank_by, self.device)


def measuring(
    *,
    bootstraps: Annotated[
        int, typer.Option(min=0, help="Number of bootstrap samples for the intervals; 0: none.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of these samples, and of the rows that pages show.")] = 0,
    rank_by: RankBy = "probability",
    threshold: Threshold = None,
    device: Device = "cpu",
    strict: Strict = False,
) -> Measuring:
    """Returns the options that `evaluate`, `report` and `compare` share."""
    return Measuring(bootstraps, seed, rank_by, threshold, device, strict)


Command = Callable[..., None]


def grouped(**groups: Callable[..., Any]) -> Callable[[Command], Command]:
    """Gives a command all options of a function in place of one argument, which gets that function's result.

    `@grouped(reading=reading)` on `def info(path, *, reading)` gives `info` the options of `reading()`.
    """

    def decorate(command: Command) -> Command:
        signatures = {name: inspect.signature(group, eval_str=True) for name, group in groups.items()}

        @functools.wraps(command)
        def run(**given: Any) -> None:
            results = {
                name: groups[name](**{option: given.pop(option) for option in signature.parameters})
                for name, signature in signatures.items()
            }
            command(**given, **results)

        own = inspect.signature(command, eval_str=True)
        kept = [parameter for name, parameter in own.parameters.items() if name not in groups]
        added = [parameter for signature in signatures.values() for parameter in signature.parameters.values()]
        del run.__wrapped__  # typer is to see the new signature
        run.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
        run.__annotations__ = {}
        return run

    return decorate


class PlainHelp:
    """A mixin for commands whose help names no Python types: N for a number, and nothing after a switch."""

    def get_params(self, ctx: Any) -> Any:
        found = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            if parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None
            elif parameter.metavar is None:  # older versions of typer have no type_descriptor and show no types
                parameter.metavar = WORDS.get(getattr(getattr(parameter, "type_descriptor", None), "annotation", None))
        return found


class PlainCommand(PlainHelp, TyperCommand):
    """A command with plain help."""


class PlainGroup(PlainHelp, TyperGroup):
    """The command of which the others are part, with plain help."""


@contextmanager
def on_cluster(
    address: str | None, screen: Screen, plan: str | None = None, shards: str | None = None
) -> Iterator[None]:
    """What runs inside runs on the cluster, if one is named."""
    if address is None:
        yield
        return
    from smoothlink.distributed.client import cluster

    with ExitStack() as stack:
        with screen.working(f"joining {address}"):
            stack.enter_context(cluster(address, plan or "auto", shards))
            logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # errors are raised, and put in words
        yield


def dashboard(screen: Screen) -> None:
    """Who works, and where one can watch, if there is a cluster."""
    from smoothlink.distributed import current

    cluster = current()
    if cluster is not None:
        screen.note(f"{plural(len(cluster.workers), 'worker')}. Dashboard: {cluster.dashboard}")


def check_dtype(dtype: str | None) -> None:
    """Refuses numbers that no model file has."""
    if dtype not in DTYPES:
        raise typer.BadParameter(f"{dtype!r} is none of {'|'.join(DTYPES.words)}.", param_hint="--dtype")


def load_model(path: str, rank_by: str = "probability", device: str = "cpu") -> SmoothLinkClassifier | TextSmoothLink:
    """The model in a file, on a device that is there."""
    from smoothlink.file_prediction import open_model

    if rank_by not in RANK_BY:
        raise typer.BadParameter(f"{rank_by!r} is none of probability|psp.", param_hint="--rank-by")
    check_device(device)
    return open_model(path, device)


def check_device(device: str) -> None:
    """Raises an error where there is no such device."""
    from smoothlink.machines.host_and_device import DEVICE_NAMES, find_machine

    try:
        find_machine(device)
    except ValueError:
        raise typer.BadParameter(f"{device!r} is none of {DEVICE_NAMES}.", param_hint="--device") from None


NAMES_PANEL = "Names of labels"


class Naming(NamedTuple):
    """The vocabulary that names labels, as typed."""

    path: str | None
    language: str | None

    @property
    def given(self) -> bool:
        """Whether any of it was typed."""
        return self.path is not None or self.language is not None

    def read(self) -> Vocabulary | None:
        """The vocabulary in the file, if one was named."""
        from smoothlink.vocabulary import read_vocabulary

        return None if self.path is None else read_vocabulary(self.path, self.language)

    def applied(self, model: Any, screen: Screen) -> Any:
        """The model with this vocabulary in place of its own, or with its own in this language."""
        from smoothlink.data.matching import inside, label_names
        from smoothlink.vocabulary import checked, with_vocabulary

        found = self.read()
        if found is None:
            stored = inside(model).vocabulary_
            if self.language is None:
                return model
            if stored is None:
                raise typer.BadParameter("the model stores no names; pass --vocabulary too.", param_hint="--language")
            found = stored.in_language(self.language)
        return with_vocabulary(model, checked(found, label_names(inside(model)), screen.note))


Language = Annotated[
    str | None,
    typer.Option(
        metavar="CODE",
        help="Language of the names, such as en. Without it, the one that has the most.",
        show_default=False,
        rich_help_panel=NAMES_PANEL,
    ),
]


def naming(
    *,
    vocabulary: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Names of the labels by id or URI: TSV, CSV, JSON or SKOS. Without it, those that the model stores.",
            show_default=False,
            rich_help_panel=NAMES_PANEL,
        ),
    ] = None,
    language: Language = None,
) -> Naming:
    """The options that name labels."""
    return Naming(vocabulary, language)
