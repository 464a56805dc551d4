"""A card that is none: the code for halves runs on the processor, with float32 numbers where halves would be."""

import sys
from types import ModuleType

from smoothlink.machines.host_and_device import Device


class Pretended(Device):
    """torch's CPU device with the ways of a card."""

    half = True


def to_halves(A):
    """A rounded to eight bits, as bfloat16 would, but in float32: some processors crash at products of halves."""
    import torch

    bits = A.contiguous().view(torch.int32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
    return rounded.view(torch.float32)


def pretend(monkeypatch, *, rounds=False, fused=False) -> Pretended:
    """Such a card: weights are rounded to halves if asked, products are float32, with fused kernels or without."""
    import torch

    from smoothlink.joint.finetune import FineTuneStep
    from smoothlink.machines import decoder_state as decoder

    monkeypatch.setattr(torch.Tensor, "bfloat16", to_halves if rounds else torch.Tensor.clone)
    monkeypatch.setattr(decoder, "product", torch.mm)
    monkeypatch.setattr(FineTuneStep, "product", lambda self, A, B: A @ B)
    monkeypatch.setattr(decoder, "find_spec", lambda name: fused or None)
    if fused:
        kernels = ModuleType("smoothlink.machines.triton_sgd")
        kernels.activate, kernels.advance = activate, advance
        monkeypatch.setitem(sys.modules, "smoothlink.machines.triton_sgd", kernels)
    return Pretended("cpu", 1 << 30)


# What the kernels of Triton say they do


def activate(Z, intercept, prior, w, total):
    """w (sigma(Z + intercept) - prior): logistic, or with the rows' normalisers `total` softmax."""
    Z = Z + intercept
    P = Z.sigmoid() if total is None else (Z - total).exp()
    return (P - prior) * w[:, None]


def advance(V, V16, velocity, targets, G, M, rho, rate, momentum, last):
    """velocity = momentum velocity + rate M (targets - G - rho V), V += velocity, in place, and V in halves."""
    assert tuple(M.shape) == tuple(rho.shape) == (len(V), 1)
    step = rate * M * (targets - G - rho * V)
    if velocity is not None:
        step += momentum * velocity
        velocity.copy_(step)
    V += step
    V16.copy_(V)
    V16[last:] = 0
