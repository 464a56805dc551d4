"""`smoothlink synth`: made data has the shape, the power law and the structure that were asked for."""

import numpy as np
import pytest
from commands import left, run, succeed

from smoothlink import Gaussian, SmoothLinkClassifier
from smoothlink.data.read import read
from smoothlink.errors import DataError
from smoothlink.synth import Shape, synthesise

SHAPE = ["--rows", 200, "--features", 80, "--labels", 12, "--features-per-row", 9]


def same(a, b):
    return a.shape == b.shape and (a != b).nnz == 0


def test_the_shape_is_the_one_asked_for():
    data = synthesise(Shape(500, 60, 12.5, 3), 4000)
    assert (data.X.shape, data.Y.shape) == ((4000, 500), (4000, 60))
    assert data.X.nnz / 4000 == pytest.approx(12.5, rel=0.02)
    assert data.Y.nnz / 4000 == pytest.approx(3, rel=0.05)
    assert np.diff(data.Y.indptr).min() == 1
    for matrix in data[:2]:
        assert matrix.dtype == np.float32
        assert matrix.indices.dtype == np.int32
        assert all(
            (np.diff(matrix.indices[a:b]) > 0).all() for a, b in zip(matrix.indptr, matrix.indptr[1:], strict=False)
        )


def test_rows_have_unit_length_and_positive_values():
    X = synthesise(Shape(500, 60, 12, 3), 300).X
    np.testing.assert_allclose(np.asarray(X.multiply(X).sum(axis=1)).ravel(), 1, rtol=1e-5)
    assert X.data.min() > 0


def test_multiclass_rows_have_exactly_one_label():
    assert (np.diff(synthesise(Shape(100, 30, 5, multiclass=True), 500).Y.indptr) == 1).all()


def test_rows_do_not_depend_on_blocks_nor_on_how_many_there_are(seed):
    shape = Shape(300, 40, 10, 2, seed=seed)
    whole = synthesise(shape, 500)
    for part in (synthesise(shape, 500, block_rows=7), synthesise(shape, 500, block_rows=499)):
        assert same(part.X, whole.X)
        assert same(part.Y, whole.Y)
    tail = synthesise(shape, 100, start=400)
    assert same(tail.X, whole.X[400:])
    assert same(tail.Y, whole.Y[400:])


def test_another_seed_gives_other_rows():
    a, b = (synthesise(Shape(300, 40, 10, 2, seed=seed), 50) for seed in (0, 1))
    assert not same(a.X, b.X)
    assert same(a.X, synthesise(Shape(300, 40, 10, 2), 50).X)


@pytest.mark.parametrize("exponent", [0.7, 1.2])
def test_frequencies_follow_the_power_law(exponent):
    shape = Shape(400, 300, 3, multiclass=True, label_exponent=exponent, feature_exponent=exponent)
    data = synthesise(shape, 40_000)
    for matrix, tolerance in ((data.Y, 0.05), (data.X, 0.3)):  # topics bend the frequencies of features
        counts = np.sort(np.bincount(matrix.indices, minlength=matrix.shape[1]))[::-1]
        ranks = np.arange(2, 100)
        slope = np.polyfit(np.log(ranks + 1), np.log(counts[ranks]), 1)[0]
        assert slope == pytest.approx(-exponent, abs=tolerance)


def test_labels_of_a_topic_occur_together():
    Y = synthesise(Shape(200, 50, 5, 3, label_exponent=0.3, topics=10), 5000).Y.toarray()
    together, share = Y.T @ Y / len(Y), Y.mean(axis=0)
    lift = together / np.outer(share, share)
    np.fill_diagonal(lift, 1)
    assert (lift.max(axis=1) > 2).mean() > 0.9


@pytest.mark.parametrize("kind", [{"multiclass": True}, {"labels_per_row": 3}])
def test_labels_can_be_learnt_from_features(kind, seed):
    shape = Shape(1000, 100, 20, **kind, seed=seed)
    train, test = synthesise(shape, 2000), synthesise(shape, 500, start=2000)
    settings = {"rank": 50, "ridge": 3.0, "kernel": Gaussian(2.0, 300), "final_ridge": 0.1}
    fitted = SmoothLinkClassifier(**settings, loss="squared", calibrate=False).fit(train.X, train.Y)
    best = fitted.predict_topk(test.X, 1).indices
    most_frequent = np.bincount(train.Y.indices).argmax()
    hits, base = test.Y[np.arange(500), best].mean(), test.Y[:, [most_frequent]].sum() / 500
    assert hits > base + 0.25


@pytest.mark.parametrize("name", ["t.txt", "t.svm.gz", "t.npz", "t.vw"])
def test_the_command_writes_what_the_library_makes(tmp_path, name):
    found = succeed("synth", tmp_path / name, *SHAPE, "--labels-per-row", 2, "--seed", 5, "--json").json["files"][0]
    made = synthesise(Shape(80, 12, 9, 2, seed=5), 200)
    assert (found["rows"], found["features"], found["labels"]) == (200, 80, 12)
    there = read(tmp_path / name)
    assert there.X.nnz == made.X.nnz
    np.testing.assert_allclose(np.sort(there.X.data), np.sort(made.X.data), rtol=1e-5)
    if name == "t.npz":
        assert same(there.Y, made.Y)


def test_test_rows_go_to_a_file_of_their_own(tmp_path):
    extra = ["--multiclass", "--test", 50, "--test-output", tmp_path / "b.npz"]
    succeed("synth", tmp_path / "a.npz", *SHAPE, *extra, "-q")
    shape = Shape(80, 12, 9, multiclass=True)
    assert same(read(tmp_path / "b.npz").X, synthesise(shape, 250).X[200:])
    assert same(read(tmp_path / "a.npz").X, synthesise(shape, 200).X)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--labels-per-row", 0], "labels per row is 0"),
        (["--labels-per-row", 13], "possible are 1 to 12"),
        (["--features-per-row", 0], "features per row is 0"),
        (["--features-per-row", "nan"], "features per row is nan"),
        (["--features", 0], "features is 0"),
        (["--labels", 0], "labels is 0"),
        (["--rows", 0], "0 rows"),
        (["--rows", -3], "-3 rows"),
        (["--seed", -1], "seed is -1"),
        (["--topics", 0], "topics is 0"),
        (["--label-exponent", -1], "label exponent is -1"),
        (["--multiclass", "--labels-per-row", 2], "multiclass rows have 1 label"),
        (["--test", 5], "--test-output"),
        (["--test", 0, "--test-output", "b.txt"], "0 rows"),
    ],
)
def test_what_cannot_be_made_is_said_in_one_message_and_leaves_nothing(tmp_path, monkeypatch, extra, said):
    monkeypatch.chdir(tmp_path)
    ran = run("synth", "a.txt", *SHAPE, *extra)
    assert ran.code == 1
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err.strip().splitlines()) == 2
    assert left(tmp_path) == []


def test_the_same_file_cannot_take_both_parts(tmp_path):
    path = tmp_path / "a.txt"
    ran = run("synth", path, *SHAPE, "--test", 5, "--test-output", path)
    assert ran.code == 1
    assert "twice" in ran.err


def test_the_library_says_the_same():
    with pytest.raises(DataError, match="labels per row is 0"):
        synthesise(Shape(10, 5, 2, 0), 10)
