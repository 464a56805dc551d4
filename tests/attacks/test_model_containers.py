"""Hostile safetensors files, each with its verdict: refused in words, or read as what it says.

Most of them have right checksums: whoever forges a file can compute them.
"""

import json
import os
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from smoothlink.errors import ModelFileError
from smoothlink.safetensors_file import load, save

DATA = bytes(range(24)) + np.arange(6, dtype="<f4").tobytes()
ENTRIES = {
    "a": {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]},
    "W": {"dtype": "F32", "shape": [2, 3], "data_offsets": [24, 48]},
}


def header_text(entries=ENTRIES, data=DATA, description=None, **content):
    """The header of a file with right checksums."""
    crc = {}
    for name, entry in entries.items():
        try:
            begin, end = entry["data_offsets"]
            crc[name] = zlib.crc32(data[begin:end])
        except (TypeError, ValueError, KeyError):
            crc[name] = 0
    stated = {"format": "smoothlink", "format_version": 9, "versions": {}, "meta": {}, "arrays": crc} | content
    covered = json.dumps(stated | {"header": entries}, sort_keys=True, separators=(",", ":"))
    own = json.dumps(stated | {"crc32": zlib.crc32(covered.encode())})
    metadata = {"smoothlink": own if description is None else description}
    return json.dumps({"__metadata__": metadata, **entries})


def packed(text, data=DATA):
    text = text if isinstance(text, bytes) else text.encode()
    return len(text).to_bytes(8, "little") + text + data


def changed(data=DATA, **changes):
    """A file whose entry of W has other members; None leaves one out."""
    entry = {key: value for key, value in (ENTRIES["W"] | changes).items() if value is not None}
    return packed(header_text(ENTRIES | {"W": entry}, data), data)


def replaced(old, new):
    text = header_text()
    assert old in text
    return packed(text.replace(old, new, 1))


