"""The one entry of a fit: choose settings, fit, calibrate. Every learner is composed of these three here."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.calibration import Calibrated, calibrate, calibrate_model, not_calibrated, row_sizes
from smoothlink.fitting.checkpoint import FitState, describe_fit, open_state
from smoothlink.fitting.choose import ALL_DIRECTIONS, Point, choose, climb
from smoothlink.fitting.embedding import Convergence, Embedded
from smoothlink.fitting.full_rank import (
    choose_ridge,
    fit_full_rank,
    full_rank_choice,
    full_rank_solver,
    prefers_link,
    suits_full_rank,
    try_link,
)
from smoothlink.fitting.holdout import (
    FOLD_SHARE,
    MANY_ROWS,
    NOTHING,
    calibrates_by_folds,
    calibrating_rows,
    decodes_once,
    embeds_once,
    few_rows,
    rows_for_one_fit,
    validation_rows,
    without,
)
from smoothlink.fitting.input_kernel import Pose, choose_with_inputs, grow_inputs, with_trees, with_width
from smoothlink.fitting.link import decode, fit_link, label_totals, link_model, with_held_rows
from smoothlink.fitting.memory import resident_bytes
from smoothlink.fitting.prepare import (
    make_problem,
    number_of_entries,
    plan_memory,
    scaled_inputs,
    start_settings,
)
from smoothlink.fitting.quick import RANK, choose_quick
from smoothlink.fitting.settings import (
    ChosenSettings,
    Clock,
    Note,
    Notify,
    Problem,
    Report,
    Request,
    Settings,
    TrainingData,
)
from smoothlink.fitting.summary import Fitted, summarise
from smoothlink.fitting.train_jointly import (
    considers_joint,
    finetune,
    fit_joint,
    joint_choice,
    number_of_negatives,
    scaled_rows,
    trains_jointly,
)
from smoothlink.fitting.validate import Validation, saved_validation, validate
from smoothlink.machines.arrays import take_rows, to_host
from smoothlink.machines.host_and_device import HOST, Machine, find_machine, retry_with_smaller_blocks
from smoothlink.machines.rows import Rows
from smoothlink.model import Model
from smoothlink.solve import DualCholesky
from smoothlink.solve.leave_out import fitted_ridge
from smoothlink.steps.embed import label_means
from smoothlink.steps.scale import choose_scaling
from smoothlink.steps.trees import PARTS, grow_trees

Array = NDArray[Any]

LINEAR_COLUMNS = 1000  # of a table up to which "auto" tries logistic regression of x itself
LINEAR_ROWS = 500  # from which it is tried: few held-out rows say little
LINEAR_RIDGES = (1e-5, 3e-5, 1e-4, 3e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
LINEAR_PASSES = 25  # enough for rare labels, whose losses curve little; the ridge does what stopping early would
LINEAR_GAIN = 0.005  # of the criterion that it must bring


def run(data: TrainingData, request: Request, *, notify: Notify | None = None, note: Note | None = None) -> Fitted:
    """Fits a model; where a device runs out of memory, the fit begins again with smaller blocks."""

    def fit(machine: Machine) -> Fitted:
        fitted = run_on(data, replace(request, device=machine), notify, note)
        fitted.summary.update(device=str(machine), peak_device_mb=machine.peak_mb)
        return fitted

    failure = (
        f"device is {request.device!r}, and its memory does not hold the fit, however small the blocks.\n"
        "Ask for a smaller rank or fewer random features, or leave device 'cpu'."
    )
    return retry_with_smaller_blocks(find_machine(request.device), fit, failure, note)


def run_on(data: TrainingData, request: Request, notify: Notify | None, note: Note | None) -> Fitted:
    """`run` on one machine, with blocks of one size."""
    clock = Clock(notify)
    with clock.step("scale"):
        scaling = choose_scaling(data.X, request.scale, data.w)
    with open_state(
        request.checkpoint,
        lambda: describe_fit(data.X, data.Y, data.w, data.label_weight, request, data.groups),
        lambda: plan_memory(
            data,
            request,
            dense=scaling.dense,
            table=scaling.dense and scaling.kind == "variance",
            resident=lambda: loaded_bytes(request, data, dense=scaling.dense),
        ),
    ) as state:
        if state.plan.memory is not None and note is not None:
            note(str(state.plan))
        A = scaled_inputs(data.X, scaling, request, state.plan)

        grown = cache(lambda: grow_inputs(A, data, request))

        def pose(request: Request) -> tuple[Problem, Settings]:
            problem = make_problem(A, data, scaling, request, state, grown() if request.trees is True else None)
            plain = problem.inputs.kernel is None and problem.inputs.trees is None
            entries = number_of_entries(A) if plain else problem.rows.n * problem.rows.d
            return problem, start_settings(problem, request, entries)

        return fit_posed(pose, request, clock, state, data.Y.shape[1])


def fit_posed(pose: Pose, request: Request, clock: Clock, state: FitState, labels: int) -> Fitted:
    """Fits the problem that a request poses, by the learner that it asks for or that suits it."""
    if request.training == "finetune":
        return fit_finetuned(pose, request, clock, state)
    if request.effort == "quick" or considers_joint(request, labels) or labels > ALL_DIRECTIONS:
        problem, settings = pose(with_width(plain_inputs(request), pose))
        if suits_full_rank(problem, request):
            fitted = fit_at_full_rank(problem, settings, request, clock)
            if fitted is not None:
                return fitted
            pose = with_directions_of_quick(pose)
        if trains_jointly(problem, settings, request):
            return fit_jointly(joint_choice(problem, settings, request), request, clock)
        if request.effort == "quick":
            if request.trees == "auto" and problem.table:
                with clock.step("trees"):
                    request = with_trees(request, pose)
                    if request.trees:
                        problem, settings = pose(with_width(plain_inputs(request), pose))
            return fit_quickly(choose_quick(problem, settings, request), request, clock)
    return fit_fully(pose, request, clock, state)


def fit_at_full_rank(problem: Problem, settings: Settings, request: Request, clock: Clock) -> Fitted | None:
    """Fits ridge regression onto all labels; None where held-out rows prefer the link, even with quick settings.

    Every row that is held out is scored by the same factor, so that calibration needs no fit of its own.
    """
    with clock.step("choose"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        quick = choose_quick(problem, settings, request).settings
        link = None if request.effort == "quick" else try_link(problem, quick, request)
        system = full_rank_solver(problem.rows).prepare(problem.rows)
        found = choose_ridge(problem, system, quick, request, partial(clock.progress, "choose"))
        if link is not None and prefers_link(problem, link, found):
            return None
    calibrated = not_calibrated(problem.rows.c)
    if found.held and request.calibrate:
        with clock.step("calibrate"):
            frequencies = np.clip(label_means(problem.rows), 0, 1)
            calibrated = calibrate(
                found.scored(problem),
                frequencies,
                "squared",
                multiclass=problem.multiclass,
                aim=request.threshold_aim,
                own_maps=False,  # labels of one row are never found in it when it is held out, and would be kept down
                most_kept=problem.state.plan.kept_scores,
            )
    with clock.step("fit"):
        ridge = found.fitted or fitted_ridge(problem.rows, system.at(found.ridge))
        del system
        model = fit_full_rank(problem, ridge)
    model = replace(
        model,
        calibration=calibrated.calibration,
        thresholds=calibrated.thresholds,
        threshold=calibrated.threshold,
        reference=calibrated.reference,
    )
    choice = full_rank_choice(problem, settings, found, request)
    no_embedding = np.zeros((0, choice.settings.rank)), np.zeros(0), float("nan"), Convergence()
    embedded = Embedded(None, model.W, None, *no_embedding)
    criteria = {"squared": found.criterion} if found.held else {}
    fitted = finish(model, embedded, choice, calibrated, criteria, request, clock)
    fitted.summary["sparse_weights"] = 0 if model.sparse_weights is None else model.sparse_weights.size
    return fitted


def with_directions_of_quick(pose: Pose) -> Pose:
    """Returns the pose with at most as many directions as `try_link` has: they predicted held-out rows better than all
    directions did, and with more labels than rows each one costs."""

    def posed(request: Request) -> tuple[Problem, Settings]:
        problem, settings = pose(request)
        rank = min(RANK, settings.embedder.rank)
        return problem, replace(settings, rank=rank, embedder=replace(settings.embedder, rank=rank))

    return posed


def plain_inputs(request: Request) -> Request:
    """Returns the request with x itself where the input kernel is left to choose."""
    return replace(request, input_kernel=None) if request.input_kernel == "auto" else request


def fit_fully(pose: Pose, request: Request, clock: Clock, state: FitState) -> Fitted:
    """Chooses and validates settings on held-out rows, which also calibrate, then fits all rows."""
    return fit_validated(*choose_fully(pose, request, clock, state), request, clock)


def fit_validated(choice: ChosenSettings, validation: Validation, request: Request, clock: Clock) -> Fitted:
    """Fits all rows, with the settings and the calibration that held-out ones gave.

    Of many rows these have no part in the embedding, nor in a long SGD: where the fit without them is at hand, their
    sums are added to it.
    """
    problem, settings, calibrated = choice.problem, validation.settings, validation.calibrated
    rows, fitted, some = problem.rows, validation.fitted, problem.rows
    if calibrated.rows and embeds_once(rows.w, problem.held):
        held = calibrating_rows(rows.w, request, problem.groups, problem.held)
        some = without(rows, held)
    decoded = some if decodes_once(rows.w, settings.loss) else rows
    if fitted is None:
        model, embedded = fit_link(problem, decoded, settings, calibrated, clock, some)
    else:
        if decoded is rows:
            with clock.step("fit"):
                link = with_held_rows(fitted.link, rows, held)
                fitted = fitted._replace(link=link, V=decode(link, settings, problem.state, clock))
        model, embedded = link_model(problem, rows, fitted, settings, calibrated), fitted.embedded
    model = replace(model, **label_totals(rows))
    choice = choice._replace(settings=settings)
    return finish(model, embedded, choice, calibrated, validation.criteria, request, clock)


def choose_fully(pose: Pose, request: Request, clock: Clock, state: FitState) -> tuple[ChosenSettings, Validation]:
    """Returns what the search chose, and what held-out rows at full size say of it."""
    with warnings.catch_warnings():  # of fits to part of the rows: the one to all of them speaks for itself
        warnings.simplefilter("ignore", RuntimeWarning)
        with clock.step("choose"):
            choice = saved_choice(pose, request, state, partial(clock.progress, "choose"))
        with clock.step("calibrate"):
            validation = saved_validation(choice, request, partial(clock.progress, "calibrate"))
            return linear_in_x(choice, validation, request, pose) or (choice, validation)


def linear_in_x(
    choice: ChosenSettings, validation: Validation, request: Request, pose: Pose
) -> tuple[ChosenSettings, Validation] | None:
    """Returns logistic regression of x itself, where X is a table and held-out rows clearly prefer that to the choice.

    Columns with a meaning of their own often act linearly, which random features of an embedding only approximate.
    """
    free = ("rank", "ridge", "kernel", "bandwidth", "n_features", "final_ridge", "loss", "passes", "input_kernel")
    if any(getattr(request, name) != "auto" for name in free) or request.embedding != "randomized":
        return None
    if request.trees is True:
        return None
    problem = choice.problem
    fits = len(problem.scaling.factor) <= LINEAR_COLUMNS and np.count_nonzero(problem.rows.w) >= LINEAR_ROWS
    if not (problem.table and validation.criteria and fits):
        return None
    loss = "softmax" if problem.multiclass else "logistic"
    tried: dict[float, tuple[ChosenSettings, Validation]] = {}

    def criterion(point: Point) -> float:
        ridge = float(point[0])
        plain = replace(request, embedding="none", kernel="linear", input_kernel=None, loss=loss, final_ridge=ridge)
        plain = replace(plain, passes=LINEAR_PASSES)
        other = choose(*pose(plain), plain)
        tried[ridge] = other, validate(other, plain)
        return tried[ridge][1].criteria[loss]

    best = climb(criterion, [LINEAR_RIDGES], (0.1,))
    if not best.loss < (1 - LINEAR_GAIN) * min(validation.criteria.values()):
        return None
    other, found = tried[float(best.point[0])]
    by = {
        "rank": "every column",
        "ridge": "not used",
        **dict.fromkeys(("kernel", "trees", "input_kernel", "final_ridge"), "held-out rows"),
    }
    criteria = {f"{loss} of x itself": best.loss, **validation.criteria}
    return other._replace(chosen_by=other.chosen_by | by), found._replace(criteria=criteria)


def validate_held_out(choice: ChosenSettings, request: Request, clock: Clock) -> Validation:
    """Returns what held-out rows at full size say of settings."""
    with warnings.catch_warnings(), clock.step("calibrate"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return saved_validation(choice, request, partial(clock.progress, "calibrate"))


def saved_choice(pose: Pose, request: Request, state: FitState, report: Report) -> ChosenSettings:
    """Returns `choose_with_inputs`, or what an earlier run chose."""
    searched, saved = ("ridge", "rank", "bandwidth", "final_ridge"), state.load("choose")
    if saved is None:
        choice = choose_with_inputs(request, pose, report)
        inputs = choice.problem.inputs
        kernel: dict[str, Any] = {"input_kernel": None if inputs.kernel is None else str(inputs.kernel)}
        kernel |= {} if inputs.kernel is None else {"input_bandwidth": inputs.bandwidth}
        kernel |= {"trees": inputs.trees is not None}
        found = {name: getattr(choice.settings, name) for name in searched}
        state.save(
            "choose",
            {"inputs": kernel, "settings": found, "chosen_by": choice.chosen_by, "criterion": choice.criterion},
        )
        return choice
    meta = saved[0]
    problem, settings = pose(replace(request, **meta["inputs"]))
    return ChosenSettings(problem, replace(settings, **meta["settings"]), meta["chosen_by"], meta["criterion"])


class OneFit(NamedTuple):
    """A fit without held-out rows, and how it scores them."""

    model: Model
    embedded: Embedded
    rows: Callable[[Array], Any]  # numbers of rows -> what the model scores


def fit_and_calibrate(
    fit: Callable[[Rows], OneFit], problem: Problem, held: Array, request: Request, clock: Clock, *, refit: bool
) -> tuple[Model, Embedded, Calibrated]:
    """Fits without the held-out rows, which calibrate; with `refit` the model is then fitted to all rows."""
    found, calibrated = fit(without(problem.rows, held)), not_calibrated(problem.rows.c)
    if len(held) and request.calibrate:
        with clock.step("calibrate"):
            w = problem.rows.w[held].astype(np.float64)
            sizes = row_sizes(problem.rows, held)
            most_kept = problem.state.plan.kept_scores
            calibrated = calibrate_model(
                found.model, found.rows(held), problem.Y[held], w, request.threshold_aim, sizes, most_kept
            )
    if len(held) and refit:
        del found  # two models at once would double the memory
        found = fit(problem.rows)
    model = replace(
        found.model,
        calibration=calibrated.calibration,
        thresholds=calibrated.thresholds,
        threshold=calibrated.threshold,
        reference=calibrated.reference,
        **label_totals(problem.rows),
    )
    return model, found.embedded, calibrated._replace(rows=len(held))


def fit_quickly(choice: ChosenSettings, request: Request, clock: Clock) -> Fitted:
    """Fits once, without a few rows, which calibrate; where rows are few, folds calibrate, and all rows are fitted."""
    problem = choice.problem
    if request.calibrate and problem.held is None and calibrates_by_folds(problem.rows):
        chosen = {name: getattr(choice.settings, name) for name in ("final_ridge", "loss", "passes")}
        folds = replace(request, **chosen, holdout=FOLD_SHARE)
        return fit_validated(choice, validate_held_out(choice, folds, clock), request, clock)
    held = few_rows(problem.rows.w, request.seed, problem.groups) if request.calibrate else NOTHING
    if problem.held is not None:
        held = next(iter(validation_rows(problem.rows.w, request, held=problem.held)), NOTHING)

    def fit(rows: Rows) -> OneFit:
        model, embedded = fit_link(problem, rows, choice.settings, not_calibrated(rows.c), clock)
        return OneFit(model, embedded, lambda numbers: to_host(take_rows(embedded.H, numbers)))

    model, embedded, calibrated = fit_and_calibrate(fit, problem, held, request, clock, refit=False)
    return finish(model, embedded, choice, calibrated, criteria_of(model, calibrated), request, clock)


def fit_jointly(choice: ChosenSettings, request: Request, clock: Clock) -> Fitted:
    """Trains W, V and sparse weights together, with sampled negatives."""
    problem = choice.problem
    held = rows_for_one_fit(problem.rows.w, request, problem.groups) if request.calibrate else NOTHING
    names = iter(("held", "fit"))

    def fit(rows: Rows) -> tuple[Model, Embedded]:
        model = fit_joint(choice, rows, next(names), request, clock)
        no_spectrum = np.zeros((0, choice.settings.rank)), np.zeros(0), float("nan"), Convergence()
        return model, Embedded(None, model.W, None, *no_spectrum)

    fitted = finish_joint(fit, choice, held, request, clock)
    fitted.summary["negatives"] = number_of_negatives(request)
    return fitted


def fit_finetuned(pose: Pose, request: Request, clock: Clock, state: FitState) -> Fitted:
    """Fits stepwise, then trains all weights together until held-out rows gain no more, or for the passes given."""
    plain = with_width(plain_inputs(request), pose)
    problem, settings = pose(plain)
    if plain.loss == "auto":
        plain = replace(plain, loss="softmax" if problem.multiclass else "logistic")
        settings = replace(settings, loss=plain.loss)
    if plain.effort == "quick":
        choice = choose_quick(problem, settings, plain)
    else:
        choice, validation = choose_fully(pose, plain, clock, state)
        choice = choice._replace(settings=validation.settings)
    problem = choice.problem
    select = request.training_passes == "auto"
    held = rows_for_one_fit(problem.rows.w, request, problem.groups) if select or request.calibrate else NOTHING
    stop: list[int] = []  # after how many passes held-out rows gained no more

    def fit(rows: Rows) -> tuple[Model, Embedded]:
        own = problem._replace(state=problem.state.part("all-rows" if stop else "first-fit"))
        model, embedded = fit_link(own, rows, choice.settings, not_calibrated(rows.c), clock)
        with clock.step("finetune"):
            if stop:
                model, _ = finetune(model, rows, NOTHING, choice._replace(problem=own), request, clock, stop[0])
            else:
                model, done = finetune(model, rows, held, choice._replace(problem=own), request, clock)
                stop.append(done)
        return model, embedded

    fitted = finish_joint(fit, choice, held, request, clock)
    fitted.summary["finetune_passes"] = stop[0]
    return fitted._replace(U=None)


def finish_joint(
    fit: Callable[[Rows], tuple[Model, Embedded]], choice: ChosenSettings, held: Array, request: Request, clock: Clock
) -> Fitted:
    """Fits jointly without the held-out rows, which calibrate; where rows are few, once more with all."""
    problem = choice.problem

    def one_fit(rows: Rows) -> OneFit:
        model, embedded = fit(rows)

        def embedded_rows(numbers: Array) -> Any:
            some = scaled_rows(problem.rows.take(numbers))
            problem.rows.release()
            return model.embed_scaled_rows(some)

        return OneFit(model, embedded, embedded_rows)

    refit = problem.rows.n < MANY_ROWS
    model, embedded, calibrated = fit_and_calibrate(one_fit, problem, held, request, clock, refit=refit)
    fitted = finish(model, embedded, choice, calibrated, criteria_of(model, calibrated), request, clock)
    fitted.summary["sparse_weights"] = 0 if model.sparse_weights is None else model.sparse_weights.size
    return fitted


def criteria_of(model: Model, calibrated: Calibrated) -> dict[str, float]:
    return {model.loss: calibrated.criterion} if np.isfinite(calibrated.criterion) else {}


def finish(
    model: Model,
    embedded: Embedded,
    choice: ChosenSettings,
    calibrated: Calibrated,
    criteria: dict[str, float],
    request: Request,
    clock: Clock,
) -> Fitted:
    """Returns the model with its label directions and the summary of its fit."""
    if request.aim != "half" and calibrated.reached is None:
        warnings.warn(
            f"aim is {request.aim!r}, but no row could be held out to choose thresholds on; the model takes 1/2.",
            UserWarning,
            stacklevel=2,
        )
    U = None if embedded.U is None else to_host(embedded.U)[:, : choice.settings.rank]
    return Fitted(model, U, summarise(choice, embedded, calibrated, criteria, clock))


PROBE: dict[str, Any] = {
    "rank": 2,
    "ridge": 1.0,
    "bandwidth": 1.0,
    "final_ridge": 0.1,
    "n_features": 4,
    "passes": 1,
    "scale": "unit",
    "input_kernel": None,
    "trees": False,
    "holdout": 0.5,
    "block_rows": 25,
    "batch_rows": None,
    "training": "stepwise",
    "memory": None,
    "checkpoint": None,
    "updatable": False,
}


def loaded_bytes(request: Request, data: TrainingData, *, dense: bool) -> int:
    """Returns the memory of the process after fits to a few rows: libraries and compiled loops count, and differ by
    machine."""
    rng = np.random.default_rng(0)
    if dense and request.trees is not False:
        classes = sp.csr_array(np.eye(5, dtype=np.float32)[np.arange(40) % 5])
        grow_trees(rng.random((40, 3), np.float32), classes, np.ones(40), np.arange(40) % PARTS, 0, multiclass=True)
    X = sp.csr_array(rng.poisson(0.1, (40, 30)), dtype=np.float32)
    Y = sp.csr_array(np.eye(5, dtype=np.float32)[np.arange(40) % 5])
    solvers: list[Any] = ["cg", "cholesky", DualCholesky()] if request.solver == "auto" else [request.solver]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for solver in solvers:
            run(TrainingData(X, Y, None, data.multiclass), replace(request, **PROBE, solver=solver))
        if considers_joint(request, data.Y.shape[1]) and request.joint_conflict is None:
            joint = PROBE | {"training": "joint", "negatives": 2, "device": HOST}
            run(TrainingData(X, Y, None, data.multiclass), replace(request, **joint))
    for kind in (np.float32, np.float64):  # large products fill the buffers of BLAS
        A = np.ones((1024, 2048), kind)
        A @ A.T
    del A
    return resident_bytes()
