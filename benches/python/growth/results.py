"""The results of a run: one row per operation and kind of figure, and what is judged of them.

`benches/growth.json` has the amounts and the machine; exponents and verdicts are computed from the
amounts each time, so that no number of the page can differ from its measurement.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dimension import Dimension
from fit import KINDS, PROMISES, Kind, Promise, exponent, is_broken

LEAST_SIZES = 3
"""Fewer sizes give no exponent."""
OWN = "siltstone"


@dataclass(frozen=True)
class Row:
    """One figure of one operation over the sizes."""

    dimension: str
    text: str
    operation: str
    engine: str
    kind: str
    promise: str
    sizes: list[int]
    values: list[float]
    most_per_unit: float | None = None
    floor: float = 0.0
    """Less counts as this, if it is above the noise floor of the kind."""
    floor_per_unit: float = 0.0

    @property
    def of(self) -> Kind:
        """The kind of the figure."""
        return KINDS[self.kind]

    @property
    def promised(self) -> Promise:
        """The promised form."""
        return PROMISES[self.promise]

    @property
    def judged(self) -> list[float]:
        """The amounts, none below the floor per unit."""
        pairs = zip(self.sizes, self.values, strict=True)
        return [max(value, size * self.floor_per_unit) for size, value in pairs]

    @property
    def exponent(self) -> float:
        """The fitted exponent; nothing grows where nothing was measured."""
        if not self.values:
            return 0.0
        return exponent(self.of, self.sizes, self.judged, self.floor)

    @property
    def is_broken(self) -> bool:
        """Whether the promise is broken. Peers promise nothing here."""
        if self.engine != OWN:
            return False
        if len(self.sizes) < LEAST_SIZES:
            return True
        return is_broken(
            self.of,
            self.promised,
            self.sizes,
            self.judged,
            floor=self.floor,
            most_per_unit=self.most_per_unit,
        )

    def __str__(self) -> str:
        at = f"{self.dimension}: {self.operation}, {self.kind}"
        amounts = ", ".join(f"{value:.3g}" for value in self.values)
        bound = f", at most {self.most_per_unit:g} a unit" if self.most_per_unit else ""
        return (
            f"{at}: promised {self.promise}{bound}, exponent {self.exponent:.2f} "
            f"({amounts} {self.of.unit})"
        )


Points = dict[int, dict[str, dict[str, float]]]
"""By size, operation and kind."""


def rows(dimension: type[Dimension], engine: str, points: Points) -> Iterable[Row]:
    """The rows of a dimension."""
    for operation, costs in dimension.costs.items():
        for kind, promise in costs.promised().items():
            found = {
                size: point[operation][kind]
                for size, point in sorted(points.items())
                if kind in point.get(operation, {})
            }
            if not found and engine != OWN:
                continue
            yield Row(
                dimension.name,
                dimension.text,
                operation,
                engine,
                kind,
                promise.name,
                list(found),
                [float(f"{value:.4g}") for value in found.values()],
                costs.most_bytes_per_unit if kind == "bytes" else None,
                costs.memory_budget if kind == "memory" else 0.0,
                costs.seconds_per_unit if kind == "time" else 0.0,
            )


def read(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """The facts about a run, and its rows."""
    whole = json.loads(path.read_text())
    return whole["run"], [Row(**row) for row in whole["rows"]]


def write(path: Path, run: dict[str, Any], found: list[Row]) -> None:
    """Write both, one row a line."""
    lines = ",\n".join(f"  {json.dumps(vars(row))}" for row in found)
    path.write_text(f'{{\n"run": {json.dumps(run, indent=1)},\n"rows": [\n{lines}\n]\n}}\n')
