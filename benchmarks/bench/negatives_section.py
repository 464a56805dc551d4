"""The section on sampled negatives: what it costs to train each batch on some labels instead of all."""

from __future__ import annotations

from typing import Any


def negatives_section(record: dict[str, Any]) -> list[str]:
    """Returns a table from the record of benchmarks/sampled_negatives.py."""
    lines = [
        "## Sampled negatives against all labels",
        "",
        "Joint training of embedding, decoder and sparse weights (docs/decisions/0012) on sets small enough to give",
        "every batch every label. The same fit, rows, passes and seed; only the number of negatives sampled for each",
        'batch differs. (The defaults do better on these sets, see above: "auto" trains jointly from 2000 labels on.)',
        "",
        "| set | negatives | P@1 | minus all | P@5 | log-loss | against all | train s |",
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
