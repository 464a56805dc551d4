"""Two worker processes that serve an application of one line, which starts sooner than a model.

It prints its port. A request takes 20 ms.
"""

import asyncio
import os
import tempfile
from functools import partial

import uvicorn

from smoothlink.serve import ServerSettings
from smoothlink.serve.connections import Protocol
from smoothlink.serve.server import Workers, listen

HANGING = 10  # seconds


async def app(scope, receive, send):
    await asyncio.sleep(0.02)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def main():
    listening = listen("127.0.0.1", 0)
    print(listening.getsockname()[1], flush=True)
    protocol = partial(Protocol, settings=ServerSettings())
    config = uvicorn.Config(
        app, http=protocol, loop="asyncio", workers=2, log_level="error", lifespan="off", timeout_graceful_shutdown=10
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        Workers(config, [listening], hanging=HANGING).run()


if __name__ == "__main__":
    main()
