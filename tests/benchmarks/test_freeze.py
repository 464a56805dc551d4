"""The record of what must not change: a comparison with it finds each kind of change, and nothing where none is."""

import json

import freeze
import numpy as np
import pytest

MODELS = ["squared", "linear"]
MODEL_PART = ["--only", "models", "--places", "cpu", "--models", *MODELS]
SET_PART = ["--only", "sets", "--sets", "bibtex", "--efforts", "quick"]


@pytest.fixture
def this_tree(monkeypatch):
    """The package under test may be installed from elsewhere than the tree of the script."""
    monkeypatch.setattr(freeze, "ROOT", freeze.Path(freeze.smoothlink.__file__).parents[2])


@pytest.fixture
def folder(tmp_path, this_tree):
    """A record of two small models."""
    assert freeze.main(["record", *MODEL_PART, "--folder", str(tmp_path)]) == 0
    return tmp_path


def compared(folder, capsys, part=MODEL_PART):
    """The exit status of a comparison, and its lines but the last."""
    capsys.readouterr()
    status = freeze.main(["compare", *part, "--folder", str(folder), "--scratch", str(folder)])
    return status, capsys.readouterr().out.splitlines()[:-1]


def edited(path, change):
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


@pytest.mark.slow
def test_the_same_code_does_not_differ_from_its_record(folder, capsys):
    assert compared(folder, capsys) == (0, [])


@pytest.mark.parametrize(("change", "lines"), [(1e-6, 0), (1e-3, 1), (np.nan, 1)])
def test_a_prediction_that_changes_by_more_than_rounding_is_found(folder, capsys, change, lines):
    with np.load(folder / "predictions.npz") as stored:
        arrays = dict(stored)
    arrays["linear on cpu/probabilities"][3, 2] += change
    np.savez_compressed(folder / "predictions.npz", **arrays)
    status, told = compared(folder, capsys)
    assert (status, len(told)) == (int(lines > 0), lines)
    assert all(line.startswith("Differs: models/linear on cpu/probabilities: ") for line in told)


@pytest.mark.parametrize("key", ["top", "f1_sets"])
def test_other_labels_are_found(folder, capsys, key):
    with np.load(folder / "predictions.npz") as stored:
        arrays = dict(stored)
    arrays[f"squared on cpu/{key}"][0] = np.roll(arrays[f"squared on cpu/{key}"][0], 1)
    np.savez_compressed(folder / "predictions.npz", **arrays)
    status, told = compared(folder, capsys)
    assert status == 1
    assert [line.split(":")[1] for line in told] == [f" models/squared on cpu/{key}"]


def test_a_changed_summary_is_found_and_an_intended_one_is_told_with_its_reason(folder, capsys):
    edited(folder / "record.json", lambda found: found["models"]["squared on cpu"]["summary"].update(ridge=2.0))
    assert compared(folder, capsys) == (1, ["Differs: models/squared on cpu/summary/ridge: 2.0 before, 1.0 now"])
    entry = {"reason": "The ridge is halved.", "covers": ["models/squared on */summary/ridge"]}
    (folder / "intended.json").write_text(json.dumps({"halves": entry}))
    status, told = compared(folder, capsys)
    assert status == 0
    assert told[0].endswith("2.0 before, 1.0 now; halves: The ridge is halved.")


def test_a_missing_model_is_found(folder, capsys, monkeypatch):
    monkeypatch.delitem(freeze.MODELS, "linear")
    assert compared(folder, capsys) == (1, ["Differs: models/linear on cpu: is missing"])


def test_a_model_that_was_not_recorded_is_found(folder, capsys, monkeypatch):
    monkeypatch.setitem(freeze.MODELS, "new", freeze.MODELS["squared"])
    status, told = compared(folder, capsys, [*MODEL_PART, "new"])
    assert (status, told) == (1, ["Differs: models/new on cpu: is not in the record; record it"])


def test_a_model_that_is_refused_now_is_found(folder, capsys, monkeypatch):
    monkeypatch.setitem(freeze.MODELS, "linear", freeze.fixed("multilabel", kernel="round"))
    status, told = compared(folder, capsys)
    assert status == 1
    assert told[0].startswith("Differs: models/linear on cpu: was fitted, is refused now: ")


@pytest.fixture
def measured(tmp_path, this_tree, monkeypatch):
    """A record of one made data set under the name of a real one."""
    rng = np.random.default_rng(0)
    (tmp_path / "bibtex").mkdir()
    for part in ("train", "test"):
        X = rng.standard_normal((60, 5))
        rows = [f"{int(np.argmax(x))} " + " ".join(f"{i}:{value:.3f}" for i, value in enumerate(x)) for x in X]
        (tmp_path / "bibtex" / f"{part}.txt").write_text("\n".join(["60 5 5", *rows]) + "\n")
    monkeypatch.setenv("SMOOTHLINK_DATA", str(tmp_path))
    assert freeze.main(["record", *SET_PART, "--folder", str(tmp_path)]) == 0
    return tmp_path


@pytest.mark.slow
def test_a_changed_accuracy_is_found(measured, capsys):
    assert compared(measured, capsys, SET_PART) == (0, [])
    edited(measured / "record.json", lambda found: found["sets"]["bibtex quick"].update({"p@1": 0.123}))
    status, told = compared(measured, capsys, SET_PART)
    assert (status, len(told)) == (1, 1)
    assert told[0].startswith("Differs: sets/bibtex quick/p@1: 0.1230 before, ")


@pytest.mark.parametrize(
    ("now", "listed", "found"),
    [
        ({"p@1": 0.50005, "p@5": 0.2}, None, []),
        ({"p@1": 0.5005, "p@5": 0.2}, None, ["p@1"]),
        ({"p@1": 0.4995, "p@5": 0.1995}, 0.4995, []),
        ({"p@1": 0.51, "p@5": 0.2}, 0.51, []),
        ({"p@1": 0.51, "p@5": 0.2}, 0.52, ["p@1"]),
        ({"p@1": 0.498, "p@5": 0.198}, 0.498, ["p@1", "p@5"]),
    ],
)
def test_an_intended_change_may_cost_a_tenth_of_a_point_and_says_what_came_of_it(now, listed, found):
    intended = {} if listed is None else {"change": {"reason": "one rule", "p@1": {"set full": [0.5, listed]}}}
    before = {"p@1": 0.5, "p@5": 0.2}
    differences = freeze.compare_cell("set full", before, now, intended)
    assert [difference.name.rpartition("/")[2] for difference in differences] == found


def test_more_seconds_than_the_ratio_allows_are_found_after_further_tries(capsys):
    given = freeze.argparse.Namespace(repeats=2, ratio=1.05, against="main")
    seconds = {"there": iter([2.0, 1.0] * 3), "here": iter([2.0] * 6)}
    trees = [freeze.Path("there"), freeze.Path("here")]
    *_, worse = freeze.compare_figures(
        "sets/x", ["seconds"], trees, lambda tree: {"seconds": next(seconds[str(tree)])}, given
    )
    assert worse == [freeze.Difference("sets/x/seconds", "2.000 times that of main")]
    assert next(seconds["here"], None) is None
