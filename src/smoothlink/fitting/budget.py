"""How a fit stays within a memory budget: from comfort downwards, a step at a time, by what each stage needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from smoothlink.fitting.needs import PAIRS, Sizes, file_bytes, input_bytes, needs
from smoothlink.fitting.plan import SEARCH_ROWS, SEES_X, Plan, size
from smoothlink.machines.machine import BLOCK_ROWS
from smoothlink.steps.fit import SOLVED_LABELS

SLACK = 0.06  # of the budget, for what allocators hold back
JUDGED_ROWS, LEAST_JUDGED_ROWS = 20_000, 2_000
LEAST_SEARCH_ROWS, LEAST_BLOCK_ROWS, LEAST_COLUMNS = 5_000, 1024, 8


def make_plan(memory: int, sizes: Sizes, block_rows: int | None = None) -> Plan:
    """The most comfortable plan that keeps within the budget; an error says what is needed at least."""
    blocks = min(block_rows or BLOCK_ROWS, max(LEAST_BLOCK_ROWS, sizes.n))
    rows = min(SEARCH_ROWS, sizes.n)
    plan = Plan(memory, blocks, None, 0, search_rows=rows, judged_rows=JUDGED_ROWS, pairs=PAIRS)
    room = int(memory * (1 - SLACK))
    while max(needs(sizes, plan).values()) > room:
        others = list(smaller(sizes, plan, block_rows))
        better = (other for least in (0.03, 0.0) for other in others if helps(sizes, plan, other, least))
        found = next(better, None)
        if found is None:
            raise too_little(memory, needs(sizes, plan))
        plan = found
    needed, inputs, disk = needs(sizes, plan), input_bytes(sizes, plan), file_bytes(sizes, plan)
    kept = room - max(need for stage, need in needed.items() if stage in SEES_X)
    return replace(plan, kept=kept, needs=needed, inputs=min(kept, inputs), whole=inputs <= kept, disk=disk)


def too_little(memory: int, needed: dict[str, int]) -> ValueError:
    """What to say where no plan fits."""
    stage = max(needed, key=lambda name: needed[name])
    least = needed[stage] / (1 - SLACK)
    enough = size(1.02 * least)
    return ValueError(
        f"memory is {size(memory)}, and this fit needs at least {size(least)} (to {stage}).\n"
        f"Allow memory={enough!r} (--memory {enough}), or ask for a smaller rank or fewer n_features."
    )


def helps(sizes: Sizes, plan: Plan, other: Plan, least: float) -> bool:
    """Whether the stage that needs most needs less, by more than a share."""
    before, after = needs(sizes, plan), needs(sizes, other)
    worst = max(before, key=lambda stage: before[stage])
    return after[worst] < (1 - least) * before[worst] and max(after.values()) <= max(before.values())


def smaller(sizes: Sizes, plan: Plan, block_rows: int | None) -> Iterator[Plan]:
    """Plans that are one step more frugal, the least costly step first."""
    if plan.descent and sizes.loss == "auto":
        yield replace(plan, descent=False)
    if plan.factors and sizes.auto and sizes.solver != "cg":
        yield replace(plan, factors=False)
    if not plan.embedding_in_file:
        yield replace(plan, embedding_in_file=True)
    group = plan.label_group or sizes.c
    squared = sizes.loss == "squared" or (sizes.loss == "auto" and not plan.descent)
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
    if (plan.judged_rows or 0) > LEAST_JUDGED_ROWS:
        yield replace(plan, judged_rows=max(LEAST_JUDGED_ROWS, (plan.judged_rows or 0) // 2))
