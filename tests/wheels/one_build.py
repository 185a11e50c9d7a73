"""Keeps the wheel and the tests on one build: crates that both need are compiled once.

    one_build.py [cargo]

Cargo joins the features that the chosen packages need of each crate, and compiles the crate once
per set of features. The wheel and the tests are two choices. If a tool of the tests needs one more
feature of a low-level crate, all crates above it are compiled twice, including the engine. That
takes minutes and is easily overlooked. Features that the other side needs are named in
`crates/python/Cargo.toml` and `tests/Cargo.toml`.
"""

from __future__ import annotations

import subprocess
import sys

WHEEL = ("--package", "siltstone-python")
TESTS = ("--workspace", "--exclude", "siltstone-python")


def features(cargo: str, *chosen: str) -> dict[str, set[str]]:
    """By crate and version: the sets of features with which it is compiled."""
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
    """Crates that the wheel compiles with sets of features that the tests do not use."""
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
