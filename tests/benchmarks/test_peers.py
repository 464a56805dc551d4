"""Peers in processes of their own: the protocol with made-up peers, and each real one where it is installed."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import peers
import pytest
import scipy.sparse as sp
from commands import labelled, one_label_each
from peers.known import OURS, PEERS, Peer

from smoothlink import SmoothLinkClassifier
from smoothlink.choices import nest
from smoothlink.data.read import write
from smoothlink.metrics.evaluate import evaluate
from smoothlink.search import Space
from smoothlink.steps.scale import choose_scaling
from smoothlink_paper import reproduce_mulan as mulan
from smoothlink_paper.data_sets import Split
from smoothlink_paper.methods import of_probabilities, of_top, tuned
from smoothlink_paper.record import training

FREQUENCIES = """
import json, time
import numpy as np
import scipy.sparse as sp
PACKAGE = "numpy"
def prepare(X, Y, job):
    return X, Y
def fit(data, job):
    return np.asarray(data[1].mean(axis=0)).ravel()
def predict(model, X, job):
    return np.tile(model, (X.shape[0], 1))
def save(model, path):
    np.save(path.with_suffix(".npy"), model)
    path.with_suffix(".npy").rename(path)
"""


@pytest.fixture
def split(rng):
    return halves(labelled(rng, 90))


def halves(data):
    return Split(*(data._replace(X=data.X[rows], Y=data.Y[rows]) for rows in (slice(60), slice(60, 90))))


@pytest.fixture
def known(tmp_path, monkeypatch):
    """Makes a peer of a script: the one above with `changes` appended, under the name "made up"."""

    def make(changes="", name="made up", **fields):
        path = tmp_path / f"run_{name.replace(' ', '_')}.py"
        path.write_text(FREQUENCIES + changes)
        monkeypatch.setitem(PEERS, name, Peer(path, "for tests", {}, **fields))
        return name

    return make


def frequencies(split):
    return np.asarray(split.train.Y.mean(axis=0)).ravel()


def test_a_peer_answers_with_its_scores_and_their_cost(split, known):
    found = peers.report(known(), split, 0)
    order = np.argsort(-frequencies(split), kind="stable")
    np.testing.assert_array_equal(found.result.predictions.topk.indices.reshape(30, -1)[0], order[:5])
    np.testing.assert_allclose(found.result.predictions.top_probability, frequencies(split).max(), rtol=1e-6)
    assert found.version == f"numpy {np.__version__}"
    assert found.result.settings == {"version": found.version}
    assert found.result.seconds == found.fit_seconds >= 0
    assert min(found.prepare_seconds, found.predict_seconds, found.row_milliseconds) >= 0
    assert found.model_bytes > 5 * 4
    assert found.memory_mb is None or found.memory_mb > 1


def test_a_childs_memory_is_its_own(split, known):
    """Linux would count what the parent held when it forked."""
    held = np.ones(1 << 25)  # 256 MB
    found = peers.report(known(), split, 0)
    if found.memory_mb is None:
        pytest.skip("this system does not say how much memory a process held")
    assert found.memory_mb < held.nbytes / (1 << 20)


def test_a_peer_sees_our_features_without_the_constant(split, known):
    """Unit rows here: the scores are the lengths of rows, whose number of columns is that of X."""
    name = known("""
def predict(model, X, job):
    assert X.shape[1] == job["settings"]["columns"]
    return np.tile(np.sqrt(X.multiply(X).sum(axis=1)) / 2, (1, job["labels"]))
""")
    result = peers.run(name, split, 0, columns=split.train.X.shape[1])
    filled = np.diff(split.test.X.indptr) > 0
    np.testing.assert_allclose(result.predictions.top_probability, filled / 2, rtol=1e-6)


def test_a_peer_that_scales_by_itself_sees_the_rows_as_they_are(split, known):
    name = known(
        """
def predict(model, X, job):
    return np.tile(np.asarray(X.sum(axis=1)) / 100, (1, job["labels"]))
