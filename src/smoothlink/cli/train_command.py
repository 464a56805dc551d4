"""`smoothlink train`: data files -> a model file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import read_several, reading
from smoothlink.cli.evaluate_command import as_object
from smoothlink.cli.evaluate_command import show as show_metrics
from smoothlink.cli.parameter_options import HelpAll, chosen
from smoothlink.cli.screen import Screen, number, print_json, size, table
from smoothlink.cli.shared_options import (
    AsJson,
    Cluster,
    Dtype,
    Force,
    Groups,
    Naming,
    Quiet,
    check_dtype,
    grouped,
    naming,
    on_cluster,
)
from smoothlink.cli.text_options import Texts, fit_texts, hold_texts, read_texts, texts
from smoothlink.data.matching import Reading, inside, label_names, names_in, one_based_guess, read_groups
from smoothlink.data.overwrite import writable
from smoothlink.errors import DataError, plural
from smoothlink.metrics.names import format_value, meaning, shown_keys
from smoothlink.parameters import PARAMETERS, check

if TYPE_CHECKING:
    from smoothlink.data.read import Data
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.metrics.evaluate import Evaluation
    from smoothlink.text.classifier import TextSmoothLink

NameLabels = Callable[[Collection[Any]], None]  # checks that a vocabulary names labels, before they are learnt

ONE_LABEL = "Every row has exactly one label: training a multiclass model; --task multilabel overrides."
SETTINGS = (
    *("scale", "solver", "rank", "captured_share", "ridge", "kernel", "bandwidth", "random_features", "final_ridge"),
    *("loss", "passes"),
)
JOINT_SETTINGS = ("scale", "rank", "kernel", "loss", "passes", "negatives", "sparse_weights")
PLAIN: dict[str, Any] = {"markup": False, "soft_wrap": True}
STEPS = ("scale", "read", "trees", "choose", "calibrate", "embed", "featurize", "fit", "finetune")


@grouped(reading=reading, texts=texts, names=naming, parameters=chosen)
def train(
    data: Annotated[
        list[str],
        typer.Argument(metavar="TRAIN", help="Data files, plain or compressed; * in a name stands for any text."),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="MODEL", help="File to write the model to.")],
    params: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of settings that `smoothlink tune` wrote.")
    ] = None,
    params_for: Annotated[
        str | None, typer.Option(metavar="METRIC", help="Metric whose settings are taken, where the file has several.")
    ] = None,
    valid: Annotated[
        float,
        typer.Option(
            min=0,
            max=0.5,
            metavar="SHARE",
            help="Share of the rows held out to measure the model first; the final model is trained on all rows.",
            show_default=False,
        ),
    ] = 0.0,
    groups: Groups = None,
    dtype: Dtype = None,
    cluster: Cluster = None,
    cluster_plan: Annotated[
        str | None,
        typer.Option(
            metavar="auto|rows|columns", help="What is partitioned among the workers; without it, as sizes suggest."
        ),
    ] = None,
    shards: Annotated[
        bool,
        typer.Option(
            "--shards", help="Have the workers of a cluster write the decoder as several files next to the model."
        ),
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    help_all: HelpAll = False,
    *,
    reading: Reading,
    texts: Texts,
    names: Naming,
    parameters: dict[str, Any],
) -> None:
    """Train a model on data files of texts or of feature vectors.

    Example: smoothlink train train.txt.xz -o model.safetensors

    Example: smoothlink train docs.jsonl --text title,body --labels tags -o model.safetensors
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.vocabulary import checked

    check_together(cluster, cluster_plan, shards=shards, dtype=dtype, valid=valid, groups=groups)
    paths = expanded(data)
    writable(output, *paths, kind="model", force=force)
    screen = Screen(quiet)
    from smoothlink.choices import nest

    settings = nest(parameters if params is None else {**tuned_settings(params, params_for), **parameters})
    check({p.name: p.default for p in PARAMETERS} | settings, cluster=cluster is not None)
    if names.language is not None and names.path is None:
        raise typer.BadParameter("it is that of names; name a file of them: --vocabulary.", param_hint="--language")
    vocabulary = names.read()

    def name_labels(labels: Collection[Any]) -> None:
        if vocabulary is not None:
            checked(vocabulary, labels, screen.note)

    expected = None
    reading = reading.recognised(*paths)
    if hold_texts(paths, reading, texts):
        if cluster is not None:
            raise DataError("Texts cannot be read on a cluster.\nLeave --cluster out.")
        model, expected = fit_documents(paths, reading, texts, settings, screen, valid, name_labels, groups)
    elif cluster is None:
        model, expected = fit_here(paths, reading, settings, screen, valid, name_labels, groups)
    else:
        with on_cluster(cluster, screen, cluster_plan, output if shards else None):
            model = fit_there(paths, reading, settings, screen)
        try:
            name_labels(label_names(model))  # which only the workers knew before
        except DataError as error:
            screen.note(f"{error}\nThe model is written without it.")
            vocabulary = None
    inside(model).vocabulary_ = vocabulary
    model.summary_["data"] = [os.path.basename(path) for path in paths]
    with screen.working(f"writing {output}"):
        model.save(output, dtype=dtype)
    if as_json:
        held_out = {} if expected is None else {"expected": as_object(expected)}
        print_json({**model.summary_, "model": output, "bytes": os.path.getsize(output), **held_out})
    elif not quiet:
        show_title(model.summary_, screen)
        if expected is not None:
            screen.out.print(f"On {100 * valid:g} % of the rows, of a model that was fitted without them", style="bold")
            show_metrics(expected, screen)
        else:
            show_held_out(model.summary_, screen)
        show_cost(model.summary_, output, screen)
        screen.out.print()
        screen.out.print("What to type next", style="bold")
        for line in next_commands(output, paths):
            screen.out.print(f"  {line}", **PLAIN)
        show_settings(model.summary_, screen)


