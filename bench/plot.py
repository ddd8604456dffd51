"""Two kinds of picture, as SVG without a library: lines over logarithmic axes, and bars in groups.

chart([Series("ours", [(1000, 0.3), (10000, 0.3)])], title="...", across="messages", up="ms")
bars({"8k": {"ours": 84.0, "theirs": 54.0}}, title="...", across="window", up="% cached")
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 900, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 290, 40, 55
COLOURS = ("#0b6e99", "#d1495b", "#5a9e4b", "#8d5fb0", "#d98e04", "#5c5c5c", "#2ab7a9", "#a0522d")
#: Strokes of the first eight series, of the next, and so on.
DASHES = ("none", "6 3", "2 3")


@dataclass(frozen=True)
class Series:
    """``points``: across and up, both more than 0."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """From the values of the data to places in the picture."""

    low: float
    high: float
    begin: float
    end: float
    logarithmic: bool = True

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.logarithmic:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        return self.begin + (at - low) / (high - low) * (self.end - self.begin)

    @property
    def ticks(self) -> list[float]:
        if not self.logarithmic:
            return [self.low + (self.high - self.low) * part / 5 for part in range(6)]
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1)]


def logarithmic(values: Sequence[float], begin: float, end: float) -> Axis:
    """Whole powers of ten around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return Axis(10.0**low, 10.0 ** max(high, low + 1), begin, end)


def chart(series: Sequence[Series], *, title: str = "", across: str = "", up: str = "") -> str:
    """Lines with their points, both axes logarithmic. Points that aren't above 0 are left out."""
    shown = [Series(each.name, [point for point in each.points if min(point) > 0]) for each in series]
    points = [point for each in shown for point in each.points] or [(1.0, 1.0)]
    x = logarithmic([point[0] for point in points], LEFT, WIDTH - RIGHT)
    y = logarithmic([point[1] for point in points], HEIGHT - BOTTOM, TOP)
    parts = [*_upright(y), *(_label(x(tick), _short(tick)) for tick in x.ticks)]
    for number, each in enumerate(shown):
        colour, dash = _look(number)
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in each.points)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{dash}"/>'
        )
        parts += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{colour}"/>' for a, b in each.points]
    return _picture([*parts, *_legend([each.name for each in shown])], title, across, up)


def bars(
    groups: Mapping[str, Mapping[str, float]],
    *,
    title: str = "",
    across: str = "",
    up: str = "",
    most: float | None = None,
) -> str:
    """A group of bars for each name, with a value for each series; ``most``: the top of the axis."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    top = most or max((value for group in groups.values() for value in group.values()), default=0) * 1.1
    y = Axis(0, top or 1, HEIGHT - BOTTOM, TOP, logarithmic=False)
    room = (WIDTH - LEFT - RIGHT) / max(len(groups), 1)
    wide = room * 0.8 / max(len(names), 1)
    parts = _upright(y)
    for at, (group, values) in enumerate(groups.items()):
        begin = LEFT + room * (at + 0.1)
        parts.append(_label(begin + room * 0.4, group))
        for name, value in values.items():
            number = names.index(name)
            left, high = begin + number * wide, y(value)
            parts.append(
                f'<rect x="{left:.1f}" y="{high:.1f}" width="{wide * 0.92:.1f}" '
                f'height="{y(0) - high:.1f}" fill="{_look(number)[0]}"/>'
            )
            parts.append(_text(left + wide * 0.46, high - 4, _short(value), size=10))
    return _picture([*parts, *_legend(names)], title, across, up)


def _upright(y: Axis) -> list[str]:
    """The axis at the left with its lines."""
    parts = []
    for tick in y.ticks:
        at = y(tick)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
            + _text(LEFT - 8, at + 4, _short(tick), anchor="end")
        )
    return parts


def _label(x: float, text: str) -> str:
    return _text(x, HEIGHT - BOTTOM + 18, text)


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for number, name in enumerate(names):
        colour, dash = _look(number)
        left, at = WIDTH - RIGHT + 15, TOP + 8 + 18 * number
        parts.append(
            f'<line x1="{left}" x2="{left + 22}" y1="{at}" y2="{at}" stroke="{colour}" stroke-width="4" '
            f'stroke-dasharray="{dash}"/>' + _text(left + 30, at + 4, name, anchor="start")
        )
    return parts


def _look(number: int) -> tuple[str, str]:
    dash = DASHES[min(number // len(COLOURS), len(DASHES) - 1)]
    return COLOURS[number % len(COLOURS)], dash


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = 12, more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place} {more}>{escape(text)}</text>"


def _picture(parts: Sequence[str], title: str, across: str, up: str) -> str:
    middle, half = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    words = [
        _text(middle, 22, title, size=15),
        _text(middle, HEIGHT - 14, across),
        _text(18, half, up, more=f'transform="rotate(-90 18 {half:.1f})"'),
    ]
    opened = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" fill="#222">'
    )
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    return "\n".join((opened, ground, *words, *parts, "</svg>")) + "\n"


def _short(value: float) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
