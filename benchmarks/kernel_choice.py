"""Whether ridge regression alone tells if the link should see x or a Gaussian kernel of x (decision 51).

    python benchmarks/kernel_choice.py [TABLE ...]    # searches both on training rows, and stores what they lose

Stored are the losses of held-out rows: of ridge regression of x and of the kernel, and of the link over each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

from tables import LINEAR, bands, linear, real, steps

from results import results, store
from smoothlink import SmoothLinkClassifier
from smoothlink.fitting import input_kernel
from smoothlink.fitting.choose import choose

MADE_ROWS = 1500  # of tables whose labels are linear in x


def bundled(name: str) -> tuple[Any, Any]:
    """Returns the rows and classes of a table that comes with scikit-learn."""
    from sklearn import datasets

    found: tuple[Any, Any] = getattr(datasets, f"load_{name}")(return_X_y=True)
    return found


def rows_of(make: Callable[[], Any], rows: int | None = None) -> tuple[Any, Any]:
    split = make()
    return split.X[:rows], split.y[:rows]


TABLES: dict[str, Callable[[], tuple[Any, Any]]] = {
    **{name: partial(bundled, name) for name in ("iris", "wine", "breast_cancer", "digits")},
    **{name: partial(rows_of, partial(real, name)) for name in ("emotions", "scene", "yeast", "mediamill-reduced")},
    **{f"bands, seed {seed}": partial(rows_of, partial(bands, seed)) for seed in (20, 21)},
    **{
        f"{name}, seed {table.seed + 90}": partial(
            rows_of, partial(linear, table._replace(seed=table.seed + 90)), MADE_ROWS
        )
        for name, table in LINEAR.items()
    },
    "steps, seed 20": partial(rows_of, partial(steps, 20, train=3000)),
}


def measure(make: Callable[[], tuple[Any, Any]]) -> dict[str, Any]:
    """Returns the losses of ridge regression and of the link, of x and of its kernel, each at its best settings."""
    losses: dict[str, list[float]] = {"ridge": [], "link": []}

    def noted(f: Callable[..., Any], key: str, value: Callable[[Any], float]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            found = f(*given, **named)
            losses[key].append(value(found))
            return found

        return call

    X, y = make()
    with (
        patch.object(input_kernel, "BOTH_ROWS", len(y) + 1),  # so that both are searched
        patch.object(input_kernel, "best_width", noted(input_kernel.best_width, "ridge", lambda w: w.loss)),
        patch.object(input_kernel, "best_ridge_loss", noted(input_kernel.best_ridge_loss, "ridge", float)),
        patch.object(input_kernel, "choose", noted(choose, "link", lambda c: c.criterion)),
    ):
        SmoothLinkClassifier(trees=False).fit(X, y)  # with trees the same rule holds for what they predict
    (kernel, plain), (link_plain, link_kernel) = losses["ridge"][-2:], losses["link"]
    return {"rows": len(y), "ridge": {"x": plain, "kernel": kernel}, "link": {"x": link_plain, "kernel": link_kernel}}


def follows_rule(figures: dict[str, Any]) -> bool:
    """Returns whether the rule searches what both searches prefer."""
    ridge, link = figures["ridge"], figures["link"]
    over_x, over_kernel = input_kernel.links_to_search(figures["rows"], ridge["x"], ridge["kernel"])
    return over_kernel if link["kernel"] < (1 - input_kernel.KERNEL_GAIN) * link["x"] else over_x


if __name__ == "__main__":
    for name in sys.argv[1:] or TABLES:
        found = measure(TABLES[name])
        found["rule_holds"] = follows_rule(found)
        store(results("kernel_choice"), name, found)
        ratios = (found[part]["kernel"] / max(found[part]["x"], 1e-300) for part in ("ridge", "link"))
        print(name, *(f"{ratio:.4f}" for ratio in ratios), "as the rule" if found["rule_holds"] else "NOT as the rule")
