"""Rows in files are the rows themselves: every product is the same wherever the blocks live."""

import errno
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from problems import sparse_problem

from smoothlink import Joint, SmoothLinkClassifier
from smoothlink.machines.matrices import Dense, Sparse
from smoothlink.machines.rows import Rows
from smoothlink.machines.rows_in_files import (
    FileArray,
    MappedMatrix,
    ScaledRows,
    SparseFile,
    TransposedFile,
    mapped_file,
    new_file_array,
    pieces,
    scratch,
)
from smoothlink.solve import DualCholesky
from smoothlink.solve.conjugate import xt_xp
from smoothlink.steps.embed import embed_rows, xt_yq
from smoothlink.steps.scale import choose_scaling


@pytest.fixture
def stored(rng, tmp_path):
    """X and Y in memory, and X over files."""
    p = sparse_problem(rng, n=90, d=40, c=12, density=0.1)
    X, Y = sp.csr_array(p.X[:, :-1].astype(np.float32)), sp.csr_array(p.Y.astype(np.float32))
    arrays = {"indptr": X.indptr.astype(np.int64), "indices": X.indices, "data": X.data}
    for name, array in arrays.items():
        array.tofile(tmp_path / name)
    mapped = [np.memmap(tmp_path / name, array.dtype, "r") for name, array in arrays.items()]
    return X, Y, MappedMatrix.over(*mapped, X.shape[1])


def test_a_slice_of_a_mapped_matrix_is_read_and_owns_its_memory(stored):
    X, _, mapped = stored
    for part in (slice(0, 10), slice(85, 200), slice(7, 7), slice(None)):
        found = mapped[part]
        assert type(found) is sp.csr_array
        assert not isinstance(found.data, np.memmap)
        np.testing.assert_array_equal(found.toarray(), X[part].toarray())
    np.testing.assert_array_equal(mapped[[3, 1]].toarray(), X[[3, 1]].toarray())
    np.testing.assert_allclose(mapped @ np.ones((40, 2), np.float32), X @ np.ones((40, 2), np.float32))


