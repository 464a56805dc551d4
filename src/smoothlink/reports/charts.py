"""Figures as inline SVG: lines, bands, dots and bars on two axes. Colours are those of the page, by class."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from smoothlink.reports.html import Safe, tag

WIDTH, HEIGHT = 420, 270
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 40  # margins
LINE = 14  # distance of labels at the ends of curves


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def short(value: float) -> str:
    """12, 1.5k, 300k, 0.01"""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:g}"


class Scale(NamedTuple):
    """An axis: numbers between two ends, as people write them."""

    low: float
    high: float
    title: str
    said: Callable[[float], str] = short
    log: bool = False
    marks: Sequence[tuple[float, str]] | None = None  # ticks where they are given

    def at(self, value: float) -> float:
        """A share of the way from low to high."""
        if self.log:
            value = max(value, self.low)
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        if self.marks is not None:
            return list(self.marks)
        found = log_ticks(self.low, self.high) if self.log else round_ticks(self.low, self.high, most)
        return [(value, self.said(value)) for value in found]


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten, at most so many."""
    rough = (high - low) / most
    base = 10 ** math.floor(math.log10(rough))
    step = next(base * m for m in (1, 2, 2.5, 5, 10) if base * m >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(step * i, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; with 2 and 5 between them where those are few."""
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [10.0**t for t in tens if low * 0.999 <= 10.0**t <= high * 1.001]
    if len(every) >= 3:
        return every[:: math.ceil(len(every) / 6)]
    return [m * 10.0**t for t in tens for m in (1, 2, 5) if low * 0.999 <= m * 10.0**t <= high * 1.001]


def above(values: Sequence[float], least: float = 0.0) -> float:
    """A round number that no value exceeds."""
    most = max([least, *values])
    if most <= 0:
        return 1.0
    base = 10 ** math.floor(math.log10(most))
    return next(base * m for m in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if base * m >= most * (1 - 1e-9))


class Chart:
    """A figure under construction. Tones a, b, c are the colours of the page; g is grey."""

    def __init__(
        self, x: Scale, y: Scale, *, left: int = LEFT, right: int = RIGHT, height: int = HEIGHT, width: int = WIDTH
    ) -> None:
        self.x, self.y, self.left, self.right, self.height, self.width = x, y, left, right, height, width
        self.marks: list[Safe] = []
        self.ends: list[tuple[float, str, str]] = []  # height, label and tone of curves that are named at their end

    def place(self, x: float, y: float) -> tuple[float, float]:
        wide, high = self.width - self.left - self.right, self.height - TOP - BOTTOM
        return self.left + wide * self.x.at(x), TOP + high * (1 - self.y.at(y))

    def path(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        return "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in map(self.place, xs, ys))

    def line(self, xs: Sequence[float], ys: Sequence[float], tone: str, label: str = "", *, kind: str = "line") -> None:
        """A curve, named at its right end."""
        if len(xs):
            self.marks.append(tag("path", d=self.path(xs, ys), class_=f"{kind} {tone}"))
            if label:
                self.ends.append((self.place(xs[-1], ys[-1])[1], label, tone))

    def band(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], tone: str) -> None:
        """The interval around a curve; nothing where there is none."""
        if len(xs) and not any(map(math.isnan, [*lows, *highs])):
            there, back = self.path(xs, highs), self.path(list(xs)[::-1], list(lows)[::-1])
            self.marks.append(tag("path", d=f"{there}L{back[1:]}Z", class_=f"band {tone}"))

    def dots(self, xs: Sequence[float], ys: Sequence[float], tone: str, tips: Sequence[str], r: float = 3.2) -> None:
        """Points; what they stand for appears under the pointer."""
        for x, y, tip in zip(xs, ys, tips, strict=True):
            cx, cy = self.place(x, y)
            self.marks.append(
                tag("circle", tag("title", tip), cx=f"{cx:.1f}", cy=f"{cy:.1f}", r=r, class_=f"dot {tone}")
            )

    def whiskers(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], tone: str) -> None:
        """Upright intervals."""
        for x, low, high in zip(xs, lows, highs, strict=True):
            self.marks.append(tag("path", d=self.path([x, x], [low, high]), class_=f"whisker {tone}"))

    def bars(self, xs: Sequence[float], ys: Sequence[float], tone: str, tips: Sequence[str], shift: float = 0) -> None:
        """Bars a third of a step wide; `shift` is in widths."""
        step = self.place(1, self.y.low)[0] - self.place(0, self.y.low)[0]
        width = min(26.0, step * 0.36)
        for x, y, tip in zip(xs, ys, tips, strict=True):
            (px, py), base = self.place(x, y), self.place(x, self.y.low)[1]
            left, height = px + (shift - 0.5) * width, max(0.0, base - py)
            box = {"x": f"{left:.1f}", "y": f"{py:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
            self.marks.append(tag("rect", tag("title", tip), **box, rx="1.5", class_=f"bar {tone}"))

    def level(self, y: float, label: str) -> None:
        """A level that curves are compared with."""
        self.marks.append(tag("path", d=self.path([self.x.low, self.x.high], [y, y]), class_="guide"))
        _, py = self.place(self.x.high, y)
        self.marks.append(tag("text", label, x=self.width - self.right, y=f"{py - 5:.1f}", class_="note end"))

    def upright(self, x: float, label: str) -> None:
        """A place on the x axis that is pointed at."""
        self.marks.append(tag("path", d=self.path([x, x], [self.y.low, self.y.high]), class_="guide"))
        px, py = self.place(x, self.y.low)
        late = self.x.at(x) > 0.6
        where = {"x": f"{px + (-5 if late else 5):.1f}", "y": f"{py - 8:.1f}"}
        self.marks.append(tag("text", label, **where, class_="note end" if late else "note"))

    def axes(self) -> list[Safe]:
        base, found = self.height - BOTTOM, []
        for value, said in self.y.ticks():
            _, py = self.place(self.x.low, value)
            found.append(tag("path", d=f"M{self.left} {py:.1f}H{self.width - self.right}", class_="grid"))
            found.append(tag("text", said, x=self.left - 7, y=f"{py + 3.8:.1f}", class_="tick end"))
        for value, said in self.x.ticks(6):
            px, _ = self.place(value, self.y.low)
            found.append(tag("path", d=f"M{px:.1f} {base}v4", class_="stem"))
            found.append(tag("text", said, x=f"{px:.1f}", y=base + 17, class_="tick middle"))
        found.append(tag("path", d=f"M{self.left} {base}H{self.width - self.right}", class_="base"))
        middle = (self.left + self.width - self.right) / 2
        found.append(tag("text", self.x.title, x=f"{middle:.0f}", y=self.height - 6, class_="axis middle"))
        if self.y.title:
            found.append(tag("text", self.y.title, x=self.left + 6, y=TOP + 14, class_="axis"))
        return found

    def names(self) -> list[Safe]:
        """The names of curves, moved apart where they would meet."""
        found, last = [], -LINE * 1.0
        lowest = self.height - BOTTOM - LINE * (len(self.ends) - 1)
        for i, (py, label, tone) in enumerate(sorted(self.ends)):
            last = max(min(py + 4, lowest + i * LINE), last + LINE)
            found.append(tag("text", label, x=self.width - self.right + 6, y=f"{last:.1f}", class_=f"name {tone}"))
        return found

    def figure(self, alt: str, caption: str, numbers: Any = None) -> Safe:
        """The figure, in words for those who do not see it, with its numbers in a table."""
        drawn = tag(
            "svg",
            self.axes(),
            self.marks,
            self.names(),
            viewBox=f"0 0 {self.width} {self.height}",
            role="img",
            aria_label=alt,
        )
        return tag("figure", tag("figcaption", caption), drawn, numbers)
