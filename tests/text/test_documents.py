"""Raw-text files in every format -> the same documents."""

import gzip
import json
import lzma

import numpy as np
import pytest

from smoothlink.data.matching import Reading
from smoothlink.errors import DataError
from smoothlink.text.documents import DocumentSource, as_meta, from_meta, read_documents, write_documents
from smoothlink.text.label_cells import guess_separator, names_in

DOCUMENTS = [
    ('A "quoted", title', "body; with, marks\nand a line end", ["fruit", "red apple"]),
    ("Zweiter Titel", "größer", ["metal"]),
    ("no body", "", []),
    ("", "", ["fruit"]),
]


def write_jsonl(path, lists=True):
    rows = [{"title": t, "body": b, "tags": names if lists else "|".join(names)} for t, b, names in DOCUMENTS]
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), "utf-8")


def write_csv(path, mark=","):
    def cell(text):
        return '"' + text.replace('"', '""') + '"'

    rows = [mark.join(map(cell, (t, b, "|".join(names)))) for t, b, names in DOCUMENTS]
    path.write_text("\n".join([mark.join(("title", "body", "tags")), *rows]) + "\n", "utf-8")


def write_parquet(path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    titles, bodies, tags = (list(column) for column in zip(*DOCUMENTS, strict=True))
    parquet.write_table(pyarrow.table({"title": titles, "body": bodies, "tags": tags}), path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.jsonl", write_jsonl),
        ("b.json", lambda path: (write_jsonl(path), path.write_text(f"[{','.join(path.read_text().splitlines())}]"))),
        ("c.jsonl", lambda path: write_jsonl(path, lists=False)),
        ("d.csv", write_csv),
        ("e.csv", lambda path: write_csv(path, ";")),
        ("f.parquet", write_parquet),
    ],
)
def test_every_format_gives_the_same_documents(tmp_path, name, write):
    path = tmp_path / name
    write(path)
    how = Reading(text=("title", "body"), labels="tags", label_separator="|")
    found = read_documents(str(path), how.source(str(path)))
    texts = ['A "quoted", title\nbody; with, marks\nand a line end', "Zweiter Titel\ngrößer", "no body", ""]
    assert found.texts == texts
    assert found.labels == [names for *_, names in DOCUMENTS]
    assert (found.without_text, found.without_labels) == (1, 1)


