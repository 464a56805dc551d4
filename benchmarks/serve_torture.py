"""Serves under load while models are replaced, workers are killed and hostile clients do what they can.

    python benchmarks/serve_torture.py --seconds 3600        # 300 requests per second for an hour
    python benchmarks/serve_torture.py --seconds 60          # a glance

Requests of one text come at a steady rate, whether or not earlier ones have their response. Every response must be that
of one of the two models. A request whose connection ends without a response, since its worker was killed, is sent once
more, as clients may; it is lost if that fails too. At the end the server is stopped under load.

It runs on Linux. To a machine without a network that has numpy, scipy, scikit-learn and numba take a folder along, made
for the Python that is there:

    pip install --target FOLDER --python-version 3.12 --only-binary=:all: \\
        fastapi uvicorn httptools prometheus_client typer zstandard
    PYTHONPATH=src:FOLDER python benchmarks/serve_torture.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bench.circumstances import RESULTS, Watch
from bench.serving import circumstances, demo_model, served

from smoothlink.modelfile import load

TEXTS, LENGTH, K = 200, 300, 5
CONNECTIONS = 64  # that requests are sent by
TOLERANCE = 1e-4  # of probabilities: the rounding of products depends on the rows that are predicted together
P99, FLAT = 50.0, 0.02  # ms, and the share by which memory may grow: what is to be reached on quiet cores
HOSTILE = ("silent", "slow head", "large head", "large body", "no HTTP", "never reads")
Answer = list[tuple[str, float]]


@dataclass
class Seen:
    """What became of all requests."""

    counts: Counter[str] = field(default_factory=Counter)
    ms: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)  # MB, each second


class Client:
    """One connection, made again when it ends."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, body: bytes) -> tuple[int, bytes]:
        """Returns the status and the body of the response; raises OSError or EOFError where there is none."""
        if self.streams is not None and self.streams[0].at_eof():
            self.close()
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        try:
            writer.write(
                b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body
            )
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            content = await asyncio.wait_for(reader.readexactly(length), 30)
        except BaseException:
            self.close()
            raise
        if b"connection: close" in head:
            self.close()
        return int(head.split()[1]), content

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def request(client: Client, text: int, bodies: list[bytes], answers: list[list[Answer]], seen: Seen) -> None:
    """Sends a request, once more if it was lost, and notes what became of it."""
    start = time.perf_counter()
    for attempt in range(2):
        try:
            status, content = await client.send(bodies[text])
            break
        except (OSError, EOFError, TimeoutError) as error:
            if isinstance(error, ConnectionRefusedError):
                seen.counts["refused"] += 1
                return
            seen.counts["sent again" if attempt == 0 else "lost"] += 1
    else:
        return
    seen.ms.append(1000 * (time.perf_counter() - start))
    if status != 200:
        seen.counts[str(status)] += 1
        return
    got = [(one["label"], one["probability"]) for one in json.loads(content)["predictions"][0]["labels"]]
    models = [i for i, expected in enumerate(answers) if agree(got, expected[text])]
    seen.counts[f"model {models[0]}" if models else "of neither model"] += 1


def agree(a: Answer, b: Answer) -> bool:
    """Whether two answers have the same probabilities; labels that are equally probable may change places."""
    return len(a) == len(b) and all(abs(p - q) < TOLERANCE for (_, p), (_, q) in zip(a, b, strict=True))


async def keep_sending(port: int, rate: float, until: Callable[[], bool], send: Callable[..., Awaitable[None]]) -> None:
    """Sends requests at a steady rate, each by a connection that is free."""
    free: asyncio.Queue[Client] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(Client(port))
    running: set[asyncio.Task[None]] = set()

    async def one(client: Client) -> None:
        await send(client)
        free.put_nowait(client)

    next_time = time.perf_counter()
    while not until():
        next_time += 1 / rate
        await asyncio.sleep(max(0.0, next_time - time.perf_counter()))
        task = asyncio.create_task(one(await free.get()))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)


