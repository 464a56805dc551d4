"""docs/scaling.md: the cost model in words, its predictions beside the stored cells, and a problem far beyond them."""

from __future__ import annotations

from bench.cluster_page import HERE, NOTHING, Cells, shape_of, solving
from bench.scaling import SOLVES, Machine, Shape, Stage, client_memory, rows_held, stages
from smoothlink.distributed.distributed_fit import PREPARED_BYTES
from smoothlink.distributed.rows_on_workers import COLUMNS_BYTES
from smoothlink.machines.host_and_device import HOST_COLUMNS
from smoothlink.steps.squared import PHI_ROWS

ESTIMATES = Machine(sparse=9e9, dense=80e9, double=40e9, network=1e9)  # of one thread, where nothing was measured
LARGE = Shape(n=1e9, d=2e6, c=1e7, per_row=50, labels_per_row=5, k=500, s=4000, iterations=30)
MACHINES, CORES, LINK = 64, 16, 25e9 / 8  # and bytes per second of its network

# By stage, as Python writes them; the page leaves the signs of products out. Tests hold the model to them.
OPERATIONS = {
    "embed": "8*e*(k + l)*(t + 1) + 8*y*(k + l) + 2*e*k",
    "featurize": "2*n*s*(k + s) + 2*y*s",
    "fit": "s**3/3 + 2*s**2*c",
}
MOVED = {
    "rows": {
        "read": "0",
        "embed": "(W - 1)*(16*(t + 1)*d + 16*c + (16*c + 4*d)/W)*(k + l) + 4*((W + 1)*d + c)*k",
        "featurize": "W*(4*k*s + 8*s**2 + 4*c*s)",
    },
    "columns": {
        "read": "0",
        "embed": "(W - 1)*(16*c + 4*d)/W*(k + l) + 4*((W + 1)*d + c)*k",
        "featurize": "W*(4*k*s + 8*s**2 + 4*c*s)",
    },
}

WRITTEN = "Written by `python benchmarks/cluster.py --page-only`."
MODEL = f"""# Scaling

What a fit on W workers takes, by the model in benchmarks/bench/scaling.py. n rows, d features, c labels; X has e
entries, intercept included, Y has y; rank k, l = 20 more columns, s random features, t iterations of conjugate
gradients; squared loss, one power step, so {SOLVES} solves. Arrays are float32 (4 bytes per number) unless stated
otherwise.

TABLE

The vectors of conjugate gradients stay on the workers, in groups of columns with an owner each
([decision 40](decisions/0040-columns-on-workers.md)). With the plan rows every worker fetches the columns of P that
others own in each iteration, and gives back its part of their sums, on all links at once: two (d, k + l) arrays go into
each worker and two out of it, however many there are. Q and T change from columns on each worker to labels on each, and
back; nothing of length d or c passes through the client but U and W at the end.

Elsewhere an array for all workers goes down a tree of them and a sum comes up one, 1 + log2 W transfers one after the
other each way; a sum of W arrays moves W of them in all. With `--shards` no sum of targets, 4 c s, goes to the client:
each worker sums, fits and writes c / W labels, rows are featurized again for each part that has a label of theirs, and
4 c s (W - 1) bytes go between workers, all links at once.

Memory of a worker; g columns advance together, {HOST_COLUMNS} or as many as {COLUMNS_BYTES >> 20} MiB hold, but no
more than give every worker a group. A worker owns one group at a time here, and another four (d, g) arrays with two:

| while it | holds |
|---|---|
| reads | 8 e / W (columns: 8 e), and of a block of rows four times its size |
| embeds, rows | {PREPARED_BYTES} e / W for X, (d, (k + l) / W), seven (d, g) and three (d, g) or (c, g) arrays |
| embeds, columns | {PREPARED_BYTES} e for X, (d, (k + l) / W), four (d, 64), a (rows of a block, (k + l) / W) array |
| makes h | X, W (d, k), and h (n / W, k) |
| featurizes | 8 e / W for X, W, h, three times 8 s^2 + 4 c s (shards: 4 c s / W), two ({PHI_ROWS}, s) arrays |

The client holds U (c, k) and W (d, k), and without shards 12 c s bytes for targets and V.
"""
REMEDIES = {
    ("embed", "sending"): """the (d, k + l) arrays of conjugate gradients, two into each worker and two out of it in
   each iteration, some of which travel while others are multiplied (the model adds both). A smaller rank, and a larger
   ridge, cut it in proportion.""",
    ("embed", "computing"): """the sparse products of conjugate gradients, which more machines share, or a device for
   each worker would take over.""",
    ("featurize", "computing"): """random features and their Gram matrix, 2 n s (k + s): fewer features, more machines,
   or a device for each worker.""",
    ("featurize", "sending"): "the targets (s, c) of all labels: shards of labels, which workers sum for themselves.",
    ("fit", "computing"): "the decoder, solved for in the client: shards of labels, which workers solve for.",
}


