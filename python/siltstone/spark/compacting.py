"""Compaction on a cluster: the driver plans and commits, tasks merge.

The driver is a coordinator, and each task a worker of it (RFC 0021): it claims ranges of keys that
are left open, and records each table that it has finished. So a task may be killed at any moment,
and whoever claims its range goes on behind its last table.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import siltstone
from siltstone.compacting import Compaction
from siltstone.exceptions import Invalid
from siltstone.merging import MergeOperatorSource
from siltstone.opening import StoreOptionsSource, Url, _reader_arguments
from siltstone.options import Options, named_options
from siltstone.spark.frames import slots
from siltstone.spark.staging import MESSAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CompactionResult", "compact"]

ASK_AGAIN = 0.5
"""Seconds between requests to end the tasks: one that comes before they begin ends nothing."""


@dataclass(frozen=True)
class CompactionResult:
    """What `compact` did."""

    compactions: tuple[Compaction, ...]
    """In order; none: there was nothing to gain."""
    workers: int
    """Tasks that were lent to it."""


def compact(
    spark: SparkSession,
    url: Url,
    *,
    workers: int | None = None,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> CompactionResult:
    """Merges all tables of a database into one sorted run, on the cluster; returns when that is
    done. As `siltstone.admin.compact`: it needs no writer and disturbs none, and another compactor
    is stopped. Tasks merge ranges of keys, and so does this process; where no slot is free it does
    all of it. A driver that is killed leaves what was finished to the next compactor.

    :param workers: tasks to lend to it; None: one for every slot. Each takes a slot for as long as
        this runs, and is ended by Spark then: what its log says about that is nothing.
    :param options: as for `siltstone.admin.compact`, here and in the tasks.
    :param store_options: as for `scan`.
    :param merge_operator: as for `siltstone.open`; it travels.
    :raises Fenced: another compactor has taken over. What was finished is where it goes on.
    :raises Invalid, NotFound, Denied, Unavailable: as their texts say.
    """
    if workers is not None and workers < 0:
        raise Invalid(f"workers is {workers}: 0 or more tasks are lent")
    if str(url).startswith("memory:"):
        raise Invalid(
            "a memory:// database is in this process, and Spark's workers are others; use "
            "siltstone.admin.compact"
        )
    count = slots(spark) if workers is None else workers
    place, _, provider = _reader_arguments(url, store_options)
    named = named_options(options)
    work = partial(lent, url=place, named=named, provider=provider, merge_operator=merge_operator)
    with _lending(spark, work, count):
        done = siltstone.admin.compact(
            place,
            options=named,
            store_options=store_options,
            merge_operator=merge_operator,
            workers=count,
        )
    return CompactionResult(tuple(done), count)


def lent(
    numbers: Iterator[pa.RecordBatch],
    url: str,
    named: Mapping[str, Any],
    provider: str | None,
    merge_operator: MergeOperatorSource | None,
) -> Iterator[pa.RecordBatch]:
    """Works for a compactor until Spark ends it: a function for `mapInArrow`."""
    for _ in numbers:
        siltstone.admin.run_compactor(
            url,
            options=named,
            store_options=provider,
            merge_operator=merge_operator,
            worker=True,
        )
    yield pa.RecordBatch.from_pydict({"message": pa.array([], pa.binary())})


class _lending:  # noqa: N801 - reads as a statement
    """Lends tasks for as long as the block lasts."""

    def __init__(self, spark: SparkSession, work: Any, count: int) -> None:
        self.spark = spark
        self.work = work
        self.count = count
        self.tag = f"siltstone-compact-{uuid.uuid4().hex}"
        # A session by Connect has none, and ends what carries a tag itself; one with a context of
        # its own tags operations, and the jobs of a collect are none (Spark 4.3).
        self.context: Any = getattr(spark, "sparkContext", None)
        self.over = threading.Event()
        self.thread: threading.Thread | None = None

    def __enter__(self) -> None:
        if self.count:
            self.thread = threading.Thread(target=self._run, name="siltstone-compact", daemon=True)
            self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        while self.thread is not None and self.thread.is_alive():
            with suppress(Exception):
                if self.context is None:
                    self.spark.interruptTag(self.tag)
                else:
                    self.context.cancelJobsWithTag(self.tag)
            self.thread.join(ASK_AGAIN)

    def _run(self) -> None:
        if self.context is None:
            self.spark.addTag(self.tag)
        else:
            self.context.addJobTag(self.tag)
            # Whoever waits for work is not waited for.
            self.context.setInterruptOnCancel(True)
        numbers = self.spark.range(0, self.count, 1, self.count)
        tasks = numbers.mapInArrow(self.work, MESSAGE)
        # Ended by the tag; without them the compaction goes on alone.
        with suppress(Exception):
            if not self.over.is_set():
                tasks.collect()
