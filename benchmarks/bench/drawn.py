"""The section on drawn labels: what seeing some labels instead of all costs."""

from __future__ import annotations

from typing import Any


def drawn_lines(record: dict[str, Any]) -> list[str]:
    """A table from the record of benchmarks/drawn.py."""
    lines = [
        "## Drawn labels against all",
        "",
        "The joint descent of W, V and D (`negatives`, docs/decisions/0012) on sets small enough to show every batch",
        "every label. The same fit, rows, passes and seed; only how many labels are drawn for each batch differs. (The",
        'defaults do better on these sets, see above: "auto" draws labels from 2000 labels on.)',
        "",
        "| set | labels drawn | P@1 | beside all | P@5 | log-loss | beside all | train s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in record["sets"].items():
        exact = rows[-1]
        for row in rows:
            last = row is exact
            points = "" if last else f"{100 * (row['p@1'] - exact['p@1']):+.2f}"
            share = "" if last else f"{100 * (row['logloss'] / exact['logloss'] - 1):+.1f} %"
            shown = [
                name,
                f"all {row['negatives']}" if last else str(row["negatives"]),
                f"{100 * row['p@1']:.2f}",
                points,
            ]
            shown += [f"{100 * row['p@5']:.2f}", f"{row['logloss']:.3f}", share, f"{row['seconds']:.1f}"]
            lines.append(f"| {' | '.join(shown)} |")
    lines += ["", f"Measured {record['date']}, seed {record['seed']}: `{record['command']}`.", ""]
    return lines
