"""Bad input: each case gives one DataError that names the file, the line, what is possible and what to type."""

import bz2
import gzip
import lzma
import os

import numpy as np
import pytest
import zstandard

from smoothlink.data.read import read
from smoothlink.errors import DataError

COMPRESS = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
GOOD = b"2 4 3\n0,2 0:1 3:-2.5\n1 1:0.5\n"


def refusal(tmp_path, content, name="train.txt", **options):
    """The message, the folder left out."""
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError) as caught:
        read(path, **options)
    message = str(caught.value).replace(str(tmp_path) + os.sep, "")
    assert 1 <= message.count("\n") + 1 <= 2
    assert message.isprintable() or "\n" in message
    return message


def test_the_message_is_the_one_of_the_design_page(tmp_path):
    content = "2 4 3993\n0 0:1\n4000 1:1\n"
    assert refusal(tmp_path, content) == (
        "train.txt, line 3: label 4000 is outside 0..3992 (the header announces 3993 labels).\n"
        "Fix the header, or pass --labels auto to count them."
    )


XMC = {
    "malformed value": ("1 4 3\n0 0:1.2.3\n", "line 2: '1.2.3' in '0:1.2.3' is not a number"),
    "value with an underscore": ("1 4 3\n0 0:1_0\n", "'1_0' in '0:1_0' is not a number"),
    "value without digits": ("1 4 3\n0 0:\n", "'' in '0:' is not a number"),
    "exponent without digits": ("1 4 3\n0 0:1e\n", "'1e' in '0:1e' is not a number"),
    "malformed label": ("1 4 3\n0,a 0:1\n", "line 2: 'a' is neither a label id nor a feature"),
    "comma at the end of the labels": ("1 4 3\n0, 1:1\n", "'1:1' is neither a label id"),
    "label with a fraction": ("1 4 3\n1.5 1:1\n", "'1.5' is neither a label id"),
    "feature without a value": ("1 4 3\n0 1 2:1\n", "'1' is not a feature `index:value`"),
    "feature without an index": ("1 4 3\n0 :1\n", "':1' is not a feature"),
    "feature out of range": ("1 4 3\n0 4:1\n", "feature 4 is outside 0..3 (the header announces 4 features).\nFix the"),
    "label out of range": ("1 4 3\n0,3 1:1\n", "label 3 is outside 0..2"),
    "huge label": ("1 4 3\n99999999999999999999999999\n", "label 99999999999999999999999999 is outside 0..2"),
    "negative feature": ("1 4 3\n0 -1:1\n", "feature -1 is negative.\nNumber the features from 0"),
    "negative label": ("1 4 3\n-1,2 1:1\n", "label -1 is negative.\nNumber the labels from 0"),
    "nan": ("1 4 3\n0 1:nan\n", "the value of '1:nan' is not finite"),
    "infinity": ("1 4 3\n0 1:-Inf\n", "the value of '1:-Inf' is not finite"),
    "beyond float32": ("1 4 3\n0 1:1e39\n", "the value of '1:1e39' is too large"),
    "beyond float64": ("1 4 3\n0 2:1 1:1e999\n", "the value of feature 1 is too large"),
    "feature twice": ("1 4 3\n0 1:1 0:1 1:2\n", "line 2: feature 1 is twice in this row"),
    "label twice": ("1 4 3\n2,0,2 1:1\n", "line 2: label 2 is twice in this row"),
    "too few rows": ("3 4 3\n0 1:1\n", "the header announces 3 rows, the file has 1.\nFetch the file again"),
    "too many rows": ("1 4 3\n0 1:1\n\n0 1:1\n", "the header announces 1 rows, the file has 3.\nRemove"),
    "no header": ("0 1:1\n", "'0 1:1' is not a header"),
    "header of words": ("a b c\n", "'a b c' is not a header"),
    "header too large": ("1 99999999999 3\n", "the header announces more than 2147483647 columns"),
    "not text": (b"1 4 3\n\xff\xfe\x00 1:1\n", "line 2: '\\xff\\xfe\\x00' is neither a label id"),
    "utf-16": ("1 4 3\n".encode("utf-16"), "the text is UTF-16, only UTF-8 can be read.\nSave it as UTF-8"),
    "empty file": (b"", "the file is empty"),
    "nothing but a byte order mark": (b"\xef\xbb\xbf", "the file is empty"),
}


@pytest.mark.parametrize("case", XMC)
def test_bad_xmc_is_refused(tmp_path, case):
    content, expected = XMC[case]
    assert expected in refusal(tmp_path, content, format="xmc")


def test_a_number_of_columns_on_the_command_line_is_what_the_message_names(tmp_path):
    message = refusal(tmp_path, GOOD, n_labels=2)
    assert message == (
        "train.txt, line 2: label 2 is outside 0..1 (--labels is 2).\n"
        "Pass a larger --labels, or --labels auto to count them."
    )
    assert "feature 3 is outside 0..2 (--features is 3)" in refusal(tmp_path, GOOD, n_features=3)


def test_ids_beyond_32_bits_are_refused(tmp_path):
    assert "the largest id possible is 2147483646" in refusal(tmp_path, "2147483647 1:1\n", format="lshtc")
    assert "outside 0..2147483646" in refusal(tmp_path, "1 2147483647:1\n", format="svmlight")


