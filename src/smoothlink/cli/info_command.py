"""`smoothlink info`: what a data file or a model file holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothlink.cli.data_options import read_data, reading
from smoothlink.cli.screen import Screen, facts, number, plain_text, print_json, size, table
from smoothlink.cli.shared_options import AsJson, Naming, Quiet, grouped, naming
from smoothlink.cli.train_command import show as show_summary
from smoothlink.data.matching import Reading, inside, label_names
from smoothlink.errors import DataError, plural, printable
from smoothlink.parameters import PARAMETERS

if TYPE_CHECKING:
    from smoothlink.data.read import Data
    from smoothlink.estimator import SmoothLinkClassifier
    from smoothlink.vocabulary import Vocabulary

MOST = 10  # labels shown
MATCH = "all match"


@grouped(reading=reading, names=naming)
def info(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A data file or a model file.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare all of a model or data folder with its checksums.")
    ] = False,
    card: Annotated[
        bool, typer.Option("--card", help="Print the card of a model as Markdown: data, figures, settings, limits.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
    names: Naming,
) -> None:
    """Describe a data file or a model file.

    Example: smoothlink info train.txt.xz
    """
    screen = Screen(quiet)
    if card:
        if not is_model(path):
            raise DataError(f"{path} is not a model, and --card describes one.\nName a file that `train` wrote.")
        typer.echo(printable(markdown_card(path)), nl=False)
    elif is_model(path):
        found = model_facts(path, names, screen, verify=verify)
        print_json(found) if as_json else show_model(found, screen)
    else:
        if names.given:
            raise DataError(f"{path} holds data, and --vocabulary and --language are for models.\nLeave them out.")
        reading = reading.recognised(path)
        text = reading.text_format(path)
        found = text_facts(path, reading) if text else data_facts(path, read_rows(path, reading), reading.format)
        if verify:
            found["checksums"] = data_checksums(path)
        print_json(found) if as_json else show_data(found, screen)


def markdown_card(path: str) -> str:
    """Returns the card of a model file."""
    from smoothlink.modelfile import load
    from smoothlink.reports.model_card import as_markdown, model_card
    from smoothlink.safetensors_file import load as load_file

    versions = load_file(path).versions
    return as_markdown(os.path.basename(path), model_card(load(path), dict(sorted(versions.items(), reverse=True))))


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
    facts = data_facts(path, Data(X, given.Y, given.names), source.format)
    columns = {"text_columns": list(source.columns), "labels_column": ", ".join(source.label_columns)}
    return {**facts, "rows_without_text": found.without_text, **columns, "label_separator": found.separator}


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
    per_row, (labels, counts) = np.diff(data.Y.indptr), np.unique(data.Y.indices, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:MOST]
    names = [j if data.label_names is None else data.label_names[j] for j in labels[most].tolist()]
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
        "labels_without_rows": c - len(labels),
        "task": "multiclass" if n and is_multiclass(data.Y) else "multilabel",
        "label_names": data.label_names is not None,
        "feature_names": data.feature_names is not None,
        "most_frequent_labels": most_frequent(counts[most], names),
    }


def most_frequent(counts: Any, labels: list[Any], vocabulary: Vocabulary | None = None) -> list[dict[str, Any]]:
    import numpy as np

    best = np.argsort(-counts, kind="stable")[:MOST]
    found = [{"label": labels[j], "rows": number_of_rows(counts[j])} for j in best.tolist() if counts[j] > 0]
    if vocabulary is None:
        return found
    return [{**one, "name": vocabulary.name(one["label"])} for one in found]


def vocabulary_section(model: SmoothLinkClassifier) -> dict[str, Any]:
    """What is known of the names of a model's labels."""
    from smoothlink.vocabulary import to_meta

    vocabulary, labels = model.vocabulary_, label_names(model)
    assert vocabulary is not None
    return {
        **to_meta(vocabulary),
        "concepts": len(vocabulary.ids),
        "missing_labels": len(vocabulary.missing(labels)),
        "deprecated_labels": sum(map(vocabulary.deprecated, labels)),
    }


