"""What becomes of an error: one message on standard error and an exit code, and a traceback only with --debug."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import typer

from smoothlink.data.atomic import REMEDIES, remedy
from smoothlink.data.matching import unnamed
from smoothlink.errors import SmoothLinkError, printable

BUG = "This is a bug in smoothlink. Run the command again with --debug and report what it prints."
debugging = False


def debug(on: bool) -> None:
    """Whether errors come with a traceback."""
    global debugging
    debugging = on


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with every exception turned into a message and an exit code."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = show_warning
                with unnamed():
                    command(*args, **kwargs)
                sys.stdout.flush()
        except typer.BadParameter as error:
            error.message = printable(error.message)
            raise
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            leave_quietly()
        except KeyboardInterrupt:
            leave(130, "Interrupted.")
        except Exception as error:
            if debugging:
                raise
            leave(1, f"{typer.style('error:', fg='red', bold=True)} {printable(in_words(error))}")

    return run


def in_words(error: Exception) -> str:
    """What happened; what smoothlink raises on purpose says what to do about it."""
    if lacks_memory(error):
        less = (
            "End other programs, or use a machine with more memory. To train in less: --memory, fewer random features "
            "(--set kernel.features=1000) or a smaller --rank; `smoothlink info` says how large the data is."
        )
        return f"Memory ran out. {error}\n{less}".replace(". \n", ".\n")
    if isinstance(error, SmoothLinkError):
        return str(error)
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        what = f"{error.filename}: {what}." if error.filename else f"{what}."
        return f"{what}\n{remedy(error)}" if error.errno in REMEDIES or isinstance(error, PermissionError) else what
    if isinstance(error, ValueError):
        return str(error)
    return f"{type(error).__name__}: {error}\n{BUG}"


def lacks_memory(error: BaseException | None) -> bool:
    """Returns whether an error is a lack of memory, or was raised because of one."""
    while error is not None and not isinstance(error, MemoryError) and getattr(error, "errno", None) != errno.ENOMEM:
        error = error.__cause__
    return error is not None


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as one line."""
    typer.echo(f"{typer.style('warning:', fg='yellow', bold=True)} {printable(str(message))}", err=True)


def leave(code: int, message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)


def leave_quietly() -> NoReturn:
    """The reader of a pipe has seen enough, as in `| head`: nothing is wrong."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end of the process
    raise typer.Exit(0)
