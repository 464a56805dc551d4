"""Texts that would make a pattern try very many ways to fit are read or refused at once."""

import contextlib

import pytest
from hostile import limited

from smoothlink import read_vocabulary
from smoothlink.data.read import read
from smoothlink.errors import DataError
from smoothlink.text.documents import DocumentSource, read_documents

N = 200_000
ARFF = "@relation 'r: -C 1'\n@attribute a {0,1}\n@attribute b numeric\n@data\n"


@pytest.mark.parametrize(
    "row",
    [
        *("1,a" + " " * N + "b", "{1 a" + " " * N + "b}", "'" + "a," * N, "{1 '" + "\\" * N, "1," + "'\\" * N),
        *("{" + "1 1," * N + "x}", "{" + " " * N + "x", "1" + "," * N, "1.5e" * N, '"' * N, "{1 " + "'" * N + "}"),
        *("1," + "1" * N + "x", "{1 " + "1" * N + "x}", "1,1e" + "1" * N + "x"),
    ],
    ids=range(14),
)
def test_a_row_of_arff_is_refused_at_once(tmp_path, row):
    (tmp_path / "a.arff").write_text(f"{ARFF}{row}\n")
    with limited(), pytest.raises(DataError):
        read(tmp_path / "a.arff")


def test_spaces_around_values_of_arff_are_left_out(tmp_path):
    spaces = " " * N
    (tmp_path / "a.arff").write_text(f"{ARFF}1 ,{spaces}2.5{spaces}\n{{0{spaces}1{spaces},1 3{spaces}}}\n")
    with limited():
        data = read(tmp_path / "a.arff")
    assert data.X.toarray().tolist() == [[2.5], [3]]
    assert data.Y.toarray().tolist() == [[1], [1]]


@pytest.mark.parametrize(
    "header",
    [
        *(
            "@attribute '" + "\\" * N,
            "@attribute a {" + "'a" * N,
            "@attribute " + "{" * N,
            *("@attribute a {" + "," * N + "}", "@attribute a {" + " " * N + "}", "@attribute " + " " * N + "a"),
        ),
        *("@relation '" + " -C " * N, "@relation " + "-C  " * N + "x", "% " + "%" * N + "\n@attribute a string"),
    ],
    ids=range(9),
)
def test_a_header_of_arff_is_refused_at_once(tmp_path, header):
    (tmp_path / "a.arff").write_text(f"{header}\n@data\n1\n")
    with limited(), pytest.raises(DataError):
        read(tmp_path / "a.arff", format="arff")


@pytest.mark.parametrize(
    "content",
    [
        *("1," * N + "x", "1" * N, "1 " * N, " " * N + "x", "qid:" * N, "-+.," * N, "1:" * N, "|" * N, "\n" * N + "x"),
        *("1,2, " * N, ":1 " * N, "1:1e" + "9" * N, "1 1:" + "0" * N, "#" * N, "1|" + "a " * N + "a:x", "'" * N + "|"),
    ],
    ids=range(16),
)
@pytest.mark.parametrize("kind", ["auto", "xmc", "svmlight", "lshtc", "vw"])
def test_a_text_of_numbers_is_read_or_refused_at_once(tmp_path, kind, content):
    (tmp_path / "a").write_text(content)
    with limited(), contextlib.suppress(DataError):
        read(tmp_path / "a", format=kind)


@pytest.mark.parametrize(
    "content",
    ["<!ENTITY " * N, "<!ENTITY a '" + "&" * N, "<" * N, "<a>" * (N // 40), "<!--" * N, "<!DOCTYPE " + "[" * N],
    ids=range(6),
)
def test_xml_is_refused_at_once(tmp_path, content):
    (tmp_path / "names.rdf").write_text(f"<?xml version='1.0'?>\n{content}")
    (tmp_path / "a.xml").write_text(content)
    (tmp_path / "a.arff").write_text("@relation r\n@attribute a {0,1}\n@data\n1\n")
    with limited():
        with pytest.raises(DataError):
            read_vocabulary(tmp_path / "names.rdf")
        with pytest.raises(DataError):
            read(tmp_path / "a.arff")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_entities_of_entities_are_refused_in_every_encoding(tmp_path, encoding):
    text = f'<?xml version="1.0" encoding="{encoding.removesuffix("-le").removesuffix("-be")}"?>'
    text += '<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;">]><labels><label name="&y;"></label></labels>'
    (tmp_path / "a.xml").write_bytes(text.encode(encoding))
    (tmp_path / "a.arff").write_text("@relation r\n@attribute a {0,1}\n@data\n1\n")
    (tmp_path / "names.rdf").write_bytes(text.encode(encoding))
    with pytest.raises(DataError, match="defines entities by other entities"):
        read_vocabulary(tmp_path / "names.rdf")
    with pytest.raises(DataError, match="it declares entities"):
        read(tmp_path / "a.arff")


@pytest.mark.parametrize(
    "cells",
    [
        *("a,b\n" + '"' * N, "a,b\nx," + "|;," * N, "a,b\n" + '"a""' * N, "a,b\nx,[" + "'a'," * N, "a" * N, "," * N),
        *("a,b\nx," + "http://a " * N, "sep=" + ";" * N, "a,b\nx," + "\\" * N, "a,b\nx," + "\u2028" * N),
    ],
    ids=range(10),
)
def test_a_table_is_read_or_refused_at_once(tmp_path, cells):
    (tmp_path / "a.csv").write_text(cells)
    with limited(), contextlib.suppress(DataError):
        read_documents(str(tmp_path / "a.csv"), DocumentSource("csv", text=("a",), labels=("b",)))
