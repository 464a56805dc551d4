"""The header of an ARFF file: its attributes, and which of them are the labels."""

import re
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from smoothlink.data.files_on_disk import Text, bare_name, compressed_variants, load
from smoothlink.errors import DataError

_TOKEN = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,{}'"][^\s,{}]*)""")
_MEKA = re.compile(r"(?:^|\s)-[Cc]\s+(-?\d{1,9})(?![\d.])")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_NUMERIC = ("numeric", "real", "integer")


class Attribute(NamedTuple):
    name: str
    values: tuple[str, ...] | None  # None: a number

    @property
    def is_binary(self) -> bool:
        return self.values is not None and set(self.values) <= {"0", "1"}

    @property
    def is_choice(self) -> bool:
        return self.values is not None and not self.is_binary

    @property
    def first_is_one(self) -> bool:
        """Declared {1,0}: a sparse row that does not name it means 1."""
        return self.is_binary and self.values is not None and self.values[0] == "1"

    @property
    def columns(self) -> list[str]:
        """The names of its columns in X."""
        if self.values is None or len(self.values) <= 2:
            return [self.name]
        return [f"{self.name}={value}" for value in self.values]


class Header(NamedTuple):
    relation: str
    attributes: list[Attribute]
    end: int  # the byte where the rows start


def header(text: Text) -> Header:
    """Everything up to @data."""
    relation, attributes, position, size = "", list[Attribute](), 0, len(text.data)
    while position < size:
        end = text.end_of_line(position)
        line = _decoded(text, position, end)
        keyword = line.split(maxsplit=1)[0].lower() if line else ""
        if keyword == "@data":
            return Header(relation, attributes, min(end + 1, size))
        if keyword == "@relation":
            relation = unquoted(line[len(keyword) :].strip())
        elif keyword == "@attribute":
            attributes.append(_attribute(text, position, line[len(keyword) :]))
        elif keyword and not keyword.startswith("%"):
            raise text.error(position, f"'{line[:40]}' is not a line of an ARFF header.", "Fix it, or pass --format.")
        position = end + 1
    raise DataError(
        f"{text.path}: there is no @data line.\nFetch the file again if it was cut short, or pass --format."
    )


def unquoted(token: str) -> str:
    if len(token) < 2 or token[0] not in "'\"" or token[-1] != token[0]:
        return token
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), token[1:-1], flags=re.DOTALL)


def quoted(name: str) -> str:
    for plain, escape in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        name = name.replace(plain, escape)
    return f"'{name}'"


def label_attributes(text: Text, head: Header, labels_path: str | None) -> list[int]:
    """The numbers of the attributes that are labels: those of the XML, else as many as MEKA's -C says."""
    meka = _MEKA.search(head.relation)
    if labels_path is None and meka:
        count, size = int(meka[1]), len(head.attributes)
        if abs(count) > size:
            what = f"-C {count} in @relation announces more labels than the {size} attributes."
            raise DataError(f"{text.path}: {what}\nFix the number; a negative one counts from the end.")
        return list(range(count)) if count >= 0 else list(range(size + count, size))
    xml = labels_path or _xml_beside(text.path)
    if xml is None:
        raise DataError(
            f"{text.path}: nothing says which attributes are labels: no -C in @relation, no XML beside the file.\n"
            "Pass mulan's XML with --labels-file."
        )
    wanted = _xml_labels(xml)
    places = {attribute.name: i for i, attribute in enumerate(head.attributes)}
    missing = [name for name in wanted if name not in places]
    if missing:
        raise DataError(f"{xml}: there is no attribute {missing[0]!r} in {text.path}.\nPass the XML of the same data.")
    return sorted({places[name] for name in wanted})


def _decoded(text: Text, start: int, end: int) -> str:
    try:
        return text.slice(start, end).decode().strip()
    except UnicodeDecodeError as e:
        raise text.error(start, f"the text is not UTF-8 ({e.reason}).", "Save the file as UTF-8.") from e


def _attribute(text: Text, position: int, line: str) -> Attribute:
    name = _TOKEN.match(line)
    kind = line[name.end() :].strip() if name else ""
    if name is None or not kind:
        raise text.error(position, f"'{line.strip()[:40]}' is not a name and a type.", "Write @attribute name numeric.")
    if kind.split()[0].lower() in _NUMERIC:
        return Attribute(unquoted(name[1]), None)
    if not (kind.startswith("{") and kind.endswith("}")):
        raise text.error(
            position,
            f"attribute '{unquoted(name[1])[:40]}' is of type '{kind[:40]}'.",
            "Only numeric, real, integer and {a,b,...} can be read: remove it, or turn it into numbers.",
        )
    values = tuple(unquoted(token) for token in _TOKEN.findall(kind[1:-1]))
    if not values:
        raise text.error(position, f"attribute '{unquoted(name[1])[:40]}' has no values.", "Write {a,b,...}.")
    return Attribute(unquoted(name[1]), values)


def _xml_beside(path: str) -> str | None:
    """bibtex.xml for bibtex.arff, bibtex-train.arff, bibtex_test.arff.xz; else the only XML in the folder."""
    stem = Path(bare_name(path)).stem
    for name in dict.fromkeys((stem, re.sub(r"[-_.]?(train|test|valid)$", "", stem))):
        found = next(compressed_variants(Path(path).with_name(f"{name}.xml")), None)
        if found:
            return str(found)
    alone = [p for p in Path(path).parent.iterdir() if bare_name(p).endswith(".xml")]
    return str(alone[0]) if len(alone) == 1 else None


def _xml_labels(path: str) -> list[str]:
    content = load(path).data.tobytes()
    try:
        if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
            raise ValueError("it declares entities, which are not read")
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as e:
        raise DataError(f"{path}: this is not mulan's XML of labels: {e}.\nPass another --labels-file.") from e
    names = [e.attrib["name"] for e in root.iter() if e.tag.rpartition("}")[2] == "label" and "name" in e.attrib]
    if not names:
        raise DataError(f'{path}: the XML names no labels.\nWrite <labels><label name="..."></label>...</labels>.')
    return names
