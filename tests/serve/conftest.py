"""One served model for all tests of the server: without a network, and in a thread with a real port."""

import pytest
from served import client, listening, text_model, vector_model


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
