"""The command works, or says what is missing, where the machine gives it little."""

import os
import shutil
import subprocess
import sys

import pytest
from commands import FIXED, prepared

import smoothlink

QUIET = [*FIXED, "--quiet"]
COMMAND = [sys.executable, "-m", "smoothlink"]


@pytest.fixture(scope="module")
def files(tmp_path_factory, pytestconfig):
    return prepared(tmp_path_factory.mktemp("environments"), pytestconfig.getoption("--seed"))


def own_mounts() -> list[str]:
    """The beginning of a command that may mount file systems which no other process sees."""
    mounts = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "bash", "-ec"]
    if not shutil.which("unshare") or subprocess.run([*mounts, "mount -t tmpfs none /mnt"], check=False).returncode:
        pytest.skip("this system lets nobody mount file systems")
    return mounts


@pytest.mark.skipif(sys.platform != "linux", reason="mounts are those of Linux")
@pytest.mark.parametrize(
    "command",
    [
        ["train", "ROWS", "-o", "FULL/m", *QUIET],
        pytest.param(
            [
                "tune",
                "ROWS",
                "-o",
                "params.json",
                "--study",
                "FULL/study",
                "--trials",
                "3",
                "--metric",
                "p@1",
                "--quiet",
            ],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["train", "tune"],
)
def test_a_full_disk_is_an_error_with_its_remedy(files, tmp_path, command):
    """A real one, of 4 kB, for outputs and temporary files."""
    folder = tmp_path / "full"
    folder.mkdir()
    script = (
        'mount -t tmpfs -o size=4k none "$1"; export TMPDIR="$1" folder="$1"; shift\n'
        '"$@" || code=$?; ls -A "$folder"; exit $code'
    )
    args = [arg.replace("ROWS", str(files.train)).replace("FULL", str(folder)) for arg in command]
    ran = subprocess.run(
        [*own_mounts(), script, "-", folder, *COMMAND, *args], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran
    assert "The disk is full" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout.split() == (["study"] if command[0] == "tune" else [])  # which can be resumed
    assert not (tmp_path / "params.json").exists()


@pytest.mark.slow  # everything is compiled anew
@pytest.mark.skipif(sys.platform != "linux", reason="mounts are those of Linux")
def test_a_read_only_installation_without_a_home_trains_and_predicts(files, tmp_path):
    package = os.path.dirname(smoothlink.__file__)
    script = (
        'mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"; cd "$2"; shift 2\n'
        '! touch "$1" 2> /dev/null; shift\n'
        'train=$1; test=$2; shift 2; "$@" train "$train" -o m --effort quick --quiet; "$@" predict m "$test" -o p.jsonl'
    )
    given = [package, tmp_path, f"{package}/written", files.train, files.test, *COMMAND]
    alone = os.environ | {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere"}
    alone.pop("NUMBA_CACHE_DIR", None)
    ran = subprocess.run([*own_mounts(), script, "-", *given], env=alone, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert len((tmp_path / "p.jsonl").read_text().splitlines()) == 30


@pytest.mark.slow  # everything is compiled anew
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may become another user")
def test_another_user_without_a_home_trains_and_predicts(files, tmp_path):
    nobody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": tmp_path, "capture_output": True, "text": True}
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_uid == 0 and not folder.stat().st_mode & 1:
            os.chmod(folder, folder.stat().st_mode | 0o011)
    os.chown(tmp_path, 65534, 65534)
    rows = shutil.copy(files.test, tmp_path / "rows.txt")
    os.chmod(rows, 0o644)
    try:
        subprocess.run([sys.executable, "-c", "import numpy"], check=True, **nobody)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no other user may run this Python")
    alone = os.environ | {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"}
    for args in (["train", "rows.txt", "-o", "m", "--effort", "quick"], ["predict", "m", "rows.txt", "-o", "p.jsonl"]):
        ran = subprocess.run([*COMMAND, *args], env=alone, check=False, **nobody)
        assert ran.returncode == 0, ran.stderr


EXTRAS = """torch triton fastapi uvicorn starlette httptools prometheus_client matplotlib pyarrow openpyxl rdflib dask
distributed fsspec bokeh pandas polars safetensors"""
WITHOUT = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS.split()!r}))
from smoothlink.cli import main
for line in sys.stdin.read().splitlines():
    try:
        main(line.split())
    except SystemExit as end:
        print("exit", end.code or 0, line.split()[0], flush=True)
    sys.stderr.flush()
"""


def test_without_extras_everything_works_but_what_needs_them_which_names_them(files, tmp_path):
    works = [
        f"train {files.train} -o m.safetensors {' '.join(QUIET)}",
        f"predict m.safetensors {files.test} -o p.jsonl --quiet",
        f"evaluate m.safetensors {files.test} --bootstraps 2 --quiet",
        "info m.safetensors --verify",
        f"convert {files.train} rows.sl --quiet",
        f"split {files.train} --output-folder . --quiet",
        "explain m.safetensors rows.sl --row 0",
    ]
    fails = {
        "smoothlink[text]": f"predict m.safetensors {files.test} -o p.parquet",
        "smoothlink[serve]": "serve m.safetensors",
        "smoothlink[cluster]": f"train {files.train} -o n.safetensors --cluster local:1",
        "smoothlink[gpu]": f"train {files.train} -o n.safetensors --device cuda",
    }
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        input="\n".join([*works, *fails.values()]),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    ends = [line.split()[1:] for line in ran.stdout.splitlines() if line.startswith("exit")]
    assert ends[: len(works)] == [["0", line.split()[0]] for line in works], ran.stderr
    assert all(code != "0" for code, _ in ends[len(works) :])
    assert len(ends) == len(works) + len(fails)
    for extra in fails:
        assert extra in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "bug in smoothlink" not in ran.stderr
