"""A fit killed at any moment goes on to the same model, bit for bit; the state of another fit is refused."""

import functools
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp
from small import FIXED, classes, fixed, multilabel, words

import smoothlink
from smoothlink import Logistic, Randomized, SmoothLinkClassifier, Softmax
from smoothlink.choices import to_json
from smoothlink.data.read import Data, read, write
from smoothlink.fitting import checkpoint
from smoothlink.fitting.checkpoint import FitState, checksum, describe_fit, locked
from smoothlink.fitting.memory import Plan
from smoothlink.steps import squared as fitting

GIVEN = FIXED | {"embedding": Randomized(oversample=1)}  # so that the embedding has a basis to seek
SETTINGS = {
    "squared": GIVEN,
    "logistic": GIVEN | {"loss": Logistic(passes=3)},
    "softmax": GIVEN | {"loss": Softmax(passes=3)},
}
SLOW = pytest.mark.slow
CALIBRATED = GIVEN | {"calibrate": True, "holdout": 0.5}

# The fit that a checkpoint goes with: small blocks, a state after each of them, and V for few labels at a time. It
# kills itself at the `deaths`th moment of a kind.
CHILD = """
import json, os, signal, sys
import numpy as np
from small import classes, words
from smoothlink import Softmax, SmoothLinkClassifier
from smoothlink.choices import from_json
from smoothlink.fitting import checkpoint
from smoothlink.machines.rows_in_files import FileArray
from smoothlink.steps import squared as fit

settings = {name: from_json(value) for name, value in json.loads(sys.argv[1]).items()}
folder, model, deaths, moment = *sys.argv[2:4], int(sys.argv[4]), sys.argv[5]
checkpoint.EVERY, fit.SOLVED_LABELS, left = 0.0, 2, [deaths]

def dies(now):
    left[0] -= moment == now
    return moment == now and left[0] == 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def kept(self, *a, **k):
    keep(self, *a, **k)
    if dies("kept"):
        die()

def saved(file, **arrays):
    if dies("torn"):  # half of the content is in the file
        save(file, **arrays)
        file.truncate(file.tell() // 2)
        die()
    save(file, **arrays)

def synced(*a):
    sync(*a)
    if dies("unnamed"):  # the content is on disk, but not yet under its name
        die()

def put(self, part, columns):
    if dies("columns"):  # half of a block of V is in its file
        place(self, part, np.where(np.arange(len(columns))[:, None] % 2, columns, 7))
        die()
    place(self, part, columns)

keep, checkpoint.FitState.save = checkpoint.FitState.save, kept
sync, checkpoint.os.fsync = checkpoint.os.fsync, synced
save, checkpoint.np.savez = checkpoint.np.savez, saved
place, FileArray.put_columns = FileArray.put_columns, put
rng = np.random.default_rng(5)
X, Y = classes(rng, c=6) if isinstance(settings["loss"], Softmax) else words(rng, n=90, d=40, c=6)
print("began", flush=True)
fitted = SmoothLinkClassifier(block_rows=30, checkpoint=folder, verbose=1, **settings).fit(X, Y)
fitted.save(model)
"""


def start(settings, folder, model, deaths=0, moment="kept", **options):
    path = os.pathsep.join([os.path.dirname(os.path.dirname(__file__)), os.environ.get("PYTHONPATH", "")])
    args = [
        json.dumps({name: to_json(value) for name, value in settings.items()}),
        str(folder),
        str(model),
        str(deaths),
        moment,
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "text": True}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *args], env=os.environ | {"PYTHONPATH": path}, **quiet | options
    )


