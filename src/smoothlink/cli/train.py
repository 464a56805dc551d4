"""`smoothlink train`: a data file -> a model file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data import Reading, read_data, reading, writable
from smoothlink.cli.options import AsJson, Quiet, grouped
from smoothlink.cli.parameters import chosen
from smoothlink.cli.parameters import parameters as known
from smoothlink.cli.screen import Screen, number, plural, print_json, size, table
from smoothlink.errors import DataError

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.steps.read import Data

ONE_LABEL = "Every row has exactly one label: training a multiclass model; --task multilabel overrides."
SETTINGS = (
    *("scale", "solver", "rank", "captured_share", "ridge", "kernel", "bandwidth", "random_features", "final_ridge"),
    *("loss", "passes"),
)
DRAWN = ("scale", "rank", "kernel", "loss", "passes", "negatives", "direct_weights")  # where labels were drawn
STAGES = ("scale", "choose", "calibrate", "embed", "featurize", "fit")


@grouped(reading=reading, parameters=chosen)
def train(
    data: Annotated[str, typer.Argument(metavar="TRAIN", help="A data file, plain or compressed.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="MODEL", help="Where the model goes.")],
    params: Annotated[str | None, typer.Option(metavar="FILE", help="Settings that `tune` found.")] = None,
    params_for: Annotated[
        str | None, typer.Option(metavar="METRIC", help="Whose settings, where the file has several.")
    ] = None,
    half: Annotated[
        bool, typer.Option("--half", help="Weights in half precision: half the file, about the same predictions.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
    parameters: dict[str, Any],
) -> None:
    """Train a model on a data file. Nothing has to be tuned.

    Example: smoothlink train train.txt.xz -o model.safetensors
    """
    writable(output, data)
    screen = Screen(quiet)
    tuned = {} if params is None else tuned_settings(params, params_for)
    budget = allowed(parameters)
    found = read_data(data, reading, screen)
    if not found.X.shape[0]:
        raise DataError(f"{data} has no rows: there is nothing to learn from.")
    if budget is not None:
        check_reading(data, budget)
    model = fit(found, {**tuned, **parameters}, screen)
    with screen.working(f"writing {output}"):
        model.save(output, dtype="float16" if half else None)
    if as_json:
        print_json({**model.summary_, "model": output, "bytes": os.path.getsize(output)})
    elif not quiet:
        show(model.summary_, screen)
        screen.out.print(f"{output}: {size(os.path.getsize(output))}", markup=False, soft_wrap=True)


def allowed(parameters: dict[str, Any]) -> int | None:
    """The memory budget in bytes; what is wrong with it is said before the data are read."""
    from smoothlink.fitting.plan import parse_memory

    return parse_memory(parameters.get("memory"))


def check_reading(path: str, budget: int) -> None:
    """Whether the data could be read within the budget; a data folder always can."""
    from smoothlink.fitting.options import peak_memory_mb

    peak, folder = peak_memory_mb() * (1 << 20), Path(path).with_name(Path(path).name.split(".")[0] + ".sl")
    if peak > budget and not os.path.isdir(path):
        raise DataError(
            f"Reading {path} took {size(peak)} of memory, more than --memory allows ({size(budget)}).\n"
            f"Type: smoothlink convert {path} {folder}, and train on {folder}."
        )


def tuned_settings(path: str, metric: str | None) -> dict[str, Any]:
    """The settings that a search found best for a metric."""
    import json

    try:
        best = json.loads(Path(path).read_text())["best"]
        found = {name: dict(entry["params"]) for name, entry in best.items()}
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} holds no settings of `smoothlink tune` ({error!r}).") from error
    if metric is None and len(found) == 1:
        metric = next(iter(found))
    if metric not in found:
        raise typer.BadParameter(f"{path} has settings for {', '.join(found)}; name one.", param_hint="--params-for")
    unknown = set(found[metric]) - {p.name for p in known()}
    if unknown:
        raise DataError(f"{path} has settings that this version does not know: {', '.join(sorted(unknown))}.")
    return found[metric]


def fit(data: Data, parameters: dict[str, Any], screen: Screen) -> SmoothLinkClassifier:
    """A fitted classifier that knows the names of its labels and features."""
    import numpy as np

    from smoothlink.estimator import SmoothLinkClassifier

    if parameters.get("task", "auto") == "auto" and data.Y.shape[1] > 1 and (np.diff(data.Y.indptr) == 1).all():
        screen.note(ONE_LABEL)
    model = SmoothLinkClassifier(**parameters)
    with screen.stages() as notify:
        model._notify, model._note = None if model.verbose else notify, None if model.verbose else screen.note
        model.fit(data.X, data.Y)
    model.label_names_ = data.label_names
    if data.feature_names is not None:
        model.feature_names_in_ = np.array(data.feature_names, dtype=object)
    return model


def show(summary: dict[str, Any], screen: Screen) -> None:
    """The story of a fit: what was settled and by what, and what each stage took."""
    counts = ", ".join(plural(summary[noun], noun[:-1]) for noun in ("rows", "features", "labels"))
    screen.out.print()
    screen.out.print(f"A {summary['task']} model of {counts}", style="bold")
    settings = table("setting", ">value", "chosen by")
    for name in DRAWN if "negatives" in summary else SETTINGS if summary["passes"] else SETTINGS[:-1]:
        settings.add_row(name.replace("_", " "), value_of(summary, name), chosen_by(summary, name))
    stages = table("stage", ">seconds", ">peak memory")
    for stage in sorted(summary["seconds"], key=STAGES.index):  # a model file does not keep their order
        stages.add_row(stage, f"{summary['seconds'][stage]:.1f}", memory(summary["peak_memory_mb"].get(stage)))
    peak = max((mb for mb in summary["peak_memory_mb"].values() if mb is not None), default=None)
    stages.add_section()
    stages.add_row("total", f"{sum(summary['seconds'].values()):.1f}", memory(peak))
    if summary.get("peak_device_mb") is not None:
        stages.add_row(f"on {summary['device']}", "", memory(summary["peak_device_mb"]))
    screen.out.print(settings)
    screen.out.print(stages)


def value_of(summary: dict[str, Any], name: str) -> str:
    value = summary.get(name)
    if name == "captured_share" and value is not None:
        return f"{100 * value:.1f} %"
    return value if isinstance(value, str) else number(value)


def chosen_by(summary: dict[str, Any], name: str) -> str:
    """What settled a setting: the losses tried, with what held-out rows said of them, or the summary's word."""
    tried = summary.get("held_out_criterion") or {}
    if name == "loss" and len(tried) > 1:
        return "held-out rows (" + ", ".join(f"{loss} {number(value)}" for loss, value in tried.items()) + ")"
    return str(summary.get("chosen_by", {}).get(name, ""))


def memory(mb: float | None) -> str:
    return "" if mb is None or mb != mb else size(mb * (1 << 20))
