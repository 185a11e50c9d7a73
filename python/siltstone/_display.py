"""Text and HTML forms of handles and reports."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from siltstone.stats import Stats

_KIB = 1024
_LEFT = 'style="text-align:left"'
_KEY_FIGURES = (
    "durable_seq",
    "memtable_entries",
    "memtable_bytes",
    "table_rows",
    "table_bytes",
    "l0_entries",
    "pressure",
)
"""The figures of `Stats` that a one-line form shows."""


def binary(count: float) -> str:
    """Formats a number of bytes in binary units."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < _KIB:
            return f"{count} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= _KIB
    return f"{count:.1f} TiB"


def line(name: str, *words: str, **figures: object) -> str:
    """Formats a report as one line: its name, words, and figures by name."""
    parts = [*words, *(f"{key}={value}" for key, value in figures.items())]
    return f"<siltstone.{name} {', '.join(parts)}>"


def page(title: str, rows: Iterable[tuple[object, object]]) -> str:
    """Returns an HTML table of two columns. Names and values are escaped."""
    shown = "".join(
        f"<tr><td {_LEFT}>{_text(name)}</td><td {_LEFT}>{_text(value)}</td></tr>"
        for name, value in rows
    )
    return f'<table><tr><th colspan="2" {_LEFT}>{_text(title)}</th></tr>{shown}</table>'


def grid(title: str, heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Returns an HTML table with a head. All cells are escaped."""
    names = list(heads)
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    shown = "".join(
        "<tr>" + "".join(f"<td>{_text(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    top = f'<tr><th colspan="{len(names)}" {_LEFT}>{_text(title)}</th></tr>'
    return f"<table>{top}<tr>{head}</tr>{shown}</table>"


def key_figures(stats: Stats) -> Mapping[str, str]:
    """Returns the key figures of a handle, formatted."""
    shown = {figure.name: figure.shown() for figure in stats if figure.name in _KEY_FIGURES}
    return {name: shown[name] for name in _KEY_FIGURES}


def database(place: str, state: str, stats: Stats | None) -> str:
    """Returns the HTML form of a database for notebooks."""
    rows: list[tuple[object, object]] = [("where", place), ("state", state)]
    if stats is not None:
        rows += key_figures(stats).items()
    return page("siltstone.Database", rows)


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)
