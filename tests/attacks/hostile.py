"""What hostile files are made of, and the limits that every reader keeps on them."""

import bz2
import copy
import io
import json
import lzma
import os
import random
import resource
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

SECONDS, BYTES = 5.0, 500 << 20  # that reading or refusing a small file may take
COMPRESS = {
    "gz": lambda content: zlib.compress(content, 9, wbits=31),
    "xz": lambda content: lzma.compress(content, preset=0),
    "bz2": bz2.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 1e308, -1e308, 1e-320, 0.5, "", "x", "\ud800", "../.."),
    *("a" * 9999, [], {}, [[]], {"a": 1}, [None], [1, 2, 3], "linear", "gaussian", "nan", ["gaussian", 1e-300]),
]  # fmt: skip  # that a place in JSON may have instead of its own


def archive(entries: dict[str, bytes]) -> bytes:
    """A zip archive of these files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in entries.items():
            target.writestr(name, content)
    return made.getvalue()


def npy(header: str | bytes, body: bytes = b"") -> bytes:
    """A .npy file of version 1.0 with any header."""
    text = header if isinstance(header, bytes) else header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def npy_of(array) -> bytes:
    made = io.BytesIO()
    np.save(made, np.asarray(array))
    return made.getvalue()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the way to each value in JSON."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:5]) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*path, key))


def with_other_value(content: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Returns a copy of the content of JSON with one value that is another or missing."""
    content = json.loads(json.dumps(content))
    *way, last = rng.choice(list(places(content)))
    place: Any = content
    for key in way:
        place = place[key]
    if isinstance(place, dict) and rng.random() < 0.15:
        del place[last]
    else:
        place[last] = copy.deepcopy(rng.choice(VALUES))
    return content


def memory_folder() -> str | None:
    """Returns a folder whose files are in memory, where there is one: small files come and go much faster there."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextmanager
def limited(seconds: float = SECONDS, size: int = BYTES):
    """No more bytes than these can be allocated inside (on Linux), nor more seconds of the processor be taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if os.path.exists("/proc/self/statm"):
        now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (now + size, hard))
    began = time.process_time()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert time.process_time() - began < seconds
