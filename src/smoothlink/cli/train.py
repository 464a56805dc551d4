"""`smoothlink train`: data files -> a model file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data import read_several, reading
from smoothlink.cli.options import AsJson, Cluster, Quiet, grouped, on_cluster
from smoothlink.cli.parameters import chosen
from smoothlink.cli.parameters import parameters as known
from smoothlink.cli.screen import Screen, number, print_json, size, table
from smoothlink.datafiles import Reading, names_in, writable
from smoothlink.errors import DataError, plural

if TYPE_CHECKING:
    from smoothlink.estimator import SmoothLinkClassifier

ONE_LABEL = "Every row has exactly one label: training a multiclass model; --task multilabel overrides."
SETTINGS = (
    *("scale", "solver", "rank", "captured_share", "ridge", "kernel", "bandwidth", "random_features", "final_ridge"),
    *("loss", "passes"),
)
DRAWN = ("scale", "rank", "kernel", "loss", "passes", "negatives", "direct_weights")  # where labels were drawn
STAGES = ("scale", "read", "choose", "calibrate", "embed", "featurize", "fit")


@grouped(reading=reading, parameters=chosen)
def train(
    data: Annotated[
        list[str],
        typer.Argument(metavar="TRAIN...", help="Data files, plain or compressed; * in a name fits all."),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="MODEL", help="Where the model goes.")],
    params: Annotated[str | None, typer.Option(metavar="FILE", help="Settings that `tune` found.")] = None,
    params_for: Annotated[
        str | None, typer.Option(metavar="METRIC", help="Whose settings, where the file has several.")
    ] = None,
    half: Annotated[
        bool, typer.Option("--half", help="Weights in half precision: half the file, about the same predictions.")
    ] = False,
    cluster: Cluster = None,
    cluster_plan: Annotated[
        str | None, typer.Option(metavar="auto|rows|columns", help="What its workers share out, if not by sizes.")
    ] = None,
    shards: Annotated[
        bool, typer.Option("--shards", help="Let the workers of a cluster write the decoder in parts beside the model.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
    parameters: dict[str, Any],
) -> None:
    """Train a model on data files. Nothing has to be tuned.

    Example: smoothlink train train.txt.xz -o model.safetensors
    """
    from smoothlink.steps.formats._files import expanded

    for option, asked in (("--cluster-plan", cluster_plan is not None), ("--shards", shards)):
        if asked and cluster is None:
            raise typer.BadParameter("it is for a cluster; name one with --cluster.", param_hint=option)
    if shards and half:
        raise typer.BadParameter("shards stay in full precision; leave one of them out.", param_hint="--half, --shards")
    paths = expanded(data)
    writable(output, *paths)
    screen = Screen(quiet)
    settings = parameters if params is None else {**tuned_settings(params, params_for), **parameters}
    with on_cluster(cluster, screen, cluster_plan, output if shards else None):
        model = (fit_here if cluster is None else fit_there)(paths, reading, settings, screen)
    with screen.working(f"writing {output}"):
        model.save(output, dtype="float16" if half else None)
    if as_json:
        print_json({**model.summary_, "model": output, "bytes": os.path.getsize(output)})
    elif not quiet:
        show(model.summary_, screen)
        screen.out.print(f"{output}: {size(os.path.getsize(output))}", markup=False, soft_wrap=True)


def fit_here(paths: list[str], how: Reading, parameters: dict[str, Any], screen: Screen) -> SmoothLinkClassifier:
    """A classifier fitted to files that this process reads."""
    import numpy as np

    budget = allowed(parameters, paths)
    data = read_several(paths, how, screen)
    if not data.X.shape[0]:
        raise DataError(f"{paths[0]} has no rows: there is nothing to learn from.")
    if budget is not None:
        check_reading(paths[0], budget)
    if parameters.get("task", "auto") == "auto" and data.Y.shape[1] > 1 and (np.diff(data.Y.indptr) == 1).all():
        screen.note(ONE_LABEL)
    model = fit(parameters, screen, data.X, data.Y)
    model.label_names_ = data.label_names
    if data.feature_names is not None:
        model.feature_names_in_ = np.array(data.feature_names, dtype=object)
    return model


def fit_there(paths: list[str], how: Reading, parameters: dict[str, Any], screen: Screen) -> SmoothLinkClassifier:
    """A classifier fitted to files that the workers of a cluster read."""
    from smoothlink.fitting.files import Files

    how = how.for_many(paths)
    names = {
        f"{noun}_names": None if path is None else names_in(path, None, noun)
        for noun, path in (("label", how.label_names), ("feature", how.feature_names))
    }
    model = fit(parameters, screen, Files.of(paths, **names, **how.options()))
    if model.task == "auto" and model.model_.multiclass:
        screen.note(ONE_LABEL)
    return model


def allowed(parameters: dict[str, Any], paths: list[str]) -> int | None:
    """The memory budget in bytes; what is wrong with it is said before the data are read."""
    from smoothlink.fitting.plan import parse_memory

    budget = parse_memory(parameters.get("memory"))
    if budget is not None and len(paths) > 1:
        raise DataError(
            f"--memory plans the reading of one file, and there are {len(paths)}.\n"
            "Leave it out to join them in memory, or use --cluster."
        )
    return budget


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


def fit(parameters: dict[str, Any], screen: Screen, *data: Any) -> SmoothLinkClassifier:
    """A fitted classifier, its stages shown."""
    from smoothlink.estimator import SmoothLinkClassifier

    model = SmoothLinkClassifier(**parameters)
    with screen.stages() as notify:
        model._notify, model._note = None if model.verbose else notify, None if model.verbose else screen.note
        model.fit(*data)
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
