"""Training that goes on with new rows and new labels, for models whose V has no closed form: logistic and softmax loss,
sampled negatives, fine-tuning.

Two ways are tried, and the one that loses less on rows that neither has seen is taken:

ridge: W and all that is there stay, and a new label gets a ridge regression of its rows on the features phi(h), as log-
odds. Scores of other labels do not change.

sgd: the learner of the fit takes more steps, on the new rows and replayed old ones, from the weights that are there.
New labels begin at their ridge regression. Where the learner is joint training its optimiser goes on with the sums of
squared gradients that it had: features and labels that were seen often move little, and new ones quickly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from smoothlink.fitting.calibration import Calibrated, calibrate_model
from smoothlink.fitting.holdout import NOTHING, embeds_once, few_rows
from smoothlink.fitting.train_jointly import CLUSTER_ROWS, sampled_passes
from smoothlink.joint.batches import RowBatches
from smoothlink.joint.clusters import cluster_rows
from smoothlink.joint.joint_training import (
    NEGATIVES,
    SPARSE_SQUARES,
    JointRows,
    JointWeights,
    row_weights,
    select_entries,
    sparse_pattern,
    train,
)
from smoothlink.joint.negatives import SampledState, SampledStep, sparse_places
from smoothlink.living.replay import ADAGRAD, REPLAYED_ROWS, Replay, Training, unit
from smoothlink.machines.arrays import log_sums, sigmoid
from smoothlink.machines.rows import Rows, row_hash
from smoothlink.model import DecoderInputs, Model
from smoothlink.solve.cholesky import GramSystem
from smoothlink.steps.calibrate import Prior, minimise, no_calibration
from smoothlink.steps.sgd import SGDState, sgd_passes
from smoothlink.steps.squared import LinkSums, link_sums, squared
from smoothlink.weights import ArrayWeights

Array = NDArray[Any]

HELD_SHARE, MOST_HELD_SHARE, HELD_ROWS = 0.05, 0.2, 500  # of new rows: a share, or more until they are so many
LEAST_HELD_ROWS = 50  # fewer compare and calibrate nothing
FEW_NEW_ROWS = 8  # of a new label, of which a ridge finds more than the steps of an SGD
LEAST_ROWS = 4  # of each of its labels that must be left for training where a row is held out
REPLAYED_PER_ROW = {"joint": 1, "stepwise": 8, "finetune": 8}  # old rows for each new one: decision 46
LEAST_REPLAYED = 2000  # but so many at least
JOINT_PASSES = 1
JOINT_RATE = 0.5  # of the rate of the fit
SGD_PASSES = 6
SGD_DECAYED = 10  # passes of a fit after which its rate is that of the first pass here
RIDGES = (0.01, 0.1, 1.0, 10.0)  # of new labels
EARLY_GRADIENTS = 1.5  # sums of squared gradients of a fit, over what its passes have at its end: the first are larger
COMPARED_ROWS = 4000  # whose scores without themselves choose among them


class Continued(NamedTuple):
    """A model after training went on."""

    model: Model
    replay: Replay
    method: str  # "ridge" or "sgd"
    compared: dict[str, dict[str, float]]  # of both: the criterion and P@k on held-out rows; empty where rows were few
    calibrated: Calibrated | None = None  # by the held-out rows; None where they were few


def continue_training(
    model: Model,
    replay: Replay,
    X: Any,
    Y: sp.csr_array,
    w: Array | None = None,
    *,
    seed: int = 0,
    methods: tuple[str, ...] | None = None,
    rows: int = REPLAYED_ROWS,
) -> Continued:
    """Returns the model after training with raw rows X (n, d), labels Y (n, c) and weights w (n,) that are new, and the
    store for the next time. Labels of Y from `model.n_labels` on, and those that had no rows so far, are new; there may
    be none. `methods` are tried; None: all that the model can."""
    Y, w = sp.csr_array(Y), np.ones(X.shape[0]) if w is None else np.asarray(w, np.float64)
    possible = methods_of(model, replay.training)
    methods = possible if methods is None else methods
    if not methods or not set(methods) <= set(possible):
        raise ValueError(f"methods is {methods!r}; for this model possible are {', '.join(map(repr, possible))}.")
    check_rows(model, replay, X, Y, w)
    new = Replay.of(X, Y, w, replay.training, replay.key).scaled(model)
    if replay.training.calibrate:
        new = replace(new, held=rows_to_hold_out(new, model.counts, seed))
    pool, labels = replay.joined(new), new_labels(model, new)
    old = widen(model, new, labels)
    held, recent = pool.take(pool.held), np.arange(len(pool)) >= len(replay)
    some = with_replayed(pool, recent, seed)
    started = add_ridge_columns(old, some, labels, seed)
    found = {"ridge": (started, replay.with_labels(started.n_labels).optimiser)}
    if "sgd" in methods:
        go_on = joint_steps if replay.training.learner == "joint" else decoder_steps
        found["sgd"] = go_on(started, some, found["ridge"][1], seed)
    found = {name: found[name] for name in methods}
    compare = len(held) >= LEAST_HELD_ROWS and replay.training.calibrate
    calibrated = {name: calibrate_on(each, held) for name, (each, _) in found.items()} if compare else {}
    if compare:
        method = min(calibrated, key=lambda name: calibrated[name].criterion)
    else:  # what found more in made data (decision 46); a ridge learns new labels alone
        few = len(labels) > 0 and (model.multiclass or (new.w @ new.Y)[labels].mean() <= FEW_NEW_ROWS)
        prefers_ridge = replay.training.learner != "joint" and few
        method = methods[0 if prefers_ridge else -1]
    best, optimiser = found[method]
    if compare:
        by = calibrated[method]
        maps: dict[str, Any] = {"thresholds": by.thresholds, "threshold": by.threshold, "reference": by.reference}
        best = replace(best, calibration=by.calibration, **maps)
    compared = {name: {"criterion": by.criterion, **(by.metrics or {})} for name, by in calibrated.items()}
    kept = replace(pool, optimiser=optimiser).thinned(rows)
    return Continued(best, kept, method, compared, calibrated.get(method))


def replay_store(
    X: Any,
    Y: sp.csr_array,
    w: Array | None,
    model: Model,
    seed: int,
    *,
    training: Training,
    groups: Array | None = None,
    held: Array | None = None,
    rows: int = REPLAYED_ROWS,
) -> Replay:
    """Returns what the fit of a model to raw rows X (n, d), labels Y (n, c) and weights w (n,) keeps of them. held: the
    numbers of rows that training has not seen; None: those of a fit of this seed and groups (n,)."""
    Y, w = sp.csr_array(Y), np.ones(X.shape[0]) if w is None else np.asarray(w, np.float64)
    if held is None:
        held = few_rows(w, seed, groups) if training.calibrate and embeds_once(w) else NOTHING
    held = np.isin(np.arange(len(w)), held)
    key = int(np.random.default_rng([seed, 15]).integers(2**62))
    whole = replace(Replay.of(X, Y, w, training, key), held=held)
    kept = whole.take(w > 0).thinned(rows).scaled(model)
    return replace(kept, optimiser=squared_gradients(model, kept, seed)) if training.learner == "joint" else kept


def calibrate_on(model: Model, held: Replay) -> Calibrated:
    """Returns the calibration that rows give which the model was not trained on."""
    model = replace(model, calibration=no_calibration())
    return calibrate_model(model, model.embed_scaled_rows(held.X), held.Y, held.w, held.training.threshold_aim)


def methods_of(model: Model, training: Training) -> tuple[str, ...]:
    """Returns by which methods a model's training can go on. SGD over V alone knows nothing of sparse weights beside
    it, which fine-tuned models may have."""
    return ("ridge", "sgd") if training.learner == "joint" or model.sparse_weights is None else ("ridge",)


def check_rows(model: Model, replay: Replay, X: Any, Y: sp.csr_array, w: Array) -> None:
    """Raises ValueError for rows that the model cannot go on with."""
    d, (n, c) = replay.X.shape[1] - 1, Y.shape
    if X.shape[1] != d:
        raise ValueError(f"X has {X.shape[1]:,} columns, and the model was trained with {d:,}; pass the same columns.")
    if X.shape[0] != n or len(w) != n:
        raise ValueError(f"X has {X.shape[0]:,} rows, Y {n:,} and the weights {len(w):,}; they must be as many.")
    if not n:
        raise ValueError("There are no rows to go on with; pass at least one.")
    if c < model.n_labels:
        raise ValueError(f"Y has {c:,} labels, and the model knows {model.n_labels:,}; pass these, then the new ones.")
    if replay.Y.shape[1] != model.n_labels:
        raise ValueError(f"The replayed rows have {replay.Y.shape[1]:,} labels, and the model {model.n_labels:,}.")
    weights = 0 if model.sparse_weights is None else model.sparse_weights.size
    if replay.optimiser and len(replay.optimiser["d_squares"]) != weights:
        raise ValueError(
            f"The stored optimiser knows {len(replay.optimiser['d_squares']):,} sparse weights, and the model has "
            f"{weights:,}: it is of another model, or of one that was saved without its smallest weights.\n"
            "Train again."
        )
    if not (np.isfinite(w).all() and (w >= 0).all() and (w > 0).any()):
        raise ValueError("Weights must be finite, not below zero and not all zero.")
    if model.multiclass and not (np.diff(Y.indptr) == 1).all():
        raise ValueError("The model knows one label per row, and some rows of Y have several or none.")
    if model.loss == "squared":
        raise ValueError("The model has the squared loss, whose updates are exact: use `update` instead.")


def rows_to_hold_out(new: Replay, counts: Array, seed: int) -> Array:
    """Returns which new rows (n,) are kept out of training: few, and none whose labels have next to no other rows."""
    n = len(new)
    v = unit(row_hash(new.u, seed + 1))
    held = v < np.clip(HELD_ROWS / n, HELD_SHARE, MOST_HELD_SHARE)
    held &= new.w > 0
    totals = np.zeros(new.Y.shape[1])
    totals[: len(counts)] = counts
    totals += new.w @ new.Y
    left = totals - (new.w * held) @ new.Y
    scarce = np.maximum.reduceat(np.append(left[new.Y.indices] < LEAST_ROWS, False), new.Y.indptr[:-1])
    held &= ~(scarce & (np.diff(new.Y.indptr) > 0))
    return held if held.sum() >= LEAST_HELD_ROWS else np.zeros(n, bool)


def with_replayed(pool: Replay, recent: Array, seed: int) -> Replay:
    """Returns the recent rows of the pool and some old ones for each, or all there are: each row of the fit has the
    same chance to be among these, which is in `share`."""
    old = ~recent & ~pool.held
    wanted = max(LEAST_REPLAYED, REPLAYED_PER_ROW[pool.training.learner] * int(np.count_nonzero(recent & ~pool.held)))
    chance = min(1.0, wanted / max(1e-30, (1 / pool.share[old]).sum()))
    chosen = old & (unit(row_hash(pool.u, seed + 2)) < chance / pool.share)
    share = np.where(chosen, np.minimum(pool.share, chance), pool.share)
    return replace(pool, share=share).take(chosen | (recent & ~pool.held))


def new_labels(model: Model, new: Replay) -> Array:
    """Returns the numbers of the labels of new rows that no row had before, and of all that the model does not know."""
    known, has = np.zeros(new.Y.shape[1], bool), (new.w @ new.Y) > 0
    known[: model.n_labels] = (model.counts > 0) | ~has[: model.n_labels]
    return np.flatnonzero(~known)


def widen(model: Model, new: Replay, labels: Array) -> Model:
    """Returns the model with the counts of the new rows added and columns of V, which are 0, for those of the labels
    that it does not know. A new label has the map and the threshold of the label whose count is nearest."""
    more = new.Y.shape[1] - model.n_labels
    counts = np.append(model.counts, np.zeros(more)) + new.w @ new.Y
    known = np.flatnonzero(model.counts > 0)  # labels without rows, new ones among them, have no map of their own
    distances = np.abs(np.log(model.counts[known] + 0.5)[None] - np.log(counts[labels] + 0.5)[:, None])
    near = known[distances.argmin(axis=1)] if len(labels) else labels
    maps = model.calibration.labels
    if maps is not None:
        maps = np.hstack([maps, np.zeros((len(maps), more), maps.dtype)])
        maps[:, labels] = maps[:, near]
    thresholds = np.append(model.thresholds, np.zeros(more))
    thresholds[labels] = thresholds[near]
    V, reference = np.asarray(model.V), model.reference
    if reference is not None:
        reference = reference._replace(labels=np.append(reference.labels, np.zeros(more, reference.labels.dtype)))
    return replace(
        model,
        W=None if model.W is None else ArrayWeights(np.asarray(model.W)),
        V=ArrayWeights(np.hstack([V, np.zeros((len(V), more), np.float32)]) if more else V),
        calibration=model.calibration._replace(labels=maps),
        thresholds=thresholds,
        counts=counts,
        total=float(model.total + new.w.sum()),
        reference=reference,
        verification=None,
    )


# A ridge decoder over the frozen embedding


def add_ridge_columns(model: Model, rows: Replay, labels: Array, seed: int) -> Model:
    """Returns the model with V of these labels by ridge regression, as log-odds: a + b s of a score s, where a and b
    follow from the label's frequency and were fitted to scores of rows that had no part in them."""
    if not len(labels):
        return model
    inputs = model.featurize(model.embed_scaled_rows(rows.X))
    H, Y = embedded(model, rows), sp.csr_array(rows.Y[:, labels])
    weight = rows.w / rows.share
    sums = link_sums(Rows.of(H, Y, weight), model.features)
    some = compared_rows(Y, seed)
    Phi = np.ascontiguousarray(inputs.Phi[some])
    best: tuple[float, Array, Array] | None = None
    absent = float(weight[np.diff(Y.indptr) == 0].sum())
    place = np.log(np.maximum(model.counts[labels], 0.5) / model.total)
    offsets = class_offsets(model, inputs, some, labels)
    for ridge in RIDGES:
        V = squared(sums._replace(gram=GramSystem(sums.gram.G.copy())), ridge)
        S = without_themselves(sums, ridge, V, Phi, Y[some], weight[some])
        value, theta = log_odds_map(S, Y[some], place, offsets, absent)
        if best is None or value < best[0]:
            best = value, V, theta
    assert best is not None
    _, V, (a, e, b, f) = best
    V = V * (b + f * place).astype(np.float32)
    V[-1] += a + e * place
    whole = np.array(model.V)
    whole[:, labels] = V
    return replace(model, V=ArrayWeights(whole))