def vocabulary_words(section: dict[str, Any]) -> str:
    """The same in words."""
    languages = ", ".join(language for language in section["languages"] if language)
    return ", ".join(
        [
            f"{section['source']}: {plural(section['concepts'], 'concept')}",
            *([f"in {languages} ({section['language']} is shown)"] if languages else []),
            f"{plural(section['missing_labels'], 'label')} without a name",
            f"{section['deprecated_labels']:,} deprecated",
        ]
    )


def number_of_rows(count: Any) -> int | float:
    """Counts are whole unless rows have weights."""
    return int(count) if float(count).is_integer() else float(count)


def model_facts(path: str, names: Naming, screen: Screen, *, verify: bool = False) -> dict[str, Any]:
    """What a model file says of itself."""
    from smoothlink.modelfile import digest, load, stored
    from smoothlink.safetensors_file import load as load_file

    whole, loaded = names.applied(load(path, verify="now" if verify else "never"), screen), load_file(path)
    model = inside(whole)
    defaults = {p.name: p.default for p in PARAMETERS}
    given = {k: v for k, v in model.get_params(deep=False).items() if k in defaults and v != defaults[k]}
    return {
        "kind": "model",
        "path": path,
        "bytes": os.path.getsize(path),
        "one_row_bytes": model.model_.candidate_search.nbytes,
        "versions": loaded.versions,
        "stored": stored(loaded),
        "parameters": {
            name: v if isinstance(v, (int, float, str, type(None))) else str(v) for name, v in given.items()
        },
        "summary": model.summary_,
        "label_names": model.label_names_ is not None or not model._indicator,
        "feature_names": hasattr(model, "feature_names_in_"),
        "vocabulary": None if model.vocabulary_ is None else vocabulary_section(model),
        "most_frequent_labels": most_frequent(model.model_.counts, label_names(model), model.vocabulary_),
        "text": None if whole is model else text_section(whole),
        "sums": sums_section(model),
        **({"checksums": MATCH, "digest": digest(path)} if verify else {}),
    }


def stored_words(section: dict[str, Any]) -> str:
    """How weights are stored, in words."""
    parts = [f"{name} {dtype} {size(count)}" for name, (dtype, count) in section["arrays"].items()]
    drawn = ["random features from a seed"] if section["drawn"] else []
    return f"{section['dtype']}: {', '.join([*parts, *drawn])}"


def sums_section(model: SmoothLinkClassifier) -> dict[str, Any] | None:
    """Where the sums are that updates need, and how large; None where there are none."""
    from smoothlink.living.store import StoredSums

    if not isinstance(model._living, StoredSums):
        return None
    path, generation, _ = model._living
    return {"path": str(path), "generation": generation, "bytes": path.stat().st_size if path.exists() else None}


def sums_words(section: dict[str, Any]) -> str:
    """The same in words."""
    found = "missing: it cannot be updated" if section["bytes"] is None else size(section["bytes"])
    return f"{os.path.basename(section['path'])}, {found}"


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
        ("weights", stored_words(found["stored"])),
        *([("search of one row", f"{size(found['one_row_bytes'])} of memory")] if found["one_row_bytes"] else []),
        ("written by", versions),
        ("parameters", given or "all at their defaults"),
        *([] if found["text"] is None else [("texts", text_words(found["text"]))]),
        *([] if found["vocabulary"] is None else [("vocabulary", vocabulary_words(found["vocabulary"]))]),
        *([] if found["sums"] is None else [("sums for updates", sums_words(found["sums"]))]),
        *([("checksums", found["checksums"]), ("digest", found["digest"])] if "checksums" in found else []),
    ]
    screen.out.print()
    screen.out.print(facts(found["path"], pairs))
    show_summary(found["summary"], screen)
    show_labels(found, screen)


def show_labels(found: dict[str, Any], screen: Screen) -> None:
    """The most frequent labels."""
    shown = table("most frequent labels", ">rows")
    for entry in found["most_frequent_labels"]:
        name = entry.get("name", entry["label"])
        behind = "" if name == entry["label"] else f" <{entry['label']}>"
        shown.add_row(plain_text(f"{name}{behind}"), number(entry["rows"]))
    screen.out.print(shown)
