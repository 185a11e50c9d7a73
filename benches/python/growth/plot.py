"""Plots of the results as SVG: one file per dimension, one panel per kind of figure, both axes
logarithmic. A constant cost is a level line there, and a linear one rises by a decade per decade.

The text of a plot depends on the results alone, so that a test can compare it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from amounts import quantity, size_text
from fit import KINDS
from results import OWN, Row

COLOURS = ("#2f6f9f", "#c4572b", "#3d8b50", "#8a5aa6", "#b08a1e", "#4aa3a8", "#a33f5f", "#6b6b6b")
DASHES = {OWN: "", "rocksdict": "7 4", "lmdb": "2 3"}
PANEL_WIDTH, PANEL_HEIGHT = 300, 220
LEFT, TOP, GAP, ROW = 62, 34, 78, 280
COLUMNS = 2
"""Panels beside each other: two fill the width of a page."""
LEGEND_LINE = 17


class Axis:
    """A logarithmic axis from decade to decade."""

    def __init__(self, amounts: Sequence[float], start: float, end: float) -> None:
        positive = [amount for amount in amounts if amount > 0] or [1.0]
        self.low = math.floor(math.log10(min(positive)) + 1e-9)
        self.high = max(self.low + 1, math.ceil(math.log10(max(positive)) - 1e-9))
        self.start, self.end = start, end

    def at(self, amount: float) -> float:
        """The position of an amount; 0 lies at the start."""
        if amount <= 0:
            return self.start
        share = (math.log10(amount) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def decades(self) -> list[float]:
        """Amounts with a line."""
        step = max(1, (self.high - self.low) // 5)
        return [10.0**power for power in range(self.low, self.high + 1, step)]


def text(x: float, y: float, words: str, anchor: str = "middle", size: int = 11) -> str:
    """A line of text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(words)}</text>"
    )


def panel(kind: str, rows: list[Row], colours: dict[str, str], place: int) -> list[str]:
    """The axes and lines of one kind, at a place of the grid."""
    left = LEFT + place % COLUMNS * (PANEL_WIDTH + GAP)
    top = TOP + place // COLUMNS * ROW
    bottom = top + PANEL_HEIGHT
    x = Axis([size for row in rows for size in row.sizes], left, left + PANEL_WIDTH)
    y = Axis([value for row in rows for value in row.values], bottom, top)
    parts = [text(left + PANEL_WIDTH / 2, top - 12, kind, size=13)]
    for amount in x.decades():
        at = x.at(amount)
        parts.append(f'<path class="g" d="M{at:.1f} {top}V{bottom}"/>')
        parts.append(text(at, bottom + 16, size_text(amount)))
    for amount in y.decades():
        at = y.at(amount)
        parts.append(f'<path class="g" d="M{left} {at:.1f}H{left + PANEL_WIDTH}"/>')
        parts.append(text(left - 6, at + 4, quantity(amount, KINDS[kind].unit), "end"))
    for row in rows:
        pairs = zip(row.sizes, row.values, strict=True)
        points = " ".join(f"{x.at(size):.1f},{y.at(value):.1f}" for size, value in pairs)
        dash = DASHES[row.engine]
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        colour = colours[row.operation]
        parts.append(f'<polyline class="l" stroke="{colour}"{dashed} points="{points}"/>')
    return parts


def legend(rows: list[Row], colours: dict[str, str], top: float) -> list[str]:
    """The operations with their colours, and the engines with their dashes."""
    engines = [name for name in DASHES if any(row.engine == name for row in rows)]
    entries = [(name, colour, "") for name, colour in colours.items()]
    if len(engines) > 1:
        entries += [(name, "#333", DASHES[name]) for name in engines]
    parts = []
    for at, (name, colour, dash) in enumerate(entries):
        y = top + at * LEGEND_LINE
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<path class="l" stroke="{colour}"{dashed} d="M{LEFT} {y:.1f}h26"/>')
        parts.append(text(LEFT + 34, y + 4, name, "start", 12))
    return parts


def plot(rows: list[Row]) -> str:
    """The plot of one dimension."""
    kinds = [kind for kind in KINDS if any(row.kind == kind and row.values for row in rows)]
    operations = list(dict.fromkeys(row.operation for row in rows))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(operations)}
    parts = []
    for at, kind in enumerate(kinds):
        shown = [row for row in rows if row.kind == kind and row.values]
        parts += panel(kind, shown, colours, at)
    entries = len(operations) + len({row.engine for row in rows})
    width = LEFT + COLUMNS * (PANEL_WIDTH + GAP) - GAP + 24
    below = TOP + math.ceil(len(kinds) / COLUMNS) * ROW
    height = below + entries * LEGEND_LINE
    parts += legend(rows, colours, below)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" fill="#333">'
    )
    style = (
        "<style>.g{stroke:#ddd;fill:none}.l{fill:none;stroke-width:2}</style>"
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
    )
    title = f"<title>{escape(rows[0].dimension)}</title>"
    return "\n".join([head, title, style, *parts, "</svg>"]) + "\n"
