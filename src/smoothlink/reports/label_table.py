"""One table of all labels: how often each is true and predicted, precision, recall, F1; for the page and as CSV."""

from __future__ import annotations

import csv
import io
import json
import os
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from smoothlink.data.files_on_disk import replacing
from smoothlink.reports.measurements import LabelCounts, Measured

Array = NDArray[Any]

# By column: what its heading is on the page, and whether it is a name, a count or a share.
COLUMNS = {
    "label": ("label", "name"),
    "name": ("name", "name"),
    "training_rows": ("in training", "count"),
    "support": ("true", "count"),
    "predicted": ("predicted", "count"),
    "precision": ("precision %", "share"),
    "recall": ("recall %", "share"),
    "f1": ("F1 %", "share"),
    "threshold": ("threshold %", "share"),
    "average_probability": ("average probability %", "share"),
}


def label_table(m: Measured) -> dict[str, list[Any]]:
    """Returns the columns of the table, a value for each label; None where nothing is true, or nothing predicted."""
    c: LabelCounts = m.counts
    labels = [str(label) for label in m.labels]
    return {
        "label": labels,
        **({} if m.names == labels else {"name": m.names}),
        "training_rows": [round(count) for count in c.train.tolist()],
        "support": c.true.tolist(),
        "predicted": c.sets.tolist(),
        "precision": quotients(c.hits, c.sets),
        "recall": quotients(c.hits, c.true),
        "f1": quotients(2 * c.hits, c.sets + c.true),
        "threshold": [None if one is None else round(one, 6) for one in m.set_thresholds],
        "average_probability": [round(value, 8) for value in (c.expected / max(1, m.n)).tolist()],
    }


def quotients(top: Array, bottom: Array) -> list[float | None]:
    """Returns top / bottom to six decimals, None where that is 0/0."""
    values = np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0)
    return [None if value != value else round(value, 6) for value in values.tolist()]


def as_json(columns: dict[str, list[Any]]) -> Markup:
    """Returns the table as the script of the page reads it; no name in it can end the element that holds it."""
    text = json.dumps(
        {"columns": {name: COLUMNS[name] for name in columns}, "values": columns},
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return Markup(text.replace("<", "\\u003c"))


def save_csv(path: str | os.PathLike[str], columns: dict[str, list[Any]]) -> None:
    """Writes the table as CSV, a line for each label; the file appears when it is complete."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    with replacing(os.fspath(path)) as file:
        file.write(text.getvalue().encode("utf-8", "replace"))
