"""Drawn labels from end to end: when they are drawn, what they reach, and that a killed fit goes on."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from small import shown

import smoothlink
from smoothlink import Gaussian, Joint, Randomized, SmoothLinkClassifier
from smoothlink.errors import ModelFileError
from smoothlink.fitting import together
from smoothlink.synth import Shape, synthesise

KNOBS = {"training": Joint(20), "rank": 24}


@pytest.fixture(scope="module")
def data():
    made = synthesise(Shape(300, 80, 12, 2, seed=3), 1500)
    return made.X, made.Y


@pytest.fixture(scope="module")
def fitted(data):
    return SmoothLinkClassifier(**KNOBS).fit(*data)


def test_probabilities_are_calibrated_and_ranks_are_better_than_frequencies(data, fitted):
    X, Y = data
    P = fitted.predict_proba(X)
    assert P.sum() == pytest.approx(Y.nnz, rel=0.3)
    best = Y[:, [int(np.argmax(np.bincount(Y.indices)))]].sum() / 1500
    top = fitted.predict_topk(X, 1).indices
    assert np.asarray(Y[np.arange(1500), top]).mean() > 2 * best


def test_every_way_to_ask_gives_the_same_scores(data, fitted):
    X, _ = data
    S, P = fitted.decision_function(X), fitted.predict_proba(X)
    some = [70, 3, 3, 41]
    np.testing.assert_allclose(fitted.decision_function(X, labels=some), S[:, some], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fitted.predict_proba(X, labels=some), P[:, some], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(fitted.decision_function(X[[7]]), S[[7]], rtol=1e-4, atol=1e-4)
    order = fitted.predict_topk(X, 3).indices.reshape(-1, 3)
    np.testing.assert_allclose(np.take_along_axis(S, order, 1), -np.sort(-S, axis=1)[:, :3], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(fitted.predict(X).toarray(), (P > 0.5).astype(int))


def test_scores_are_those_of_the_written_formula(data, fitted):
    X, _ = data
    m = fitted.model_
    D = sp.csr_array((m.sparse_weights.values, m.sparse_weights.labels, m.sparse_weights.indptr), (301, 80)).toarray()[
        :300
    ]
    x = X.toarray() / np.linalg.norm(X.toarray(), axis=1, keepdims=True)
    W, V = m.W.columns(), m.V.columns()
    h = x @ W[:-1]
    u = h / np.linalg.norm(h, axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.decision_function(X), u @ V[:-1] + V[-1] + x @ D, rtol=1e-3, atol=1e-3)


def test_a_row_without_features_gets_the_frequencies(data, fitted):
    _, Y = data
    P = fitted.predict_proba(sp.csr_array((1, 300), dtype=np.float32))[0]
    share = np.asarray(Y.mean(axis=0)).ravel()
    assert np.corrcoef(P, share)[0, 1] > 0.95


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_a_saved_model_says_the_same(data, fitted, tmp_path, dtype):
    X, _ = data
    fitted.save(tmp_path / "m", dtype=dtype)
    loaded = smoothlink.load(tmp_path / "m")
    np.testing.assert_allclose(loaded.predict_proba(X), fitted.predict_proba(X), atol=1e-6 if dtype is None else 0.01)
    assert shown(loaded) == shown(fitted)


@pytest.mark.parametrize("damage", ["label", "end", "order", "type", "missing"])
def test_a_damaged_file_is_refused(data, tmp_path, monkeypatch, damage):
    changed = {
        "label": lambda D: D._replace(labels=np.where(np.arange(len(D.labels)) == 5, 80, D.labels).astype(np.int32)),
        "end": lambda D: D._replace(indptr=D.indptr + 1),
        "order": lambda D: D._replace(indptr=np.concatenate([[0, 9, 3], D.indptr[3:]])),
        "type": lambda D: D._replace(values=D.values.astype(np.float64)),
        "missing": lambda D: D,
    }[damage]
    model = SmoothLinkClassifier(**KNOBS | {"training": Joint(20, passes=1)}).fit(*data)
    object.__setattr__(model.model_, "sparse_weights", changed(model.model_.sparse_weights))
    if damage == "missing":
        monkeypatch.setattr("smoothlink.modelfile.SPARSE_ARRAYS", ("D_indptr", "D_labels", "D_data"))
    model.save(tmp_path / "m")
    monkeypatch.undo()
    with pytest.raises(ModelFileError):
        smoothlink.load(tmp_path / "m")


def test_classes_are_drawn_too(rng):
    made = synthesise(Shape(300, 40, 12, multiclass=True, seed=1), 1500)
    y = made.Y.indices
    model = SmoothLinkClassifier(training=Joint(10), rank=16).fit(made.X, y)
    assert model.summary_["loss"] == "softmax"
    np.testing.assert_allclose(model.predict_proba(made.X).sum(axis=1), 1, rtol=1e-3)
    assert model.score(made.X, y) > 2 * np.bincount(y).max() / len(y)


@pytest.mark.parametrize(
    "change",
    [
        {"training": Joint(20, sparse_weights=False)},
        {"training": Joint(5)},
        {"training": Joint(20, passes=2)},
        {"training": Joint(20, learning_rate=0.5)},
        {"training": Joint(20, batch_rows=100)},
        {"rank": 8},
        {"ridge": 0.01},
        {"embedding": Randomized(power=2)},
    ],
    ids=str,
)
def test_each_parameter_changes_the_model(data, fitted, change):
    other = SmoothLinkClassifier(**KNOBS | change).fit(*data)
    assert np.abs(other.decision_function(data[0]) - fitted.decision_function(data[0])).max() > 1e-3
    assert (other.model_.sparse_weights is not None) == getattr(change.get("training"), "sparse_weights", True)


def test_every_label_drawn_is_the_exact_descent(data):
    """A batch that sees every label has no use for how likely that was."""
    X, Y = data
    model = SmoothLinkClassifier(training=Joint(80), rank=24).fit(X, Y)
    more = SmoothLinkClassifier(training=Joint(10**6), rank=24).fit(X, Y)
    np.testing.assert_array_equal(model.decision_function(X), more.decision_function(X))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kernel": "gaussian"}, "kernel is 'gaussian'"),
        ({"loss": "squared"}, "loss is 'squared'"),
        ({"kernel": Gaussian(1.0)}, r"kernel is Gaussian\(bandwidth=1.0\)"),
        ({"final_ridge": 0.1}, "final_ridge is 0.1"),
        ({"kernel": Gaussian(features=10)}, "n_features is 10"),
        ({"embedding": "random"}, "embedding is 'random'"),
        ({"normalize_embedding": True}, "normalize_embedding is True"),
        ({"rank": 0.5}, "rank is 0.5"),
        ({"label_smoothing": 0.9}, "label_smoothing is 0.9"),
        ({"memory": "4G"}, "memory is '4G'"),
        ({"class_weight": "balanced"}, "class_weight is given for multilabel y"),
        pytest.param({"input_kernel": "gaussian"}, "input_kernel is 'gaussian'", marks=pytest.mark.slow),
    ],
)
def test_what_drawn_labels_have_no_room_for_is_refused(data, change, said):
    with pytest.raises(ValueError, match=f"{said}, which training='joint' cannot use"):
        SmoothLinkClassifier(**KNOBS | change).fit(*data)


def test_dense_rows_are_refused(data, rng):
    _, Y = data
    with pytest.raises(ValueError, match="X is dense or in files, and training='joint' needs sparse rows"):
        SmoothLinkClassifier(**KNOBS).fit(rng.standard_normal((1500, 9)), Y)


def test_auto_draws_labels_where_passes_over_all_would_be_long(data, monkeypatch):
    plain = SmoothLinkClassifier(rank=8, effort="quick")
    assert "negatives" not in plain.fit(*data).summary_
    monkeypatch.setattr(together, "MANY_LABELS", 50)
    monkeypatch.setattr(together, "LOGISTIC_FLOPS", 1e6)
    story = plain.fit(*data).summary_
    assert (story["negatives"], story["kernel"], story["passes"]) == (500, "linear", 4)
    for change in ({"training": "stepwise"}, {"kernel": "gaussian"}, {"loss": "squared"}):
        assert "negatives" not in clone(plain).set_params(**change).fit(*data).summary_


def test_many_rows_are_fitted_once_without_those_that_calibrate(data, monkeypatch):
    monkeypatch.setattr(together, "MANY_ROWS", 1000)
    calls = []
    descend = together.descend
    monkeypatch.setattr(together, "descend", lambda rows, *rest: calls.append(rows.w.sum()) or descend(rows, *rest))
    story = SmoothLinkClassifier(**KNOBS).fit(*data).summary_
    assert calls == [1500 - story["held_out_rows"]]
    assert 50 <= story["held_out_rows"] <= 100


def test_a_fit_that_was_stopped_goes_on_bit_for_bit(data, fitted, tmp_path, monkeypatch):
    X, Y = data
    keep, kept = together.keep_state, []

    def until_the_second(setup, name, state):
        keep(setup, name, state)
        kept.append(name)
        if kept.count("fit") == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(together, "keep_state", until_the_second)
    with pytest.raises(KeyboardInterrupt):
        SmoothLinkClassifier(**KNOBS, checkpoint=tmp_path / "state").fit(X, Y)
    monkeypatch.setattr(together, "keep_state", keep)
    again = SmoothLinkClassifier(**KNOBS, checkpoint=tmp_path / "state").fit(X, Y)
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))


def test_weights_count_rows(data):
    """A row of weight 0 is no row."""
    X, Y = data
    w = np.ones(1500)
    w[:40] = 0
    knobs = {**KNOBS, "calibrate": False}
    one = SmoothLinkClassifier(**knobs).fit(X, Y, sample_weight=w)
    Z = Y.copy()
    Z.data[: Z.indptr[40]] = 0
    Z.eliminate_zeros()
    two = SmoothLinkClassifier(**knobs, task="multilabel").fit(X, Z, sample_weight=w)
    np.testing.assert_allclose(one.decision_function(X), two.decision_function(X), rtol=1e-3, atol=1e-3)


def test_the_command_shows_what_was_drawn(data, tmp_path, capsys):
    from smoothlink.cli import main
    from smoothlink.data.read import Data, write

    write(Data(*data, None, None), tmp_path / "train.txt")
    joint = ["--training", "joint", "--set", "training.negatives=20"]
    with pytest.raises(SystemExit) as end:
        main(["train", str(tmp_path / "train.txt"), "-o", str(tmp_path / "m"), "--rank", "24", *joint])
    assert not end.value.code
    shown = capsys.readouterr().out
    for said in ("negatives", "direct weights", "kernel", "linear", "logistic"):
        assert said in shown
    assert "bandwidth" not in shown


def test_both_fits_of_few_rows_are_counted(fitted):
    """Without the held-out rows, then with them: stages of the same name add up."""
    assert list(fitted.summary_["seconds"]) == ["scale", "embed", "fit", "calibrate"]


def test_too_many_pairs_are_done_without(data, monkeypatch):
    monkeypatch.setattr(together, "MOST_PAIRS", 10)
    assert SmoothLinkClassifier(**KNOBS | {"training": Joint(20, passes=1)}).fit(*data).model_.sparse_weights is None
