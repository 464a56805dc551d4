"""A controlled vocabulary (TSV, CSV, JSON or SKOS) -> the names of labels that people are shown, per language."""

from __future__ import annotations

import copy
import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.data.files_on_disk import bare_name, load
from smoothlink.data.matching import inside, label_names
from smoothlink.errors import DataError, ModelFileError, plural
from smoothlink.safetensors_file import pack_names, unpack_names

Array = NDArray[Any]
Names = dict[str, dict[str, str]]  # language ("" where the file says none) -> id -> name

FORMATS = {
    "tsv": (".tsv", ".tab", ".txt"),
    "csv": (".csv",),
    "json": (".json",),
    "turtle": (".ttl", ".turtle"),
    "nt": (".nt", ".ntriples"),
    "xml": (".rdf", ".xml", ".owl", ".skos"),
}
LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*")
ID_HEADINGS = ("id", "uri", "iri", "identifier", "code", "concept", "subject", "label")
NAME_HEADING = re.compile(r"(?:name|preflabel|title|label)(?:[_@ -]([a-z]{2,3}(?:-[a-z0-9]{1,8})*))?")
DEPRECATED = "(deprecated)"  # behind the display name
LANGUAGE_HEADINGS = ("language", "lang")
FORMS = "A line holds an id, its name and perhaps a language; or the first line names the columns: id, name, language."


