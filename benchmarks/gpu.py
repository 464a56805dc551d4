"""What one GPU does: each part checks the device against float64 references, measures, and prints its table last.

    python benchmarks/gpu.py lshtc [--device cuda] [--passes N]     made data of LSHTC's shape: 2.4M rows, 325k labels
    python benchmarks/gpu.py lshtc-sampled [--memory GIB]           the same by joint training with sampled negatives
    python benchmarks/gpu.py odp                                    made data of ODP's shape: 1M rows, 100k classes
    python benchmarks/gpu.py yso yso-sampled aloi agree [--data FOLDER]    real data: accuracy, seconds, host and device
    python benchmarks/gpu.py checks                                 the checks alone
    python benchmarks/gpu.py pack [--data FOLDER] --to FOLDER       the real data in small files, to take along
    python benchmarks/gpu.py --page-only                            docs/benchmarks-gpu.md from the stored cells

Each part takes less than nine minutes on one H200, its data included, and writes a cell, PART.json in --results. Where
a check fails, nothing is measured and the exit code is 1. Real data are read from --data, $SMOOTHLINK_DATA or
shared/data beside this project, where NAME.npz, as `pack` makes it, goes before a folder NAME.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from bench.circumstances import RESULTS, ROOT, store
from bench.gpu_measure import device_name, versions
from bench.gpu_pack import SETS, data_folder, pack
from bench.gpu_page import NAMES, page, stored_cells, table

from smoothlink.errors import SmoothLinkError

CELLS = RESULTS / "gpu"
PAGE = ROOT / "docs" / "benchmarks-gpu.md"


def main(words: Sequence[str] | None = None) -> None:
    parser, given = arguments(words)
    tell = silent if given.quiet else progress
    try:
        if given.page_only:
            given.page.write_text(page(stored_cells(given.results)))
            tell(str(given.page))
        elif given.parts == ["pack"]:
            pack_all(data_folder(given.data), given.to, tell)
        else:
            run(given, tell)
    except SmoothLinkError as error:
        parser.exit(1, f"{error}\n")


def run(given: argparse.Namespace, tell: Callable[[str], None]) -> None:
    """The checks, then each part; the tables of all of them last."""
    from bench.gpu_parts import PARTS, RunOptions  # the engine

    about = circumstances(given)
    given.results.mkdir(parents=True, exist_ok=True)  # rather now than when all is done
    about["checks"] = checked(given.device, given.seed, tell)
    options = RunOptions(
        given.device, given.scale, given.seed, given.passes, data_folder(given.data), given.memory, tell
    )
    tables = []
    for name in given.parts:
        if name == "checks":
            continue
        tell(f"{name} ...")
        began = time.perf_counter()
        found = PARTS[name](options)
        cell = {
            "part": name,
            **about,
            "command": command(name, given),
            "seconds": round(time.perf_counter() - began, 1),
            "data": found.data,
            "settings": found.settings,
            "figures": [{**figure._asdict(), "value": float(f"{figure.value:.6g}")} for figure in found.figures],
        }
        store(cell, given.results / f"{name}.json")
        tables.append(table(cell))
    print("\n\n".join(tables), flush=True)


def circumstances(given: argparse.Namespace) -> dict[str, Any]:
    """Returns date, device and versions; called first, so that a wrong device is an error at once."""
    from smoothlink.machines.host_and_device import find_machine

    find_machine(given.device)
    return {
        "date": date.today().isoformat(),
        "device": device_name(given.device),
        "cores": os.cpu_count(),
        "versions": versions(given.device),
        "seed": given.seed,
        "scale": given.scale,
        "trial": trial(given),
    }


def checked(device: str, seed: int, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Runs all checks; where one fails, prints them all and ends the program."""
    from bench.gpu_checks import checks

    found = []
    for check in checks(device, seed):
        tell(str(check))
        found.append(check)
    failed = [str(check) for check in found if not check.passed]
    if failed:
        sys.exit("\n".join(["The device does not compute what it should, so nothing is measured:", *failed]))
    return [check._asdict() for check in found]


def command(part: str, given: argparse.Namespace) -> str:
    """What to type for the same figures."""
    others = {"scale": given.scale if given.scale != 1 else None, "passes": given.passes, "memory": given.memory}
    options = "".join(f" --{name} {value:g}" for name, value in others.items() if value is not None)
    return f"python benchmarks/gpu.py {part} --device {given.device} --seed {given.seed}{options}"


def trial(given: argparse.Namespace) -> bool:
    others = given.passes is not None or given.memory is not None
    return given.scale != 1 or others or not given.device.startswith("cuda")


def pack_all(folder: Path, to: Path, tell: Callable[[str], None]) -> None:
    sizes = []
    for name in SETS:
        sizes.append(pack(folder, name, to).stat().st_size)
        tell(f"{name}: {sizes[-1] / (1 << 20):.1f} MiB")
    print(f"{sum(sizes) / (1 << 20):.1f} MiB in all")


def progress(text: str) -> None:
    print(text, flush=True)


def silent(text: str) -> None:
    pass


def arguments(words: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    known = [*NAMES, "checks", "pack"]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(known)}")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, torch (torch on the processor) or cpu")
    parser.add_argument("--scale", type=float, default=1.0, help="a trial: of rows, features and labels")
    parser.add_argument("--passes", type=int, metavar="N", help="a trial: passes of each SGD")
    parser.add_argument("--memory", type=float, metavar="GIB", help="a trial: memory of the device for LSHTC's shape")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", metavar="FOLDER", help="where the data sets are")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="where `pack` puts its files")
    parser.add_argument("--results", type=Path, default=CELLS, metavar="FOLDER", help="where cells are stored")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    parser.add_argument("--page-only", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--quiet", action="store_true", help="only the tables, and what went wrong")
    given = parser.parse_args(words)
    unknown = [part for part in given.parts if part not in known]
    if unknown or not (given.parts or given.page_only):
        parser.error(f"{unknown[0] if unknown else 'nothing'} is no part: name some of {', '.join(known)}.")
    if "pack" in given.parts and (len(given.parts) > 1 or given.to is None):
        parser.error("pack goes alone, with --to FOLDER for its files.")
    measures = not given.page_only and set(given.parts) & set(NAMES)
    if measures and trial(given) and given.results == CELLS:
        parser.error("A trial makes no real figures: pass --results FOLDER too, so that they replace none.")
    return parser, given


if __name__ == "__main__":
    main()
