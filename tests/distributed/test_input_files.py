"""Files that workers read: headers, copies of what is in a store, and what is refused before rows are read."""

import os
import subprocess
import sys

import numpy as np
import pytest
from small import fixed

import smoothlink
from smoothlink.data.read import write
from smoothlink.distributed.distributed_fit import partition_files, split_file
from smoothlink.distributed.input_files import Files, check_alike, digests, header_of, local_copy, read_header
from smoothlink.errors import ClusterError, DataError


def part(data, rows):
    return data._replace(X=data.X[rows], Y=data.Y[rows])


@pytest.mark.parametrize(("suffix", "count"), [(".sl", 1), (".sl", 2), (".txt", 4)])
@pytest.mark.parametrize("store", ["", "file://"])
def test_a_fit_to_files_that_workers_read_is_that_of_one_process(workers, data, tmp_path, suffix, count, store):
    for i, rows in enumerate(np.array_split(np.arange(data.X.shape[0]), count)):
        write(part(data, rows), tmp_path / f"part-{i}{suffix}")
    files = Files.of(f"{store}{tmp_path}/part-*{suffix}")
    assert [os.path.basename(path) for path in files.paths] == [f"part-{i}{suffix}" for i in range(count)]
    with smoothlink.cluster(workers.client):
        there = fixed().fit(files)
    here = fixed().fit(data.X, data.Y)
    np.testing.assert_allclose(there.predict_proba(data.X), here.predict_proba(data.X), atol=1e-3)


def test_data_folders_are_split_where_partitions_end_and_other_files_are_not():
    assert split_file(10, np.array([4, 8, 12]), True) == [(0, 4), (4, 8), (8, 10)]
    assert split_file(10, np.array([-2, 0, 10]), True) == [(0, 10)]
    assert split_file(10, np.array([4, 8]), False) == [(0, 10)]


def test_the_header_of_a_file_is_read_without_its_rows(data, tmp_path):
    data = data._replace(label_names=list("abcdef"))
    for name in ("a.txt", "a.sl", "b.svm"):
        write(data, tmp_path / name)
    known = header_of(data)
    assert read_header(str(tmp_path / "b.svm"), {"zero_based": True}, True).rows == known.rows
    lines = (tmp_path / "a.txt").read_text().splitlines()
    (tmp_path / "a.txt").write_text("\n".join([*lines[:-1], "0 3:x"]) + "\n")  # a bad row, which is not read
    for name in ("a.txt", "a.sl"):
        found = read_header(str(tmp_path / name), {}, True)
        assert found._replace(entries=0) == known._replace(entries=0)
        bare = read_header(str(tmp_path / name), {}, False)
        assert (bare.label_names, bare.digests) == (None, known.digests)
    assert read_header(str(tmp_path / "a.sl"), {}, True).entries == data.X.nnz
    with pytest.raises(DataError, match="different label names"):
        check_alike(["a", "b"], [known, known._replace(digests=digests(list("abcdeg"), None))])


def test_a_copy_from_a_store_is_private_and_made_again_when_the_file_changes(data, tmp_path):
    write(data, tmp_path / "a.txt")
    url = f"file://{tmp_path}/a.txt"
    first = local_copy(url)
    assert os.path.basename(first) == "a.txt"
    assert os.stat(os.path.dirname(first)).st_mode & 0o077 == 0
    assert os.stat(os.path.dirname(os.path.dirname(first))).st_mode & 0o077 == 0
    assert local_copy(url) == first
    write(part(data, slice(40)), tmp_path / "a.txt")
    assert smoothlink.read(local_copy(url)).X.shape[0] == 40
    assert local_copy("a.txt") == "a.txt"


def test_copies_from_a_store_are_removed_when_the_process_ends(tmp_path):
    (tmp_path / "a.txt").write_text("1 1 1\n0 0:1\n")
    code = "import sys; from smoothlink.distributed.input_files import local_copy; print(local_copy(sys.argv[1]))"
    ran = subprocess.run([sys.executable, "-c", code, f"file://{tmp_path}/a.txt"], capture_output=True, text=True)
    assert ran.stdout.strip().endswith("a.txt"), ran.stderr
    assert not os.path.exists(os.path.dirname(ran.stdout.strip()))


def test_a_file_that_no_worker_sees_is_named(workers, tmp_path):
    with pytest.raises(ClusterError, match=r"No worker sees .*absent.sl.\nPut it where all workers can read it"):
        partition_files(workers, Files.of(tmp_path / "absent.sl"))


def test_a_bad_line_is_named(workers, data, tmp_path):
    write(data, tmp_path / "a.txt")
    lines = (tmp_path / "a.txt").read_text().splitlines()
    (tmp_path / "a.txt").write_text("\n".join([*lines[:-1], "0 3:x"]) + "\n")
    with smoothlink.cluster(workers.client), pytest.raises(DataError, match=r"a.txt, line 91: "):
        fixed().fit(Files.of(tmp_path / "a.txt"))


def test_files_with_other_columns_are_refused(workers, data, tmp_path):
    write(data, tmp_path / "a.sl")
    write(data._replace(X=data.X[:, :20]), tmp_path / "b.sl")
    with pytest.raises(DataError, match=r"a.sl has 40 features and .*b.sl has 20; the files of one fit must agree"):
        partition_files(workers, Files.of([tmp_path / "a.sl", tmp_path / "b.sl"]))


def test_options_are_checked_before_workers_read_any_file(workers, tmp_path):
    absent = Files.of(tmp_path / "absent.sl")
    with smoothlink.cluster(workers.client), pytest.raises(ValueError, match="memory is '2G'"):
        fixed(memory="2G").fit(absent)
    with (
        smoothlink.cluster(workers.client, shards=tmp_path / "m"),
        pytest.raises(ValueError, match="shards are written by one fit"),
    ):
        fixed(calibrate=True).fit(absent)


def test_files_hold_their_labels_and_need_a_cluster(workers, tmp_path):
    files = Files((str(tmp_path / "a.sl"),))
    with pytest.raises(ValueError, match="Files are for clusters"):
        fixed().fit(files)
    with smoothlink.cluster(workers.client), pytest.raises(ValueError, match="Files hold their labels"):
        fixed().fit(files, np.ones(100))