def check_together(
    cluster: str | None, plan: str | None, *, shards: bool, dtype: str | None, valid: float, groups: str | None
) -> None:
    """Whether the options go together."""
    for option, asked in (("--cluster-plan", plan is not None), ("--shards", shards)):
        if asked and cluster is None:
            raise typer.BadParameter("it is for a cluster; name one with --cluster.", param_hint=option)
    check_dtype(dtype)
    if shards and dtype not in (None, "float32"):
        raise typer.BadParameter("shards stay in float32; leave one of them out.", param_hint="--dtype, --shards")
    if valid and cluster is not None:
        raise typer.BadParameter("a cluster holds no rows out; leave one of them out.", param_hint="--valid, --cluster")
    if groups is not None and cluster is not None:
        raise typer.BadParameter("a cluster reads no groups; leave one of them out.", param_hint="--groups, --cluster")


def fit_documents(
    paths: list[str],
    how: Reading,
    asked: Texts,
    parameters: dict[str, Any],
    screen: Screen,
    valid: float,
    name_labels: NameLabels,
    groups: str | None = None,
) -> tuple[TextSmoothLink, Evaluation | None]:
    """A text model of the documents in files, and what to expect of it."""
    from smoothlink.cli.split_command import groups_to_split
    from smoothlink.labels import read_labels
    from smoothlink.steps.split import stratified_split

    found, source = read_texts(paths, how, asked, screen, groups)
    name_labels(sorted({name for row in found.labels for name in row}))
    expected = None
    if valid:
        Y, shares = read_labels(found.labels).Y, (1 - valid, valid)
        together = found.groups or groups_to_split(paths[0], Y, found.texts)
        kept, held = stratified_split(Y, shares, groups=together)
        model, test = fit_texts(found.rows(kept), source, asked, parameters, screen), found.rows(held)
        expected = model.evaluate(test.texts, test.labels, groups=test.groups)
    model = fit_texts(found, source, asked, parameters, screen)
    if parameters.get("task", "auto") == "auto" and model.classifier_.model_.multiclass:
        screen.note(ONE_LABEL)
    return model, expected


def fit_here(
    paths: list[str],
    how: Reading,
    parameters: dict[str, Any],
    screen: Screen,
    valid: float,
    name_labels: NameLabels,
    groups: str | None = None,
) -> tuple[SmoothLinkClassifier, Evaluation | None]:
    """A classifier fitted to files that this process reads, and what to expect of it."""
    import numpy as np

    from smoothlink.labels import is_multiclass

    budget = allowed(parameters, paths)
    data = read_several(paths, how, screen)
    if not data.X.shape[0]:
        raise DataError(f"{paths[0]} has no rows: there is nothing to learn from.")
    name_labels(data.label_names or range(data.Y.shape[1]))
    if budget is not None:
        check_reading(paths[0], budget)
    if parameters.get("task", "auto") == "auto" and is_multiclass(data.Y):
        screen.note(ONE_LABEL)
    together = None if groups is None else read_groups(paths, how, groups, data.X.shape[0])
    expected = held_out(data, parameters, screen, valid, together) if valid else None
    model = fit(parameters, screen, data.X, data.Y, None, together)
    model.label_names_, model.zero_based_ = data.label_names, data.zero_based
    if data.feature_names is not None:
        model.feature_names_in_ = np.array(data.feature_names, dtype=object)
    return model, expected


