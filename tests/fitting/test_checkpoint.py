"""A fit killed at any moment goes on to the same model, bit for bit; the state of another fit is refused."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from small import FIXED, fixed, multilabel, words

import smoothlink
from smoothlink.fitting import checkpoint as keeping
from smoothlink.fitting.checkpoint import Work, job_of
from smoothlink.fitting.plan import Plan
from smoothlink.steps import fit as fitting

LOGISTIC = FIXED | {"loss": "logistic", "passes": 3}
CALIBRATED = FIXED | {"calibrate": True, "holdout": 0.5}

# The fit that a checkpoint goes with: small blocks, a state after each of them, and V for few labels at a time.
CHILD = """
import json, os, signal, sys
import numpy as np
from small import words
from smoothlink import SmoothLinkClassifier
from smoothlink.fitting import checkpoint
from smoothlink.steps import fit

settings, folder, model, deaths, moment = json.loads(sys.argv[1]), *sys.argv[2:4], int(sys.argv[4]), sys.argv[5]
checkpoint.EVERY, fit.SOLVED_LABELS, left = 0.0, 2, [deaths]
keep, replace = checkpoint.Work.keep, checkpoint.os.fsync

def die():
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def kept(self, name, *a, **k):
    keep(self, name, *a, **k)
    if moment == "kept":
        die()

def synced(*a):
    replace(*a)
    if moment == "half":  # the content is on disk, but not yet under its name
        die()

