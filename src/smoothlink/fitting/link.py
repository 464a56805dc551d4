"""The explicit fit of Algorithm 3: rows and complete settings -> a model. Nothing is chosen here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothlink.fitting.calibration import Calibrated
from smoothlink.fitting.checkpoint import FitState, checksum
from smoothlink.fitting.device_memory import check_link
from smoothlink.fitting.embedding import Embedded
from smoothlink.fitting.settings import Clock, Problem, Settings
from smoothlink.machines.arrays import take_rows, to_device_of, to_host
from smoothlink.machines.rows import Rows
from smoothlink.machines.seeded_numbers import derive_seed
from smoothlink.model import Model
from smoothlink.solve.cholesky import GramSystem
from smoothlink.steps.embed import label_counts
from smoothlink.steps.featurize import MEDIAN_ROWS, Features, draw_features, median_squared_distance
from smoothlink.steps.sgd import SGDState, sgd_passes
from smoothlink.steps.squared import LinkSums, link_sums, squared, squared_parts
from smoothlink.weights import ArrayWeights, Weights

Array = NDArray[Any]


class Link(NamedTuple):
    """Random features of embedded rows, and their sums Phi'Phi and Phi'Y."""

    rows: Any  # whose inputs are embeddings
    features: Features
    sums: Any  # `LinkSums`
    held: Any = None  # (h, k) embeddings of held-out rows, where there are any
    labels: Any = None  # numbers of the labels by which settings are compared
    held_features: Any = None  # {count: Phi of the first `count` held-out rows}, made once for all V
    frequencies: Any = None  # (c,) of the labels
    V: Any = None  # (s + 1, c) by the squared loss with the final ridge of the settings, where a trial fitted it


class FittedLink(NamedTuple):
    """A fit of Algorithm 3: an embedding, the link of its rows, and V."""

    embedded: Embedded
    link: Link
    V: Weights


def fit_link(
    problem: Problem, rows: Rows, settings: Settings, calibrated: Calibrated, clock: Clock, embedded: Rows | None = None
) -> tuple[Model, Embedded]:
    """Embeds, featurizes and fits the rows of positive weight; returns the model and its embedding.

    embedded: the same rows with other weights, if W and the random features are to come from those.
    """
    state, some = problem.state, rows if embedded is None else embedded
    check_link(rows, settings)
    with clock.step("embed"):
        found = settings.embedder.fit_saved(state, "embed", some, settings.ridge, settings.rank, settings.normalize)
    with clock.step("featurize"):
        rows, features = rows.with_inputs(found.H), random_features(some.with_inputs(found.H), settings)
        link = Link(rows, features, saved_sums(state, "featurize", rows, features))
    with clock.step("fit"):
        V = decode(link, settings, state, clock)
    return link_model(problem, rows, FittedLink(found, link, V), settings, calibrated), found


def with_held_rows(link: Link, rows: Rows, held: Array) -> Link:
    """Returns the link of all `rows`, from that of the rows that are not held out, whose sums are added to in place."""
    whole = rows.with_inputs(link.rows.table)
    more, G, targets = link_sums(whole.take(held), link.features), link.sums.gram.G, link.sums.targets
    G += more.gram.G
    targets += to_device_of(targets, more.targets)
    return Link(whole, link.features, LinkSums(GramSystem(G), targets, link.sums.weight + more.weight))


def link_model(problem: Problem, rows: Rows, fitted: FittedLink, settings: Settings, calibrated: Calibrated) -> Model:
    """Returns the model of a fit; label frequencies are those of `rows`."""
    embedded, link, V = fitted
    return Model(
        scaling=problem.scaling,
        input_features=problem.inputs.features,
        W=None if embedded.W is None else ArrayWeights(problem.inputs.weights(to_host(embedded.W)[:, : settings.rank])),
        classifier=embedded.classifier,
        normalize=settings.normalize,
        features=link.features,
        V=V,
        loss=settings.loss,
        multiclass=problem.multiclass,
        calibration=calibrated.calibration,
        thresholds=calibrated.thresholds,
        threshold=calibrated.threshold,
        reference=calibrated.reference,
        **label_totals(rows),
        trees=problem.inputs.trees,
    )


def label_totals(rows: Rows) -> dict[str, Any]:
    """Returns the label frequencies that a model holds: weighted counts (c,), and the total weight."""
    counts = rows.sum(label_counts, out=(rows.c,), dtype=np.float64)
    return {"counts": counts, "total": float(rows.w.sum(dtype=np.float64))}


def random_features(rows: Rows, settings: Settings) -> Features:
    """Returns random features for embedded rows: the same seed gives the same draws up to their scale."""
    H, sample, linear = rows.table, rows.sample(MEDIAN_ROWS, settings.seed), settings.kernel.name == "linear"
    length = 1.0 if linear else median_squared_distance(to_host(take_rows(H, sample)), rows.w[sample])
    seed = derive_seed(settings.seed, 2)
    return draw_features(settings.kernel, H.shape[1], settings.features, length, settings.bandwidth, seed)


def saved_sums(state: FitState, name: str, rows: Rows, features: Features) -> LinkSums:
    """Returns `link_sums` at full size: from a saved state, and into a file, where `state` says so."""
    state.trim()
    labels = np.zeros(0, np.int64) if rows.writes_decoder else None  # `write_decoder` sums the targets then
    group = state.plan.label_group
    into = None if group is None else state.array(f"{name}-targets", (rows.c, features.width(rows.d)))
    found = link_sums(rows, features, labels=labels, into=into, group=group, saved=state.sums(name))
    if into is None and not rows.machine.keeps(4 * rows.c * features.width(rows.d)):
        found = found._replace(targets=to_host(found.targets.T).T)
    state.trim()
    return found


def decoder_passes(link: Link, settings: Settings, run: SGDState | None = None) -> Any:
    """Returns an iterator over V after each pass of the SGD, without end: the caller stops."""
    return link.rows.decoder_passes(
        sgd_passes,
        link.features,
        link.sums,
        settings.final_ridge,
        softmax=settings.loss == "softmax",
        sgd=settings.sgd,
        smoothing=settings.smoothing,
        seed=settings.seed,
        run=run,
    )


def decode(link: Link, settings: Settings, state: FitState, clock: Clock) -> Weights:
    """Returns V by the loss of the settings, over all rows."""
    if link.rows.writes_decoder:
        return link.rows.write_decoder(link.features, link.sums, settings)
    if settings.loss == "squared" and state.plan.label_group is None and not state.saves:
        V = squared(link.sums, settings.final_ridge, settings.smoothing)
        return ArrayWeights(np.ascontiguousarray(to_host(V)))
    if settings.loss == "squared":
        return ArrayWeights(decode_in_file(link, settings, state, clock))
    run, saved = SGDState(), state.load("fit")
    if saved is not None:
        run = SGDState(saved[1]["V"], saved[1].get("velocity"), saved[0]["passes"])
    run.wanted = 0 if state.saves else settings.passes
    passes = decoder_passes(link, settings, run)
    V = None if saved is None else saved[1]["decoded"]
    while run.passes < max(1, settings.passes):
        if run.passes:
            clock.progress("fit", run.passes / settings.passes)
        V = next(passes)
        if state.saves:
            velocity = {} if run.velocity is None else {"velocity": to_host(run.velocity)}
            state.save("fit", {"passes": run.passes}, V=to_host(run.V), decoded=to_host(V), **velocity)
    return ArrayWeights(np.ascontiguousarray(to_host(V)))


def decode_in_file(link: Link, settings: Settings, state: FitState, clock: Clock) -> Array:
    """Returns V of the squared loss, fitted a block of labels at a time in a file that the model maps."""
    s, c = link.sums.targets.shape
    file, saved = state.saved_array("decoder", (s, c)), state.load("fit")
    ends: list[list[int]] = [] if saved is None else saved[0]["blocks"]  # last label and checksum of each block done
    done = 0
    for end, known in ends:
        if checksum(file.columns(slice(done, end))) != known:
            raise state.damaged("decoder.array", f"labels {done} to {end - 1} are not those that were written")
        done = end
    for labels, part in squared_parts(link.sums, settings.final_ridge, settings.smoothing, done):
        part = to_host(part)
        file.put_columns(labels, part)
        if state.saves:
            file.flush()
            ends.append([labels.stop, checksum(part)])
        state.save("fit", {"blocks": ends})
        clock.progress("fit", labels.stop / c)
    return file.mapped()
