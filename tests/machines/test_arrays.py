"""Every operation that NumPy and torch spell differently gives the same numbers of the same type on both."""

import inspect

import numpy as np
import pytest
from problems import home

from smoothlink.machines import arrays
from smoothlink.machines.arrays import copy_to_device, on_host
from smoothlink.machines.host_and_device import HOST, find_machine
from smoothlink.solve.conjugate import advance, curvature, update_direction, weighted_squares


class Given:
    """The same small arrays on a machine; capital letters are float32 matrices."""

    def __init__(self, machine):
        rng = np.random.default_rng(3)
        matrices = {name: rng.standard_normal((7, 4)).astype(np.float32) for name in "ABCD"}
        matrices["A"][2] = 0
        square = rng.standard_normal((5, 9))
        self.host = {
            **matrices,
            "wide": rng.standard_normal((7, 8)).astype(np.float32),
            "double": rng.standard_normal((7, 4)),
            "R": rng.standard_normal((4, 3)).astype(np.float32),
            "w": rng.random(7).astype(np.float32),
            "phases": rng.random(3).astype(np.float32),
            "room": np.zeros((7, 6), np.float32),
            "positive": square @ square.T,
            "factor": np.linalg.cholesky(square @ square.T),
            "sides": rng.standard_normal((5, 3)),
        }
        for name, array in self.host.items():
            setattr(self, name, machine.to_device(array.copy()))


def call(*args, **options):
    return args, options


NUMBERS, MASK = np.array([3, 0, 3]), np.array([True, False, True, True])
STEPS = np.array([0.5, 0.0, -2.0, 1e-3])
CALLS = {
    "to_host": [lambda g: call(g.A), lambda g: call(g.double), lambda g: call(g.A.T)],
    "to_device_of": [lambda g: call(g.A, g.host["double"]), lambda g: call(g.A, NUMBERS)],
    "zeros": [lambda g: call(g.A, (2, 3)), lambda g: call(g.double, (4,))],
    "number_type": [lambda g: call(g.A, np.float64), lambda g: call(g.double, np.float32)],
    "astype": [lambda g: call(g.A, np.float64), lambda g: call(g.double, np.float32, copy=True)],
    "like": [lambda g: call(g.A, g.double), lambda g: call(g.double, g.A)],
    "contiguous": [
        lambda g: call(g.A),
        lambda g: call(g.A, copy=True),
        lambda g: call(g.wide[:, 2:5]),
        lambda g: call(g.wide.T, copy=True),
    ],
    "take_columns": [lambda g: call(g.A, NUMBERS), lambda g: call(g.A, MASK)],
    "take_rows": [lambda g: call(g.A, NUMBERS), lambda g: call(g.w, NUMBERS)],
    "hstack": [lambda g: call([g.A, g.wide, g.A[:, :0]])],
    "side_by_side": [lambda g: call(g.A, g.wide)],
    "gathered": [lambda g: call(g.A)],
    "scale_columns": [lambda g: call(g.A, np.arange(1, g.A.shape[1] + 1, dtype=np.float32))],
    "diagonal": [lambda g: call(g.positive)],
    "from_lower": [lambda g: call(g.positive, np.arange(5.0))],
    "dot": [lambda g: call(g.A, g.B), lambda g: call(g.double, g.double)],
    "column_dots": [
        lambda g: call(g.A, g.B),
        lambda g: call(g.A, g.B, g.w, sum_rows=3),
        lambda g: call(g.A[:, :0], g.B[:, :0]),
    ],
    "extremes": [lambda g: call(g.A)],
    "square_root": [lambda g: call(g.w)],
    "unit_rows": [lambda g: call(g.A)],
    "sigmoid": [lambda g: call(100 * g.A)],
    "exponential": [lambda g: call(g.A)],
    "log_sums": [lambda g: call(g.A)],
    "add_log_sums": [lambda g: call(g.A, g.B)],
    "add_product": [lambda g: call(g.A, g.R, g.room[:, :3])],
    "cosines": [lambda g: call(g.A, g.R, g.phases, g.room[:, :3])],
    "empty_as": [lambda g: call(g.double)],
    "empty": [lambda g: call(g.double, (3, 2))],
    "cholesky": [lambda g: call(g.positive)],
    "cholesky_solve": [lambda g: call(g.factor, g.sides)],
    "cholesky_inverse": [lambda g: call(g.factor)],
    "lower_inverse": [lambda g: call(g.host["positive"])],
    "full_eigh": [lambda g: call(g.positive)],
    "eigh": [lambda g: call(g.positive)],
    "half_product": [lambda g: call(g.A), lambda g: call(g.A, g.R)],
    "curvature": [lambda g: call(g.A, g.B, g.w)],
    "advance": [lambda g: call(g.A, g.B, g.C, g.D, g.w, STEPS)],
    "update_direction": [lambda g: call(g.A, g.B, g.w, STEPS)],
    "weighted_squares": [lambda g: call(g.A, g.w)],
}
# Tested below, copies from a GPU by benchmarks/gpu.py, and arrays in parts by tests/distributed.
SEPARATE = {"on_host", "copy_to_device", "copy_to_host", "in_parts"}
UNSET = {"empty", "empty_as"}
IN_PLACE = {"sigmoid", "exponential", "add_product", "cosines", "curvature", "advance", "update_direction"}
IN_PLACE |= {"scale_columns"}


