"""The sections on speed: costs of the first release beside those of now, one row, and each stage beside its floor."""

from __future__ import annotations

from typing import Any

from peers.known import OURS

# Of 0.1.0 on 2026-11-15, two cores of the same kind: train s, one row ms, peak MB, model MB, P@1, P@5.
FIRST_RELEASE = {
    "bibtex": (10.6, 0.21, 651, 5.0, 66.24, 30.48),
    "delicious": (24.0, 0.47, 725, 13.0, 68.63, 58.04),
    "rcv1-topics-28k": (14.1, 0.20, 692, 21.6, 95.99, 51.10),
    "debtags": (38.2, 0.63, 1100, 70.9, 83.18, 46.62),
    "cooking-stackexchange": (23.9, 0.60, 788, 32.2, 73.77, 31.23),
    "citeulike-t": (65.5, 19.0, 973, 174.5, 64.20, 38.76),
    "yso-finna-en": (165.0, 3.68, 1639, 285.5, 37.66, 17.40),
}
STAGES = ("scale", "choose", "calibrate", "embed", "featurize", "fit")


def speed_section(sets: dict[str, dict[str, Any]]) -> list[str]:
    """Returns the costs of the first release and of now, side by side, from the cells of the sets."""
    lines = [
        "## The first release and now",
        "",
        "Version 0.1.0 (2026-11-15) before the arrow, the cells of this page behind it; two cores each.",
        "",
        "| set | train s | one row ms | peak MB | model MB | P@1 | P@5 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, before in FIRST_RELEASE.items():
        cell = sets.get(name, {}).get(OURS)
        if cell is None or "metrics" not in cell:
            continue
        costs = [cell["costs"][key] for key in ("train_seconds", "row_milliseconds", "peak_mb", "model_mb")]
        values = [*costs, *(100 * cell["metrics"][key]["value"] for key in ("p@1", "p@5"))]
        digits = (1, 2, 0, 1, 2, 2)
        shown = [f"{a:.{p}f} → {b:.{p}f}" for a, b, p in zip(before, values, digits, strict=True)]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return [*lines, ""]


def one_row_section(record: dict[str, Any]) -> list[str]:
    """Returns a table from the record of benchmarks/one_row.py."""
    lines = [
        "## One row",
        "",
        "Milliseconds of processor time for the five best labels of a row that comes alone: one thread, both libraries",
        "in turn on the same rows. smoothlink finds candidates by int8 codes of the weights and scores these exactly:",
        "the answers are those of the scan of all labels. *Codes* are made once, at the first row.",
        "",
        "| set | labels | smoothlink | scan of all labels | omikuji | times omikuji | codes, s | codes, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in record["sets"].items():
        took = [f"{found['one_row'][method]['processor_ms']:.2f}" for method in (OURS, "scan", "omikuji")]
        shown = [name, f"{found['labels']:,}", *took, f"{found['ratio_to_omikuji']:.2f}"]
        lines.append(f"| {' | '.join([*shown, str(found['codes_seconds']), str(found['codes_mb'])])} |")
    return [*lines, "", f"Measured {record['date']}: `python benchmarks/one_row.py --models FOLDER`.", ""]


def floors_section(record: dict[str, Any]) -> list[str]:
    """Returns a table from the record of benchmarks/floors.py."""
    lines = [
        "## How far each stage is from its floor",
        "",
        "Seconds of the default fit by stage. In brackets, how many times its floor a stage takes: its least",
        f"operations over the rate of float32 matrix products ({record['flops'] / 1e9:.0f} GFLOP/s in the same run),",
        "and for joint training also the weights it moves over the memory's bandwidth "
        f"({record['bandwidth'] / 1e9:.1f} GB/s).",
        "Floors: embed 8 e (k + 20) for two solves of one iteration, e entries of X and rank k (more iterations and",
        "sparse rows keep it far from that); featurize 2 n s k + n s² + 2 y s; fit s³/3 + 2 s² c; joint training",
        "2 m b k for a batch of b rows and m labels, and three times the rows of W and V that it touches. Choosing and",
        "calibrating have none: the last column is their share of all seconds.",
        "",
        f"| set | {' | '.join(STAGES)} | all | choose and calibrate |",
        "|---|" + "---|" * (len(STAGES) + 2),
    ]
    for name, found in record["sets"].items():
        seconds, floors = found["seconds"], found["floors"]
        cells = []
        for stage in STAGES:
            shown = f"{seconds[stage]:.2f}" if stage in seconds else ""
            if stage in seconds and floors.get(stage):
                shown += f" ({seconds[stage] / floors[stage]:.1f})"
            cells.append(shown)
        whole = sum(seconds.values())
        share = sum(seconds.get(stage, 0.0) for stage in ("choose", "calibrate")) / max(whole, 1e-9)
        lines.append(f"| {name} | {' | '.join(cells)} | {whole:.2f} | {100 * share:.0f} % |")
    return [*lines, "", f"Measured {record['date']}, {record['machine']}: `{record['command']}`.", ""]
