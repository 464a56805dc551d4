"""What separates labels in cells of text: the guess is right, or it is said that it cannot be made."""

import lzma
import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from smoothlink.text.label_cells import guess_separator, split_cell

REAL = Path(os.environ.get("SMOOTHLINK_DATA", Path(__file__).parents[3] / "shared" / "data"))
COLUMNS = {"debtags": 1, "reuters21578": 1, "yso-finna-en": 0}
SAMPLES = int(os.environ.get("SEPARATOR_SAMPLES", 40))  # of each file; 500 for the figures in docs/text.md


def real_cells(name):
    """The label cells of up to 50,000 rows of a real file."""
    path = REAL / name / "train.tsv.xz"
    if not path.is_file():
        pytest.skip(f"no real data in {path}; set SMOOTHLINK_DATA")
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t")[COLUMNS[name]] for line in islice(lines, 50_000)]


def made_lists(mark, rng, names):
    """Cells of one to five of the names, which are the less frequent the later they come."""
    p = 1 / np.arange(2, len(names) + 2)
    drawn = rng.choice(names, (5000, 5), p=p / p.sum())  # one draw: to draw each cell without repetition took seconds
    return [mark.join(dict.fromkeys(row[:size])) for row, size in zip(drawn, rng.integers(1, 6, 5000), strict=True)]


SHELVES = ["Arts, Crafts and Sewing", "Books", "Clothing, Shoes and Jewelry", "Home, Garden and Tools"]
SHELVES += [
    "Movies, Music and Games",
    "Toys",
    "Music",
    "Sports",
    "Health, Household and Baby Care",
    "Grocery",
    "Office",
    "Garden",
]


def made_cells(name, rng):
    match name:
        case "semicolons":
            return made_lists("; ", rng, [f"Surname{i % 40}, Name{i % 7}" for i in range(200)])
        case "bars":
            return made_lists("|", rng, [f"topic {i}, and more" if i % 3 else f"topic {i}" for i in range(3000)])
        case _:
            return rng.choice(SHELVES, 5000).tolist()


@pytest.mark.parametrize(
    ("name", "separator"),
    [
        *((name, ",") for name in COLUMNS),
        *(("semicolons", ";"), ("bars", "|"), ("one label, with commas", "none")),
    ],
)
def test_the_guess_is_right_on_samples_of_20_to_2000_rows_and_never_silently_wrong(name, separator, rng):
    cells = real_cells(name) if name in COLUMNS else made_cells(name, rng)
    sizes = np.exp(rng.uniform(np.log(20), np.log(2000), SAMPLES)).astype(int)
    found = [guess_separator([cells[i] for i in rng.choice(len(cells), size, replace=False)]) for size in sizes]
    right = sum(guess.separator == separator for guess in found)
    print(f"{name}: {right} of {SAMPLES} right, {sum(not guess.clear for guess in found)} unclear")
    assert right >= 0.99 * SAMPLES
    assert all(guess.separator == separator or not guess.clear for guess in found)


@pytest.mark.parametrize("mark", ["/", " / ", " ", " & ", "+", " · "])
def test_cells_that_a_rare_mark_separates_are_asked_about(mark, rng):
    cells = made_lists(mark, rng, [f"topic-{i}" for i in range(60)])
    for size in (50, 300, 2000):
        guess = guess_separator(cells[:size])
        assert not guess.clear
        assert guess.mark == (mark.strip() or " ")


def test_line_ends_and_spaces_between_uris_separate_labels(rng):
    names = [f"Surname{i}, Name" for i in range(300)]
    assert guess_separator(made_lists("\n", rng, names)[:30]).separator == "\n"
    uris = [f"http://example.org/p{i}" for i in range(3000)]
    assert guess_separator(made_lists(" ", rng, uris)[:30]).separator == " "


def test_names_of_several_words_are_one_label_each_without_a_question(rng):
    names = [f"{a} {b}" for a in ("light", "heavy", "new") for b in ("music", "reading", "metal", "new light")]
    assert guess_separator(rng.choice(names, 300).tolist()) == guess_separator(["a", "b"])
    path = REAL / "yso-finna-en" / "labels.tsv.xz"
    if path.is_file():
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            subjects = [line.split("\t")[2] for line in lines]
        assert all(guess_separator(rng.choice(subjects, size).tolist()).clear for size in (20, 200, 2000))


@pytest.mark.parametrize("separator", [" ", "|"])
def test_uris_in_angle_brackets_are_labels_without_them(separator):
    cell = separator.join(["<http://example.org/a>", "<urn:b>", "<c>"])
    assert split_cell(cell, separator) == ["http://example.org/a", "urn:b", "<c>"]


def test_annifs_form_of_labels_is_recognised():
    cells = [f"<http://example.org/p{i % 7}> <http://example.org/p{i % 5 + 7}>" for i in range(60)]
    assert guess_separator(cells).separator == " "
