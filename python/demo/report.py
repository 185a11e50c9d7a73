"""The report of the demo: phases with their times, and failed checks."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DemoError", "Phase", "Report", "check"]


class DemoError(Exception):
    """A failed check; the text describes it."""


def check(holds: bool, text: str) -> None:
    """Raises `DemoError` unless `holds`. Unlike `assert` it also works with ``python -O``."""
    if not holds:
        raise DemoError(text)


@dataclass
class Phase:
    """One line of the final table."""

    name: str
    rows: int = 0
    note: str = ""
    seconds: float = 0.0
    show: Callable[[str], None] = field(default=lambda _: None, repr=False)

    def progress(self, done: int, of: int) -> None:
        """Shows the progress of the phase on a terminal."""
        self.show(f"{self.name}: {done:,} of {of:,}")


@dataclass
class Report:
    """Phases with their times: a spinner and a table on a terminal, plain lines elsewhere."""

    console: Console = field(default_factory=lambda: Console(highlight=False))
    phases: list[Phase] = field(default_factory=list)

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """Measures the time of the block and records the phase."""
        phase = Phase(name)
        start = time.perf_counter()
        if self.console.is_terminal:
            with self.console.status(name) as status:
                phase.show = status.update
                yield phase
        else:
            yield phase
        phase.seconds = time.perf_counter() - start
        self.phases.append(phase)
        counted = f" {phase.rows:,} rows," if phase.rows else ""
        note = f" ({phase.note})" if phase.note else ""
        self.say(f"{name}:{counted} {phase.seconds:.1f} s{note}")

    def say(self, text: str) -> None:
        """Prints one line without wrapping."""
        self.console.print(text, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Prints the table of all phases and the total."""
        total = sum(phase.seconds for phase in self.phases)
        if self.console.is_terminal:
            table = Table("phase", title="flights, from Spark to Siltstone and back")
            for column in ("rows", "seconds", "rows a second"):
                table.add_column(column, justify="right")
            for phase in self.phases:
                rate = f"{phase.rows / phase.seconds:,.0f}" if phase.rows else ""
                rows = f"{phase.rows:,}" if phase.rows else ""
                table.add_row(phase.name, rows, f"{phase.seconds:.1f}", rate)
            self.console.print(table)
        self.say(f"all phases: {total:.1f} s")
