"""Measures how fast `smoothlink serve` responds: the demo's model, one text per request, over loopback, by wrk.

    python benchmarks/serve.py                     # a minute at 300 requests per second, and what it can do at most
    python benchmarks/serve.py --seconds 5         # a glance

Two loads. "paced": connections that pause between requests, a little more than 300 a second in all. "full": connections
that send the next request at once. The target is for the first: 300 per second, 99 of 100 within 50 ms, no error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.circumstances import RESULTS, Watch
from bench.serving import circumstances, demo_model, served

RATE, WITHIN = 300, 50.0  # requests per second, ms at the 99th percentile
LUA = """
local bodies = {}
for line in io.lines("%(bodies)s") do bodies[#bodies + 1] = line end
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local at = 0
function request() at = at %% #bodies + 1; return wrk.format(nil, nil, nil, bodies[at]) end
%(delay)s
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '{"requests": %%d, "seconds": %%f, "errors": %%d, "p50": %%f, "p90": %%f, "p99": %%f, "most": %%f}\\n',
    summary.requests, summary.duration / 1e6, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50) / 1e3, latency:percentile(90) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
"""


def bodies(texts: list[str], folder: Path, count: int = 2000) -> Path:
    """Writes requests of one text each, the beginnings of docstrings of a sentence or more, and returns their file."""
    rng = random.Random(0)
    path = folder / "bodies"
    chosen = [text[: rng.randrange(40, 600)] for text in rng.sample(texts, min(count, len(texts)))]
    path.write_text("".join(json.dumps({"texts": [text], "k": 5}) + "\n" for text in chosen))
    return path


def load(port: int, bodies_file: Path, seconds: int, connections: int, pause: float) -> dict[str, Any]:
    """What wrk measures, with a mean pause (ms) of each connection between its requests; times in ms."""
    delay = f"function delay() return math.random(0, {round(2 * pause)}) end" if pause else ""
    script = bodies_file.with_name("load.lua")
    script.write_text(LUA % {"bodies": bodies_file, "delay": delay})
    line = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "5s", "-s", str(script)]
    ran = subprocess.run([*line, f"http://127.0.0.1:{port}/predict"], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout.splitlines()[-1])
    return {**found, "rate": found["requests"] / found["seconds"], "connections": connections}


def cpu_seconds(pid: int) -> float:
    """Returns the seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(model: Path, bodies_file: Path, seconds: int, options: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with served(model, *options) as (pid, port):
        load(port, bodies_file, 2, 4, 0)
        for name, connections, pause in (("paced", 32, 1000 * 32 / (1.15 * RATE)), ("full", 16, 0.0)):
            watch, before = Watch(), cpu_seconds(pid)
            found[name] = load(port, bodies_file, seconds, connections, pause)
            found[name] |= {"cpu_ms": 1000 * (cpu_seconds(pid) - before) / found[name]["requests"], **watch.seen()}
    paced = found["paced"]
    found["reached"] = paced["rate"] >= RATE and paced["p99"] < WITHIN and paced["errors"] == 0
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="Seconds per load.")
    parser.add_argument("--model", type=Path, help="A text model instead of the demo's.")
    parser.add_argument("--output", type=Path, default=RESULTS / "serve" / "figures.json")
    parser.add_argument("options", nargs="*", help="Options of `smoothlink serve`, after --.")
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        print("wrk is not installed. Type: apt-get install wrk", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = given.model or folder / "demo.safetensors"
        bodies_file = bodies(demo_model(model).texts, folder)
        found = measure(model, bodies_file, given.seconds, given.options)
    found = {**circumstances(), "seconds": given.seconds, "options": given.options, **found}
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    for load_name in ("paced", "full"):
        one = found[load_name]
        print(
            f"{load_name}: {one['rate']:.0f} requests/s, p50 {one['p50']:.1f} ms, p99 {one['p99']:.1f} ms, at most "
            f"{one['most']:.0f} ms, {one['errors']} errors, {one['cpu_ms']:.2f} ms of a core each; "
            f"others used {one.get('other_cores', '?')} cores"
        )
    print("reached" if found["reached"] else "not reached", f"({RATE}/s, p99 < {WITHIN:g} ms, no error)")
    return 0 if found["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
