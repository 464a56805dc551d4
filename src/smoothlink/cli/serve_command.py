"""`smoothlink serve`: serves a model over HTTP, with a page."""

from __future__ import annotations

import os
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from smoothlink.cli.screen import Screen
from smoothlink.cli.shared_options import Model, Naming, Quiet, grouped, naming
from smoothlink.errors import DataError, SmoothLinkError, plural
from smoothlink.serve import ServerSettings

DEFAULTS = ServerSettings()
LARGE_DECODER = 20_000_000  # entries of V from which a product takes longer than threads take to synchronise
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")


def limit(**options: Any) -> Any:
    return typer.Option(rich_help_panel="Limits", **options)


@grouped(names=naming)
def serve(
    model: Model,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0: all addresses of this machine.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="Port to listen on; 0: any free port.")
    ] = 8000,
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            max=32,
            metavar="N",
            help="Number of server processes; a large model is in memory once for all of them.",
        ),
    ] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Threads per process. The default is one, or for a large model the cores divided by the processes.",
            show_default=False,
        ),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Load the model file again when it changes, and serve the new model.")
    ] = False,
    token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A file with the token that requests must carry.", show_default=False),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which requests may call the server, besides its addresses, localhost and this machine's "
            "name; '*': any, which is the default with a token. May be repeated.",
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="A folder for the labels that people correct in the page: corrections.jsonl. The default is none.",
            show_default=False,
        ),
    ] = None,
    updatable: Annotated[
        bool,
        typer.Option(
            "--updatable",
            help="Let clients send rows that the model learns (/update) or forgets (/forget). It was trained with "
            "--updatable.",
        ),
    ] = False,
    max_body: Annotated[
        int, limit(min=1, metavar="BYTES", help="The size of the largest request.")
    ] = DEFAULTS.max_body,
    max_upload: Annotated[
        int, limit(min=1, metavar="BYTES", help="The size of the largest table that the page takes.")
    ] = DEFAULTS.max_upload,
    max_rows: Annotated[
        int, limit(min=1, metavar="N", help="The most texts or vectors in a request.")
    ] = DEFAULTS.max_rows,
    timeout: Annotated[
        float, limit(min=0.1, metavar="SECONDS", help="The time for a request and its response.")
    ] = DEFAULTS.timeout,
    max_connections: Annotated[
        int, limit(min=1, metavar="N", help="The most connections of a process at a time.")
    ] = DEFAULTS.max_connections,
    batch_wait: Annotated[
        float,
        limit(
            min=0, max=1000, metavar="MS", help="How long a busy server waits for more requests to predict together."
        ),
    ] = 1000 * DEFAULTS.batch_wait,
    in_memory: Annotated[
        str,
        limit(
            metavar="SIZE",
            help="The most memory for copies of the model, one per process; a larger model is memory-mapped.",
        ),
    ] = "1G",
    quiet: Quiet = False,
    *,
    names: Naming,
) -> None:
    """Serve a model: an API at /predict, described at /docs, and a page at /.

    Example: smoothlink serve model.safetensors --port 8000
    """
    check_libraries()
    os.environ.setdefault("PROMETHEUS_DISABLE_CREATED_SERIES", "1")  # read when prometheus_client is imported
    from smoothlink.modelfile import load
    from smoothlink.serve.corrections import check_store
    from smoothlink.serve.server import address_of, listen
    from smoothlink.serve.server import serve as run

    if updatable and host not in LOCAL_HOSTS and token_file is None:
        raise DataError(
            f"--updatable with --host {host}: whoever reaches this address could change the model.\n"
            "Type --token-file FILE to require a token, or leave --host out."
        )
    if updatable and reload:
        raise DataError("--updatable follows the model file by itself.\nType --updatable without --reload.")
    screen, memory = Screen(quiet), parse_memory(in_memory)
    if store is not None:
        check_store(store)
    loaded = names.applied(load(model, verify="never"), screen)  # the processes that serve it verify it
    classifier: Any = getattr(loaded, "classifier_", loaded)
    settings = ServerSettings(
        token=None if token_file is None else read_token(token_file, screen),
        hosts=None if token_file is not None and not allow_host else host_names(host, allow_host or []),
        max_body=max_body,
        max_upload=max_upload,
        max_rows=max_rows,
        timeout=timeout,
        max_connections=max_connections,
        batch_wait=batch_wait / 1000,
        threads=threads or default_threads(loaded, workers),
        in_memory=memory,
        reload=reload,
        store=store,
        updatable=updatable,
        vocabulary=classifier.vocabulary_ if names.given else None,
    )
    what = f"{plural(classifier.model_.n_labels, 'label')} for {'vectors' if classifier is loaded else 'texts'}"
    listening = listen(host, port)
    if host not in LOCAL_HOSTS and token_file is None:
        screen.note("Whoever reaches this address may use the model. Type --token-file FILE to require a token.")

    def ready() -> None:
        processes = "" if workers == 1 else f", by {workers} processes"
        screen.note(f"{model} ({what}) is served at {address_of(listening)}{processes}")
        screen.note("The page is at /, the API is described at /docs. Ctrl-C stops the server.")

    run(model, settings, listening, workers=workers, ready=ready)


def host_names(host: str, allowed: list[str]) -> tuple[str, ...]:
    """Returns the names by which requests may call a server that listens at this host."""
    return tuple(name.lower().rstrip(".") for name in ("localhost", socket.gethostname(), host, *allowed))


def check_libraries() -> None:
    """Raises SmoothLinkError with what to install where a library is missing."""
    needed = ("fastapi", "uvicorn", "httptools", "prometheus_client")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise SmoothLinkError(f"smoothlink serve needs {' and '.join(missing)}.\nType: pip install 'smoothlink[serve]'")


def parse_memory(size: str) -> int:
    """Returns the bytes of --in-memory; with 0 the model is always mapped."""
    from smoothlink.parameters import memory_bytes

    found = 0 if size.strip() == "0" else memory_bytes(size)
    if found is None:
        raise typer.BadParameter(f"{size!r} is not a size. Type one like 500M or 4G, or 0.", param_hint="--in-memory")
    return found


def default_threads(model: Any, workers: int) -> int:
    """Returns one, unless the decoder is large: threads that synchronise after each small product wait for each other
    (on two busy cores the demo's model served a third as many requests with two threads as with one)."""
    V = getattr(model, "classifier_", model).model_.V
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if V.shape[0] * V.shape[1] < LARGE_DECODER else max(1, cores // workers)


def read_token(path: str, screen: Screen) -> str:
    """Returns the token in a file: one line of visible characters, as a header can hold."""
    token = Path(path).read_text("utf-8", errors="replace").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise DataError(
            f"{path} must hold a token: one line of letters and digits.\nType: openssl rand -hex 24 > {path}"
        )
    if os.name == "posix" and os.stat(path).st_mode & 0o077:
        screen.note(f"Other users of this machine may read {path}. Type: chmod 600 {path}")
    return token
