"""What workers do, without a cluster: shares are read a block at a time, and hold no more than they need."""

import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from small import words

pytest.importorskip("distributed", reason="Dask is not installed")

from smoothlink.fitting.files import Piece, check_alike, describe, digests, header_of

from smoothlink.data.read import Data, write
from smoothlink.distributed import tasks as shares
from smoothlink.distributed.rows_on_workers import dealt
from smoothlink.distributed.tasks import Given
from smoothlink.errors import DataError
from smoothlink.machines.matrices import Sparse


def data_of(rng):
    X, Y = words(rng)
    return Data(X.astype(np.float32), sp.csr_array(np.asarray(Y, np.float32)))


def as_it_is(X):
    return X


def rows_of(share):
    return tuple(sp.vstack([getattr(b, kind).csr for b in share.blocks]).toarray() for kind in "XY")


def test_a_share_of_several_pieces_has_their_rows_in_blocks_of_one_size(rng, tmp_path):
    data = data_of(rng)
    write(Data(data.X[:50], data.Y[:50]), tmp_path / "a.sl")
    pieces = [Piece(str(tmp_path / "a.sl"), 10, 50, {}), Given(data.X[50:], data.Y[50:])]
    share = shares.load_share(pieces, 100, as_it_is, 17)
    assert [b.start for b in share.blocks] == [100, 117, 134, 151, 168]
    assert (share.start, share.rows) == (100, 80)
    for found, known in zip(rows_of(share), data, strict=False):
        np.testing.assert_array_equal(found, known.toarray()[10:])


def test_shares_of_the_whole_are_in_its_memory(rng):
    data = data_of(rng)
    pieces = [[Given(data.X[:40], data.Y[:40])], [Given(data.X[40:], data.Y[40:])]]
    whole = shares.load_all(pieces, [0, 40], as_it_is, 30)
    second = shares.share_of(whole, 40, 90)
    assert [b.start for b in second.blocks] == [40, 70]
    assert all(any(b.X is other.X for other in whole.blocks) for b in second.blocks)
    np.testing.assert_array_equal(rows_of(second)[0], data.X.toarray()[40:])


def test_what_was_prepared_for_products_is_not_sent_and_can_be_forgotten(rng):
    X = Sparse(data_of(rng).X)
    P = rng.standard_normal((X.shape[1], 3)).astype(np.float32)
    bare, product = len(pickle.dumps(X)), X @ P
    X.T.add_product(product, np.zeros_like(P))
    assert len(pickle.dumps(X)) == bare
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(X)) @ P, product)
    X.release()
    assert X._forward is None
    np.testing.assert_array_equal(X @ P, product)


@pytest.mark.parametrize(
    ("m", "workers", "widths"),
    [(220, 2, [128, 92]), (220, 4, [64, 64, 64, 28]), (220, 3, [73, 73, 74]), (2, 4, [1, 1])],
)
def test_columns_are_dealt_so_that_the_last_worker_is_done_first(m, workers, widths):
    found = dealt(m, workers)
    assert sorted(part.stop - part.start for part in found) == sorted(widths)
    assert [part.start for part in found[1:]] == [part.stop for part in found[:-1]]
    assert (found[0].start, found[-1].stop) == (0, m)


def test_a_file_with_a_header_is_described_without_its_rows(rng, tmp_path, monkeypatch):
    data = data_of(rng)._replace(label_names=list("abcdef"))
    for name in ("a.txt", "a.sl", "b.svm"):
        write(data, tmp_path / name)
    known = header_of(data)
    assert describe(str(tmp_path / "b.svm"), {"zero_based": True}, True).rows == known.rows
    monkeypatch.setattr("smoothlink.fitting.files.read", None)
    for name in ("a.txt", "a.sl"):
        found = describe(str(tmp_path / name), {}, True)
        assert found._replace(entries=0) == known._replace(entries=0)
        bare = describe(str(tmp_path / name), {}, False)
        assert (bare.label_names, bare.digests) == (None, known.digests)
    assert describe(str(tmp_path / "a.sl"), {}, True).entries == data.X.nnz
    with pytest.raises(DataError, match="different label names"):
        check_alike(["a", "b"], [known, known._replace(digests=digests(list("abcdeg"), None))])


def test_a_worker_that_loads_rows_of_a_damaged_folder_says_so(rng, tmp_path):
    write(data_of(rng), tmp_path / "a.sl")
    indices = np.load(tmp_path / "a.sl" / "x_indices.npy")
    indices[-1] = 4000
    np.save(tmp_path / "a.sl" / "x_indices.npy", indices)
    path = str(tmp_path / "a.sl")
    said = shares.told(shares.load_share, [Piece(path, 60, 90, {})], 0, as_it_is, None)
    assert "x_indices or x_data hold what no row can have" in str(said)
    assert shares.looked_at(said) is said
    assert shares.load_share([Piece(path, 0, 60, {})], 0, as_it_is, None).rows == 60


def test_what_is_fetched_from_a_store_lies_where_no_other_user_writes(rng, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(data_of(rng), tmp_path / "a.txt")
    found = shares.fetched(f"file://{tmp_path}/a.txt")
    assert found.startswith(str(tmp_path / "cache" / "smoothlink"))
    assert os.stat(tmp_path / "cache" / "smoothlink").st_mode & 0o077 == 0
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(DataError, match="is not a folder of yours"):
        shares.fetched(f"file://{tmp_path}/a.txt")
