"""`smoothlink split`: a data file -> parts of its rows that have each label in the same share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from smoothlink.cli.convert_command import files_of
from smoothlink.cli.data_options import read_data, reading
from smoothlink.cli.screen import Screen, number, print_json, table
from smoothlink.cli.shared_options import AsJson, Force, Groups, Quiet, grouped
from smoothlink.data.matching import Reading, read_groups
from smoothlink.data.overwrite import writable
from smoothlink.errors import DataError, plural

if TYPE_CHECKING:
    from smoothlink.data.read import Data
    from smoothlink.text.documents import DocumentSource

NAMES = {2: ("train", "test"), 3: ("train", "valid", "test")}


@grouped(reading=reading)
def split(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A data file, of texts or of feature vectors.")],
    parts: Annotated[
        str, typer.Option(metavar="SHARES", help="The shares of the parts, such as 0.8,0.1,0.1; they sum to 1.")
    ] = "0.8,0.2",
    names: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Names of the parts; without it, train,test or train,valid,test."),
    ] = None,
    output_folder: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder to write the parts to; without it, the folder of the data."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split.")] = 0,
    groups: Groups = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Split a data file into parts that have each label, also a rare one, in the same share.

    docs.jsonl becomes docs-train.jsonl and docs-test.jsonl, in the same format and compression. Copies of a row, and
    texts that are nearly the same, stay in one part.

    Example: smoothlink split docs.jsonl --labels tags --parts 0.8,0.1,0.1
    """
    from smoothlink.data.files_on_disk import STANDARD_INPUT
    from smoothlink.steps.split import stratified_split

    if data == STANDARD_INPUT:
        raise typer.BadParameter("standard input has no name for the parts; pass a file.", param_hint="DATA")
    shares = parsed(parts)
    targets = targets_of(data, called(names, len(shares)), output_folder)
    reading = reading.recognised(data)
    texts, kind = reading.text_format(data), reading.format
    files = [file for target in targets for file in files_of(target, kind)]
    for path in files:
        writable(path, data, kind="data", force=force)
    screen = Screen(quiet)
    opened = open_text(data, reading, screen) if texts else open_rows(data, reading, screen)
    began = time.perf_counter()
    if groups is None:
        together = groups_to_split(data, opened.Y, opened.texts if opened.data is None else opened.data.X)
    else:
        together = read_groups([data], reading, groups, opened.Y.shape[0])
        if (count := len(set(together))) < len(shares):
            what = f"its rows are of {plural(count, 'group')}, which stay in one part each"
            raise DataError(f"{data} cannot be split into {len(shares)} parts: {what}.")
    rows = stratified_split(opened.Y, shares, seed, together)
    seconds = time.perf_counter() - began
    with screen.working("writing"):
        opened.write(rows, targets, files)
    found = [facts(opened.Y, part, share) for part, share in zip(rows, shares, strict=True)]
    if as_json:
        parts_found = [{"path": path, **fact} for path, fact in zip(targets, found, strict=True)]
        print_json({"parts": parts_found, "seconds": seconds})
    elif not quiet:
        show(targets, found, screen)


class Opened(NamedTuple):
    """A data file whose rows can be divided."""

    path: str
    how: Reading
    Y: Any  # (n, c)
    data: Data | None  # of rows of numbers
    source: DocumentSource | None  # of texts
    texts: list[str] | None = None

    def write(self, parts: list[Any], targets: list[str], files: list[str]) -> None:
        """Writes the rows of each part to its target; parts of two splits, which may have rows in common, are never
        there together."""
        from smoothlink.data.atomic import replace_files
        from smoothlink.data.files_on_disk import not_written
        from smoothlink.data.read import write_for
        from smoothlink.text.documents import write_documents

        try:
            with replace_files(files) as folder:
                new = [str(folder / Path(target).name) for target in targets]
                if self.source is not None:
                    write_documents(self.path, self.source, parts, new)
                elif self.data is not None:
                    for rows, target, path in zip(parts, targets, new, strict=True):
                        kept = self.data._replace(X=self.data.X[rows], Y=self.data.Y[rows])
                        write_for(target, kept, path, format=self.how.format)
        except OSError as error:
            raise not_written(targets[0], error) from error


