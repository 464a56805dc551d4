"""A device that runs out of memory: the fit begins again with smaller blocks, or is refused."""

import numpy as np
import pytest
from small import fixed, words

from smoothlink.errors import DeviceError
from smoothlink.machines.rows import Rows


def test_a_fit_that_runs_out_of_memory_begins_again_with_smaller_blocks(as_on_a_card, torch, rng, monkeypatch):
    X, Y = words(rng)
    made, shares = Rows.of, []

    def of(*args, machine, **kwargs):
        shares.append(machine.share)
        if len(shares) < 3:
            raise torch.OutOfMemoryError("no room")
        return made(*args, machine=machine, **kwargs)

    monkeypatch.setattr(Rows, "of", of)
    model = fixed(device="torch").fit(X, Y)
    assert shares[:3] == [1, 1 / 4, 1 / 16]
    monkeypatch.setattr(Rows, "of", made)
    np.testing.assert_allclose(model.predict_proba(X), fixed().fit(X, Y).predict_proba(X), atol=2e-3)


def test_a_fit_that_no_block_is_small_enough_for_is_refused(as_on_a_card, torch, rng, monkeypatch):
    def of(*args, **kwargs):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(Rows, "of", of)
    with pytest.raises(DeviceError, match=r"memory does not hold the fit, however small the blocks.\nAsk"):
        fixed(device="torch").fit(*words(rng))
