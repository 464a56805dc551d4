"""`smoothlink info`: what a data file or a model file holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import read_data, reading
from smoothlink.cli.screen import Screen, facts, number, plain_text, print_json, size, table
from smoothlink.cli.shared_options import AsJson, Quiet, grouped
from smoothlink.cli.train_command import show as show_summary
from smoothlink.data.matching import Reading, inside, label_names
from smoothlink.errors import plural
from smoothlink.parameters import PARAMETERS

if TYPE_CHECKING:
    from smoothlink.data.read import Data

MOST = 10  # labels shown
MATCH = "all match"


@grouped(reading=reading)
def info(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A data file or a model file.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare all of a model or data folder with its checksums.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Describe a data file or a model file.

    Example: smoothlink info train.txt.xz
    """
    screen = Screen(quiet)
    if is_model(path):
        found = model_facts(path, verify=verify)
        print_json(found) if as_json else show_model(found, screen)
    else:
        reading = reading.recognised(path)
        text = reading.text_format(path)
        found = text_facts(path, reading) if text else data_facts(path, read_rows(path, reading), reading.format)
        if verify:
            found["checksums"] = data_checksums(path)
        print_json(found) if as_json else show_data(found, screen)


def data_checksums(path: str) -> str:
    """What the checksums say of data that were read, as --verify tells it."""
    from smoothlink.data import folder as binary

    if not binary.is_folder(path):
        return "none in this format"
    return MATCH if binary.has_checksums(path) else "none, since smoothlink 0.1.0 wrote the folder"


def read_rows(path: str, how: Reading) -> Data:
    return read_data(path, how, Screen(quiet=True))


def text_facts(path: str, how: Reading) -> dict[str, Any]:
    """The same of the rows that texts become, and which columns were read."""
    from smoothlink.data.read import Data
    from smoothlink.labels import read_labels
    from smoothlink.text.documents import read_documents
    from smoothlink.text.features import TextFeatures

    source = how.source(path)
    found, features = read_documents(path, source), TextFeatures()
    given, X = read_labels(found.labels), features.fit_transform(found.texts)
    told = data_facts(path, Data(X, given.Y, given.names), source.format)
    columns = {"text_columns": list(source.columns), "labels_column": ", ".join(source.label_columns)}
    return {**told, "rows_without_text": found.without_text, **columns, "label_separator": found.separator}


def is_model(path: str) -> bool:
    """Whether the file is to be read as a model: by its name, or as safetensors files begin."""
    if path.endswith(".safetensors"):
        return True
    try:
        with open(path, "rb") as file:
            start = file.read(9)
    except OSError:  # the reader will say what is wrong
        return False
    return len(start) == 9 and start[8:] == b"{" and int.from_bytes(start[:8], "little") < os.path.getsize(path)


def data_facts(path: str, data: Data, kind: str) -> dict[str, Any]:
    """Sizes, density and the most frequent labels."""
    import numpy as np

    from smoothlink.data.folder import bytes_in
    from smoothlink.labels import is_multiclass

    (n, d), c = data.X.shape, data.Y.shape[1]
    per_row, counts = np.diff(data.Y.indptr), np.bincount(data.Y.indices, minlength=c)
    return {
        "kind": "data",
        "path": path,
        "format": kind,
        "bytes": bytes_in(path),
        "rows": n,
        "features": d,
        "labels": c,
        "values": int(data.X.nnz),
        "density": data.X.nnz / max(1, n * d),
        "values_per_row": data.X.nnz / max(1, n),
        "labels_per_row": data.Y.nnz / max(1, n),
        "most_labels_per_row": int(per_row.max(initial=0)),
        "rows_without_labels": int((per_row == 0).sum()),
        "rows_without_features": int((np.diff(data.X.indptr) == 0).sum()),
        "labels_without_rows": int((counts == 0).sum()),
        "task": "multiclass" if n and is_multiclass(data.Y) else "multilabel",
        "label_names": data.label_names is not None,
        "feature_names": data.feature_names is not None,
        "most_frequent_labels": most_frequent(counts, data.label_names or list(range(c))),
    }


def most_frequent(counts: Any, names: list[Any]) -> list[dict[str, Any]]:
    import numpy as np

    best = np.argsort(-counts, kind="stable")[:MOST]
    return [{"label": names[j], "rows": number_of_rows(counts[j])} for j in best.tolist() if counts[j] > 0]


