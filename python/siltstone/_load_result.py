"""What bulk loads answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load came to: from `Database.load`."""

    rows: int
    """Rows that are part of the database now. With ``duplicates="last"`` those that another row
    replaced are not counted."""
    bytes: int
    """Bytes of the tables."""
    ssts: int
    """How many tables there are."""
    seq: int | None
    """The sequence number at which the rows stand in the history; None without rows."""
    seconds: dict[str, float]
    """Seconds by phase: "read", until all rows were taken, with tables that were made meanwhile;
    "build", until the last table was uploaded; "commit", until all was visible and durable."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "rows": self.rows,
            "bytes": self.bytes,
            "ssts": self.ssts,
            "seq": self.seq,
            "seconds": dict(self.seconds),
        }
