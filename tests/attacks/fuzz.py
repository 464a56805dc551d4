"""Mutates the input of every reader, model files and requests to the server: each is read or refused with an error of
smoothlink's own, in at most 5 seconds and 500 MB, and files with checksums are never read as something else.

    make fuzz                                              an hour
    python tests/attacks/fuzz.py --inputs 1000000          so many inputs, however long it takes
    python tests/attacks/fuzz.py --minutes 5 --only npz    some targets; --list names them

Inputs that fail are written to a folder, with the error beside them; each belongs into tests/attacks once it is mended.
Case i of a seed is always the same input: `--seed 1 --first 4711 --inputs 1` repeats one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import logging
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from multiprocessing.util import Finalize
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

import numpy as np
from hostile import COMPRESS, SECONDS, archive, limited, memory_folder, with_other_value

from smoothlink.data.read import Data, read, write
from smoothlink.errors import SmoothLinkError

ROUND = 20_000  # cases of one process
HANG = 60.0  # seconds without a new case, after which a process is killed; busy cores take their time
LONGEST_QUERY = 10_000  # characters: the test client sends 65,536, and one may become six
OUTCOMES = *_, FAILED = "read", "refused", "failed"
TOKENS = [
    *(
        b"\0",
        b"\n",
        b"\r\n",
        b" ",
        b"\t",
        b",",
        b":",
        b"-1",
        b"0",
        b"1e999",
        b"nan",
        b"2147483647",
        b"4294967296",
        b"#",
    ),
    *(
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\x1b[2J",
        b'"',
        b"'",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b"[[[[[[[[",
        b"null",
    ),
    *(
        b"18446744073709551616",
        b"NaN",
        b"-Infinity",
        b"true",
        b"\\ud800",
        b"\xf0\x9f\x98\x80",
        b"|",
        b"@",
        b"%",
        b"qid:",
    ),
    *(
        b"PK\x03\x04",
        b"\x1f\x8b\x08",
        b"BZh9",
        b"PAR1",
        b"__label__",
        b"<",
        b">",
        b"&",
        b"<!ENTITY a 'b'>",
        b"\x80\x04",
    ),
]


class Target(NamedTuple):
    """What is attacked."""

    sound: dict[str, bytes]  # files by name, each of which is mutated in turn
    use: Callable[[Path], Any]  # reads them in a folder, and returns what was read in a form that can be compared
    sealed: bool = False  # whether an input must be refused unless it is read as the sound one
    unpack: Callable[[bytes], dict[str, bytes]] | None = None  # an archive whose files are mutated
    pack: Callable[[dict[str, bytes]], bytes] | None = None
    beside: Mapping[str, bytes] = MappingProxyType({})  # files that are there and not mutated


GROWN_BYTES = 400_000  # by which a change may make an input larger
GROWN_LINES = (*[100] * 9, *[3000] * 2, 30_000)  # were there as many of each, they would take two thirds of all time


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Returns the content with one to four changes."""
    made = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(made) + 1)
        size = min(chance.choice((1, 1, 2, 4, 8, 64, 512)), len(made) - at)
        match chance.randrange(10):
            case 0 if size:
                made[at] ^= 1 << chance.randrange(8)
            case 1 if size:
                made[at : at + size] = chance.randbytes(size)
            case 2:
                made[at:at] = chance.randbytes(chance.choice((1, 2, 8)))
            case 3:
                del made[at : at + size]
            case 4:
                made[at:at] = made[at : at + size] * chance.choice((1, 2, 50))
            case 5:
                del made[at:]
            case 6:
                made[at : at + size] = chance.choice(TOKENS)
            case 7:
                made[at:at] = chance.choice(TOKENS) * chance.choice((1, 1, 3, 2000))
            case 8 if b"\n" in made[at:]:  # very many lines that differ by a number
                start, end = made.rfind(b"\n", 0, at) + 1, made.index(b"\n", at) + 1
                before, after = made[start:at], made[at:end]
                count = min(chance.choice(GROWN_LINES), GROWN_BYTES // (len(before) + len(after) + 5))
                made[start:start] = b"".join(b"%s%d%s" % (before, i, after) for i in range(count))
            case _:
                other = chance.randrange(len(made) + 1)
                made[at : at + size] = made[other : other + size]
    return bytes(made)


@functools.cache
def fields_of(content: bytes) -> dict[str, Any]:
    """Returns the fields of an object of JSON, of which one may have another value; of other contents none."""
    with contextlib.suppress(ValueError):
        found = json.loads(content)
        return found if isinstance(found, dict) else {}
    return {}


# What is read


def as_seen(data: Data) -> Any:
    """Returns the data in a form that can be compared, after a look at its arrays."""
    for A in (data.X, data.Y):
        if type(A).__name__ != "MappedMatrix":
            A.check_format(full_check=True)
    assert data.X.shape[0] == data.Y.shape[0]
    assert np.isfinite(data.X.data).all()
    arrays = (data.X.indptr, data.X.indices, data.X.data, data.Y.indptr, data.Y.indices)
    return data.X.shape, data.Y.shape, [a.tobytes() for a in arrays], data.label_names, data.feature_names


def rows(name: str, **options: Any) -> Callable[[Path], Any]:
    return lambda folder: as_seen(read(folder / name, **options))


def texts(name: str, kind: str, **options: Any) -> Callable[[Path], Any]:
    def use(folder: Path) -> Any:
        from smoothlink.text.documents import DocumentSource, read_documents

        found = read_documents(str(folder / name), DocumentSource(kind, **options), all_columns=True)
        return json.dumps([found.texts, found.labels], ensure_ascii=False).encode()

    return use


def unzipped(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as found:
        return {name: found.read(name) for name in found.namelist()}


@functools.cache
def small_data() -> Data:
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    X = rng.integers(-3, 4, (6, 5)) * (rng.random((6, 5)) < 0.6) / 4
    Y = rng.random((6, 3)) < 0.5
    names = ["a", "b c", "\xe9"], ["v", "w", "x", "y", "z"]
    return Data(csr_array(X.astype(np.float32)), csr_array(Y.astype(np.float32)), *names)


def written(name: str, data: Data, **options: Any) -> dict[str, bytes]:
    """Returns the files that `write` makes."""
    with tempfile.TemporaryDirectory() as folder:
        write(data, Path(folder, name), **options)
        return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def of_numbers() -> dict[str, Target]:
    data = small_data()
    bare = data._replace(label_names=None, feature_names=None)
    xmc, pair = written("a.txt", data), written("a_Xf.txt", bare)
    xml = b'<labels xmlns="http://mulan.sourceforge.net/labels"><label name="a"/><label name="\xc3\xa9"/></labels>\n'
    arff = b"@relation r\n@attribute x numeric\n@attribute 'y z' {p,q,\"r s\"}\n@attribute a {0,1}\n"
    arff += b"@attribute \xc3\xa9 {0,1}\n@data\n1.5,p,0,1\n{0 2, 1 q, 3 1}\n-1e3,'r s',1,0\n"
    found = {
        "xmc": Target(xmc, rows("a.txt")),
        "xmc-new": Target(pair, rows("a_Xf.txt")),
        "svmlight": Target(written("a.svm", bare), rows("a.svm")),
        "lshtc": Target(written("a.csv", bare, format="lshtc"), rows("a.csv", format="lshtc")),
        "vw": Target(written("a.vw", bare), rows("a.vw")),
        "arff": Target(written("a.arff", data), rows("a.arff")),
        "arff with XML": Target({"a.arff": arff, "a.xml": xml}, rows("a.arff")),
        "npz": Target(written("a.npz", data), rows("a.npz")),
        "arrays of npz": Target(written("a.npz", data), rows("a.npz"), unpack=unzipped, pack=archive),
        "data folder": Target(written("a.sl", data), rows("a.sl"), sealed=True),
        "convert": Target(xmc, converted),
    }
    for kind, compress in COMPRESS.items():
        found[kind] = Target({f"a.txt.{kind}": compress(xmc["a.txt"])}, rows(f"a.txt.{kind}"))
    return found


def converted(folder: Path) -> Any:
    from smoothlink.data.read import convert

    convert(folder / "a.txt", folder / "b.sl", format="xmc", text_bytes=64)
    return as_seen(read(folder / "b.sl"))


def of_texts() -> dict[str, Target]:
    import pyarrow as pa
    from pyarrow import parquet

    from smoothlink.text.tables import write_table

    columns = ["text", "labels", "v", "when"]
    cells: list[list[Any]] = [
        ["iron and tin", ["metal", "old"], [1.5, 2], "2020-01-01"],
        ['a "red", plum\n', ["fruit"], [0, -1], None],
        ["\xe9t\xe9 \U0001f600", [], None, "x"],
    ]
    found = {}
    for kind in ("jsonl", "json", "csv", "tsv", "xlsx", "parquet"):
        made = io.BytesIO()
        write_table(made, kind, columns, cells)
        read_as = "jsonl" if kind == "json" else kind
        options = {"numbers": ("v",), "separator": None if kind in ("jsonl", "json", "parquet") else "list"}
        found[kind] = Target({f"a.{kind}": made.getvalue()}, texts(f"a.{kind}", read_as, **options))
    sheet = found["xlsx"]
    found["files of xlsx"] = sheet._replace(unpack=unzipped, pack=archive)
    times = (
        pa.array([1, 2, None], pa.timestamp("ns")),
        pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    )
    made = io.BytesIO()
    table = {
        "text": ["a b", "c", None],
        "labels": ["x", "y", None],
        "t": times[0],
        "m": times[1],
        "b": [b"1", b"", None],
    }
    parquet.write_table(pa.table(table), made, compression="none")
    found["types of parquet"] = Target({"a.parquet": made.getvalue()}, texts("a.parquet", "parquet"))
    marked = b"__label__metal __label__old iron and tin\n__label__fruit plum\nnothing\n"
    found["fasttext"] = Target({"a.txt": marked}, texts("a.txt", "fasttext"))
    folder = {"d/1.txt": b"iron and tin", "d/1.key": b"metal\nold\n", "d/2.txt": b"plum", "d/2.key": b"fruit\n"}
    found["folder of texts"] = Target(folder, texts("d", "folder"))
    guessed = b"text;tags\niron and tin;metal|old\nplum and pear;old|fruit\nred;colour|old\ntin;metal\n"
    found["guessed separators"] = Target({"a.csv": guessed}, texts("a.csv", "csv", labels=("tags",)))
    return found


def of_settings_and_vocabularies() -> dict[str, Target]:
    def settings(folder: Path) -> Any:
        import typer

        from smoothlink.cli.train_command import tuned_settings

        with contextlib.suppress(typer.BadParameter):  # settings for other metrics
            tuned_settings(str(folder / "p.json"), "p@1")

    def vocabulary(name: str) -> Callable[[Path], Any]:
        def use(folder: Path) -> Any:
            from smoothlink.vocabulary import read_vocabulary

            return read_vocabulary(folder / name).names

        return use

    params = {"smoothlink_params": 1, "best": {"p@1": {"value": 0.5, "params": {"ridge": 1.0, "kernel": "gaussian"}}}}
    rdf = b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:s="http://www.w3.org/2004/02/skos/core#">'
    rdf += b'<s:Concept rdf:about="http://a/1"><s:prefLabel xml:lang="en">iron</s:prefLabel></s:Concept></rdf:RDF>'
    turtle = (
        b'@prefix s: <http://www.w3.org/2004/02/skos/core#> .\n<http://a/1> a s:Concept ; s:prefLabel "iron"@en .\n'
    )
    names = {
        "names.tsv": b"id\tlabel_en\tlabel_fi\n1\tiron\trauta\n2\tplum\tluumu\n",
        "names.json": b'{"1": {"en": "iron", "fi": "rauta"}, "2": {"en": "plum"}}',
        "names.ttl": turtle,
        "names.rdf": rdf,
    }
    found = {name: Target({name: content}, vocabulary(name)) for name, content in names.items()}
    return found | {"settings": Target({"p.json": json.dumps(params).encode()}, settings)}


def of_models() -> dict[str, Target]:
    from served import TOPICS, text_model, vector_model

    import smoothlink

    some = [" ".join(words) for words in TOPICS.values()]
    inputs = {"text model": (text_model(), some), "model": (vector_model(), np.eye(3, 40))}

    def use_of(given: Any) -> Callable[[Path], Any]:
        def use(folder: Path) -> Any:
            model = smoothlink.load(folder / "m.safetensors", verify="now")
            return model.predict_proba(given).tobytes(), list(map(str, model.classes_))

        return use

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, given) in inputs.items():
            model.save(Path(folder, "m.safetensors"))
            sound = {"m.safetensors": Path(folder, "m.safetensors").read_bytes()}
            found[name] = Target(sound, use_of(given), sealed=True)
            parts = Target(sound, use_of(given), sealed=True, unpack=header_of, pack=with_header)
            found[f"header of {name}"] = parts
    return found


def header_of(content: bytes) -> dict[str, bytes]:
    size = int.from_bytes(content[:8], "little")
    return {"header": content[8 : 8 + size], "arrays": content[8 + size :]}


def with_header(parts: dict[str, bytes]) -> bytes:
    return len(parts["header"]).to_bytes(8, "little") + parts["header"] + parts["arrays"]


def of_living_models() -> dict[str, Target]:
    """Returns the files of models that are updated: sums or replayed rows, journals, new rows and labels, watches."""
    from commands import FIXED, labelled, succeed
    from served import vector_model
    from small import words

    import smoothlink
    from smoothlink.cli.living_commands import read_rows
    from smoothlink.cli.screen import Screen
    from smoothlink.data.matching import Reading, names_in
    from smoothlink.drift import Watch
    from smoothlink.living.changes import state_of
    from smoothlink.living.living_file import LivingFile
    from smoothlink.living.update_journal import record_of

    X, Y = words(np.random.default_rng(7), n=12)
    found = {}

    def saved(model: Any, change: Callable[[LivingFile], object]) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Returns the files of a model, and its journal after a change."""
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder, "m.safetensors"))
            files = {p.name: p.read_bytes() for p in Path(folder).iterdir()}
            with LivingFile(Path(folder, "m.safetensors")) as living:
                change(living)
            return files, {"m.journal": Path(folder, "m.journal").read_bytes()}

    def known(folder: Path) -> Any:
        model = smoothlink.load(folder / "m.safetensors", verify="now")
        arrays, meta = state_of(model).to_arrays()
        return meta, {name: array.tobytes() for name, array in arrays.items()}, model.update(X, Y).predict(X).tobytes()

    def replayed(folder: Path) -> Any:
        """Applies a journal, which may have lost its last lines, as a kill does."""
        with LivingFile(folder / "m.safetensors") as living:
            living.model.predict_proba(X)
            lines = [json.dumps(record_of(batch)) for batch in living.journal.batches]
        assert lines == sound_lines[: len(lines)], "the change was not noticed"

    def changed_by(use: Callable[[LivingFile, Path], object]) -> Callable[[Path], Any]:
        def opened(folder: Path) -> Any:
            with LivingFile(folder / "m.safetensors") as living:
                use(living, folder)
                living.save()
            return smoothlink.load(folder / "m.safetensors", verify="now").predict_proba(X)

        return opened

    def add_rows(living: LivingFile, folder: Path) -> None:
        rows = read_rows(living, str(folder / "a.txt"), Reading(), Screen(True), strict=False)
        living.update(rows.rows, rows.labels, names=rows.names)

    def forget_rows(living: LivingFile, folder: Path) -> None:
        rows = read_rows(living, str(folder / "a.txt"), Reading(), Screen(True), strict=False)
        living.forget(rows.rows, rows.labels)

    def add_labels(living: LivingFile, folder: Path) -> None:
        living.add_labels(names_in(str(folder / "names.txt"), None, "label"))

    def watched(folder: Path) -> Any:
        watch = Watch.load(model, folder / "w.json")
        watch.add(X)
        watch.save(folder / "w.json")

    def some_changes(living: LivingFile) -> None:
        living.update(X[:2], Y[:2])
        living.add_labels(1)
        living.update(X[2:4], np.column_stack([Y[2:4], [1, 0]]))

    model = vector_model(updatable=True, calibrate=True)
    files, journal = saved(model, some_changes)
    with tempfile.TemporaryDirectory() as folder:
        for file, content in {**files, **journal}.items():
            Path(folder, file).write_bytes(content)
        with LivingFile(Path(folder, "m.safetensors")) as living:
            sound_lines = [json.dumps(record_of(batch)) for batch in living.journal.batches]
    by_steps, _ = saved(vector_model(updatable=True, calibrate=True, loss="logistic"), lambda living: None)
    for kind, both in {"sums": files, "replayed rows": by_steps}.items():
        sums = {name: content for name, content in both.items() if "-sums-" in name}
        found[kind] = Target(sums, known, sealed=True, beside=both)
        found[f"header of {kind}"] = found[kind]._replace(unpack=header_of, pack=with_header)
    found["journal"] = Target(journal, replayed, beside=files)
    data = labelled(np.random.default_rng(3), 20, 40, 6)
    with tempfile.TemporaryDirectory() as folder:
        write(data, Path(folder, "a.txt"))
        succeed("train", Path(folder, "a.txt"), "-o", Path(folder, "m.safetensors"), *FIXED, "--updatable")
        named = {p.name: p.read_bytes() for p in Path(folder).glob("m*.safetensors")}
    rows = written("a.txt", data._replace(X=data.X[:3], Y=data.Y[:3]))
    found["rows of an update"] = Target(rows, changed_by(add_rows), beside=named)
    found["rows to forget"] = Target(rows, changed_by(forget_rows), beside=named)
    found["new labels"] = Target({"names.txt": b"label9\nlabel10\n"}, changed_by(add_labels), beside=named)
    watch = Watch(model)
    watch.add(X)
    found["state of a watch"] = Target({"w.json": json.dumps(watch.state()).encode()}, watched)
    return found


def of_requests() -> dict[str, Target]:
    """Returns the routes of the server: the body of a request, or its query, is a file."""
    from served import client, text_model, vector_model

    from smoothlink.modelfile import load
    from smoothlink.serve import ServerSettings
    from smoothlink.serve.updater import Updater, start
    from smoothlink.serve.updates import UpdateClient

    def send(path: str, served: Callable[[], Any], header: dict[str, str], sound: bytes) -> Callable[[Path], Any]:
        def use(folder: Path) -> Any:
            body = (folder / "body").read_bytes()
            made = opened(served)
            if path == "/forget":  # there is something to forget
                assert made.post("/update", content=sound, headers=header).status_code == 200
            if path.endswith("?"):
                printable = "".join(c for c in body.decode("latin-1") if c.isprintable())
                answer = made.get(path + printable[:LONGEST_QUERY])
            else:
                answer = made.post(path, content=body, headers=header)
            if answer.status_code >= 500:
                raise AssertionError(f"{answer.status_code}: {answer.text[:200]}")
            if answer.status_code >= 400:
                raise RefusedError(answer.text)

        return use

    @functools.cache
    def opened(served: Callable[[], Any]) -> Any:
        return served().__enter__()

    def texts_served() -> Any:
        return client(text_model())

    def vectors_served() -> Any:
        return client(vector_model())

    def updated(model: Any) -> Any:
        """Returns the application with its updater; rows that the model learns stay until the process ends."""
        folder = Path(tempfile.mkdtemp())
        Finalize(None, shutil.rmtree, (folder, True), exitpriority=-1)  # after that of its socket
        model.save(folder / "m.safetensors")
        start(Updater(str(folder / "m.safetensors"), folder))
        updates = UpdateClient(str(folder), load)
        return client(updates.model, ServerSettings(store=str(folder)), updates=updates)

    def texts_updated() -> Any:
        return updated(text_model(updatable=True))

    def vectors_updated() -> Any:
        return updated(vector_model(updatable=True))

    as_json, as_bytes = {"content-type": "application/json"}, {"content-type": "application/octet-stream"}
    lines = b'{"columns": ["text", "labels"], "labels": "labels"}\n["iron", ["metal"]]\n["plum", ["fruit", "colour"]]\n'
    two = b'{"texts": ["iron tin", "plum red"], "labels": [["metal", "odd"], ["fruit"]]}'
    one = b'{"vectors": [{"indices": [0, 7], "values": [1, 2.5]}], "labels": [["0", "3"]]}'
    bodies = {
        "/predict": (texts_served, as_json, b'{"texts": ["iron tin", "plum"], "k": 2, "only": ["metal"]}'),
        "/predict of vectors": (
            vectors_served,
            as_json,
            b'{"vectors": [{"indices": [0, 7], "values": [1, 2.5]}], "threshold": 0.25}',
        ),
        "/explain": (texts_served, as_json, b'{"text": "iron plum", "labels": ["metal"], "top": 3}'),
        "/labels?": (texts_served, {}, b"q=me&offset=0&limit=2&vocabulary=false"),
        "/table?kind=csv&name=a.csv": (texts_served, as_bytes, b"text,labels\niron and tin,metal\nplum,fruit\n"),
        "/table/file?kind=xlsx": (texts_served, {"content-type": "application/x-ndjson"}, lines),
        "/update": (texts_updated, as_json, two),
        "/update of vectors": (vectors_updated, as_json, one),
        "/forget": (texts_updated, as_json, two),
        "/forget of vectors": (vectors_updated, as_json, one),
        "/corrections": (
            texts_updated,
            as_json,
            b'{"text": "iron plum", "labels": ["metal"], "id": "7", "file": "a.csv"}',
        ),
    }
    return {
        name: Target({"body": body}, send(name.partition(" ")[0], served, header, body))
        for name, (served, header, body) in bodies.items()
    }


class RefusedError(SmoothLinkError):
    """A request that got a status of 400 to 499."""


GROUPS = (of_numbers, of_texts, of_settings_and_vocabularies, of_models, of_living_models, of_requests)


@functools.cache
def targets() -> dict[str, Target]:
    return {name: target for group in GROUPS for name, target in group().items()}


# One case


def make_input(target: Target, folder: Path, chance: random.Random) -> None:
    """Writes the sound files with one of them mutated."""
    changed = chance.choice(sorted(target.sound))
    for name, content in {**target.beside, **target.sound}.items():
        if name == changed and target.unpack is not None and target.pack is not None:
            parts = target.unpack(content)
            part = chance.choice(sorted(parts))
            content = target.pack({**parts, part: mutated(parts[part], chance)})
        elif name == changed:
            fields = fields_of(content)
            if fields and chance.random() < 0.5:
                content = json.dumps(with_other_value(fields, chance)).encode()
            else:
                content = mutated(content, chance)
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(content)


@functools.cache
def sound_result(name: str) -> Any:
    """Returns what the sound input is read as; imports and compiles what reading needs."""
    with tempfile.TemporaryDirectory() as folder:
        target = targets()[name]
        for file, content in {**target.beside, **target.sound}.items():
            Path(folder, file).parent.mkdir(exist_ok=True, parents=True)
            Path(folder, file).write_bytes(content)
        return target.use(Path(folder))


def run_case(name: str, seed: int, case: int, folder: Path) -> str:
    """Returns "read" or "refused" for a mutated input of a target; any other error is a find."""
    target = targets()[name]
    make_input(target, folder, random.Random(f"{seed} {case} {name}"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = target.use(folder)
    except SmoothLinkError:
        return "refused"
    if target.sealed and found != sound_result(name):
        raise AssertionError("the change was not noticed")
    return "read"


# Many cases


def attack(seed: int, cases: range, minutes: float, only: list[str], progress: Path, finds: Path) -> None:
    """Runs some cases, or as many as the time allows, in this process; the running one and the counts are in a file."""
    end = time.monotonic() + 60 * minutes
    logging.disable()
    names = [name for name in targets() if name in only]
    for name in names:
        sound_result(name)
    counts: Counter[str] = Counter()
    with limited(seconds=1e9):
        for case in cases:
            if time.monotonic() > end:
                break
            name = names[case % len(names)]
            progress.write_text(json.dumps([case, name, counts]))
            with tempfile.TemporaryDirectory() as folder:
                began = time.process_time()
                try:
                    outcome = run_case(name, seed, case, Path(folder))
                    if (taken := time.process_time() - began) > SECONDS:
                        raise AssertionError(f"it took {taken:.1f} s")
                except Exception:
                    save_find(finds, seed, case, name, Path(folder), traceback.format_exc())
                    outcome = FAILED
            counts[f"{name}: {outcome}"] += 1
    progress.write_text(json.dumps([None, "", counts]))


def save_find(finds: Path, seed: int, case: int, name: str, folder: Path | None, error: str) -> None:
    target = finds / f"{seed}-{case}-{name.replace('/', '_').replace(' ', '_').partition('?')[0]}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    if folder is not None:
        shutil.copytree(folder, target / "input", dirs_exist_ok=True)
    (target / "error.txt").write_text(error)


def campaign(seed: int, first: int, inputs: int | None, minutes: float, only: list[str], finds: Path) -> int:
    """Runs rounds of cases in processes of their own until there were so many inputs, or the time is over; returns how
    many failed."""
    began, totals, begun = time.monotonic(), Counter[str](), first
    end, last = began + 60 * minutes, math.inf if inputs is None else first + inputs
    with tempfile.TemporaryDirectory(dir=memory_folder()) as scratch:
        progress = Path(scratch, "progress")
        while time.monotonic() < end and begun < last:
            stop = int(min(begun + ROUND, last))
            arguments = ["--child", str(begun), str(stop), str(progress), "--seed", str(seed), "--finds", str(finds)]
            arguments += ["--minutes", str((end - time.monotonic()) / 60)]
            environment = {"MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "TMPDIR": scratch}
            progress.unlink(missing_ok=True)
            child = subprocess.Popen(
                [sys.executable, __file__, *arguments, "--only", ",".join(only)], env={**os.environ, **environment}
            )
            killed = wait_for(child, progress)
            if not progress.exists():
                raise SystemExit("The process ended before the first case: a sound input is not read.")
            case, name, counts = json.loads(progress.read_text())
            totals.update(counts)
            begun = stop
            if case is not None:
                what = f"no new case for {HANG:.0f} s" if killed else f"the process ended with {child.returncode}"
                save_find(finds, seed, case, name, None, f"{what}\n")
                totals[f"{name}: {FAILED}"] += 1
                begun = case + 1
            print(summed_up(totals, time.monotonic() - began), flush=True)
    print(f"\n{'target':<32}" + "".join(f"{outcome:>12}" for outcome in OUTCOMES))
    for name in only:
        print(f"{name:<32}" + "".join(f"{totals[f'{name}: {outcome}']:>12,}" for outcome in OUTCOMES))
    print(summed_up(totals, time.monotonic() - began))
    return failures(totals)


def failures(totals: Counter[str]) -> int:
    return sum(count for key, count in totals.items() if key.endswith(FAILED))


def summed_up(totals: Counter[str], seconds: float) -> str:
    rate = totals.total() / max(seconds, 1e-9)
    return f"{totals.total():,} inputs in {seconds:,.0f} s ({rate:,.0f} per second), {failures(totals)} failed"


def wait_for(child: subprocess.Popen[bytes], progress: Path) -> bool:
    """Waits for a process, and kills it where it makes no progress; returns whether it did."""
    seen, since = "", time.monotonic()
    while child.poll() is None:
        time.sleep(0.2)
        now = progress.read_text() if progress.exists() else ""
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > HANG * (1 if seen else 5):
            child.send_signal(signal.SIGKILL)
            child.wait()
            return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="at most so long; an hour where no --inputs are given")
    parser.add_argument("--inputs", type=int, help="so many; without it, as many as the time allows")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="targets, with commas between them")
    parser.add_argument("--finds", default="fuzz-finds", help="folder of inputs that failed")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--child", nargs=3, metavar=("FIRST", "STOP", "PROGRESS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.list:
        print("\n".join(targets()))
        return
    only = given.only.split(",") if given.only else list(targets())
    minutes = given.minutes or (60.0 if given.inputs is None else math.inf)
    if given.child:
        first, stop, progress = given.child
        attack(given.seed, range(int(first), int(stop)), minutes, only, Path(progress), Path(given.finds))
        return
    failed = campaign(given.seed, given.first, given.inputs, minutes, only, Path(given.finds))
    raise SystemExit(f"{failed} inputs failed; they are in {given.finds}." if failed else 0)


if __name__ == "__main__":
    main()
