"""ARFF: mulan's and MEKA's, dense and sparse, by hand."""

import numpy as np
import pytest

from smoothlink.data.read import read
from smoothlink.errors import DataError

XML = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="beach"></label><label name="it's a &amp; b"><label name="sea"/></label>
</labels>"""
HEADER = """% a comment
@RELATION scene

@attribute Att1 numeric
@attribute 'Att 2' REAL   % not a comment in the ARFF of old, but harmless
@attribute beach {0,1}
@attribute "size of it" integer
@attribute 'it\\'s a & b' {0, 1}
@attribute sea {0,1}
@data
"""
DENSE = "0.5,-2,1,3,0,1\n% a comment\n\n 0 , 1e-3 ,0, 0,'0',\"1\"\n"
SPARSE = "{0 0.5,1 -2, 2 1,3 3,5 1}\n% a comment\n\n { 1 1e-3 , 5 '1' }\n"


@pytest.fixture
def file(tmp_path):
    def make(content, name="scene-train.arff"):
        path = tmp_path / name
        path.write_text(content, newline="")
        return path

    return make


def test_mulan_labels_may_stand_anywhere_among_the_attributes(file):
    file(XML, "scene.xml")
    for body in (DENSE, SPARSE, DENSE.replace("\n", "\r\n"), SPARSE.rstrip(), DENSE.rstrip()):
        data = read(file(HEADER + body))
        assert data.label_names == ["beach", "it's a & b", "sea"]
        assert data.feature_names == ["Att1", "Att 2", "size of it"]
        np.testing.assert_array_equal(data.Y.toarray(), [[1, 0, 1], [0, 0, 1]])
        np.testing.assert_array_equal(data.X.toarray(), np.array([[0.5, -2, 3], [0, 1e-3, 0]], np.float32))
        assert data.X.nnz == 4


@pytest.mark.parametrize("name", ["scene-train.xml", "scene.xml", "other.xml"])
def test_the_xml_is_found_by_name_or_alone(file, name):
    file(XML, name)
    assert read(file(HEADER + DENSE)).Y.shape == (2, 3)


def test_meka_says_how_many_labels_stand_first_or_last(file):
    attributes = "".join(f"@attribute a{i} {{0,1}}\n" for i in range(5)) + "@data\n1,0,0,1,1\n{1 1}\n"
    first = read(file("@relation 'x: -C 2 -split-number 1500'\n" + attributes))
    assert first.label_names == ["a0", "a1"]
    np.testing.assert_array_equal(first.Y.toarray(), [[1, 0], [0, 1]])
    last = read(file("@relation 'x: -C -2'\n" + attributes))
    assert last.label_names == ["a3", "a4"]
    np.testing.assert_array_equal(last.X.toarray(), [[1, 0, 0], [0, 1, 0]])


NOMINAL = """@relation 'x: -C 1'
@attribute y {0,1}
@attribute yes {NO,YES}
@attribute colour {red,'dark green',blue}
@attribute grade {3,5,7}
@attribute flag {1,0}
@data
"""


def test_two_values_are_one_column_and_more_are_a_column_each(file):
    data = read(file(NOMINAL + "1,YES,'dark green',5,1\n0,NO,blue,7.0,0\n"))
    assert data.feature_names == [
        "yes", "colour=red", "colour=dark green", "colour=blue", "grade=3", "grade=5", "grade=7", "flag",
    ]  # fmt: skip
    np.testing.assert_array_equal(data.X.toarray(), [[1, 0, 1, 0, 0, 1, 0, 1], [0, 0, 0, 1, 0, 0, 1, 0]])


def test_what_a_sparse_row_leaves_out_is_the_first_value(file):
    dense = read(file(NOMINAL + "0,NO,red,3,1\n1,YES,red,5,0\n0,NO,blue,3,1\n"))
    sparse = read(file(NOMINAL + "{}\n{0 1,1 YES,3 5,4 0}\n{2 blue}\n"))
    np.testing.assert_array_equal(sparse.X.toarray(), dense.X.toarray())
    np.testing.assert_array_equal(sparse.Y.toarray(), dense.Y.toarray())


def test_long_numbers_in_arff_are_read_by_float(file):
    data = read(file("@relation '-C 0'\n@attribute a real\n@data\n1e-300\n1.0000000596046447753906250000000000001\n"))
    np.testing.assert_array_equal(data.X.toarray().ravel(), [0, np.float32(1.000000059604644775390625)])


BAD = {
    "missing value": (HEADER + "?,1,0,0,0,0\n", "line 11: the value of attribute 'Att1' is missing (?)"),
    "missing choice": (NOMINAL + "0,?,red,3,1\n", "line 8: 'yes' is missing (?)"),
    "missing label": (NOMINAL + "?,NO,red,3,1\n", "the value of attribute 'y' is missing (?)"),
    "not a number": (HEADER + "x,1,0,0,0,0\n", "'x' is not a number, as attribute 'Att1' wants"),
    "not finite": (HEADER + "nan,1,0,0,0,0\n", "'nan' is not a number"),
    "too large": (HEADER + "1e39,1,0,0,0,0\n", "the value 1e39 is too large"),
    "label neither 0 nor 1": (HEADER + "1,1,2,0,0,0\n", "line 11: the value of 'beach' is 2, neither 0 nor 1"),
    "undeclared word": (
        NOMINAL + "0,MAYBE,red,3,1\n",
        "'MAYBE' is not a value of attribute 'yes'.\nPossible are {NO,YES}",
    ),
    "undeclared number": (NOMINAL + "0,NO,red,4,1\n", "line 8: '4' is not a value of attribute 'grade'"),
    "too few values": (HEADER + "1,1,0,0,0\n", "line 11: the row does not have the 6 values"),
    "too many values": (HEADER + "1,1,0,0,0,0,0\n", "line 11: the row does not have the 6 values"),
    "brace not closed": (HEADER + "{0 1, 2 1\n", "line 11: a sparse row does not end with }"),
    "text after the brace": (HEADER + "{0 1}, {5}\n", "line 11: a sparse row does not end with }"),
    "sparse index missing": (HEADER + "{0 1, x 1}\n", "'x 1}' is not `index value`"),
    "sparse value missing": (HEADER + "{0 1, 2}\n", "'2}' is not `index value`"),
    "comma at the end": (HEADER + "{0 1,}\n", "'}' is not `index value`"),
    "index out of range": (HEADER + "{6 1}\n", "attribute 6 is outside 0..5"),
    "attribute twice": (HEADER + "{0 1, 0 2}\n", "line 11: an attribute is twice"),
    "string attribute": ("@relation x\n@attribute a string\n", "line 2: attribute 'a' is of type 'string'"),
    "attribute without type": ("@relation x\n@attribute a\n", "line 2: 'a' is not a name and a type"),
    "attribute without values": ("@relation x\n@attribute a { }\n", "attribute 'a' has no values"),
    "no data": ("@relation x\n@attribute a real\n", "there is no @data line"),
    "odd header": ("@relation x\nhello\n", "line 2: 'hello' is not a line of an ARFF header"),
    "too many labels": ("@relation '-C 3'\n@attribute a real\n@data\n", "-C 3 in @relation announces more labels than"),
    "label with words": (NOMINAL.replace("-C 1", "-C 2"), "label 'yes' has the values {NO,YES}, only {0,1}"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arff_is_refused(file, case):
    content, expected = BAD[case]
    file(XML, "scene.xml")
    with pytest.raises(DataError) as caught:
        read(file(content))
    assert expected in str(caught.value)


def test_attribute_names_must_be_utf8(tmp_path):
    path = tmp_path / "a.arff"
    path.write_bytes(b"@relation '-C 1'\n@attribute caf\xe9 real\n@data\n")
    with pytest.raises(DataError, match="line 2: the text is not UTF-8"):
        read(path)
    path.write_bytes(b"@relation '-C 0'\n@attribute a {x,y}\n@data\n\xe9\n")
    with pytest.raises(DataError, match="line 4: the text is not UTF-8"):
        read(path)


XMLS = {
    "no xml": (None, "nothing says which attributes are labels"),
    "not xml": ("<labels", "this is not mulan's XML of labels"),
    "entities": ('<!DOCTYPE a [<!ENTITY b "c">]><labels/>', "it declares entities"),
    "no labels": ("<labels></labels>", "the XML names no labels"),
    "unknown label": ('<labels><label name="zoo"/></labels>', "there is no attribute 'zoo' in"),
}


@pytest.mark.parametrize("case", XMLS)
def test_a_bad_xml_is_refused(file, case):
    content, expected = XMLS[case]
    if content is not None:
        file(content, "scene.xml")
    with pytest.raises(DataError) as caught:
        read(file(HEADER + DENSE))
    assert expected in str(caught.value)
