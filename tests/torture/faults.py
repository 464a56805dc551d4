"""Fails or dies at every step under the writing of files, for every command that writes, and looks at what is left.

    python tests/torture/faults.py [--short] [--kills N] [COMMAND ...]

Each run of a command is a fork of this process in a copy of a folder that holds older outputs. Its k-th step (open to
write, fsync, rename, mkdir, unlink, rmdir, chmod within the folder) raises an error or kills it, for k = 1, 2, ...
until a run passes untouched; then no file may grow beyond some size, so that a write is cut short there (as on a full
disk), or kills it; and N runs are killed at random moments. After each: every output is the old one or the new one,
whole, and those that belong together are all old or all new; an error is one message with a remedy that fits, never a
traceback; and the same command, run again, ends well and leaves nothing else behind.

A model that is updated must have its own sums, a decoder that these sums give, and all rows that were acknowledged.
What goes on from an output (`update`, `watch`) has another command after it, which finds the old one or the new one.
"""

import argparse
import contextlib
import errno
import functools
import hashlib
import io
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "workqueue"}
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "attacks"))

import numpy as np
from commands import FIXED, labelled
from hostile import memory_folder
from numba.np.ufunc import parallel

from smoothlink.cli import main
from smoothlink.data import atomic
from smoothlink.data.read import write
from smoothlink.demo import corpus
from smoothlink.living.changes import state_of
from smoothlink.living.living_file import LivingFile
from smoothlink.living.state import LivingState
from smoothlink.modelfile import digest

