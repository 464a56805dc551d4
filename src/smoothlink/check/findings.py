"""Training data, and test data beside it -> what looks wrong in it, with examples and what to do."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.check.languages import languages_of
from smoothlink.errors import plural
from smoothlink.text.label_cells import SEPARATORS, Guess, guess_separator, shown
from smoothlink.text.near_duplicates import SIMILAR, find_near_duplicates
from smoothlink.text.numbers import Document

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[Any]

EXAMPLES = 2  # shown of each finding
LONGEST = 70  # characters of a text in an example
LEAST_MARKED = 0.05  # of the labels, those with a mark that may separate
LEAST_LANGUAGE = 0.01  # share of the texts, and at least three, from which on another language is reported


class Part(NamedTuple):
    """One file of rows, texts or vectors, with their labels."""

    path: str
    Y: csr_array  # (n, c)
    names: list[str]  # c
    keys: Array  # (n,) rows with the same content have the same key
    empty: Array  # (n,) bool
    texts: Sequence[str] | None = None
    ids: Sequence[str] | None = None  # of the documents
    separator: str | None = None  # of labels in a cell, as it was given or guessed
    unclear: Guess | None = None  # the mark that may separate labels, where that is not clear

    @property
    def n(self) -> int:
        return int(self.Y.shape[0])

    @property
    def noun(self) -> str:
        return "row" if self.texts is None else "document"

    def name(self, row: int) -> str:
        return f"row {row:,}" if self.ids is None else self.ids[row]

    def describe(self, *rows: int) -> str:
        """Returns rows of the same content in words: what they are called, and how their text begins."""
        text = "" if self.texts is None else f" {beginning(self.texts[rows[0]])!r}"
        return f"{' and '.join(map(self.name, rows))}{'' if self.empty[rows[0]] else text}"


class Finding(NamedTuple):
    """One thing that looks wrong."""

    kind: str
    title: str  # with the count
    cases: int
    of: int  # rows or labels
    examples: list[str]
    remedy: str


def check(train: Part, test: Part | None = None) -> list[Finding]:
    """Returns what looks wrong, in the order in which it is best mended; nothing where all is well."""
    found: list[Finding | None] = [
        unclear_separator(train),
        labels_in_labels(train),
        like_spellings(train),
        without_labels(train),
        empty_rows(train),
        conflicting_copies(train),
        copies(train),
        *(near_copies(train, test) if train.texts is not None else []),
        copies_in_test(train, test) if test is not None else None,
        unknown_labels(train, test) if test is not None else None,
        rare_labels(train),
        several_languages(train),
    ]
    return [finding for finding in found if finding is not None]


def share(count: int, of: int) -> str:
    """Returns a count with its share: 12 of 300 (4 %)."""
    percent = 100 * count / max(1, of)
    return f"{count:,} of {of:,} ({percent:.0f} %)" if percent >= 10 else f"{count:,} of {of:,} ({percent:.2g} %)"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def unclear_separator(part: Part) -> Finding | None:
    """Returns that cells hold a mark of which it is not clear whether it separates labels."""
    if part.unclear is None:
        return None
    mark = {"\t": "tab"}.get(part.unclear.mark, f'"{part.unclear.mark}"')
    return Finding(
        "separator",
        f"It is not clear whether {part.unclear.mark!r} separates labels",
        1,
        1,
        [f"{cell!r:.100}" for cell in part.unclear.cells],
        f"Pass --label-separator {mark} if it does, --label-separator none if such a cell is one label.",
    )


def labels_in_labels(part: Part) -> Finding | None:
    """Returns that labels look like several in one."""
    if part.unclear is not None:
        return None
    among = guess_separator(part.names)
    if among.clear and among.separator not in SEPARATORS:
        return None
    marked = [name for name in part.names if among.mark in name]
    if not among.clear and len(marked) < LEAST_MARKED * len(part.names):
        return None
    return Finding(
        "labels in labels",
        f"Labels that hold {among.mark!r}: {share(len(marked), len(part.names))}",
        len(marked),
        len(part.names),
        [shown(marked[:EXAMPLES])],
        "If they are several labels in one, pass --label-separator, or cut them in the file.",
    )


def spelling(name: str) -> str:
    """Returns a label without what people spell in different ways: case, spaces, punctuation that carries no meaning.

    Marks between digits (1.2) and those of C++ and C# stay.
    """
    plain = unicodedata.normalize("NFKC", name).casefold()
    return re.sub(r"(?<!\d)[^\w+#]+|[^\w+#]+(?!\d)|_+", "", plain) or plain


def like_spellings(part: Part) -> Finding | None:
    """Returns labels that differ by case, spaces or punctuation only."""
    groups: dict[str, list[int]] = defaultdict(list)
    for j, name in enumerate(part.names):
        groups[spelling(name)].append(j)
    rows = np.bincount(part.Y.indices, minlength=len(part.names))
    alike = [group for group in groups.values() if len(group) > 1]
    alike.sort(key=lambda group: -int(rows[group].sum()))
    if not alike:
        return None
    count = sum(map(len, alike))
    return Finding(
        "spellings",
        f"Labels that differ only by case, spaces or punctuation: {count:,}, in {plural(len(alike), 'group')}",
        count,
        len(part.names),
        [", ".join(f"{part.names[j]!r} ({plural(int(rows[j]), 'row')})" for j in group) for group in alike[:EXAMPLES]],
        "Each spelling is a label of its own. Write them alike.",
    )


def without_labels(part: Part) -> Finding | None:
    """Returns rows that have no label."""
    rows = np.flatnonzero(np.diff(part.Y.indptr) == 0)
    remedy = "They are learnt as rows to which no label applies."
    if part.texts is not None:
        remedy += " If their labels are only missing, leave them out: --drop-unlabelled."
    return row_finding(part, "without labels", f"{part.noun.capitalize()}s without labels", rows, remedy)


def empty_rows(part: Part) -> Finding | None:
    """Returns rows that have no text, or no feature."""
    what = "features" if part.texts is None else "text"
    remedy = "Nothing can be learnt from them. Look whether the right columns are read, or take them out."
    rows = np.flatnonzero(part.empty)
    return row_finding(part, "empty", f"{part.noun.capitalize()}s without {what}", rows, remedy)


def row_finding(part: Part, kind: str, title: str, rows: Array, remedy: str) -> Finding | None:
    """Returns a finding of single rows; None where there are none."""
    if not len(rows):
        return None
    examples = [part.describe(row) for row in rows[:EXAMPLES].tolist()]
    return Finding(kind, f"{title}: {share(len(rows), part.n)}", len(rows), part.n, examples, remedy)


def groups_of_copies(part: Part) -> list[Array]:
    """Returns the numbers of rows that have the same content, of those that have any, where they are two or more."""
    rows = np.flatnonzero(~part.empty)
    rows = rows[np.argsort(part.keys[rows], kind="stable")]
    groups = np.split(rows, np.flatnonzero(np.diff(part.keys[rows])) + 1)
    return sorted((group for group in groups if len(group) > 1), key=lambda group: int(group[0]))


def label_sets(part: Part, rows: Array) -> set[tuple[int, ...]]:
    return {tuple(sorted(part.Y.indices[part.Y.indptr[i] : part.Y.indptr[i + 1]].tolist())) for i in rows.tolist()}


def conflicting_copies(part: Part) -> Finding | None:
    """Returns rows with the same content and different labels."""
    groups = [group for group in groups_of_copies(part) if len(label_sets(part, group)) > 1]
    count = sum(map(len, groups))
    if not groups:
        return None
    return Finding(
        "conflicting copies",
        f"Exact copies with different labels: {share(count, part.n)}, in {plural(len(groups), 'group')}",
        count,
        part.n,
        [both(part, group) for group in groups[:EXAMPLES]],
        "One of them misses labels, or has wrong ones. Give copies the same labels, or keep one of each.",
    )


def both(part: Part, group: Array) -> str:
    """Returns the first two rows of a group of copies in words, with labels that only one of them has."""
    one, other = (set(part.Y.indices[part.Y.indptr[i] : part.Y.indptr[i + 1]].tolist()) for i in group[:2])
    differ = ", ".join(repr(part.names[j]) for j in sorted(one ^ other)[:3])
    return f"{part.describe(*group[:2].tolist())}{f'; differ in {differ}' if differ else ''}"


def copies(part: Part) -> Finding | None:
    """Returns rows that repeat others with the same labels."""
    groups = [group for group in groups_of_copies(part) if len(label_sets(part, group)) == 1]
    extra = sum(len(group) - 1 for group in groups)
    if not groups:
        return None
    return Finding(
        "copies",
        f"{part.noun.capitalize()}s that repeat another exactly, labels too: {share(extra, part.n)}",
        extra,
        part.n,
        [both(part, group) for group in groups[:EXAMPLES]],
        "Held-out rows that have a copy in training make a model look better than it is. Keep one of each.",
    )


def near_copies(train: Part, test: Part | None) -> Iterator[Finding | None]:
    """Yields documents that are nearly the same as others, within the training data and between it and the test data.

    Of exact copies one is looked at: they are findings of their own.
    """
    parts = [part for part in (train, test) if part is not None and part.texts is not None]
    rows: list[tuple[Part, int]] = []
    for part in parts:
        _, first = np.unique(part.keys, return_index=True)
        rows += [(part, i) for i in np.sort(first).tolist() if not part.empty[i]]
    found = find_near_duplicates([part.texts[i] for part, i in rows if part.texts is not None])
    within, across = [], []
    for i, j, alike in sorted(zip(*(v.tolist() for v in found[:3]), strict=True), key=lambda pair: -pair[2]):
        (one, a), (other, b) = rows[i], rows[j]
        if one is other is train:
            within.append((i, j, f"{train.describe(a)} and {train.describe(b)}, {percent(alike)} alike"))
        elif one is not other and train.keys[a] != other.keys[b]:
            across.append((i, j, f"{one.describe(a)} and {other.describe(b)} of {other.path}, {percent(alike)} alike"))
    if within:
        count = len({row for i, j, _ in within for row in (i, j)})
        yield Finding(
            "near copies",
            f"Near-duplicate documents, with {percent(SIMILAR)} or more of their three-word runs in common: "
            f"{share(count, train.n)}",
            count,
            train.n,
            [text for *_, text in within[:EXAMPLES]],
            "Keep one of each, or keep them on one side of a split.",
        )
    if across and test is not None:
        count = len({j for _, j, _ in across})
        yield Finding(
            "near copies in test",
            f"Test documents that are nearly the same as a training document: {share(count, test.n)}",
            count,
            test.n,
            [text for *_, text in across[:EXAMPLES]],
            "Metrics on them say little about new documents. Take them out of one of the files.",
        )


def copies_in_test(train: Part, test: Part) -> Finding | None:
    """Returns test rows that are in the training data."""
    rows = np.flatnonzero(np.isin(test.keys, train.keys[~train.empty]) & ~test.empty)
    remedy = "Metrics on them say nothing about new rows. Take them out of one of the files."
    return row_finding(test, "copies in test", f"Test {test.noun}s that are in the training data", rows, remedy)


def unknown_labels(train: Part, test: Part) -> Finding | None:
    """Returns labels that only the test data has."""
    trained = {train.names[j] for j in np.unique(train.Y.indices).tolist()}
    unknown = [name for name in (test.names[j] for j in np.unique(test.Y.indices).tolist()) if name not in trained]
    if not unknown:
        return None
    return Finding(
        "labels only in test",
        f"Labels of {test.path} that {train.path} lacks: {len(unknown):,}",
        len(unknown),
        len(test.names),
        [shown(unknown[:EXAMPLES])],
        "They count as missed in every metric. `smoothlink split` keeps each label in both parts where it can.",
    )


def rare_labels(part: Part) -> Finding | None:
    """Returns labels that have one row."""
    rows = np.bincount(part.Y.indices, minlength=len(part.names))
    once = np.flatnonzero(rows == 1).tolist()
    if not once:
        return None
    return Finding(
        "labels with one row",
        f"Labels with one {part.noun}: {share(len(once), int(np.count_nonzero(rows)))}",
        len(once),
        int(np.count_nonzero(rows)),
        [shown(part.names[j] for j in once[:EXAMPLES])],
        "One example seldom teaches a label. Merge them with broader labels, label more rows, or leave them out.",
    )


def several_languages(part: Part) -> Finding | None:
    """Returns that texts seem to be in several languages."""
    if part.texts is None:
        return None
    guesses = languages_of(part.texts)
    counts = Counter(name for name in guesses if name is not None)
    known = counts.total()
    used = [(name, count) for name, count in counts.most_common() if count >= max(3, LEAST_LANGUAGE * known)]
    if len(used) < 2:
        return None
    others = sum(count for _, count in used[1:])
    examples = [part.describe(guesses.index(name)) for name, _ in used[1 : 1 + EXAMPLES]]
    return Finding(
        "languages",
        "Texts seem to be in several languages (a guess by frequent words): "
        + ", ".join(f"{name} {count:,}" for name, count in used),
        others,
        part.n,
        examples,
        "Words of one language say nothing about texts in another. A model for each language is often better.",
    )


def beginning(text: str) -> str:
    """Returns how a text begins, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def text_keys(texts: Sequence[str]) -> Array:
    """Returns a key (n,) for each text that others share only if they differ by case and spaces at most, and have the
    same numbers beside them."""
    numbers = [text.numbers if isinstance(text, Document) else None for text in texts]
    beside = (None if row is None else row.tobytes() for row in numbers)
    return np.array(
        [hash((" ".join(text.lower().split()), row)) for text, row in zip(texts, beside, strict=True)], np.int64
    )