@pytest.mark.parametrize(("ending", "packed"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_files_are_read_as_plain_ones(tmp_path, ending, packed):
    plain = tmp_path / "a.tsv"
    plain.write_text("one two\tx,y\nthree\tx\nfour\ty\nfive\tx,y\nsix\ty,x\n")
    small = tmp_path / f"b.tsv{ending}"
    small.write_bytes(packed(plain.read_bytes()))
    how = Reading(text=("1",), labels=2)
    assert read_documents(str(small), how.source(str(small))) == read_documents(str(plain), how.source(str(plain)))


def test_a_header_is_recognised_where_columns_are_numbers_and_names_are_remembered(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('title\ttags\n"one\tx\n')
    by_name = read_documents(str(path), DocumentSource("tsv", ("title",), ("tags",)))
    by_number = read_documents(str(path), DocumentSource("tsv", ("1",), ("2",)))
    assert by_number == by_name._replace(notes=by_number.notes)
    assert (by_number.texts, by_number.labels) == (['"one'], [["x"]])
    assert by_number.notes == ("The first row is taken for a header (title, tags); --no-header says otherwise.",)
    assert by_number.source.text == ("title",)
    assert read_documents(str(path), DocumentSource("tsv", ("1",), ("2",), header=False)).texts == ["title", '"one']
    assert read_documents(str(path), DocumentSource("tsv", ("1",), ("tags",), header=True)).texts == ['"one']
    path.write_text("iron zinc\tmetal\nplum\tfruit\n")
    plain = read_documents(str(path), DocumentSource("tsv", ("1",), ("2",)))
    assert (plain.texts, plain.source.text) == (["iron zinc", "plum"], ("1",))


def test_columns_named_in_training_are_read_in_every_other_kind_of_table(tmp_path):
    from smoothlink.text.tables import write_table

    names, rows = ["nr", "Titel", "Schlagwort"], [[1, "iron zinc", "metal; rare"], [2, "plum", "fruit; rare"]]
    paths = {kind: str(tmp_path / f"a.{kind}") for kind in ("csv", "tsv", "jsonl", "parquet", "xlsx")}
    for kind, path in paths.items():
        pytest.importorskip({"parquet": "pyarrow", "xlsx": "openpyxl"}.get(kind, "csv"))
        write_table(path, kind, names, rows)
    how = Reading(text=("Titel",), labels="Schlagwort", id="nr", label_separator=";")
    trained = read_documents(paths["csv"], how.source(paths["csv"])).source
    for path in paths.values():
        found = read_documents(path, Reading().source(path, from_meta(as_meta(trained))))
        assert found.texts == ["iron zinc", "plum"]
        assert found.labels == [["metal", "rare"], ["fruit", "rare"]]
        assert [str(one) for one in found.ids] == ["1", "2"]
    write_table(paths["jsonl"], "jsonl", ["Titel"], [["iron"]])
    other = read_documents(paths["jsonl"], Reading().source(paths["jsonl"], trained), labels_matter=False)
    assert (other.texts, other.ids, other.notes) == (["iron"], None, ("It has no column nr: rows are numbered.",))
    with pytest.raises(DataError, match=r"has no column nr; it has Titel.\nPass another --id"):
        read_documents(paths["jsonl"], how.source(paths["jsonl"], trained), labels_matter=False)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {},
            r"has no column text; it has nr, Titel, Zusammenfassung, Thema.\n"
            r"Say which hold the text and the labels \(by number from 1, where there is no header\), such as: "
            r"--text Titel,Zusammenfassung --labels Thema$",
        ),
        ({"text": ("Titel",)}, r"no column labels; .*\nSay which hold the labels .*, such as: --labels Thema$"),
        ({"text": ("Title",), "labels": "Thema"}, r"no column Title; .*\nSay which hold the text .*: --text Titel,Zus"),
        ({"text": ("2",), "labels": "9"}, r"no column 9; it has nr, .*\n.* such as: --labels Thema$"),
        ({"text": ("2",), "labels": "9", "header": False}, r"no column 9; it has 4, numbered from 1.\n.*: --labels 4$"),
    ],
)
def test_the_remedy_names_columns_of_the_file(tmp_path, how, message):
    path = tmp_path / "a.csv"
    path.write_text("nr,Titel,Zusammenfassung,Thema\n1,Ein Titel von vier,Ein längerer Text hier,Boot\n")
    with pytest.raises(DataError, match=message):
        read_documents(str(path), Reading(**how).source(str(path)))