parallel._backend_init_process_lock = threading.RLock()  # forks share numba's own, which a killed one would keep
HANGS = 120  # seconds after which a run is ended
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EACCES": errno.EACCES}
REMEDIES = {"ENOSPC": "disk is full", "EIO": "reports an error", "EACCES": "yours", "EFBIG": "ulimit -f"}
EVENTS = {"os.rename": (0, 1), "os.remove": (0,), "os.mkdir": (0,), "os.rmdir": (0,), "os.chmod": (0,)}
ACKNOWLEDGED = "acknowledged"
QUICK = [*FIXED, "--quiet"]
SYNTH = ["synth", "out.txt", "--rows=20", "--features=9", "--labels=3", "--features-per-row=4"]
TUNE = ["tune", "rows.txt", "-o", "out.json", "--metric", "p@1", "--quiet"]
COMMANDS = {
    "train": ["train", "rows.txt", "-o", "out.safetensors", *QUICK],
    "checkpoint": ["train", "rows.txt", "-o", "out.safetensors", "--checkpoint", "state", *QUICK],
    "memory": ["train", "rows.txt", "-o", "out.safetensors", "--memory", "2G", *QUICK],
    "folder": ["convert", "rows.txt", "out.sl", "--force", "--quiet"],
    "compressed": ["convert", "rows.txt", "out.svm.xz", "--force", "--quiet"],
    "npz": ["convert", "rows.txt", "out.npz", "--force", "--quiet"],
    "smaller": ["convert", "model.safetensors", "out.safetensors", "--dtype", "int8", "--quiet"],
    "pair": ["convert", "rows.txt", "out_Xf.txt", "--force", "--quiet"],
    "split": ["split", "rows.txt", "--output-folder", "out", "--force", "--quiet"],
    "predict": ["predict", "model.safetensors", "rows.txt", "-o", "out.jsonl", "--force", "--quiet"],
    "parquet": ["predict", "model.safetensors", "rows.txt", "-o", "out.parquet", "--force", "--quiet"],
    "sheet": ["predict", "model.safetensors", "rows.txt", "-o", "out.xlsx", "--force", "--quiet"],
    "csv": ["predict", "model.safetensors", "rows.txt", "-o", "out.csv", "--force", "--quiet"],
    "predict-folder": ["predict", "model.safetensors", "rows.txt", "--output-folder", "out", "--force", "--quiet"],
    "report": ["report", "model.safetensors", "rows.txt", "-o", "out.html", "--labels-csv", "out.csv", "--force"],
    "synth": [*SYNTH, "--force"],
    "synth-test": [*SYNTH, "--test", "9", "--test-output", "out-test.txt", "--force"],
    "demo": ["demo", "--save", "out.jsonl", "--force", "--quiet"],
    "compare": ["compare", "model.safetensors", "former.safetensors", "rows.txt", "-o", "out.html", "--force"],
    "vocabulary": ["vocabulary", "model.safetensors", "names.tsv", "-o", "out.safetensors", "--quiet"],
    "vocabulary-own": ["vocabulary", "out.safetensors", "names.tsv", "--quiet"],
    "recalibrate": ["recalibrate", "model.safetensors", "rows.txt", "-o", "out.safetensors", "--force", "--quiet"],
    "recalibrate-own": ["recalibrate", "out.safetensors", "rows.txt", "--quiet"],
    "audit": ["audit", "rows.txt", "-o", "out.html", "--csv", "out.csv", "--force", "--quiet"],
    "updatable": ["train", "rows.txt", "-o", "out.safetensors", "--updatable", *QUICK],
    "updatable-steps": ["train", "rows.txt", "-o", "out.safetensors", "--updatable", *QUICK, "--loss", "logistic"],
    "update": ["update", "out.safetensors", "rows.txt", "--quiet"],
    "update-steps": ["update", "out.safetensors", "rows.txt", "--quiet"],
    "update-labels": ["update", "out.safetensors", "more.npz", "--quiet"],
    "forget": ["forget", "out.safetensors", "some.txt", "--quiet"],
    "forget-steps": ["forget", "out.safetensors", "some.txt", "--quiet"],
    "add-labels": ["add-labels", "out.safetensors", "new.tsv", "--quiet"],
    "add-labels-steps": ["add-labels", "out.safetensors", "new.tsv", "--quiet"],
    "refresh": ["refresh", "out.safetensors", "rows.txt", "--quiet"],
    "refresh-steps": ["refresh", "out.safetensors", "rows.txt", "--quiet"],
    "refresh-plain": ["refresh", "out.safetensors", "rows.txt", "--quiet"],
    "serve": ["serve", "out.safetensors", "3"],
    "watch": ["watch", "model.safetensors", "rows.txt", "--state", "out.watch", "--quiet"],
    "tune": [*TUNE, "--trials", "1"],
    "study": [*TUNE, "--trials", "2", "--study", "state", "--resume"],
}  # fmt: skip
SHORT = ("train", "folder", "compressed")
MORE = ["update", "out.safetensors", "some.txt", "--quiet"]
CHANGES = ("update", "forget", "add-labels", "refresh")  # commands that change a model that is updated
OWN = ("vocabulary-own", "recalibrate-own")  # commands that are given such a model and no other output
GOES_ON = {  # what comes after a command that goes on from its output
    **{name: MORE for name, args in COMMANDS.items() if args[0] in (*CHANGES, "serve") or name in OWN},
    **{name: COMMANDS[name] for name in ("refresh-plain", "watch")},
}
TRAINED = {  # how the model is trained that a command goes on from
    **{name: ["-o", "out.safetensors", *QUICK, "--updatable"] for name in GOES_ON},
    **{
        name: ["-o", "out.safetensors", *QUICK, "--updatable", "--loss", "logistic"]
        for name in GOES_ON
        if name.endswith("-steps")
    },
    "refresh-plain": ["-o", "out.safetensors", *QUICK],
    "recalibrate": ["-o", "model.safetensors", *QUICK, "--calibrate"],
    "recalibrate-own": ["-o", "out.safetensors", *QUICK, "--updatable", "--calibrate"],
    "watch": ["-o", "model.safetensors", *QUICK, "--calibrate"],
}
TOGETHER = ("pair", "split")  # whose outputs are all old or all new, but not always all there after a fault
INPUTS = ("tmp", "rows.txt", "some.txt", "more.npz", "labels.txt", "features.txt", "names.tsv", "new.tsv")
INPUTS += ("model.safetensors", "former.safetensors")
NO_OTHER = ("synth", "synth-test", "tune", "study")  # whose outputs do not depend on the rows


class Fault(NamedTuple):
    """What goes wrong: at the `at`th step, where a file would grow beyond `at` bytes, or after `at` microseconds."""

    kind: str  # "step", "size" or "time"
    at: int
    action: str  # a key of ERRORS, or "EFBIG" for sizes, or "die"