def formulas() -> list[str]:
    """The table of the model."""
    lines = ["| stage | operations, of all workers | bytes moved, plan rows | plan columns |", "|---|---|---|---|"]
    for stage in ("read", "embed", "featurize", "fit"):
        found = (OPERATIONS.get(stage, ""), *(MOVED[plan].get(stage, "") for plan in MOVED))
        lines.append(f"| {stage} | " + " | ".join(text.replace("**", "^").replace("*", " ") for text in found) + " |")
    return lines


def page(cells: Cells) -> str:
    """The page, by the model and the cells alone."""
    lines = [MODEL.replace("TABLE", "\n".join(formulas())), *checked(cells), "", *predicted(rates(cells)), "", WRITTEN]
    return "\n".join(lines) + "\n"


def rates(cells: Cells) -> Machine:
    """Rates of one thread: of computing by the fit on one worker that shares out columns and so sends next to nothing,
    of sending by what two that share out rows take longer than half of its time."""
    plain, sending = cells.get(("columns", 1)), cells.get(("rows", 2))
    if plain is None or sending is None or HERE not in cells:
        return ESTIMATES
    z = shape_of(plain)
    unit = Machine(1.0, 1.0, 1.0, 1.0)
    _, embed, featurize, fit = stages(z, unit, 1, "columns")
    sparse = embed.work / plain["stages"]["embed"]
    sums = 2 * z.n * z.labels_per_row * z.s
    dense = (featurize.work - sums) / max(1e-9, plain["stages"]["featurize"] - sums / sparse)
    longer = sending["stages"]["embed"] - plain["stages"]["embed"] / min(2, cells[HERE]["cores"])
    moved = stages(z, unit, 2, "rows")[1].moved
    return Machine(sparse, dense, fit.work / plain["stages"]["fit"], moved / max(1e-9, longer))


def checked(cells: Cells) -> list[str]:
    """Predictions beside what was measured."""
    lines = ["## Checked against local workers", ""]
    if HERE not in cells or ("columns", 1) not in cells or ("rows", 2) not in cells:
        return [*lines, NOTHING]
    rate, cores = rates(cells), cells[HERE]["cores"]
    machine = rate._replace(shared=True, cores=cores)
    lines += [
        "Rates of one thread, from fits of [benchmarks-cluster.md](benchmarks-cluster.md), columns on one worker and",
        "rows on two:",
        f"{rate.sparse / 1e9:.1f}e9 operations per second of sparse products, {rate.dense / 1e9:.0f}e9 of dense ones; "
        f"{rate.network / 1e9:.2f} GB per second through Dask",
        f"and the loopback device. The rest follows: workers share {cores} cores and one link. Measured figures are",
        "in brackets; memory is that of the solves. The model does not know that columns that are done leave a solve.",
        "",
        "| fit | embed, s | featurize, s | moved by embed, GB | memory a worker, MB |",
        "|---|---|---|---|---|",
    ]
    for (plan, workers), cell in cells.items():
        if plan == "here":
            continue
        _, embed, featurize, _ = stages(shape_of(cell), machine, workers, plan)
        pairs = [
            (embed.seconds, cell["stages"]["embed"], 1.0, 1),
            (featurize.seconds, cell["stages"]["featurize"], 1.0, 1),
            (embed.moved, cell["wire"].get("embed", 0), 1e9, 2),
            (embed.memory, solving(cell), 1e6, 0),
        ]
        shown = (f"{ours / unit:.{digits}f} ({theirs / unit:.{digits}f})" for ours, theirs, unit, digits in pairs)
        lines.append(f"| {plan}, {workers} worker{'s' if workers > 1 else ''} | " + " | ".join(shown) + " |")
    return lines


