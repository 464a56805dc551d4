"""The command as a process: quick help, exit codes, Ctrl-C, a reader that leaves early, progress on a terminal."""

import os
import re
import signal
import subprocess
import sys

import pytest
from commands import labelled, left, prepared, run, succeed

import smoothlink
from smoothlink.cli import debug_first
from smoothlink.cli.screen import Screen, StepLog, number, size, time_left
from smoothlink.data.read import write

COMMAND = [sys.executable, "-m", "smoothlink"]
posix = pytest.mark.skipif(os.name != "posix", reason="signals and pipes of posix systems")


@pytest.fixture(scope="module")
def files(tmp_path_factory, pytestconfig):
    return prepared(tmp_path_factory.mktemp("process"), pytestconfig.getoption("--seed"))


def test_help_waits_for_no_array_library():
    code = "import sys, smoothlink.cli.app; print(*{'numpy', 'scipy', 'sklearn', 'numba'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == ""


@pytest.mark.parametrize("command", ["demo", "train", "predict", "evaluate", "info", "convert"])
def test_every_command_has_help_with_an_example(command):
    ran = succeed(command, "--help")
    assert f"Example: smoothlink {command}" in ran.out
    for option in ("--quiet", "--json", "--help"):
        assert option in ran.out
    assert command in succeed("--help").out


def test_the_version_is_the_package_version():
    assert succeed("--version").out == f"smoothlink {smoothlink.__version__}\n"


@pytest.mark.parametrize("args", [["trian"], ["train"], ["predict", "m"], ["info", "a", "b"], ["--fast"]])
def test_wrong_usage_exits_with_2(args):
    assert run(*args).code == 2


def test_no_command_shows_help():
    assert "evaluate" in run().out


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["info", "x"], ["info", "x"]),
        (["info", "x", "--debug"], ["--debug", "info", "x"]),
        (["--debug", "info", "--debug"], ["--debug", "info"]),
        (["demo", "--", "--debug"], ["demo", "--", "--debug"]),
    ],
)
def test_debug_may_stand_anywhere(typed, meant):
    assert debug_first(typed) == meant


def test_a_traceback_appears_only_with_debug(tmp_path):
    for extra, shown in (([], False), (["--debug"], True)):
        ran = subprocess.run([*COMMAND, "info", str(tmp_path / "nope"), *extra], capture_output=True, text=True)
        assert ran.returncode == 1
        assert ("Traceback" in ran.stderr) == shown
        assert "there is no such file" in ran.stderr


def interrupted(process):
    """What a process says after Ctrl-C; pressed again where Python lost the first, as it does inside some imports."""
    for _ in range(40):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=3)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.communicate()


@posix
def test_ctrl_c_ends_a_fit_with_130_and_one_line_and_no_file(tmp_path, rng):
    write(labelled(rng, 400, 50, 20), tmp_path / "train.txt")
    before = left(tmp_path)
    endless = ["--loss", "logistic", "--set", "loss.passes=1000000"]
    train = [*COMMAND, "train", "train.txt", "-o", "m.safetensors", *endless]
    before_tests = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        process = subprocess.Popen(train, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before_tests)
    assert "read in" in process.stderr.readline()
    out, err = interrupted(process)
    assert process.returncode == 130
    assert err.endswith("Interrupted.\n")
    assert "Traceback" not in err
    assert out == ""
    assert left(tmp_path) == before


def test_ctrl_c_before_a_command_begins_is_as_clean(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("smoothlink.cli.app.app", interrupted)
    ran = run("info", "x")
    assert (ran.code, ran.err) == (130, "Interrupted.\n")


@posix
@pytest.mark.parametrize("args", [["predict", "--threshold", "0"], ["evaluate", "--bootstraps", "5"]])
def test_a_reader_that_leaves_early_is_no_error(files, args):
    command = [*COMMAND, args[0], str(files.model), str(files.test), "--quiet", *args[1:]]
    read_end, write_end = os.pipe()
    os.close(read_end)
    ran = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True)
    os.close(write_end)
    assert (ran.returncode, ran.stderr) == (0, "")


@posix
def test_progress_is_shown_on_a_terminal_only(files, monkeypatch):
    """A terminal sees a bar for each stage of a fit, and of the rows of a prediction; a file sees notes only."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    target = files.folder / "other"
    ran = succeed("train", files.train, "-o", target, "--ridge", "1", "--loss", "logistic", "--set", "loss.passes=3")
    for stage in ("scale", "choose", "calibrate", "embed", "featurize", "fit"):
        assert stage in ran.err
    assert "━" in ran.err
    predict = "predict", files.model, files.test, "-o", files.folder / "other.jsonl", "--force"
    shown = succeed(*predict).err
    assert "30/30" in shown
    assert "rows/s" in shown
    assert "━" not in succeed(*predict, "--quiet").err
    monkeypatch.undo()
    assert "━" not in succeed(*predict).err


def test_a_file_sees_a_line_for_each_step(files):
    target = files.folder / "stepped"
    ran = succeed("train", files.train, "-o", target, "--ridge", "1", "--loss", "logistic", "--set", "loss.passes=3")
    steps = [line.split(":")[0] for line in ran.err.splitlines() if re.match(r"\w+: [\d.]+ s", line)]
    assert steps == ["scale", "choose", "calibrate", "embed", "featurize", "fit"]
    assert re.search(r"^choose: [\d.]+ s, \d+ trials$", ran.err, re.MULTILINE)
    predict = "predict", files.model, files.test, "-o", files.folder / "stepped.jsonl", "--force"
    assert re.search(r"^predicting: [\d.]+ s, 30 of 30 rows, [\d,]+ rows/s$", succeed(*predict).err, re.MULTILINE)
    assert not succeed(*predict, "--quiet").err


def test_a_step_that_lasts_is_noted_now_and_then_with_the_time_left():
    noted = []
    log = StepLog(noted.append, every=0.0)
    for share, words in ((0.0, ""), (0.5, "7 trials"), (1.0, "")):
        log("choose", share, words)
    assert re.fullmatch(r"choose: 50 %, 7 trials, about \d+ s left", noted[1])
    assert re.fullmatch(r"choose: [\d.]+ s, 7 trials", noted[2])
    log("choose", 1.0, "")  # a step that has not begun again
    assert len(noted) == 3
    assert time_left(60.0, 0.25) == "about 3 min left"


def test_sizes_and_numbers_are_for_people():
    assert [size(n) for n in (0, 999, 1000, 123456, 5e9)] == ["0 bytes", "999 bytes", "1.0 kB", "123 kB", "5.0 GB"]
    assert [number(x) for x in (None, float("nan"), 12345, 123456.0, 0.0316227)] == [
        "",
        "",
        "12,345",
        "123,456",
        "0.03162",
    ]


def test_notes_may_hold_brackets():
    Screen(quiet=False).note("[/not markup]")