class Ran(NamedTuple):
    """What became of a command."""

    code: int  # negative: the signal that ended it
    err: str
    steps: list[str]
    acknowledged: int  # changes that it told of before it ended


def run(folder: Path, args: list[str], fault: Fault | None = None) -> Ran:
    """Runs a command in a fork of this process, in the folder."""
    (err_in, err_out), (steps_in, steps_out) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(HANGS)
        os.chdir(folder)
        tempfile.tempdir = str(folder / "tmp")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(err_out, 2)
        code = 70
        try:
            break_down(folder, fault, steps_out)
            if args[0] == "serve":
                with ended_by_the_disk():
                    serve(int(args[2]), steps_out)
            else:
                main(args)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException as error:
            os.write(2, f"Traceback: {error!r}".encode())
        sys.stderr.flush()
        os._exit(code)
    for handle in (err_out, steps_out):
        os.close(handle)
    if fault is not None and fault.kind == "time":
        time.sleep(fault.at / 1e6)
        os.kill(child, signal.SIGKILL)
    found = []
    for handle in (err_in, steps_in):
        with open(handle, "rb") as stream:
            found.append(stream.read().decode(errors="replace"))
    status = os.waitpid(child, 0)[1]
    code, steps = os.waitstatus_to_exitcode(status), [step for step in found[1].split() if step != ACKNOWLEDGED]
    told = found[1].split().count(ACKNOWLEDGED) if args[0] == "serve" else int(not code)
    return Ran(code, found[0], steps, told)


@contextlib.contextmanager
def ended_by_the_disk() -> Iterator[None]:
    """Ends this process after an error of the disk, as that of a server ends, which is started again."""
    try:
        yield
    except OSError as error:
        raise SystemExit(str(error)) from error


def serve(requests: int, steps_out: int) -> None:
    """Does what the process of a server does that changes its model, for the first of three requests, and reports those
    that it acknowledged."""
    from smoothlink.data.read import read
    from smoothlink.serve.updater import Updater
    from smoothlink.serve.updates import FORGET, UPDATE, Change, Reply

    X, Y = (A[:4] for A in read("rows.txt")[:2])
    labels = [[f"label{j}" for j in row.indices] for row in Y]
    published = Path("published")
    published.mkdir()
    updater = Updater("out.safetensors", published)
    replies: list[Reply] = []
    for number, kind in enumerate((UPDATE, UPDATE, FORGET)[:requests]):
        updater.receive(Change(number, kind, X, labels), replies.append)
        if kind == FORGET:
            updater.apply(updater.accepted)
            updater.forget(*updater.forgets.pop())
        if replies[-1].outcome is None:
            raise SystemExit(f"error: {replies[-1].reason}")
        os.write(steps_out, f"{ACKNOWLEDGED}\n".encode())
    shutil.rmtree(published)


def break_down(folder: Path, fault: Fault | None, steps_out: int) -> None:
    """Puts the fault under every step that this process takes from now on, and reports the steps."""
    if fault is not None and fault.kind == "size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.at, fault.at))
        if fault.action == "die":
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    count = 0

    def step(name: str) -> None:
        nonlocal count
        count += 1
        os.write(steps_out, f"{name}\n".encode())
        if fault is None or fault.kind != "step" or fault.at != count:
            return
        if fault.action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(ERRORS[fault.action], os.strerror(ERRORS[fault.action]))

    def within(path: object, handle: int = -1) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return handle not in (-1, None) or os.path.abspath(os.fsdecode(path)).startswith(str(folder))

    def hook(event: str, given: tuple) -> None:
        if event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and within(given[0]):
            step("open")
        elif event in EVENTS and any(within(given[i]) for i in EVENTS[event]):
            step(event.removeprefix("os."))

    def before(name: str, function: Callable) -> Callable:
        def run_step(*given):
            step(name)
            return function(*given)

        return run_step

    os.fsync, atomic._exchange = before("fsync", os.fsync), before("exchange", atomic._exchange)
    sys.addaudithook(hook)


