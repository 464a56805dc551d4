"""Text sets in their three forms become the same kind of rows, and the same files."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from smoothlink import read
from smoothlink.errors import DataError
from smoothlink_paper.text_sets import FORMS, vectorised

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
TEXTS = ["red red apple", "green apple", "red wine", "green wine wine", "blue sky"]
LABELS = [["fruit"], ["fruit", "green"], ["drink"], ["drink", "green"], []]
NAMES = ["drink", "fruit", "green"]


def lines(name):
    """The texts above as lines of a set's form; ids stand for labels where they are listed."""
    for number, (labels, text) in enumerate(zip(LABELS, TEXTS, strict=True)):
        first, _, rest = text.partition(" ")
        yield {
            "yso-finna-en": ",".join(str(NAMES.index(x)) for x in labels) + f"\t{text}",
            "debtags": f"p{number}\t{','.join(labels)}\t{first}\t{rest}",
            "cooking-stackexchange": "".join(f"__label__{x} " for x in labels) + text,
            "reuters21578": f"{number}\t{','.join([f'topics:{x}' for x in labels] + ['places:usa'])}\t{first}\t{rest}",
        }[name]


@pytest.fixture
def folder(tmp_path):
    for name, form in FORMS.items():
        (tmp_path / name).mkdir()
        for part in ("train", "test"):
            (tmp_path / name / f"{part}{form.ending}").write_text("\n".join(lines(name)) + "\n")
    (tmp_path / "yso-finna-en" / "labels.tsv").write_text("".join(f"{i}\tu\t{x}\t1\n" for i, x in enumerate(NAMES)))
    return tmp_path


@pytest.mark.parametrize("name", FORMS)
def test_the_same_texts_and_labels_are_the_same_rows_in_every_form(folder, name):
    split = vectorised(folder, name)
    plain = vectorised(folder, "yso-finna-en")
    assert split.train.feature_names == ["apple", "green", "red", "wine"]  # of two training texts or more
    assert [label.removeprefix("topics:") for label in split.train.label_names] == NAMES
    np.testing.assert_array_equal(split.train.X.toarray(), plain.train.X.toarray())
    expected = [[label in labels for label in NAMES] for labels in LABELS]
    np.testing.assert_array_equal(split.test.Y.toarray(), expected)


def test_words_count_by_their_logarithm_and_rows_have_length_one(folder):
    X = vectorised(folder, "debtags").train.X.toarray()
    idf = np.log(6 / 3) + 1  # of two texts of five, smoothed
    row = np.array([idf, 0, (1 + np.log(2)) * idf, 0])  # apple once, red twice
    np.testing.assert_allclose(X[0], row / np.linalg.norm(row), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), [1, 1, 1, 1, 0], rtol=1e-6)


def test_labels_of_test_rows_alone_get_an_empty_column(folder):
    path = folder / "cooking-stackexchange" / "test.txt"
    path.write_text("__label__cake red wine\n")
    split = vectorised(folder, "cooking-stackexchange")
    assert split.train.label_names == ["cake", *NAMES]
    assert split.train.Y.toarray()[:, 0].sum() == 0
    assert split.test.Y.toarray().tolist() == [[1, 0, 0, 0]]


def test_a_line_of_another_form_is_refused_with_the_form(folder):
    (folder / "debtags" / "test.tsv").write_text("package\ttag\tshort\n")
    with pytest.raises(DataError, match=r"test\.tsv: a line has 3 columns, not 4.*\n.*\n.*`short` TAB `long"):
        vectorised(folder, "debtags")


def test_a_missing_file_is_named_with_its_form(folder):
    (folder / "cooking-stackexchange" / "test.txt").unlink()
    with pytest.raises(DataError, match=r"cooking-stackexchange/test\.txt is not in(.|\n)*__label__x"):
        vectorised(folder, "cooking-stackexchange")


def test_the_files_of_the_benchmarks_hold_these_rows_and_are_written_once(folder, tmp_path, capsys):
    write_pairs = runpy.run_path(str(BENCHMARKS / "vectorise.py"))["main"]
    out = tmp_path / "pairs"
    write_pairs([str(out), "--data", str(folder)])
    assert capsys.readouterr().out.count("5 and 5 rows, 4 words, 3 labels") == len(FORMS)
    for name in FORMS:
        for part, expected in zip(("train", "test"), vectorised(folder, name), strict=True):
            found = read(out / name / f"{part}.txt")
            np.testing.assert_array_equal(found.X.toarray(), expected.X.toarray())
            np.testing.assert_array_equal(found.Y.toarray(), expected.Y.toarray())
            assert found.label_names == expected.label_names
    (folder / "debtags" / "train.tsv").write_text("")
    write_pairs([str(out), "debtags", "--data", str(folder)])
    assert capsys.readouterr().out == "debtags: there already\n"