class Vocabulary:
    """Names of labels by id, per language.

    No two ids have the same display name: where a name belongs to several, the last part of the id is added, as in
    "Mercury (p1234)". Behind the names of deprecated concepts is "(deprecated)".
    """

    def __init__(
        self,
        names: Mapping[str, Mapping[str, str]],
        deprecated: Collection[str] = (),
        language: str | None = None,
        source: str = "",
        remarks: Iterable[str] = (),
    ) -> None:
        self.by_language: Names = {k: dict(v) for k, v in sorted(names.items(), key=lambda item: -len(item[1]))}
        self.deprecated_ids = frozenset(deprecated)
        self.source = source  # the name of its file
        if not any(self.by_language.values()):
            raise DataError(
                "The vocabulary holds no names.\nPass {language: {id: name}}, or a file to read_vocabulary."
            )
        if language is not None and language not in self.by_language:
            have = [f"{known} ({plural(len(names), 'name')})" for known, names in self.by_language.items() if known]
            remedy = f"Possible are {', '.join(have)}." if have else "Its names have no language: leave it out."
            raise DataError(f"{source or 'The vocabulary'} has no names in the language {language!r}.\n{remedy}")
        self.language = next(iter(self.by_language)) if language is None else language
        self.language_given = language is not None
        self.remarks = tuple(remarks)  # sentences on the file, which a model does not store

    @property
    def languages(self) -> list[str]:
        """Returns the languages, that of the most names first; "" stands for names without one."""
        return list(self.by_language)

    @property
    def ids(self) -> list[str]:
        """Returns the ids of all concepts."""
        return list(dict.fromkeys(chain(*self.by_language.values(), sorted(self.deprecated_ids))))

    def in_language(self, language: str) -> Vocabulary:
        """Returns the same with names in another language first."""
        wanted = language.strip().lower()
        return Vocabulary(self.by_language, self.deprecated_ids, wanted, self.source, self.remarks)

    @cached_property
    def _display(self) -> dict[str, str]:
        """The display name of each id."""
        names: dict[str, str] = {}
        for language in reversed([self.language, *(known for known in self.languages if known != self.language)]):
            names |= self.by_language[language]
        names |= {i: f"{names[i]} {DEPRECATED}" for i in self.deprecated_ids & names.keys()}
        shown = names
        for mark in (0, 1):
            times = Counter(shown.values())
            if len(times) < len(shown):
                shown = {i: n if times[n] == 1 else f"{names[i]}{id_marks(i)[mark]}" for i, n in shown.items()}
        return shown

    @cached_property
    def _taken(self) -> frozenset[str]:
        return frozenset(self._display.values())

    def name(self, label: object) -> str:
        """Returns the display name of a label; the label itself where the vocabulary lacks it."""
        text = str(label)
        found = self._display.get(bare_id(text))
        if found is not None:
            return found
        return f"{text} (not in the vocabulary)" if text in self._taken else text

    def names(self, labels: Iterable[Any]) -> list[str]:
        """Returns the display name of each label."""
        return [self.name(label) for label in labels]

    def deprecated(self, label: object) -> bool:
        """Returns whether the vocabulary marks this label as deprecated."""
        return bare_id(str(label)) in self.deprecated_ids

    def missing(self, labels: Iterable[Any]) -> list[str]:
        """Returns the labels that the vocabulary has no name for."""
        return [str(label) for label in labels if bare_id(str(label)) not in self._display]

    def described(self, label: object) -> str:
        """Returns a label in one line: its name with the id behind it."""
        name, text = self.name(label), str(label)
        return name if name == text else f"{name} <{bare_id(text)}>"

    def check_fit(self, labels: Collection[Any]) -> None:
        """Raises DataError unless at least one of these labels has a name in the vocabulary."""
        if len(self.missing(labels)) < len(labels):
            return
        what = f"No label of the model is an id in {self.source or 'the vocabulary'}: labels are such as"
        known = set(chain(*(names.values() for names in self.by_language.values())))
        remedy = (
            "The labels are names already and need no vocabulary."
            if any(str(label) in known for label in labels)
            else "Pass a vocabulary whose ids are the labels of the model."
        )
        raise DataError(f"{what} {two(labels)}, ids {two(self._display)}.\n{remedy}")

    def notes(self, labels: Collection[Any]) -> list[str]:
        """Returns sentences on how the vocabulary fits labels: what is missing, in another language, not unique or
        deprecated."""
        ids = list(dict.fromkeys(bare_id(str(label)) for label in labels))
        of = f" of {plural(len(ids), 'label')}"
        found = list(self.remarks)
        if not self.language_given and len(self.languages) > 1:
            shown, *others = (language or "no language" for language in self.languages)
            found.append(f"The vocabulary has names in {shown}, which are shown, and in {', '.join(others)}.")
        if missing := self.missing(labels):
            what = f"The vocabulary has no name for {len(missing):,}{of}, such as {two(missing)}"
            found.append(f"{what}: labels without a name are shown as they are.")
        if self.language:
            elsewhere = [i for i in ids if i in self._display and i not in self.by_language[self.language]]
            if elsewhere:
                others = [k for k in self.languages if any(i in self.by_language[k] for i in elsewhere)]
                names = " or ".join(other or "no language" for other in others)
                what = f"There is no name in {self.language} for {len(elsewhere):,}{of}, such as {two(elsewhere)}"
                found.append(f"{what}: names in {names} are shown.")
        if marked := [self._display[i] for i in ids if i in self._display and self._display[i].endswith(id_marks(i))]:
            what = f"Other concepts have the same name as {len(marked):,}{of}"
            found.append(f"{what}: these are shown with the end of their id, such as {two(marked)}.")
        if old := self.names(i for i in ids if i in self.deprecated_ids):
            found.append(f"The vocabulary marks {len(old):,}{of} as deprecated, such as {two(old)}.")
        return found


def id_marks(concept: str) -> tuple[str, str]:
    """Returns what tells an id from another behind the same name: the last part of a URI, or else all of it."""
    return f" ({re.split(r'[/#:]', concept.rstrip('/#:'))[-1]})", f" ({concept})"


def bare_id(label: str) -> str:
    """Returns an id without the angle brackets that Annif and N-Triples write around URIs."""
    return label[1:-1] if label.startswith("<") and label.endswith(">") else label


def two(examples: Iterable[Any]) -> str:
    """Returns the first two of several as a message quotes them."""
    first = [repr(str(one)) for _, one in zip(range(2), examples, strict=False)]
    return " and ".join(first)


# Models


