"""Charts: round ticks, marks within the frame, names that do not meet."""

import re
from itertools import pairwise

import pytest

from smoothlink.reports.charts import (
    CHART_HEIGHT,
    CHART_WIDTH,
    LINE,
    Chart,
    Scale,
    above,
    log_ticks,
    percent,
    round_ticks,
    short,
)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (1, 287, [100, 200]), (-0.03, 0.03, [-0.02, 0, 0.02]), (0, 7, [0, 2, 4, 6])],
)
def test_ticks_are_round_and_inside(low, high, expected):
    assert round_ticks(low, high, 5) == pytest.approx(expected)


def test_ticks_of_a_logarithmic_axis_are_powers_of_ten_with_2_and_5_where_those_are_few():
    assert log_ticks(0.5, 2000) == pytest.approx([1, 10, 100, 1000])
    assert log_ticks(1, 60) == pytest.approx([1, 2, 5, 10, 20, 50])
    assert len(log_ticks(1e-9, 1e9)) <= 10


def test_a_round_number_above_all():
    assert [above([v]) for v in (0.7, 1.0, 23, 0.031, 0)] == pytest.approx([0.8, 1.0, 30, 0.04, 1.0])


def test_numbers_are_short():
    assert [short(v) for v in (3, 1500, 3e5, 2e6, 0.01)] == ["3", "1.5k", "300k", "2M", "0.01"]
    assert percent(0.25) == "25\N{NO-BREAK SPACE}%"


def test_marks_are_where_their_numbers_are():
    chart = Chart(Scale(0, 10, "x"), Scale(1, 100, "y", log=True))
    assert chart.place(0, 1)[0] < chart.place(10, 1)[0] <= CHART_WIDTH
    assert chart.place(0, 10)[1] == pytest.approx((chart.place(0, 1)[1] + chart.place(0, 100)[1]) / 2)
    assert 0 <= chart.place(0, 100)[1] < chart.place(0, 1)[1] <= CHART_HEIGHT
    assert chart.place(0, -5) == chart.place(0, 1)  # a logarithm has an end


def test_names_of_curves_keep_their_distance_and_stay_inside():
    chart = Chart(Scale(0, 1, "x"), Scale(0, 1, "y"), right=60)
    for tone, end in zip("abc", (0.0, 0.01, 0.02), strict=True):
        chart.line([0, 1], [0.5, end], tone, f"curve {tone}")
    heights = sorted(float(y) for y in re.findall(r' y="([\d.]+)"', "".join(chart.names())))
    assert min(b - a for a, b in pairwise(heights)) >= LINE - 0.1
    assert heights[-1] <= CHART_HEIGHT


def test_a_chart_has_words_for_those_who_do_not_see_it_and_escapes_them():
    chart = Chart(Scale(0, 1, "x"), Scale(0, 1, "y"))
    chart.dots([0.5], [0.5], "a", ["half & half"])
    drawn = chart.svg('about "half"')
    assert 'role="img"' in drawn
    assert 'aria-label="about &#34;half&#34;"' in drawn
    assert "<title>half &amp; half</title>" in drawn


def test_a_band_without_interval_is_not_drawn():
    chart = Chart(Scale(0, 1, "x"), Scale(0, 1, "y"))
    chart.band([0, 1], [float("nan")] * 2, [1, 1], "a")
    assert chart.marks == []
