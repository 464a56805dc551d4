"""How many bytes each stage of a fit holds at its worst moment, counted array by array."""

from __future__ import annotations

from typing import NamedTuple

from smoothlink.fitting.choose import EVALUATED_PAIRS, JUDGED_LABELS, PAIRS_AT_A_TIME, REMEMBERED, SEARCH_FEATURES
from smoothlink.fitting.plan import Plan
from smoothlink.machines.decoder import LABELS
from smoothlink.machines.machine import HOST
from smoothlink.steps.descend import default_batch
from smoothlink.steps.embed import ROTATED_ROWS
from smoothlink.steps.fit import PHI_ROWS, SOLVED_LABELS

PAIRS = 1 << 21  # scores of held-out rows looked at together
GRADIENT_ARRAYS = 4  # (d, g) arrays of the g columns that conjugate gradients advance together
PANEL = 256  # bytes of a row of a panel that the products copy
SMALL = 16 << 20  # bytes of things of no account


class Sizes(NamedTuple):
    """What the needs of a fit depend on."""

    n: int
    d: int  # the constant included
    c: int
    entries: int  # of X, constants included
    labels: int  # ones in Y
    rank: int  # k, the largest that may be asked for
    probes: int  # m, columns of the embedding's solves
    features: int  # s, the constant included
    dense: bool = False  # whether blocks of X are dense
    spare: int = 0  # columns (d, .) held beside those of the solves
    ranks: int = 1  # candidates
    folds: int = 1
    search_folds: int = 0  # 0: nothing is searched for
    solver: str = "cg"  # "cholesky" or "dual": what the solves do unless the plan says otherwise
    auto: bool = True  # whether the plan may say otherwise
    group: int = 64  # columns that conjugate gradients advance together
    loss: str = "squared"
    multiclass: bool = False
    weighted: bool = False  # whether labels have weights
    held: int = 0  # held-out rows of a fold that calibrate; 0: nothing does
    keeps: bool = False  # whether states are put by
    resident: int = 0  # bytes in use before the fit


def needs(z: Sizes, plan: Plan) -> dict[str, int]:
    """Bytes by stage, what was there before the fit included."""
    always, fitted = z.resident + SMALL + data_bytes(z, plan), 4 * z.probes * (z.d + z.c)
    embed = block_bytes(z, plan.block_rows) + solve_bytes(z, plan, plan.block_rows)
    copied = 4 * z.d * z.rank if z.ranks > 1 else 0  # W of fewer directions
    sums, solve, held = link_bytes(z, plan)
    mapped = block_bytes(z, plan.block_rows) + fitted + copied + embedded_bytes(z, plan)
    found = {
        "embed": always + max(embed, mapped),
        "fit": always + fitted + copied + embedded_bytes(z, plan) + held + max(sums, solve),
    }
    if z.held:
        one = embedded_bytes(z, plan) + held + 4 * z.rank * z.held
        found["calibrate"] = always + z.folds * one + max(sums, solve, judged_bytes(z, plan))
        found["embed"] += (z.folds - 1) * int(one)  # the other folds of the calibration
    if z.search_folds:
        found["choose"] = always + search_bytes(z, plan)
    return {stage: int(need) for stage, need in found.items()}