def content(path):
    """The arrays, settings and summary of a model file, but for what a clock says."""
    model = smoothlink.load(path)
    story = {k: v for k, v in model.summary_.items() if k not in ("seconds", "peak_memory_mb")}
    parts = model.model_
    arrays = [parts.W, parts.V, parts.features.R, parts.features.b, parts.thresholds, parts.calibration.values]
    return story, [np.asarray(a).tobytes() for a in (*arrays, parts.counts, model.label_directions_)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What each loss ends with when nobody kills it."""

    @functools.cache
    def found(loss):
        folder = tmp_path_factory.mktemp("whole")
        with start(SETTINGS[loss], folder / "state", folder / "m") as child:
            assert child.wait() == 0
        return content(folder / "m")

    return found


@pytest.mark.parametrize("loss", ["squared", *(pytest.param(loss, marks=SLOW) for loss in ("logistic", "softmax"))])
def test_a_fit_killed_after_every_state_ends_with_the_same_model(tmp_path, undisturbed, loss):
    deaths, step = 0, 5 if loss == "squared" else 3
    while True:  # every start gets some states farther, and is killed there
        with start(SETTINGS[loss], tmp_path / "state", tmp_path / "m", step) as child:
            code = child.wait()
        if code == 0:
            break
        assert code == -signal.SIGKILL
        deaths += 1
    assert deaths >= 2
    assert content(tmp_path / "m") == undisturbed(loss)


@pytest.mark.parametrize(
    ("loss", "moment", "counts"),
    [
        pytest.param("squared", "torn", (2, 4), marks=SLOW),
        pytest.param("squared", "unnamed", (1, 7), marks=SLOW),
        pytest.param("squared", "columns", (1, 2), marks=SLOW),
        pytest.param("logistic", "torn", (6,), marks=SLOW),
        pytest.param("softmax", "unnamed", (9,), marks=SLOW),
    ],
)
def test_a_fit_killed_while_it_writes_ends_with_the_same_model(tmp_path, undisturbed, loss, moment, counts):
    for count, code in [*((count, -signal.SIGKILL) for count in counts), (0, 0)]:
        with start(SETTINGS[loss], tmp_path / "state", tmp_path / "m", count, moment) as child:
            assert child.wait() == code
    assert content(tmp_path / "m") == undisturbed(loss)


@pytest.mark.slow
@pytest.mark.parametrize("loss", SETTINGS)
def test_a_fit_killed_at_random_moments_ends_with_the_same_model(tmp_path, undisturbed, loss):
    rng = np.random.default_rng()
    for wait in (*rng.uniform(0, 0.7, 4), None):
        with start(SETTINGS[loss], tmp_path / "state", tmp_path / "m", stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            if wait is None:
                assert child.wait() == 0
            else:
                time.sleep(wait)
                child.kill()
    assert content(tmp_path / "m") == undisturbed(loss)


@pytest.mark.slow
def test_a_fit_killed_from_outside_at_a_stage_ends_with_the_same_model(tmp_path):
    with start(CALIBRATED, tmp_path / "whole", tmp_path / "known") as child:
        assert child.wait() == 0
    for stage in ("calibrate", "embed", "fit"):
        with start(CALIBRATED, tmp_path / "state", tmp_path / "m", stderr=subprocess.PIPE) as child:
            for line in child.stderr:
                if line.strip() == f"smoothlink: {stage}":
                    child.kill()
                    break
            child.stderr.read()
            assert child.wait() in (-signal.SIGKILL, 0)  # the last stage may be over before the signal comes
    with start(CALIBRATED, tmp_path / "state", tmp_path / "m") as child:
        assert child.wait() == 0
    assert content(tmp_path / "m") == content(tmp_path / "known")
    left = {path.name.split("-")[0] for path in (tmp_path / "state").iterdir()}
    assert not {name for name in left if name.startswith("held")}  # what the calibration needed is gone


# In this process


@pytest.fixture
def data(rng):
    return words(rng, n=90, d=40, c=6)


@pytest.mark.usefixtures("as_on_a_card")
@pytest.mark.parametrize("change", [{}, {"embedding": Randomized(oversample=5)}, {"memory": "2G"}], ids=str)
@pytest.mark.parametrize("loss", SETTINGS)
def test_a_fit_on_a_device_stopped_after_every_state_ends_with_the_same_model(tmp_path, monkeypatch, loss, change):
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(fitting, "SOLVED_LABELS", 2)
    rng = np.random.default_rng(5)
    X, Y = classes(rng, c=6) if loss == "softmax" else words(rng, n=90, d=40, c=6)
    settings = SETTINGS[loss] | change | {"device": "torch", "block_rows": 30}
    known, keep, left = SmoothLinkClassifier(**settings).fit(X, Y), FitState.save, [0]

    def kept(self, *args, **arrays):
        keep(self, *args, **arrays)
        left[0] -= self.saves
        if self.saves and not left[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(FitState, "save", kept)
    found, stops = None, 0
    while found is None and stops < 100:  # every start gets two states farther
        left[0] = 2
        try:
            found = SmoothLinkClassifier(**settings, checkpoint=tmp_path / "state").fit(X, Y)
        except KeyboardInterrupt:
            stops += 1
    assert stops >= 3
    np.testing.assert_allclose(found.decision_function(X), known.decision_function(X), atol=1e-4)


@pytest.mark.torch
def test_a_state_of_the_host_is_not_gone_on_with_on_a_device(data, tmp_path):
    fixed(checkpoint=tmp_path).fit(*data)
    with pytest.raises(ValueError, match=r"is of another fit: device was cpu and is torch\."):
        fixed(checkpoint=tmp_path, device="torch").fit(*data)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"ridge": 2.0}, "ridge was 1.0 and is 2.0"), ({"random_state": 3}, "random_state was 0 and is 3")],
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
    with pytest.raises(ValueError, match=r"is of another fit: checksum of X was \d+ and is \d+\."):
        fixed(checkpoint=tmp_path).fit(other, Y)
    with pytest.raises(ValueError, match=r"checksum of Y was \d+ and is \d+"):
        fixed(checkpoint=tmp_path).fit(X, 1 - Y)
    with pytest.raises(ValueError, match=r"checksum of weights was \d+ and is \d+"):
        fixed(checkpoint=tmp_path).fit(X, Y, sample_weight=np.arange(1, 91))
    with pytest.raises(ValueError, match="rows was 90 and is 80"):
        fixed(checkpoint=tmp_path).fit(X[:80], Y[:80])


def test_a_folder_with_other_files_is_not_taken(data, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="is a folder with other files in it"):
        fixed(checkpoint=tmp_path).fit(*data)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "job.json").write_text("{")
    with pytest.raises(ValueError, match=r"job\.json cannot be read"):
        fixed(checkpoint=tmp_path / "broken").fit(*data)


def test_two_fits_do_not_share_a_folder(data, tmp_path):
    with locked(tmp_path / "state"), pytest.raises(ValueError, match="is in use by another fit"):
        fixed(checkpoint=tmp_path / "state").fit(*data)
    fixed(checkpoint=tmp_path / "state").fit(*data)


def cut_short(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def changed(path):
    content = bytearray(path.read_bytes())
    archive = content.find(b"NUMPY")  # in which some bytes between arrays mean nothing
    content[len(content) // 2 if archive < 0 else archive + 130] ^= 1
    path.write_bytes(content)


def of_another_compression(path):
    content = bytearray(path.read_bytes())
    place = content.find(b"PK\x01\x02")
    content[place + 10 if place >= 0 else len(content) // 2] ^= 99
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [cut_short, changed, of_another_compression])
@pytest.mark.parametrize("file", ["plan", "choose", "calibrate", "embed", "featurize-sums", "fit", "decoder"])
def test_a_damaged_state_is_refused(data, tmp_path, monkeypatch, file, harm):
    monkeypatch.setattr(fitting, "SOLVED_LABELS", 2)
    fixed(checkpoint=tmp_path).fit(*data)
    name = f"{file}.{'array' if file == 'decoder' else 'npz'}"
    harm(tmp_path / name)
    with pytest.raises(ValueError, match=rf"{name} is damaged \(.*\)\.\nRemove the folder to start anew"):
        fixed(checkpoint=tmp_path).fit(*data)


def test_a_decoder_that_is_gone_is_not_taken_for_zeros(data, tmp_path):
    fixed(checkpoint=tmp_path).fit(*data)
    (tmp_path / "decoder.array").unlink()
    with pytest.raises(ValueError, match=r"decoder\.array is damaged"):
        fixed(checkpoint=tmp_path).fit(*data)


def test_files_and_memory_give_one_checksum(data, tmp_path):
    X = sp.csr_array(data[0].astype(np.float32))
    assert checksum(X) == checksum(X.copy()) != checksum(X[::-1])
    Y = sp.csr_array(data[1].astype(np.float32))
    write(Data(X, Y), tmp_path / "a.sl")
    stored = read(tmp_path / "a.sl")
    asked = fixed()._request()
    assert describe_fit(stored.X, stored.Y, None, None, asked) == describe_fit(X, Y, None, None, asked)


def test_a_state_comes_back_as_it_was(tmp_path, rng):
    state, A = FitState(folder=tmp_path, saves=True), rng.standard_normal((3, 4)).astype(np.float32)
    assert state.load("a") is None
    state.save("a", {"x": 0.1 + 0.2, "y": None}, A=A)
    meta, arrays = state.load("a")
    assert meta == {"x": 0.1 + 0.2, "y": None}
    np.testing.assert_array_equal(arrays["A"], A)
    state.remove("a")
    assert state.load("a") is None
    assert FitState().load("a") is None


@pytest.mark.parametrize("task", ["squared", "multiclass"])
def test_labels_in_groups_and_embeddings_in_files_are_the_same_fit(rng, tmp_path, monkeypatch, task, machine):
    """A plan that puts everything into files, on data that would not need it."""
    monkeypatch.setattr(fitting, "SOLVED_LABELS", 2)
    X, Y = multilabel(rng, n=120, d=10, c=9)
    y = Y.argmax(axis=1) if task == "multiclass" else Y
    settings = {"calibrate": True, "normalize_embedding": True, "memory": "2G"}
    known = fixed(**settings).fit(X, y)
    tight = Plan(2 << 30, 25, 3, 0, embedding_in_file=True, label_group=4, held_rows=50)
    monkeypatch.setattr("smoothlink.fitting.prepare.make_plan", lambda *a: tight)
    found = fixed(**settings, device=str(machine)).fit(X, y)
    assert isinstance(found.model_.V.values, np.memmap)
    np.testing.assert_allclose(found.decision_function(X), known.decision_function(X), atol=2e-3)
    found.save(tmp_path / "m")
    again = smoothlink.load(tmp_path / "m").set_params(device=str(machine))
    np.testing.assert_array_equal(again.predict_proba(X), found.predict_proba(X))
