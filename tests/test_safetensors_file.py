"""Model files: what was saved is loaded, and a damaged file is refused in words, never with a stray exception."""

import json
import os
import pickle
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import save_file

from smoothlink import safetensors_file as module
from smoothlink.errors import ModelFileError
from smoothlink.safetensors_file import load, pack_names, save, unpack_names

TYPES = ["f2", "f4", "f8", ">f4", "i1", "i2", "i4", "i8", "u1", "?"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
NAMES = st.text(st.characters(max_codepoint=127), min_size=1, max_size=6).filter(lambda name: name != "__metadata__")
ARRAYS = st.dictionaries(NAMES, st.sampled_from(TYPES).flatmap(lambda t: hnp.arrays(t, SHAPES)), max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
META = st.dictionaries(st.text(max_size=5), JSON, max_size=3)
SAME_FOLDER = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)

SMALL_MODEL = {"W": np.arange(6, dtype=np.float32).reshape(2, 3), "A": np.array([True, False]), "k": np.array(3)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.safetensors"


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(module.os, "fsync", lambda handle: None)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found[name], array)
        assert found[name].shape == array.shape


# What was saved is loaded


@given(arrays=ARRAYS, meta=META, mmap=st.booleans())
@SAME_FOLDER
def test_what_was_saved_is_loaded(path, arrays, meta, mmap):
    save(path, arrays, meta)
    loaded = load(path, mmap=mmap, verify=True)
    assert_same(loaded.arrays, arrays)
    assert loaded.meta == meta
    assert loaded.versions["numpy"] == np.__version__
    assert "smoothlink" in loaded.versions


@given(arrays=ARRAYS)
@SAME_FOLDER
def test_the_safetensors_library_reads_the_same_arrays(path, arrays):
    save(path, arrays, {"a": 1})
    with safe_open(path, framework="numpy") as file:
        assert_same({name: file.get_tensor(name) for name in file.keys()}, arrays)  # noqa: SIM118
        assert json.loads(file.metadata()["smoothlink"])["format_version"] == 10


def test_mapped_arrays_are_read_only_views_of_the_file_and_others_are_not(path):
    save(path, SMALL_MODEL, {})
    mapped, read = load(path), load(path, mmap=False)
    assert not any(array.flags.writeable for array in mapped.arrays.values())
    assert all(array.flags.writeable for array in read.arrays.values())
    assert all(type(array) is np.ndarray and array.flags.aligned for array in mapped.arrays.values())
    save(path, {"W": np.zeros(1)}, {})  # the old mapping keeps its own content
    assert_same(mapped.arrays, SMALL_MODEL)


def test_any_memory_layout_is_saved_as_its_values(path):
    W = np.arange(24.0).reshape(2, 3, 4)
    views = {"transposed": W.T, "every second": W[:, :, ::2], "reversed": W[::-1], "fortran": np.asfortranarray(W[0])}
    save(path, views, {"pair": (1, 2)})
    loaded = load(path)
    assert_same(loaded.arrays, views)
    assert loaded.meta == {"pair": [1, 2]}  # JSON has no tuples


def test_the_same_model_makes_the_same_bytes_in_any_order_of_names(path):
    save(path, SMALL_MODEL, {"b": 1, "a": 2})
    before = path.read_bytes()
    save(path, dict(reversed(SMALL_MODEL.items())), {"a": 2, "b": 1})
    assert path.read_bytes() == before


@given(st.lists(st.text(max_size=6), max_size=8))
def test_packed_names_unpack_to_themselves(names):
    packed = pack_names(names, "labels")
    assert sorted(packed) == ["labels_zlib"]
    assert unpack_names(packed, "labels") == names


def zlib_names(raw):
    return {"names_zlib": np.frombuffer(zlib.compress(raw), np.uint8)}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "cannot be decompressed"),
        (b"\1\0\0\0", "lengths"),
        (b"\1\0\0\0\2\0\0\0a", "lengths"),
        (b"\1\0\0\0\1\0\0\0ab", "lengths"),
        (b"\xff\xff\xff\xff\1\0\0\0a", "lengths"),
        (b"\2\0\0\0\xff\xff\xff\xff\2\0\0\0a", "lengths"),
        (b"\1\0\0\0\1\0\0\0\xff", "not UTF-8"),
        (b"\0" * 100_000, "cannot be decompressed"),  # more than was allowed
    ],
)
def test_compressed_names_that_cannot_be_names_are_refused(raw, message):
    with pytest.raises(ModelFileError, match=message):
        unpack_names(zlib_names(raw), most=100)