def display_names(model: Any) -> list[str]:
    """Returns what people are shown for each label of a model, in the order of its labels: the name in its vocabulary,
    else the label as text."""
    classifier = inside(model)
    labels, vocabulary = label_names(classifier), classifier.vocabulary_
    return [str(label) for label in labels] if vocabulary is None else vocabulary.names(labels)


def label_text(model: Any, label: int) -> str:
    """Returns what people are shown for one label of a model, given by its position."""
    classifier = inside(model)
    labels, vocabulary = classifier.label_names_, classifier.vocabulary_
    found = str(classifier.classes_[label] if labels is None else labels[label])
    return found if vocabulary is None else vocabulary.name(found)


def described(model: Any, label: Any) -> str:
    """Returns a label in one line of text: its display name with the id behind it."""
    vocabulary = inside(model).vocabulary_
    return str(label) if vocabulary is None else vocabulary.described(label)


def checked(
    vocabulary: Vocabulary | str | os.PathLike[str], labels: Collection[Any], note: Callable[[str], Any]
) -> Vocabulary:
    """Returns a vocabulary, or that in a file, which names some of these labels; `note` gets sentences on the rest."""
    found = vocabulary if isinstance(vocabulary, Vocabulary) else read_vocabulary(vocabulary)
    found.check_fit(labels)
    for sentence in found.notes(labels):
        note(sentence)
    return found


def with_vocabulary(model: Any, vocabulary: Vocabulary | None) -> Any:
    """Returns a shallow copy of a model with this vocabulary, or without one."""
    twin = copy.copy(model)
    if inside(model) is not model:
        twin.classifier_ = copy.copy(model.classifier_)
    inside(twin).vocabulary_ = vocabulary
    return twin


# Model files (docs/file-format.md)