""",
        own_scaling=True,
    )
    result = peers.run(name, split, 0)
    sums = np.asarray(split.test.X.sum(axis=1)).ravel()
    np.testing.assert_allclose(result.predictions.top_probability, sums / 100, rtol=1e-6)


def test_what_a_peer_settled_is_reported(split, known):
    assert peers.report(known(), split, 0).selected == {}
    name = known("def selected(model, job):\n    return {'labels': len(model), 'seed': job['seed']}\n", "telling")
    assert peers.report(name, split, 0).selected == {"labels": 5, "seed": 0}


def test_versions_are_known_before_anything_is_run(known):
    assert peers.versions(known("print('a chatty library')\n"))["numpy"] == np.__version__
    with pytest.raises(peers.PeerFailed, match="pip install it"):
        peers.versions(known("import no_such_library\n", "another", remedy="pip install it"))


def test_smoothlink_as_a_peer_answers_as_it_does_here(split):
    given = {
        "rank": 4,
        "ridge": 1.0,
        "kernel.bandwidth": 2.0,
        "kernel.features": 40,
        "final_ridge": 0.1,
        "loss": "squared",
    }
    found = peers.report(OURS, split, 3, top=5, **given)
    fitted = SmoothLinkClassifier(random_state=3, **nest(given)).fit(split.train.X, split.train.Y)
    expected = fitted.predict_topk(split.test.X, 5)
    np.testing.assert_array_equal(found.result.predictions.topk.indices, expected.indices)
    np.testing.assert_allclose(found.result.predictions.topk.data, expected.data, rtol=1e-5)
    assert found.selected["rank"] == 4
    assert sum(found.selected["seconds"].values()) <= found.fit_seconds + 0.01
    assert found.selected["compiled"] >= 0
    assert peers.versions(OURS)["smoothlink"]


@pytest.mark.slow
def test_scikit_learns_ridge_is_its_own_unless_one_is_given(split):
    from sklearn.linear_model import Ridge

    name, scaling = "scikit-learn ridge on dense unit rows", choose_scaling(split.train.X)
    X, X_test = (scaling(part.X)[:, :-1].toarray() for part in split)
    for given, alpha in (({}, 1.0), ({"ridge": 3.0}, 3.0 * np.vdot(X, X) / X.shape[1])):
        expected = Ridge(alpha=alpha).fit(X, split.train.Y.toarray()).predict(X_test)
        found = peers.run(name, split, 0, **given).predictions
        np.testing.assert_allclose(found.top_probability, expected.max(axis=1).clip(0, 1), rtol=1e-4)


def test_seed_threads_and_settings_reach_the_peer(split, known):
    name = known("""
import os
def predict(model, X, job):
    assert os.environ["OMP_NUM_THREADS"] == "1"
    return np.full((X.shape[0], job["labels"]), (job["seed"] + job["threads"] + job["settings"]["level"]) / 100)
""")
    result = peers.run(name, split, 7, threads=1, level=12)
    assert result.settings["level"] == 12
    np.testing.assert_allclose(result.predictions.top_probability, 0.2, rtol=1e-6)


@pytest.mark.parametrize(
    "form",
    [
        "np.asarray(S)",
        "sp.csr_matrix(S)",
        "[sorted(enumerate(row), key=lambda p: -p[1])[: job['top'] or 5] for row in S.tolist()]",
    ],
    ids=["dense", "sparse", "listed"],
)
@pytest.mark.parametrize("top", [None, 3, 5])
def test_dense_sparse_and_listed_scores_rank_alike(split, known, form, top):
    name = known(f"""
def predict(model, X, job):
    S = (np.asarray(X.sum(axis=1)) + np.arange(job["labels"]) * 7.3) % 1
    return {form}
