"""Machines by name, the sizes of their blocks, and what is imported when."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink.errors import DeviceError
from smoothlink.machines.host_and_device import (
    HOST,
    LEAST_MEMORY_SHARE,
    MOST_ENTRIES,
    Device,
    find_machine,
    out_of_memory,
    release_memory,
    retry_with_smaller_blocks,
)

CARD = Device("cuda:0", 80 << 30)
SIZES = {
    "rows of a block": lambda m: m.block_rows(10**9, 10**9),
    "columns of a solve": lambda m: m.columns(10**6),
    "bytes of blocks": lambda m: m.block_bytes(),
    "bytes of scores": lambda m: m.scores(),
}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_blocks_shrink_with_the_share_of_the_memory_that_they_are_sized_by(size):
    whole, quarter = size(CARD), size(CARD.smaller())
    assert quarter == pytest.approx(whole / 4, rel=0.05)
    tiny = Device("cpu", 0)
    assert size(tiny) >= 0 if size is SIZES["bytes of blocks"] else size(tiny) > 0


def test_smaller_machines_end_where_blocks_would_be_of_no_use():
    machine, shares = CARD, []
    while machine is not None:
        assert (machine.name, machine.free) == (CARD.name, CARD.free)
        shares.append(machine.share)
        machine = machine.smaller()
    assert shares == [1, 1 / 4, 1 / 16, 1 / 64, 1 / 256]
    assert shares[-1] == LEAST_MEMORY_SHARE
    assert HOST.smaller() is None


def test_a_sparse_block_has_no_more_entries_than_32_bits_count():
    n = 10**6
    rows = Device("cuda:0", 1 << 50).block_rows(n, 10**4 * n)
    assert rows * 10**4 <= MOST_ENTRIES


def test_columns_are_a_multiple_of_eight_and_at_least_eight():
    assert CARD.columns(10**12) == 8
    assert CARD.columns(12_345) % 8 == 0


def test_a_machine_is_printed_by_the_name_it_is_asked_for_by():
    assert repr(HOST) == str(HOST) == "cpu"
    assert repr(CARD) == "cuda:0"
    assert str(Device("cpu", 1)) == "torch"


def test_only_a_gpu_multiplies_in_half_precision():
    assert CARD.half
    assert CARD.speed > Device("cpu", 1).speed == HOST.speed == 1
    assert not Device("cpu", 1).half
    assert Device("cpu", 1).peak_mb is None


def test_a_machine_is_found_by_itself_and_the_host_by_its_name():
    assert find_machine(CARD) is CARD
    assert find_machine(HOST) is find_machine("cpu") is HOST


@pytest.mark.parametrize("name", ["", "CUDA", "cpu:0", "cudax", " cuda", b"cuda", ["cuda"], 0.5, True])
def test_other_names_are_answered_with_those_there_are(name):
    with pytest.raises(ValueError, match=r"device is .*; possible are 'cpu' \(NumPy\), .* and 'torch'"):
        find_machine(name)


@pytest.fixture
def cards(torch, monkeypatch):
    """Two cards for torch to see; the second is the current one."""
    seen = {
        "is_available": True,
        "device_count": 2,
        "current_device": 1,
        "reset_peak_memory_stats": None,
        "memory_reserved": 300,
        "memory_allocated": 100,
        "mem_get_info": (5000, 9000),
        "max_memory_allocated": 3 << 20,
        "get_per_process_memory_fraction": 1.0,
    }
    for name, value in seen.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    return torch


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize(("name", "full"), [("cuda", "cuda:1"), ("auto", "cuda:1"), ("cuda:0", "cuda:0")])
def test_a_card_is_found_with_what_is_free_and_what_torch_keeps_in_reserve(name, full):
    found = find_machine(name)
    assert found == Device(full, 5000 + 300 - 100)
    assert found.peak_mb == 3


def test_a_card_has_no_more_free_than_torch_may_take(cards, monkeypatch):
    monkeypatch.setattr(cards.cuda, "get_per_process_memory_fraction", lambda device: 1 / 3)
    assert find_machine("cuda:0") == Device("cuda:0", 3000 - 100)


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize("name", ["cuda:7", "cuda:2", "cuda:-1", "cuda:x", "cuda:1:1"])
def test_a_card_that_is_not_there_is_answered_with_those_that_are(name):
    with pytest.raises(DeviceError, match=f"device is '{name}'; the GPUs here are 'cuda:0' to 'cuda:1'"):
        find_machine(name)


def test_memory_is_given_back_to_a_card_alone(cards, monkeypatch):
    calls = []
    monkeypatch.setattr(cards.cuda, "empty_cache", lambda: calls.append(1))
    for machine in (HOST, Device("cpu", 1), CARD):
        release_memory(machine)
    assert calls == [1]


def test_torch_says_by_the_name_of_its_error_that_memory_is_full(torch):
    assert out_of_memory(torch.cuda.OutOfMemoryError("full"))
    assert not out_of_memory(MemoryError("full"))
    assert not out_of_memory(RuntimeError("CUDA error"))


def test_named_tuples_go_to_a_device_part_by_part_and_other_things_as_they_are(machine):
    from smoothlink.steps.featurize import Features

    features = machine.to_device(Features(np.ones((2, 3), np.float32), np.zeros(3, np.float32)))
    assert isinstance(features, Features)
    kind = type(machine.to_device(np.zeros(1)))
    assert isinstance(features.R, kind)
    assert isinstance(features.b, kind)
    for other in (None, slice(1, 2), 3.0, "x", sp.csr_array((2, 2))):
        assert machine.to_device(other) is other


def test_zeros_are_of_the_type_asked_for(machine):
    for dtype in (np.float32, np.float64):
        A = machine.zeros((2, 3), dtype)
        assert tuple(A.shape) == (2, 3)
        assert str(A.dtype).endswith(np.dtype(dtype).name)
        assert not A.any()


IMPORTED = """
import sys
import numpy as np
import smoothlink
from smoothlink import Gaussian, Logistic, SmoothLinkClassifier
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((60, 5)), rng.random((60, 4)) < 0.4
for settings in ({"loss": "squared"}, {"loss": Logistic(passes=1)}, {"solver": "cg", "calibrate": False}):
    fitted = SmoothLinkClassifier(rank=2, kernel=Gaussian(1.0, 20), ridge=1.0, final_ridge=0.1, **settings)
    fitted.fit(X, Y).predict_topk(X)