def embedded(model: Model, rows: Replay) -> Array:
    """Returns h (n, k) of scaled rows; those without features have 0."""
    return np.nan_to_num(model.embed_scaled(rows.X), copy=False)


def compared_rows(Y: sp.csr_array, seed: int) -> Array:
    """Returns numbers of rows, those that have a label first: some of each kind."""
    rng, has = np.random.default_rng([seed, 16]), np.diff(Y.indptr) > 0
    parts = [rng.permutation(np.flatnonzero(kind))[: COMPARED_ROWS // 2] for kind in (has, ~has)]
    return np.concatenate(parts)


def class_offsets(model: Model, inputs: DecoderInputs, some: Array, labels: Array) -> Array:
    """Returns log sum exp (m, 1) of the scores in some rows of classes that are trained and not among the new labels:
    that against which a new class must win. In multilabel models each label stands alone, and it is 0."""
    if not model.multiclass:
        return np.zeros((len(some), 1))
    others = np.setdiff1d(np.flatnonzero(~model.untrained), labels)
    S = model.V.scores(np.ascontiguousarray(inputs.Phi[some]), others)
    if model.sparse_weights is not None and inputs.X is not None:
        model.sparse_weights.add(S, inputs.X[some], others, model.n_labels)
    return np.asarray(log_sums(S.astype(np.float64)))


def without_themselves(sums: LinkSums, ridge: float, V: Array, Phi: Array, Y: sp.csr_array, w: Array) -> Array:
    """Returns the scores (m, c) of rows Phi (m, s + 1) in a ridge regression without each of them: s less the leverage
    times the residual over what is left of it."""
    solve = GramSystem(sums.gram.G.copy()).at(ridge)
    leverage = w * np.einsum("ij,ji->i", Phi.astype(np.float64), solve(Phi.T.astype(np.float64)))
    S, left = Phi @ V, np.maximum(1 - leverage, 1e-3)[:, None]
    return np.asarray((S - leverage[:, None] * Y.toarray()) / left)


def log_odds_map(S: Array, Y: sp.csr_array, place: Array, offsets: Array, absent: float) -> tuple[float, Array]:
    """Returns the log-loss of log-odds a + e u + (b + f u) s for scores S (m, c) of labels at places u (c,), by the
    logistic regression of whether rows have labels, and its weights a, e, b, f. The rows that have none of the labels
    stand for a weight of `absent`."""
    true, has = Y.toarray() > 0, np.diff(Y.indptr) > 0
    weight = np.where(has, 1.0, absent / max(1, (~has).sum()))[:, None] * np.ones(S.shape)
    U = np.broadcast_to(place, S.shape)
    terms = np.stack([np.ones(S.shape), U, S, U * S], axis=-1, dtype=np.float64).reshape(-1, 4)
    y, w, others = true.ravel(), weight.ravel(), np.broadcast_to(-offsets, S.shape).ravel()

    def descent(theta: Array) -> tuple[float, Array, Array]:
        z = terms @ theta + others
        p = sigmoid(z.copy())
        value = float(w @ (np.logaddexp(0, z) - y * z))
        return value, terms.T @ (w * (p - y)), (terms.T * (w * p * (1 - p))) @ terms

    prior = Prior(np.array([0.0, 1.0, 4.0, 0.0]), np.full(4, -np.inf), np.full(4, 0.1))
    theta = minimise(descent, prior)
    return descent(theta)[0], theta


# Steps of the learner


def decoder_steps(model: Model, rows: Replay, optimiser: dict[str, Array], seed: int) -> tuple[Model, dict[str, Array]]:
    """Returns the model after passes of SGD over V, from the V that is there."""
    training = rows.training
    data = Rows.of(embedded(model, rows), rows.Y, rows.w / rows.share)
    sgd = training.sgd._replace(learning_rate=training.learning_rate * training.decay**SGD_DECAYED)
    passes = sgd_passes(
        data,
        model.features,
        link_sums(data, model.features),
        training.final_ridge,
        softmax=model.loss == "softmax",
        sgd=sgd,
        seed=seed,
        run=SGDState(wanted=SGD_PASSES),
        begin=np.asarray(model.V),
    )
    for _ in range(SGD_PASSES):
        V = next(passes)
    return replace(model, V=ArrayWeights(np.ascontiguousarray(V))), optimiser


def joint_steps(model: Model, rows: Replay, optimiser: dict[str, Array], seed: int) -> tuple[Model, dict[str, Array]]:
    """Returns the model after passes of joint training with sampled negatives, and the sums of squared gradients."""
    step, batches = sampled_step(model, rows, seed, optimiser)
    step.find_hard_negatives()
    rate = JOINT_RATE * rows.training.rate
    for _ in sampled_passes(step, batches, JOINT_PASSES, rate, lambda share: None):
        pass
    weights = step.weights()
    model = replace(
        model, W=ArrayWeights(weights.W), V=ArrayWeights(weights.V), sparse_weights=weights.D, features=weights.features
    )
    return model, sums_of(step)


def sums_of(step: SampledStep) -> dict[str, Array]:
    """Returns the sums of squared gradients of a step, those of the sparse weights in the order of the model's."""
    s = step.state
    by_label = sp.csc_array((s.d_squares, step.features, step.indptr), step.shape)
    found = s.w_squares, s.v_squares, s.b_squares, select_entries(by_label, s.D != 0).tocsr().data
    return dict(zip(ADAGRAD, found, strict=True))


def sampled_step(
    model: Model, rows: Replay, seed: int, optimiser: dict[str, Array] | None = None
) -> tuple[SampledStep, RowBatches]:
    """Returns the step of joint training that begins at a model's weights, and batches of these rows."""
    training, X = rows.training, rows.X
    live = np.flatnonzero((rows.w > 0) & (np.diff(X.indptr) > 1))
    pattern = sparse_pattern(X, rows.Y, live, NEGATIVES.frequent if training.sparse_weights else None)
    D = model.sparse_weights
    if D is not None:
        known = sp.csr_array((np.ones(D.size, np.int8), D.labels.astype(np.int32), D.indptr), pattern.shape)
        pattern = sp.csr_array(pattern + known)
    groups = cluster_rows(embedded(model, rows), live, CLUSTER_ROWS, seed)
    weights = JointWeights(np.asarray(model.W), model.features, np.asarray(model.V), D, model.normalize)
    state = SampledState.of_weights(weights, pattern, len(groups))
    if optimiser:
        state = replace(state, **{name: optimiser[name].copy() for name in ADAGRAD[:3]})
        if D is not None:
            state.d_squares[sparse_places(D, pattern)] = optimiser["d_squares"]
    w = np.asarray(rows.w, np.float32)
    data = JointRows(X[:, :-1], rows.Y, w if model.multiclass else row_weights(w, rows.Y), model.multiclass)
    batches = RowBatches.of_groups(groups, training.batch_rows or NEGATIVES.batch_rows, seed)
    return SampledStep(data, pattern, batches, state, training.negatives), batches


def squared_gradients(model: Model, rows: Replay, seed: int) -> dict[str, Array]:
    """Returns about what the sums of squared gradients of a fit are at its end: those of a pass over the kept rows that
    moves nothing, times how often the fit passed by all."""
    rows = rows.take(~rows.held)
    step, batches = sampled_step(model, rows, seed)
    step.find_hard_negatives()
    for _ in train(step, batches, 1, 0.0, 1, lambda share: None):
        pass
    passes, kept = EARLY_GRADIENTS * rows.training.passes, np.maximum(rows.w @ rows.Y, 1e-30)
    of_label = (passes * np.maximum(1.0, model.counts / kept)).astype(np.float32)
    everywhere = np.float32(passes * max(1.0, model.total / max(rows.w.sum(), 1e-30)))
    D, found = model.sparse_weights, sums_of(step)
    labels = np.zeros(0, np.int64) if D is None else D.labels
    factors = everywhere, of_label, of_label, of_label[labels]
    starts = 0, 0, 0, SPARSE_SQUARES
    return {name: b + f * (found[name] - b) for name, f, b in zip(ADAGRAD, factors, starts, strict=True)}
