"""What workers compute, without a cluster: partitions are read a block at a time, and hold no more than they need."""

import pickle

import numpy as np
import scipy.sparse as sp
from small import words

from smoothlink.data.read import write
from smoothlink.distributed import tasks
from smoothlink.distributed.input_files import FilePiece
from smoothlink.distributed.tasks import ArrayPiece
from smoothlink.machines.matrices import Sparse
from smoothlink.machines.rows import Rows
from smoothlink.steps.featurize import draw_features, parse_kernel
from smoothlink.steps.squared import link_sums


def unscaled(X):
    return X


def arrays_of(partition):
    return tuple(sp.vstack([getattr(b, kind).csr for b in partition.blocks]).toarray() for kind in "XY")


def test_a_partition_of_several_pieces_has_their_rows_in_blocks_of_one_size(data, tmp_path):
    write(data._replace(X=data.X[:50], Y=data.Y[:50]), tmp_path / "a.sl")
    pieces = [FilePiece(str(tmp_path / "a.sl"), 10, 50, {}), ArrayPiece(data.X[50:], data.Y[50:])]
    partition = tasks.load_partition(pieces, 100, unscaled, 17)
    assert [b.start for b in partition.blocks] == [100, 117, 134, 151, 168]
    assert (partition.start, partition.rows) == (100, 80)
    for found, known in zip(arrays_of(partition), data, strict=False):
        np.testing.assert_array_equal(found, known.toarray()[10:])


def test_a_partition_selected_from_all_rows_is_in_their_memory(data):
    pieces = [[ArrayPiece(data.X[:40], data.Y[:40])], [ArrayPiece(data.X[40:], data.Y[40:])]]
    all_rows = tasks.load_all_partitions(pieces, [0, 40], unscaled, 30)
    second = tasks.select_partition(all_rows, 40, 90)
    assert [b.start for b in second.blocks] == [40, 70]
    assert all(any(b.X is other.X for other in all_rows.blocks) for b in second.blocks)
    np.testing.assert_array_equal(arrays_of(second)[0], data.X.toarray()[40:])


def test_targets_of_some_labels_are_those_of_the_link_sums(rng):
    _, Y = words(rng)
    H, w = rng.standard_normal((len(Y), 3)).astype(np.float32), rng.uniform(0.5, 2, len(Y)).astype(np.float32)
    Y = sp.csr_array(np.asarray(Y, np.float32))
    features = draw_features(parse_kernel("gaussian"), 3, 8, 1.0, 2.0, 0)
    rows = Rows.of(H, Y, w, block_rows=20)
    blocks = [b._replace(w=np.ones_like(b.w)) for b in rows.blocks]
    found = tasks.partition_targets(tasks.Partition(blocks, 0, rows.n), w, features, slice(2, 5))[0]
    np.testing.assert_allclose(found, link_sums(rows, features).targets.T[2:5], rtol=1e-5, atol=1e-5)


def test_what_was_prepared_for_products_is_not_sent_and_can_be_released(rng, data):
    X = Sparse(data.X)
    P = rng.standard_normal((X.shape[1], 3)).astype(np.float32)
    bare, product = len(pickle.dumps(X)), X @ P
    X.T.add_product(product, np.zeros_like(P))
    assert len(pickle.dumps(X)) == bare
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(X)) @ P, product)
    X.release()
    assert X._forward is None
    np.testing.assert_array_equal(X @ P, product)


def test_the_error_of_a_damaged_folder_is_the_result_of_the_tasks_that_read_it(data, tmp_path):
    write(data, tmp_path / "a.sl")
    indices = np.load(tmp_path / "a.sl" / "x_indices.npy")
    indices[-1] = 4000
    np.save(tmp_path / "a.sl" / "x_indices.npy", indices)
    path = str(tmp_path / "a.sl")
    error = tasks.return_error(tasks.load_partition, [FilePiece(path, 60, 90, {})], 0, unscaled, None)
    assert "x_indices or x_data hold what no row can have" in str(error)
    assert tasks.count_partition(error) is error
    assert tasks.load_partition([FilePiece(path, 0, 60, {})], 0, unscaled, None).rows == 60
