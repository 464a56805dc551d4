"""`smoothlink serve`: a model behind HTTP, with a page."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from smoothlink.cli.screen import Screen
from smoothlink.cli.shared_options import Model, Quiet
from smoothlink.errors import DataError, SmoothLinkError, plural
from smoothlink.serve.server_settings import Settings

DEFAULTS = Settings()
LARGE = 20_000_000  # numbers in a decoder that takes longer to read than threads take to meet
LOCAL = ("127.0.0.1", "::1", "localhost")


def limit(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Limits", **more)


def serve(
    model: Model,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0: on all addresses.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0: any that is free.")] = 8000,
    workers: Annotated[
        int,
        typer.Option(min=1, max=32, metavar="N", help="Processes; a large model is in memory once for all of them."),
    ] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Threads of each process: one, or for a large model its share of the cores.",
            show_default=False,
        ),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Load the model file again when it changes, and serve the new model.")
    ] = False,
    token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A file with the token that requests must bring.", show_default=False),
    ] = None,
    max_body: Annotated[int, limit(min=1, metavar="BYTES", help="The largest request.")] = DEFAULTS.max_body,
    max_rows: Annotated[
        int, limit(min=1, metavar="N", help="The most texts or vectors in a request.")
    ] = DEFAULTS.max_rows,
    timeout: Annotated[float, limit(min=0.1, metavar="SECONDS", help="When a request is given up.")] = DEFAULTS.timeout,
    batch_wait: Annotated[
        float,
        limit(min=0, max=1000, metavar="MS", help="How long a busy server waits for more requests to answer together."),
    ] = 1000 * DEFAULTS.batch_wait,
    in_memory: Annotated[
        str,
        limit(metavar="SIZE", help="Models up to this size, times the processes, are read into memory, not mapped."),
    ] = "1G",
    quiet: Quiet = False,
) -> None:
    """Serve a model: an API at /predict, described at /docs, and a page at /.

    Example: smoothlink serve model.safetensors --port 8000
    """
    need_libraries()
    from smoothlink.modelfile import load
    from smoothlink.serve.server import address_of, bound
    from smoothlink.serve.server import serve as run

    screen, copies = Screen(quiet), memory_of(in_memory)
    loaded = load(model, verify="never")  # the processes that serve it verify it
    settings = Settings(
        token=None if token_file is None else read_token(token_file, screen),
        max_body=max_body,
        max_rows=max_rows,
        timeout=timeout,
        batch_wait=batch_wait / 1000,
        threads=threads or settled_threads(loaded, workers),
        in_memory=copies,
        reload=reload,
    )
    classifier: Any = getattr(loaded, "classifier_", loaded)
    what = f"{plural(classifier.model_.n_labels, 'label')} for {'vectors' if classifier is loaded else 'texts'}"
    listening = bound(host, port)
    if host not in LOCAL and token_file is None:
        screen.note("Whoever reaches this address may ask. --token-file lets in those who have a token.")

    def ready() -> None:
        shared = "" if workers == 1 else f", by {workers} processes"
        screen.note(f"{model} ({what}) is served at {address_of(listening)}{shared}")
        screen.note("The page is at /, the API is described at /docs. Ctrl-C stops it.")

    run(model, settings, listening, workers=workers, ready=ready)


def need_libraries() -> None:
    """Says what to install where it is missing."""
    missing = [name for name in ("fastapi", "uvicorn", "httptools") if find_spec(name) is None]
    if missing:
        raise SmoothLinkError(f"serve needs {' and '.join(missing)}.\nType: pip install 'smoothlink[serve]'")


def memory_of(size: str) -> int:
    """The bytes of --in-memory; 0: always mapped."""
    from smoothlink.parameters import memory_bytes

    found = 0 if size.strip() == "0" else memory_bytes(size)
    if found is None:
        raise typer.BadParameter(f"{size!r} is no size: type 500M, 4G or 0.", param_hint="--in-memory")
    return found


def settled_threads(model: Any, workers: int) -> int:
    """One, unless the decoder is large: threads that meet after each small product wait for each other (on two busy
    cores, the demo's model answered a third of the requests with two threads that it answers with one)."""
    V = getattr(model, "classifier_", model).model_.V
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if V.shape[0] * V.shape[1] < LARGE else max(1, cores // workers)


def read_token(path: str, screen: Screen) -> str:
    """The token in a file: one line of visible characters, as a header can hold."""
    token = Path(path).read_text("utf-8", errors="replace").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise DataError(f"{path} holds no token: one line of letters and digits.\nType: openssl rand -hex 24 > {path}")
    if os.name == "posix" and os.stat(path).st_mode & 0o077:
        screen.note(f"Others on this machine may read {path}. Type: chmod 600 {path}")
    return token
