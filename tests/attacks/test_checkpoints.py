"""A damaged state of a fit is refused in words, or is what was saved."""

import json

import numpy as np
import pytest

from smoothlink.fitting.checkpoint import FIT, FitState, check_same_fit


@pytest.fixture
def saved(tmp_path):
    state = FitState(folder=tmp_path, saves=True)
    state.save("x", {"rows": 3}, total0=np.arange(5.0), total1=np.ones((2, 3), np.float32))
    return state


def test_a_changed_or_missing_byte_of_a_state_is_found_or_harmless(saved):
    path = saved.folder / "x.npz"
    whole, changes, fine = path.read_bytes(), 0, 0
    for place in range(0, len(whole), 2):
        damage = bytes([whole[place] ^ 1 << place // 2 % 8]) if place % 6 else b""
        path.write_bytes(whole[:place] + damage + whole[place + 1 :])
        changes += 1
        try:
            meta, arrays = saved.load("x")
        except ValueError as error:
            fine += "x.npz is damaged" in str(error)
            continue
        fine += 1
        assert meta == {"rows": 3}
        assert arrays.keys() == {"total0", "total1"}
        np.testing.assert_array_equal(arrays["total0"], np.arange(5.0))
        np.testing.assert_array_equal(arrays["total1"], np.ones((2, 3)))
    assert fine == changes


@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"\xff", b"[]", b"7", b"{", b'{"rows": NaN}'])
def test_what_a_checkpoint_says_of_its_fit_is_read_or_refused(tmp_path, content):
    (tmp_path / FIT).write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot be read|is of another fit"):
        check_same_fit(tmp_path, {"rows": 3})


def test_a_folder_in_place_of_the_description_is_refused(tmp_path):
    (tmp_path / FIT).mkdir()
    with pytest.raises(ValueError, match="cannot be read"):
        check_same_fit(tmp_path, {"rows": 3})


def test_a_state_of_other_arrays_is_refused(saved):
    text = np.frombuffer(json.dumps({"meta": {}, "arrays": ["a"]}).encode(), np.uint8)
    np.savez(saved.folder / "x.npz", meta=text, b=np.zeros(3))
    with pytest.raises(ValueError, match="not those that were saved"):
        saved.load("x")


def test_a_compressed_state_is_refused_before_it_is_unpacked(saved):
    text = np.frombuffer(json.dumps({"meta": {}, "arrays": ["a"]}).encode(), np.uint8)
    np.savez_compressed(saved.folder / "x.npz", meta=text, a=np.zeros(1000))
    with pytest.raises(ValueError, match="it is compressed"):
        saved.load("x")