def content(path: Path) -> str:
    """Returns a fingerprint of a file or folder, without what differs from run to run."""
    if path.is_dir():
        return " ".join(content(inner) for inner in sorted(path.iterdir()))
    if path.suffix == ".safetensors":
        return digest(path)
    raw = path.read_bytes()
    if path.suffix == ".xlsx":
        raw = zipfile.ZipFile(path).read("xl/worksheets/sheet1.xml")
    if path.suffix in (".html", ".json"):
        raw = re.sub(rb"[0-9.e-]+", b"", raw)
    return hashlib.sha256(raw).hexdigest()


def living(folder: Path) -> str:
    """Returns a fingerprint of the rows and labels of a model that is updated, as the next command finds them; raises
    an error unless its sums are its own, and its decoder is theirs."""
    with tempfile.TemporaryDirectory(dir=memory_folder()) as copy:
        for path in folder.glob("out[.-]*"):
            shutil.copy(path, copy)
        with LivingFile(Path(copy, "out.safetensors")) as opened:
            classifier, model = opened.classifier, opened.classifier.model_
            state = state_of(classifier)
            counts: list[object] = [state.label_rows.tolist(), state.feature_rows.tolist(), len(state.digests)]
            assert np.isclose(model.total, len(state.digests), atol=1e-6), "rows"
            if isinstance(state, LivingState):
                V = state.sums.solve(state.sums.factor())
                np.testing.assert_allclose(model.V.columns(), V, atol=1e-4)
            named, rows = classifier.vocabulary_, classifier.conformal_
            counts += [None if named is None else list(named.names(classifier.label_names_))]
            counts += [None if rows is None else [rows.void, rows.n, float(rows.confidence.sum())]]
            return json.dumps([*counts, list(classifier.label_names_)])


def outputs(folder: Path) -> dict[str, str]:
    """Returns the fingerprint of each output, and of each file of a folder of outputs."""
    if list(folder.glob("out-sums-*")):
        try:
            return {"model and sums": living(folder)}
        except Exception as error:
            return {"model and sums": f"they do not belong together: {error!r}"}
    found = [path for path in folder.iterdir() if not path.name.startswith(".") and path.name not in INPUTS]
    found = [inner for path in found for inner in (sorted(path.iterdir()) if path.name == "out" else [path])]
    return {
        str(path.relative_to(folder)): content(path)
        for path in found
        if "state" not in path.parts[-2:] and not path.name.startswith(".")
    }


def strays(folder: Path) -> list[str]:
    """Returns hidden files, and temporary ones but those of openpyxl, which removes them at the end of a process."""
    left = [path for path in (folder / "tmp").iterdir() if not path.name.startswith("openpyxl.")]
    left += sorted(folder.glob("out-sums-*"), key=lambda path: path.stat().st_mtime)[:-1]
    return sorted(str(path.relative_to(folder)) for path in [*folder.rglob(".*"), *left])


