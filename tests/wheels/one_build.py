"""Holds the wheel and the tests to one build: what both need is compiled once.

    one_build.py [cargo]

Cargo asks of each crate the features that the chosen packages need together, and compiles it once
for each set of features. The wheel and the tests are two choices. Where a tool of the tests asks
for one feature more of a crate at the bottom, all that stands on it is compiled twice, the engine
included: minutes, and nobody sees why. Features that the other side needs are named in
`crates/python/Cargo.toml` and `tests/Cargo.toml`.
"""

from __future__ import annotations

import subprocess
import sys

WHEEL = ("--package", "siltstone-python")
TESTS = ("--workspace", "--exclude", "siltstone-python")


def features(cargo: str, *chosen: str) -> dict[str, set[str]]:
    """By crate and version: the sets of features that it is compiled with."""
    edges = "normal,build" if chosen == WHEEL else "normal,build,dev"
    command = [cargo, "tree", "--locked", "--edges", edges, "--prefix", "none", *chosen]
    lines = subprocess.run(
        [*command, "--format", "{p}\t{f}"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    found: dict[str, set[str]] = {}
    for line in lines:
        package, _, asked = line.partition("\t")
        crate = " ".join(package.split()[:2])
        found.setdefault(crate, set()).add(asked.removesuffix(" (*)"))
    return found


def refusals(wheel: dict[str, set[str]], tests: dict[str, set[str]]) -> list[str]:
    """What the wheel needs with features that the tests lack, or the other way round."""
    return [
        f"{crate}: the wheel wants {sorted(wheel[crate])}, the tests {sorted(tests[crate])}"
        for crate in sorted(wheel.keys() & tests.keys())
        if not wheel[crate] <= tests[crate]
    ]


if __name__ == "__main__":
    cargo = sys.argv[1] if len(sys.argv) > 1 else "cargo"
    different = refusals(features(cargo, *WHEEL), features(cargo, *TESTS))
    if different:
        sys.exit("one_build.py: compiled twice, by their features\n" + "\n".join(different))
