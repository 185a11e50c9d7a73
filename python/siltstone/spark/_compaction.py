"""Compaction on a cluster: the driver plans and commits, tasks merge.

The plan's units (`siltstone.compaction`) are tasks of `mapInArrow`. A task returns the descriptions
of the tables that it uploaded, and the driver records them at once. So killed tasks, copies of a
task and killed drivers lose only unfinished work.
"""

from __future__ import annotations

import logging
import pickle
import queue
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from siltstone import compaction
from siltstone._open import StoreOptionsSource, Url
from siltstone._standalone_compactor import Compaction
from siltstone.compaction import UNIT_BYTES, Plan, Unit, UnitResult
from siltstone.exceptions import Invalid
from siltstone.merging import MergeOperatorSource
from siltstone.options import Bytes, Options
from siltstone.spark._arguments import check_session
from siltstone.spark._errors import worker_errors
from siltstone.spark._jobs import task
from siltstone.spark._scan import slots
from siltstone.spark._staging import MESSAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CompactionResult", "compact"]

LOG = logging.getLogger("siltstone.spark")
JOBS_AT_ONCE = 8
"""Spark jobs that run at once. The units of a job are recorded when its last one ends."""


@dataclass(frozen=True)
class CompactionResult:
    """The result of `compact`."""

    compactions: tuple[Compaction, ...]
    """The compactions in order; empty if none was needed."""
    units: int
    """Number of task results that were recorded."""


def compact(
    spark: SparkSession,
    url: Url,
    *,
    unit_bytes: Bytes = UNIT_BYTES,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> CompactionResult:
    """Merges all tables of a database into one sorted run on the cluster. As
    `siltstone.admin.compact`, it needs no writer and does not disturb one; another compactor is
    stopped meanwhile. Each task merges a range of keys, and its tables are recorded when it ends.
    After the driver is killed, the next call or another compactor continues from the recorded work.

    :param unit_bytes: about how many bytes of tables a task reads, as a number or as text such as
        "1GiB": some seconds of work.
    :param options: as for `siltstone.admin.compact`, here and in the tasks.
    :param store_options: as for `scan`.
    :param merge_operator: as for `siltstone.open`; it travels.
    :raises Fenced: another compactor has taken over. It continues from the recorded work.
    :raises Conflict: a restore has changed the database since it was planned.
    :raises Timeout: no task has ended for ten times `compactors.worker_timeout`, so another
        compactor may continue. Call this again when there are slots.
    :raises Invalid, NotFound, Denied, Unavailable: as `siltstone.admin.compact`.
    """
    check_session(spark)
    if str(url).startswith("memory:"):
        raise Invalid(
            "a memory:// database is in this process, and Spark's workers are others; use "
            "siltstone.admin.compact"
        )
    done: list[Compaction] = []
    units = 0
    # The recorded work of an earlier driver comes first.
    while True:
        with compaction.plan(
            url,
            unit_bytes=unit_bytes,
            options=options,
            store_options=store_options,
            merge_operator=merge_operator,
        ) as plan:
            left = plan.units
            while left:
                units += _carry_out(spark, plan, left)
                left = plan.units
            done += plan.compactions
            if not plan.resumed:
                return CompactionResult(tuple(done), units)


def _carry_out(spark: SparkSession, plan: Plan, units: Sequence[Unit]) -> int:
    """Runs units as tasks and records their results; returns the number of results."""
    at_once = min(slots(spark), len(units))
    jobs = min(JOBS_AT_ONCE, at_once)
    size = at_once // jobs
    waiting: queue.SimpleQueue[Sequence[Unit]] = queue.SimpleQueue()
    for first in range(0, len(units), size):
        waiting.put(units[first : first + size])
    recorded = 0
    with _Jobs(spark, waiting, jobs) as running:
        for answer in running:
            if isinstance(answer, BaseException):
                raise answer
            plan.commit(answer)
            recorded += sum(1 for one in answer if one.to_plain()[1] is not None)
    return recorded


def merge_units(
    numbers: Iterator[pa.RecordBatch], units: Sequence[Unit]
) -> Iterator[pa.RecordBatch]:
    """Merges the units with the given numbers: a function for `mapInArrow`."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            message = pickle.dumps(units[number].run())
            yield pa.RecordBatch.from_pydict({"message": pa.array([message], pa.binary())})


_Answer = list[UnitResult] | BaseException


class _Jobs:
    """Runs Spark jobs in several threads while there are units, and iterates over their results.
    Leaving the context cancels the jobs that run."""

    def __init__(
        self, spark: SparkSession, waiting: queue.SimpleQueue[Sequence[Unit]], count: int
    ) -> None:
        self.spark = spark
        self.waiting = waiting
        self.answers: queue.SimpleQueue[_Answer | None] = queue.SimpleQueue()
        self.over = threading.Event()
        self.tag = f"siltstone-compact-{uuid.uuid4().hex}"
        # A session by Connect has no context. It cancels jobs by tag itself.
        self.context: Any = getattr(spark, "sparkContext", None)
        self.threads = [
            threading.Thread(target=self._run, name="siltstone-compact", daemon=True)
            for _ in range(count)
        ]

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __iter__(self) -> Iterator[_Answer]:
        for _ in self.threads:
            while (answer := self.answers.get()) is not None:
                yield answer

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            while thread.is_alive():
                # This does not cancel a job that has not begun. Its thread checks `over`.
                try:
                    if self.context is None:
                        self.spark.interruptTag(self.tag)
                    else:
                        self.context.cancelJobsWithTag(self.tag)
                except Exception as error:  # noqa: BLE001 - of Spark; the job ends by itself
                    LOG.warning("a compaction's Spark jobs could not be cancelled: %s", error)
                thread.join(0.5)

    def _run(self) -> None:
        try:
            if self.context is None:
                self.spark.addTag(self.tag)
            else:
                self.context.setJobDescription("siltstone: compact")
                self.context.addJobTag(self.tag)
                self.context.setInterruptOnCancel(True)
            while not self.over.is_set():
                units = self.waiting.get_nowait()
                numbers = self.spark.range(0, len(units), 1, len(units))
                work = task("siltstone_compact", merge_units, units=units)
                with worker_errors():
                    rows = numbers.mapInArrow(work, MESSAGE).collect()
                # The messages come from our own tasks.
                found = [pickle.loads(bytes(row["message"])) for row in rows]  # noqa: S301
                self.answers.put(found)
        except queue.Empty:
            pass
        except BaseException as error:  # noqa: BLE001 - raised where results are read
            self.answers.put(error)
        finally:
            self.answers.put(None)