def test_compressed_names_that_are_cut_or_followed_by_more_are_refused():
    packed = pack_names(["one", "two"])["names_zlib"]
    for wrong in (
        packed[:-1],
        packed[:0],
        np.append(packed, np.uint8(0)),
        packed.astype(np.int64),
        packed[None],
        packed ^ 255,
    ):
        with pytest.raises(ModelFileError, match="cannot be decompressed"):
            unpack_names({"names_zlib": wrong})


def test_names_of_files_before_0_5_that_cannot_be_names_are_refused():
    good = {"names_utf8": np.frombuffer("éb".encode(), np.uint8), "names_offsets": np.array([0, 2, 3])}
    assert unpack_names(good) == ["é", "b"]
    with pytest.raises(ModelFileError, match="not UTF-8"):
        unpack_names(good | {"names_offsets": np.array([0, 1, 3])})
    for offsets in ([0, 9], [1, 3], [0, 3, 2, 3], [], [[0, 3]], [0.0, 3.0]):
        with pytest.raises(ModelFileError, match="do not cut its 3 bytes"):
            unpack_names(good | {"names_offsets": np.array(offsets)})
    with pytest.raises(ModelFileError, match="No array 'labels_utf8'; there are: names_utf8"):
        unpack_names(good, "labels")
    with pytest.raises(ModelFileError, match="not valid Unicode"):
        pack_names(["a", "\ud800"])


# Writing is all or nothing


def test_a_failed_write_leaves_the_old_file_and_no_other(path, monkeypatch):
    save(path, SMALL_MODEL, {})

    def full_disk(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full_disk)
    with pytest.raises(ModelFileError, match="No space left"):
        save(path, {"W": np.zeros(9)}, {})
    assert os.listdir(path.parent) == [path.name]
    assert_same(load(path).arrays, SMALL_MODEL)


def test_a_link_keeps_pointing_to_the_saved_file(path, tmp_path):
    link = tmp_path / "latest"
    save(path, SMALL_MODEL, {})
    link.symlink_to(path)
    save(link, {"W": np.zeros(2)}, {})
    assert link.is_symlink()
    assert list(load(path).arrays) == ["W"]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([None, "a"]), "type object"),
        (np.array(["a"]), "type <U1"),
        (np.zeros(2, complex), "type complex128"),
        (np.zeros(2, np.uint32), "type uint32"),
        (np.zeros(2, [("a", "f4")]), "holds float16-64"),
    ],
)
def test_arrays_that_a_model_file_cannot_hold_are_refused(path, array, message):
    with pytest.raises(ModelFileError, match=message):
        save(path, {"W": array}, {})
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "__metadata__", "é"])
def test_names_that_no_array_can_have_are_refused(path, name):
    with pytest.raises(ModelFileError, match="cannot name an array"):
        save(path, {name: np.zeros(1)}, {})


@pytest.mark.parametrize("value", [np.nan, [{"a": np.inf}], {1: 2}, [{None: 2}], np.int64(3), {1, 2}, b"x"])
def test_meta_that_json_would_change_or_refuse_is_refused(path, value):
    with pytest.raises(ModelFileError, match="meta cannot be written as JSON"):
        save(path, {}, {"value": value})


def test_meta_without_end_or_too_large_is_refused(path):
    endless = []
    endless.append(endless)
    with pytest.raises(ModelFileError, match="meta cannot be written"):
        save(path, {}, {"value": endless})
    with pytest.raises(ModelFileError, match="pack_names"):
        save(path, {}, {"value": ["x" * 1000]}, max_header=1000)


def test_a_folder_and_a_missing_folder_cannot_be_written(tmp_path):
    with pytest.raises(ModelFileError, match="it is a folder"):
        save(tmp_path, {}, {})
    with pytest.raises(ModelFileError, match="does not exist"):
        save(tmp_path / "no" / "m", {}, {})


# A damaged file is refused, always with ModelFileError


def attempt(path, data, expected):
    """Loads the damaged bytes: the same content, or ModelFileError; nothing else may happen."""
    path.write_bytes(data)
    try:
        loaded = load(path, mmap=False)
    except ModelFileError:
        return
    assert_same(loaded.arrays, expected.arrays)
    assert loaded[1:] == expected[1:]