def attack_all(port: int, seconds: float) -> Counter[str]:
    """Does all hostile things at once, in a process of its own, so that requests are not late for them."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # connections that the server cuts
    seen: Counter[str] = Counter()

    async def attack_until_the_end() -> None:
        tasks = [asyncio.create_task(attack(port, kind, seen)) for kind in HOSTILE]
        await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            task.cancel()

    asyncio.run(attack_until_the_end())
    return seen


async def attack(port: int, kind: str, seen: Counter[str]) -> None:
    """Does one hostile thing again and again, from an address of its own."""
    large = json.dumps({"texts": ["solve a sparse linear system " * 30] * 1000}).encode()
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            if kind == "slow head":
                for letter in head:
                    writer.write(bytes([letter]))
                    await writer.drain()
                    await asyncio.sleep(0.5)
            elif kind == "large head":
                writer.write(head + b"X: " + b"x" * (16 << 20))
                await writer.drain()
            elif kind == "no HTTP":
                writer.write(random.randbytes(2000) + b"\r\n\r\n")
            elif kind != "silent":
                writer.write(head + b"Content-Length: %d\r\n\r\n" % len(large) + large)
            if kind == "never reads":
                await asyncio.sleep(20)
            response = await asyncio.wait_for(reader.read(20), 40)
            seen[f"{kind}: {response[9:12].decode('latin-1') or 'closed'}"] += 1
            writer.close()
        except (OSError, EOFError, TimeoutError) as error:
            seen[f"{kind}: {type(error).__name__}"] += 1
        await asyncio.sleep(0.2 if kind in ("silent", "no HTTP") else 1)


def worker_processes(pid: int) -> list[int]:
    """Returns the numbers of the worker processes of a supervisor."""
    processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    children = [one for one in processes if proc_file(one, "stat").rpartition(")")[2].split()[1:2] == [str(pid)]]
    return [one for one in children if "spawn_main" in proc_file(one, "cmdline")]


def proc_file(pid: int, name: str) -> str:
    """Returns what the system says of a process; of one that has ended nothing."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


async def disturb(pid: int, model: Path, others: list[Path], given: Any, until: Callable[[], bool], seen: Seen) -> None:
    """Replaces the model, kills workers and notes their memory, at their intervals."""
    rng, start = random.Random(0), time.monotonic()
    next_reload, next_kill, turn = given.reload, given.kill, 0
    while not until():
        await asyncio.sleep(0.1)
        past = time.monotonic() - start
        if given.reload and past > next_reload:
            next_reload, turn = next_reload + given.reload, turn + 1
            shutil.copyfile(others[turn % 2], model.with_suffix(".next"))
            model.with_suffix(".next").rename(model)
            seen.counts["models replaced"] += 1
        if given.kill and past > next_kill:
            next_kill += given.kill
            alive = worker_processes(pid)
            if len(alive) > 1:
                os.kill(rng.choice(alive), signal.SIGKILL)
                seen.counts["workers killed"] += 1
        if past > len(seen.memory):
            seen.memory.append(memory(pid))


def memory(pid: int) -> float:
    """Returns the MB that the workers have for themselves."""
    pages = [[int(n) for n in proc_file(one, "statm").split()] for one in worker_processes(pid)]
    return sum(one[1] - one[2] for one in pages if one) * os.sysconf("SC_PAGE_SIZE") / 1e6


