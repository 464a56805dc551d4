"""SGD as on a GPU, run on the processor: padded sizes and an intercept that stays float32 change no step."""

from itertools import islice

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from cards import pretend, to_halves
from embedded import Embedded
from problems import home, relative_error

from smoothlink.machines.decoder_state import (
    FEATURE_MULTIPLE,
    LABEL_MULTIPLE,
    DecoderState,
    HalfDecoderState,
    decoder_state,
    padded,
)
from smoothlink.machines.host_and_device import HOST, Device
from smoothlink.steps.sgd import SGD, SGDState, sgd_passes
from smoothlink.steps.squared import Smoothing

pytestmark = pytest.mark.usefixtures("as_on_a_card")


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize(
    ("multiclass", "momentum", "s", "c"), [(False, 0.9, 25, 6), (False, 0.0, 7, 64), (True, 0.9, 39, 150)]
)
def test_a_gpu_takes_the_steps_of_the_host(rng, monkeypatch, rotated, fused, multiclass, momentum, s, c):
    e = Embedded(rng, n=200, s=s, c=c, multiclass=multiclass)
    smoothing = Smoothing.of(0.9, c, multiclass=multiclass)

    def fitted(machine):
        e.machine = machine
        sgd = SGD(momentum=momentum, batch=40)
        return e.fitted(2, 0.1, sgd, softmax=multiclass, smoothing=smoothing, rotated=rotated)

    known, gpu = fitted(HOST), pretend(monkeypatch, fused=fused)
    assert relative_error(fitted(gpu), known) < 1e-3
    monkeypatch.setattr(type(gpu), "scores", lambda self: 1)  # blocks of 64 labels
    assert relative_error(fitted(gpu), known) < 1e-3


@pytest.mark.parametrize(("multiclass", "rotated", "fused"), [(False, True, True), (True, False, False)])
def test_sgd_on_a_gpu_that_was_stopped_goes_on_exactly(rng, monkeypatch, rotated, fused, multiclass):
    e = Embedded(rng, machine=pretend(monkeypatch, fused=fused), multiclass=multiclass)
    rows, sums = e.rows(), e.sums()

    def passes(run):
        given = {"softmax": multiclass, "sgd": SGD(batch=40), "rotated": rotated}
        return sgd_passes(rows, e.features, sums, 0.1, run=run, **given)

    known = home(next(islice(passes(None), 3, None))).copy()
    run = SGDState()
    next(islice(passes(run), 1, None))
    assert tuple(run.V.shape) == tuple(run.velocity.shape) == (26, 6)  # without what pads them
    run = SGDState(np.array(home(run.V)), np.array(home(run.velocity)), run.passes)
    np.testing.assert_array_equal(home(next(islice(passes(run), 1, None))), known)


def test_a_device_too_small_for_another_v_yields_it_on_the_host_and_only_where_it_is_wanted(rng):
    e, found = Embedded(rng), []
    for machine in (HOST, Device("cpu", 64)):
        e.machine = machine
        run = SGDState(wanted=3)
        passes = sgd_passes(e.rows(), e.features, e.sums(), 0.1, softmax=False, rotated=True, run=run)
        assert [next(passes), next(passes)] == [None, None]
        found.append(next(passes))
    assert type(found[1]) is np.ndarray
    assert relative_error(found[1], found[0]) < 1e-4


def parts(rng, s=10, c=70, momentum=True):
    """V with a large intercept, velocity, targets and p."""
    V, velocity, targets = (rng.standard_normal((s + 1, c)).astype(np.float32) for _ in range(3))
    V[-1] = -5.4321
    return V, velocity if momentum else None, targets, np.full((1, c), 0.01, np.float32)


def test_the_form_of_the_state_follows_the_machine(rng, monkeypatch):
    given = parts(rng)
    assert type(decoder_state(*given, HOST)) is DecoderState
    there = [torch.tensor(A) for A in given]
    assert type(decoder_state(*there, Device("cpu", 1))) is DecoderState
    assert type(decoder_state(*there, pretend(monkeypatch))) is HalfDecoderState


@pytest.mark.parametrize(("s", "c"), [(10, 70), (7, 64), (8, 1)])
def test_padding_is_a_multiple_and_is_not_in_the_result(rng, monkeypatch, s, c):
    given = [torch.tensor(A) for A in parts(rng, s, c)]
    state = decoder_state(*given, pretend(monkeypatch))
    assert state.V.shape[0] % FEATURE_MULTIPLE == state.V.shape[1] % LABEL_MULTIPLE == 0
    assert tuple(state.prepare(torch.ones((3, s + 1))).shape) == (3, len(state.V))
    np.testing.assert_array_equal(home(state.weights()), home(given[0]))
    np.testing.assert_array_equal(home(state.velocities()), home(given[1]))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("softmax", "known"), [(False, False), (True, False), (True, True)])  # normalisers
def test_the_intercept_is_added_in_float32_to_half_precision_products(rng, monkeypatch, fused, softmax, known):
    V, velocity, targets, p = (torch.tensor(A) for A in parts(rng))
    state = decoder_state(V, velocity, targets, p, pretend(monkeypatch, rounds=True, fused=fused))
    Phi, w = torch.tensor(rng.standard_normal((9, 11)).astype(np.float32)), torch.rand(9)
    Phi[:, -1] = 1
    exact = (Phi[:, :-1] @ to_halves(V[:-1])).double() + V[-1].double()
    prepared, every = state.prepare(Phi), slice(0, state.c)
    np.testing.assert_allclose(home(state.scores(prepared, every))[:, :70], home(exact), atol=1e-5)
    total = state.normalisers(prepared)
    np.testing.assert_allclose(home(total), home(exact.logsumexp(1, keepdim=True)), atol=1e-5)
    P = state.differences(prepared, every, w, softmax, total if softmax and known else None)
    wanted = ((exact.softmax(1) if softmax else exact.sigmoid()) - p) * w[:, None]
    np.testing.assert_allclose(
        home(P)[:, :70], home(wanted), rtol=2**-8, atol=1e-6
    )  # half precision, but for the fused ones
    assert not state.V16[10:].any()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_an_update_of_some_labels_is_that_of_the_host(rng, monkeypatch, fused, diagonal, momentum):
    given = parts(rng, momentum=momentum > 0)
    gpu = pretend(monkeypatch, fused=fused)
    M = rng.random((11, 1 if diagonal else 11)).astype(np.float32)
    rho, G = np.append(np.full(10, 0.3), 0).astype(np.float32)[:, None], rng.random((11, 70)).astype(np.float32)
    here = DecoderState(*(None if A is None else A.copy() for A in given), HOST)
    there = HalfDecoderState(*map(gpu.to_device, given), gpu)
    wide = padded(gpu.to_device(G), tuple(there.V.shape))
    wide[11:], wide[:, 70:] = 7, 7  # what products make of padding may be anything
    for labels in (slice(0, 64), slice(64, there.c)):
        here.advance(slice(labels.start, min(labels.stop, 70)), G[:, labels], M, rho, 0.7, momentum)
        there.advance(labels, wide[:, labels], gpu.to_device(M), gpu.to_device(rho), 0.7, momentum)
    np.testing.assert_allclose(home(there.weights()), here.weights(), atol=1e-5)
    if momentum:
        np.testing.assert_allclose(home(there.velocities()), here.velocities(), atol=1e-5)
    assert not there.V[11:].any()  # no product reaches what pads the features
    np.testing.assert_array_equal(home(there.V16)[:10], home(there.V)[:10])
    assert not there.V16[10:].any()
