"""A dimension in which users grow: its sizes, and what each operation promises.

A subclass prepares a database of one size and measures operations on it. It must never depend on
another size: each point runs in a process of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fit import BYTES, CONSTANT, MEMORY, REQUESTS, TIME, Promise
from meter import Meter


@dataclass(frozen=True)
class Costs:
    """The promises of one operation; None for a figure that is not measured."""

    time: Promise | None = None
    memory: Promise | None = None
    requests: Promise | None = None
    bytes: Promise | None = None
    most_bytes_per_unit: float | None = None
    """The highest number of bytes for each unit of the size, which is exact."""
    memory_budget: int = 0
    """Memory that options allow: less counts as that, since it is used when it is needed."""
    seconds_per_unit: float = 0.0
    """Time of each unit that depends on caches and the allocator alone: less counts as that."""

    def promised(self) -> dict[str, Promise]:
        """The promises by kind."""
        all_ = {
            TIME.name: self.time,
            MEMORY.name: self.memory,
            REQUESTS.name: self.requests,
            BYTES.name: self.bytes,
        }
        return {kind: promise for kind, promise in all_.items() if promise is not None}


STEADY = Costs(time=CONSTANT, memory=CONSTANT, requests=CONSTANT, bytes=CONSTANT)


class Dimension(ABC):
    """One dimension."""

    name: ClassVar[str]
    text: ClassVar[str]
    """The counted quantity, for the table."""
    sizes: ClassVar[tuple[int, ...]]
    """Five sizes, three decades where one process can hold them."""
    quick: ClassVar[tuple[int, ...]]
    """Small sizes for a look at whether everything works."""
    costs: ClassVar[dict[str, Costs]]
    peers: ClassVar[tuple[str, ...]] = ()
    most_for_peers: ClassVar[float] = float("inf")
    """The largest size for which peers are measured."""
    needs: ClassVar[str] = ""
    """A module without which the dimension is left out."""

    def __init__(self, size: int) -> None:
        self.size = size

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Make the database; nothing is measured."""

    @abstractmethod
    def measure(self, meter: Meter, folder: Path) -> None:
        """Measure every operation of `costs`."""

    def measure_peer(self, meter: Meter, engine: str, folder: Path) -> None:
        """Prepare and measure a peer, as far as it has the dimension."""
        raise NotImplementedError
