"""The result of `Database.load`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of `Database.load`, `siltstone.LoadResult`. The result of
    `siltstone.spark.bulk_load` is another class, `siltstone.spark.LoadResult`, with other fields.
    """

    rows: int
    """Number of loaded rows. With ``duplicates="last"``, rows that another row replaced are not
    counted."""
    bytes: int
    """Size of the tables in bytes."""
    ssts: int
    """Number of tables."""
    seq: int | None
    """Sequence number of the rows; None if there are no rows."""
    seconds: dict[str, float]
    """Seconds by phase. "read": until all rows were read, including the tables built meanwhile.
    "build": until the last table was uploaded. "commit": until the rows were visible and durable.
    """

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values for JSON."""
        return {
            "rows": self.rows,
            "bytes": self.bytes,
            "ssts": self.ssts,
            "seq": self.seq,
            "seconds": dict(self.seconds),
        }
