"""Rows and labels that come to models trained by SGD and go from them."""

import pickle
import zlib

import numpy as np
import pytest
import scipy.sparse as sp

from smoothlink import DataError, Joint, Logistic, ModelFileError, SmoothLinkClassifier, Softmax, TextSmoothLink, load
from smoothlink.living.changes import Batch, update
from smoothlink.living.living_file import LivingFile
from smoothlink.living.steps_state import steps_bytes
from smoothlink.safetensors_file import load as load_file

KNOWN, WORDS = 6, 4  # labels, and words of each
RARE = KNOWN * WORDS + 10  # a word that one row has
LEARNERS = {
    "joint": {"training": Joint(negatives=5, passes=4)},
    "logistic": {"loss": Logistic(passes=6)},
    "softmax": {"loss": Softmax(passes=6)},
}
GIVEN = {"rank": 6, "ridge": 0.1, "scale": "unit", "effort": "quick", "random_state": 0, "updatable": True}


def made_rows(n, labels, seed):
    """Rows of one of the labels, with words of it and of no label; the new label has the words of labels 0 and 1."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((n, KNOWN + 1), np.int64)
    Y[np.arange(n), rng.choice(labels, n)] = 1
    topics = Y[:, :KNOWN].copy()
    topics[:, :2] = np.maximum(topics[:, :2], Y[:, KNOWN:])
    own = np.repeat(topics, WORDS, axis=1) * (rng.random((n, KNOWN * WORDS)) < 0.8)
    noise = rng.random((n, 10)) < 0.15
    return sp.csr_array(np.hstack([own, noise, np.zeros((n, 1))])), Y


@pytest.fixture(scope="module")
def once():
    """A model of each learner, pickled. Row 0 alone has the rare word, and alone the last label."""
    X, Y = made_rows(200, np.arange(KNOWN - 1), 0)
    X, Y = sp.lil_array(X), Y[:, :KNOWN]
    X[0, RARE], Y[0] = 1, np.eye(KNOWN)[KNOWN - 1]
    X = sp.csr_array(X)
    models = {}
    for learner, given in LEARNERS.items():
        task = "multiclass" if learner == "softmax" else "multilabel"
        models[learner] = pickle.dumps(SmoothLinkClassifier(**GIVEN, **given, task=task).fit(X, Y))
    return models, X, Y


@pytest.fixture(params=list(LEARNERS))
def fitted(once, request):
    models, X, Y = once
    return pickle.loads(models[request.param]), X, Y


@pytest.fixture
def joint(once):
    models, X, Y = once
    return pickle.loads(models["joint"]), X, Y


def ranks_new_label_first(model, seed=5):
    X, _ = made_rows(100, [KNOWN], seed)
    return (model.predict_proba(X).argmax(axis=1) == KNOWN).mean()


def test_a_new_label_is_predicted_after_its_rows(fitted):
    model, _, Y = fitted
    assert model.summary_["updates"] == "by training steps"
    model.update(*made_rows(60, [0, 1, 2, KNOWN, KNOWN, KNOWN], 1))
    assert ranks_new_label_first(model) > 0.8
    told = model.summary_["living"]
    assert told["method"] in ("ridge", "sgd")
    assert set(told["compared"]) <= {"ridge", "sgd"}
    assert (told["rows_added"], told["rows"], told["labels_added"]) == (60, 260, [str(KNOWN)])
    np.testing.assert_allclose(model.model_.counts[:KNOWN].sum() + model.model_.counts[KNOWN], Y.sum() + 60)
    reference = model.model_.reference
    assert reference is None or len(reference.labels) == KNOWN + 1


def test_a_label_that_was_added_without_rows_is_never_predicted_and_then_learnt_as_a_new_one(fitted):
    model, X, _ = fitted
    before = model.decision_function(X)
    model.add_labels(1)
    np.testing.assert_array_equal(model.decision_function(X)[:, :KNOWN], before)
    assert not model.predict(X)[:, KNOWN].any()
    model.update(*made_rows(60, [0, 1, 2, KNOWN, KNOWN, KNOWN], 1))
    assert ranks_new_label_first(model) > 0.8
    assert model.model_.n_labels == KNOWN + 1


def test_rows_that_are_not_there_cannot_be_forgotten(fitted):
    model, X, Y = fitted
    before = model.predict_proba(X)
    new, labels = made_rows(3, [1], 7)
    for rows, y in ((new, labels[:, :KNOWN]), (X[[3]], 1 - Y[[3]]), (X[[3, 3, 3]], Y[[3, 3, 3]])):
        with pytest.raises((DataError, ValueError), match=r"no such row|exactly one"):
            model.forget(rows, y)
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_what_only_a_forgotten_row_had_has_no_weights_left(fitted):
    model, X, Y = fitted
    kept = len(model._living.replay)
    model.forget(X[[0]], Y[[0]])
    inside, state = model.model_, model._living
    assert not inside.W.columns()[RARE].any()
    assert not inside.V.columns()[:, KNOWN - 1].any()
    assert inside.counts[KNOWN - 1] == 0
    assert inside.total == 199 == model.summary_["rows"]
    assert not model.predict(X)[:, KNOWN - 1].any()
    D = inside.sparse_weights
    assert D is None or (D.indptr[RARE] == D.indptr[RARE + 1] and KNOWN - 1 not in D.labels)
    assert len(state.replay) == kept - 1
    assert not state.replay.X[:, [RARE]].nnz
    assert not state.replay.Y[:, [KNOWN - 1]].nnz
    assert "in part" in model.summary_["living"]["approximate"]
    assert model.summary_["living"]["features_removed"] == [RARE]
    model.update(X[:1], Y[:1])  # and come back
    assert model.model_.counts[KNOWN - 1] == 1


def test_of_copies_that_are_forgotten_the_others_stay(joint):
    model, X, Y = joint
    model.update(X[[0, 0]], Y[[0, 0]])
    rows = model._living.replay
    mine = rows.X[:, [RARE]].toarray().ravel() > 0
    assert rows.w[mine].sum() == 3
    model.forget(X[[0, 0]].astype(np.float32), Y[[0, 0]])
    rows = model._living.replay
    np.testing.assert_allclose(rows.w[rows.X[:, [RARE]].toarray().ravel() > 0].sum(), 1)
    assert model.model_.counts[KNOWN - 1] == 1


def test_saved_and_loaded_it_goes_on_as_it_would_have(fitted, tmp_path):
    model, _, _ = fitted
    new = made_rows(60, [0, 1, 2, KNOWN, KNOWN, KNOWN], 1)
    path = tmp_path / "m.safetensors"
    model.save(path)
    loaded = load(path).update(*new)
    model.update(*new)
    np.testing.assert_allclose(loaded.predict_proba(new[0]), model.predict_proba(new[0]), atol=1e-5)
    loaded.save(path)
    assert len(list(tmp_path.iterdir())) == 2
    again = load(path).forget(new[0][:5], new[1][:5])
    assert again.summary_["rows"] == 255


def test_a_file_that_is_updated_has_all_that_was_acknowledged(fitted, tmp_path):
    model, X, Y = fitted
    path = tmp_path / "m.safetensors"
    model.save(path)
    new = made_rows(60, [0, 1, 2, KNOWN, KNOWN, KNOWN], 1)
    with LivingFile(path) as living:
        living.update(*new)
        expected = living.model.predict_proba(X)
    with LivingFile(path) as living:  # nothing was saved
        np.testing.assert_allclose(living.model.predict_proba(X), expected, atol=1e-6)
        living.forget(X[[0]], Y[[0]] if Y.shape[1] > KNOWN else np.pad(Y[[0]], ((0, 0), (0, 1))))
    assert load(path).summary_["rows"] == 259
    assert ranks_new_label_first(load(path)) > 0.8


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_training_goes_on_from_weights_that_are_stored_in_few_bits(joint, tmp_path, dtype):
    model, X, Y = joint
    model.save(tmp_path / "m.safetensors", dtype=dtype)
    loaded = load(tmp_path / "m.safetensors").forget(X[:2], Y[:2])
    loaded.update(*made_rows(60, [0, 1, 2, KNOWN, KNOWN, KNOWN], 1))
    assert ranks_new_label_first(loaded) > 0.8


def test_dense_rows_come_and_go():
    X, Y = made_rows(200, np.arange(KNOWN), 0)
    X, new = X.toarray(), made_rows(60, [0, 1, 2, KNOWN, KNOWN, KNOWN], 1)
    model = SmoothLinkClassifier(**{**GIVEN, "scale": "auto"}, **LEARNERS["logistic"], task="multilabel")
    model.fit(X, Y[:, :KNOWN]).update(new[0].toarray(), new[1]).forget(X[:9], Y[:9])
    assert model.summary_["living"]["rows"] == 251
    np.testing.assert_allclose(model.model_.counts, Y[9:].sum(axis=0) + new[1].sum(axis=0))


@pytest.mark.parametrize("damage", ["cut", "byte", "other"])
def test_rows_to_replay_that_are_damaged_or_of_another_model_are_refused(joint, tmp_path, damage):
    model, X, Y = joint
    path = tmp_path / "m.safetensors"
    model.save(path)
    (file,) = tmp_path.glob("m-sums-*")
    content = bytearray(file.read_bytes())
    if damage == "cut":
        content = content[:-100]
    elif damage == "byte":
        content[len(content) // 2] ^= 1
    else:
        load(path).update(X[:1], Y[:1]).save(path)
        (file,) = tmp_path.glob("m-sums-*")
    file.write_bytes(content)
    with pytest.raises(ModelFileError):
        load(path).update(X[:1], Y[:1])
    assert load(path).predict_proba(X).shape == Y.shape


def test_the_size_of_the_second_file_is_said_before_training(once, capsys, tmp_path):
    models, X, Y = once
    SmoothLinkClassifier(**GIVEN, **LEARNERS["logistic"], task="multilabel", verbose=1).fit(X, Y)
    assert "updatable: what updates need takes about 0 MB" in capsys.readouterr().err
    pickle.loads(models["logistic"]).save(tmp_path / "m.safetensors")
    (file,) = tmp_path.glob("m-sums-*")
    arrays = load_file(file).arrays.values()
    assert 0.5 < sum(A.nbytes for A in arrays) / steps_bytes(X, KNOWN) < 3


def test_rows_of_weight_zero_teach_nothing(joint):
    model, X, Y = joint
    before = model.decision_function(X)
    update(model, Batch(X[1:3], sp.csr_array(Y[1:3].astype(np.float32)), np.zeros(2), []))
    np.testing.assert_array_equal(model.decision_function(X), before)
    assert model.summary_["living"]["method"] is None


def test_sparse_weights_cannot_be_left_out_of_a_model_that_is_updated(joint, tmp_path):
    with pytest.raises(ModelFileError, match="need all"):
        joint[0].save(tmp_path / "m.safetensors", prune=0.5)


def test_a_forgotten_text_leaves_nothing_in_any_file(tmp_path):
    rng = np.random.default_rng(0)
    kinds = {"fruit": "apple pear plum", "metal": "iron copper zinc"}
    labels = [[name] for name in rng.choice(list(kinds), 60)]
    texts = [" ".join(rng.choice(kinds[name].split(), 4)) for (name,) in labels]
    texts[7], labels[7] = "xylophonist apple zanzibar", ["secret", "fruit"]
    given = {"rank": 4, "effort": "quick", "training": Joint(negatives=5, passes=2)}
    model = TextSmoothLink(task="multilabel", updatable=True, **given).fit(texts, labels)

    def all_bytes():
        found = b""
        for path in tmp_path.glob("*.safetensors"):
            found += path.read_bytes()
            arrays = load_file(path).arrays.items()
            found += b"".join(zlib.decompress(A.tobytes()) for name, A in arrays if name.endswith("_zlib"))
        return found

    model.save(tmp_path / "m.safetensors")
    assert b"xylophonist" in all_bytes()
    load(tmp_path / "m.safetensors").forget([texts[7]], [labels[7]]).save(tmp_path / "m.safetensors")
    left = all_bytes()
    assert not any(word in left for word in (b"xylophonist", b"zanzibar", b"secret"))
    assert b"apple" in left


@pytest.mark.parametrize(("several", "rows"), [(False, 3), (False, 12), (True, 12)])
def test_a_new_class_of_few_rows_is_predicted_where_no_rows_can_compare(several, rows):
    """Bags of 20 of 40 words; four classes with 160 rows, and a fifth with few. Means over three draws."""
    new, old = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        P = np.exp(1.8 * rng.standard_normal((5, 40)))
        y = np.append(np.arange(160) % 4, np.full(rows + 50, 4))
        X = sp.csr_array(np.array([rng.multinomial(20, P[j] / P[j].sum()) for j in y]), dtype=np.float64)
        Y = np.eye(5, dtype=int)[y] if several else y
        given = {"loss": "logistic", "task": "multilabel"} if several else {"loss": "softmax"}
        model = SmoothLinkClassifier(updatable=True, effort="quick", **given)
        model.fit(X[:160], Y[:160, :4] if several else Y[:160]).update(X[160:-50], Y[160:-50])
        assert model.summary_["living"]["compared"] == {}
        new.append(np.mean(model.predict_topk(X[-50:], k=1).indices == 4))
        old.append(np.mean(model.predict_topk(X[:160], k=1).indices == y[:160]))
    assert np.mean(new) > 0.6
    assert np.mean(old) > 0.9
