"""Fills the measured figures of README.md and docs/choosing.md from benches/RESULTS.md.

    python docs/figures.py            write the figures
    python docs/figures.py --check    exit with 1 and name the files that are out of date

A block stands between the lines `<!-- figures: NAME -->` and `<!-- end of figures -->`. The program
copies medians and ratios as they are: it must never compute or round a figure.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = "benches/RESULTS.md"
FILES = ("README.md", "docs/choosing.md")
BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
# Rows of the first screen: label, case and state.
SCREEN = (
    ("`put` of one row, accepted", "put, one row", "empty"),
    ("`get` of one row from SSTs", "get, present", "in SSTs"),
    ("full scan to Arrow, per row", "full scan as Arrow, a row", "in SSTs"),
)
# Rows of the comparison: case and state.
PEERS = (
    ("put, one row", "empty"),
    ("put_many of 1,000 rows, a row", "empty"),
    ("put_many of 1,000 rows in order, a row", "empty"),
    ("get, present", "in SSTs"),
    ("get, absent", "in SSTs"),
    ("get_many of 100, a key", "in SSTs"),
    ("scan of 50 rows, a scan", "in SSTs"),
    ("full scan as Arrow, a row", "in SSTs"),
    ("YCSB A, an operation", "in SSTs, written to"),
    ("YCSB E, an operation", "in SSTs, written to"),
    ("open with 450,000 rows in the WAL", ""),
    ("open of 1,000 rows", ""),
)
ENGINES = ("siltstone", "slatedb", "rocksdict", "lmdb")


def measured(results: str) -> dict[tuple[str, str], dict[str, str]]:
    """Returns the rows of the table of results by case and state."""
    lines = [line for line in results.splitlines() if line.startswith("| ")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(row[0], row[1]): dict(zip(head, row, strict=True)) for row in rows}


def setting(results: str) -> str:
    """Returns how the rows were measured, in words."""
    rows = re.search(
        r"^- Rows: ([\d,]+), of (\d+) B keys and (\d+) B values, in (.*)$", results, re.MULTILINE
    )
    cores = re.search(r"^- Machine: (\d+) cores", results, re.MULTILINE)
    if not rows or not cores:
        raise ValueError(f"{RESULTS} names no rows or no machine")
    size = int(rows[2]) + int(rows[3])
    return f"{rows[1]} rows of {size} bytes in {rows[4]}, {cores[1]} cores"


def blocks(results: str) -> dict[str, str]:
    """Returns the text of every block by its name."""
    rows = measured(results)
    screen = [f"| measured with {setting(results)} | |", "| --- | --: |"]
    screen += [f"| {label} | {rows[case, state]['siltstone']} |" for label, case, state in SCREEN]
    peers = [f"| case | state | {' | '.join(ENGINES)} |", "| --- | --- | --: | --: | --: | --: |"]
    for case, state in PEERS:
        cells = " | ".join(rows[case, state][engine] for engine in ENGINES)
        peers.append(f"| {case} | {state} | {cells} |")
    packages = re.search(r"^- Packages: (.*)$", results, re.MULTILINE)
    if not packages:
        raise ValueError(f"{RESULTS} names no packages")
    above = f"Measured with {setting(results)}. Packages: {packages[1]}."
    above = textwrap.fill(above, 120, break_on_hyphens=False)
    return {"screen": "\n".join(screen), "peers": "\n".join([above, "", *peers])}


def filled(text: str, results: str) -> str:
    """Returns a page with its blocks filled."""
    made = blocks(results)
    return BLOCK.sub(lambda found: f"{found[1]}{made[found[2]]}\n{found[3]}", text)


def main() -> int:
    """Writes or checks the figures. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    results = (ROOT / RESULTS).read_text()
    stale = 0
    for name in FILES:
        before = (ROOT / name).read_text()
        after = filled(before, results)
        if before != after:
            stale += 1
            if not check:
                (ROOT / name).write_text(after)
            sys.stdout.write(f"{'out of date' if check else 'written'}: {name}\n")
    return int(bool(stale) and check)


if __name__ == "__main__":
    sys.exit(main())
