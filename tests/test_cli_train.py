"""`smoothlink train`: one option for each parameter, a model that keeps names, errors before work."""

import inspect
import json
import re
import shlex

import numpy as np
import pytest
import typer
from commands import FIXED, left, one_label_each, prepared, run, succeed

import smoothlink
from smoothlink import SmoothLinkClassifier
from smoothlink.cli.app import app
from smoothlink.cli.parameter_options import chosen
from smoothlink.cli.screen import Screen
from smoothlink.cli.train_command import ONE_LABEL, show
from smoothlink.data.formats import FORMATS
from smoothlink.data.read import write
from smoothlink.parameters import PARAMETERS

SIGNATURE = inspect.signature(SmoothLinkClassifier).parameters
TYPED = {  # another value for each parameter, as it is typed
    "rank": "7",
    "embedding": "principal",
    "ridge": "0.5",
    "kernel": "matern(3)",
    "final_ridge": "0.01",
    "loss": "logistic",
    "training": "stepwise",
    "task": "multilabel",
    "label_smoothing": "0.95",
    "class_weight": "balanced",
    "scale": "none",
    "normalize_embedding": True,
    "trees": False,
    "input_kernel": "gaussian",
    "solver": "cholesky",
    "effort": "quick",
    "holdout": "0.2",
    "calibrate": False,
    "aim": "recall=0.8",
    "conformal": "0.1",
    "device": "auto",
    "memory": "3G",
    "block_rows": "16",
    "checkpoint": "state",
    "updatable": True,
    "random_state": "7",
    "verbose": "1",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory, pytestconfig):
    return prepared(tmp_path_factory.mktemp("train"), pytestconfig.getoption("--seed"))


def options(command):
    return {option.name: option for option in typer.main.get_command(app).commands[command].params}


def test_every_parameter_is_an_option():
    assert list(TYPED) == [p.name for p in PARAMETERS]
    assert {p.name for p in PARAMETERS} <= set(options("train"))


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda p: p.name)
def test_default_and_help_of_an_option_are_those_of_the_table(parameter):
    shown = options("train")[parameter.name].help
    assert parameter.help in shown.replace(r"\[", "[")
    assert parameter.values.flag or f"default: {str(parameter.default).lower()}" in shown


def test_help_shows_what_people_use_and_help_all_the_rest():
    shown, whole = (succeed("train", word).out for word in ("--help", "--help-all"))
    assert len(shown.splitlines()) < len(whole.splitlines())
    for p in PARAMETERS:
        option = f"--{p.name.replace('_', '-')} "
        assert option in whole
        assert (option in shown) == p.common, p.name


def words_of(settings):
    """The command's words for parameters, of which flags are True or False."""
    flags = {True: "--{}", False: "--no-{}"}
    for name, value in settings.items():
        option = name.replace("_", "-")
        yield from [flags[value].format(option)] if isinstance(value, bool) else [f"--{option}", value]


@pytest.mark.parametrize(
    "left_out",
    [
        {"device", "holdout", "aim", "memory"},  # a model file does not say where it was fitted
        {"device", "effort", "aim", "memory"},  # which has no use for holdout
        {"device", "holdout", "calibrate", "updatable"},  # without which there is no aim
    ],
    ids=["effort", "holdout", "aim"],
)
def test_every_option_reaches_the_model(files, tmp_path, monkeypatch, left_out):
    monkeypatch.chdir(tmp_path)  # where the checkpoint goes
    typed = {name: value for name, value in TYPED.items() if name not in left_out}
    target = tmp_path / "all.safetensors"
    succeed("train", files.train, "-o", target, "--quiet", *words_of(typed))
    known = smoothlink.load(target).get_params()
    assert {name for name in TYPED if known[name] != SIGNATURE[name].default} == set(typed)
    assert {name: str(known[name]) for name in typed} == {name: str(value) for name, value in typed.items()}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ({"rank": "auto"}, "auto"),
        ({"rank": "adaptive"}, "adaptive"),
        ({"rank": "5"}, 5),
        ({"rank": "0.9"}, 0.9),
        ({"rank": "1"}, 1),
        ({"rank": "1.0"}, 1.0),
        ({"ridge": "3"}, 3.0),
        ({"class_weight": "none"}, None),
        ({"embedding": "none"}, "none"),
        ({"random_state": "None"}, None),
        ({"kernel": "laplacian"}, "laplacian"),
    ],
)
def test_text_becomes_the_value_that_the_class_takes(typed, meant):
    [value] = chosen(**typed).values()
    assert value == meant
    assert type(value) is type(meant)


