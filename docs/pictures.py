"""Draws the pictures of the documentation: docs/pictures/NAME.txt becomes NAME.svg.

    python docs/pictures.py            write the pictures
    python docs/pictures.py --check    exit with 1 and name the pictures that are out of date

The same text always gives the same bytes. A text that does not fit into its place raises
ValueError, so that no picture has words on top of each other.

The first line of a text is ``sequence TITLE`` or ``boxes TITLE``; `|` breaks a line.

    actor NAME: text             sequence: a column, from left to right
    A -> B: text                 sequence: a message; ``-->`` is an answer
    note A: text                 sequence: work of A
    area X Y W H: title          boxes: a frame, in steps of ten pixels
    box NAME X Y W H: text       boxes: a box; ``store`` instead of ``box`` is a stored object
    NAME -> NAME: text           boxes: an arrow; ``-->`` is dashed
    text X Y: text               boxes: words without a frame
"""

from __future__ import annotations

import argparse
import re
import sys
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "pictures"
# Upper bound of the mean width of a character in pixels, and the distance of lines.
LETTER = 6.6
LINE = 17
COLUMN = 230
STEP = 10
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" role="img" font-family="Helvetica, Arial, sans-serif" font-size="12.5">
<title>{title}</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" \
orient="auto"><path d="M0 0L8 4L0 8z" fill="#37474f"/></marker></defs>
<rect width="{width}" height="{height}" fill="#ffffff"/>
"""


def words(
    x: float, y: float, text: str, room: float, *, bold: bool = False, halo: bool = False
) -> str:
    """Returns lines of text, centred at `x`, with the middle of all lines at `y`."""
    border = ' paint-order="stroke" stroke="#ffffff" stroke-width="5"' if halo else ""
    lines = text.split("|")
    out = []
    for number, line in enumerate(each.strip() for each in lines):
        if len(line) * LETTER > room:
            raise ValueError(f"{line!r} needs {len(line) * LETTER:.0f} pixels and has {room:.0f}")
        at = y + 4.5 + (number - (len(lines) - 1) / 2) * LINE
        weight = ' font-weight="bold"' if bold else ""
        out.append(
            f'<text x="{x:g}" y="{at:g}" text-anchor="middle" fill="#102027"{weight}{border}>'
            f"{escape(line)}</text>"
        )
    return "\n".join(out)


def frame(x: float, y: float, w: float, h: float, *, kind: str) -> str:
    """Returns a rectangle: an area, a box, a stored object or a note."""
    fill = {"area": "#f3f6f8", "box": "#cfd8dc", "store": "#ffe0b2", "note": "#fff9c4"}[kind]
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{0 if kind == "area" else 5}" '
        f'fill="{fill}" stroke="#607d8b"/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float, *, dashed: bool) -> str:
    """Returns a line with a tip at its second end."""
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#37474f"{dash} '
        'stroke-width="1.3" marker-end="url(#tip)"/>'
    )


def sequence(lines: list[str]) -> tuple[list[str], float, float]:
    """Returns the parts of a sequence, its width and its height."""
    columns: dict[str, float] = {}
    heads: list[str] = []
    rows: list[str] = []
    y = 70.0
    for line in lines:
        head, _, text = line.partition(": ")
        tall = LINE * (text.count("|") + 1)
        if found := re.fullmatch(r"actor (\w+)", head):
            x = 110 + COLUMN * len(columns)
            columns[found[1]] = x
            heads += [frame(x - 75, 12, 150, 32, kind="box"), words(x, 28, text, 145, bold=True)]
        elif found := re.fullmatch(r"note (\w+)", head):
            x = columns[found[1]]
            rows += [frame(x - 105, y, 210, tall + 10, kind="note")]
            rows += [words(x, y + tall / 2 + 5, text, 205)]
            y += tall + 26
        elif found := re.fullmatch(r"(\w+) (-->|->) (\w+)", head):
            x1, x2 = columns[found[1]], columns[found[3]]
            rows += [words((x1 + x2) / 2, y + tall / 2, text, abs(x2 - x1) - 10, halo=True)]
            rows += [arrow(x1, y + tall + 5, x2, y + tall + 5, dashed=found[2] == "-->")]
            y += tall + 24
        else:
            raise ValueError(f"not a line of a sequence: {line}")
    lives = [
        f'<line x1="{x:g}" y1="44" x2="{x:g}" y2="{y:g}" stroke="#b0bec5"/>'
        for x in columns.values()
    ]
    return [*lives, *heads, *rows], 220 + COLUMN * (len(columns) - 1), y + 10


def boxes(lines: list[str]) -> tuple[list[str], float, float]:
    """Returns the parts of a picture of boxes, its width and its height."""
    places: dict[str, tuple[float, float, float, float]] = {}
    parts: list[str] = []
    right = low = 0.0
    for line in lines:
        head, _, text = line.partition(": ")
        kind, *rest = head.split()
        if kind in ("area", "box", "store"):
            x, y, w, h = (float(each) * STEP for each in rest[-4:])
            parts.append(frame(x, y, w, h, kind=kind))
            if kind == "area":
                parts.append(words(x + w / 2, y + 16, text, w - 10, bold=True))
            else:
                places[rest[0]] = (x, y, w, h)
                parts.append(words(x + w / 2, y + h / 2, text, w - 8))
            right, low = max(right, x + w), max(low, y + h)
        elif kind == "text":
            x, y = (float(each) * STEP for each in rest)
            parts.append(words(x, y, text, 2 * x))
            low = max(low, y + LINE)
        elif found := re.fullmatch(r"(\w+) (-->|->) (\w+):?", head):
            x1, y1, x2, y2 = between(places[found[1]], places[found[3]])
            parts.append(arrow(x1, y1, x2, y2, dashed=found[2] == "-->"))
            if text:
                room = abs(x2 - x1) - 6 if y1 == y2 else 300
                side = 0 if y1 == y2 else max(map(len, text.split("|"))) * LETTER / 2 + 4
                rise = -10 * (text.count("|") + 1) if y1 == y2 else 0
                parts.append(words((x1 + x2) / 2 + side, (y1 + y2) / 2 + rise, text, room))
        else:
            raise ValueError(f"not a line of boxes: {line}")
    return parts, right + STEP, low + STEP


def between(
    one: tuple[float, float, float, float], two: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    """Returns the ends of a straight line between the facing sides of two boxes."""
    (ax, ay, aw, ah), (bx, by, bw, bh) = one, two
    left, right = max(ax, bx), min(ax + aw, bx + bw)
    top, low = max(ay, by), min(ay + ah, by + bh)
    if right > left:  # one above the other
        x = (left + right) / 2
        return (x, ay + ah, x, by) if ay < by else (x, ay, x, by + bh)
    if low > top:
        y = (top + low) / 2
        return (ax + aw, y, bx, y) if ax < bx else (ax, y, bx + bw, y)
    raise ValueError("boxes that an arrow joins must face each other")


def draw(source: str) -> str:
    """Returns the picture of a text.

    :raises ValueError: if a line is not understood or does not fit.
    """
    first, *lines = [line for line in source.splitlines() if line.strip()]
    kind, _, title = first.partition(" ")
    parts, width, height = {"sequence": sequence, "boxes": boxes}[kind](lines)
    head = HEAD.format(width=f"{width:g}", height=f"{height:g}", title=escape(title))
    return head + "\n".join(parts) + "\n</svg>\n"


def main() -> int:
    """Writes or checks the pictures. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = 0
    for source in sorted(FOLDER.glob("*.txt")):
        picture = source.with_suffix(".svg")
        text = draw(source.read_text())
        if not picture.exists() or picture.read_text() != text:
            stale += 1
            if not check:
                picture.write_text(text)
            sys.stdout.write(f"{'out of date' if check else 'written'}: {picture.name}\n")
    return int(bool(stale) and check)


if __name__ == "__main__":
    sys.exit(main())