def memory_per_minute(noted: list[float]) -> dict[str, Any]:
    """Returns the median of each minute, since a worker that starts has less and one that changes its model more, and
    how much the last quarter of them has more than the first."""
    whole = max(60, len(noted) // 60 * 60)
    medians = np.array([np.median(noted[i : i + 60]) for i in range(0, min(whole, len(noted)), 60)])
    quarter = -(-len(medians) // 4)
    growth = medians[-quarter:].mean() / medians[:quarter].mean() - 1
    return {
        "memory_mb_at_first": round(noted[0], 1),
        "memory_mb": medians.round(1).tolist(),
        "memory_growth": round(float(growth), 4),
    }


async def run(pid: int, port: int, model: Path, others: list[Path], bodies: Any, answers: Any, given: Any) -> Any:
    seen, rng = Seen(), random.Random(0)
    end = time.monotonic() + given.seconds
    ended = asyncio.Event()

    async def send(client: Client) -> None:
        await request(client, rng.randrange(len(bodies)), bodies, answers, seen)

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as attacker:
        hostile = attacker.submit(attack_all, port, given.seconds if given.hostile else 0.0)
        load = asyncio.create_task(keep_sending(port, given.rate, ended.is_set, send))
        await disturb(pid, model, others, given, lambda: time.monotonic() > end, seen)
        before_stop = Counter(seen.counts)
        os.kill(pid, signal.SIGTERM)
        await asyncio.sleep(3)
        ended.set()
        await load
    stopped = {key: n - before_stop[key] for key, n in seen.counts.items() if n - before_stop[key]}
    ms = np.sort(seen.ms) if seen.ms else np.zeros(1)
    return {
        "counts": dict(before_stop),
        "counts_after_sigterm": stopped,
        "hostile": dict(sorted(hostile.result().items())),
        **{f"p{q}": round(float(np.percentile(ms, q)), 1) for q in (50, 90, 99)},
        "most": round(float(ms[-1]), 1),
        **memory_per_minute(seen.memory),
    }


def answers_of(path: Path, texts: list[str]) -> list[Answer]:
    return [[(str(name), p) for name, p in row] for row in load(path).predict_topk(texts, k=K)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--rate", type=float, default=300, help="Requests per second.")
    parser.add_argument("--reload", type=float, default=20, help="Seconds between two models; 0: one model.")
    parser.add_argument("--kill", type=float, default=30, help="Seconds between two killed workers; 0: none.")
    parser.add_argument("--hostile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--models", type=Path, nargs=2, help="Two text models instead of the demo's.")
    parser.add_argument("--texts", type=Path, help="A file with a text per line instead of the demo's.")
    parser.add_argument("--output", type=Path, default=RESULTS / "serve_torture" / "figures.json")
    given = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # connections that the server cuts
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        others = given.models or [folder / "first.safetensors", folder / "second.safetensors"]
        if given.texts:
            texts = given.texts.read_text().splitlines()
        else:
            texts = [text[:LENGTH] for text in random.Random(0).sample(demo_model(others[0]).texts, TEXTS)]
            demo_model(others[1], final_ridge=100.0)
        bodies = [json.dumps({"texts": [text], "k": K}).encode() for text in texts]
        answers = [answers_of(path, texts) for path in others]
        model = folder / "served.safetensors"
        shutil.copyfile(others[0], model)
        watch = Watch()
        with served(model, "--workers", str(given.workers), "--reload") as (pid, port):
            found = asyncio.run(run(pid, port, model, others, bodies, answers, given))
    found |= watch.seen()  # of processes that have ended
    counts = Counter(found["counts"]) + Counter(found["counts_after_sigterm"])
    found["survived"] = not (
        counts["lost"] or counts["of neither model"] or found["counts_after_sigterm"].get("sent again")
    )
    found["reached"] = found["survived"] and found["p99"] < P99 and abs(found["memory_growth"]) < FLAT
    options = {key: getattr(given, key) for key in ("seconds", "rate", "reload", "kill", "hostile", "workers")}
    given.output.parent.mkdir(exist_ok=True)
    given.output.write_text(json.dumps({**circumstances(), **options, **found}, indent=1) + "\n")
    print(json.dumps({**options, **found}, indent=1))
    return 0 if found["survived"] else 1


if __name__ == "__main__":
    sys.exit(main())