FUNCTIONS = dict(inspect.getmembers(arrays, lambda f: inspect.isfunction(f) and f.__module__ == arrays.__name__))
FUNCTIONS |= {f.__name__: f for f in (curvature, advance, update_direction, weighted_squares)}


def results(name, make, machine):
    """What a function returns, and its arguments afterwards where it works in place."""
    args, options = make(Given(machine))
    found = FUNCTIONS[name](*args, **options)
    found = list(found) if isinstance(found, tuple) else [found]
    return found, [a for a in args if hasattr(a, "shape")] if name in IN_PLACE else []


def same(name, a, b):
    """Numbers, types and shapes are the same."""
    if name == "number_type":
        assert np.dtype(a).name == str(b).removeprefix("torch.")
        return
    a, b = home(a), home(b)
    if hasattr(a, "dtype"):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
    if a is None or name in UNSET:
        return
    see = {"full_eigh": np.abs, "cholesky": np.tril}.get(name, np.asarray)  # LAPACKs choose signs of eigenvectors
    np.testing.assert_allclose(see(b), see(a), rtol=2e-6, atol=2e-6)


def test_the_table_has_every_public_function():
    assert set(CALLS) | SEPARATE == set(FUNCTIONS)


@pytest.mark.usefixtures("as_on_a_card")
@pytest.mark.parametrize(("name", "make"), [pytest.param(n, m, id=n) for n, some in CALLS.items() for m in some])
def test_torch_gives_what_numpy_gives(name, make):
    (known, before), (found, after) = (results(name, make, m) for m in (HOST, find_machine("torch")))
    for a, b in zip(known + before, found + after, strict=True):
        same(name, a, b)


@pytest.mark.usefixtures("as_on_a_card")
@pytest.mark.parametrize(("name", "make"), [pytest.param(n, m, id=n) for n, some in CALLS.items() for m in some])
def test_results_are_where_the_annotations_say(name, make):
    annotation = str(inspect.signature(FUNCTIONS[name]).return_annotation)
    places = annotation.removeprefix("tuple[").removesuffix("]").split(", ")
    found, _ = results(name, make, find_machine("torch"))
    for place, part in zip(places, found, strict=True):
        assert place in ("Array", "HostArray", "Any", "float", "None")
        if place in ("Array", "HostArray"):
            assert on_host(part) == (place == "HostArray")


@pytest.mark.parametrize("copy", [False, True])
def test_a_copy_is_another_array_only_where_it_is_asked_for(machine, copy):
    A = machine.to_device(np.zeros((3, 4), np.float32))
    for found in (arrays.contiguous(A, copy=copy), arrays.astype(A, np.float32, copy=copy)):
        found[0, 0] = 1
        assert float(A[0, 0]) == (not copy)
        A[0, 0] = 0
    strided = machine.to_device(np.zeros((3, 8), np.float32))[:, ::2]
    arrays.contiguous(strided, copy=copy)[0, 0] = 1
    assert float(strided[0, 0]) == 0


def test_a_matrix_that_is_not_positive_definite_has_no_factor_on_any_machine(machine):
    with pytest.raises(np.linalg.LinAlgError):
        arrays.cholesky(machine.to_device(np.array([[1.0, 2.0], [2.0, 1.0]])))


def test_tensors_are_not_on_the_host_and_all_else_is(torch):
    assert not on_host(torch.zeros(2))
    assert on_host(np.zeros(2))
    assert on_host(np.zeros(2)[0])


@pytest.mark.torch
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, lambda A: A[::2, 1:]])
def test_a_copy_to_a_device_is_a_copy_even_of_a_read_only_array(layout, recwarn):
    A = layout(np.arange(12.0).reshape(4, 3))
    A.flags.writeable = False
    there = copy_to_device(A, "cpu")
    np.testing.assert_array_equal(arrays.to_host(there), A)
    there += 1
    assert float(there[0, 0]) == A[0, 0] + 1
    assert not recwarn


@pytest.mark.parametrize("kinds", [("f4", "f4"), ("f8", "f8"), ("f8", "f4")])
def test_a_cholesky_factor_solves_for_more_columns_than_one_thread_takes(kinds):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 40))
    A, B = (A @ A.T + 40 * np.eye(40)).astype(kinds[0]), rng.standard_normal((40, 150)).astype(kinds[1])
    Z = arrays.cholesky_solve(arrays.cholesky(A.copy()), B.copy())
    assert Z.dtype == np.result_type(A, B)
    np.testing.assert_allclose(A @ Z, B, atol=1e-4 if kinds[0] == "f4" else 1e-6)
