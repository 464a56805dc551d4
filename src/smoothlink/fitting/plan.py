"""How a fit stays within a memory budget: what each stage needs, and what goes in parts or to files where it must."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from smoothlink.machines.rows import BLOCK_ROWS
from smoothlink.solve import ConjugateGradient
from smoothlink.steps.fit import BATCH_BYTES, PHI_ROWS, SOLVED_LABELS

GIB = 1 << 30
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": GIB, "T": 1 << 40}
CODE = 260 << 20  # bytes of Python and its libraries once all that a fit uses is loaded
SLACK = 0.06  # of the budget, for what allocators hold back
PAIRS = 1 << 21  # scores of held-out rows looked at together
SEARCH_ROWS, LEAST_SEARCH_ROWS = 20_000, 5_000
JUDGED_ROWS, LEAST_JUDGED_ROWS = 20_000, 2_000
LEAST_BLOCK_ROWS, LEAST_COLUMNS = 1024, 8
LARGEST_RANK = 512  # that a fit within a budget considers where the rank is not a number
GRADIENT_ARRAYS = 8  # (d, g) arrays of the columns that conjugate gradients advance together, at the worst moment


class Sizes(NamedTuple):
    """What the needs of a fit depend on."""

    n: int
    d: int
    c: int
    entries: int  # of X
    labels: int  # ones in Y
    rank: int  # the largest that may be asked for
    probes: int  # columns of the embedding's solves
    features: int  # s
    dense: bool  # whether blocks of X are dense
    ranks: int = 1  # candidates
    folds: int = 1  # of the search
    solver: str = "auto"
    loss: str = "squared"
    search: bool = False  # whether anything is chosen on held-out rows
    held: int = JUDGED_ROWS  # held-out rows there are
    resident: int = CODE  # bytes in use before the fit


@dataclass(frozen=True)
class Plan:
    """What goes at a time. Without a budget everything goes at once, but for blocks of rows."""

    memory: int | None = None  # bytes that were promised
    block_rows: int = BLOCK_ROWS
    columns: int | None = None  # of the embedding's solves at a time; None: all
    kept: int | None = None  # bytes of X that may stay in memory once read; None: all of X
    embedding_in_file: bool = False  # whether h (n, k) is in a file
    label_group: int | None = None  # labels whose Phi'Y is summed at a time, and then in a file; None: all, in memory
    search_rows: int = SEARCH_ROWS
    judged_rows: int | None = None  # held-out rows that are looked at; None: all
    pairs: int | None = None  # scores of held-out rows at a time; None: as many as judge.py says
    cholesky: bool = True  # whether solver "auto" may factor X'X
    descent: bool = True  # whether loss "auto" may try the logistic or softmax loss
    needs: dict[str, int] | None = None  # bytes by stage, as expected

    def told(self) -> dict[str, Any] | None:
        """For the summary: numbers a model file can keep; nothing where nothing was planned."""
        return None if self.memory is None else asdict(self)

    def __str__(self) -> str:
        needs = self.needs or {}
        said = [
            f"blocks of {self.block_rows} rows",
            f"{self.columns} columns of the embedding at a time" if self.columns else "all columns of the embedding",
            f"{size(self.kept or 0)} of X kept in memory",
            f"h in {'a file' if self.embedding_in_file else 'memory'}",
            f"V for {self.label_group} labels at a time, in files" if self.label_group else "V in memory",
            f"search on {self.search_rows} rows",
        ]
        stages = ", ".join(f"{stage} {size(need)}" for stage, need in needs.items())
        return f"Plan for {size(self.memory or 0)}: {'; '.join(said)}. Expected at most: {stages}."


def parse_memory(value: Any) -> int | None:
    """ "4G", "500M" or a number of bytes -> bytes."""
    if value is None:
        return None
    found = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*([KMGT]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
    if isinstance(value, bool) or not found or float(found[1]) * UNITS[found[2].upper()] < 1:
        raise ValueError(f"memory is {value!r}; possible are None, a number of bytes, and text such as '4G' or '500M'.")
    return int(float(found[1]) * UNITS[found[2].upper()])


def size(count: float) -> str:
    return f"{count / GIB:.2f}G" if count >= GIB else f"{count / (1 << 20):.0f}M"


def make_plan(memory: int | None, sizes: Sizes, block_rows: int | None = None) -> Plan:
    """The most comfortable plan that keeps within the budget; an error says what is needed at least."""
    blocks = block_rows or BLOCK_ROWS
    if memory is None:
        return Plan(block_rows=blocks)
    cholesky = sizes.solver == "auto" and cholesky_bytes(sizes) <= memory // 4
    blocks = min(blocks, max(LEAST_BLOCK_ROWS, sizes.n))
    rows = min(SEARCH_ROWS, sizes.n)
    plan = Plan(memory, blocks, None, 0, search_rows=rows, judged_rows=JUDGED_ROWS, pairs=PAIRS, cholesky=cholesky)
    room = int(memory * (1 - SLACK))
    while (worst := max(needs(sizes, plan).values())) > room:
        others = list(smaller(sizes, plan, block_rows))
        better = (other for least in (0.03, 0.0) for other in others if helps(sizes, plan, other, least))
        found = next(better, None)
        if found is None:
            least = int(worst / (1 - SLACK)) + 1
            stage = max(needs(sizes, plan), key=lambda name: needs(sizes, plan)[name])
            raise ValueError(
                f"memory is {size(memory)}, and this fit needs at least {size(least)} (to {stage}).\n"
                f"Allow memory={size(1.02 * least)!r}, or ask for a smaller rank or fewer n_features."
            )
        plan = found
    return replace(plan, kept=max(0, room - worst), needs=needs(sizes, plan))


def helps(sizes: Sizes, plan: Plan, other: Plan, least: float) -> bool:
    """Whether the stage that needs most needs less, by more than a share."""
    before, after = needs(sizes, plan), needs(sizes, other)
    worst = max(before, key=lambda stage: before[stage])
    return after[worst] < (1 - least) * before[worst] and max(after.values()) <= max(before.values())


def smaller(sizes: Sizes, plan: Plan, block_rows: int | None) -> Iterator[Plan]:
    """Plans that are one step more frugal, the least costly step first."""
    if plan.descent and sizes.loss == "auto":
        yield replace(plan, descent=False)
    if not plan.embedding_in_file:
        yield replace(plan, embedding_in_file=True)
    columns = plan.columns or sizes.probes
    if columns > ConjugateGradient().group:
        yield replace(plan, columns=-(-columns // 2))
    group = plan.label_group or sizes.c
    if sizes.loss in ("auto", "squared") and not (plan.descent and sizes.loss == "auto") and group > SOLVED_LABELS:
        yield replace(plan, label_group=-(-group // 2) if plan.label_group else group)
    if plan.block_rows > LEAST_BLOCK_ROWS and block_rows is None:
        yield replace(plan, block_rows=plan.block_rows // 2)
    if columns > LEAST_COLUMNS:
        yield replace(plan, columns=-(-columns // 2))
    if plan.search_rows > LEAST_SEARCH_ROWS:
        yield replace(plan, search_rows=max(LEAST_SEARCH_ROWS, plan.search_rows // 2))
    if (plan.judged_rows or 0) > LEAST_JUDGED_ROWS:
        yield replace(plan, judged_rows=max(LEAST_JUDGED_ROWS, (plan.judged_rows or 0) // 2))


def needs(z: Sizes, plan: Plan) -> dict[str, int]:
    """Bytes that each stage holds at its worst moment, what was there before the fit included."""
    g = min(plan.columns or z.probes, z.probes)
    always = max(z.resident, CODE) + 24 * z.labels + 80 * z.n + 48 * z.d
    fitted = 4 * z.rank * (z.d + z.c)  # W and U
    link = link_bytes(z, plan)
    found = {
        "embed": always
        + solve_bytes(z, plan, z.d, g)
        + block_bytes(z, plan, plan.block_rows, g)
        + embedded_bytes(z, 0),
        "link": always + fitted + link,
        "calibrate": always + link + judged_bytes(z, plan),
    }
    if z.search:
        rows = min(plan.search_rows, z.n)
        caches = embedded_bytes(z, rows) + 4 * rows * z.rank * 14 + 32 * (z.entries // max(1, z.n) + 1) * rows
        found["choose"] = always + solve_bytes(z, plan, z.d, g) + block_bytes(z, plan, rows, g) + caches
    return {stage: int(need) for stage, need in found.items()}


def cholesky_bytes(z: Sizes) -> int:
    return 8 * z.d**2 * (3 + z.folds)


def solve_bytes(z: Sizes, plan: Plan, d: int, g: int) -> int:
    """The ridge solves of the embedding, Z and W included."""
    together = min(g, ConjugateGradient().group)
    gradients = 4 * d * (2 * g + GRADIENT_ARRAYS * together + z.probes + z.rank)
    factored = cholesky_bytes(z) + 28 * d * z.probes
    if z.solver == "cholesky":
        return factored
    return max(gradients, factored) if plan.cholesky else gradients


def block_bytes(z: Sizes, plan: Plan, rows: int, g: int) -> int:
    """A block of rows being read, scaled and transposed, and its products."""
    rows = min(rows, z.n)
    entries = rows * (z.entries / max(1, z.n) + 1)
    return int((16 * rows * z.d if z.dense else 64 * entries) + 16 * z.d + 8 * rows * g)


def embedded_bytes(z: Sizes, rows: int) -> int:
    """Q, T and their float64 forms, and h of some rows."""
    return 40 * z.c * z.probes + 4 * rows * z.rank


def link_bytes(z: Sizes, plan: Plan) -> int:
    """h, the Gram matrix and its factor, a few features, targets and V."""
    s, rows = z.features + 1, min(plan.block_rows, z.n)
    h = 4 * z.rank * (3 * rows if plan.embedding_in_file else (z.n + rows) * (2 if z.ranks > 1 else 1))
    held = plan.label_group or 2 * z.c  # targets; all of them, and V
    labels = min(SOLVED_LABELS, z.c)
    descent = 8 * 4 * s * z.c + 3 * BATCH_BYTES if plan.descent and z.loss != "squared" else 0
    return h + 36 * s * s + 12 * s * min(PHI_ROWS, rows) + 4 * s * held + 28 * s * labels + descent


def judged_bytes(z: Sizes, plan: Plan) -> int:
    """Features and scores of held-out rows."""
    rows = min(plan.judged_rows or JUDGED_ROWS, z.held)
    return 12 * rows * (z.features + 1) + 4 * rows * z.rank + 64 * (plan.pairs or PAIRS)


def resident_bytes() -> int:
    """The memory this process holds now; as much as the code takes where the system does not say."""
    try:
        with open("/proc/self/status") as file:
            found = next(line for line in file if line.startswith("VmRSS:"))
        return int(found.split()[1]) << 10
    except (OSError, StopIteration, ValueError):
        return CODE
