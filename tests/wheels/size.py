"""Keeps wheels within their size limit.

    size.py WHEEL…

Every worker of a cluster that installs the package downloads the wheel, and a layer of a container
image holds it. So the wheel has no line tables and no symbols, which would make it four times as
large.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

MOST_BYTES = 12_000_000


def refusal(wheel: Path) -> str | None:
    """The error text for a wheel that is too large, with its largest files; None if the size is
    right."""
    size = wheel.stat().st_size
    if size <= MOST_BYTES:
        return None
    with zipfile.ZipFile(wheel) as files:
        largest = sorted(files.infolist(), key=lambda each: -each.compress_size)[:3]
    named = ", ".join(f"{each.filename} {each.compress_size / 1e6:.1f} MB" for each in largest)
    return (
        f"{wheel.name} has {size / 1e6:.1f} MB, {MOST_BYTES / 1e6:.0f} is the most ({named}). "
        "Does its profile in Cargo.toml still strip what a debugger reads?"
    )


if __name__ == "__main__":
    refusals = [text for text in map(refusal, map(Path, sys.argv[1:])) if text is not None]
    if refusals:
        sys.exit("size.py: " + "\n".join(refusals))
    for name in sys.argv[1:]:
        print(f"{Path(name).name}: {Path(name).stat().st_size / 1e6:.1f} MB")