def to_meta(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the JSON of a vocabulary in a model file."""
    return {"languages": vocabulary.languages, "language": vocabulary.language, "source": vocabulary.source}


def to_arrays(vocabulary: Vocabulary) -> dict[str, Array]:
    """Returns the arrays of a vocabulary in a model file."""
    ids = vocabulary.ids
    arrays = pack_names(ids, "vocabulary_ids")
    for i, names in enumerate(vocabulary.by_language.values()):
        arrays |= pack_names([names.get(concept, "") for concept in ids], f"vocabulary_names_{i}")
    arrays["vocabulary_deprecated"] = np.array([concept in vocabulary.deprecated_ids for concept in ids], bool)
    return arrays


def from_file(arrays: Mapping[str, Array], meta: Any) -> Vocabulary:
    """Returns the vocabulary of a model file; raises ModelFileError where its parts do not fit together."""
    ids, languages = unpack_names(arrays, "vocabulary_ids"), meta["languages"]
    lists = [unpack_names(arrays, f"vocabulary_names_{i}") for i in range(len(languages))]
    deprecated = arrays["vocabulary_deprecated"]
    fits = (
        isinstance(languages, list)
        and all(isinstance(text, str) for text in (*languages, meta["source"]))
        and meta["language"] in languages
        and len(set(languages)) == len(languages)
        and len(set(ids)) == len(ids)
        and all(len(names) == len(ids) for names in lists)
        and deprecated.shape == (len(ids),)
        and deprecated.dtype == np.bool_
    )
    if not fits:
        raise ModelFileError("the parts of its vocabulary do not fit together. Save the model again.")
    names = {
        language: {concept: name for concept, name in zip(ids, named, strict=True) if name}
        for language, named in zip(languages, lists, strict=True)
    }
    return Vocabulary(names, [ids[i] for i in np.flatnonzero(deprecated)], meta["language"], meta["source"])


# Files of names


def read_vocabulary(path: str | os.PathLike[str], language: str | None = None) -> Vocabulary:
    """Returns the names of labels in a file: TSV or CSV (id, name, language), JSON ({id: name} or
    {id: {language: name}}) or SKOS (RDF/XML, Turtle, N-Triples; needs the extra `vocabulary`), plain or compressed.

    language: that of the names to show; others are shown where it has none. None: the one with the most names.
    """
    path = os.fspath(path)
    content = load(path).data.tobytes()
    kind = kind_of(path, content)
    found = Found()
    if kind in ("tsv", "csv", "json"):
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: the names are not UTF-8 ({error.reason}).\nSave the file as UTF-8.") from error
        entries = json_entries(path, text) if kind == "json" else table_entries(path, text, kind)
        for concept, name, tag in entries:
            found.add(concept, name, tag)
    else:
        read_skos(path, content, kind, found)
    if not found.names:
        what = "no skos:prefLabel of a concept" if kind in ("turtle", "nt", "xml") else "no id with a name"
        raise DataError(f"{path} holds {what}.\nCheck that it is the vocabulary you mean.")
    remarks = []
    if found.repeated:
        count, examples = plural(len(found.repeated), "id"), two(found.repeated)
        remarks.append(f"{path} has several names in one language for {count}, such as {examples}: the first is taken.")
    vocabulary = Vocabulary(found.names, found.deprecated, source=os.path.basename(path), remarks=remarks)
    return vocabulary if language is None else vocabulary.in_language(language)


class Found:
    """The names in a file, as they are read."""

    def __init__(self) -> None:
        self.names: Names = {}
        self.deprecated: set[str] = set()
        self.repeated: dict[str, None] = {}  # ids with several names in one language

    def add(self, concept: str, name: str, language: str) -> None:
        """Keeps the first name of a concept in a language."""
        name = " ".join(name.split())
        if name:
            known = self.names.setdefault(language.lower(), {})
            if known.setdefault(concept, name) != name:
                self.repeated[concept] = None


def kind_of(path: str, content: bytes) -> str:
    """Returns the format of a vocabulary: by its name, else by its first characters."""
    name = bare_name(path).lower()
    named = next((kind for kind, endings in FORMATS.items() if name.endswith(endings)), None)
    start = content[:1000].lstrip()
    if named is None:
        signs = {rb"\{": "json", rb"<\?xml|<rdf:RDF": "xml", rb"(?i)@?(prefix|base)\s": "turtle"}
        named = next((kind for sign, kind in signs.items() if re.match(sign, start)), None)
        named = named or ("tsv" if b"\t" in start.split(b"\n")[0] else None)
    if named is None:
        endings = ", ".join(chain(*FORMATS.values()))
        raise DataError(
            f"{path}: neither the name nor the content says which kind of vocabulary it is.\n"
            f"Name it with one of the endings {endings}."
        )
    return named


Entries = Iterator[tuple[str, str, str]]  # id, name, language


def table_entries(path: str, text: str, kind: str) -> Entries:
    """Yields the entries of a table with a header line, or of lines of id, name and perhaps language.

    Lines that begin with <URI> are Annif's: behind the name is a notation, which is left out.
    """
    first = text.lstrip("\r\n").partition("\n")[0]
    mark = "\t" if kind == "tsv" else max(",;\t", key=first.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
    if mark == "\t":
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark, quoting=csv.QUOTE_NONE)
    try:
        head = next((row for row in rows if any(map(str.strip, row))), [])
        columns = header_columns(head)
        for row in rows if columns else chain([head], rows):
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if not cells[0] or len(cells) == 1:
                raise row_error(path, rows.line_num, "has no id" if not cells[0] else f"has no name for {cells[0]!r}")
            if columns is None:
                annif = cells[0] != bare_id(cells[0])
                language = "" if annif or len(cells) < 3 else cells[2]
                if language and not LANGUAGE.fullmatch(language):
                    raise row_error(path, rows.line_num, f"has {language!r} in the column of languages, such as en")
                yield bare_id(cells[0]), cells[1], language
                continue
            cells += [""] * (len(head) - len(cells))
            own = cells[columns.language] if columns.language is not None else ""
            for place, language in columns.names.items():
                yield bare_id(cells[columns.id]), cells[place], language or own
    except csv.Error as error:
        raise row_error(path, rows.line_num, f"cannot be read ({error})") from error


def row_error(path: str, line: int, what: str) -> DataError:
    return DataError(f"{path}: line {line} {what}.\n{FORMS}")


class HeaderColumns(NamedTuple):
    """The columns that a header line names."""

    id: int
    names: dict[int, str]  # column -> the language of its names, "" where the heading says none
    language: int | None


def header_columns(cells: list[str]) -> HeaderColumns | None:
    """Returns which columns hold what, as the first line says; None where it is no header: id, name, language; uri,
    label_en, label_fi; and so on."""
    heads = [cell.strip().lower() for cell in cells]
    concept = next((heads.index(head) for head in ID_HEADINGS if head in heads), None)
    named = {j: NAME_HEADING.fullmatch(head) for j, head in enumerate(heads) if j != concept}
    names = {j: match[1] or "" for j, match in named.items() if match}
    language = next((heads.index(head) for head in LANGUAGE_HEADINGS if head in heads), None)
    return None if concept is None or not names else HeaderColumns(concept, names, language)


def json_entries(path: str, text: str) -> Entries:
    """Yields the entries of {id: name} and of {id: {language: name}}."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}.\nWrite the file again.") from error
    for concept, names in found.items() if isinstance(found, dict) else [("", found)]:
        per_language = {"": names} if isinstance(names, str) else names
        fits = isinstance(per_language, dict) and all(isinstance(name, str) for name in per_language.values())
        if not fits or not all(LANGUAGE.fullmatch(language) for language in per_language if language):
            where = f"has {json.dumps(names)[:60]} for {concept!r}" if concept else "is not an object"
            raise DataError(f'{path} {where}.\nPossible are {{"id": "name"}} and {{"id": {{"en": "name"}}}}.')
        for language, name in per_language.items():
            yield bare_id(concept), name, language


