"""How a fit stays within a memory budget: the plan, what each step needs, and the most comfortable plan that fits."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from smoothlink.fitting.calibration import CALIBRATION_ROWS, KEPT_SCORES, PAIRS_AT_A_TIME, SCORED_AT_A_TIME, rows_scored
from smoothlink.machines.decoder_state import LABEL_MULTIPLE
from smoothlink.machines.host_and_device import BLOCK_ROWS, HOST, HOST_COLUMNS
from smoothlink.parameters import UNITS
from smoothlink.solve.dual import DENSE_BYTES
from smoothlink.steps.embed import ROTATED_ROWS
from smoothlink.steps.sgd import default_batch
from smoothlink.steps.squared import PHI_ROWS, SOLVED_LABELS

# Sizes of a search and of a calibration, here because the plan counts with them.
SEARCH_FEATURES, FEW_ROWS_FEATURES = 500, 1000
REMEMBERED = 6  # embeddings of a fold, by ridge: a climb comes back to its neighbours only
VALIDATED_LABELS = 300  # by which settings are compared where there are more
SEARCH_ROWS = 5000
USES_X = ("choose", "embed")  # the steps that read X
LARGEST_RANK = 512  # that a fit within a budget considers where the rank is not a number


@dataclass(frozen=True)
class Plan:
    """Sizes of parts; those of a fit without a budget are the defaults."""

    memory: int | None = None  # bytes that were promised
    block_rows: int = BLOCK_ROWS
    columns: int | None = None  # that conjugate gradients advance together; None: as the solver says
    kept: int | None = None  # bytes of X that may stay in memory once read; None: all of X is there
    embedding_in_file: bool = False  # whether h (n, k) is in a file
    label_group: int | None = None  # labels whose Phi'Y is summed at a time, and then in a file; None: all, in memory
    search_rows: int = SEARCH_ROWS
    held_rows: int | None = None  # held-out rows that calibrate; None: all
    factors: bool = True  # whether solver "auto" may factor X'X or XX'
    sgd: bool = True  # whether loss "auto" may try the logistic or softmax loss
    needs: dict[str, int] | None = None  # bytes by step, as expected, without X
    inputs: int = 0  # bytes of X in memory, as expected, as far as it stays there
    whole: bool = True  # whether all of it stays
    disk: int = 0  # bytes of files, as expected
    table: bool = False  # whether X is an array in memory, for kernels of x and trees
    joint: bool = False  # whether weights are trained jointly
    joint_needs: int = 0  # bytes that this would need, where they are too many

    def for_summary(self) -> dict[str, Any] | None:
        """Returns numbers that a model file can hold; None where nothing was planned."""
        return None if self.memory is None else asdict(self) | {"expected": self.expected}

    @property
    def kept_scores(self) -> int:
        """How many scores of held-out rows stay in memory while they calibrate: within a budget none."""
        return KEPT_SCORES if self.memory is None else 0

    @property
    def peak(self) -> tuple[str, int]:
        """The step that needs most, and its bytes, X included where it is read."""
        found = {step: need + (step in USES_X) * self.inputs for step, need in (self.needs or {"fit": 0}).items()}
        step = max(found, key=lambda name: found[name])
        return step, found[step]

    @property
    def expected(self) -> int:
        """Bytes at the worst moment."""
        return self.peak[1]

    def __str__(self) -> str:
        """For people."""
        step, expected = self.peak
        parts = [f"{'X' if self.whole else size(self.inputs) + ' of X'} stays in memory"]
        if self.joint:
            parts = ["weights are trained jointly, and read X from a file"]
        parts.append(f"blocks have {self.block_rows:,} rows")
        if self.columns:
            parts.append(f"solves go {self.columns} columns at a time")
        if self.label_group:
            parts.append(f"V goes {self.label_group:,} labels at a time")
        if self.disk:
            parts.append(f"files take {size(self.disk)}")
        total = size(self.memory or 0)
        said = f"Memory: {size(expected)} of {total} expected, most to {step}; {', '.join(parts)}."
        if self.joint_needs:
            said += f" Joint training needs {size(self.joint_needs)}, so training is stepwise."
        return said


def size(count: float) -> str:
    """Returns bytes as text that `memory` can be given as."""
    return f"{count / UNITS['G']:.2f}G" if count >= UNITS["G"] else f"{count / UNITS['M']:.0f}M"


# What each step holds at its worst moment, counted array by array


GRADIENT_ARRAYS = 4  # (d, g) arrays of the g columns that conjugate gradients advance together
PANEL_BYTES = 256  # bytes of a row of a panel that the products copy
SMALL = 16 << 20  # bytes of everything that is not counted
JOINT_MARGIN = 1.05  # times what is counted of joint training


class JointSizes(NamedTuple):
    """What joint training needs depends on, besides the sizes of the data."""

    rank: int
    cluster_rank: int  # directions by which rows are clustered
    fit_rows: int  # that these are fitted to at most, in memory
    weights: int  # sparse ones, at most
    step: int  # bytes of a batch, or of a search for hard negatives


class Sizes(NamedTuple):
    """What the needs of a fit depend on."""

    n: int
    d: int  # the intercept included
    c: int
    entries: int  # of X, constants included
    labels: int  # ones in Y
    rank: int  # k, the largest that may be chosen
    probes: int  # m, columns of the embedding's solves
    features: int  # s, the intercept included
    dense: bool = False  # whether blocks of X are dense
    spare: int = 0  # columns (d, .) held in addition to those of the solves
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
    saves: bool = False  # whether states are saved
    resident: int = 0  # bytes in use before the fit
    joint: JointSizes | None = None  # where weights are trained jointly


def needs(z: Sizes, plan: Plan) -> dict[str, int]:
    """Returns bytes by step, what the process held before the fit included."""
    if z.joint is not None:
        return joint_needs(z, z.joint, plan)
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
        found["calibrate"] = always + z.folds * one + max(sums, solve, calibration_bytes(z, plan))
        found["embed"] += (z.folds - 1) * int(one)  # the other folds of the calibration
    if z.search_folds:
        found["choose"] = always + search_bytes(z, plan)
    return {step: int(need) for step, need in found.items()}


def joint_needs(z: Sizes, j: JointSizes, plan: Plan) -> dict[str, int]:
    """Returns bytes by step of joint training, whose rows are in a file."""
    n, d, c, p = z.n, z.d, z.c, j.weights
    z = z._replace(rank=j.cluster_rank, probes=j.cluster_rank + z.probes - z.rank, features=j.rank + 1, ranks=1)
    always = z.resident + SMALL + data_bytes(z, plan) + 90 * n + 60 * z.labels  # order, places and groups of rows
    block, W, V = block_bytes(z, plan.block_rows), 4 * d * j.rank, 4 * c * j.rank
    directions, coordinates = 4 * d * z.probes, 4 * n * j.cluster_rank
    some = 30 * z.entries * j.fit_rows // n if n > j.fit_rows else 0
    moments = {
        "embed": max(block + some + solve_bytes(z._replace(solver="cg"), plan, min(n, j.fit_rows)), block + directions)
        + coordinates,
        "fit": max(
            directions + 4 * z.entries + block + 5 * p,  # the pattern of the sparse weights
            directions + coordinates + W + V + 18 * p,  # the first state
            W + V + 20 * p + j.step,  # passes
            2 * W + 3 * V + 29 * p,  # the model of the last state
        ),
    }
    if z.held:
        scored = 12 * (j.rank + 1) * z.held + calibration_bytes(z._replace(folds=1), plan)
        moments["calibrate"] = W + V + 8 * p + block + scored + 4 * SMALL
    return {step: int(always + JOINT_MARGIN * need) for step, need in moments.items()}


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
    products = 4 * rows * m + PANEL_BYTES * min(d, rows * z.entries / max(1, z.n) / 3)
    solve: float = 4 * together * (GRADIENT_ARRAYS * d + rows)
    if factored == "cholesky":
        solve = 16 * d * m + 8 * d * d
    elif factored == "dual":
        solve = max((40 * d + 16 * z.n) * min(HOST_COLUMNS, m), DENSE_BYTES) + 8 * z.n * z.n
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
    solve = 32 * s * labels
    if plan.sgd and z.loss != "squared":
        batch = default_batch(z.n, z.c, s, softmax=z.multiclass)
        scores = max(HOST.scores(), 4 * batch * min(z.c, LABEL_MULTIPLE))
        solve = max(solve, 24 * s * s + 20 * s * z.c + 2 * min(scores, 4 * batch * z.c) + 8 * batch * s)
        held += 4 * s * s + 16 * s * z.c  # M, and V, its velocity, the best V so far and what it aims at
    return sums, solve, held


def calibration_bytes(z: Sizes, plan: Plan) -> float:
    """Features and scores of held-out rows."""
    rows = min(plan.held_rows or z.held, z.held)
    pairs = 72 * SCORED_AT_A_TIME  # with which benchmarks/memory.py kept every budget
    if z.multiclass:
        rows = min(rows, rows_scored(z.c))
        pairs = 32 * z.folds * rows * z.c
    return 4 * z.features * rows * (z.folds + 1) + pairs


def search_bytes(z: Sizes, plan: Plan) -> float:
    """Fits to some of the rows, in memory, with few features; embeddings are remembered by ridge."""
    rows, s, labels = min(plan.search_rows, z.n), min(z.features, FEW_ROWS_FEATURES + 1), min(z.c, VALIDATED_LABELS)
    entries, reading = rows * z.entries / max(1, z.n), block_bytes(z, plan.block_rows)
    z = z._replace(d=z.d if z.dense or rows == z.n else min(z.d, int(entries)))  # features that none has are left out
    block = 8 * rows * z.d if z.dense else 48 * entries + 16 * z.d
    remembered = z.search_folds * (4 * z.rank * rows * (REMEMBERED + 1) + 8 * s * s + 4 * s * labels)
    if z.solver == "cholesky" and (plan.factors or not z.auto):
        remembered += 8 * z.d * z.d * z.search_folds
    elif z.solver == "dual" and (plan.factors or not z.auto):
        remembered += (8 * rows * rows + 24 * z.d) * z.search_folds
    link = 4 * s * s + 8 * s * max(PHI_ROWS, rows // 10) + 32 * s * labels + 32 * PAIRS_AT_A_TIME + 8 * SCORED_AT_A_TIME
    return block + remembered + 8 * z.rank * rows + max(solve_bytes(z, plan, rows), link, reading)


def file_bytes(z: Sizes, plan: Plan) -> int:
    """Returns the bytes of a fit's files: h, the sums Phi'Y and V, and saved states."""
    if z.joint is not None:
        k, p = z.joint.rank, z.joint.weights
        states = 2 * (4 * k * (z.d + z.c) + 8 * p) if z.saves else 0
        return 8 * z.entries + 4 * z.n * z.joint.cluster_rank + states
    wide = 4 * z.features * z.c
    files = 4 * z.n * z.rank if plan.embedding_in_file else 0
    files += 2 * wide if plan.label_group else wide if z.saves else 0
    return files + (2 * wide + 16 * z.features**2 + 8 * z.probes * (z.d + z.c) if z.saves else 0)


# The plan that fits


SLACK = 0.06  # of the budget, for what allocators hold back
LEAST_HELD_ROWS = 2_000
LEAST_SEARCH_ROWS, LEAST_BLOCK_ROWS, LEAST_COLUMNS = 5_000, 1024, 8


def make_plan(memory: int, sizes: Sizes, block_rows: int | None = None) -> Plan:
    """The most comfortable plan that keeps within the budget; an error says what is needed at least."""
    blocks = min(block_rows or BLOCK_ROWS, max(LEAST_BLOCK_ROWS, sizes.n))
    rows = min(SEARCH_ROWS, sizes.n)
    joint = sizes.joint
    plan = Plan(memory, blocks, None, 0, search_rows=rows, held_rows=CALIBRATION_ROWS, joint=bool(joint))
    room = int(memory * (1 - SLACK))
    while max(needs(sizes, plan).values()) > room:
        others = list(frugal_plans(sizes, plan, block_rows))
        better = (other for least in (0.03, 0.0) for other in others if helps(sizes, plan, other, least))
        found = next(better, None)
        if found is None:
            raise BudgetError(memory, needs(sizes, plan), joint=plan.joint)
        plan = found
    needed, inputs, disk = needs(sizes, plan), input_bytes(sizes, plan), file_bytes(sizes, plan)
    kept = room - max(need for stage, need in needed.items() if stage in USES_X)
    if joint is not None and sizes.n > joint.fit_rows:
        kept = 0  # few passes read all rows
    return replace(plan, kept=kept, needs=needed, inputs=min(kept, inputs), whole=inputs <= kept, disk=disk)


class BudgetError(ValueError):
    """No plan fits the memory; `least` bytes would do."""

    def __init__(self, memory: int, needed: dict[str, int], *, joint: bool = False) -> None:
        step = max(needed, key=lambda name: needed[name])
        self.least = int(needed[step] / (1 - SLACK))
        enough = size(1.02 * self.least)
        fewer = "training=Joint(sparse_weights=False)" if joint else "fewer random features"
        super().__init__(
            f"memory is {size(memory)}, and {'joint training' if joint else 'this fit'} needs at least "
            f"{size(self.least)} (to {step}).\n"
            f"Allow memory={enough!r} (--memory {enough}), or a smaller rank, or {fewer}."
        )


def helps(sizes: Sizes, plan: Plan, other: Plan, least: float) -> bool:
    """Returns whether the step that needs most needs less, by more than a share."""
    before, after = needs(sizes, plan), needs(sizes, other)
    worst = max(before, key=lambda step: before[step])
    return after[worst] < (1 - least) * before[worst] and max(after.values()) <= max(before.values())


def frugal_plans(sizes: Sizes, plan: Plan, block_rows: int | None) -> Iterator[Plan]:
    """Plans that are one step more frugal, the least costly step first."""
    if plan.sgd and sizes.loss == "auto":
        yield replace(plan, sgd=False)
    if plan.factors and sizes.auto and sizes.solver != "cg":
        yield replace(plan, factors=False)
    if not plan.embedding_in_file:
        yield replace(plan, embedding_in_file=True)
    group = plan.label_group or sizes.c
    squared = sizes.loss == "squared" or (sizes.loss == "auto" and not plan.sgd)
    if squared and plan.label_group is None:
        yield replace(plan, label_group=group)
    if plan.block_rows > LEAST_BLOCK_ROWS and block_rows is None:
        yield replace(plan, block_rows=max(LEAST_BLOCK_ROWS, plan.block_rows // 2))
    if squared and plan.label_group and group > SOLVED_LABELS:
        yield replace(plan, label_group=max(SOLVED_LABELS, -(-group // 2)))
    columns = plan.columns or sizes.group
    if sizes.auto and columns > LEAST_COLUMNS:
        yield replace(plan, columns=max(LEAST_COLUMNS, columns // 2))
    if plan.search_rows > LEAST_SEARCH_ROWS:
        yield replace(plan, search_rows=max(LEAST_SEARCH_ROWS, plan.search_rows // 2))
    if (plan.held_rows or 0) > LEAST_HELD_ROWS:
        yield replace(plan, held_rows=max(LEAST_HELD_ROWS, (plan.held_rows or 0) // 2))


def call_glibc(name: str, *arguments: int) -> None:
    """Calls a function of the C library where it has it: glibc does, musl does without."""
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*arguments)


UNKNOWN = 400 << 20  # bytes, where the system does not say


def resident_bytes() -> int:
    """The memory this process holds now."""
    try:
        with open("/proc/self/status") as file:
            found = next(line for line in file if line.startswith("VmRSS:"))
        return int(found.split()[1]) << 10
    except (OSError, StopIteration, ValueError):
        return UNKNOWN
