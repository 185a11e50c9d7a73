"""Spark jobs of this package: their descriptions, the progress of long ones, and their errors.

The description and the group of the caller's thread are as before when a job ends. The public
interface of Spark Connect has neither, so nothing is set there.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import pyarrow as pa

from siltstone.spark._errors import worker_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Parts", "described", "map_batches", "task"]

LOG = logging.getLogger("siltstone.spark")
INTERVAL = 10.0
"""Seconds between two lines of progress. A shorter job logs none."""
DESCRIPTION, GROUP = "spark.job.description", "spark.jobGroup.id"
PROPERTIES = (DESCRIPTION, GROUP, "spark.job.interruptOnCancel")
"""Local properties of a thread that Spark's calls for descriptions and groups set."""


def task(name: str, function: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    """A function for `mapInArrow` with some arguments. `name` is its name in plans and in Spark's
    user interface."""
    bound: Any = partial(function, **arguments)
    bound.__name__ = name
    return bound  # type: ignore[no-any-return]


def map_batches(frame: DataFrame, work: Callable[..., Any], schema: Any) -> DataFrame:
    """`frame.mapInArrow(work, schema)`, for columns of any name. PySpark looks its columns up by
    their names, and takes a dot or a backtick in a name for syntax."""
    names = list(frame.columns)
    if any("." in name or "`" in name for name in names):
        frame = frame.toDF(*(f"column{at}" for at in range(len(names))))
        work = task(work.__name__, renamed, mapped=work, names=names)
    return frame.mapInArrow(work, schema)


def renamed(
    batches: Iterator[pa.RecordBatch], mapped: Callable[..., Any], names: list[str]
) -> Iterator[pa.RecordBatch]:
    """The result of `mapped` for the batches with other names of the columns."""
    return cast("Iterator[pa.RecordBatch]", mapped(one.rename_columns(names) for one in batches))


class _Merged:
    """Merges what tasks report, by the numbers of their parts: a repeated task counts once. It is
    an `AccumulatorParam`; pyspark is not needed to make it."""

    def zero(self, value: Any) -> Any:  # noqa: ARG002 - of Spark
        return {}

    def addInPlace(self, left: Any, right: Any) -> Any:  # noqa: N802 - Spark's name
        left.update(right)
        return left


_sums: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""The accumulator of each context. PySpark never forgets one, so loads do not get their own."""


class Parts:
    """Counts the rows and bytes of the parts that tasks have staged for a job. Without a context,
    as by Spark Connect, it counts nothing."""

    def __init__(self, spark: SparkSession, job: str) -> None:
        context: Any = getattr(spark, "sparkContext", None)
        self.job = job
        self.sum: Any = None
        if context is not None:
            self.sum = _sums.get(context)
            if self.sum is None:
                self.sum = _sums[context] = context.accumulator({}, _Merged())

    def text(self) -> str:
        """The counts for a line of progress."""
        if self.sum is None:
            return ""
        parts = [one for (job, _), one in list(self.sum.value.items()) if job == self.job]
        rows, size = sum(one[0] for one in parts), sum(one[1] for one in parts)
        return f"{len(parts)} parts staged, {rows:,} rows, {size:,} bytes"

    def forget(self) -> None:
        """Drops the counts when the job has ended."""
        if self.sum is not None:
            for key in [key for key in list(self.sum.value) if key[0] == self.job]:
                self.sum.value.pop(key, None)


@contextmanager
def described(spark: SparkSession, text: str, parts: Parts | None = None) -> Iterator[None]:
    """Describes the jobs that the block runs, and raises errors of their tasks as those of this
    package. A block of more than ten seconds logs lines of progress for ``siltstone.spark``.

    :param text: the description, such as "siltstone: load into s3://…".
    """
    context: Any = getattr(spark, "sparkContext", None)
    if context is None:
        with worker_errors():
            yield
        return
    before = {name: context.getLocalProperty(name) for name in PROPERTIES}
    whole = f"{before[DESCRIPTION]}: {text}" if before[DESCRIPTION] else text
    group = before[GROUP]
    try:
        if group is None:
            group = f"siltstone-{uuid.uuid4().hex}"
            context.setJobGroup(group, whole)
        else:
            # The caller may cancel its group.
            context.setJobDescription(whole)
        with _reported(context, group, text, parts), worker_errors():
            yield
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)


@contextmanager
def _reported(context: Any, group: str, text: str, parts: Parts | None) -> Iterator[None]:
    """Logs the progress of the block's jobs from a thread."""
    tracker = context.statusTracker()
    earlier = set(tracker.getJobIdsForGroup(group))
    over = threading.Event()
    begun = time.monotonic()

    def report() -> None:
        while not over.wait(INTERVAL):
            try:
                line = _tasks_done(tracker, group, earlier)
            except Exception as error:  # noqa: BLE001 - of the JVM; the job must not fail by it
                LOG.warning("%s: no progress can be told: %s", text, error)
                return
            counted = "" if parts is None else parts.text()
            told = "; ".join(filter(None, (line, counted)))
            LOG.info("%s: %.0f s, %s", text, time.monotonic() - begun, told)

    thread = threading.Thread(target=report, name="siltstone-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tasks_done(tracker: Any, group: str, earlier: set[int]) -> str:
    """How many tasks of all have ended, in the stages of the jobs of a group."""
    done = known = 0
    for job in set(tracker.getJobIdsForGroup(group)) - earlier:
        info = tracker.getJobInfo(job)
        for stage in () if info is None else info.stageIds:
            found = tracker.getStageInfo(stage)
            if found is not None:
                done += found.numCompletedTasks
                known += found.numTasks
    return f"{done} of {known} tasks done"