def test_any_flipped_bit_is_refused_or_changes_nothing(path):
    save(path, SMALL_MODEL, {"rank": 12, "kernel": "gaussian", "β": [0.5, None]})
    data, expected = path.read_bytes(), load(path)
    for at in range(len(data)):
        for bit in (0x01, 0x20, 0x80):
            attempt(path, data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :], expected)


@given(at=st.integers(0, 10**6), value=st.integers(0, 255))
@SAME_FOLDER
def test_any_changed_byte_is_refused_or_changes_nothing(path, at, value):
    save(path, SMALL_MODEL, {"rank": 12})
    data, expected = bytearray(path.read_bytes()), load(path)
    data[at % len(data)] = value
    attempt(path, bytes(data), expected)


def test_any_truncation_and_any_extension_is_refused_even_when_mapped(path):
    save(path, SMALL_MODEL, {"rank": 12})
    data = path.read_bytes()
    for damaged in [data[:at] for at in range(len(data))] + [data + b"\0", data + data]:
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError):
            load(path)


def test_a_large_array_is_verified_when_asked_and_a_small_one_always(path):
    save(path, {"V": np.zeros(module.VERIFIED_BYTES // 8 + 1), "W": np.zeros(3, np.float32)}, {})
    data = bytearray(path.read_bytes())
    data[-100] ^= 1  # in V
    path.write_bytes(data)
    assert load(path).arrays["V"].any()
    for options in ({"verify": True}, {"mmap": False}):
        with pytest.raises(ModelFileError, match="'V' does not match its checksum"):
            load(path, **options)
    data[-1] ^= 1  # in W
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="'W' does not match its checksum"):
        load(path)


def container(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def canonical(content):
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def forged(entries, arrays=None, data=b"", **changes):
    """A file whose checksums are right and whose content lies."""
    arrays = (
        {name: e["crc32"] if isinstance(e, dict) else 0 for name, e in entries.items()} if arrays is None else arrays
    )
    content = {"format": "smoothlink", "format_version": 6, "versions": {}, "meta": {}, "arrays": arrays} | changes
    entries = in_header(entries)
    crc = zlib.crc32(canonical(content | {"header": entries}))
    return container({"__metadata__": {"smoothlink": json.dumps(content | {"crc32": crc})}, **entries}, data)


def of_0_1(entries, arrays=None, data=b"", **changes):
    """A file as smoothlink 0.1 wrote it: the description repeats the type and the shape of each array."""
    content = {"format": "smoothlink", "format_version": 1, "versions": {}, "meta": {}, "arrays": arrays or entries}
    content |= changes
    description = json.dumps(content | {"crc32": zlib.crc32(canonical(content))})
    return container({"__metadata__": {"smoothlink": description}, **in_header(entries)}, data)


def in_header(entries):
    """What the header says of arrays: all but their checksums."""
    wanted = ("dtype", "shape", "data_offsets")
    return {n: {k: e[k] for k in wanted} if isinstance(e, dict) else e for n, e in entries.items()}


def entry(shape, begin, end, dtype="U8", **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], "crc32": 0, **more}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut short"),
        (b"1 2 3\n0,1 4:0.5\n", "not a safetensors file"),
        (pickle.dumps({"a": np.zeros(3)}), "pickle .*never opens"),
        (b"\x93NUMPY\x01\x00v\x00", "a NumPy array"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "a gzip file"),
        (container(b"[1, 2]"), "not a safetensors file"),
        (container(b"[" * 100_000), "not a safetensors file"),
        (container({}), "not a smoothlink model"),
        (container({"__metadata__": []}), "not a smoothlink model"),
        (container({"__metadata__": {"smoothlink": "{"}}), "cannot be read"),
        (container({"__metadata__": {"smoothlink": 3}}), "cannot be read"),
        (container({"__metadata__": {"smoothlink": "[1]"}}), "cannot be read"),
        (container({"__metadata__": {"smoothlink": '{"format": "x", "format_version": 1}'}}), "cannot be read"),
        (container({"__metadata__": {"smoothlink": '{"format": "smoothlink", "format_version": 1}'}}), "checksum"),
        (forged({}, format_version=11), r"format 11; .* reads up to 10\.\nType: pip install --upgrade"),
        (forged({}, format_version="1"), "cannot be read"),
        (forged({}, meta=float("nan")), "cannot be read"),
        (forged({}, meta=[]), "checksum"),
        (forged({"a": entry([2], 0, 2)}, {"b": 0}, b"\0\0"), "not those of its description"),
        (forged({"a": entry([2], 0, 2)}, {"a": [1]}, b"\0\0"), "does not match its checksum"),
        (of_0_1({"a": entry([2], 0, 2)}, {"b": entry([2], 0, 2)}, b"\0\0"), "not those of its description"),
        (of_0_1({"a": entry([2], 0, 2)}, {"b": 7}, b"\0\0"), "'b' does not match its description"),
        (of_0_1({"a": entry([2], 0, 2)}, {"a": entry([1, 2], 0, 2)}, b"\0\0"), "'a' does not match its description"),
        (of_0_1({"a": entry([2], 0, 2, "I8")}, {"a": entry([2], 0, 2)}, b"\0\0"), "'a' does not match its description"),
        (of_0_1({"a": entry([2], 0, 2)}, {"a": [1]}, b"\0\0"), "'a' does not match its description"),
        (of_0_1({"a": entry([2], 0, 2, crc32=5)}, data=b"\0\0"), "'a' does not match its checksum"),
        (of_0_1({}, meta=[]), "checksum"),
        (forged({"a": entry([3], 0, 2)}, data=b"\0\0"), "'a' makes no array"),
        (forged({"a": entry([2.0], 0, 2)}, data=b"\0\0"), "'a' makes no array"),
        (forged({"a": entry([-1, -2], 0, 2)}, data=b"\0\0"), "'a' makes no array"),
        (forged({"a": entry([2], 0, 2, "BF16")}, data=b"\0\0"), "'a' makes no array"),
        (forged({"a": 7}, data=b"\0\0"), "'a' makes no array"),
        (forged({"a": entry([2], 1, 3)}, data=b"\0\0\0"), "do not fill"),
        (forged({"a": entry([9], 0, 9)}, data=b"\0\0"), "do not fill"),
        (forged({"a": entry([2], 0, 2), "b": entry([2], 1, 3)}, data=b"\0\0\0"), "do not fill"),
        (forged({"a": entry([2], 0, 2, crc32=5)}, data=b"\0\0"), "'a' does not match its checksum"),
        (forged({"a": entry([1], 0, 1, "BOOL", crc32=zlib.crc32(b"\2"))}, data=b"\2"), "checksum"),
        (forged({"a": entry([2**70, 0], 0, 0)}), "no possible shape"),
        (forged({"a": entry([0] * 99, 0, 0)}), "no possible shape"),
    ],
)
def test_files_that_are_not_models_are_refused_in_words(path, data, message):
    path.write_bytes(data)
    for mmap in (True, False):
        with pytest.raises(ModelFileError, match=message):
            load(path, mmap=mmap)


