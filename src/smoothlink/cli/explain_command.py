"""`smoothlink explain`: a model and a text or row -> which features raise or lower the scores of its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import known_format, read_data
from smoothlink.cli.screen import Screen, number, plain_text, print_json, table
from smoothlink.cli.shared_options import AsJson, Model, Naming, Quiet, grouped, naming
from smoothlink.data.matching import Reading, matched
from smoothlink.errors import DataError, plural

if TYPE_CHECKING:
    from smoothlink.explanation import LabelExplanation, LabelNeighbour

BAR = 12  # characters of the largest part


@grouped(names=naming)
def explain(
    model: Model,
    data: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A data file, for --row.", show_default=False)
    ] = None,
    text: Annotated[str | None, typer.Option(help="The text to explain, for a model made from texts.")] = None,
    row: Annotated[int | None, typer.Option(min=0, help="The row of FILE to explain; the first is 0.")] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(metavar="LABELS", help="Labels to explain, by name or number, instead of the most probable ones."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of most probable labels to explain.")] = 5,
    top: Annotated[
        int, typer.Option(min=1, help="Number of features to show per label, those with the largest effect.")
    ] = 10,
    format: Annotated[str, typer.Option(metavar="NAME", help="Format of FILE, if it is not recognised.")] = "auto",
    zero_based: Annotated[
        bool | None,
        typer.Option(
            "--zero-based/--one-based",
            help="Whether features of an svmlight FILE count from 0 or 1; without it, as in training.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a FILE with features that the model does not know.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    names: Naming,
) -> None:
    """Show which words or features raise or lower the score of a label, and which labels are similar.

    Example: smoothlink explain model.safetensors test.txt.xz --row 0
    """
    from smoothlink.explanation import classifier_and_row, explain
    from smoothlink.modelfile import load
    from smoothlink.text.numbers import Document

    check_usage(data, text, row)
    screen = Screen(quiet)
    loaded = names.applied(load(model), screen)
    reads_texts = hasattr(loaded, "classifier_")
    if reads_texts != (text is not None):
        asked = "--text" if reads_texts else "FILE, --row"
        made = "texts" if reads_texts else "rows of features"
        raise typer.BadParameter(f"{model} was made from {made}: pass {asked}.", param_hint="--text, --row")
    given: Any
    if text is not None:
        given = Document(text)
    else:
        given = one_row(loaded, str(data), row or 0, how_read(format, zero_based), strict, screen)
    classifier = classifier_and_row(loaded, given)[0]
    found = explain(loaded, given, chosen(classifier, labels), k=k, top=top)
    classifier.model_.finish_verification()
    if as_json:
        print_json({"labels": [as_object(one) for one in found]})
        return
    for one in found:
        show(one, classifier, screen)


def check_usage(data: str | None, text: str | None, row: int | None) -> None:
    """Whether it is clear what is to be explained."""
    if text is not None and (data is not None or row is not None):
        raise typer.BadParameter("these exclude each other; pass one.", param_hint="--text, --row")
    if text is None and (data is None or row is None):
        raise typer.BadParameter(
            'pass --text "..." for a model made from texts, else FILE --row N.', param_hint="--text, --row"
        )


def how_read(format: str, zero_based: bool | None) -> Reading:
    """Returns how FILE is read."""
    return Reading(format if format == "auto" else known_format("--format", format), zero_based=zero_based)


def one_row(loaded: Any, path: str, row: int, how: Reading, strict: bool, screen: Screen) -> Any:
    """A row of a file, with the features of the model."""
    data = read_data(path, how, screen, labels_matter=False, model=loaded)
    found = matched(data, path, loaded, strict=strict, note=screen.note)
    n = found.X.shape[0]
    if row >= n:
        raise DataError(f"{path} has {plural(n, 'row')}, 0 to {n - 1}; there is no row {row}.\nPass a smaller --row.")
    return found.X[[row]]


def chosen(classifier: Any, labels: list[str] | None) -> list[int] | None:
    """Positions of the labels asked for."""
    from smoothlink.data.predictions import LabelRequest

    if not labels:
        return None
    try:
        return [int(j) for j in LabelRequest(only=tuple(labels)).resolved(classifier).only]
    except DataError as error:
        raise typer.BadParameter(str(error), param_hint="--labels") from error


def as_object(one: LabelExplanation) -> dict[str, Any]:
    """One label in JSON's types."""
    return {
        **renamed(one),
        "reasons": [reason._asdict() for reason in one.reasons],
        "neighbours": [renamed(near) for near in one.neighbours],
    }


def renamed(one: LabelExplanation | LabelNeighbour) -> dict[str, Any]:
    """The fields by the names that JSON has in all commands: label, its number and the name to show."""
    fields = one._asdict()
    number, label, name = (fields.pop(key) for key in ("label", "name", "display_name"))
    return {"label": label, "name": name, "number": number, **fields}


def show(one: LabelExplanation, classifier: Any, screen: Screen) -> None:
    """A label's score, piece by piece."""
    from smoothlink.vocabulary import described

    shown = table("feature", ">value", ">adds", "")
    most = max((abs(reason.added) for reason in one.reasons), default=0.0)
    for reason in one.reasons:
        shown.add_row(plain_text(reason.name), number(reason.value), f"{reason.added:+.4f}", bar(reason.added, most))
    shown.add_section()
    if one.rest:
        shown.add_row("[dim]other features", "", f"{one.rest:+.4f}", "")
    shown.add_row("[dim]no features (baseline)", "", f"{one.base:+.4f}", "")
    shown.add_row("score", "", f"{one.score:+.4f}", "")
    screen.out.print()
    screen.out.print(plain_text(f"{described(classifier, one.name)}: probability {one.probability:.4f}"), style="bold")
    screen.out.print(shown)
    if one.neighbours:
        near = ", ".join(f"{near.display_name} {near.similarity:.2f}" for near in one.neighbours)
        screen.out.print(plain_text(f"similar labels: {near}"), style="dim")


def bar(added: float, most: float) -> str:
    """A bar as long as the part is large; one that lowers the score is red."""
    length = max(1, round(BAR * abs(added) / most)) if most else 0
    return f"[{'red' if added < 0 else 'green'}]{'█' * length}[/]"
