"""Arguments and options that several commands share, and options that come in groups."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from smoothlink.cli.screen import Screen
from smoothlink.errors import plural
from smoothlink.parameters import RANK_BY

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.text.classifier import TextSmoothLink

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model file, as `train` writes it.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that is there already, whatever it holds.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only: no notes, no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a file with features the model does not know.")]
RankBy = Annotated[
    str, typer.Option(metavar="probability|psp", help="What sorts the labels of a row; psp favours rare labels.")
]
Device = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Where predictions are made: cpu, cuda, cuda:1 and so on, auto (a card where there is one), or torch.",
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
    list[str], typer.Argument(metavar="TEST...", help="Data files with the true labels; * in a name fits all.")
]


class Measuring(NamedTuple):
    """How models are measured on test files."""

    bootstraps: int
    seed: int
    rank_by: str
    device: str
    strict: bool

    @property
    def predicting(self) -> dict[str, Any]:
        """Returns the options of the predictions that are measured."""
        return {"rank_by": self.rank_by, "device": self.device, "strict": self.strict}

    def check(self, *models: str) -> None:
        """Raises errors that name the option or the model file, before any data is read."""
        for model in models:
            load_model(model, self.rank_by, self.device)


def measuring(
    *,
    bootstraps: Annotated[int, typer.Option(min=0, help="Draws of rows behind the intervals; 0: none.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of these draws, and of the rows that pages show.")] = 0,
    rank_by: RankBy = "probability",
    device: Device = "cpu",
    strict: Strict = False,
) -> Measuring:
    """Returns the options that `evaluate`, `report` and `compare` share."""
    return Measuring(bootstraps, seed, rank_by, device, strict)


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
        yield


def dashboard(screen: Screen) -> None:
    """Who works, and where one can watch, if there is a cluster."""
    from smoothlink.distributed import current

    cluster = current()
    if cluster is not None:
        screen.note(f"{plural(len(cluster.workers), 'worker')}. Dashboard: {cluster.dashboard}")


def load_model(path: str, rank_by: str = "probability", device: str = "cpu") -> SmoothLinkClassifier | TextSmoothLink:
    """The model in a file, on a device that is there."""
    from smoothlink.file_prediction import open_model
    from smoothlink.machines.host_and_device import DEVICE_NAMES, find_machine

    if rank_by not in RANK_BY:
        raise typer.BadParameter(f"{rank_by!r} is none of probability|psp.", param_hint="--rank-by")
    try:
        find_machine(device)
    except ValueError:
        raise typer.BadParameter(f"{device!r} is none of {DEVICE_NAMES}.", param_hint="--device") from None
    return open_model(path, device)
