"""Texts for `train` and `tune`: options of the features, documents from files, a fitted text model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from smoothlink.cli.screen import Screen
from smoothlink.data.matching import Reading
from smoothlink.errors import DataError

if TYPE_CHECKING:
    from smoothlink.text.classifier import TextSmoothLink
    from smoothlink.text.documents import Documents, DocumentSource

TEXT_PANEL = "Features of texts"


class Texts(NamedTuple):
    """What was asked of texts."""

    options: dict[str, Any]  # parameters of TextFeatures, and examples
    drop_unlabelled: bool

    @property
    def given(self) -> list[str]:
        """The options that were typed."""
        names = [f"--{name.replace('_', '-')}" for name in self.options]
        return [*names, *(["--drop-unlabelled"] if self.drop_unlabelled else [])]


def option(*names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, rich_help_panel=TEXT_PANEL, **more)


def texts(
    *,
    word_ngrams: Annotated[
        str | None, option(metavar="A,B|none", help="Word n-grams of length A to B are features; none: no words.")
    ] = None,
    char_ngrams: Annotated[
        str | None,
        option(
            metavar="A,B|none",
            help="Character n-grams of length A to B within words are features; none: no characters.",
        ),
    ] = None,
    min_df: Annotated[
        int | None, option(min=1, metavar="N", help="Least number of documents that a feature must be in.")
    ] = None,
    max_features: Annotated[
        int | None,
        option(min=1, metavar="N", help="Number of most frequent features that are kept, of words and of characters."),
    ] = None,
    hashing: Annotated[
        int | None, option(min=1, metavar="N", help="Hash features to N columns, without a vocabulary: 262144.")
    ] = None,
    token_pattern: Annotated[
        str | None,
        option(metavar="REGEX", help="Regular expression for a word; without it, two or more letters or digits."),
    ] = None,
    strip_accents: Annotated[str | None, option(metavar="unicode|ascii", help="Remove accents from letters.")] = None,
    lowercase: Annotated[
        bool | None,
        option("--lowercase/--keep-case", help="Whether texts are converted to lower case, which is the default."),
    ] = None,
    examples: Annotated[
        int | None,
        option(
            min=0, metavar="N", help="Number of short training texts that the model keeps as examples; 8 without it."
        ),
    ] = None,
    drop_unlabelled: Annotated[
        bool, option("--drop-unlabelled", help="Leave documents without labels out of training.")
    ] = False,
) -> Texts:
    """The options of texts."""
    given: dict[str, Any] = {
        "word_ngrams": span("--word-ngrams", word_ngrams),
        "char_ngrams": span("--char-ngrams", char_ngrams),
        "min_df": min_df,
        "max_features": max_features,
        "hashing": hashing,
        "token_pattern": token_pattern,
        "strip_accents": strip_accents,
        "lowercase": lowercase,
        "examples": examples,
    }
    if strip_accents not in (None, "unicode", "ascii"):
        raise typer.BadParameter(f"{strip_accents!r} is none of unicode|ascii.", param_hint="--strip-accents")
    chosen = {name: value for name, value in given.items() if value is not None}
    return Texts({name: None if value == "none" else value for name, value in chosen.items()}, drop_unlabelled)


def span(name: str, text: str | None) -> tuple[int, int] | str | None:
    """A pair of lengths; "none"; None where nothing was typed."""
    if text is None or text == "none":
        return text
    parts = text.split(",")
    if len(parts) > 2 or not all(part.strip().isdecimal() for part in parts):
        raise typer.BadParameter(f"{text!r} is neither none nor two lengths such as 1,2.", param_hint=name)
    return int(parts[0]), int(parts[-1])


def hold_texts(paths: list[str], how: Reading, asked: Texts) -> bool:
    """Whether the files hold texts, all of them or none."""
    kinds = [how.text_format(path) is not None for path in paths]
    if any(kinds) and not all(kinds):
        raise DataError(
            f"{paths[kinds.index(True)]} holds texts, and {paths[kinds.index(False)]} feature vectors.\n"
            "Pass files of one kind."
        )
    if not any(kinds):
        extra = [*(["--text"] if how.text else []), *asked.given]
        if extra:
            raise DataError(f"{paths[0]} holds feature vectors, and {extra[0]} is for texts.\nLeave it out.")
    return all(kinds)


def read_texts(
    paths: list[str],
    how: Reading,
    asked: Texts,
    screen: Screen,
    groups: str | None = None,
    trained: DocumentSource | None = None,
) -> tuple[Documents, DocumentSource]:
    """The documents of files that can be learnt from, with their groups, and a note on the others; trained: the columns
    that a model remembers, where the options name none."""
    from smoothlink.text.documents import column_of, describe, join_documents, read_documents

    found: list[Documents] = []
    fate = "left out" if asked.drop_unlabelled else "kept as rows that have none (--drop-unlabelled leaves them out)"
    for path in paths:
        source = how.source(path, trained)
        if found and source.separator is None:  # one guess for all files
            source = source._replace(separator=found[-1].separator)
        with screen.working(f"reading {os.path.basename(path)}"):
            documents = read_documents(path, source)
            if groups is not None:
                documents = documents._replace(groups=column_of(path, source, groups))
        screen.note(describe(path, documents, without_labels=fate))
        found.append(documents.usable(drop_unlabelled=asked.drop_unlabelled))
    whole = join_documents(found)
    if not whole.texts:
        raise DataError(f"{paths[0]} has no document with text to learn from.\nName its columns with --text.")
    return whole, whole.source


def fit_texts(
    found: Documents, source: DocumentSource, asked: Texts, parameters: dict[str, Any], screen: Screen
) -> TextSmoothLink:
    """A text model of documents, its steps shown."""
    from smoothlink.text.classifier import TextSmoothLink
    from smoothlink.text.documents import as_meta
    from smoothlink.text.label_cells import NONE

    model = TextSmoothLink(label_separator=NONE, **asked.options, **parameters)  # labels are lists by now
    with screen.steps() as notify:
        model._notify, model._note = None if model.verbose else notify, None if model.verbose else screen.note
        model.fit(found.texts, found.labels, groups=found.groups)
    del model._notify, model._note
    model.label_separator, model.source_ = source.separator or "auto", as_meta(source)
    return model
