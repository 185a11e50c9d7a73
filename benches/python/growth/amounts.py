"""Amounts as text."""

from __future__ import annotations

SCALES = {
    "s": ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")),
    "": ((1e6, "M"), (1, "")),
}
WHOLE = 100
"""Numbers from here on are shown without decimals."""
MILLION = 1e6


def quantity(amount: float, unit: str) -> str:
    """An amount with its unit, three digits of it."""
    scales = SCALES[unit]
    size, name = next((one for one in scales if amount >= one[0]), scales[-1])
    scaled = amount / size
    digits = f"{scaled:.0f}" if scaled >= WHOLE else f"{scaled:.3g}"
    return f"{digits} {name}".strip()


def size_text(size: float) -> str:
    """A size, short."""
    if size >= MILLION:
        return f"{size / MILLION:.3g} M"
    return f"{size:,.0f}"
