"""One served model for all tests of the server: without a network, and in a thread with a real port."""

import pytest
from served import chromium, client, listening, text_model, vector_model

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="session")
def texts():
    with client(text_model(), name="topics") as made:
        yield made


@pytest.fixture(scope="session")
def vectors():
    with client(vector_model()) as made:
        yield made


@pytest.fixture(scope="session")
def address():
    with listening(text_model()) as found:
        yield found


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    path = chromium()
    with sync_api.sync_playwright() as started:
        made = started.chromium.launch(executable_path=path, args=FLAGS)
        yield made
        made.close()
