"""Streams of changes: the source of `readStream.format("siltstone")`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from siltstone import changes as feed
from siltstone.exceptions import Expired, Internal, Invalid, Unsupported
from siltstone.spark._changes import batches
from siltstone.spark._columns import schema_text
from siltstone.spark._matching import table_at
from siltstone.spark._offsets import (
    Offset,
    before_snapshot,
    ends,
    is_held,
    let_go,
    snapshot_of,
    snapshot_ranges,
)
from siltstone.spark._options import byte_count, duration, flag, number, parse_options

if TYPE_CHECKING:
    from pyspark.sql.streaming import datasource as limits
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _Bounded
else:
    try:
        from pyspark.sql.streaming import datasource as limits

        _Bounded = limits.SupportsTriggerAvailableNow
    except ImportError:  # of Spark 4.2
        limits, _Bounded = None, object

__all__ = ["Followed", "followed", "stream_reader"]

OPTIONS = {
    "path": "URL of the database",
    "readChangeFeed": "true: read the changes",
    "startingAt": "latest, oldest (the oldest kept change), snapshot (all rows first), or a token",
    "consumer": "a name: the log is kept from the last batch that this query has committed",
    "consumerLifetime": "seconds that the log is kept for a query that does not run; a day",
    "maxRowsPerTrigger": "rows after which a batch ends: no commit but a load is split",
    "maxBytesPerTrigger": "size of a batch, likewise, such as 64MiB",
    "failOnDataLoss": "true: a gap ends the query; false: it continues after the gap",
    "asBytes": "true: keys and values of a table as they are stored",
    "storeOptions": "the function that returns store options, as module:function",
}
"""The options by the names that users write. Spark converts them to lower case."""
STARTS = ("latest", "oldest", "snapshot")
TOKEN = re.compile(r"c\d+-")
"""The beginning of a token of the change feed, with the version of its form."""
BEFORE_IMAGES = "beforeImages"
"""An option that other sources of changes have."""
DAY = 86_400.0
NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class Followed:
    """The stream to read: plain values, for the process that plans and the tasks."""

    url: str
    starting: str
    consumer: str | None
    lifetime: float
    rows: int | None
    bytes: int | None
    gaps: bool
    store_options: str | None
    table: str | None
    """The schema of the table whose rows change; None: keys and values."""

    def begin(self, since: str, until: str | None = None, consumer: str | None = None) -> Any:
        """The feed from a token on.

        :raises Expired: the changes are not kept, and gaps are not allowed.
        """
        named: dict[str, Any] = {"store_options": self.store_options, "until": until}
        if consumer is not None:
            named |= {"consumer": consumer, "lifetime": timedelta(seconds=self.lifetime)}
        try:
            return feed.begin(self.url, since=since, **named)
        except Expired:
            if not self.gaps:
                raise
            return feed.begin(self.url, since="oldest", **named)


def followed(options: Mapping[str, str]) -> Followed:
    """The stream that the options describe.

    :raises Invalid: an unknown option or value.
    :raises Unsupported: before-images.
    """
    if any(name.casefold() == BEFORE_IMAGES.casefold() for name in options):
        raise Unsupported(
            f"a stream has no option {BEFORE_IMAGES!r}, because each of its batches would need a "
            "checkpoint at its start; read the changes after a checkpoint as a frame: "
            "siltstone.spark.changes(spark, url, since=checkpoint, before=True)"
        )
    asked = parse_options(options, OPTIONS, "a stream is read")
    if "path" not in asked:
        raise Invalid('no database is named: .load("s3://bucket/db"), or option("path", …)')
    starting = asked.get("startingAt", "latest")
    _check_start(starting)
    fail = asked.get("failOnDataLoss", "true").casefold()
    if fail not in ("true", "false"):
        raise Invalid(f"failOnDataLoss is {fail!r}: true or false")
    return Followed(
        asked["path"],
        starting,
        asked.get("consumer"),
        duration(asked, "consumerLifetime") or DAY,
        number(asked, "maxRowsPerTrigger"),
        byte_count(asked, "maxBytesPerTrigger"),
        fail == "false",
        asked.get("storeOptions"),
        table_at(asked["path"], None, flag(asked, "asBytes"), asked.get("storeOptions")),
    )


def _check_start(starting: str) -> None:
    """Checks the form of the option `startingAt`, before the query starts.

    :raises Invalid: it is neither a word nor a token.
    """
    if starting not in STARTS and TOKEN.match(starting) is None:
        raise Invalid(
            f"startingAt is {starting!r}: {', '.join(STARTS)}, or a token of the change feed"
        )


class FeedReader(DataSourceStreamReader, _Bounded):
    """Batches from one token to another; one task reads a batch."""

    def __init__(self, asked: Followed) -> None:
        self.asked = asked
        self.ceiling: str | None = None
        self.beginning: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """The beginning of a query that has stored no batch yet. Spark calls this several times."""
        if self.beginning is None:
            self.beginning = self._begin()
        return self.beginning

    def _begin(self) -> Offset:
        asked = self.asked
        if asked.starting == "snapshot":
            place = (asked.url, asked.consumer, asked.lifetime, asked.store_options)
            begins = before_snapshot(*place)
        elif asked.starting == "latest" and is_held(asked.url, asked.consumer, asked.store_options):
            # Spark asks again after a crash. The planned batch continues from the held log.
            begins = {"token": feed.latest(asked.url, store_options=asked.store_options)}
        else:
            begins = {"token": asked.begin(asked.starting, None, asked.consumer).token}
        if self.ceiling is not None and asked.starting in ("snapshot", "latest"):
            # The ceiling was read before. There are no changes yet after the beginning.
            self.ceiling = begins["token"]
        return begins

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Ends the query at the state that is durable now."""
        self.ceiling = feed.latest(self.asked.url, store_options=self.asked.store_options)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """The limit of a batch's size from the options."""
        if self.asked.rows is not None:
            return limits.ReadMaxRows(self.asked.rows)
        if self.asked.bytes is not None:
            return limits.ReadMaxBytes(self.asked.bytes)
        return limits.ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: Any) -> Offset:  # noqa: N802 - Spark's name
        """The end of the batch that begins at `start`. A snapshot is one batch without a limit."""
        rows = getattr(limit, "max_rows", None)
        size = getattr(limit, "max_bytes", None)
        if "begins" in start:
            return ends(start, start["token"])
        if rows is None and size is None:
            newest = self.ceiling or feed.latest(
                self.asked.url, store_options=self.asked.store_options
            )
            return ends(start, newest)
        # Spark passes one limit, and the options may name two.
        rows, size = rows or self.asked.rows, size or self.asked.bytes
        following = self.asked.begin(start["token"], self.ceiling)
        following.read(rows or NO_LIMIT, size or NO_LIMIT)
        return ends(start, following.token)

    def reportLatestOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """The end of the durable changes."""
        return {"token": feed.latest(self.asked.url, store_options=self.asked.store_options)}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """One partition for changes, because a feed is one sequence; key ranges for a snapshot."""
        if "snapshot" in end:
            pieces = snapshot_ranges(self.asked.url, end, self.asked.store_options)
            return [InputPartition(piece) for piece in pieces]
        # Offsets of earlier versions have no "from".
        return [InputPartition((end.get("from", start["token"]), end["token"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the changes of a batch, or rows of a snapshot."""
        newest = partial(schema_text, self.asked.url, self.asked.store_options)
        match partition.value:
            case (since, until):
                return batches(self.asked.begin(since, until), self.asked.table, newest)
            case (reader, first, last, seq):
                return batches(snapshot_of(reader, first, last, seq), self.asked.table, newest)
        raise Internal(f"a task got {partition.value!r}")

    def commit(self, end: Offset) -> None:
        """Moves the consumer: the batch before `end` is stored."""
        if self.asked.consumer is not None:
            self.asked.begin(end["token"], None, self.asked.consumer)
        if "snapshot" in end:
            # After a crash the snapshot of the first start is read, and that of this one is not.
            made = {end["snapshot"], (self.beginning or {}).get("begins", end["snapshot"])}
            let_go(self.asked.url, made, self.asked.store_options)


def stream_reader(asked: Followed) -> FeedReader:
    """The reader of a stream.

    :raises Unsupported: before Spark 4.2.
    """
    if limits is None:
        raise Unsupported(
            "format('siltstone') reads streams from Spark 4.2 on; siltstone.spark.changes reads "
            "the same as a frame, from token to token"
        )
    return FeedReader(asked)
