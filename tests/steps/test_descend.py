"""Frames, blocks of labels and stops change nothing about where a descent goes."""

from itertools import islice

import numpy as np
import pytest
from embedded import Embedded
from problems import home, relative_error

from smoothlink.machines.arrays import half_product
from smoothlink.machines.decoder_state import LABELS
from smoothlink.steps import sgd as descend
from smoothlink.steps.sgd import SGD, SGDState, coordinates_of, rotation_pays, sgd_passes
from smoothlink.steps.squared import Smoothing


@pytest.fixture(params=[False, True], ids=["plain", "turned"])
def turned(request, monkeypatch):
    """Whether the features of batches are turned to the axes of their covariance."""
    monkeypatch.setattr(descend, "turning_pays", lambda *_: request.param)
    return request.param


# In a turned frame


@pytest.mark.parametrize("multiclass", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("share", [1.0, 0.8])  # of a smoothed label
def test_a_turned_frame_takes_the_same_steps(rng, machine, monkeypatch, multiclass, momentum, share):
    e = Embedded(rng, machine=machine, multiclass=multiclass)
    smoothing = Smoothing.of(share, 6, multiclass=multiclass)
    found = []
    for turn in (False, True):
        monkeypatch.setattr(descend, "turning_pays", lambda *_, turn=turn: turn)
        knobs = SGD(learning_rate=0.7, momentum=momentum, decay=0.8, batch=32)
        found.append(e.fitted(3, 0.1, knobs, softmax=multiclass, smoothing=smoothing, seed=5))
    assert relative_error(found[1], found[0]) < 2e-3
    assert np.abs(found[0][:-1]).max() > 0.1  # it went somewhere


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_a_frame_is_another_view_of_the_same_system(rng, machine, kernel):
    e = Embedded(rng, machine=machine, kernel=kernel)
    sums = e.sums()
    plain, turned = (coordinates_of(sums, 0.1, turned=turn, half=False) for turn in (False, True))
    assert turned.freedom == pytest.approx(plain.freedom, rel=1e-4)
    V = rng.standard_normal((e.Phi.shape[1], 3)).astype(np.float32)
    Phi = e.Phi.astype(np.float32)
    seen = home(turned.turn(machine.place(Phi.copy())))
    np.testing.assert_allclose(Phi @ home(turned.back(machine.place(V))), seen @ V, atol=1e-3)
    # There the weighted features have a diagonal Gram matrix, which M and the ridge go with.
    G = seen.T.astype(np.float64) @ (e.w[:, None] * seen)
    exact = np.diag(1 / (np.diag(G) + home(turned.rho)[:, 0]))
    np.testing.assert_allclose(np.linalg.inv(G + np.diag(home(turned.rho)[:, 0])), exact, atol=2e-3 * exact.max())
    np.testing.assert_allclose(home(turned.M)[:, 0], np.diag(exact), rtol=1e-2)


def test_the_plain_frame_leaves_features_and_weights_alone(rng, machine):
    frame = coordinates_of(Embedded(rng, machine=machine).sums(), 0.1, turned=False, half=False)
    A = machine.place(rng.standard_normal((4, 26)).astype(np.float32))
    assert frame.turn(A) is A
    assert frame.back(A) is A


def test_features_that_are_all_alike_turn_to_nothing(rng, machine, turned):
    e = Embedded(rng, machine=machine)
    e.H[:] = e.H[0]
    V = e.fitted(2, 0.1, SGD(batch=40))
    assert np.isfinite(V).all()
    scores = e.features(e.H[:1]) @ V
    shares = 1 / (1 + np.exp(-scores[0]))
    np.testing.assert_allclose(shares, e.w @ e.labels / e.w.sum(), atol=0.05)


@pytest.mark.parametrize(
    ("n", "c", "s", "batch", "pays"),
    [
        (2_400_000, 325_000, 4001, 37_500, True),  # LSHTC
        (1_000_000, 100_000, 301, 15_625, True),  # ODP
        (4880, 159, 2001, 488, False),  # bibtex: few labels
        (100, 1000, 4001, 10, False),  # few rows: the axes cost more than they save
    ],
)
def test_turning_pays_where_labels_are_many_and_steps_too(n, c, s, batch, pays):
    assert rotation_pays(n, c, s, batch) == pays


def test_off_a_card_nothing_is_rounded(rng, machine):
    A, B = (machine.place(rng.standard_normal((5, 5)).astype(np.float32)) for _ in range(2))
    assert half_product(A) is A
    np.testing.assert_array_equal(home(half_product(A, B)), home(A @ B))


# Blocks of labels


@pytest.mark.parametrize("multiclass", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_blocks_of_labels_do_not_matter(rng, machine, monkeypatch, turned, multiclass, momentum):
    c = 2 * LABELS + 22
    e = Embedded(rng, n=300, c=c, machine=machine, multiclass=multiclass)
    knobs = SGD(momentum=momentum, batch=50)
    whole = e.fitted(2, 0.1, knobs, softmax=multiclass)
    monkeypatch.setattr(type(machine), "scores", lambda self: 1)
    assert relative_error(e.fitted(2, 0.1, knobs, softmax=multiclass), whole) < 1e-4


# Stops


@pytest.mark.parametrize("multiclass", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("through_files", [False, True])
def test_a_descent_that_was_stopped_goes_on_exactly(rng, machine, turned, multiclass, momentum, through_files):
    e = Embedded(rng, machine=machine, multiclass=multiclass)
    rows, sums = e.rows(), e.sums()

    def passes(run):
        knobs = SGD(momentum=momentum, batch=40, decay=0.7)
        return sgd_passes(rows, e.features, sums, 0.1, softmax=multiclass, descent=knobs, seed=3, run=run)

    known = np.array(home(next(islice(passes(None), 3, None))))
    run = SGDState()
    next(islice(passes(run), 1, None))
    assert run.sweep == 2
    assert (run.velocity is None) == (momentum == 0)
    if through_files:
        run = SGDState(*(None if A is None else np.array(home(A)) for A in (run.V, run.velocity)), run.sweep)
    found = home(next(islice(passes(run), 1, None)))
    assert run.sweep == 4
    np.testing.assert_array_equal(found, known)
