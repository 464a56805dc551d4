"""V on a device: scores and the k best labels are those of the host, ties, halves and blocks included."""

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink.errors import DataError
from smoothlink.machines.sparse_weights import SparseWeights
from smoothlink.steps.infer import top_k
from smoothlink.weights import ArrayWeights, to_half

torch = pytest.importorskip("torch", reason="torch is not installed")

from smoothlink.machines import device_weights as module  # noqa: E402
from smoothlink.machines.host_and_device import Device  # noqa: E402

pytestmark = pytest.mark.torch

MACHINE = Device("cpu", 1 << 28)


class Card(Device):
    """Halves, as on a card."""

    half = True


def problem(rng, b=9, s=12, c=300):
    """Features, the intercept last, V, and some labels that were without training rows."""
    Phi = rng.standard_normal((b, s + 1)).astype(np.float32)
    Phi[:, -1] = 1
    V = (rng.standard_normal((s + 1, c)) * 10.0 ** rng.integers(-6, 3, c)).astype(np.float32)
    return Phi, V, rng.random(c) < 0.1


def whole_numbers(rng, b=9, s=5, c=300):
    """Small whole numbers: many scores are equal, and none is rounded."""
    Phi, V = (rng.integers(-1, 2, shape).astype(np.float32) for shape in ((b, s + 1), (s + 1, c)))
    Phi[:, -1] = 1
    return Phi, V, rng.random(c) < 0.3


def scores(Phi, V, untrained):
    return np.where(untrained, -np.inf, Phi @ V).astype(np.float32)


ONE_BLOCK = module.BlockSizes()
BLOCKS = module.BlockSizes(scores=1)


def on_device(V, untrained, D=None, sizes=ONE_BLOCK, machine=MACHINE):
    return module.DeviceWeights(ArrayWeights(V) if isinstance(V, np.ndarray) else V, untrained, machine, D, sizes=sizes)


blocks = pytest.mark.parametrize("sizes", [ONE_BLOCK, BLOCKS], ids=["one block", "blocks of labels"])


@blocks
@pytest.mark.parametrize(("group", "k"), [(2, 1), (2, 20), (16, 3), (128, 1), (128, 300)])
def test_the_best_labels_are_the_hosts_in_the_hosts_order_however_many_scores_are_equal(rng, sizes, group, k):
    Phi, V, untrained = whole_numbers(rng)
    there = on_device(V, untrained, sizes=sizes._replace(group=group))
    ids, values, totals = there.top_k(there.scale_features(torch.tensor(Phi)), k).fetch()
    expected = top_k(scores(Phi, V, untrained), k)
    np.testing.assert_array_equal(ids, expected.indices)
    np.testing.assert_array_equal(values, expected.values)
    assert totals is None


def test_keys_are_ordered_as_scores_are_then_as_ids_downwards_and_open_again(rng):
    S = np.array([[0.0, -0.0, np.inf, -np.inf, 1e-40, -1e-40, 3.5, 3.5, -3.5, -np.inf]], np.float32)
    ids = torch.arange(10)
    keys = module.pack_keys(torch.tensor(S), ids)
    order = keys.argsort(dim=1, descending=True)[0]
    np.testing.assert_array_equal(order, np.argsort(-S[0], kind="stable"))
    values, again = module.unpack_keys(keys)
    np.testing.assert_array_equal(values, S)
    np.testing.assert_array_equal(again[0], ids)


def test_scores_are_those_of_the_host_whatever_the_scale_of_a_label_or_a_row(rng):
    Phi, V, untrained = problem(rng)
    Phi[3, :-1] *= 1e6
    Phi[4, :-1] = 0
    there, expected = on_device(V, untrained), scores(Phi, V, untrained)
    seen, size = there.scale_features(torch.tensor(Phi)), np.abs(Phi) @ np.abs(V)
    for labels in (slice(None), slice(5, 8), slice(3, 300), np.array([7, 7, 299]), np.array([], np.int64)):
        out = np.empty_like(expected[:, labels])
        assert there.scores(seen, labels, out) is out
        np.testing.assert_array_equal(there.scores(seen, labels), out)
        np.testing.assert_array_equal(np.isneginf(out), np.isneginf(expected[:, labels]))
        fine = ~np.isneginf(out)
        assert (np.abs(out[fine] - expected[:, labels][fine]) <= 1e-5 * size[:, labels][fine]).all()


