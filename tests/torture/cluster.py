"""Kills a worker, the scheduler or the client of a fit on a cluster at every step, and looks at what is left.

    python tests/torture/cluster.py [--short] [--rounds N] [VICTIM ...]

Each fit is a process that trains over an older model, on two workers, with the decoder in one file or in shards. Its
victim is killed when it reports its k-th step, or a moment later, for each k. Within two minutes the fit must have
ended, with a model that is the one of an undisturbed fit, or with one message and the old model intact; no process of
it may be left. Then the same command, run again, must end well and leave nothing beside its model.
"""

import argparse
import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import psutil
from commands import labelled

import smoothlink
from smoothlink.data.read import write

VICTIMS = ("worker", "scheduler", "client")
SECONDS = 120  # in which a fit must end, however it ends
ORPHAN_SECONDS = 20  # in which its processes must
SETTINGS = ["rank=8", "ridge=1", "kernel.bandwidth=2", "kernel.features=400", "final_ridge=0.1", "calibrate=false"]
FIT = ["train", "rows.txt", "-o", "out.safetensors", *(word for given in SETTINGS for word in ("--set", given))]
LOGISTIC = ["--loss", "logistic", "--set", "loss.passes=3"]


class Ran(NamedTuple):
    """What became of a fit."""

    code: int | None  # None: it did not end; negative: the signal that ended it
    err: str
    lines: int  # on standard error: one for each step
    orphans: int  # processes of the fit that outlived it


@contextlib.contextmanager
def separate_cluster(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Yields the address and the process of a scheduler that has two workers."""
    file, dask = folder / "scheduler.json", [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    named = ["--scheduler-file", str(file)]
    started = [subprocess.Popen([*dask, "scheduler", "--port", "0", "--dashboard-address", ":0", *named], **quiet)]
    worker = [*dask, "worker", *named, "--nworkers", "2", "--nthreads", "1", "--no-dashboard"]
    started.append(subprocess.Popen(worker, **quiet))
    try:
        while not (file.exists() and file.stat().st_size):
            time.sleep(0.1)
        yield json.loads(file.read_text())["address"], psutil.Process(started[0].pid)
    finally:
        for process in started:
            for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            process.kill()
            process.wait()
        file.unlink(missing_ok=True)


def run(folder: Path, args: list[str], victim: str | None = None, line: int = 0, delay: float = 0.0) -> Ran:
    """Runs a fit; its victim is killed some time after it has printed so many lines."""
    with contextlib.ExitStack() as stack:
        address, scheduler = "local:2", None
        if victim == "scheduler":
            address, scheduler = stack.enter_context(separate_cluster(folder))
        command = [sys.executable, "-m", "smoothlink", *args, "--cluster", address]
        fit = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        lines: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            assert fit.stderr is not None
            for text in fit.stderr:
                lines.put(text)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        said: list[str] = []
        own, end = psutil.Process(fit.pid), time.monotonic() + SECONDS
        known: list[psutil.Process] = []
        while time.monotonic() < end:
            if victim is not None and len(said) >= line:
                time.sleep(delay)
                with contextlib.suppress(psutil.NoSuchProcess):
                    known = own.children(recursive=True)
                    workers = [process for process in known if "spawn_main" in " ".join(process.cmdline())]
                    chosen = {"client": [own], "scheduler": [scheduler], "worker": workers[:1]}[victim]
                    for process in chosen:
                        assert process is not None
                        process.kill()
                victim = None
            try:
                text = lines.get(timeout=0.5)
            except queue.Empty:
                if fit.poll() is not None and (known or fit.returncode < 0):
                    break  # its workers hold the other end of the pipe
                continue
            if text is None:
                break
            said.append(text)
        with contextlib.suppress(subprocess.TimeoutExpired):
            fit.wait(max(1.0, end - time.monotonic()))
        code = fit.poll()
        fit.kill()
        _, left = psutil.wait_procs([process for process in known if process.is_running()], ORPHAN_SECONDS)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return Ran(code, "".join(said), len(said), len(left))


def write_rows(folder: Path, seed: int) -> None:
    """Writes the rows that a fit learns from."""
    write(labelled(np.random.default_rng(seed), n=1_500, d=300, c=20), str(folder / "rows.txt"))


def predictions(folder: Path) -> np.ndarray:
    """Returns what the model in a folder predicts for its training rows."""
    model = smoothlink.load(folder / "out.safetensors", verify=True)
    return model.predict_proba(smoothlink.read(folder / "rows.txt").X)


def names(folder: Path) -> list[str]:
    """Returns the files of a folder, without the id of the fit in the names of shards."""
    found = [path.name for path in folder.iterdir()]
    return sorted(name if "-V-" not in name else f"{name[:6]}{name[14:]}" for name in found)


def campaign(folder: Path, victim: str, args: list[str], rounds: int, short: bool) -> dict:
    """Kills one victim at each step of a fit."""
    ready, work = folder / "ready", folder / "work"
    ready.mkdir()
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    slowest = 0.0
    write_rows(ready, 1)
    run(ready, args)
    write_rows(ready, 2)
    shutil.copytree(ready, work)
    steps = range(1, run(work, args).lines + 1)
    old, new, expected = predictions(ready), predictions(work), names(work)
    rng = np.random.default_rng(0)
    for line in [steps[len(steps) // 2], steps[-1]] if short else [line for line in steps for _ in range(rounds)]:
        shutil.rmtree(work)
        shutil.copytree(ready, work)
        delay, begun = float(rng.uniform(0, 0.4)), time.monotonic()
        ran = run(work, args, victim, line, delay)
        slowest, at = max(slowest, time.monotonic() - begun), f"{victim} at line {line} + {delay:.2f} s"
        outcomes["completed" if ran.code == 0 else "refused" if ran.code == 1 else "killed"] += 1
        if ran.code is None:
            failures.append(f"{at}: it did not end")
        elif ran.code > 1 or (ran.code < 0 and victim != "client"):
            failures.append(f"{at}: ended with {ran.code}: {ran.err}")
        if ran.code == 1 and ("Traceback" in ran.err or "bug in" in ran.err or ran.err.count("error:") != 1):
            failures.append(f"{at}: no message: {ran.err}")
        if ran.orphans:
            failures.append(f"{at}: {ran.orphans} processes outlived it")
        found = predictions(work)
        allowed = [new] if ran.code == 0 else [old] if ran.code == 1 else [old, new]
        if not any(np.allclose(found, one, atol=1e-3) for one in allowed):
            failures.append(f"{at}: the model is neither the old one nor the new one")
        if run(work, args).code != 0 or not np.allclose(predictions(work), new, atol=1e-3):
            failures.append(f"{at}: a second run ends otherwise")
        if names(work) != expected:
            failures.append(f"{at}: a second run leaves {names(work)}")
    kind = "shards" if "--shards" in args else "one file"
    return {"victim": victim, "model": kind, "lines": len(steps), **outcomes, "slowest": slowest, "failures": failures}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("victims", nargs="*", default=VICTIMS, help=", ".join(VICTIMS))
    parser.add_argument("--short", action="store_true", help="two moments for each")
    parser.add_argument("--rounds", type=int, default=3, help="moments after each step")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # that X has no names of features
    failed = 0
    for victim in given.victims:
        for args in ([*FIT, *LOGISTIC], [*FIT, *LOGISTIC, "--shards"]):
            with tempfile.TemporaryDirectory(prefix="smoothlink-cluster-") as place:
                found = campaign(Path(os.path.realpath(place)), victim, args, given.rounds, given.short)
            print(json.dumps(found), flush=True)
            failed += len(found["failures"])
    sys.exit(failed > 0)
