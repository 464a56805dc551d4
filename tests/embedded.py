"""Rows that are embedded already, for tests of what comes after: features, sums and decoders."""

from itertools import islice

import numpy as np
import scipy.sparse as sp
from problems import class_problem, home, weights
from scipy.special import log_softmax

from smoothlink.machines.host_and_device import HOST
from smoothlink.machines.rows import Rows
from smoothlink.steps.featurize import draw_features, parse_kernel
from smoothlink.steps.sgd import SGD, sgd_passes
from smoothlink.steps.squared import link_sums

FULL = 10**9  # rows per batch: all of them
TO_THE_END = SGD(momentum=0.5, decay=1.0, batch=FULL)


class Embedded:
    """Rows embedded in a few dimensions, their random features and labels."""

    def __init__(self, rng, n=150, k=3, s=25, c=6, *, machine=HOST, multiclass=False, kernel="gaussian", weighted=True):
        self.machine = machine
        if multiclass:
            p = class_problem(rng, n=n, d=k, c=c, weighted=weighted)
            self.H, self.Y, self.w = np.ascontiguousarray(p.X[:, :-1]), p.Y, p.w
        else:
            self.H = rng.standard_normal((n, k)).astype(np.float32)
            scores = np.sin(2 * self.H @ rng.standard_normal((k, c))) + 0.5 * rng.standard_normal((n, c))
            self.Y = sp.csr_array((scores > 0.4).astype(np.float32))
            self.w = weights(rng, n) if weighted else np.ones(n)
        self.features = draw_features(parse_kernel(kernel), k, s, 4.0, 1.5, int(rng.integers(1 << 53)))
        self.Phi = self.features(self.H).astype(np.float64)
        self.labels = self.Y.toarray().astype(np.float64)

    def rows(self, Y=None, **options):
        rows = Rows.of(self.H, self.Y if Y is None else Y, self.w, machine=self.machine, **options)
        return rows.with_inputs(self.H)

    def sums(self, **options):
        return link_sums(self.rows(**options), self.features)

    def fitted(self, passes, ridge, sgd=TO_THE_END, *, softmax=False, rows=None, **options):
        rows = self.rows() if rows is None else rows
        sums = link_sums(rows, self.features)
        run = sgd_passes(rows, self.features, sums, ridge, softmax=softmax, sgd=sgd, **options)
        return np.array(home(next(islice(run, passes - 1, None))))

    def objective(self, V, ridge, *, softmax=False):
        """What SGD minimises, in float64."""
        Z, rho = self.Phi @ V.astype(np.float64), self.sums().gram.at(ridge).rho
        losses = -self.labels * log_softmax(Z, axis=1) if softmax else np.logaddexp(0, Z) - self.labels * Z
        return (self.w[:, None] * losses).sum() + (rho @ V.astype(np.float64) ** 2).sum() / 2