def test_what_is_not_typed_is_left_to_the_class():
    assert chosen(rank=None, calibrate=None, loss="squared") == {"loss": "squared"}


@pytest.mark.parametrize(
    "wrong",
    [
        ("--rank", "many"),
        ("--loss", "hinge"),
        ("--set", "loss.momentum=much"),
        ("--set", "kernel.features=1.5"),
        ("--class-weight", "heavy"),
        ("--labels", "-1"),
        ("--features", "some"),
        ("--format", "docx"),
        ("--no-such-option", "1"),
    ],
)
def test_a_wrong_value_is_wrong_usage(files, tmp_path, wrong):
    ran = run("train", files.train, "-o", tmp_path / "m.safetensors", *wrong)
    assert ran.code == 2
    assert wrong[0] in ran.err
    assert "Traceback" not in ran.err
    assert left(tmp_path) == []


def test_help_names_every_format():
    listed = options("convert")["to"].help.removeprefix("The format to write: ").removesuffix(".")
    assert listed.replace(" or ", ", ").split(", ") == list(FORMATS)
    assert all(name in options("train")["format"].help for name in FORMATS)


def test_the_model_knows_the_names_of_labels_and_features(files):
    model = smoothlink.load(files.model)
    assert model.label_names_ == files.tested.label_names
    assert list(model.feature_names_in_) == files.tested.feature_names


def test_names_can_come_from_files_of_their_own(files, tmp_path):
    (tmp_path / "words").write_text("\n".join(f"w{j}" for j in range(12)))
    (tmp_path / "topics").write_text("a\nb\nc\nd\ne\n")
    target, names = tmp_path / "m.safetensors", ["--feature-names", tmp_path / "words", "--label-names"]
    succeed("train", files.train, "-o", target, "-q", *FIXED, *names, tmp_path / "topics")
    model = smoothlink.load(target)
    assert model.label_names_ == list("abcde")
    assert model.feature_names_in_[-1] == "w11"
    (tmp_path / "topics").write_text("a\nb\n")
    ran = run("train", files.train, "-o", tmp_path / "n.safetensors", *FIXED, *names, tmp_path / "topics")
    assert ran.code == 1
    assert "has 2 lines, and the data has 5 labels" in ran.err
    assert "n.safetensors" not in left(tmp_path)
    (tmp_path / "topics").write_bytes(b"\xff\n")
    assert "not UTF-8" in run("train", files.train, "-o", target, *names, tmp_path / "topics").err


def test_the_summary_shows_what_was_settled_and_what_it_took(files):
    ran = succeed(
        "train", files.train, "-o", files.folder / "other.safetensors", "--set", "kernel.features=30", "--holdout", ".3"
    )
    for word in ("rank", "captured share", "ridge", "bandwidth", "loss", "held-out rows", "seconds", "peak memory"):
        assert word in ran.out
    assert "60 rows" in ran.out
    assert "other.safetensors" in ran.out
    assert "60 rows, 12 features, 5 labels; read in" in ran.err


def test_the_end_says_how_good_it_is_then_what_it_cost_then_what_to_type_then_the_settings(files):
    target = files.folder / "with space.safetensors"
    ran = succeed("train", files.train, "-o", target, "--effort", "quick")
    found = smoothlink.load(target).summary_["held_out_metrics"]
    place = [
        ran.out.index(words)
        for words in (
            f"On {found['rows']} held-out training rows",
            f"{found['p@1']:.4f}",
            "Training took ",
            "What to type next",
            "selected by",
            "peak memory",
        )
    ]
    assert place == sorted(place)
    typed = [line.strip() for line in ran.out.splitlines() if line.strip().startswith("smoothlink ")]
    assert [line.split()[1] for line in typed] == ["predict", "evaluate", "report", "serve"]
    assert f"smoothlink evaluate '{target}' {files.test}" in typed  # the file beside the training file
    assert succeed(*shlex.split(typed[0])[1:], "-o", "-").out
    unmeasured = succeed("train", files.train, "-o", target, *FIXED)
    assert "No training rows were held out" in unmeasured.out
    (files.folder / "alone.txt").write_bytes(files.train.read_bytes())
    assert (
        f"smoothlink evaluate '{target}' TEST.txt"
        in succeed("train", files.folder / "alone.txt", "-o", target, *FIXED).out
    )