@blocks
@pytest.mark.parametrize("kept", ["float32", "float16"])
def test_a_card_rounds_weights_and_features_to_11_bits_and_adds_the_intercept_unrounded(rng, monkeypatch, sizes, kept):
    # The processor may not multiply halves, but the sums of their products are known.
    monkeypatch.setattr(module, "product", lambda A, B: A.float() @ B.float())
    Phi, V, untrained = problem(rng)
    V[-1] = 1e4 if kept == "float32" else V[-1]
    given = V if kept == "float32" else to_half(V)
    there = on_device(given, untrained, sizes=sizes, machine=Card("cpu", 1 << 28))
    seen = there.scale_features(torch.tensor(Phi))
    assert there.values.dtype == seen.values.dtype == torch.float16
    S = there.scores(seen, slice(None))
    errors = np.abs(S[:, ~untrained] - (Phi @ V)[:, ~untrained])
    largest = np.abs(V[:-1] if kept == "float32" else V).max(axis=0)[~untrained]
    constant = 1e4 * 2.0**-23 if kept == "float32" else largest * 2.0**-11
    bound = 2.0**-11 * 2.1 * (np.abs(Phi[:, :-1]) @ np.abs(V[:-1]))[:, ~untrained] + largest * 2.0**-20 + constant
    assert (errors <= bound).all()
    ids, values, _ = there.top_k(seen, 7).fetch()
    np.testing.assert_array_equal(ids, top_k(S, 7).indices)
    np.testing.assert_array_equal(values, top_k(S, 7).values)


def test_halves_of_a_model_file_are_widened_where_there_is_no_card(rng):
    Phi, V, untrained = problem(rng)
    half = to_half(V)
    there, plain = on_device(half, untrained), on_device(half.columns(), untrained)
    seen = there.scale_features(torch.tensor(Phi))
    np.testing.assert_array_equal(there.scores(seen, slice(None)), plain.scores(seen, slice(None)))


@blocks
@pytest.mark.parametrize("room", [1, 64 * 50, 1 << 20])
def test_sparse_weights_are_added_whole_in_parts_and_for_blocks_of_labels(rng, monkeypatch, sizes, room):
    monkeypatch.setattr(Device, "scores", lambda self: room)
    Phi, V, untrained = whole_numbers(rng)
    Phi[:, :-1] *= 4
    V = V / 8
    X = sp.random_array((9, 30), density=0.4, format="csr", dtype=np.float32, rng=rng)
    D = sp.random_array((30, 300), density=0.2, format="csr", dtype=np.float32, rng=rng)
    D.sort_indices()
    sparse = SparseWeights(D.indptr.astype(np.int64), D.indices.astype(np.int32), D.data)
    there = on_device(V, untrained, sparse, sizes)
    ids, values, totals = there.top_k(there.scale_features(torch.tensor(Phi), X), 300, 1.0).fetch()
    expected = np.where(untrained, -np.inf, Phi @ V + (X @ D).toarray())
    np.testing.assert_allclose(values, np.take_along_axis(expected, ids, axis=1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(np.sort(ids, axis=1), np.broadcast_to(np.arange(300), ids.shape))
    np.testing.assert_allclose(totals, np.log(np.exp(expected).sum(axis=1)), rtol=1e-5)


@blocks
def test_totals_are_log_sums_over_all_labels_of_tempered_scores(rng, sizes):
    Phi, V, untrained = whole_numbers(rng)
    there = on_device(V, untrained, sizes=sizes)
    seen = there.scale_features(torch.tensor(Phi))
    expected = np.log(np.exp(0.3 * scores(Phi, V, untrained).astype(np.float64)).sum(axis=1))
    np.testing.assert_allclose(there.normalisers(seen, 0.3), expected, rtol=1e-5)
    np.testing.assert_allclose(there.top_k(seen, 2, 0.3).fetch()[2], expected, rtol=1e-5)


def test_rows_with_a_score_that_is_not_a_number_are_counted_and_refused(rng):
    Phi, V, untrained = problem(rng)
    Phi[[2, 5], 1] = np.nan
    there = on_device(V, untrained)
    best = there.top_k(there.scale_features(torch.tensor(Phi)), 3)
    with pytest.raises(DataError, match="2 of 9 rows have scores that are NaN"):
        best.fetch()


def test_v_is_copied_in_parts_that_make_no_difference(rng):
    _, V, untrained = problem(rng)
    whole, parts = on_device(V, untrained), on_device(V, untrained, sizes=module.BlockSizes(copied_bytes=1))
    assert torch.equal(whole.values, parts.values)
    assert torch.equal(whole.scale, parts.scale)
    assert torch.equal(whole.intercepts, parts.intercepts)


def test_blocks_of_rows_and_labels_cover_all_and_shrink_with_the_memory(rng):
    _, V, untrained = problem(rng)
    sizes = []
    for free in (1 << 33, 1 << 23):
        there = on_device(V, untrained, machine=Device("cpu", free))
        rows, labels = list(there.row_blocks(20_000, 5)), list(there.label_blocks(1000))
        assert [part.start for part in rows[1:]] == [part.stop for part in rows[:-1]]
        assert rows[-1].stop == 20_000
        assert [part.start for part in labels[1:]] == [part.stop for part in labels[:-1]]
        assert labels[-1].stop == 384
        sizes.append((rows[0].stop, labels[0].stop))
    assert sizes[0] == (ONE_BLOCK.rows, 384)
    assert sizes[1][0] < ONE_BLOCK.rows
    assert sizes[1][1] < 384
