"""`smoothlink audit`: data files -> labels that are probably wrong, and labels that are probably missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import read_several, reading
from smoothlink.cli.report_command import files_text
from smoothlink.cli.screen import Screen, plain_text, print_json, size, table
from smoothlink.cli.shared_options import AsJson, Force, Quiet, grouped
from smoothlink.cli.text_options import Texts, hold_texts, read_texts
from smoothlink.data.matching import Reading
from smoothlink.data.overwrite import writable
from smoothlink.errors import DataError, plural

if TYPE_CHECKING:
    from smoothlink.label_audit import Audit, AuditedData, Suspect

SHOWN = 10  # findings of either kind on the screen


@grouped(reading=reading)
def audit(
    data: Annotated[
        list[str],
        typer.Argument(metavar="DATA", help="Data files with labels, as for `train`; * in a name stands for any text."),
    ],
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write the findings as an HTML page.")
    ] = None,
    csv: Annotated[
        str | None,
        typer.Option(
            "--csv", metavar="FILE", help="Where to write the documents with findings as CSV, for review on the page."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of wrong and of missing labels to find, at most.")] = 100,
    expected: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of the labels that is taken to be wrong, and to be missing, before anything is known.",
        ),
    ] = 0.05,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A model that was not trained on these data, to predict them instead of a fit."
        ),
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Find labels that are probably wrong and labels that are probably missing, the most certain first.

    Example: smoothlink audit docs.jsonl -o audit.html --csv review.csv
    """
    from smoothlink.data.files_on_disk import expanded
    from smoothlink.label_audit import audit_data

    if not 0 < expected < 1:
        raise typer.BadParameter(f"{expected:g} is no share above 0 and below 1.", param_hint="--expected")
    paths = expanded(data)
    inputs = [*paths, *([] if model is None else [model])]
    if output is not None:
        writable(output, *inputs, kind="page", force=force)
    if csv is not None:
        writable(csv, *inputs, *([] if output is None else [output]), kind="data", force=force)
    screen = Screen(quiet)
    read = read_for_audit(paths, reading, screen) if model is None else read_for_model(paths, reading, model, screen)
    with screen.working("auditing"):
        found = audit_data(read, limit, expected)
    if output is not None:
        from smoothlink.reports.audit_page import audit_page
        from smoothlink.reports.pages import PageOptions, save_page

        with screen.working(f"writing {output}"):
            html = audit_page(found, "Audit of labels", files_text(paths), expected, PageOptions(bootstraps=0))
            save_page(output, html)
        screen.note(f"{output}: {size(len(html.encode()))}. Open it in a browser.")
    if csv is not None:
        screen.note(f"{csv}: {plural(write_review(csv, found), 'document')}.")
    if as_json:
        print_json({"rows": read.n, "labels": int(read.Y.nnz), "findings": found.records()})
    else:
        show(found, screen)


def read_for_audit(paths: list[str], how: Reading, screen: Screen) -> AuditedData:
    """Returns the rows of files, read as `train` reads them, with a fit that leaves out each row."""
    from smoothlink.label_audit import audited_data

    how, asked = how.recognised(*paths), Texts({}, drop_unlabelled=False)
    if hold_texts(paths, how, asked):
        found, _ = read_texts(paths, how, asked, screen)
        with screen.working("fitting"):
            return audited_data(found.texts, found.labels, ids=found.ids)
    data = read_several(paths, how, screen)
    if not data.X.shape[0]:
        raise DataError(f"{paths[0]} has no rows: there is nothing to audit.")
    with screen.working("fitting"):
        made = audited_data(data.X[:], data.Y)
    from dataclasses import replace

    names = data.label_names or made.names
    return replace(made, names=names, shown_names=[str(name) for name in names], feature_names=data.feature_names)


def read_for_model(paths: list[str], how: Reading, model: str, screen: Screen) -> AuditedData:
    """Returns the rows of files as a model takes them; a note says where it was trained on them."""
    from smoothlink.label_audit import data_of_model
    from smoothlink.machines.copies import row_hashes
    from smoothlink.reports.labelled_rows import labelled_rows_in_files

    rows = labelled_rows_in_files(model, paths, how=how, note=screen.note)
    known = rows.classifier._count_training_rows(row_hashes(rows.X))
    if known:
        screen.note(
            f"The model was trained on {plural(known, 'row')} of these, and has learned their labels, wrong ones too.\n"
            "Leave --model out, so that each row is predicted by a fit without it."
        )
    return data_of_model(rows)


def write_review(path: str, found: Audit) -> int:
    """Writes the table that the review of `serve` takes; returns how many documents it has."""
    from smoothlink.reports.audit_page import review_table
    from smoothlink.serve.uploads import label_cells
    from smoothlink.text.tables import write_table

    columns, rows = review_table(found)
    at = columns.index("labels")
    for row, cell in zip(rows, label_cells([row[at] for row in rows], None), strict=True):
        row[at] = cell
    write_table(path, "csv", columns, rows)
    return len(rows)


def show(found: Audit, screen: Screen) -> None:
    """Prints the surest findings of either kind."""
    for title, suspects in (("Probably wrong", found.wrong), ("Probably missing", found.missing)):
        screen.out.print()
        screen.out.print(title, style="bold")
        if not suspects:
            screen.out.print("There are none.")
            continue
        screen.out.print(listed(suspects[:SHOWN]))
        if len(suspects) > SHOWN:
            screen.out.print(f"and {len(suspects) - SHOWN:,} more: -o audit.html shows all.", style="dim")


def listed(suspects: tuple[Suspect, ...]) -> Any:
    """Returns findings as a table."""
    shown = table("row", "label", ">sure", ">predicted")
    for one in suspects:
        shown.add_row(
            plain_text(one.id), plain_text(str(one.label)), f"{one.sureness:.1%}", f"{100 * one.probability:.2g} %"
        )
    return shown
