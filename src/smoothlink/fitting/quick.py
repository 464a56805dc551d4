"""`effort="quick"`: settings by rules of thumb instead of trials; the same signature as `choose`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from smoothlink.fitting.choose import candidate_ranks, with_tolerance
from smoothlink.fitting.settings import ChosenSettings, Problem, Request, Settings
from smoothlink.solve import ConjugateGradient

# Near the best on held-out training rows of bibtex, delicious, rcv1, cooking questions and enron. Where features are
# many the mean diagonal of X'X is small, and the ridge a larger multiple of it.
BANDWIDTH, FINAL_RIDGE = 2.0, 1e-2
LEAST_RIDGE, LARGEST_RIDGE, PER_FEATURE = 1.0, 30.0, 4.0  # the last is times d / n
EVERY, RANK = 1024, 256  # labels up to which every direction is kept, and how many of more
PASSES = 4  # of the SGD, where its loss was given
TOLERANCE = 1e-2  # of conjugate gradients


def choose_quick(problem: Problem, settings: Settings, request: Request) -> ChosenSettings:
    """Returns settings by rules of thumb for what is "auto"."""
    rows, ranks = problem.rows, candidate_ranks(problem.rows.c, settings.embedder, request)
    few = rows.c <= EVERY
    rank = ranks[-1] if few else next((k for k in ranks if k >= RANK), ranks[-1])
    n = max(1, int(np.count_nonzero(rows.w)))
    rules: dict[str, Any] = {
        "ridge": float(np.clip(PER_FEATURE * rows.d / n, LEAST_RIDGE, LARGEST_RIDGE)),
        "bandwidth": BANDWIDTH,
        "final_ridge": FINAL_RIDGE,
        "loss": "squared",
    }
    given = {name: type(rules[name])(getattr(request, name)) for name in rules if getattr(request, name) != "auto"}
    found = replace(settings, rank=rank, **rules | given)
    if found.kernel.name == "linear":
        found = replace(found, bandwidth=1.0)
    passes = 0 if found.loss == "squared" else PASSES if request.passes == "auto" else int(request.passes)
    if isinstance(request.solver, str) and isinstance(found.embedder.solver, ConjugateGradient):
        found = with_tolerance(found, TOLERANCE)
    names = ("ridge", "rank", "bandwidth", "final_ridge", "loss")
    chosen_by = {name: "rule of thumb" if getattr(request, name) == "auto" else "given" for name in names}
    return ChosenSettings(problem, replace(found, passes=passes), chosen_by)
