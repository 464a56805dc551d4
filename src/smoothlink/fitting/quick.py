"""`effort="quick"`: settings by rules of thumb instead of trials; the same signature as `choose`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from smoothlink.fitting.choose import candidate_ranks, rule_of_thumb, with_tolerance
from smoothlink.fitting.settings import ChosenSettings, Problem, Request, Settings
from smoothlink.solve import ConjugateGradient

# Near the best on held-out training rows of bibtex, delicious, rcv1, cooking questions and enron.
BANDWIDTH, FINAL_RIDGE = 2.0, 1e-2
RANK = 256  # directions, where there are more labels than ALL_DIRECTIONS
PASSES = 4  # of the SGD, where its loss was given
TOLERANCE = 1e-2  # of conjugate gradients


def choose_quick(problem: Problem, settings: Settings, request: Request) -> ChosenSettings:
    """Returns settings by rules of thumb for what is "auto"."""
    ranks = candidate_ranks(problem.rows.c, settings.embedder, request)
    rank = next((k for k in ranks if k >= RANK), ranks[-1])
    rules: dict[str, Any] = {
        "ridge": rule_of_thumb(problem.rows),
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
