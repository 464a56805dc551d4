"""The table of metrics: which way is better, what is a key, and a help that needs no NumPy."""

import subprocess
import sys

import pytest

from smoothlink.metrics.bootstrap import Metric
from smoothlink.metrics.names import METRICS, better_side, check_metric, format_value, is_better, meaning, shown_keys


def test_less_is_better_where_it_is():
    up, down, unclear = Metric(0.1, 0.05, 0.2), Metric(-0.1, -0.2, -0.05), Metric(0.1, -0.1, 0.2)
    assert [better_side("p@1", d) for d in (up, down, unclear)] == [1, -1, 0]
    assert [better_side("error", d) for d in (up, down, unclear)] == [-1, 1, 0]
    assert better_side("p@1", Metric(0.1, float("nan"), float("nan"))) == 0
    assert {name for name in METRICS if is_better(name, 0, 1)} == {"hamming", "error", "logloss", "ece_top"}


def test_keys_are_checked_shown_and_explained():
    assert [check_metric(key) for key in shown_keys()] == shown_keys()
    for wrong in ("p", "p@2", "hamming@1", "accuracy", ""):
        with pytest.raises(ValueError, match="possible are p@1, p@3, p@5, ndcg@1"):
            check_metric(wrong)
    assert meaning("psp@3") == "P@3 with rare labels counting more"
    assert [format_value("hamming", 0.00123456), format_value("p@1", 0.5, "+")] == ["0.001235", "+0.5000"]


def test_names_are_known_without_numpy():
    script = "import sys; import smoothlink.metrics.names; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"