class Campaign:
    """All faults of one command."""

    def __init__(self, name: str, folder: Path, short: bool, kills: int) -> None:
        self.name, self.args, self.short, self.kills = name, COMMANDS[name], short, kills
        self.goes_on = GOES_ON.get(name)
        self.ready, self.work = folder / "ready", folder / "work"
        self.failures: list[str] = []
        self.outcomes: Counter[str] = Counter()
        for inner in ("tmp", "out"):
            (self.ready / inner).mkdir(parents=True)
        self.fill(1)
        if name == "demo":  # the sources are read once
            corpus.build_corpus = functools.cache(corpus.build_corpus)
        if name != "parquet":  # the threads of pyarrow are not in a fork
            self.warm_up()
        if self.goes_on is None or name == "watch":
            self.expect_success(self.ready)
        if name == "demo":
            (self.ready / "out.jsonl").write_text("{}\n")
        self.old = outputs(self.ready)
        shutil.rmtree(self.ready / "state", ignore_errors=True)
        if name == "study":
            (self.ready / "state").unlink()
        self.fill(2)
        self.reset()
        begun = time.monotonic()
        self.steps = self.expect_success(self.work).steps
        self.seconds = time.monotonic() - begun
        self.new = outputs(self.work)
        self.states, self.next = list[dict](), list[dict]()  # after so many changes, and after the next command then
        for changes in range(0 if self.goes_on is None else int(self.args[2]) + 1 if name == "serve" else 2):
            self.reset()
            if changes:
                run(self.work, [*self.args[:2], str(changes)] if name == "serve" else self.args)
            self.states.append(outputs(self.work))
            run(self.work, self.goes_on)
            self.next.append(outputs(self.work))
        if (self.old == self.new and name not in NO_OTHER) or not self.new:
            self.failures.append(f"{name}: the outputs are the same before and after")
        self.largest = max(path.stat().st_size for path in self.work.rglob("*") if path.is_file())

    def fill(self, seed: int) -> None:
        """Puts the inputs of the command into the folder."""
        rng = np.random.default_rng(seed)
        data = labelled(rng)
        write(data, str(self.ready / "rows.txt"))
        if seed == 1:
            write(data._replace(X=data.X[:9], Y=data.Y[:9]), str(self.ready / "some.txt"))
            write(labelled(rng, n=20, c=7), str(self.ready / "more.npz"))
            (self.ready / "new.tsv").write_text("new label\nanother\n")
        (self.ready / "names.tsv").write_text("".join(f"label{j}\tName {seed} {j}\n" for j in range(5)))
        if self.name in TRAINED and seed == 1:
            ran = run(self.ready, ["train", "rows.txt", *TRAINED[self.name]])
            assert not ran.code, ran.err
        elif "model.safetensors" in self.args and self.name not in TRAINED:
            ran = run(self.ready, ["train", "rows.txt", "-o", "model.safetensors", *QUICK])
            assert not ran.code, ran.err
            if "former.safetensors" in self.args:
                shutil.copy(self.ready / "model.safetensors", self.ready / "former.safetensors")

    def warm_up(self) -> None:
        """Runs the command in this process, so that its forks have all modules and compiled functions."""
        self.reset()
        with contextlib.suppress(SystemExit), contextlib.chdir(self.work), contextlib.redirect_stdout(io.StringIO()):
            if self.name == "serve":
                serve(3, os.open(os.devnull, os.O_WRONLY))
            else:
                main(self.args)

    def reset(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.ready, self.work)
        (self.work / "tmp").mkdir(exist_ok=True)

    def expect_success(self, folder: Path) -> Ran:
        ran = run(folder, self.args)
        if ran.code:
            raise SystemExit(f"{self.name}: fails without a fault: {ran.err}")
        return ran

    def faults(self) -> Iterator[Fault]:
        some = {*range(1, len(self.steps), 4), *range(max(1, len(self.steps) - 7), len(self.steps) + 1)}
        for at in sorted(some) if self.short else range(1, len(self.steps) + 1):
            actions = [("ENOSPC", "die")[at % 2]] if self.short else [*ERRORS, "die"]
            yield from (Fault("step", at, action) for action in actions)
        sizes = np.unique(np.geomspace(1, self.largest, 2 if self.short else 25).astype(int) - 1)
        for at in sizes.tolist():
            yield from (Fault("size", at, action) for action in ("EFBIG", "die"))
        moments = np.random.default_rng(0).uniform(0, 1e6 * self.seconds, self.kills).astype(int)
        yield from (Fault("time", at, "die") for at in moments.tolist())
        self.reset()
        if len(run(self.work, self.args, Fault("step", len(self.steps) + 1, "die")).steps) != len(self.steps):
            self.failures.append(f"{self.name}: a run with other steps")

    def run(self) -> int:
        count = 0
        for fault in self.faults():
            count += 1
            self.reset()
            for problem in self.problems(fault):
                self.failures.append(f"{self.name}, {fault}: {problem}")
        return count

    def problems(self, fault: Fault) -> Iterator[str]:
        ran = run(self.work, self.args, fault)
        self.outcomes["passed" if not ran.code else "refused" if ran.code > 0 else "killed"] += 1
        if ran.code < 0 and (fault.action != "die" or ran.code == -signal.SIGALRM):
            yield f"signal {-ran.code} ended it: {ran}"
        at = self.steps[fault.at - 1] if fault.kind == "step" else fault.kind
        if fault.action == "die" and ran.code >= 0 and fault.kind == "step":
            yield f"it was to die at {at}: {ran}"
        if ran.code > 0:
            if ran.code != 1 or "Traceback" in ran.err or "bug in smoothlink" in ran.err:
                yield f"no message: {ran}"
            elif self.name != "serve" and fault.action in REMEDIES and REMEDIES[fault.action] not in ran.err:
                yield f"no remedy for {fault.action} at {at}: {ran.err}"
        found = outputs(self.work)
        if self.goes_on is not None:
            yield from self.problems_of_change(ran, found, at)
            return
        for path in {**self.old, **self.new, **found}:
            allowed = {self.old.get(path), self.new.get(path)} if ran.code else {self.new.get(path)}
            if found.get(path) not in allowed and not (self.name in TOGETHER and ran.code and path not in found):
                yield f"{path} is neither the old one nor the new one after {at} ({ran})"
        differ = [path for path in found if self.old.get(path) != self.new.get(path)]
        if self.name in TOGETHER and len({found[path] == self.new.get(path) for path in differ}) > 1:
            yield f"there are old and new ones after {at} ({ran})"
        if ran.code > 0 and strays(self.work) and fault.kind == "step" and at not in ("remove", "rmdir"):
            yield f"an error at {at} left {strays(self.work)}"
        again = run(self.work, self.args)
        if again.code:
            yield f"a second run fails: {again.err}"
        if self.name == "study":  # which draws other settings after a trial that did not end
            yield from self.problems_of_study()
        elif outputs(self.work) != self.new:
            yield "a second run ends with other outputs"
        if strays(self.work):
            yield f"a second run leaves {strays(self.work)} after {at}"

    def problems_of_study(self) -> Iterator[str]:
        """Yields what is wrong with the settings of a search that went on."""
        found = json.loads((self.work / "out.json").read_text())
        if not all(found["best"].values()):
            yield f"a second run has found nothing: {found}"

    def problems_of_change(self, ran: Ran, found: dict[str, str], at: str) -> Iterator[str]:
        """Yields what is wrong with an output that commands go on from: what was acknowledged is there, and at most the
        next change, which was not."""
        least = ran.acknowledged
        changes = [n for n, state in enumerate(self.states) if n in (least, least + 1) and state == found]
        if not changes:
            yield f"{found} is none of those after {least} changes and {at} ({ran})"
        elif ran.code > 0 and changes[0] > least and self.args[0] == "update" and "do not add" not in ran.err:
            yield f"an error after {at} does not say that rows were added: {ran.err}"
        if ran.code > 0 and strays(self.work) and at not in ("size", "time", "remove", "rmdir"):
            yield f"an error at {at} left {strays(self.work)}"
        again = run(self.work, self.goes_on)
        if again.code:
            yield f"the next command fails: {again.err}"
        if changes and outputs(self.work) not in [self.next[n] for n in changes]:
            yield f"the next command ends with other outputs after {at}"
        if strays(self.work):
            yield f"the next command leaves {strays(self.work)} after {at}"


def campaigns(names: list[str], short: bool, kills: int, kind: type[Campaign] = Campaign) -> Iterator[dict]:
    with tempfile.TemporaryDirectory(prefix="smoothlink-faults-", dir=memory_folder()) as folder:
        for name in names:
            begun = time.monotonic()
            campaign = kind(name, Path(os.path.realpath(folder)) / name, short, kills)
            faults = campaign.run()
            yield {
                "command": name,
                "steps": len(campaign.steps),
                "faults": faults,
                **campaign.outcomes,
                "seconds": round(time.monotonic() - begun, 1),
                "failures": campaign.failures,
            }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", help=", ".join(COMMANDS))
    parser.add_argument("--short", action="store_true", help="fewer commands, steps, errors and sizes")
    parser.add_argument("--kills", type=int, default=0, help="runs of each command that are killed at random moments")
    given = parser.parse_args()
    failed = 0
    for found in campaigns(given.commands or [*(SHORT if given.short else COMMANDS)], given.short, given.kills):
        print(json.dumps(found), flush=True)
        failed += len(found["failures"])
    sys.exit(failed > 0)