GOOD = header_text()
ZERO = {"z": {"dtype": "U8", "shape": [0, 3], "data_offsets": [0, 0]}}
READ = {  # each holds the arrays of ENTRIES, and some more
    "as it is written": packed(GOOD),
    "padded with spaces": packed(GOOD + " " * 4),
    "space before the header": packed(" \n" + GOOD),
    "entries in another order": packed(header_text(dict(reversed(ENTRIES.items())))),
    "an empty array": packed(header_text(ENTRIES | ZERO)),
    "a name of punctuation": packed(header_text(ENTRIES | {"../../x": ZERO["z"]})),
}
NO_HEADER = "not a safetensors file, or it was cut short or damaged"
NO_ARRAY = "'W' makes no array"
NO_DESCRIPTION = "description cannot be read"
CHECKSUM = "does not match its checksum"
REFUSED = {
    "nothing": (b"", NO_HEADER),
    "seven bytes": (b"\0" * 7, NO_HEADER),
    "a header of no bytes": ((0).to_bytes(8, "little"), NO_HEADER),
    "a header of 2^64 - 1 bytes": (b"\xff" * 8 + GOOD.encode(), NO_HEADER),
    "a header of 2^63 bytes": ((1 << 63).to_bytes(8, "little") + GOOD.encode(), NO_HEADER),
    "a header longer than the file": ((1 << 20).to_bytes(8, "little") + GOOD.encode(), NO_HEADER),
    "a header cut short": (packed(GOOD[:-1]), NO_HEADER),
    "a byte order mark": (packed(b"\xef\xbb\xbf" + GOOD.encode()), NO_HEADER),
    "UTF-16": (packed(GOOD.encode("utf-16")), NO_HEADER),
    "UTF-32": (packed(GOOD.encode("utf-32")), NO_HEADER),
    "bytes that are not UTF-8": (packed(GOOD.encode().replace(b'"a"', b'"\xff"')), NO_HEADER),
    "zeros after the header": (packed(GOOD + "\0\0"), NO_HEADER),
    "two headers": (packed(GOOD + GOOD), NO_HEADER),
    "a list": (packed("[]"), NO_HEADER),
    "a number": (packed("7"), NO_HEADER),
    "no end of brackets": (packed("[" * 200_000), NO_HEADER),
    "no end of objects": (packed('{"a":' * 200_000), NO_HEADER),
    "an array twice": (packed(GOOD[:-1] + ',"W":' + json.dumps(ENTRIES["W"]) + "}"), NO_HEADER),
    "another array twice": (packed(GOOD[:-1] + ',"a":' + json.dumps(ENTRIES["W"]) + "}"), NO_HEADER),
    "metadata twice": (packed(GOOD[:-1] + ',"__metadata__":{}}'), NO_HEADER),
    "a type twice": (replaced('"dtype": "F32"', '"dtype": "U8", "dtype": "F32"'), NO_HEADER),
    "NaN": (replaced('"dtype": "F32"', '"dtype": "F32", "x": NaN'), NO_HEADER),
    "infinity": (replaced('"dtype": "F32"', '"dtype": "F32", "x": -Infinity'), NO_HEADER),
    "minus zero": (replaced("[0, 24]", "[-0, 24]"), NO_HEADER),
    "a number of 5,000 digits": (replaced("[0, 24]", f"[0, {'9' * 5000}]"), NO_HEADER),
    "a number with a leading zero": (replaced("[0, 24]", "[00, 24]"), NO_HEADER),
    "a comment": (replaced("[0, 24]", "[0, /**/ 24]"), NO_HEADER),
    "a comma too many": (replaced("[0, 24]", "[0, 24,]"), NO_HEADER),
    "a control character in a name": (packed(GOOD.replace('"a"', '"a\n"')), NO_HEADER),
    "no metadata": (packed(json.dumps(ENTRIES)), "not a smoothlink model"),
    "metadata of another program": (
        packed(json.dumps({"__metadata__": {"format": "pt"}} | ENTRIES)),
        "not a smoothlink model",
    ),
    "metadata that is a list": (packed(json.dumps({"__metadata__": ["smoothlink"]} | ENTRIES)), "not a smoothlink"),
    "more metadata": (replaced('{"__metadata__": {', '{"__metadata__": {"x": "y", '), NO_DESCRIPTION),
    "metadata that is no text": (replaced('{"__metadata__": {', '{"__metadata__": {"x": 3, '), NO_DESCRIPTION),
    "metadata with half a surrogate": (
        replaced('{"__metadata__": {', '{"__metadata__": {"\\ud800": "", '),
        NO_DESCRIPTION,
    ),
    "a description that is no JSON": (packed(header_text(description="{")), NO_DESCRIPTION),
    "a description that is null": (packed(header_text(description="null")), NO_DESCRIPTION),
    "a description without an end": (packed(header_text(description="[" * 200_000)), NO_DESCRIPTION),
    "a description with a key twice": (replaced('\\"meta\\": {}', '\\"meta\\": {}, \\"meta\\": {}'), NO_DESCRIPTION),
    "a description with NaN": (packed(header_text(meta={"x": float("nan")})), NO_DESCRIPTION),
    "a description with a number too large": (replaced('\\"meta\\": {}', '\\"meta\\": {\\"x\\": 1e999}'), CHECKSUM),
    "a description with a changed value": (replaced('\\"meta\\": {}', '\\"meta\\": {\\"x\\": 1}'), CHECKSUM),
    "a description with a mark before it": (packed(header_text(description="\ufeff{}")), NO_DESCRIPTION),
    "a version that is true": (packed(header_text(format_version=True)), NO_DESCRIPTION),
    "a version of the future": (packed(header_text(format_version=10**30)), "pip install --upgrade"),
    "no checksum of an array": (
        packed(header_text(arrays={"a": zlib.crc32(DATA[:24])})),
        "not those of its description",
    ),
    "a checksum that is null": (packed(header_text(arrays=dict.fromkeys(ENTRIES))), CHECKSUM),
    "a checksum that is a list": (packed(header_text(arrays={name: [] for name in ENTRIES})), CHECKSUM),
    "changed data": (packed(GOOD, DATA[:-1] + b"\1"), CHECKSUM),
    "data cut short": (packed(GOOD, DATA[:-1]), "do not fill"),
    "data too long": (packed(GOOD, DATA + b"\0"), "do not fill"),
    "a hole before an array": (changed(DATA + b"\0" * 8, data_offsets=[32, 56]), "do not fill"),
    "arrays over each other": (changed(DATA[:40], data_offsets=[16, 40]), "do not fill"),
    "an array before the data": (changed(data_offsets=[-24, 0]), NO_ARRAY),
    "an end before the beginning": (changed(data_offsets=[48, 24]), NO_ARRAY),
    "offsets as texts": (changed(data_offsets=["24", "48"]), NO_ARRAY),
    "offsets as floats": (changed(data_offsets=[24.0, 48.0]), NO_ARRAY),
    "one offset": (changed(data_offsets=[24]), NO_ARRAY),
    "three offsets": (changed(data_offsets=[24, 48, 48]), NO_ARRAY),
    "no offsets": (changed(data_offsets=None), NO_ARRAY),
    "a type that there is not": (changed(dtype="F33"), NO_ARRAY),
    "a type of another program": (changed(dtype="BF16", shape=[4, 3]), NO_ARRAY),
    "a type that is a list": (changed(dtype=["F32"]), NO_ARRAY),
    "a type of other bytes": (changed(dtype="F64"), NO_ARRAY),
    "no type": (changed(dtype=None), NO_ARRAY),
    "a shape of too many": (changed(shape=[3, 3]), NO_ARRAY),
    "a shape of 2^64": (changed(shape=[1 << 64]), NO_ARRAY),
    "a shape that overflows to the right size": (changed(shape=[(1 << 62) + 1, 6]), NO_ARRAY),
    "a negative shape": (changed(shape=[-2, -3]), NO_ARRAY),
    "a shape of floats": (changed(shape=[2.0, 3.0]), NO_ARRAY),
    "a shape of truth": (changed(shape=[True, 6]), NO_ARRAY),
    "a shape that is an object": (changed(DATA[:28], shape={}, data_offsets=[24, 28]), NO_ARRAY),
    "a shape that is a text": (changed(DATA[:28], shape="", data_offsets=[24, 28]), NO_ARRAY),
    "no shape": (changed(shape=None), NO_ARRAY),
    "a member too many": (changed(crc32=0), NO_ARRAY),
    "an entry that is a list": (packed(header_text(ENTRIES | {"W": [1, 2, 3]})), NO_ARRAY),
    "an entry that is null": (packed(header_text(ENTRIES | {"W": None})), NO_ARRAY),
    "a name that is not ASCII": (packed(header_text(ENTRIES | {"ß": ZERO["z"]})), "makes no array"),
    "a name of half a surrogate": (packed(header_text(ENTRIES | {"\ud800": ZERO["z"]})), "makes no array"),
    "65 dimensions": (changed(shape=[2, 3] + [1] * 63), "no possible shape"),
    "nothing times 2^70": (
        packed(header_text(ENTRIES | {"W": ZERO["z"] | {"shape": [1 << 70, 0]}}, DATA[:24]), DATA[:24]),
        ".",
    ),
    "a truth that is neither": (changed(DATA[:24] + b"\2" * 24, dtype="BOOL", shape=[24]), CHECKSUM),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.safetensors"


@pytest.mark.parametrize("name", READ)
def test_it_is_read_as_what_it_says(path, name):
    path.write_bytes(READ[name])
    for mmap in (True, False):
        arrays = load(path, mmap=mmap, verify=True).arrays
        assert arrays["a"].tobytes() + arrays["W"].tobytes() == DATA
        assert arrays["W"].shape == (2, 3)
    with safe_open(path, "np") as theirs:
        assert set(theirs.keys()) == set(arrays)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_words(path, name):
    content, message = REFUSED[name]
    path.write_bytes(content)
    for mmap in (True, False):
        with pytest.raises(ModelFileError, match=message) as raised:
            load(path, mmap=mmap)
        assert str(path) in str(raised.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(path):
    os.mkfifo(path)
    for found in (path, "/dev/null", "/dev/zero"):
        with pytest.raises(ModelFileError, match="a pipe or a device"):
            load(found)


TOKENS = [
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    " ",
    "0",
    "-",
    "1",
    "24",
    "9e9",
    "null",
    "true",
    '"W":',
    '"a":',
    "\\u0000",
    "\ufeff",
]
EDITS = st.lists(
    st.tuples(
        st.integers(0, len(GOOD) + len(DATA) + 8),
        st.sampled_from(["delete", "insert", "flip"]),
        st.sampled_from(TOKENS),
    ),
    min_size=1,
    max_size=3,
)


@given(edits=EDITS, resized=st.booleans())
@example(edits=[(len(GOOD), "insert", " ")], resized=True)
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_read_is_read_alike_by_the_safetensors_library(path, edits, resized):
    """And nothing of it is other than it was: only space may have come or gone."""
    content = bytearray(packed(GOOD))
    for place, edit, token in edits:
        if edit == "delete":
            del content[place : place + 1]
        elif edit == "insert":
            content[place:place] = token.encode()
        else:
            content[place : place + 1] = bytes(byte ^ 1 << len(token) % 8 for byte in content[place : place + 1])
    if resized:
        content[:8] = max(0, len(content) - 8 - len(DATA)).to_bytes(8, "little")
    path.write_bytes(content)
    try:
        found = load(path, mmap=False)
    except ModelFileError:
        return
    with safe_open(path, "np") as theirs:
        assert set(theirs.keys()) == set(found.arrays)
        for name, array in found.arrays.items():
            np.testing.assert_array_equal(array, theirs.get_tensor(name), strict=True)
    assert found.arrays["a"].tobytes() + found.arrays["W"].tobytes() == DATA
    assert found.meta == {}


def test_every_type_is_read_alike_by_the_safetensors_library(path):
    arrays = {
        kind: np.arange(6).astype(kind).reshape(2, 3)
        for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "?")
    }
    save(path, arrays, {})
    with safe_open(path, "np") as theirs:
        for name, array in arrays.items():
            np.testing.assert_array_equal(theirs.get_tensor(name), array, strict=True)
