"""The oracle: logistic and softmax fits to convergence by L-BFGS in float64, for small problems.

`steps.fit` descends in batches and stops early; this is what it would reach. It makes Y dense and keeps all of Phi,
so it is for tests and for data that is small in every direction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_softmax

from smoothlink.steps.squared import Smoothing

Array = NDArray[Any]

UNSMOOTHED = Smoothing()


def exact_fit(
    Phi: Array,
    Y: Any,
    rho: ArrayLike,
    w: Array | None = None,
    *,
    softmax: bool,
    smoothing: Smoothing = UNSMOOTHED,
) -> Array:
    """V (s + 1, c) = argmin of sum_i w_i loss(y_i, Phi_i V) + (rho / 2) |V|^2, in float64.

    The loss is softmax's, or the sum over labels of the logistic ones. A number for rho leaves the constant, the
    last column of Phi (n, s + 1), free; an array (s + 1,) penalises each row of V as it says. Y (n, c) is sparse or
    dense. Unpenalised constants of softmax are fixed only up to a common shift.
    """
    Phi = np.asarray(Phi, np.float64)
    T = smoothing.scale * np.asarray(Y.toarray() if hasattr(Y, "toarray") else Y, np.float64) + smoothing.shift
    weights = np.ones((len(Phi), 1)) if w is None else np.asarray(w, np.float64)[:, None]
    penalty = np.append(np.full(Phi.shape[1] - 1, rho), 0.0) if np.ndim(rho) == 0 else np.asarray(rho, np.float64)
    shape = (Phi.shape[1], T.shape[1])
    loss = softmax_loss if softmax else logistic_loss

    def objective(flat: Array) -> tuple[float, Array]:
        V = flat.reshape(shape)
        losses, slopes = loss(Phi @ V, T)
        gradient = Phi.T @ (weights * slopes) + penalty[:, None] * V
        return float((weights * losses).sum() + (penalty @ V**2).sum() / 2), gradient.ravel()

    # The objective is scaled to about 1, so that tolerances mean the same on any data.
    size = max(objective(np.zeros(shape))[0], np.finfo(np.float64).tiny)
    found = scipy.optimize.minimize(
        lambda flat: tuple(part / size for part in objective(flat)),
        np.zeros(shape).ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": 1e-10, "maxcor": 30},
    )
    V: Array = found.x.reshape(shape)
    return V


def logistic_loss(Z: Array, T: Array) -> tuple[Array, Array]:
    """Losses (n, c) of targets T in [0, 1] at scores Z, and their slopes in Z."""
    return np.logaddexp(0, Z) - T * Z, expit(Z) - T


def softmax_loss(Z: Array, T: Array) -> tuple[Array, Array]:
    """Cross-entropies (n, c), one label's part each, and their slopes in Z; the rows of T sum to 1."""
    log_p = log_softmax(Z, axis=1)
    return -T * log_p, np.exp(log_p) - T
