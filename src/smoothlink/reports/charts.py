"""Charts as inline SVG: lines, bands, dots and bars on two axes. Colours are those of the page, by class."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

CHART_WIDTH, CHART_HEIGHT = 420, 270
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 40  # margins
LINE = 14  # distance of labels at the ends of curves


def element(name: str, *content: str, **attributes: Any) -> Markup:
    """Returns an SVG element; text and attributes are escaped. `class_` is class, `aria_label` aria-label."""
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, Markup("").join(content))


def points(value: float, digits: int = 1) -> str:
    """Returns a fraction as a percentage, without the sign."""
    return f"{100 * value:.{digits}f}"


def percent(value: float) -> str:
    """Returns a fraction as a percentage that is not broken before its sign."""
    return f"{points(value, 0)}\N{NO-BREAK SPACE}%"


def short(value: float) -> str:
    """Returns a number such as 12, 1.5k, 300k or 0.01."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:g}"


class Scale(NamedTuple):
    """An axis between two ends."""

    low: float
    high: float
    title: str
    text: Callable[[float], str] = short
    log: bool = False
    given_ticks: Sequence[tuple[float, str]] | None = None

    def at(self, value: float) -> float:
        """Returns where a value is, as a fraction of the way from low to high."""
        if self.log:
            value = max(value, self.low)
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """Returns values and their texts."""
        if self.given_ticks is not None:
            return list(self.given_ticks)
        found = log_ticks(self.low, self.high) if self.log else round_ticks(self.low, self.high, most)
        return [(value, self.text(value)) for value in found]


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Returns multiples of 1, 2, 2.5 or 5 times a power of ten, at most so many."""
    least_step = (high - low) / most
    base = 10 ** math.floor(math.log10(least_step))
    step = next(base * m for m in (1, 2, 2.5, 5, 10) if base * m >= least_step * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(step * i, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Returns powers of ten; with 2 and 5 between them where those are few."""
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [10.0**t for t in tens if low * 0.999 <= 10.0**t <= high * 1.001]
    if len(every) >= 3:
        return every[:: math.ceil(len(every) / 6)]
    return [m * 10.0**t for t in tens for m in (1, 2, 5) if low * 0.999 <= m * 10.0**t <= high * 1.001]


def above(values: Sequence[float], least: float = 0.0) -> float:
    """Returns a round number that no value exceeds."""
    most = max([least, *values])
    if most <= 0:
        return 1.0
    base = 10 ** math.floor(math.log10(most))
    return next(base * m for m in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if base * m >= most * (1 - 1e-9))