def read_skos(path: str, content: bytes, kind: str, found: Found) -> None:
    """Adds the skos:prefLabel of each concept, and which are owl:deprecated; altLabels are no display names."""
    try:
        import rdflib
        from rdflib.namespace import OWL, RDF, SKOS
    except ImportError as error:
        raise DataError("Reading SKOS needs rdflib.\nType: pip install 'smoothlink[vocabulary]'") from error
    letters = content.replace(b"\0", b"")  # of UTF-16 too
    entities = [part.partition(b">")[0] for part in letters.split(b"<!ENTITY")[1:]]
    if kind == "xml" and any(re.search(rb"&[^#]", entity) for entity in entities):  # a few lines can make gigabytes
        raise DataError(f"{path} defines entities by other entities, which is not read.\nSave it as Turtle.")
    others = (SKOS.ConceptScheme, SKOS.Collection, SKOS.OrderedCollection)
    labels: dict[str, list[tuple[str, str]]] = {}

    class Names(rdflib.Graph):
        """Takes what is needed of each triple and keeps none: a graph of all would take some hundred bytes each."""

        def add(self, triple: Any) -> Names:
            subject, predicate, value = triple
            if isinstance(subject, rdflib.URIRef):
                if predicate == SKOS.prefLabel and isinstance(value, rdflib.Literal):
                    labels.setdefault(str(subject), []).append((str(value), value.language or ""))
                elif predicate == OWL.deprecated and str(value).strip().lower() in ("true", "1"):
                    found.deprecated.add(str(subject))
                elif predicate == RDF.type and value in others:
                    no_concepts.add(str(subject))
            return self

    no_concepts: set[str] = set()
    try:
        Names().parse(data=content, format=kind)
    except Exception as error:  # each of rdflib's parsers has errors of its own
        what = " ".join(str(error).split())[:200] or type(error).__name__
        name = {"xml": "RDF/XML", "turtle": "Turtle", "nt": "N-Triples"}[kind]
        raise DataError(f"{path} is not {name}: {what}.\nFetch the file again, or name it as what it is.") from error
    for concept, names in labels.items():
        if concept not in no_concepts:
            for name, language in names:
                found.add(concept, name, language)