checkpoint.Work.keep, checkpoint.os.fsync = kept, synced
X, Y = words(np.random.default_rng(5), n=90, d=40, c=6)
fitted = SmoothLinkClassifier(block_rows=30, checkpoint=folder, verbose=1, **settings).fit(X, Y)
fitted.save(model)
"""


def start(settings, folder, model, deaths=0, moment="kept", **options):
    path = os.pathsep.join([os.path.dirname(os.path.dirname(__file__)), os.environ.get("PYTHONPATH", "")])
    args = [json.dumps(settings), str(folder), str(model), str(deaths), moment]
    return subprocess.Popen([sys.executable, "-c", CHILD, *args], env=os.environ | {"PYTHONPATH": path}, **options)


def content(path):
    """The arrays, settings and summary of a model file, but for what a clock says."""
    model = smoothlink.load(path)
    story = {k: v for k, v in model.summary_.items() if k not in ("seconds", "peak_memory_mb")}
    parts = model.model_
    arrays = [parts.W, parts.V, parts.features.R, parts.features.b, parts.thresholds, parts.calibration.values]
    return story, [np.asarray(a).tobytes() for a in (*arrays, parts.counts, model.label_directions_)]


def undisturbed(settings, tmp_path):
    with start(settings, tmp_path / "whole", tmp_path / "whole.safetensors", stderr=subprocess.DEVNULL) as child:
        assert child.wait() == 0
    return content(tmp_path / "whole.safetensors")


@pytest.mark.parametrize("settings", [FIXED, LOGISTIC], ids=["squared", "logistic"])
def test_a_fit_killed_after_every_state_ends_with_the_same_model(tmp_path, settings):
    known, deaths = undisturbed(settings, tmp_path), 0
    while True:  # every start gets three states farther, and is killed there
        with start(settings, tmp_path / "state", tmp_path / "m", 3, stderr=subprocess.DEVNULL) as child:
            code = child.wait()
        if code == 0:
            break
        assert code == -signal.SIGKILL
        deaths += 1
    assert deaths >= 2
    assert content(tmp_path / "m") == known


def test_a_fit_killed_while_a_state_is_written_ends_with_the_same_model(tmp_path):
    known = undisturbed(FIXED, tmp_path)
    for count, code in ((1, -signal.SIGKILL), (7, -signal.SIGKILL), (0, 0)):
        with start(FIXED, tmp_path / "state", tmp_path / "m", count, "half", stderr=subprocess.DEVNULL) as child:
            assert child.wait() == code
    assert content(tmp_path / "m") == known


def test_a_fit_killed_from_outside_at_a_stage_ends_with_the_same_model(tmp_path):
    known = undisturbed(CALIBRATED, tmp_path)
    for stage in ("calibrate", "embed", "fit"):
        with start(CALIBRATED, tmp_path / "state", tmp_path / "m", stderr=subprocess.PIPE, text=True) as child:
            for line in child.stderr:
                if line.strip() == f"smoothlink: {stage}":
                    child.send_signal(signal.SIGKILL)
                    break
            child.stderr.read()
            assert child.wait() in (-signal.SIGKILL, 0)  # the last stage may be over before the signal comes
    with start(CALIBRATED, tmp_path / "state", tmp_path / "m", stderr=subprocess.DEVNULL) as child:
        assert child.wait() == 0
    assert content(tmp_path / "m") == known


# In this process


@pytest.fixture
def data(rng):
    return words(rng, n=90, d=40, c=6)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"ridge": 2.0}, "ridge was 1.0 and is 2.0"), ({"random_state": 3}, "seed was 0 and is 3")],
)
def test_another_option_is_refused_by_its_name(data, tmp_path, change, said):
    fixed(checkpoint=tmp_path).fit(*data)
    with pytest.raises(ValueError, match=rf"is of another fit: {said}\.\nName another folder"):
        fixed(checkpoint=tmp_path, **change).fit(*data)


def test_other_data_are_refused_by_what_differs(data, tmp_path):
    X, Y = data
    fixed(checkpoint=tmp_path).fit(X, Y)
    other = X.copy()
    other.data[0] += 1
    with pytest.raises(ValueError, match=r"is of another fit: X was \d+ and is \d+\."):
        fixed(checkpoint=tmp_path).fit(other, Y)
    with pytest.raises(ValueError, match=r"Y was \d+ and is \d+"):
        fixed(checkpoint=tmp_path).fit(X, 1 - Y)
    with pytest.raises(ValueError, match=r"weights was \d+ and is \d+"):
        fixed(checkpoint=tmp_path).fit(X, Y, sample_weight=np.arange(1, 91))
    with pytest.raises(ValueError, match="rows was 90 and is 80"):
        fixed(checkpoint=tmp_path).fit(X[:80], Y[:80])


def test_a_folder_with_other_files_is_not_taken(data, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="is a folder with other files in it"):
        fixed(checkpoint=tmp_path).fit(*data)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "job.json").write_text("{")
    with pytest.raises(ValueError, match=r"job.json cannot be read"):
        fixed(checkpoint=tmp_path / "broken").fit(*data)


def test_files_and_memory_give_one_checksum(data):
    X = sp.csr_array(data[0].astype(np.float32))
    assert keeping.checksum(X) == keeping.checksum(X.copy()) != keeping.checksum(X[::-1])
    Y = sp.csr_array(data[1].astype(np.float32))
    assert job_of(X, Y, None, None, Plan())["X"] == keeping.checksum(X)


def test_a_state_comes_back_as_it_was(tmp_path, rng):
    work, A = Work(folder=tmp_path, keeps=True), rng.standard_normal((3, 4)).astype(np.float32)
    assert work.recall("a") is None
    work.keep("a", {"x": 0.1 + 0.2, "y": None}, A=A)
    meta, arrays = work.recall("a")
    assert meta == {"x": 0.1 + 0.2, "y": None}
    np.testing.assert_array_equal(arrays["A"], A)
    work.forget("a")
    assert work.recall("a") is None
    assert Work().recall("a") is None


@pytest.mark.parametrize("task", ["squared", "multiclass"])
def test_labels_in_groups_and_embeddings_in_files_are_the_same_fit(rng, tmp_path, monkeypatch, task):
    """A plan that puts everything into files, on data that would not need it."""
    from smoothlink.fitting import train as training

    monkeypatch.setattr(fitting, "SOLVED_LABELS", 2)
    X, Y = multilabel(rng, n=120, d=10, c=9)
    y = Y.argmax(axis=1) if task == "multiclass" else Y
    settings = {"calibrate": True, "normalize_embedding": True, "memory": "2G"}
    known = fixed(**settings).fit(X, y)
    tight = Plan(2 << 30, 25, 3, 0, embedding_in_file=True, label_group=4, judged_rows=50, pairs=64)
    monkeypatch.setattr(training, "make_plan", lambda *a: tight)
    found = fixed(**settings).fit(X, y)
    assert isinstance(found.model_.V, np.memmap)
    np.testing.assert_allclose(found.decision_function(X), known.decision_function(X), atol=2e-3)
    found.save(tmp_path / "m")
    np.testing.assert_array_equal(smoothlink.load(tmp_path / "m").predict_proba(X), found.predict_proba(X))
