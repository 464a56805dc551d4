"""Sends ten thousand malformed requests: a server must refuse them (4xx) and go on serving.

    pip install 'smoothlink[dev]'
    python benchmarks/serve_malformed.py                 # ten thousand; --count 500 for a glance

A part each: requests that schemathesis makes from the server's own OpenAPI description, most of them against it; random
bytes in place of a body; random bytes in place of HTTP. What happens to be valid gets status 200.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import requests
import schemathesis
from bench.circumstances import RESULTS
from bench.serving import answers, circumstances, demo_model, served
from hypothesis import HealthCheck, Phase, given, seed, settings

from smoothlink.serve.uploads import KINDS

schemathesis.serializer.alias("application/x-ndjson", "text/plain")
HEADERS = {"Content-Type": "application/json"}
TABLE_PATHS = *(f"/table?name=a.{kind}" for kind in KINDS), *(f"/table/file?kind={kind}" for kind in KINDS)
PATHS = (
    "/predict",
    "/explain",
    "/labels",
    "/model",
    "/health",
    "/metrics",
    "/",
    "/docs",
    "/page/main.js",
    "/nowhere",
    *TABLE_PATHS,
)
WORDS = (
    b'{"texts": ["',
    b'"]}',
    b'"k": ',
    b"1e999",
    b"NaN",
    b"\\ud800",
    b"[" * 50,
    b"{" * 50,
    b"\x00",
    b"\xff",
    b"null",
)


def described(port: int, count: int, seen: Counter[str]) -> None:
    """Sends cases of every operation in the description, a fifth of them valid."""
    session = requests.Session()
    schema: Any = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:
        takes = bool(operation.body) or bool(operation.query)
        for mode, share in (("positive", 0.2), ("negative", 0.8)) if takes else (("positive", 0.02),):
            cases = operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode))
            most = max(1, round(share * count / sum(bool(one.body) or bool(one.query) for one in operations)))

            @seed(0)
            @settings(
                max_examples=most,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=cases)
            def send(case: Any) -> None:
                response = case.call(base_url=f"http://127.0.0.1:{port}", session=session, timeout=30)
                note(seen, response.status_code, response.content)

            send()


def scrambled(rng: random.Random) -> bytes:
    """Returns random bytes, or pieces of requests in any order."""
    if rng.random() < 0.5:
        return rng.randbytes(rng.randrange(200))
    return b"".join(rng.choice([*WORDS, rng.randbytes(3)]) for _ in range(rng.randrange(12)))


def random_bodies(port: int, count: int, seen: Counter[str], rng: random.Random) -> None:
    session = requests.Session()
    for _ in range(count):
        path, method = rng.choice(("/predict", "/explain")), "POST"
        if rng.random() < 0.3:
            path, method = rng.choice(PATHS), rng.choice(("POST", "GET", "PUT", "DELETE", "PATCH"))
        query = {"q": scrambled(rng), "limit": scrambled(rng)} if rng.random() < 0.3 else None
        url = f"http://127.0.0.1:{port}{path}"
        given = session.request(method, url, params=query, data=scrambled(rng), headers=HEADERS, timeout=30)
        note(seen, given.status_code, given.content)


def random_streams(port: int, count: int, seen: Counter[str], rng: random.Random) -> None:
    """Sends bytes that are not HTTP, or hardly."""
    for i in range(count):
        start = (
            b"" if i % 2 else b"POST /predict HTTP/1.1\r\nHost: localhost\r\n" + scrambled(rng) + b": " + scrambled(rng)
        )
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            try:
                connection.sendall(start + (scrambled(rng) or b"\x00") + b"\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                response = connection.makefile("rb").read()
            except ConnectionError:  # refused before all of it was sent
                response = b""
        status = response[9:12].decode("ascii", "replace") if response.startswith(b"HTTP/1.1 ") else "closed"
        note(seen, int(status) if status.isdigit() else status, response)


def note(seen: Counter[str], status: int | str, content: bytes) -> None:
    seen[str(status)] += 1
    if isinstance(status, int) and status >= 500:
        print(status, content[:300], file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--model", type=Path, help="A text model instead of the demo's.")
    parser.add_argument("--output", type=Path, default=RESULTS / "serve_malformed" / "figures.json")
    options = parser.parse_args()
    third, rng = -(-options.count // 3), random.Random(0)
    kinds: dict[str, Counter[str]] = {"openapi": Counter(), "bodies": Counter(), "streams": Counter()}
    with tempfile.TemporaryDirectory() as name:
        model = options.model or Path(name) / "demo.safetensors"
        demo_model(model)
        with served(model) as (_, port):
            described(port, third, kinds["openapi"])
            random_bodies(port, third, kinds["bodies"], rng)
            random_streams(port, third, kinds["streams"], rng)
            serving = answers(port)
    counts = {kind: dict(sorted(seen.items())) for kind, seen in kinds.items()}
    broken = sum(n for seen in kinds.values() for status, n in seen.items() if status.startswith("5"))
    total = sum(seen.total() for seen in kinds.values())
    found = {**circumstances(), "requests": total, "answers_5xx": broken, "serving_afterwards": serving, **counts}
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({**counts, "requests": total, "answers_5xx": broken, "serving_afterwards": serving}))
    return 0 if serving and not broken else 1


if __name__ == "__main__":
    sys.exit(main())