def test_a_text_column_is_no_remedy_for_missing_labels(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("nr,Titel,Thema\n1,Ein Titel von vier,Ein Boot und ein Fisch\n")
    with pytest.raises(DataError, match=r"no column tags; .*\n.*such as: --labels nr$"):
        read_documents(str(path), Reading(text=("Titel", "Thema"), labels="tags").source(str(path)))


def test_a_first_line_that_is_a_document_is_not_suggested_as_names_of_columns(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text(f"1\t{'Ein langer Satz ' * 9}\tBoot, Fisch\n2\t{'Ein anderer Satz ' * 9}\tFisch, Netz\n")
    with pytest.raises(DataError, match=r"looks like a document.*\n.*such as: --text 2 --labels 3$"):
        read_documents(str(path), Reading(text=("Titel",), labels="Thema").source(str(path)))


ONE_HOT = {"ship": [1, 0, 0], "train": [True, True, False], "air": ["x", "", None], "mail": [1.0, 0.0, None]}


def test_columns_of_marks_are_a_label_each(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [dict(zip(ONE_HOT, cells, strict=True)) for cells in zip(*ONE_HOT.values(), strict=True)]
    path.write_text("\n".join(json.dumps({"text": "a", **row}) for row in rows))
    for labels in ("ship,train,air,mail", "ship, *ai*"):
        found = read_documents(str(path), Reading(labels=labels).source(str(path)))
        assert found.labels == [["ship", "train", "air", "mail"], ["train"], []]
        assert "each is a label" in found.notes[0]
    with pytest.raises(DataError, match="no column shop; it has text, ship"):
        read_documents(str(path), Reading(labels="ship,shop").source(str(path)))


def test_several_columns_of_labels_are_read_together(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,topic,places\na,ship,x;y\nb,,y;x\nc,train,\nd,x,\n")
    found = read_documents(str(path), Reading(labels="topic,places").source(str(path)))
    assert found.labels == [["ship", "x", "y"], ["y", "x"], ["train"], ["x"]]
    path.write_text('text,"topic,places"\na,ship\n')
    assert read_documents(str(path), Reading(labels="topic,places").source(str(path))).labels == [["ship"]]


def test_a_column_that_is_there_twice_is_named_by_its_number(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,tags,tags\na,x,y\n")
    with pytest.raises(DataError, match=r"has several columns tags: 2 and 3.\nName one by its number"):
        read_documents(str(path), Reading(labels="tags").source(str(path)))
    found = read_documents(str(path), Reading(text=("1",), labels=3).source(str(path)), all_columns=True)
    assert found.labels == [["y"]]
    assert found.kept == (["text", "tags", "tags 2"], [["a", "x", "y"]])


def test_an_encoding_is_given_and_never_remembered(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("text,labels\nGröße,a\n".encode("cp1252"))
    found = read_documents(str(path), Reading(encoding="cp1252").source(str(path)))
    assert found.texts == ["Größe"]
    assert from_meta(as_meta(found.source)).encoding is None
    with pytest.raises(DataError, match=r"it is 'Größe'. If that is right, pass --encoding cp1252"):
        read_documents(str(path), Reading().source(str(path)))


def test_fasttext_lines_are_recognised_by_their_labels(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("__label__x __label__y two  words\n\n__label__z other\nnone at all\n")
    how = Reading()
    assert how.text_format(str(path)) == "fasttext"
    found = read_documents(str(path), how.source(str(path)))
    assert found.texts == ["two words", "other", "none at all"]
    assert found.labels == [["x", "y"], ["z"], []]


def test_a_folder_of_documents_has_their_labels_in_key_files(tmp_path):
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.txt").write_text("first\ndocument")
    (tmp_path / "a.key").write_text("one label\nanother\n")
    (tmp_path / "c.txt").write_text("")
    (tmp_path / "c.key").write_text("")
    found = read_documents(str(tmp_path), Reading(id="file").source(str(tmp_path)))
    assert found.texts == ["first\ndocument", "second", ""]
    assert found.ids == ["a.txt", "b.txt", "c.txt"]
    assert found.labels == [["one label", "another"], [], []]


def test_rows_of_numbers_are_no_texts(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("1 2 2\n0 0:1\n")
    assert Reading().text_format(str(path)) is None
    with pytest.raises(DataError, match="holds no texts"):
        Reading(format="xmc").source(str(path))


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (["a,b", "a", "b,c", "c,a", "b"], ","),
        (["a;b", "a", "b;c", "c;a"], ";"),
        (["a, x|b", "b|a, x", "a, x", "b"], "|"),
        (["Paris, France", "Rome, Italy"] * 3, "none"),
        (["Rock &amp; Roll", "Jazz"] * 3, "none"),
        (["8549,9894", "6176", "802,803,1934"], ","),
        (["a | b | c", "d"], "|"),
        (["alone", "by itself"], None),
        (['["a"]', "['b', 'c']", "[]"], "list"),
        ([["a"], None, ["b"]], None),
        ([], None),
    ],
)
def test_a_separator_is_guessed_where_cutting_gives_the_same_names_again(cells, separator):
    guess = guess_separator(cells)
    assert guess.separator == separator
    assert guess.clear


@pytest.mark.parametrize(
    ("cells", "mark"),
    [
        (["Paris, France", "Rome, Italy", "Lima, Peru"], ","),
        (["Smith, John", "Smith, Mary", "Brown, Mary", "Brown, John"], ","),
        (["4,5", "3,0", "4,0", "3,5", "4", "5"], ","),
        (["1,2-dichloroethane", "1,1,1-trichloroethane", "ethane"], ","),
        (["a; b", "c"], ";"),
    ],
)
def test_where_it_is_not_clear_two_cells_are_shown(tmp_path, cells, mark):
    guess = guess_separator(cells)
    assert (guess.separator, guess.mark, guess.clear) == (None, mark, False)
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"text\t{cell}\n" for cell in cells))
    with pytest.raises(DataError, match=f'--label-separator "{mark}" if it does, --label-separator none') as error:
        read_documents(str(path), DocumentSource("tsv", ("1",), ("2",)))
    assert all(repr(cell) in str(error.value) for cell in guess.cells)
    whole = read_documents(str(path), DocumentSource("tsv", ("1",), ("2",), "none"))
    assert whole.labels == [[cell] for cell in cells]
    unlabelled = read_documents(str(path), DocumentSource("tsv", ("1",), ("2",)), labels_matter=False)
    assert unlabelled.texts == ["text"] * len(cells)


def test_what_was_guessed_and_what_looks_wrong_is_noted(tmp_path):
    path = tmp_path / "a.jsonl"

    def notes(*labels):
        path.write_text("\n".join(json.dumps({"text": "a", "labels": label}) for label in labels))
        return read_documents(str(path), DocumentSource("jsonl"))

    assert notes(["a"], ["b"]).notes == ()
    assert notes("a", "b").notes == ()
    assert notes("a, b", "b, a").notes == ("Labels are separated by ',', it seems; --label-separator says otherwise.",)
    assert notes(*["Paris, France", "Rome"] * 2).notes[0].startswith("Cells such as 'Paris, France' are one label each")
    padded = notes([" a", "b "], ["a"])
    assert padded.labels == [["a", "b"], ["a"]]
    assert padded.notes == ("2 labels had spaces around, such as ' a'; the spaces are removed.",)
    assert notes("a ", "b").notes == ("1 label had spaces around, such as 'a '; the spaces are removed.",)
    held = notes(["a, b"], ["a"], ["b"])
    assert held.labels == [["a, b"], ["a"], ["b"]]
    assert held.notes == ("Lists hold labels such as 'a, b', each read as one label; cut them if they are more.",)


@pytest.mark.parametrize(
    ("cell", "separator", "names"),
    [
        ("a, b,,", ",", ["a", "b"]),
        ("a b", " ", ["a", "b"]),
        ("a b", None, ["a b"]),
        ("a, b", "none", ["a, b"]),
        ([" a ", "", 3], None, ["a", "3"]),
        (7, None, ["7"]),
        (None, ",", []),
        (float("nan"), ",", []),
        ("['a', \"b\"]", "list", ["a", "b"]),
        ("", "list", []),
    ],
)
def test_a_cell_is_a_list_or_a_text_to_cut(cell, separator, names):
    assert names_in(cell, separator, "here") == names


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a", "labels": ["x"]}\n{"text": }\n', r"line 2: this is not JSON"),
        (b'{"text": "a", "labels": ["x"]}\n[1]\n', r"line 2: an object is wanted"),
        (b'{"text": "a", "labels": [2.5]}\n', r"line 1: the label 2.5 is a float"),
        (b'{"text": {"a": 1}, "labels": ["x"]}\n', r"line 1: the text is a dict"),
        (b'{"text": "a", "labels": [true]}\n', r"the label True is a bool"),
        (b'{"title": "a", "tags": ["x"]}\n', r"has no column text; it has title, tags\.\nSay which"),
        (b'{"text": "a", "labels": []}\n', r"no row has a label"),
        (b'{"text": "\xe9"}\n', r"line 1: the byte 0xe9 is not UTF-8"),
        (b'\n{"text": "ok"}\n{"text": "\xe9"}\n', r"line 3: the byte 0xe9 is not UTF-8"),
        (b"", r"the file is empty"),
    ],
)
def test_a_bad_file_of_json_lines_is_refused_with_the_line(tmp_path, content, message):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_documents(str(path), Reading().source(str(path)))


@pytest.mark.parametrize(
    ("content", "how", "message"),
    [
        ("text,labels\n1,2\n1,2,3\n", {}, "line 3: 3 cells, where the first line has 2"),
        ('text,labels\n1,"2\n', {}, r"line 2: .*\nMend the quotes"),
        ("a,b\n1,2\n", {"text": ("c",)}, r"no column c; it has a, b\.\nSay which hold the text and the labels"),
        ("a b,c\nd e,f\n", {"text": ("1",), "labels": 3}, "no column 3; it has 2, numbered from 1"),
        ("a,b\n1,2\n", {"text": ("a",), "labels": "b", "features": 3}, "--features means nothing"),
        ("text,labels\n", {}, "has no rows"),
    ],
)
def test_a_bad_table_is_refused_in_words(tmp_path, content, how, message):
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_documents(str(path), Reading(**how).source(str(path)))


def test_labels_of_another_prefix_do_not_count(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("a\ttopics:x,places:y\nb\tplaces:y\nc\ttopics:x\n")
    found = read_documents(str(path), DocumentSource("tsv", ("1",), ("2",), ",", "topics:"))
    assert found.labels == [["topics:x"], [], ["topics:x"]]
    with pytest.raises(DataError, match="begins with 'people:'"):
        read_documents(str(path), DocumentSource("tsv", ("1",), ("2",), ",", "people:"))


def test_a_source_survives_a_model_file():
    source = DocumentSource("tsv", ("3", "4"), ("2",), ",", "topics:", False)
    assert from_meta(json.loads(json.dumps(as_meta(source)))) == source
    assert from_meta(None) is None
    assert from_meta({"strange": 1}) is None


def test_missing_files_and_strange_names_are_said(tmp_path):
    (tmp_path / "old.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
    with pytest.raises(DataError, match=r"old.xls is an old .xls, or has a password.\nSave it as .xlsx"):
        Reading().text_format(str(tmp_path / "old.xls"))
    with pytest.raises(DataError, match="no such file"):
        Reading().text_format(str(tmp_path / "absent.jsonl"))
    (tmp_path / "data").write_text("a\tb\n")
    with pytest.raises(DataError, match="Pass --format"):
        Reading(text=("1",)).text_format(str(tmp_path / "data"))
    assert Reading(text=("1",), format="tsv").text_format(str(tmp_path / "data")) == "tsv"


def test_a_file_is_opened_once_to_recognise_it(tmp_path):
    (tmp_path / "docs").write_text("__label__a some text\n")
    how = Reading().recognised(str(tmp_path / "docs"))
    (tmp_path / "docs").unlink()
    assert how.text_format(str(tmp_path / "docs")) == how.source(str(tmp_path / "docs")).format == "fasttext"


def test_files_of_different_formats_are_recognised_one_by_one(tmp_path):
    (tmp_path / "a.txt").write_text("1 2 2\n0 0:1\n")
    (tmp_path / "b.svm").write_text("0 1:1\n")
    paths = [str(tmp_path / name) for name in ("a.txt", "b.svm")]
    how = Reading().recognised(*paths)
    assert [how.format_of(path) for path in paths] == ["xmc", "svmlight"]


def test_a_folder_without_documents_and_a_column_of_numbers_that_is_not_there_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"no folder with \.txt files"):
        read_documents(str(tmp_path), DocumentSource("folder"))
    (tmp_path / "a.csv").write_text("text,labels,year\na,b,7\n")
    with pytest.raises(DataError, match=r"no column age; it has .*year.*\n.*--numbers"):
        read_documents(str(tmp_path / "a.csv"), DocumentSource("csv", numbers=("age",)))


def test_the_objects_of_a_list_become_lines(tmp_path):
    rows = [{"text": f"é {i}", "labels": ["a"]} for i in range(4)]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    targets = [tmp_path / name for name in ("b", "c")]
    parts = [np.array([0, 3]), np.array([1])]
    write_documents(str(tmp_path / "a.json"), DocumentSource("jsonl"), parts, list(map(str, targets)))
    found = [[json.loads(line) for line in target.read_text("utf-8").splitlines()] for target in targets]
    assert found == [[rows[0], rows[3]], [rows[1]]]