def test_the_steps_of_every_learner_are_shown(files, capsys):
    summary = smoothlink.load(files.model).summary_
    summary["seconds"]["finetune"] = 7.0
    show(summary, Screen())
    assert "finetune" in capsys.readouterr().out


def test_json_is_the_summary_of_the_model(files):
    target = files.folder / "other.safetensors"
    ran = succeed("train", files.train, "-o", target, "--json", *FIXED)
    model = smoothlink.load(target)
    assert ran.json == json.loads(json.dumps(model.summary_)) | {
        "model": str(target),
        "bytes": target.stat().st_size,
    }


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int4"])
def test_weights_are_stored_in_the_numbers_asked_for(files, dtype):
    succeed("train", files.train, "-o", files.model, "--dtype", dtype, *FIXED)
    assert succeed("info", files.model, "--json").json["stored"]["dtype"] == dtype
    assert succeed("predict", files.model, files.train, "-k", 1).out


def test_numbers_that_no_file_has_are_refused_before_data_are_read(files):
    ran = run("train", "nowhere.txt", "-o", files.model, "--dtype", "float8")
    assert ran.code == 2
    assert "'float8' is none of float32|float16|int8|int4" in ran.err
    ran = run("train", files.train, "-o", files.model, "--half")
    assert ran.code == 2
    assert "--dtype float16" in ran.err


def test_quiet_is_silent(files):
    ran = succeed("train", files.train, "-o", files.folder / "other.safetensors", "--quiet", *FIXED)
    assert (ran.out, ran.err) == ("", "")


def test_one_label_in_every_row_means_multiclass_and_is_said(rng, tmp_path):
    write(one_label_each(rng), tmp_path / "train.txt")
    settings = [word for word in FIXED if word != "squared"]
    settings[settings.index("--loss")] = "--verbose=0"
    target = tmp_path / "m.safetensors"
    assert ONE_LABEL in succeed("train", tmp_path / "train.txt", "-o", target, *settings).err
    assert smoothlink.load(target).model_.multiclass
    ran = succeed("train", tmp_path / "train.txt", "-o", target, *settings, "--task", "multilabel")
    assert ONE_LABEL not in ran.err
    assert not smoothlink.load(target).model_.multiclass


@pytest.mark.parametrize(
    ("target", "said"),
    [("no/such/folder/m.safetensors", "mkdir -p"), (".", "is a folder"), ("train.txt", "over what is read")],
)
def test_an_output_that_cannot_be_is_refused_before_anything_is_read(files, target, said, monkeypatch):
    monkeypatch.setattr("smoothlink.cli.train_command.read_several", None)  # would fail
    before = left(files.folder)
    ran = run("train", files.train, "-o", files.folder / target)
    assert ran.code == 1
    assert said in ran.err
    assert left(files.folder) == before


BAD = {
    "a malformed number": (b"1 2 1\n0 0:x\n", "line 2"),
    "a label out of range": (b"1 2 1\n7 0:1\n", "--labels auto"),
    "too few rows": (b"3 2 1\n0 0:1\n", "announces 3 rows"),
    "not a number": (b"1 2 1\n0 0:nan\n", "line 2"),
    "no label at all": (b"2 2 1\n 0:1\n 1:1\n", "no positive label"),
    "no rows": (b"0 2 1\n", "has no rows"),
    "nothing": (b"", "empty"),
    "prose": (b"It was a dark and stormy night.\n", "--format"),
}