SVMLIGHT = {
    "zero in a one-based file": ("0 0:1\n", {"zero_based": False}, "feature 0 in a file of one-based features"),
    "too many features from one": ("0 5:1\n", {"n_features": 4}, "line 1: feature 5 is outside 0..4"),
    "too many features from zero": ("0 0:1\n0 4:1\n", {"n_features": 4}, "line 2: feature 4 is outside 0..3"),
    "told one-based, too many": ("0 5:1\n", {"n_features": 4, "zero_based": False}, "feature 5 is outside 1..4"),
    "label with a fraction": ("1.5 1:1\n", {}, "'1.5' is neither a label id"),
    "binary labels": ("-1 1:1\n", {}, "label -1 is negative"),
}


@pytest.mark.parametrize("case", SVMLIGHT)
def test_bad_svmlight_is_refused(tmp_path, case):
    content, options, expected = SVMLIGHT[case]
    assert expected in refusal(tmp_path, content, format="svmlight", **options)


PAIR = {
    "labels missing": (
        None,
        "the half with the labels was not found; trn_X_Y.txt is not there.\nPass it with --labels-f",
    ),
    "weights for labels": ("1 3\n2:0.5\n", "trn_X_Y.txt, line 2: label 2 has the value 0.5"),
    "other number of rows": ("2 3\n2:1\n\n", "trn_X_Xf.txt announces 1 rows, trn_X_Y.txt 2"),
    "header of three": ("1 3 3\n2:1\n", "trn_X_Y.txt, line 1: a header of three numbers"),
    "label out of range": ("1 3\n3:1\n", "label 3 is outside 0..2 (the header announces 3 labels)"),
    "label twice": ("1 3\n1:1 1:1\n", "label 1 is twice"),
    "labels without values": ("1 3\n1,2\n", "'1,2' is not a label `index:value`"),
}


@pytest.mark.parametrize("case", PAIR)
def test_a_bad_pair_of_files_is_refused(tmp_path, case):
    labels, expected = PAIR[case]
    if labels is not None:
        (tmp_path / "trn_X_Y.txt").write_text(labels)
    assert expected in refusal(tmp_path, "1 4\n1:0.5\n", "trn_X_Xf.txt")


@pytest.mark.parametrize("kind", COMPRESS)
@pytest.mark.parametrize("lost", [1, 5, 20])
def test_a_compressed_file_cut_short_is_refused(tmp_path, kind, lost):
    whole = COMPRESS[kind](GOOD * 200)
    message = refusal(tmp_path, whole[:-lost], f"train.txt.{kind}", format="xmc")
    assert message.startswith(f"train.txt.{kind}: the .{kind} compression is broken or cut short")
    assert message.endswith("Fetch the file again.")


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_damaged_compressed_file_is_refused(tmp_path, kind):
    whole = bytearray(COMPRESS[kind](np.random.default_rng(0).bytes(3000)))
    whole[len(whole) // 2 :] = b"damage" * 100
    assert f"the .{kind} compression is broken" in refusal(tmp_path, bytes(whole), format="xmc")


def test_a_missing_file_suggests_the_nearest_name(tmp_path):
    (tmp_path / "train.txt.xz").write_bytes(b"x")
    with pytest.raises(DataError, match=r"there is no such file.\nDid you mean .*train.txt.xz\?"):
        read(tmp_path / "train.txt")
    with pytest.raises(DataError, match=r"there is no such file.\nCheck the path"):
        read(tmp_path / "nowhere" / "at-all")


def test_a_folder_suggests_a_file_in_it(tmp_path):
    with pytest.raises(DataError, match=r"is a folder, not a file.\nName a file."):
        read(tmp_path)
    (tmp_path / "train.txt").write_bytes(GOOD)
    with pytest.raises(DataError, match=r"is a folder, not a file.\nName a file in it, such as .*train.txt"):
        read(tmp_path)


def test_a_path_that_no_system_takes_is_refused():
    with pytest.raises(DataError, match="cannot be read"):
        read("a\0b", format="xmc")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path):
    path = tmp_path / "train.txt"
    path.write_bytes(GOOD)
    path.chmod(0)
    with pytest.raises(DataError, match="cannot be read: Permission denied"):
        read(path)


def test_options_that_mean_nothing_to_a_format_are_refused(tmp_path):
    assert "--zero-based/--one-based means nothing to the format xmc" in refusal(tmp_path, GOOD, zero_based=True)
    assert "--labels means nothing to the format vw" in refusal(tmp_path, "1 | a\n", n_labels=3)
    assert "--labels-file means nothing to the format svmlight" in refusal(tmp_path, "1 2:3\n", labels_path="y")
    assert "the labels are in this file.\nLeave --labels-file out" in refusal(tmp_path, GOOD, labels_path="y")
    assert "--labels -1 is not a number of columns" in refusal(tmp_path, GOOD, n_labels=-1)
    assert "--features many is not a number" in refusal(tmp_path, GOOD, n_features="many")
    assert "there is no format 'csv'.\nPass --format with one of xmc," in refusal(tmp_path, GOOD, format="csv")
    assert "the format is not clear; it starts with 'hello'" in refusal(tmp_path, "hello\n")
