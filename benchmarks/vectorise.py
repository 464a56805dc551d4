"""Text sets as XMC files: one fixed pair a set, which every method of the benchmarks reads.

    python benchmarks/vectorise.py FOLDER [SET ...] [--again]

Sublinear TF-IDF of the words that at least two training texts have, in unit rows; labels by their ids, or in the order
of their names. yso-finna-en: titles; debtags: short and long description; cooking-stackexchange: the question;
reuters21578: title and body, labels of kind `topics:` alone. Texts are read from $SMOOTHLINK_DATA; the pairs go to
FOLDER/SET/train.txt and test.txt, with the names of labels and words beside them. A pair that is there is left alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from smoothlink.data.read import write
from smoothlink.errors import DataError
from smoothlink_paper.data_sets import find, root
from smoothlink_paper.text_sets import FORMS, vectorised


def written(data: Path, folder: Path, name: str) -> str:
    """Writes the pair of one set -> a line on what it is."""
    began = time.perf_counter()
    split = vectorised(data, name)
    (folder / name).mkdir(parents=True, exist_ok=True)
    for part, rows in zip(("test", "train"), reversed(split), strict=True):
        write(rows, folder / name / f"{part}.txt")
    (n, d), c = split.train.X.shape, split.train.Y.shape[1]
    sizes = f"{n} and {split.test.X.shape[0]} rows, {d} words, {c} labels"
    return f"{name}: {sizes}, {time.perf_counter() - began:.1f} s"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(FORMS)}; all where none is named")
    parser.add_argument("--data", metavar="FOLDER", help="where the texts are, if not in $SMOOTHLINK_DATA")
    parser.add_argument("--again", action="store_true", help="write pairs that are there already again")
    given = parser.parse_args(words)
    if unknown := set(given.sets) - set(FORMS):
        parser.error(f"{min(unknown)} is none of {', '.join(FORMS)}.")
    for name in given.sets or FORMS:
        # The training file is written last, so a pair with it is whole.
        if find(given.folder, name, "train") is not None and not given.again:
            print(f"{name}: there already")
            continue
        try:
            print(written(root(given.data), given.folder, name), flush=True)
        except DataError as error:
            parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
