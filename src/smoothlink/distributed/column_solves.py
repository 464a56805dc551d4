"""Ridge solves by conjugate gradients on a cluster. Their vectors stay on the workers.

Columns advance in groups, each with an owner: the worker that has the vectors of the group. Where rows are partitioned,
in each iteration all workers get the direction P of the group from its owner, and their parts of X'WXP come back to it,
along a tree of additions. A group needs no other, so that the vectors of one travel while another's are multiplied.
Where columns are partitioned, every worker has all rows, and a group is one task on its owner.

The client sees counts of columns that are left, nothing of length d or c. Every task can be run again from the files
and from what the scheduler holds, so that a worker that dies loses nothing for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from copy import copy, deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.distributed import dask_module, tasks
from smoothlink.distributed.remote_array import RemoteArray
from smoothlink.distributed.worker_failure import CANCELLED
from smoothlink.machines.host_and_device import HOST_COLUMNS
from smoothlink.machines.rows import Rows
from smoothlink.solve.conjugate import ColumnGroup, GradientSolve, Recipe, sketch_probes, solved_columns, xt_xp
from smoothlink.solve.nystrom import Correction, Sketch, correction
from smoothlink.steps.embed import projected_columns, xt_yq, yt_xz

if TYPE_CHECKING:
    from smoothlink.distributed.rows_on_workers import ClusterRows

Array = NDArray[Any]

PARTIAL_PANEL_COST = 1.6  # of a column outside a panel of 64 columns, where one inside costs 1
LINE_BYTES = 64  # of a cache
DRAWN_ROWS = 4096  # of Gaussian numbers at a time, where they are for other workers


class RemoteCorrection(NamedTuple):
    """A correction of the preconditioner that is on a worker."""

    future: Any
    levels: Array


class Solved(NamedTuple):
    """One group of columns, on its owner."""

    Z: Any  # future of (d, g)
    T: Any  # future of (c, g), or None
    effort: Array  # (3, g), as `GradientSolve.effort` for each column


class ColumnSolves:
    """Solves for groups of columns, over rows on workers."""

    def __init__(self, rows: ClusterRows, solve: GradientSolve) -> None:
        self.rows, self.solve, self.cluster = rows, solve, rows.cluster
        self.recipe = self.cluster.hold(solve.recipe)

    def project(self, Q: RemoteArray, *, only_image: bool) -> tuple[RemoteArray | None, RemoteArray]:
        """Returns Z (d, m), unless only the image is needed, and T = Y'PYQ (c, m), by rows."""
        if not Q.shape[1]:
            return RemoteArray(self.cluster, [], np.zeros(0, int), (self.rows.d, 0)), Q
        groups = self._groups(Q.shape[1])

        def columns(part: slice, owner: str | None) -> Any:
            """Returns a future of some columns of Q, whole."""
            pieces = [self.cluster.submit("take", tasks.take_columns, shard, part) for shard in Q.parts]
            self._count(len(Q) * (part.stop - part.start) * self._others / len(self.rows.parts))
            return self.cluster.submit("labels", stack_rows, pieces, worker=owner)

        found = self.cluster.retry_lost_arrays(lambda: self._solve_all(groups, columns, project=True))
        T = self._by_rows([one.T for one in found], Q.shape)
        return None if only_image else self._by_rows([one.Z for one in found], (self.rows.d, Q.shape[1])), T

    def solutions(self, B: Array) -> Array:
        """Returns Z for right-hand sides B of the client, on the client."""

        def send_and_compute() -> Array:
            found = self._solve_all(self._groups(B.shape[1]), send, project=False)
            Z = self.cluster.client.gather([one.Z for one in found], direct=self.cluster.direct)
            self.cluster.count_bytes(B.nbytes)
            return np.hstack(Z)

        def send(part: slice, owner: str | None) -> Any:
            return self.cluster.send(np.ascontiguousarray(B[:, part]), owner)

        Z: Array = self.cluster.retry_lost_arrays(send_and_compute)
        return Z

    def correction(self, rank: int) -> RemoteCorrection:
        """Returns the correction of low rank for the preconditioner."""
        owner = self.cluster.worker_of(self.rows.parts[0])
        probes = self.cluster.submit("probes", recipe_probes, self.recipe, rank, worker=owner)
        totals = self._products(xt_xp, probes, self.rows.d, 0)
        self._count(2 * self._others * self.rows.d * rank)
        found = self.cluster.submit("correction", make_correction, self.recipe, probes, *totals, worker=owner)
        return RemoteCorrection(found, self.cluster.gather(self.cluster.submit("levels", levels, found)))

    def _groups(self, m: int) -> list[slice]:
        """Returns the columns of each group."""
        if self.rows.all_rows is not None:
            return split_columns(m, len(self.rows.all_rows))
        panels = math.ceil(m / len(self.rows.parts) / HOST_COLUMNS)  # so that each worker has some
        width = self.solve.options.group or min(self.rows.columns(self.rows.d), panels * HOST_COLUMNS)
        return [slice(start, min(m, start + width)) for start in range(0, m, width)]

    def _solve_all(
        self, groups: list[slice], columns: Callable[[slice, str | None], Any], *, project: bool
    ) -> list[Solved]:
        """Solves all groups, and records how; `columns` makes the future of Q, or of right-hand sides, of a group."""
        one = self._iterate if self.rows.all_rows is None else self._solve_on_owner
        m, at_once = groups[-1].stop, 2 * len(self.rows.parts)  # of two groups one is multiplied while another travels
        found = self._run((one(i, part, m, columns, project) for i, part in enumerate(groups)), at_once)
        self.solve.record(np.hstack([solved.effort for solved in found]))
        return found

    def _run(self, groups: Iterable[Generator[Any, Any, Solved]], at_once: int) -> list[Solved]:
        """Runs generators that yield futures and are sent their results; some at once."""
        waiting: dict[Any, tuple[int, Generator[Any, Any, Solved]]] = {}
        found: dict[int, Solved] = {}
        fresh = enumerate(groups)
        completed = dask_module("distributed").as_completed(with_results=True)

        def resume(number: int, group: Generator[Any, Any, Solved], value: Any) -> None:
            try:
                future = group.send(value)
            except StopIteration as end:
                found[number] = end.value
                if (following := next(fresh, None)) is not None:
                    resume(*following, None)
                return
            waiting[future] = number, group
            completed.add(future)

        for _, (number, group) in zip(range(at_once), fresh, strict=False):
            resume(number, group, None)
        for future, result in completed:
            if isinstance(result, CANCELLED):
                raise result
            resume(*waiting.pop(future), result)
        return [found[number] for number in sorted(found)]

    def _solve_on_owner(
        self, i: int, part: slice, m: int, columns: Callable[..., Any], project: bool
    ) -> Generator[Any, Any, Solved]:
        """Solves some columns on a worker that has all rows."""
        assert self.rows.all_rows is not None
        all_rows, submit = self.rows.all_rows[i], self.cluster.submit
        B = columns(part, self.cluster.worker_of(all_rows))
        f = projected_columns if project else solved_columns
        name, given = f"columns {i + 1}/{len(self.rows.all_rows)}", (self.rows.held_weights, B, self.recipe)
        done = submit(name, tasks.solve_columns, f, all_rows, *given)
        effort = yield submit("effort", take_item, done, 0)
        T = submit("image", take_item, done, 1) if project else None
        return Solved(submit("solution", take_item, done, -1), T, effort)

    def _iterate(
        self, i: int, part: slice, m: int, columns: Callable[..., Any], project: bool
    ) -> Generator[Any, Any, Solved]:
        """Solves some columns by sums over the partitions of the rows."""
        solve, submit, d = self.solve, self.cluster.submit, self.rows.d
        width, owner = part.stop - part.start, i % len(self.rows.parts)
        solve.precondition(m - part.start)
        M = solve.correction and solve.correction.future  # type: ignore[attr-defined]
        B = columns(part, self.cluster.worker_of(self.rows.parts[owner]))
        state = submit("begin", begin, self.recipe, M, *(self._products(xt_yq, B, d, owner) if project else [B]))
        products = 0
        while True:
            status = submit("left", left, self.recipe, state)
            # The next iteration is under way while the client learns whether it is needed: if not, P has no columns.
            P = submit("direction", direction, state)
            ahead = submit("step", step, self.recipe, M, state, *self._products(xt_xp, P, d, owner))
            g, effort = yield status
            if not g:
                break
            state, products = ahead, products + g
        del ahead, P
        solve.iterations = max(solve.iterations, int(effort[0]))
        Z = submit("solution", solution, state)
        T = submit("image", add_up, *self._products(yt_xz, Z, self.rows.c, owner)) if project else None
        self._count(2 * self._others * (products * d + (width * (d + self.rows.c) if project else 0)))
        return Solved(Z, T, np.outer(effort, np.ones(width)))

    def _products(self, f: Callable[..., None], A: Any, side: int, owner: int) -> list[Any]:
        """Returns futures of one or two arrays (side, .) that add up to the sum of f(block, A, out) over all rows. The
        first is on the owner, and each addition is where the first of its arrays is."""
        submit, parts = self.cluster.submit, list(zip(self.rows.parts, self.rows.weights, strict=True))
        futures: list[Any] = []
        copies = [A]
        for i, (part, w) in enumerate(parts[owner:] + parts[:owner]):
            # No worker sends A to all others: each to a few, which send it on.
            near = copies[max(0, i - 1) // self.cluster.fetches]
            if i and i * self.cluster.fetches + 1 < len(parts):
                copies.append(near := submit("fetch", tasks.same, near, worker=self.cluster.worker_of(part)))
            futures.append(submit("product", partition_product, f, part, w, side, near))
        while len(futures) > 2:
            pairs = [futures[k : k + 2] for k in range(0, len(futures), 2)]
            futures = [submit("add", add_up, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return futures

    def _by_rows(self, groups: list[Any], shape: tuple[int, int]) -> RemoteArray:
        """Returns an array of which workers have some columns each so that they have some rows each."""

        def make(some: slice, worker: str | None) -> Any:
            pieces = [self.cluster.submit("take", take_rows, columns, some) for columns in groups]
            return self.cluster.submit("rows", side_by_side, pieces, worker=worker)

        self._count(shape[0] * shape[1] * self._others / len(self.rows.parts))
        return RemoteArray.split(self.cluster, self.rows.parts, shape, make)

    @property
    def _others(self) -> int:
        """Returns how many workers have rows, beside the owner of a group."""
        return len(self.rows.parts) - 1

    def _count(self, numbers: float) -> None:
        """Adds to the bytes that went between workers."""
        self.cluster.count_bytes(int(4 * numbers))


def split_columns(m: int, workers: int) -> list[slice]:
    """Returns m columns in as many parts as there are workers, or fewer: equal ones, or whole panels where these take
    less time, since the kernels are slower on columns outside a panel."""

    def cost(edges: Array) -> float:
        width = np.diff(edges)
        return float((width + (PARTIAL_PANEL_COST - 1) * (width % HOST_COLUMNS)).max())

    count, panels = max(1, min(workers, m)), math.ceil(m / HOST_COLUMNS)
    equal = np.linspace(0, m, count + 1).astype(int)
    panelled = np.minimum(m, np.linspace(0, panels, min(count, panels) + 1).round().astype(int) * HOST_COLUMNS)
    edges = min(equal, panelled, key=cost)
    return [slice(int(a), int(b)) for a, b in pairwise(edges)]


# On a worker


class SolveState(NamedTuple):
    """A group of columns under way."""

    group: ColumnGroup
    Z: Array  # (d, g) of all columns, those that are done


def solver(recipe: Recipe, M: Correction | None) -> GradientSolve:
    """Returns a solver that has no rows: their products come from elsewhere."""
    found = recipe.over(Rows([], len(recipe.rho), 0))
    found.correction = M
    return found


def begin(recipe: Recipe, M: Correction | None, *totals: Array) -> SolveState:
    """Returns the state before the first iteration, where the totals add up to the right-hand sides."""
    group = solver(recipe, M).begin(add_up(*totals))
    return after_removal(recipe, SolveState(group, np.zeros_like(group.z)))


def step(recipe: Recipe, M: Correction | None, state: SolveState, *totals: Array) -> SolveState:
    """Returns the state after one iteration more, where the totals add up to X'WXP."""
    solve, group = solver(recipe, M), copy(state.group)
    if solve.all_are_done(group):
        return state
    for name in ("z", "r", "p"):
        setattr(group, name, getattr(group, name).copy())
    solve.step(group, add_up(*totals))
    return after_removal(recipe, SolveState(group, state.Z))


def after_removal(recipe: Recipe, state: SolveState) -> SolveState:
    """Returns the state without columns that are done; its group is overwritten."""
    solve = solver(recipe, None)
    if not solve.some_are_done(state.group):
        return state
    Z = state.Z.copy()
    solve.remove_done(state.group, Z)
    return SolveState(state.group, Z)


def left(recipe: Recipe, state: SolveState) -> tuple[int, Array]:
    """Returns how many columns are to go on, and the effort so far: iterations, products and residual."""
    solve, group = solver(recipe, None), state.group
    effort = np.array([group.iterations, group.products, solve.residual_of(group)])
    return 0 if solve.all_are_done(group) else len(group.columns), effort


def direction(state: SolveState) -> Array:
    """Returns P, of which others need X'WXP."""
    return state.group.p


def solution(state: SolveState) -> Array:
    """Returns Z of all columns."""
    return state.Z


def partition_product(
    f: Callable[..., None], partition: tasks.Partition, w: Array | None, side: int, A: Array
) -> Array:
    """Returns the sum (side, m) of f(block, A, out) over the rows of a partition."""
    return tasks.sum_partition(f, partition, w, [((side, A.shape[1]), np.float32)], align(A))[0]


def align(A: Array) -> Array:
    """Returns the same numbers, row after row, from the start of a cache line on.

    An array that was fetched begins anywhere, so that rounding would depend on the names of tasks. And 64 columns then
    take five lines, not four: X'XP of 250,000 rows took 0.28 processor seconds, and 0.24 with P aligned.
    """
    if A.ctypes.data % LINE_BYTES == 0 and A.flags.c_contiguous:
        return A
    room = np.empty(A.nbytes + LINE_BYTES, np.uint8)
    start = -room.ctypes.data % LINE_BYTES
    found = room[start : start + A.nbytes].view(A.dtype).reshape(A.shape)
    found[...] = A
    return found


def add_up(*totals: Array) -> Array:
    """Returns the sum of arrays, in this order, in new memory."""
    return totals[0].copy() if len(totals) == 1 else np.add(*totals)


def recipe_probes(recipe: Recipe, rank: int) -> Array:
    """Returns the random columns of a sketch."""
    return sketch_probes(np.sqrt(solver(recipe, None).inverse), rank)


def make_correction(recipe: Recipe, probes: Array, *totals: Array) -> Correction:
    """Returns the correction from a sketch, where the totals add up to its image."""
    root = np.sqrt(solver(recipe, None).inverse)
    return correction(Sketch(probes, add_up(*totals)), recipe.rho.astype(np.float32), root)


def levels(found: Correction) -> Array:
    """Returns the eigenvalues that a correction removes."""
    return found.levels


def take_item(found: tuple[Array, ...], which: int) -> Array:
    """Returns one of the results of a task."""
    return found[which]


def take_rows(A: Array, some: slice) -> Array:
    """Returns some rows of an array."""
    return np.array(A[some])


def stack_rows(parts: list[Array]) -> Array:
    """Returns arrays under one another."""
    return np.vstack(parts)


def side_by_side(parts: list[Array]) -> Array:
    """Returns arrays side by side."""
    return np.hstack(parts)


def draw_rows(rng: np.random.Generator, start: int, stop: int, m: int) -> tuple[Array, dict[str, Any]]:
    """Returns rows of Gaussian numbers (., m), those that NumPy would draw for them among all, and its state then."""
    rng = deepcopy(rng)
    for a in range(0, start, DRAWN_ROWS):
        rng.standard_normal((min(DRAWN_ROWS, start - a), m), dtype=np.float32)
    return rng.standard_normal((stop - start, m), dtype=np.float32), dict(rng.bit_generator.state)