class Chart:
    """A chart under construction. Tones a, b, c are the colours of the page; g is grey."""

    def __init__(
        self,
        x: Scale,
        y: Scale,
        *,
        left: int = LEFT,
        right: int = RIGHT,
        height: int = CHART_HEIGHT,
        width: int = CHART_WIDTH,
    ) -> None:
        self.x, self.y, self.left, self.right, self.height, self.width = x, y, left, right, height, width
        self.marks: list[Markup] = []
        self.ends: list[tuple[float, str, str]] = []  # height, label and tone of curves that are named at their end

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Returns the pixel of a point."""
        wide, high = self.width - self.left - self.right, self.height - TOP - BOTTOM
        return self.left + wide * self.x.at(x), TOP + high * (1 - self.y.at(y))

    def path(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        """Returns a polyline as SVG writes it."""
        return "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in map(self.place, xs, ys))

    def line(self, xs: Sequence[float], ys: Sequence[float], tone: str, label: str = "", *, kind: str = "line") -> None:
        """Draws a curve, named at its right end."""
        if len(xs):
            self.marks.append(element("path", d=self.path(xs, ys), class_=f"{kind} {tone}"))
            if label:
                self.ends.append((self.place(xs[-1], ys[-1])[1], label, tone))

    def band(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], tone: str) -> None:
        """Draws the interval around a curve; nothing where there is none."""
        if len(xs) and not any(map(math.isnan, [*lows, *highs])):
            upper, lower = self.path(xs, highs), self.path(list(xs)[::-1], list(lows)[::-1])
            self.marks.append(element("path", d=f"{upper}L{lower[1:]}Z", class_=f"band {tone}"))

    def dots(self, xs: Sequence[float], ys: Sequence[float], tone: str, tips: Sequence[str], r: float = 3.2) -> None:
        """Draws points; their tips appear under the pointer."""
        for x, y, tip in zip(xs, ys, tips, strict=True):
            cx, cy = self.place(x, y)
            self.marks.append(
                element("circle", element("title", tip), cx=f"{cx:.1f}", cy=f"{cy:.1f}", r=r, class_=f"dot {tone}")
            )

    def whiskers(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], tone: str) -> None:
        """Draws vertical intervals."""
        for x, low, high in zip(xs, lows, highs, strict=True):
            self.marks.append(element("path", d=self.path([x, x], [low, high]), class_=f"whisker {tone}"))

    def bars(self, xs: Sequence[float], ys: Sequence[float], tone: str, tips: Sequence[str], shift: float = 0) -> None:
        """Draws bars a third of a step wide; `shift` is in widths."""
        step = self.place(1, self.y.low)[0] - self.place(0, self.y.low)[0]
        width = min(26.0, step * 0.36)
        for x, y, tip in zip(xs, ys, tips, strict=True):
            (px, py), base = self.place(x, y), self.place(x, self.y.low)[1]
            left, height = px + (shift - 0.5) * width, max(0.0, base - py)
            box = {"x": f"{left:.1f}", "y": f"{py:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
            self.marks.append(element("rect", element("title", tip), **box, rx="1.5", class_=f"bar {tone}"))

    def level(self, y: float, label: str) -> None:
        """Draws a level that curves are compared with."""
        self.marks.append(element("path", d=self.path([self.x.low, self.x.high], [y, y]), class_="guide"))
        _, py = self.place(self.x.high, y)
        self.marks.append(element("text", label, x=self.width - self.right, y=f"{py - 5:.1f}", class_="note end"))

    def vertical(self, x: float, label: str) -> None:
        """Draws a vertical line at a place on the x axis."""
        self.marks.append(element("path", d=self.path([x, x], [self.y.low, self.y.high]), class_="guide"))
        px, py = self.place(x, self.y.low)
        late = self.x.at(x) > 0.6
        where = {"x": f"{px + (-5 if late else 5):.1f}", "y": f"{py - 8:.1f}"}
        self.marks.append(element("text", label, **where, class_="note end" if late else "note"))

    def axes(self) -> list[Markup]:
        """Returns grid, ticks and titles."""
        base, found = self.height - BOTTOM, []
        for value, text in self.y.ticks():
            _, py = self.place(self.x.low, value)
            found.append(element("path", d=f"M{self.left} {py:.1f}H{self.width - self.right}", class_="grid"))
            found.append(element("text", text, x=self.left - 7, y=f"{py + 3.8:.1f}", class_="tick end"))
        for value, text in self.x.ticks(6):
            px, _ = self.place(value, self.y.low)
            found.append(element("path", d=f"M{px:.1f} {base}v4", class_="stem"))
            found.append(element("text", text, x=f"{px:.1f}", y=base + 17, class_="tick middle"))
        found.append(element("path", d=f"M{self.left} {base}H{self.width - self.right}", class_="base"))
        middle = (self.left + self.width - self.right) / 2
        found.append(element("text", self.x.title, x=f"{middle:.0f}", y=self.height - 6, class_="axis middle"))
        if self.y.title:
            found.append(element("text", self.y.title, x=self.left + 6, y=TOP + 14, class_="axis"))
        return found

    def names(self) -> list[Markup]:
        """Returns the names of curves, with some distance between them."""
        found, last = [], -LINE * 1.0
        lowest = self.height - BOTTOM - LINE * (len(self.ends) - 1)
        for i, (py, label, tone) in enumerate(sorted(self.ends)):
            last = max(min(py + 4, lowest + i * LINE), last + LINE)
            found.append(element("text", label, x=self.width - self.right + 6, y=f"{last:.1f}", class_=f"name {tone}"))
        return found

    def svg(self, alt: str) -> Markup:
        """Returns the chart; `alt` describes it in words for those who do not see it."""
        box = f"0 0 {self.width} {self.height}"
        return element("svg", *self.axes(), *self.marks, *self.names(), viewBox=box, role="img", aria_label=alt)
