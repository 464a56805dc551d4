"""Small models over HTTP, for the tests of the server: in this process, or in a thread with a real port."""

import asyncio
import contextlib
import functools
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from small import FIXED, fixed, words

from smoothlink import TextSmoothLink

TOPICS = {
    "fruit": ["apple", "pear", "plum", "cherry", "quince"],
    "metal": ["iron", "copper", "zinc", "nickel", "tin"],
    "colour": ["red", "green", "blue", "violet", "ochre"],
    "weather": ["rain", "snow", "hail", "drizzle", "fog"],
    "number": ["seven", "eleven", "twenty", "ninety", "forty"],
}


@functools.cache
def text_model(**changes):
    """Texts of two topics each, which are their labels."""
    rng = np.random.default_rng(2015)
    names = list(TOPICS)
    labels = [rng.choice(names, 2, replace=False).tolist() for _ in range(120)]
    texts = [" ".join(str(word) for topic in two for word in rng.choice(TOPICS[topic], 4)) for two in labels]
    given = {"word_ngrams": (1, 2), "char_ngrams": None, **FIXED, **changes}
    return TextSmoothLink(**given).fit(texts, labels)


@functools.cache
def multiclass_model():
    """Texts of one topic each."""
    rng = np.random.default_rng(2015)
    labels = [str(name) for name in rng.choice(list(TOPICS), 120)]
    texts = [" ".join(str(word) for word in rng.choice(TOPICS[topic], 4)) for topic in labels]
    return TextSmoothLink(word_ngrams=(1, 1), **FIXED).fit(texts, labels)


@functools.cache
def vector_model(**changes):
    """Counts of 40 words with 6 labels."""
    return fixed(**changes).fit(*words(np.random.default_rng(2015)))


def run_async(work):
    """Returns the result of a coroutine, in a thread: playwright, once started, has a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def client(model, settings=None, **more):
    """Returns a client of the application without a network."""
    from fastapi.testclient import TestClient

    from smoothlink.serve import create_app

    return TestClient(create_app(model, settings, **more), raise_server_exceptions=False)


@contextlib.contextmanager
def listening(model, settings=None, **more):
    """Yields the address of a server in a thread."""
    import uvicorn

    from smoothlink.serve import create_app
    from smoothlink.serve.connections import Protocol
    from smoothlink.serve.server import Server, address_of, listen

    socket = listen("127.0.0.1", 0)
    app = create_app(model, settings, name="topics", **more)
    protocol = functools.partial(Protocol, settings=settings)
    server = Server(uvicorn.Config(app, http=protocol, log_level="critical", loop="asyncio", ws="none"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[socket])), daemon=True)
    thread.start()
    try:
        yield address_of(socket)
    finally:
        server.should_exit = True
        thread.join(10)


def chromium():
    """Returns where a browser is, or skips the test and says how to get one."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium: apt-get install chromium, or name one in CHROMIUM")
    return found