def predicted(rate: Machine) -> list[str]:
    """The large problem, and what holds it up."""
    z = LARGE
    machine = Machine(CORES * rate.sparse, CORES * rate.dense, CORES * rate.double, LINK)
    plain, shards = (stages(z, machine, MACHINES, "rows", shards=on) for on in (False, True))
    total = sum(stage.seconds for stage in shards)
    lines = [
        f"## {z.n:.0e} rows, {z.c:.0e} labels, {MACHINES} machines".replace("e+0", "e"),
        "",
        f"{z.n:,.0f} rows of {z.per_row:g} features, 100 million hashed to {z.d:,.0f}, and {z.labels_per_row:g} of "
        f"{z.c:,.0f} labels;",
        f"rank {z.k}, {z.s:,} random features, {z.iterations} iterations; {MACHINES} machines of {CORES} cores, each a "
        f"worker at {CORES} times the",
        f"rate of one thread, on {LINK * 8 / 1e9:.0f} Gb/s links that are used fully. A prediction, never measured.",
        "",
        f"Rows are partitioned: X takes {rows_held(z, MACHINES) / 1e9:.0f} GB of a worker, and would take "
        f"{rows_held(z, 1) / 1e12:.1f} TB of each by columns. A (d, k + l) array",
        f"takes {z.wide / 1e9:.1f} GB, a (c, k + l) array {z.labelled / 1e9:.0f} GB, V {4 * z.c * z.s / 1e9:.0f} GB.",
        "",
        "| stage, with shards | computing, s | sending, s | moved, TB | memory a worker, GB |",
        "|---|---|---|---|---|",
        *(stage_line(stage) for stage in shards),
        "",
        f"In all {total / 60:.0f} minutes. The client needs {client_memory(z, True) / 1e9:.0f} GB. Without shards a "
        f"worker would need {plain[2].memory / 1e9:.0f} GB for targets (s, c)",
        f"of all labels, three of them in an addition, and the client {client_memory(z, False) / 1e9:.0f} GB and "
        f"{plain[3].seconds / 60:.0f} minutes for V: `--shards` is needed.",
        "",
    ]
    return [*lines, *bottlenecks(shards)]


def stage_line(stage: Stage) -> str:
    return (
        f"| {stage.name} | {stage.computing:,.0f} | {stage.sending:,.0f} | {stage.moved / 1e12:.2f} | "
        f"{stage.memory / 1e9:.1f} |"
    )


def bottlenecks(found: list[Stage]) -> list[str]:
    """The parts that take longest, and what would remove them."""
    parts = [(getattr(stage, part), stage.name, part) for stage in found for part in ("computing", "sending")]
    parts.sort(reverse=True)
    lines = []
    for i, (seconds, name, part) in enumerate(parts[:3]):
        lines += [f"{i + 1}. {name}, {part}, {seconds:,.0f} s: {REMEDIES[name, part]}"]
    return [
        "What takes longest, and what would remove it:",
        "",
        *lines,
        "",
        "Beyond time, the client is what does not grow: it has U (c, k) for the model file. U in shards, as V is,",
        "would leave nothing of length c in one place.",
    ]