def test_a_mapped_matrix_takes_more_entries_than_32_bits_count_without_a_copy():
    indptr, indices = np.array([0, 2, 3]), np.array([0, 2, 1], np.int32)
    A = MappedMatrix.over(indptr, indices, None, 3)
    assert A.indices is indices
    assert A.indptr is indptr
    assert A[0:2].toarray().tolist() == [[1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("damage", [lambda a: a.indices.__setitem__(1, 40), lambda a: a.indices.__setitem__(0, -1)])
def test_an_index_outside_is_found(rng, damage):
    X = sp.random_array((20, 40), density=0.3, format="csr", rng=rng, dtype=np.float32)
    A = MappedMatrix.over(X.indptr, X.indices.copy(), X.data, 40)
    assert A.sound()
    damage(A)
    assert not A.sound()


def test_indices_out_of_order_within_a_row_are_found_and_across_rows_are_not():
    A = MappedMatrix.over(np.array([0, 2, 2, 4]), np.array([1, 3, 0, 2], np.int32), None, 4)
    assert A.sound()
    assert not MappedMatrix.over(np.array([0, 1, 1, 4]), np.array([1, 3, 0, 2], np.int32), None, 4).sound()
    assert not MappedMatrix.over(np.array([0, 2]), np.array([1, 1], np.int32), None, 4).sound()


@pytest.mark.parametrize(("keep", "kind"), [(1 << 30, "unit"), (0, "variance"), (12_000, "none")])
def test_rows_in_files_give_the_sums_of_rows_in_memory(stored, rng, keep, kind):
    X, Y, mapped = stored
    scaling = choose_scaling(X, kind)
    w = rng.random(90)
    here = Rows.of(scaling(X), Y, w, block_rows=20)
    there = Rows.of(ScaledRows(mapped, scaling, keep), Y, w, block_rows=20)
    Q, P = (rng.standard_normal((m, 5)).astype(np.float32) for m in (12, 41))
    for _ in range(2):  # kept blocks the second time
        for f, A in ((xt_yq, Q), (xt_xp, P)):
            np.testing.assert_array_equal(there.sum(f, A, out=(41, 5)), here.sum(f, A, out=(41, 5)))
    np.testing.assert_array_equal(there.map(embed_rows, P), here.map(embed_rows, P))
    numbers = np.array([0, 3, 19, 20, 77])
    np.testing.assert_array_equal(there.take(numbers).map(embed_rows, P), here.take(numbers).map(embed_rows, P))
    kept = [b.X.loaded for b in there.blocks if b.X.loaded is not None]
    assert len(kept) == 5 if keep == 1 << 30 else len(kept) == 0 if keep == 0 else 0 < len(kept) < 5
    assert sum(block.nbytes for block in kept) <= keep
    there.release()
    assert not any(b.X.loaded for b in there.blocks)
    assert there.blocks[0].X.budget.left == keep
    np.testing.assert_array_equal(there.map(embed_rows, P), here.map(embed_rows, P))


def test_a_block_holds_the_bytes_it_says(rng):
    X = sp.random_array((4000, 3000), density=0.01, format="csr", rng=rng, dtype=np.float32)
    P = rng.standard_normal((3000, 4)).astype(np.float32)
    for make in (Sparse, lambda A: Dense(A.toarray())):
        make(X).T.add_product(make(X) @ P, np.zeros_like(P))  # kernels are compiled now
        tracemalloc.start()
        A = make(X.copy())
        A.T.add_product(A @ P, np.zeros_like(P))
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert A.nbytes == pytest.approx(held, rel=0.1)


def test_the_dual_solves_over_rows_in_files(stored, rng):
    X, Y, mapped = stored
    scaling = choose_scaling(X, "unit")
    rows = [Rows.of(A, Y, block_rows=20) for A in (scaling(X), ScaledRows(mapped, scaling, 0))]
    B = rng.standard_normal((41, 5)).astype(np.float32)
    here, there = (DualCholesky().prepare(r).at(0.3)(B) for r in rows)
    np.testing.assert_array_equal(there, here)


def test_the_dual_makes_few_of_the_rows_of_very_many_features_dense_together(rng):
    n, d = 260, 50_000  # 223 rows are made dense together
    X = sp.random_array((n, d), density=1e-3, format="csr", rng=rng, dtype=np.float32)
    Y, scaling = sp.csr_array(np.ones((n, 1), np.float32)), choose_scaling(X, "unit")
    rows = [Rows.of(A, Y) for A in (scaling(X), ScaledRows(X, scaling, 0))]
    B = rng.standard_normal((d + 1, 2)).astype(np.float32)
    here, there = (DualCholesky().prepare(r).at(0.3)(B) for r in rows)
    np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)


def test_an_array_in_a_file_is_an_array(rng, tmp_path):
    A = rng.standard_normal((50, 7)).astype(np.float32)
    file = new_file_array(tmp_path / "a", (50, 7))
    assert not file[:].any()
    file[0:30], file[30:50] = A[:30], A[30:]
    np.testing.assert_array_equal(file[10:20], A[10:20])
    np.testing.assert_array_equal(file[np.array([3, 1, 44])], A[[3, 1, 44]])
    assert file[np.zeros(0, int)].shape == (0, 7)
    transposed = file.T
    assert isinstance(transposed, TransposedFile)
    np.testing.assert_array_equal(transposed[:, 4:9], A.T[:, 4:9])
    np.testing.assert_array_equal(transposed[:, np.array([2, 9])], A.T[:, [2, 9]])
    np.testing.assert_array_equal(transposed[-1], A.T[-1])
    file.put_columns(slice(2, 4), 0 * A[:, 2:4])
    file.flush()
    A[:, 2:4] = 0
    np.testing.assert_array_equal(file.mapped(), A)
    np.testing.assert_array_equal(file.columns(slice(1, 3)), A[:, 1:3])
    np.testing.assert_array_equal(FileArray(tmp_path / "a", (50, 7))[:], A)  # as it was left
    assert not FileArray(tmp_path / "a", (50, 8))[:].any()  # another shape: anew


def test_pieces_are_the_whole_and_let_mapped_pages_go(tmp_path):
    A = np.arange(60, dtype=np.float32).reshape(20, 3)
    A.tofile(tmp_path / "a")
    mapped = np.memmap(tmp_path / "a", np.float32, "r", shape=(20, 3))
    for array in (A, mapped, mapped.reshape(-1).view(np.uint8)):
        parts = list(pieces(array, 50))
        assert len(parts) > 3
        np.testing.assert_array_equal(np.concatenate(parts), array)
    assert mapped_file(A) is None
    assert mapped_file(mapped.reshape(-1)) is mapped_file(mapped) is not None


# In a process of its own, whose peak is its own.
TOUCHED = """
import sys
import numpy as np
from smoothlink.machines.rows_in_files import new_file_array
from smoothlink.weights import to_half

def peak_mb():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1]) / 1024

file, A = new_file_array(sys.argv[1], (20_000, 1_000)), np.ones((20_000, 1_000), np.float32)
before = peak_mb()
for part in (slice(0, 20), slice(500, 520)):
    file.put_columns(part, A[:, :20])
assert file.columns(slice(510, 530)).sum() == file[np.arange(0, 20_000, 5)].sum() * 5 / 4
half = to_half(A)
assert half.values.sum(dtype=np.float64) == A.size / 2
print(peak_mb() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not say its peak memory")
def test_few_rows_or_columns_of_a_file_and_weights_in_half_the_bits_do_not_bring_all_of_it_into_memory(tmp_path):
    run = [sys.executable, "-c", TOUCHED, str(tmp_path / "array")]
    assert float(subprocess.run(run, capture_output=True, text=True, check=True).stdout) < 72  # the file has 76 MiB


def test_rows_over_embeddings_in_a_file_are_rows_over_embeddings(stored, rng, tmp_path):
    X, Y, _ = stored
    rows = Rows.of(choose_scaling(X, "unit")(X), Y, block_rows=25)
    W = rng.standard_normal((41, 4)).astype(np.float32)
    H = rows.map(embed_rows, W)
    file = rows.map(embed_rows, W, into=new_file_array(tmp_path / "h", (90, 4)))
    np.testing.assert_array_equal(file[:], H)
    Q = rng.standard_normal((12, 3)).astype(np.float32)
    found, known = (rows.with_inputs(h).sum(xt_yq, Q, out=(4, 3)) for h in (file, H))
    np.testing.assert_array_equal(found, known)


class Saved:
    """Sums saved in memory, and an interrupt after some rows."""

    def __init__(self, stop=None):
        self.state, self.stop = (0, None), stop

    def load(self):
        done, totals = self.state
        return done, None if totals is None else [t.copy() for t in totals]

    def save(self, rows, totals, *, last):
        self.state = rows, [t.copy() for t in totals]
        if self.stop is not None and rows >= self.stop:
            self.stop = None
            raise KeyboardInterrupt


def test_a_sum_that_was_interrupted_goes_on_to_the_same_bits(stored, rng):
    X, Y, _ = stored
    rows = Rows.of(choose_scaling(X, "unit")(X), Y, block_rows=20)
    Q = rng.standard_normal((12, 3)).astype(np.float32)
    saved = Saved(stop=40)
    outs = [((41, 3), np.float32)]
    with pytest.raises(KeyboardInterrupt):
        rows.sums(xt_yq, Q, outs=outs, saved=saved)
    [total] = rows.sums(xt_yq, Q, outs=outs, saved=saved)
    np.testing.assert_array_equal(total, rows.sum(xt_yq, Q, out=(41, 3)))


@pytest.mark.parametrize("settings", [{}, {"training": Joint(negatives=5, passes=1)}], ids=["stepwise", "joint"])
def test_without_a_budget_a_fit_of_rows_in_files_is_that_of_rows_in_memory(stored, settings):
    X, Y, mapped = stored
    here, there = (SmoothLinkClassifier(rank=3, **settings).fit(A, B) for A, B in ((X, Y), (mapped, Y)))
    np.testing.assert_array_equal(there.model_.V, here.model_.V)
    np.testing.assert_array_equal(there.model_.W, here.model_.W)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system allocates no room in advance")
def test_files_that_are_written_through_memory_have_their_room_on_disk_first(tmp_path, monkeypatch):
    """A page for which a full disk has no room ends the process (SIGBUS)."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def allocated(file):
        found = os.stat(file)
        return found.st_blocks * 512 >= found.st_size > 1 << 20

    new_file_array(tmp_path / "a", (1000, 300))
    assert allocated(tmp_path / "a")
    rows = SparseFile(np.arange(1000), np.full(1000, 200), 300, tmp_path)
    assert allocated(rows.file.fileno())
    sizes = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *given: sizes.append(given[1:]))
    assert scratch((1000, 300), np.float32, piece_bytes=1000).shape == (1000, 300)
    assert sizes == [(0, 1_200_000)]


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: new_file_array(folder / "a", (1000, 300)),
        lambda folder: SparseFile(np.arange(1000), np.full(1000, 200), 300, folder),
        lambda folder: scratch((1000, 300), np.float32, piece_bytes=1000),
    ],
)
def test_a_disk_without_room_is_named_before_anything_is_written(tmp_path, monkeypatch, make):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="No space left") as raised:
        make(tmp_path)
    assert str(raised.value.filename).startswith(str(tmp_path))
    assert all(path.stat().st_size == 0 for path in tmp_path.iterdir())


def test_a_file_system_that_cannot_allocate_is_written_to_all_the_same(tmp_path, monkeypatch):
    def cannot(*_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", cannot, raising=False)
    found = new_file_array(tmp_path / "a", (10, 3))
    np.testing.assert_array_equal(found[0:10], np.zeros((10, 3)))
