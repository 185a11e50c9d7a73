"""Verifying the tables of a database on a cluster."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import siltstone
from siltstone import lsm
from siltstone._checkpoints import CheckpointLike
from siltstone._open import StoreOptionsSource, Url, _reader_arguments
from siltstone.exceptions import Corruption, Error, NotFound
from siltstone.spark._arguments import check_session
from siltstone.spark._jobs import described, task
from siltstone.spark._pins import pinned_reader
from siltstone.spark._scan import RANGE_BYTES, slots
from siltstone.spark._staging import MESSAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TableProblem", "Verified", "verify"]


@dataclass(frozen=True)
class TableProblem:
    """A problem of a table."""

    object: str
    """Its URL."""
    what: str
    """The problem."""


@dataclass(frozen=True)
class Verified:
    """The result of `verify`."""

    checkpoint: siltstone.Checkpoint
    """The state that was read."""
    tables: int
    """Tables that were read completely."""
    entries: int
    """Entries of all kinds in these tables."""
    bytes: int
    """Bytes that were read."""
    problems: tuple[TableProblem, ...]
    """The problems; empty if there are none."""

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


@dataclass(frozen=True)
class _Table:
    """A table, and its length and entries in the manifest."""

    url: str
    bytes: int
    entries: int


def verify(
    spark: SparkSession,
    url: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    store_options: StoreOptionsSource | None = None,
) -> Verified:
    """Reads every byte of every table, in tasks: checksums of blocks, the order of keys, bounds,
    counts against properties, every key against the filter, and length and entries against the
    manifest. `siltstone.admin.verify` checks the log and the chain of manifests, which are small,
    in one process.

    :param checkpoint: a `Checkpoint`, its id, or its name; None: the state that is durable
        now, kept as for `scan`.
    :param store_options: as for `scan`.
    :returns: counts and problems. Damage raises no error: check `ok`.
    :raises Invalid, NotFound, Expired, Denied, Unavailable: as `scan`.
    """
    check_session(spark)
    reader, held = pinned_reader(url, checkpoint, store_options=store_options)
    reader.close()
    at = held.checkpoint
    manifest = siltstone.admin.manifest(url, at.manifest_id, store_options=store_options)
    # Workers have other working directories, so the path is absolute.
    place, _, provider = _reader_arguments(url, store_options)
    tables = _tables(place, manifest)
    units = _units(tables, slots(spark) if tables else 1)
    check = task("siltstone_verify", check_units, units=units, store_options=provider)
    numbers = spark.range(0, len(units), 1, len(units)) if units else None
    with described(spark, f"siltstone: verify {url}"):
        answers = [] if numbers is None else numbers.mapInArrow(check, MESSAGE).collect()
    problems: list[TableProblem] = []
    for answer in answers:
        problems += pickle.loads(bytes(answer["message"]))  # noqa: S301 - of our own tasks
    entries, size = sum(one.entries for one in tables), sum(one.bytes for one in tables)
    return Verified(at, len(tables), entries, size, tuple(problems))


def _tables(url: str, manifest: Mapping[str, Any]) -> list[_Table]:
    """Each object once. A clone may reference several parts of one."""
    places = {one["number"]: one["location"] for one in manifest["ancestors"]}
    found: dict[str, _Table] = {}
    for layer in [*manifest["l0"], *manifest["runs"]]:
        for table in layer["tables"]:
            root = url if table["ancestor"] is None else places[table["ancestor"]]
            where = f"{root.rstrip('/')}/{table['name']}"
            found[where] = _Table(where, table["object_bytes"], table["entries"])
    return list(found.values())


def _units(tables: Sequence[_Table], at_once: int) -> list[list[_Table]]:
    """The tables of each task: about the same number of bytes, which take seconds to read."""
    whole = sum(table.bytes for table in tables)
    count = min(len(tables), max(math.ceil(whole / RANGE_BYTES), at_once))
    units: list[list[_Table]] = [[] for _ in range(count)]
    # The largest table first, to the task with the least bytes.
    filled = [0] * count
    for table in sorted(tables, key=lambda table: table.bytes, reverse=True):
        least = filled.index(min(filled))
        units[least].append(table)
        filled[least] += table.bytes
    return units


def check_units(
    numbers: Iterator[pa.RecordBatch],
    units: Sequence[Sequence[_Table]],
    store_options: str | None,
) -> Iterator[pa.RecordBatch]:
    """The problems of the tables in the numbered units: a function for `mapInArrow`."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            found = [
                TableProblem(table.url, what)
                for table in units[number]
                if (what := _wrong(table, store_options)) is not None
            ]
            message = pa.array([pickle.dumps(found)], pa.binary())
            yield pa.RecordBatch.from_pydict({"message": message})


def _wrong(table: _Table, store_options: str | None) -> str | None:
    """The problem of a table; None: there is none.

    :raises Denied, Unavailable, Unsupported: the table cannot be read; Spark tries again.
    """
    try:
        with lsm.SstReader(table.url, store_options=store_options) as reader:
            size = reader.verify()
            if size != table.bytes:
                return f"it has {size} bytes, and the manifest says {table.bytes}"
            if reader.rows != table.entries:
                return f"it has {reader.rows} entries, and the manifest says {table.entries}"
    except (Corruption, NotFound) as damage:
        return _told(damage)
    return None


def _told(error: Error) -> str:
    return f"{type(error).__name__}: {error}"
