"""What one client can do to a server by its connections alone, and what becomes of connections when it ends."""

import asyncio
import itertools
import json
import socket
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn
from served import listening, run_async, text_model

from smoothlink.serve import ServerSettings
from smoothlink.serve.connections import Protocol
from smoothlink.serve.server import Server, listen

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@contextmanager
def served(check=lambda: None, **limits):
    """Yields a function that connects to a server with these limits."""
    with listening(text_model(), ServerSettings(**limits), check=check) as address, ExitStack() as stack:
        port = int(address.rsplit(":", 1)[1])
        yield lambda: stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))


def with_length(body):
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


def status(connection):
    """Returns the status of the one response, at the end of the connection; 0: there was none."""
    found = connection.makefile("rb").read()
    return int(found.split()[1]) if found else 0


def is_served(connect):
    connection = connect()
    connection.sendall(GET + b"Connection: close\r\n\r\n")
    return status(connection) == 200


def send_until_cut(connection, pieces, pause=0.0):
    """Returns how many bytes were sent until the connection was cut."""
    sent = 0
    for piece in pieces:
        try:
            connection.sendall(piece)
        except ConnectionError:
            return sent
        sent += len(piece)
        time.sleep(pause)
    raise AssertionError(f"all {sent} bytes were taken")


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (GET + b"X: ", b"x"),
        (b"GET /", b"x"),
        (b"", b"\r\n"),
        (GET, b"X: y\r\n"),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n5;", b"x"),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"x"),
    ],
)
def test_a_head_without_end_is_refused_when_it_is_too_large(start, more):
    with served(max_head=10_000) as connect:
        connection = connect()
        connection.sendall(start)
        sent = send_until_cut(connection, itertools.repeat(100_000 * more, 500))
        assert sent < 10e6  # what the buffers of two sockets hold
        assert is_served(connect)


def test_a_large_head_that_arrives_at_once_is_refused_with_the_reason():
    with served(max_head=2_000) as connect:
        connection = connect()
        connection.sendall(GET + b"X: " + b"y" * 3_000 + b"\r\n\r\n")
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431 ")
        assert json.loads(body) == {"status": 431, "reason": "The head of the request is larger than 2,000 bytes."}


def test_a_large_body_is_no_large_head():
    body = json.dumps({"texts": ["apple " * 5_000]}).encode()
    with served(max_head=2_000) as connect:
        connection = connect()
        whole = POST + b"Connection: close\r\n" + with_length(body)
        for start in range(0, len(whole), 1_000):
            connection.sendall(whole[start : start + 1_000])
        assert status(connection) == 200


def test_a_body_that_is_not_in_chunks_as_announced_is_refused_with_the_reason():
    with served() as connect:
        connection = connect()
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        time.sleep(0.1)  # until the application waits for the body
        connection.sendall(b"nonsense\r\n")
        assert status(connection) == 400


def test_a_body_that_an_upgrade_would_pass_over_is_refused_with_the_reason():
    with served() as connect:
        connection = connect()
        connection.sendall(POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + with_length(b'{"texts": ["apple"]}'))
        response = connection.makefile("rb").read()
        assert response.startswith(b"HTTP/1.1 400 ")
        assert b"without the header Upgrade" in response
        connection = connect()
        connection.sendall(GET + b"Connection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n")
        assert status(connection) == 200


def test_headers_after_a_chunked_body_are_no_headers_of_the_request():
    with served(token="s3cret") as connect:
        connection = connect()
        connection.sendall(
            b"GET /model HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\nAuthorization: Bearer s3cret\r\n\r\n"
        )
        assert status(connection) == 401


@pytest.mark.parametrize(("start", "expected"), [(b"", 0), (GET + b"\r\n", 200)])
def test_silent_connections_are_closed_before_and_after_a_request(start, expected):
    with served(idle_timeout=0.3) as connect:
        connection = connect()
        connection.sendall(start)
        assert status(connection) == expected


def test_a_connection_is_closed_whose_refused_request_never_ends():
    with served(token="s3cret", idle_timeout=0.5) as connect:
        connection = connect()
        connection.sendall(POST + b"Content-Length: 1000\r\n\r\n")
        time.sleep(0.2)
        connection.sendall(b"{")
        assert status(connection) == 401


def test_a_head_that_arrives_slowly_is_given_up():
    with served(timeout=0.5) as connect:
        send_until_cut(connect(), (bytes([letter]) for letter in GET * 2), pause=0.05)


def test_a_table_that_arrives_by_the_byte_is_given_up():
    with served(timeout=0.5) as connect:
        connection = connect()
        connection.sendall(b"POST /table?name=a.csv HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(20):
            connection.sendall(b"a")
            time.sleep(0.02)
        start = time.monotonic()
        assert status(connection) == 408
        assert time.monotonic() - start < 5


def test_a_client_that_does_not_read_its_responses_is_cut_off():
    with served(timeout=0.3) as connect:
        connection = connect()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = POST + with_length(json.dumps({"texts": ["apple"] * 1000, "k": 5}).encode())
        send_until_cut(connection, itertools.repeat(request, 500), pause=0.02)  # each response has 300 kB
        assert is_served(connect)


def test_where_connections_run_out_silent_ones_make_room():
    with served(max_connections=20) as connect:
        silent = [connect() for _ in range(60)]
        assert is_served(connect)
        assert sum(is_open(one) for one in silent) <= 20


def is_open(connection):
    connection.settimeout(0.01)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_where_all_connections_are_in_use_the_next_is_told_when_to_come_again():
    go = threading.Event()
    with served(max_connections=2, check=lambda: go.wait(10)) as connect:
        busy = [connect() for _ in range(2)]
        for one in busy:
            one.sendall(POST + b"Connection: close\r\n" + with_length(b'{"texts": ["apple"]}'))
        time.sleep(0.3)
        refused = connect().makefile("rb").read()
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in refused
        go.set()
        assert [status(one) for one in busy] == [200, 200]


async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def ended(work):
    """Returns what `work` returns, which is given the port of a server and a function that ends it."""
    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(app, http=Protocol, loop="asyncio", lifespan="off", timeout_graceful_shutdown=10)
    server = Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup([listening])
    return await work(listening.getsockname()[1], lambda: server.shutdown([listening]))


def test_a_server_that_ends_responds_to_connections_that_were_not_accepted_yet():
    async def work(port, end):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:  # which no one has accepted
            connection.sendall(GET + b"\r\n")
            await end()
            return connection.makefile("rb").read()

    response = run_async(ended(work))
    assert response.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in response


def test_a_server_that_ends_responds_to_the_next_request_of_a_connection():
    async def work(port, end):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"ok")
        ending = asyncio.create_task(end())
        await asyncio.sleep(0.1)
        writer.write(GET + b"\r\n")
        response = await reader.read()
        await ending
        return response

    response = run_async(ended(work))
    assert response.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in response


def test_a_server_that_ends_and_may_open_no_more_files_responds_to_the_connections_it_has():
    resource = pytest.importorskip("resource", reason="Windows has no such limit")

    async def work(port, end):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"ok")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.create_connection(("127.0.0.1", port), timeout=20) as waiting:
            resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno(), limits[1]))
            try:
                ending = asyncio.create_task(end())
                await asyncio.sleep(0.1)
                writer.write(GET + b"\r\n")
                response = await reader.read()
                await ending
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        return response

    assert run_async(ended(work)).startswith(b"HTTP/1.1 200 ")
