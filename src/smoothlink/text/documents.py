"""Raw-text files -> documents and their labels, with a word on what was missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from smoothlink.errors import DataError
from smoothlink.text.label_cells import NONE, Guess, guess_separator, names_in, shown, text_of, unlikely_labels
from smoothlink.text.records import records

TEXT, LABELS = ("text",), "labels"  # columns where none are named
TABLE = "table"


class Source(NamedTuple):
    """How a raw-text file is read."""

    format: str  # a key of records.FORMATS; TABLE: columns in memory
    text: tuple[str, ...] = ()  # columns; none: TEXT
    labels: str | None = None  # column; None: LABELS
    separator: str | None = None  # of labels in a cell, or cells.LIST or NONE; None: guessed
    prefix: str = ""  # that labels must begin with to count
    header: bool | None = None  # whether tables have one; None: unless columns are numbers

    @property
    def columns(self) -> tuple[str, ...]:
        return self.text or (() if self.format == TABLE else TEXT)

    @property
    def numbered(self) -> bool:
        """Whether columns of tables are known by their numbers."""
        if self.header is not None:
            return not self.header
        named = [*self.text, *([] if self.labels is None else [self.labels])]
        return bool(named) and all(name.isdecimal() for name in named)


class Documents(NamedTuple):
    """Texts and their labels, and how many had none."""

    texts: list[str]
    labels: list[list[str]]
    without_text: int
    without_labels: int
    separator: str | None  # as it was given or guessed; None: cells hold no mark, or labels are lists
    notes: tuple[str, ...] = ()  # on how labels were read

    def rows(self, rows: Iterable[int]) -> Documents:
        """Some of them."""
        at = list(rows)
        return self._replace(texts=[self.texts[i] for i in at], labels=[self.labels[i] for i in at])

    def usable(self, *, drop_unlabelled: bool) -> Documents:
        """Those that can be learnt from."""
        pairs = enumerate(zip(self.texts, self.labels, strict=True))
        return self.rows(i for i, (text, labels) in pairs if text and (labels or not drop_unlabelled))


def joined(parts: Sequence[Documents]) -> Documents:
    """The documents of several files."""
    return Documents(
        [text for part in parts for text in part.texts],
        [row for part in parts for row in part.labels],
        sum(part.without_text for part in parts),
        sum(part.without_labels for part in parts),
        parts[-1].separator,
        tuple(note for part in parts for note in part.notes),
    )


def read_documents(path: str, source: Source, *, text_matters: bool = True, labels_matter: bool = True) -> Documents:
    """All documents of a file; texts that are missing are empty, and so are missing lists of labels."""
    texts, cells, places = [], [], []
    seen: dict[str, None] = {}
    named = source.labels or LABELS
    for record in records(path, source.format, numbered=source.numbered):
        where, values = record
        if len(seen) < 100:
            seen |= dict.fromkeys(values)
        columns = source.columns if text_matters else ()
        texts.append(text_of([values.get(column) for column in columns], f"{path}, {where}"))
        cells.append(values.get(named) if labels_matter else None)
        places.append(where)
    wanted = [*(source.columns if text_matters else ()), *([named] if labels_matter else ())]
    check_columns(path, wanted, list(seen), source)
    guess = Guess(source.separator) if source.separator else guess_separator(cells)
    if not guess.clear:
        typed = {"\t": "tab"}.get(guess.mark, f'"{guess.mark}"')
        raise DataError(
            f"{path}: it is not clear whether {guess.mark!r} separates labels in {shown(guess.cells)}, "
            f"column {named}.\n"
            f"Pass --label-separator {typed} if it does, --label-separator {NONE} if such a cell is one label."
        )
    separator = guess.separator
    labels = [names_in(cell, separator, f"{path}, {where}") for cell, where in zip(cells, places, strict=True)]
    if source.prefix:
        labels = [[name for name in row if name.startswith(source.prefix)] for row in labels]
    if labels_matter and not any(labels):
        what = f"no row has a label{f' that begins with {source.prefix!r}' if source.prefix else ''}"
        raise DataError(f"{path}: {what} (column {named}).\nName the column with --labels.")
    without_text = sum(not text for text in texts) if text_matters else 0
    without_labels = sum(not row for row in labels)
    said = "" if source.separator else guess.described("--label-separator")
    notes = [*([said] if said else []), *unlikely_labels(cells, separator)]
    return Documents(texts, labels, without_text, without_labels, separator, tuple(notes))


def check_columns(path: str, wanted: list[str], seen: list[str], source: Source) -> None:
    """Whether the file has the columns that were named, or those looked for where none were."""
    missing = [name for name in wanted if name not in seen]
    if not seen:
        raise DataError(f"{path} has no rows: there is nothing to read.")
    if not missing:
        return
    there = ", ".join([f"{name:.30}" for name in seen[:20]] + ["..."] * (len(seen) > 20))
    if source.numbered:
        raise DataError(
            f"{path} has no column {missing[0]}; it has {len(seen)}, numbered from 1.\nPass --text and --labels."
        )
    if set(missing) <= {*TEXT, LABELS} and not source.text:
        remedy = "Say which hold the text and the labels: --text title,body --labels tags"
    else:
        remedy = "Pass --text and --labels with names of these, or numbers from 1 where there is no header."
    raise DataError(f"{path} has no column {missing[0]}; it has {there}.\n{remedy}")


def as_meta(source: Source) -> dict[str, Any]:
    """As a model file keeps it."""
    return {**source._asdict(), "text": list(source.text)}


def from_meta(meta: dict[str, Any] | None) -> Source | None:
    """What a model file says of its training data."""
    if not isinstance(meta, dict) or not {"format"} <= meta.keys() <= set(Source._fields):
        return None
    return Source(**{**meta, "text": tuple(meta.get("text", ()))})