@pytest.mark.parametrize(("content", "said"), BAD.values(), ids=BAD)
def test_bad_data_gives_one_message_and_no_file(tmp_path, content, said):
    (tmp_path / "bad.txt").write_bytes(content)
    ran = run("train", tmp_path / "bad.txt", "-o", tmp_path / "m.safetensors")
    assert ran.code == 1
    assert said in ran.err
    assert ran.err.count("error:") == 1
    assert "Traceback" not in ran.err
    assert ran.out == ""
    assert left(tmp_path) == ["bad.txt"]


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (
            MemoryError("Unable to allocate 3 TiB"),
            "Memory ran out. Unable to allocate 3 TiB\nEnd other programs, or use a machine with more memory.",
        ),
        (OSError(28, "No space left on device", "m.safetensors"), "m.safetensors: No space left on device."),
        (OSError("strange"), "strange."),
        (ValueError("rank is 'x'"), "rank is 'x'"),
        (KeyError("x"), "This is a bug in smoothlink"),
        (KeyboardInterrupt(), "Interrupted."),
    ],
)
def test_whatever_goes_wrong_in_a_fit_is_one_message(files, tmp_path, monkeypatch, trouble, said):
    def fail(*args, **kwargs):
        raise trouble

    monkeypatch.setattr(SmoothLinkClassifier, "fit", fail)
    ran = run("train", files.train, "-o", tmp_path / "m.safetensors")
    assert ran.code == (130 if isinstance(trouble, KeyboardInterrupt) else 1)
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert left(tmp_path) == []
    with pytest.raises(type(trouble)) if not isinstance(trouble, KeyboardInterrupt) else pytest.raises(SystemExit):
        smoothlink.cli.main(["train", str(files.train), "-o", str(tmp_path / "m"), "--debug"])


def test_a_warning_is_one_line_and_quiet_hides_it(files, monkeypatch):
    fit = SmoothLinkClassifier.fit

    def warn(self, *data):
        np.float64(1) / np.float64(0)
        return fit(self, *data)

    monkeypatch.setattr(SmoothLinkClassifier, "fit", warn)
    args = ["train", files.train, "-o", files.folder / "other.safetensors", *FIXED]
    assert "warning: divide by zero encountered" in succeed(*args).err
    assert succeed(*args, "--quiet").err == ""


def test_a_data_folder_is_trained_on_and_evaluated_like_the_text(files, tmp_path):
    for name, path in (("train", files.train), ("test", files.test)):
        succeed("convert", path, tmp_path / f"{name}.sl", "-q")
    ran = succeed("train", tmp_path / "train.sl", "-o", tmp_path / "m", *FIXED)
    succeed("train", files.train, "-o", tmp_path / "text", *FIXED)
    assert "train.sl: 60 rows, 12 features, 5 labels; mapped." in ran.err
    found, known = (
        succeed("evaluate", model, test, "--json", "--quiet", "--bootstraps", 0).json
        for model, test in ((tmp_path / "m", tmp_path / "test.sl"), (tmp_path / "text", files.test))
    )
    assert found == known
    answers = [succeed("predict", tmp_path / "m", test, "-k", "2").out for test in (tmp_path / "test.sl", files.test)]
    assert answers[0] == answers[1]


def test_a_budget_that_reading_broke_is_told_with_the_remedy(files, tmp_path):
    ran = run("train", files.train, "-o", tmp_path / "m", "--memory", "10M", *FIXED)
    assert ran.code == 1
    assert f"Reading {files.train} took " in ran.err
    assert "more than --memory allows (10.5 MB)" in ran.err
    assert f"Type: smoothlink convert {files.train} {files.folder}/train.sl, and train on" in ran.err


def test_a_budget_that_means_nothing_is_told_before_the_data_are_read(files, tmp_path):
    ran = run("train", files.train, "-o", tmp_path / "m", "--memory", "4X", *FIXED)
    assert ran.code == 2
    assert "'4X' is none of a number of bytes" in ran.err
    assert "rows" not in ran.err


def test_a_fit_with_a_checkpoint_is_taken_up_by_the_same_command_only(files, tmp_path):
    args = ["train", files.train, "-o", tmp_path / "m", *FIXED, "--checkpoint", tmp_path / "state"]
    succeed(*args)
    first = np.array(smoothlink.load(tmp_path / "m").model_.V)
    succeed(*args)
    np.testing.assert_array_equal(smoothlink.load(tmp_path / "m").model_.V, first)
    ran = run(*args, "--ridge", "2")
    assert ran.code == 1
    assert "is of another fit: ridge was 1.0 and is 2.0." in ran.err


def test_the_help_never_calls_the_values_of_an_option_none_alone():
    assert not re.search(r"--(memory|checkpoint)\s+none", succeed("train", "--help").out)
