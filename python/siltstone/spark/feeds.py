"""What has changed in a database, as a stream of Spark's and as a frame: its change feed.

An offset is a token of the feed: a text, from which on the same rows come in the same order, in any
process. So a batch that Spark plans again is the same batch, and no state is needed for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone import changes as feed
from siltstone.opening import StoreOptionsSource, Url, _reader_arguments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from siltstone._native import ArrowArray

__all__ = ["COLUMNS", "batches", "changes"]

COLUMNS = "kind string, key binary, value binary, seq bigint, time timestamp"
"""As those of `siltstone.Database.changes`."""
SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("seq", pa.int64()),
        pa.field("time", pa.timestamp("us", tz="UTC")),
    ]
)


def changes(
    spark: SparkSession,
    url: Url,
    *,
    since: str = "oldest",
    until: str | None = None,
    store_options: StoreOptionsSource | None = None,
) -> DataFrame:
    """What has changed in a database, in the order of its commits, as a DataFrame: kind ("put",
    "delete", "merge", "delete_range"), key, value, seq and time. One task reads it, since a feed is
    one sequence. As a stream:
    ``spark.readStream.format("siltstone").option("readChangeFeed", "true")``.

    :param since: a token (`siltstone.Changes.token`), or "oldest": what is still there.
    :param until: a token to stop at; None: what is durable now, whenever the frame is used.
    :param store_options: as for `scan`.
    :raises Expired: here or in the task: what comes next is not kept any more.
    :raises Invalid, NotFound, Denied, Unavailable: as `siltstone.changes.begin`.
    """
    place, _, provider = _reader_arguments(url, store_options)
    end = feed.latest(place, store_options=store_options) if until is None else until
    read = partial(_of_numbers, url=place, since=since, until=end, provider=provider)
    return spark.range(0, 1, 1, 1).mapInArrow(read, COLUMNS)


def _of_numbers(
    numbers: Iterator[pa.RecordBatch], url: str, since: str, until: str, provider: str | None
) -> Iterator[pa.RecordBatch]:
    for _ in numbers:
        yield from batches(feed.read(url, since, until, store_options=provider))


def batches(following: Iterator[ArrowArray]) -> Iterator[pa.RecordBatch]:
    """What a feed gives, as batches of exactly `SCHEMA`."""
    for changed in following:
        batch = pa.record_batch(changed)
        arrays = [batch.column(field.name).cast(field.type) for field in SCHEMA]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
