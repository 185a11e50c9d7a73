"""Classes that `test_spark_cluster.py` sends to other processes: jobs with a short lifetime, so
that a test can wait until the objects of a killed driver are collected, and data sources whose
commit fails.

Spark commits, and aborts failed loads, in processes of its own, which patches of a test do not
reach. So there are separate sources beside ours: `siltstone_before`, `siltstone_after`, and
`siltstone_whole`, which only shortens the lifetime of its jobs.
"""

from __future__ import annotations

import siltstone
from pyspark_siltstone import DefaultSource
from siltstone import ingest
from siltstone.spark._sink import BatchWriter, StreamWriter, batch_writer, stream_writer

LIFETIME = 300.0
"""Lifetime of the jobs in seconds."""


class ShortLived(ingest.Job):
    """A job that expires soon."""

    __slots__ = ()

    def __init__(self, url, **named) -> None:
        super().__init__(url, lifetime=LIFETIME, **named)


class Away(siltstone.Unavailable):
    """The error of the planted failures."""


class BatchBefore(BatchWriter):
    """Fails before it asks for the load."""

    def commit(self, messages) -> None:  # noqa: ARG002
        raise Away("before")


class BatchAfter(BatchWriter):
    """Fails after the load is part of the database; Spark then calls `abort`."""

    def commit(self, messages) -> None:
        super().commit(messages)
        raise Away("after")


class StreamBefore(StreamWriter):
    """Like `BatchBefore`, in a batch that is not the first."""

    def commit(self, messages, batchId) -> None:  # noqa: N803 - Spark's name
        if batchId:
            raise Away("before")
        super().commit(messages, batchId)


class StreamAfter(StreamWriter):
    """Like `BatchAfter`, in a batch that is not the first."""

    def commit(self, messages, batchId) -> None:  # noqa: N803 - Spark's name
        super().commit(messages, batchId)
        if batchId:
            raise Away("after")


class Whole(DefaultSource):
    """``format("siltstone_whole")``: its commit works."""

    batch = BatchWriter
    stream = StreamWriter

    @classmethod
    def name(cls) -> str:
        return "siltstone_whole"

    def writer(self, schema, overwrite):
        return self._made(batch_writer, schema, overwrite, self.batch)

    def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
        return self._made(stream_writer, schema, overwrite, self.stream)

    def _made(self, maker, schema, overwrite, kind):
        ingest.Job = ShortLived
        writer = maker(self.options, schema, overwrite)
        writer.__class__ = kind
        return writer


class Before(Whole):
    """``format("siltstone_before")``"""

    batch, stream = BatchBefore, StreamBefore

    @classmethod
    def name(cls) -> str:
        return "siltstone_before"


class After(Whole):
    """``format("siltstone_after")``"""

    batch, stream = BatchAfter, StreamAfter

    @classmethod
    def name(cls) -> str:
        return "siltstone_after"


SOURCES = (Whole, Before, After)
