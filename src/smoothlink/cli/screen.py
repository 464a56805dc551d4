"""What a command shows: tables and JSON on standard output; notes and progress on standard error."""

from __future__ import annotations

import json
import math
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Table

from smoothlink.errors import printable

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # for guard.py, in place of rich's exit code 1

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yields what is shown, without controls that came with a name from a file; rich's own are not text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class Screen:
    """The two streams of a command; a quiet one shows results and errors only."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.out = _Console(highlight=False, soft_wrap=False)
        self.err = _Console(stderr=True, highlight=False)
        if quiet:
            warnings.simplefilter("ignore")

    def note(self, text: str) -> None:
        """One line on standard error."""
        if not self.quiet:
            self.err.print(text, style="dim", markup=False, soft_wrap=True)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """A spinner with the time, for work whose length is not known."""
        with self._progress(TimeElapsedColumn(), bar=False) as progress:
            progress.add_task(what, total=None)
            yield

    @contextmanager
    def rows(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar of rows with rate and time left; yields the function to call with the rows of each block."""
        columns = (MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
        began = time.monotonic()
        done, log = 0, self._log()
        with self._progress(*columns) as progress:
            task = progress.add_task(what, total=total, rate="")

            def advance(count: int) -> None:
                nonlocal done
                done += count
                rate = f"{done / max(time.monotonic() - began, 1e-9):,.0f} rows/s"
                progress.update(task, advance=count, rate=rate)
                log(what, done / max(1, total), f"{done:,} of {total:,} rows, {rate}")

            log(what, 0.0, "")
            yield advance

    @contextmanager
    def files(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar of files with the rows so far; yields the function to call with the rows of each."""
        with self._progress(MofNCompleteColumn(), TextColumn("{task.fields[rows]}"), TimeRemainingColumn()) as progress:
            task, rows = progress.add_task(what, total=total, rows=""), 0

            def advance(count: int) -> None:
                nonlocal rows
                rows += count
                progress.update(task, advance=1, rows=f"{rows:,} rows")

            yield advance

    @contextmanager
    def steps(self) -> Iterator[Callable[[str, float, str], None]]:
        """A line for each step of a fit, with what it counts and the time left; yields the function for
        `SmoothLinkClassifier` to notify."""
        columns = (TimeElapsedColumn(), TextColumn("{task.fields[left]}"), TextColumn("{task.fields[words]}"))
        with self._progress(*columns) as progress:
            tasks: dict[str, Any] = {}
            log = self._log()

            def notify(step: str, share: float, words: str) -> None:
                if step not in tasks:
                    tasks[step] = progress.add_task(step, total=None, left="", words="")
                elif share == 0.0:  # the step is done again, for other rows
                    progress.reset(tasks[step], total=None, left="", words="")
                if share > 0:  # until then the bar pulses: the length of the step is not known
                    task = next(task for task in progress.tasks if task.id == tasks[step])
                    left = time_left(task.elapsed or 0.0, share)
                    words = words or task.fields["words"]
                    progress.update(tasks[step], total=1.0, completed=share, left=left, words=words)
                log(step, share, words)

            yield notify

    @contextmanager
    def trials(self, total: int) -> Iterator[Callable[[int, str], None]]:
        """A bar of trials with the time left; yields the function to call with how many ended and the best values."""
        with self._progress(MofNCompleteColumn(), TextColumn("{task.fields[best]}"), TimeRemainingColumn()) as progress:
            task = progress.add_task("trials", total=total, best="")

            def advance(finished: int, best: str) -> None:
                progress.update(task, completed=finished, best=best)

            yield advance

    def _log(self) -> Callable[[str, float, str], None]:
        """Returns the function to call at each step where no bar can be shown."""
        return (lambda step, share, words: None) if self.quiet or self.err.is_terminal else StepLog(self.note)

    def _progress(self, *columns: ProgressColumn, bar: bool = True) -> Progress:
        parts = [SpinnerColumn(finished_text="[green]✓"), TextColumn("{task.description}", markup=False)]
        parts += [BarColumn(bar_width=30)] if bar else []
        hidden = self.quiet or not self.err.is_terminal
        return Progress(*parts, *columns, console=self.err, transient=True, disable=hidden)


class StepLog:
    """Writes a line for each step when it ends, and every half minute while it lasts."""

    def __init__(self, note: Callable[[str], None], every: float = 30.0) -> None:
        self.note, self.every = note, every
        self.began: dict[str, float] = {}  # of steps that last
        self.noted: dict[str, float] = {}
        self.words: dict[str, str] = {}  # the latest of each step

    def __call__(self, step: str, share: float, words: str) -> None:
        now = time.monotonic()
        if share == 0.0:
            self.began[step] = self.noted[step] = now
            self.words[step] = ""
        self.words[step] = words or self.words.get(step, "")
        if share >= 1.0 and step in self.began:
            self._line(f"{step}: {now - self.began.pop(step):.1f} s", self.words[step])
        elif step in self.began and now - self.noted[step] >= self.every:
            self.noted[step] = now
            self._line(f"{step}: {100 * share:.0f} %", self.words[step], time_left(now - self.began[step], share))

    def _line(self, *parts: str) -> None:
        self.note(", ".join(part for part in parts if part))


def time_left(seconds: float, share: float) -> str:
    """Returns about how long it still takes, where a share of the work took some seconds; nothing when it is done."""
    if not 0 < share < 1:
        return ""
    left = seconds * (1 - share) / share
    return f"about {left:.0f} s left" if left < 100 else f"about {left / 60:.0f} min left"


def table(*headings: str, title: str | None = None) -> Table:
    """An empty table in the house style; headings that start with > are right-aligned."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="bold")
    for heading in headings:
        made.add_column(heading.lstrip(">"), justify="right" if heading.startswith(">") else "left")
    return made


def facts(title: str | None, pairs: list[tuple[str, str]]) -> Table:
    """Names and values, without headings."""
    made = Table(box=None, show_header=False, pad_edge=False, title=title, title_justify="left", title_style="bold")
    made.add_column(style="cyan", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(f"  {name}", plain_text(value))
    return made


def plain_text(value: str) -> Any:
    """Text that is not markup, whatever brackets and controls it holds."""
    from rich.text import Text

    return Text(printable(value))


def print_json(value: Any) -> None:
    """One object on standard output, in valid JSON: what is not a number is null, and controls are escapes."""
    text = json.dumps(jsonable(value), indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(re.sub(r"[\x7f-\x9f\u202a-\u202e\u2066-\u2069]", lambda c: f"\\u{ord(c[0]):04x}", text) + "\n")


def jsonable(value: Any) -> Any:
    """The same in JSON's types."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number(value: float | None) -> str:
    """Four digits at most, thousands apart: 12,345 and 0.03162."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def size(count: float) -> str:
    """Bytes for people."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count, units = count / 1000, units[1:]
    return f"{count:.0f} {units[0]}" if count >= 100 or units[0] == "bytes" else f"{count:.1f} {units[0]}"
