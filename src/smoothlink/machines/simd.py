"""Vectors of 64 float32 numbers for numba kernels: values that stay in registers along a row of non-zeros.

Left to itself LLVM either reads and writes the output row for each non-zero (it cannot know that the arrays do not
overlap) or gathers along the non-zeros. Four registers of 16 (AVX-512), eight of 8 (AVX2) or sixteen of 4 (NEON) hold
a vector; the compiler splits it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types
from numba.extending import models, register_model

VECTOR_WIDTH = 64

VECTOR = ir.VectorType(ir.FloatType(), VECTOR_WIDTH)
FAST = ("fast",)
intrinsic: Any = extending.intrinsic  # it changes the signature in a way that types cannot say


class Lanes(types.Type):
    """The numba type of such a vector."""

    def __init__(self) -> None:
        super().__init__(name=f"Lanes({VECTOR_WIDTH})")


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)  # type: ignore[no-untyped-call]


LANES = Lanes()


def _address(context: Any, builder: Any, kinds: Any, values: Any) -> Any:
    """Returns a pointer to A[i, c] of a float32 array whose rows are contiguous; neither bound is checked."""
    A = context.make_array(kinds[0])(context, builder, values[0])
    stride = builder.extract_value(A.strides, 0)
    i, c = (context.cast(builder, v, kind, types.intp) for v, kind in zip(values[1:3], kinds[1:3], strict=True))
    offset = builder.add(builder.mul(i, stride), builder.shl(c, ir.Constant(c.type, 2)))
    return builder.inttoptr(builder.add(builder.ptrtoint(A.data, stride.type), offset), VECTOR.as_pointer())


@intrinsic
def zeros(typing: Any) -> Any:
    """Returns a vector of zeros."""
    return LANES(), lambda context, builder, signature, values: ir.Constant(VECTOR, None)


@intrinsic
def load(typing: Any, A: Any, i: Any, c: Any) -> Any:
    """Returns A[i, c : c + 64]."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(_address(context, builder, signature.args, values), align=4)

    return LANES(A, i, c), build


@intrinsic
def store(typing: Any, A: Any, i: Any, c: Any, x: Any) -> Any:
    """Writes x to A[i, c : c + 64]."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.store(values[3], _address(context, builder, signature.args, values), align=4)
        return context.get_dummy_value()

    return types.void(A, i, c, x), build


@intrinsic
def axpy(typing: Any, v: Any, x: Any, y: Any) -> Any:
    """Returns v x + y for a number v and vectors x and y."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        v, x, y = values
        nothing, first = ir.Constant(VECTOR, ir.Undefined), ir.Constant(ir.IntType(32), 0)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), VECTOR_WIDTH), [0] * VECTOR_WIDTH)
        repeated = builder.shuffle_vector(builder.insert_element(nothing, v, first), nothing, everywhere)
        return builder.fadd(builder.fmul(repeated, x, flags=FAST), y, flags=FAST)

    return LANES(types.float32, LANES, LANES), build