""")
    found = peers.run(name, split, 0, top=top).predictions
    X = np.asarray((split.test.X / np.sqrt(split.test.X.power(2).sum(axis=1).clip(1e-9))[:, None]).sum(axis=1))
    S = (X.reshape(-1, 1) + np.arange(5) * 7.3) % 1
    ranked = np.argsort(-S, axis=1)[:, : top or 5]
    np.testing.assert_array_equal(found.topk.indices.reshape(30, -1)[:, : top or 5], ranked)
    assert (found.sets is None) == (top is not None)


def test_a_failed_peer_is_quoted(split, known):
    with pytest.raises(peers.PeerFailed, match=r"made up failed.\n.*(\n.*)*ValueError: no such luck"):
        peers.run(known("def fit(data, job):\n    raise ValueError('no such luck')\n"), split, 0)


def test_a_peer_that_is_killed_is_told_from_one_that_fails(split, known):
    if sys.platform == "win32":
        pytest.skip("there are no signals")
    with pytest.raises(peers.PeerFailed, match="ended by signal 9"):
        peers.run(known("def fit(data, job):\n    import os\n    os.kill(os.getpid(), 9)\n"), split, 0)


def test_a_peer_out_of_time_is_stopped(split, known):
    with pytest.raises(peers.PeerStopped, match=r"made up was stopped after 0\.2 s"):
        peers.run(known("time.sleep(60)\n"), split, 0, limit=0.2)


def test_scores_that_are_no_numbers_are_refused(split, known):
    name = known("def predict(model, X, job):\n    return np.full((X.shape[0], job['labels']), np.nan)\n")
    with pytest.raises(peers.PeerFailed, match="150 infinite or NaN scores"):
        peers.run(name, split, 0)


def test_what_does_not_fit_is_refused_before_it_is_tried(split, known):
    with pytest.raises(
        peers.PeerFailed, match=r"does not fit: 60 rows, 12 features and 5 labels mean dense arrays of 1000000000"
    ):
        peers.run(known("1 / 0\n", dense=lambda n, d, c: 10**18), split, 0)


def test_a_multiclass_peer_refuses_rows_of_several_labels(split, known):
    with pytest.raises(peers.PeerFailed, match="one label per row"):
        peers.run(known("1 / 0\n", one_label_only=True), split, 0)


def test_an_absent_peer_says_what_to_install(known):
    assert peers.absent(known()) is None
    reason = peers.absent(known("import no_such_library\n", "another", remedy="pip install it"))
    assert "No module named 'no_such_library'" in reason
    assert reason.endswith("pip install it.")
    assert "\n" not in reason


def test_the_environment_names_the_interpreter(split, known, monkeypatch, tmp_path):
    name = known(variables=("FIRST", "SECOND"))
    assert peers.interpreter(PEERS[name]) == sys.executable
    monkeypatch.setenv("SECOND", sys.executable)
    assert peers.absent(name) is None
    monkeypatch.setenv("FIRST", str(tmp_path / "python"))
    assert f"{tmp_path / 'python'}: No such file" in peers.absent(name)
    with pytest.raises(peers.PeerFailed, match="cannot be started"):
        peers.run(name, split, 0)


def test_every_peer_has_a_script_and_a_line():
    for name, peer in PEERS.items():
        assert peer.script.exists(), name
        assert "\n" not in peer.about
    assert PEERS["PECOS XR-Linear"].variables[0] == "SMOOTHLINK_PECOS"
    assert set(peers.NAMES) == set(PEERS)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(peers.NAMES))
@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
def test_each_real_peer_beats_label_frequencies(rng, name, task):
    if reason := peers.absent(name):
        pytest.skip(reason)
    split = with_gaps(labelled(rng, 400, 30, 6) if task == "multilabel" else one_label_each(rng, 400), task)
    if task == "multilabel" and PEERS[name].one_label_only:
        with pytest.raises(peers.PeerFailed):
            peers.run(name, split, 0)
        return
    plain = of_probabilities(np.tile(frequencies(split), (100, 1)), split)
    known = {**training(split), "bootstraps": 0, "task": task}
    chance = evaluate(split.test.Y, plain, **known).metrics["p@1"].value
    for top in (None, 5):
        result = peers.run(name, split, 0, top=top, limit=300)
        assert evaluate(split.test.Y, result.predictions, **known).metrics["p@1"].value > chance + 0.1
    assert not {"omikuji", "napkinxc", "libmultilabel", "vowpalwabbit", "pecos"} & set(sys.modules)


def with_gaps(data, task):
    """300 training and 100 test rows: one of each without features, one without labels, and a label without rows."""
    n, c = data.Y.shape
    data = data._replace(Y=sp.csr_array((data.Y.data, data.Y.indices, data.Y.indptr), (n, c + 1)))
    X = data.X.toarray()
    X[[0, 300]] = 0
    Y = data.Y.toarray()
    if task == "multilabel":
        Y[1] = 0
    data = data._replace(X=sp.csr_array(X), Y=sp.csr_array(Y))
    return Split(*(data._replace(X=data.X[rows], Y=data.Y[rows]) for rows in (slice(300), slice(300, 400))))


def test_the_best_of_each_row_fill_up_with_frequent_labels(split):
    scores = sp.csr_array(([0.3, 0.9, 0.5], ([0, 0, 2], [1, 4, 0])), (30, 5))
    found = of_top(scores, split)
    np.testing.assert_array_equal(np.diff(found.topk.indptr), 5)
    ranked = found.topk.indices.reshape(30, 5)
    assert ranked[0, :2].tolist() == [4, 1]
    assert ranked[2, 0] == 0
    assert all(sorted(row) == [0, 1, 2, 3, 4] for row in ranked)
    np.testing.assert_allclose(found.top_probability[:3], [0.9, 0, 0.5])


def test_equal_scores_keep_the_order_in_which_they_come(split):
    scores = sp.csr_array((np.tile([0.5, 0.5, 0.2, 0.5, 0.0], 30), np.tile([3, 1, 0, 4, 2], 30), 5 * np.arange(31)))
    np.testing.assert_array_equal(of_top(scores, split).topk.indices.reshape(30, 5)[7], [3, 1, 4, 0, 2])


@pytest.mark.slow
def test_of_one_label_a_row_the_set_is_the_best_and_probabilities_sum_to_one(rng):
    split = halves(one_label_each(rng, 90))
    P = rng.random((30, 3))
    found = of_probabilities(P, split)
    np.testing.assert_array_equal(found.sets.indices, P.argmax(axis=1))
    truth = split.test.Y.indices
    expected = -np.log(P[np.arange(30), truth] / P.sum(axis=1))
    np.testing.assert_allclose(found.row_logloss, expected, rtol=1e-5)


def test_a_value_is_chosen_for_each_metric_on_training_rows(split):
    """Saying no is best for the Hamming loss of rare labels, and saying yes for their F1."""
    rare = sp.csr_array(split.train.Y.multiply(np.arange(60)[:, None] % 3 == 0))
    rare.eliminate_zeros()
    rare = Split(split.train._replace(Y=rare), split.test)

    def fit(part, seed, value):
        return mulan.Result(of_probabilities(np.full(part.test.Y.shape, value), part), 0.0, {"value": value})

    found = tuned(fit, (0.0, 0.7), rare, 0, ("hamming", "macro_f1_alg4"))
    assert {metric: result.settings["value"] for metric, result in found.items()} == {
        "hamming": 0.0,
        "macro_f1_alg4": 0.7,
    }


@pytest.mark.slow
def test_an_experiment_names_the_peers_it_lacks_and_goes_on(rng, known, monkeypatch, tmp_path):
    data = labelled(rng, 90)
    (tmp_path / "yeast").mkdir()
    for part, half in zip(("train", "test"), halves(data), strict=True):
        write(half, tmp_path / "yeast" / f"{part}.txt")
    failing = known("def fit(data, job):\n    raise ValueError('no such luck')\n", "failing")
    lacking = known("import no_such_library\n", "lacking", remedy="pip install it")
    there = known(name="there")
    small = {"space": Space(n_features=(20, 40), passes=2)}
    monkeypatch.setattr(mulan, "SEARCHES", {name: asked | small for name, asked in mulan.SEARCHES.items()})
    monkeypatch.setattr(mulan, "JOBS", 1)
    monkeypatch.setattr(mulan, "PRESETS", {})
    monkeypatch.setattr(mulan, "TUNED", ())
    names = (failing, lacking, there)
    monkeypatch.setattr(mulan, "BASELINES", names)
    monkeypatch.setattr(mulan, "RUN_BY", {name: name for name in names})
    monkeypatch.setattr(mulan, "baselines", lambda peers: {name: partial(peers.run, name) for name in names})
    said = []
    record = mulan.run(tmp_path, trials=1, quick=False, seed=0, notify=said.append, peers=peers)
    assert sum("pip install it" in line for line in said) == 1
    assert list(record["absent"]) == [lacking]
    assert "no such luck" in record["failed"]["yeast"][failing]
    rows = record["sets"]["yeast"]["hamming"]["methods"]
    assert there in rows
    assert not {failing, lacking} & set(rows)
    page = mulan.page(record)
    assert "pip install it" in page
    assert "ValueError: no such luck" in page


def test_no_child_outlives_its_folder(split, known, tmp_path):
    """The folder of a job is gone afterwards, whether the peer answered or failed."""
    place = tmp_path / "place"
    name = known(f"def fit(data, job):\n    open({str(place)!r}, 'w').write(job['folder'])\n    raise ValueError\n")
    with pytest.raises(peers.PeerFailed):
        peers.run(name, split, 0)
    assert not os.path.exists(place.read_text())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends processes in another way")
def test_a_run_that_is_terminated_ends_its_peer(tmp_path):
    place = tmp_path / "number"
    peer = f"import os, time; open({str(place)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    folder = Path(__file__).parents[2] / "benchmarks"
    program = f"import peers, sys; peers._run([sys.executable, '-c', {peer!r}], 1, 60)"
    run = subprocess.Popen([sys.executable, "-c", program], cwd=folder)
    while not (place.exists() and place.read_text()):
        assert run.poll() is None
        time.sleep(0.05)
    run.terminate()
    assert run.wait(20) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int(place.read_text()), 0)
