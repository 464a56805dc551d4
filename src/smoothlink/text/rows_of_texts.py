"""Raw-text files as rows of a text model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from smoothlink.data.read import Data
from smoothlink.errors import plural
from smoothlink.text.documents import Documents, from_meta, read_documents
from smoothlink.text.label_names import read_labels

if TYPE_CHECKING:
    from smoothlink.data.matching import Reading
    from smoothlink.text.classifier import TextSmoothLink


def text_data(
    model: TextSmoothLink, path: str, how: Reading, *, labels_matter: bool = True, note: Callable[[str], None]
) -> Data:
    """The documents of a file by the model's features, their labels by its names; all rows stay, in their order."""
    source = how.source(path, from_meta(model.source_))
    found = read_documents(path, source, labels_matter=labels_matter)
    note(told(path, found, labels_matter=labels_matter, without_text="which get the labels' frequencies"))
    given = read_labels(found.labels, model.classes_.tolist())
    return Data(model.features_.transform(found.texts), given.Y, given.names, None)


def told(
    path: str,
    found: Documents,
    *,
    labels_matter: bool = True,
    without_text: str = "left out",
    without_labels: str = "kept",
) -> str:
    """How many documents a file has, how many lack something, what is done with those, and how labels were read."""
    parts = [f"{path}: {plural(len(found.texts), 'document')}"]
    if found.without_text:
        parts.append(f"{found.without_text:,} without text, {without_text}")
    if labels_matter and found.without_labels:
        parts.append(f"{found.without_labels:,} without labels, {without_labels}")
    return " ".join(["; ".join(parts) + ".", *found.notes])