@pytest.mark.parametrize("written", [forged, of_0_1])
def test_a_forged_file_with_honest_content_and_one_of_0_1_are_loaded(path, written):
    path.write_bytes(written({"a": entry([2], 0, 2, crc32=zlib.crc32(b"\1\2"))}, data=b"\1\2", meta={"rank": 3}))
    loaded = load(path, verify=True)
    assert loaded.arrays["a"].tolist() == [1, 2]
    assert loaded.meta == {"rank": 3}
    assert loaded.checksums == {"a": zlib.crc32(b"\1\2")}


def test_the_type_of_an_array_cannot_change_in_the_header_unnoticed(path):
    save(path, {"W": np.ones((2, 3), np.float32)}, {})
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"I32"'))
    with pytest.raises(ModelFileError, match="does not match its checksum"):
        load(path)


def test_foreign_safetensors_and_zip_files_are_refused_by_name(path):
    save_file({"W": np.zeros(3)}, path)
    with pytest.raises(ModelFileError, match="but not a smoothlink model"):
        load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(ModelFileError, match="a zip archive"):
        load(path)


def test_a_missing_file_and_a_folder_say_what_to_do(path, tmp_path, monkeypatch):
    with pytest.raises(ModelFileError, match="There is no file"):
        load(path)
    with pytest.raises(ModelFileError, match="is a folder"):
        load(tmp_path)
    save(path, {}, {})

    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module.os, "open", refuse)
    with pytest.raises(ModelFileError, match=r"Cannot read .*Permission denied"):
        load(path)
