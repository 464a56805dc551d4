"""`smoothlink check`: what looks wrong in data files, before a model is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import read_data, reading
from smoothlink.cli.screen import Screen, plain_text, print_json
from smoothlink.cli.shared_options import AsJson, Quiet, grouped
from smoothlink.data.matching import Reading
from smoothlink.errors import DataError, plural

if TYPE_CHECKING:
    from smoothlink.check.findings import Finding, Part


@grouped(reading=reading)
def check(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A data file to train on.")],
    test: Annotated[
        str | None, typer.Argument(metavar="TEST", help="A data file to test on: what has copies in both is found.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 1 if anything is found.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Say what looks wrong in data before a model is trained: copies, label spellings, empty texts, languages.

    Example: smoothlink check docs-train.csv docs-test.csv --text title,body --labels tags
    """
    from smoothlink.check.findings import check as check_data

    screen = Screen(quiet)
    reading = reading if test is None else reading.with_common_first_index(data, test)
    train = read_part(data, reading, screen)
    if reading.label_separator is None and train.unclear is None:  # one guess for both files
        reading = reading._replace(label_separator=train.separator)
    tested = None if test is None else read_part(test, reading, screen)
    with screen.working("checking"):
        found = check_data(train, tested)
    if as_json:
        print_json(as_object(train, tested, found))
    else:
        show(train, found, screen)
    if strict and found:
        raise typer.Exit(1)


def read_part(path: str, how: Reading, screen: Screen) -> Part:
    """Returns the rows of a file, texts or vectors."""
    how = how.recognised(path)
    return read_vectors(path, how, screen) if how.text_format(path) is None else read_texts(path, how, screen)


def read_vectors(path: str, how: Reading, screen: Screen) -> Part:
    import numpy as np

    from smoothlink.check.findings import Part
    from smoothlink.machines.copies import row_hashes

    data = read_data(path, how, screen)
    names = data.label_names or [str(j) for j in range(data.Y.shape[1])]
    return Part(path, data.Y, names, row_hashes(data.X), np.diff(data.X.indptr) == 0)


def read_texts(path: str, how: Reading, screen: Screen) -> Part:
    """Returns documents as `train` reads them; but a label separator that is not clear is a finding here, no error."""
    import numpy as np

    from smoothlink.check.findings import Part, text_keys
    from smoothlink.labels import read_labels
    from smoothlink.text.documents import describe, read_documents
    from smoothlink.text.label_cells import NONE, guess_separator

    source, unclear = how.source(path), None
    with screen.working(f"reading {path}"):
        try:
            found = read_documents(path, source)
        except DataError:
            found = read_documents(path, source._replace(separator=source.separator or NONE))
            unclear = guess_separator(name for row in found.labels for name in row)
            if unclear.clear:
                raise
    screen.note(describe(path, found))
    texts, given = found.texts, read_labels(found.labels)
    empty = np.array([not text.strip() for text in texts], bool)
    ids = None if found.ids is None else [str(one) for one in found.ids]
    return Part(path, given.Y, given.names, text_keys(texts), empty, texts, ids, found.separator, unclear)


def as_object(train: Part, test: Part | None, found: list[Finding]) -> dict[str, Any]:
    """Returns sizes and findings in JSON's types."""
    parts = {"data": train, "test": test}
    sizes = {
        name: {"path": part.path, "rows": part.n, "labels": len(part.names)}
        for name, part in parts.items()
        if part is not None
    }
    return {**sizes, "findings": [finding._asdict() for finding in found]}


def show(train: Part, found: list[Finding], screen: Screen) -> None:
    """Prints each finding with its examples and what to do."""
    per_row = train.Y.nnz / max(1, train.n)
    counts = f"{plural(train.n, train.noun)}, {plural(len(train.names), 'label')}, {per_row:.1f} per {train.noun}"
    screen.out.print(plain_text(f"{train.path}: {counts}."))
    for finding in found:
        screen.out.print()
        screen.out.print(plain_text(finding.title), style="bold")
        for example in finding.examples:
            screen.out.print(plain_text(f"  {example}"), soft_wrap=True)
        screen.out.print(plain_text(finding.remedy), style="dim")
    screen.out.print()
    ending = f"{plural(len(found), 'thing')} to look at. Rows count from 0." if found else "Nothing looks wrong."
    screen.out.print(ending)