def number_of_rows(count: Any) -> int | float:
    """Counts are whole unless rows have weights."""
    return int(count) if float(count).is_integer() else float(count)


def model_facts(path: str, *, verify: bool = False) -> dict[str, Any]:
    """What a model file says of itself."""
    from smoothlink.modelfile import load
    from smoothlink.safetensors_file import load as load_file

    whole, versions = load(path, verify="now" if verify else "never"), load_file(path).versions
    model = inside(whole)
    defaults = {p.name: p.default for p in PARAMETERS}
    given = {k: v for k, v in model.get_params(deep=False).items() if k in defaults and v != defaults[k]}
    return {
        "kind": "model",
        "path": path,
        "bytes": os.path.getsize(path),
        "versions": versions,
        "parameters": {
            name: v if isinstance(v, (int, float, str, type(None))) else str(v) for name, v in given.items()
        },
        "summary": model.summary_,
        "label_names": model.label_names_ is not None or not model._indicator,
        "feature_names": hasattr(model, "feature_names_in_"),
        "most_frequent_labels": most_frequent(model.model_.counts, label_names(model)),
        "text": None if whole is model else text_section(whole),
        **({"checksums": MATCH} if verify else {}),
    }


def text_section(model: Any) -> dict[str, Any]:
    """What a text model says of its features."""
    features = model.features_
    blocks = [{"kind": b.kind, "ngrams": list(b.ngrams), "features": b.width} for b in features.blocks_]
    return {"blocks": blocks, "hashing": features.hashing, "examples": len(model.examples_), "source": model.source_}


def text_words(section: dict[str, Any]) -> str:
    """The same in words."""
    kinds = [
        f"{number(b['features'])} runs of {b['ngrams'][0]} to {b['ngrams'][1]} {b['kind']}" for b in section["blocks"]
    ]
    hashed = ", hashed" if section["hashing"] is not None else ""
    return f"{', '.join(kinds)}{hashed}; {plural(section['examples'], 'example')}"


def show_data(found: dict[str, Any], screen: Screen) -> None:
    density = f"{100 * found['density']:.3g} %, {number(found['values_per_row'])} values per row"
    per_row_text = f"{number(found['labels_per_row'])}, at most {number(found['most_labels_per_row'])}"
    names = " and ".join(f"{noun}s" for noun in ("label", "feature") if found[f"{noun}_names"])
    pairs = [
        ("format", f"{found['format']}, {size(found['bytes'])}"),
        ("rows", number(found["rows"])),
        ("features", number(found["features"])),
        ("labels", number(found["labels"])),
        ("density", density),
        ("labels per row", per_row_text),
        ("task", found["task"]),
        *((name.replace("_", " "), number(found[name])) for name in found if "_without_" in name),
        ("names", f"of {names}" if names else "none"),
        *([("columns", columns_of(found))] if "text_columns" in found else []),
        *([("checksums", found["checksums"])] if "checksums" in found else []),
    ]
    screen.out.print()
    screen.out.print(facts(found["path"], pairs))
    show_labels(found, screen)


def columns_of(found: dict[str, Any]) -> str:
    """Which columns hold what."""
    mark = found["label_separator"]
    apart = {None: "", "none": ", one label a cell", "list": ", as lists"}.get(mark, f", separated by {mark!r}")
    return f"text in {', '.join(found['text_columns'])}, labels in {found['labels_column']}{apart}"


def show_model(found: dict[str, Any], screen: Screen) -> None:
    given = ", ".join(f"{name}={value!r}" for name, value in found["parameters"].items())
    versions = ", ".join(f"{name} {version}" for name, version in sorted(found["versions"].items(), reverse=True))
    pairs = [
        ("size", size(found["bytes"])),
        ("written by", versions),
        ("parameters", given or "all at their defaults"),
        *([] if found["text"] is None else [("texts", text_words(found["text"]))]),
        *([("checksums", found["checksums"])] if "checksums" in found else []),
    ]
    screen.out.print()
    screen.out.print(facts(found["path"], pairs))
    show_summary(found["summary"], screen)
    show_labels(found, screen)


def show_labels(found: dict[str, Any], screen: Screen) -> None:
    """The most frequent labels."""
    shown = table("most frequent labels", ">rows")
    for entry in found["most_frequent_labels"]:
        shown.add_row(plain_text(str(entry["label"])), number(entry["rows"]))
    screen.out.print(shown)
