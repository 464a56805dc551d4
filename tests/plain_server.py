"""Two worker processes that serve an application of one line, which starts sooner than a model.

It prints its port. A request takes 20 ms, and its response is "ok", or what was in a file when its worker was started:
that file is named on the command line, and workers follow its changes. With "broken" in it they cannot start; with
"slow" they take their time.
"""

import asyncio
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import uvicorn

from smoothlink.serve import ServerSettings
from smoothlink.serve.connections import Protocol
from smoothlink.serve.server import Workers, listen

HANGING = 10  # seconds


def make_app(file):
    """Returns the application."""
    content = b"ok" if file is None else Path(file).read_bytes()
    if content == b"broken":
        sys.exit(3)
    if content == b"slow":
        time.sleep(3)

    async def app(scope, receive, send):
        await asyncio.sleep(0.02)
        length = b"%d" % len(content)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": content})

    return app


def main():
    file = sys.argv[1] if len(sys.argv) > 1 else None
    listening = listen("127.0.0.1", 0)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(
        partial(make_app, file),
        factory=True,
        http=partial(Protocol, settings=ServerSettings()),
        loop="asyncio",
        workers=2,
        log_level="error",
        lifespan="off",
        timeout_graceful_shutdown=10,
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        Workers(config, [listening], follows=file, hanging=HANGING).run()


if __name__ == "__main__":
    main()
