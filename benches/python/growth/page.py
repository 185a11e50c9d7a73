"""Writes the page "what costs what" and its plots from `benches/growth.json`.

    page.py [--check]

With `--check` nothing is written: exit status 1 names the files that differ. The page never has a
number that is not in the results.
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import wrap
from typing import Any

from amounts import quantity, size_text
from plot import plot
from results import OWN, Row, read

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benches" / "growth.json"
DOCS = ROOT / "docs"
PAGE = "what-costs-what.md"
PLOTS = "growth"
WIDTH = 100
"""Characters of a line of prose."""

HEAD = """\
<!-- Made by benches/python/growth/page.py of benches/growth.json: run `make bench-growth`. -->

# Costs: what costs what

This page shows how the cost of each operation grows in every dimension in which a database grows.
Siltstone promises a form of growth for each figure, `make bench-growth` measures it, and a promise
that is broken fails the bench. Single figures at one million rows, beside the peers, are in the
[results of the comparison](../benches/RESULTS.md).

| promise | exponent | ten times the size costs |
| --- | --- | --- |
| constant | 0 | the same |
| logarithmic | 0 | a little more |
| linear | 1 | at most ten times as much |
| n log n | 1 | a little more than ten times as much |

The exponent is that of a fit `a + b * n^k` over the measured sizes: the constant floor `a` does not
hide the growing part. An exponent below the promised one is better than promised. Amounts below
the noise of a measurement, and memory within the budget of an option, count as constant. Time is
the shortest of several calls, memory the growth of the process during the first call, without
mapped files. Requests and bytes are those that `stats()` counts. They are exact, and you can count
them in your own program:

```python
import siltstone

with siltstone.open("memory://what-costs-what") as db:
    before = db.stats().put_requests
    for number in range(1000):
        db.put(b"k%03d" % number, b"v")
    db.flush()
    # The writes share log objects: the number of requests does not grow with them.
    assert db.stats().put_requests - before <= 8
```

Tables in a local folder are mapped, and cost no request. Requests and bytes of reads are therefore
those of a reader of a copy in memory, which reads as from an object store.
"""


def heading(name: str) -> str:
    """The heading of a dimension."""
    return name[0].upper() + name[1:]


def file_name(name: str) -> str:
    """The file of its plot."""
    return "".join(letter if letter.isalnum() else "-" for letter in name).replace("--", "-")


def by_dimension(found: list[Row]) -> dict[str, list[Row]]:
    """The rows of each dimension, in the order of the run."""
    names = dict.fromkeys(row.dimension for row in found)
    return {name: [row for row in found if row.dimension == name] for name in names}


def peers_of(row: Row, found: list[Row]) -> list[str]:
    """The amounts of the peers at their largest size."""
    same = [
        one
        for one in found
        if one.engine != OWN
        and (one.dimension, one.operation, one.kind) == (row.dimension, row.operation, row.kind)
    ]
    texts = []
    for one in same:
        amount = quantity(one.values[-1], one.of.unit)
        at = "" if one.sizes[-1] == row.sizes[-1] else f" at {size_text(one.sizes[-1])}"
        texts.append(f"{one.engine} {amount}{at}")
    return texts


def line(row: Row, found: list[Row]) -> str:
    """A line of the table."""
    bound = f", at most {row.most_per_unit:g} {row.of.unit} a unit" if row.most_per_unit else ""
    ends = [
        f"{quantity(row.values[at], row.of.unit)} at {size_text(row.sizes[at])}" for at in (0, -1)
    ]
    cells = [
        f"[{row.dimension}](#{anchor(row.dimension)})",
        row.operation,
        row.kind,
        row.promise + bound,
        f"{row.exponent:.2g}",
        *ends,
        ", ".join(peers_of(row, found)),
        "**broken**" if row.is_broken else "kept",
    ]
    return "| " + " | ".join(cells) + " |"


def anchor(name: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = (letter for letter in name.lower() if letter.isalnum() or letter in " -")
    return "".join(kept).replace(" ", "-")


def measured(run: dict[str, Any]) -> list[str]:
    """The facts about the run."""
    packages = ", ".join(f"{name} {number}" for name, number in run["packages"].items())
    lines = [
        "## Measurement",
        "",
        f"- Machine: {run['machine']}; load of the last 15 minutes: {run['load']}",
        f"- System: {run['system']}, Python {run['python']}",
        f"- Commit: {run['commit']}, {run['time']}, {run['minutes']} minutes",
        f"- Packages: {packages}",
    ]
    if run["note"]:
        lines.append(f"- Note: {run['note']}")
    return ["\n".join(wrap(one, WIDTH, subsequent_indent="  ")) for one in lines] + [""]


def table(found: list[Row]) -> list[str]:
    """The promises, and what was measured."""
    own = [row for row in found if row.engine == OWN and row.values]
    broken = sum(row.is_broken for row in own)
    state = (
        f"{broken} of {len(own)} promises are broken in this measurement."
        if broken
        else f"All {len(own)} promises are kept in this measurement."
    )
    head = ("dimension", "operation", "figure", "promise", "exponent", "smallest", "largest")
    cells = [*head, "peers at the largest", "state"]
    return [
        "## Promises",
        "",
        state,
        "",
        "| " + " | ".join(cells) + " |",
        "| --- | --- | --- | --- | --: | --: | --: | --- | --- |",
        *[line(row, found) for row in own],
        "",
    ]


def pages(results: Path = RESULTS) -> dict[str, str]:
    """All files by their path below docs/."""
    run, found = read(results)
    parts = [HEAD, *measured(run), *table(found)]
    files = {}
    for name, rows in by_dimension(found).items():
        path = f"{PLOTS}/{file_name(name)}.svg"
        files[path] = plot(rows)
        parts += [
            f"## {heading(name)}",
            "",
            f"The size is the number of {rows[0].text}.",
            "",
            f"![Costs over {name}]({path})",
            "",
        ]
    return {PAGE: "\n".join(parts).rstrip() + "\n", **files}


def differing(files: dict[str, str], docs: Path) -> list[str]:
    """The files that are not as made, those that nothing makes included."""
    there = {f"{PLOTS}/{path.name}" for path in (docs / PLOTS).glob("*")}
    wrong = sorted(there - set(files))
    for path, text in files.items():
        if not (docs / path).is_file() or (docs / path).read_text() != text:
            wrong.append(path)
    return wrong


def main() -> int:
    """Write, or check."""
    files = pages()
    if sys.argv[1:] == ["--check"]:
        wrong = differing(files, DOCS)
        for path in wrong:
            sys.stdout.write(f"docs/{path} is not what benches/growth.json gives\n")
        return bool(wrong)
    for path in (DOCS / PLOTS).glob("*"):
        path.unlink()
    (DOCS / PLOTS).mkdir(exist_ok=True)
    for path, text in files.items():
        (DOCS / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