def held_out(
    data: Data, parameters: dict[str, Any], screen: Screen, valid: float, groups: list[str] | None
) -> Evaluation:
    """The metrics of a model on rows that it was fitted without."""
    from smoothlink.cli.split_command import groups_to_split
    from smoothlink.machines.rows_in_files import MappedMatrix
    from smoothlink.steps.split import stratified_split

    if isinstance(data.X, MappedMatrix):
        raise DataError("--valid needs rows in memory, and these are mapped.\nUse `smoothlink split` on the text file.")
    shares = 1 - valid, valid
    together = groups or groups_to_split("The data", data.Y, data.X)
    kept, held = stratified_split(data.Y, shares, groups=together)
    apart = {**parameters, "checkpoint": None}
    some, others = ([groups[i] for i in part] if groups else None for part in (kept, held))
    model = fit(apart, screen, data.X[kept], data.Y[kept], None, some)
    return model.evaluate(data.X[held], data.Y[held], groups=others)


def fit_there(paths: list[str], how: Reading, parameters: dict[str, Any], screen: Screen) -> SmoothLinkClassifier:
    """A classifier fitted to files that the workers of a cluster read."""
    from smoothlink.distributed.input_files import Files

    how = how.for_many(paths)
    names = {
        f"{noun}_names": None if path is None else names_in(path, None, noun)
        for noun, path in (("label", how.label_names), ("feature", how.feature_names))
    }
    model = fit(parameters, screen, Files.of(paths, **names, **how.options()))
    if model.task == "auto" and model.model_.multiclass:
        screen.note(ONE_LABEL)
    if how.zero_based is None and model.zero_based_ is False:
        screen.note(one_based_guess(", ".join(paths)))
    return model


def allowed(parameters: dict[str, Any], paths: list[str]) -> int | None:
    """The memory budget in bytes; what is wrong with it is said before the data are read."""
    from smoothlink.parameters import memory_bytes

    budget = memory_bytes(parameters["memory"]) if parameters.get("memory") is not None else None
    if budget is not None and len(paths) > 1:
        raise DataError(
            f"--memory plans the reading of one file, and there are {len(paths)}.\n"
            "Leave it out to join them in memory, or use --cluster."
        )
    return budget


def check_reading(path: str, budget: int) -> None:
    """Whether the data could be read within the budget; a data folder always can."""
    from smoothlink.fitting.settings import peak_memory_mb

    peak, folder = peak_memory_mb() * (1 << 20), Path(path).with_name(Path(path).name.split(".")[0] + ".sl")
    if peak > budget and not os.path.isdir(path):
        raise DataError(
            f"Reading {path} took {size(peak)} of memory, more than --memory allows ({size(budget)}).\n"
            f"Type: smoothlink convert {path} {folder}, and train on {folder}."
        )


def tuned_settings(path: str, metric: str | None) -> dict[str, Any]:
    """The settings that a search found best for a metric."""
    import json

    from smoothlink.choices import settings_from_former
    from smoothlink.data.files_on_disk import load_bytes
    from smoothlink.parameters import flat_table

    try:
        best = json.loads(load_bytes(path).tobytes())["best"]
        found = {name: dict(entry["params"]) for name, entry in best.items()}
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} holds no settings of `smoothlink tune` ({error!r}).") from error
    if metric is None and len(found) == 1:
        metric = next(iter(found))
    if metric not in found:
        raise typer.BadParameter(f"{path} has settings for {', '.join(found)}; name one.", param_hint="--params-for")
    settings = settings_from_former(found[metric])
    unknown = settings.keys() - flat_table().keys()
    if unknown:
        raise DataError(f"{path} has settings that this version does not know: {', '.join(sorted(unknown))}.")
    own = {p.name for p in PARAMETERS if p.group == "Machine" or p.name in ("checkpoint", "verbose")} & settings.keys()
    if own:
        raise DataError(
            f"{path} sets {', '.join(sorted(own))}, which is no result of a search: a file may not say what is written "
            "where, and on which machine.\nRemove it from the file, and pass it as an option."
        )
    return settings


def fit(parameters: dict[str, Any], screen: Screen, *data: Any) -> SmoothLinkClassifier:
    """A fitted classifier, its steps shown."""
    from smoothlink.estimator import SmoothLinkClassifier

    model = SmoothLinkClassifier(**parameters)
    with screen.steps() as notify:
        model._notify, model._note = None if model.verbose else notify, None if model.verbose else screen.note
        model.fit(*data)
    return model


def show(summary: dict[str, Any], screen: Screen) -> None:
    """Prints what is known of a fit: how good it is on held-out rows, its settings and what it cost."""
    show_title(summary, screen)
    show_held_out(summary, screen)
    show_settings(summary, screen)