print(sorted(name for name in sys.modules if name.split(".")[0] in ("torch", "triton")))
"""


@pytest.mark.torch
def test_nothing_of_torch_is_imported_by_a_fit_on_the_host():
    found = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]", found.stdout


class OutOfMemoryError(Exception):
    """Named as torch's."""


def test_work_that_runs_out_of_memory_is_done_again_with_smaller_blocks():
    shares, notes = [], []

    def work(machine):
        shares.append(machine.share)
        if machine.share > 1 / 16:
            raise OutOfMemoryError
        return machine

    machine = retry_with_smaller_blocks(Device("cpu", 1 << 30), work, "too large", notes.append)
    assert shares == [1, 1 / 4, 1 / 16]
    assert machine.bytes == 1 << 26
    assert notes == ["torch ran out of memory: beginning again with smaller blocks."] * 2


def test_work_that_no_block_is_small_enough_for_and_other_errors_are_raised():
    def too_large(machine):
        raise OutOfMemoryError

    with pytest.raises(DeviceError, match="does not fit"):
        retry_with_smaller_blocks(Device("cpu", 1 << 30), too_large, "does not fit")
    with pytest.raises(ZeroDivisionError):
        retry_with_smaller_blocks(Device("cpu", 1 << 30), lambda machine: 1 / 0, "does not fit")