def data_bytes(z: Sizes, plan: Plan) -> float:
    """Y in blocks, prepared for products, weights and hashes of rows, and diagonals."""
    blocks = -(-z.n // plan.block_rows)
    found = min(z.labels, blocks * z.c)  # labels of each block, counted together
    return (20 * z.labels + 24 * found) * (2 if z.weighted else 1) + 84 * z.n + 48 * z.d


def block_bytes(z: Sizes, rows: int) -> float:
    """A block of rows being read, scaled and transposed."""
    rows = min(rows, z.n)
    return 16 * rows * z.d if z.dense else 30 * rows * z.entries / max(1, z.n) + 16 * z.d


def input_bytes(z: Sizes, plan: Plan) -> int:
    """All of X in blocks, prepared for products; its columns are counted once for each block they are in."""
    if z.dense:
        return 4 * z.n * z.d
    blocks = -(-z.n // plan.block_rows)
    return 20 * z.entries + 28 * z.n + 24 * min(z.entries // 3, blocks * z.d)


def solve_bytes(z: Sizes, plan: Plan, rows: int) -> float:
    """The ridge solves of the embedding over blocks of so many rows, from probes to W."""
    d, c, m, rows = z.d, z.c, z.probes, min(rows, z.n)
    factored = z.solver if plan.factors or not z.auto else "cg"
    together = min(plan.columns or z.group, m)
    small = 40 * m * m + 16 * ROTATED_ROWS * m
    products = 4 * rows * m + PANEL * min(d, rows * z.entries / max(1, z.n) / 3)
    solve: float = 4 * together * (GRADIENT_ARRAYS * d + rows)
    if factored == "cholesky":
        solve = 16 * d * m + 16 * d * d
    elif factored == "dual":
        solve = 32 * d * m + 16 * z.n * (m + z.n)
    turn = 4 * d * z.rank if z.ranks > 1 else 0
    return max(4 * d * (m + z.spare) + 8 * c * m + max(products, solve, small, turn), 16 * c * m + small)


def embedded_bytes(z: Sizes, plan: Plan) -> int:
    """h of all rows, or of a block at a time where it is in a file."""
    rows = min(plan.block_rows, z.n)
    return 8 * z.rank * rows if plan.embedding_in_file else 4 * z.rank * (z.n + rows)


def link_bytes(z: Sizes, plan: Plan) -> tuple[float, float, float]:
    """While Phi'Phi and Phi'Y are summed, while V is solved for, and what stays: these sums and V."""
    s, labels = z.features, min(SOLVED_LABELS, z.c)
    rows = min(PHI_ROWS, plan.block_rows, z.n)
    held: float = 8 * s * s + (8 * s * z.c if plan.label_group is None else 0)
    sums = 4 * s * s + 8 * s * rows + 4 * s * (plan.label_group or 0) + 48 * s * z.rank
    solve = 8 * s * s + 32 * s * labels
    if plan.descent and z.loss != "squared":
        batch = default_batch(z.n, z.c, s, softmax=z.multiclass)
        scores = max(HOST.scores(), 4 * batch * min(z.c, LABELS))
        solve = max(solve, 24 * s * s + 20 * s * z.c + 2 * min(scores, 4 * batch * z.c) + 8 * batch * s)
        held += 4 * s * s + 16 * s * z.c  # M, and V, its velocity, the best V so far and what it aims at
    return sums, solve, held


def judged_bytes(z: Sizes, plan: Plan) -> float:
    """Features and scores of held-out rows."""
    rows = min(plan.judged_rows or z.held, z.held)
    pairs = 32 * max(PAIRS_AT_A_TIME, plan.pairs or PAIRS)
    if z.multiclass:
        rows = min(rows, max(100, EVALUATED_PAIRS // z.c))
        pairs = 32 * z.folds * rows * z.c
    return 4 * z.features * rows * (z.folds + 1) + pairs


def search_bytes(z: Sizes, plan: Plan) -> float:
    """Fits to some of the rows, in memory, with few features; embeddings are remembered by ridge."""
    rows, s, labels = min(plan.search_rows, z.n), min(z.features, SEARCH_FEATURES + 1), min(z.c, JUDGED_LABELS)
    entries, reading = rows * z.entries / max(1, z.n), block_bytes(z, plan.block_rows)
    z = z._replace(d=z.d if z.dense or rows == z.n else min(z.d, int(entries)))  # features that none has are left out
    block = 8 * rows * z.d if z.dense else 48 * entries + 16 * z.d
    remembered = z.search_folds * (4 * z.rank * rows * (REMEMBERED + 1) + 8 * s * s + 4 * s * labels)
    if z.solver == "cholesky" and (plan.factors or not z.auto):
        remembered += 8 * z.d * z.d * z.search_folds
    elif z.solver == "dual" and (plan.factors or not z.auto):
        remembered += 8 * rows * rows * z.search_folds
    link = 12 * s * s + 8 * s * max(PHI_ROWS, rows // 10) + 32 * s * labels + 32 * PAIRS_AT_A_TIME
    return block + remembered + 8 * z.rank * rows + max(solve_bytes(z, plan, rows), link, reading)


def file_bytes(z: Sizes, plan: Plan) -> int:
    """What the files of a fit take: h, the sums Phi'Y and V, and the states put by."""
    wide = 4 * z.features * z.c
    files = 4 * z.n * z.rank if plan.embedding_in_file else 0
    files += 2 * wide if plan.label_group else wide if z.keeps else 0
    return files + (2 * wide + 16 * z.features**2 + 8 * z.probes * (z.d + z.c) if z.keeps else 0)