def show_title(summary: dict[str, Any], screen: Screen) -> None:
    """Prints what was fitted to how many rows, features and labels."""
    counts = ", ".join(plural(summary[noun], noun[:-1]) for noun in ("rows", "features", "labels"))
    screen.out.print()
    screen.out.print(f"A {summary['task']} model of {counts}", style="bold")


def show_held_out(summary: dict[str, Any], screen: Screen) -> None:
    """Prints how good the model is on rows that it was calibrated by; a model of an older version does not know."""
    from smoothlink.reports.model_card import too_good

    found = summary.get("held_out_metrics")
    if not found:
        screen.out.print("No training rows were held out to measure it; `smoothlink evaluate` measures it on others.")
        return
    shown = table("metric", ">value", "meaning", title=f"On {plural(found['rows'], 'held-out training row')}")
    for key in (key for key in shown_keys() if key in found):  # a model file does not keep their order
        shown.add_row(key, format_value(key, found[key]), f"[dim]{meaning(key)}")
    screen.out.print(shown)
    screen.out.print(too_good(summary), style="dim")
    if summary.get("threshold") and summary["task"] == "multilabel":
        from smoothlink.fitting.summary import threshold_text

        screen.out.print()
        screen.out.print(threshold_text(summary["threshold"]), markup=False)


def show_cost(summary: dict[str, Any], output: str, screen: Screen) -> None:
    """Prints the seconds and the memory of a fit, and the file that it left."""
    peak = peak_memory(summary)
    screen.out.print()
    parts = [f"{sum(summary['seconds'].values()):,.1f} s", *([f"{memory(peak)} of memory at most"] if peak else [])]
    screen.out.print(f"Training took {', '.join(parts)}. {output}: {size(os.path.getsize(output))}.", **PLAIN)


def next_commands(model: str, data: list[str]) -> list[str]:
    """Returns commands that use a model, with the test file beside the training file where one is there."""
    name = os.path.basename(data[0])
    test = os.path.join(os.path.dirname(data[0]), name.replace("train", "test"))
    known = shlex.quote(test) if "train" in name and os.path.exists(test) else None
    ending = "".join(Path(name).suffixes[-2:])
    file = shlex.quote(model)
    return [
        f"smoothlink predict {file} {known or f'NEW{ending}'} -o predictions.csv",
        f"smoothlink evaluate {file} {known or f'TEST{ending}'}",
        f"smoothlink report {file} {known or f'TEST{ending}'} -o report.html",
        f"smoothlink serve {file}",
    ]


def show_settings(summary: dict[str, Any], screen: Screen) -> None:
    """Prints the settings of a fit, what chose each, and the seconds and memory of each step."""
    settings = table("setting", ">value", "selected by")
    names = JOINT_SETTINGS if "negatives" in summary else SETTINGS if summary["passes"] else SETTINGS[:-1]
    for name in (*(("ngrams",) if "ngrams" in summary else ()), *names):
        settings.add_row(name.replace("_", " "), value_of(summary, name), chosen_by(summary, name))
    steps = table("step", ">seconds", ">peak memory")
    for step in sorted(summary["seconds"], key=STEPS.index):  # a model file does not keep their order
        steps.add_row(step, f"{summary['seconds'][step]:.1f}", memory(summary["peak_memory_mb"].get(step)))
    steps.add_section()
    steps.add_row("total", f"{sum(summary['seconds'].values()):.1f}", memory(peak_memory(summary)))
    if summary.get("peak_device_mb") is not None:
        steps.add_row(f"on {summary['device']}", "", memory(summary["peak_device_mb"]))
    screen.out.print(settings)
    screen.out.print(steps)


def peak_memory(summary: dict[str, Any]) -> float | None:
    """Returns the most memory of any step in MB; None where it is not known."""
    return max((mb for mb in summary["peak_memory_mb"].values() if mb is not None), default=None)


def value_of(summary: dict[str, Any], name: str) -> str:
    value = summary.get(name)
    if name == "captured_share" and value is not None:
        return f"{100 * value:.1f} %"
    return value if isinstance(value, str) else number(value)


def chosen_by(summary: dict[str, Any], name: str) -> str:
    """Returns by what a setting was selected: the losses tried with their criterion, or what the summary says."""
    tried = summary.get("held_out_criterion") or {}
    if name == "loss" and len(tried) > 1:
        return "held-out rows (" + ", ".join(f"{loss} {number(value)}" for loss, value in tried.items()) + ")"
    return str(summary.get("chosen_by", {}).get(name, ""))


def memory(mb: float | None) -> str:
    return "" if mb is None or mb != mb else size(mb * (1 << 20))
