"""Labels that people corrected, appended to a file in the folder of `serve --store`, which `train` takes as it is."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from smoothlink.data.atomic import append_line
from smoothlink.errors import DataError
from smoothlink.serve.schema import CorrectionRequest, RefusedRequest

FILE = "corrections.jsonl"


def check_store(folder: str) -> None:
    """Makes the folder if it is missing; raises DataError where nothing can be written to it."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = Path(folder) / FILE
        if not os.access(file if file.exists() else folder, os.W_OK):
            raise PermissionError(13, "it is not writable")
    except OSError as error:
        raise DataError(f"--store {folder}: {error.strerror}.\nName a folder that you may write to.") from error


def store_correction(folder: str, correction: CorrectionRequest, model: str) -> None:
    """Appends a correction as a line of JSON, whole or not at all."""
    record = correction.model_dump(exclude={"numbers"} if correction.numbers is None else None)
    record |= {"model": model, "time": datetime.now(UTC).isoformat(timespec="seconds")}
    try:
        append_line(Path(folder) / FILE, json.dumps(record, ensure_ascii=False).encode() + b"\n")
    except OSError as error:
        reason = f"The server could not store this correction ({error.strerror}). It is still in the page."
        raise RefusedRequest(507, reason) from error