def open_rows(path: str, how: Reading, screen: Screen) -> Opened:
    from smoothlink.machines.rows_in_files import MappedMatrix

    data = read_data(path, how, screen)
    if isinstance(data.X, MappedMatrix):
        raise DataError(f"{path} is a data folder, which is mapped, not read.\nSplit the file it was made from.")
    return Opened(path, how, data.Y, data, None)


def open_text(path: str, how: Reading, screen: Screen) -> Opened:
    from smoothlink.labels import read_labels
    from smoothlink.text.documents import describe, read_documents

    source = how.source(path)
    try:
        found = read_documents(path, source)
    except DataError:
        if how.text or how.numbers:
            raise
        found = read_documents(path, source, text_matters=False)
        screen.note(f"{path} has no column {source.columns[0]}: name those of the text with --text to find copies.")
    found = found._replace(without_text=0)
    screen.note(describe(path, found, without_labels="split at random"))
    return Opened(path, how, read_labels(found.labels).Y, None, found.source, found.texts)


def groups_to_split(path: str, Y: Any, X: Any) -> Any:
    """Returns the group (n,) of each row: copies of one another, or of a list of texts those that are nearly the same;
    None where all are alone."""
    import numpy as np

    from smoothlink.check.findings import text_keys
    from smoothlink.machines.copies import RowContents, notable, row_hashes
    from smoothlink.text.near_duplicates import groups_of_texts

    if not isinstance(X, list):
        found = RowContents.of(X, Y).first_copies()
    else:
        keys = np.where([bool(text.strip()) for text in X], text_keys(X).view(np.uint64), 0)
        found = groups_of_texts(X, RowContents(keys, row_hashes(Y)))
    if len(found) > 1 and not found.any():
        raise DataError(f"{path} cannot be split: all its rows are the same.")
    return notable(found, 0)


def parsed(text: str) -> list[float]:
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if len(shares) < 2 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise typer.BadParameter(f"{text!r} is not a list of shares that sum to 1: 0.8,0.2.", param_hint="--parts")
    return shares


def called(names: str | None, count: int) -> list[str]:
    """The names of the parts."""
    found = names.split(",") if names else NAMES.get(count, tuple(str(i) for i in range(1, count + 1)))
    if len(found) != count or len(set(found)) < count or not all(found):
        raise typer.BadParameter(f"{names!r}: there are {count} parts; name each.", param_hint="--names")
    return list(found)


def targets_of(path: str, names: list[str], folder: str | None) -> list[str]:
    """docs.jsonl.gz -> docs-train.jsonl.gz and so on."""
    file = Path(path)
    stem, dot, ending = file.name.partition(".")
    place = file.parent if folder is None else Path(folder)
    return [str(place / f"{stem}-{name}{dot}{ending}") for name in names]


def facts(Y: Any, rows: Any, share: float) -> dict[str, Any]:
    """How well a part has its share of each label."""
    import numpy as np

    c = Y.shape[1]
    counts, total = (np.bincount(M.indices, minlength=c) for M in (Y[rows], Y))
    off = np.abs(counts - share * total)
    return {
        "rows": len(rows),
        "labels": int((counts > 0).sum()),
        "labels_within_one_row": float((off <= 1).mean()) if c else 1.0,
        "most_rows_off": float(off.max(initial=0)),
    }


def show(targets: list[str], found: list[dict[str, Any]], screen: Screen) -> None:
    shown = table("part", ">rows", ">labels", ">labels within 1 row", ">largest deviation")
    for target, fact in zip(targets, found, strict=True):
        within = f"{100 * fact['labels_within_one_row']:.1f} %"
        shown.add_row(target, number(fact["rows"]), number(fact["labels"]), within, f"{fact['most_rows_off']:.1f}")
    screen.out.print()
    screen.out.print(shown)
