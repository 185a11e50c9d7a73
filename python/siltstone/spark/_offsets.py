"""The beginning of a stream, and the offsets of its batches.

Spark stores where a batch ends, and not where the first one began. After a crash it asks again, and
the answer may differ by then. So an offset holds all that its batch needs:

    {"token": T, "from": F}                 the changes from token F to token T
    {"token": T, "snapshot": C, "seq": N}   the rows at checkpoint C, which end at number N
    {"token": T}                            nothing: where a stream begins
    {"token": T, "begins": C, "seq": N}     nothing: where one begins with a snapshot
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

import siltstone
from siltstone import changes as feed
from siltstone.exceptions import Error, Expired, Invalid, NotFound
from siltstone.spark._changes import SCHEMA
from siltstone.spark._pins import SMALL
from siltstone.spark._scan import split
from siltstone.spark._tasks import reader_of, rows

__all__ = [
    "Offset",
    "before_snapshot",
    "ends",
    "is_held",
    "let_go",
    "snapshot_of",
    "snapshot_ranges",
]

LOG = logging.getLogger("siltstone.spark")
Offset = dict[str, Any]
"""An offset as above: plain values, which Spark stores as JSON."""
ROWS = pa.schema([SCHEMA.field("key"), SCHEMA.field("value")])


def before_snapshot(
    url: str, consumer: str | None, lifetime: float, store_options: str | None
) -> Offset:
    """Makes a checkpoint; returns the offset in the feed that follows it.

    An existing consumer is not moved: Spark asks again after a crash, and the batch that it planned
    before continues from the log that the consumer holds.

    :raises Invalid: there is no consumer, which must hold the log.
    """
    if consumer is None:
        raise Invalid(
            "a stream that starts at a snapshot needs the changes after it, and a consumer keeps "
            'them: option("consumer", "a name")'
        )
    if not is_held(url, consumer, store_options):
        following = feed.begin(
            url,
            since="snapshot",
            consumer=consumer,
            lifetime=lifetime,
            store_options=store_options,
        )
        checkpoint = following.checkpoint
    else:
        checkpoint = siltstone.admin.create_checkpoint(
            url,
            lifetime=lifetime,
            metadata={"made_by": "siltstone.spark"},
            store_options=store_options,
        )
        following = feed.begin(url, since=checkpoint, store_options=store_options)
    if checkpoint is None:
        raise siltstone.Internal("a feed that began with a snapshot has no checkpoint")
    return {"token": following.token, "begins": checkpoint.id.hex, "seq": following.seq}


def is_held(url: str, consumer: str | None, store_options: str | None) -> bool:
    """Whether the consumer exists."""
    held = [] if consumer is None else feed.consumers(url, store_options=store_options)
    return any(one.name == consumer for one in held)


def ends(start: Offset, token: str) -> Offset:
    """The offset of the batch from `start` to a token; `start` itself if the batch is empty. If a
    stream begins with a snapshot, that is its first batch."""
    if "begins" in start:
        return {"token": start["token"], "snapshot": start["begins"], "seq": start["seq"]}
    return start if token == start["token"] else {"token": token, "from": start["token"]}


def snapshot_ranges(
    url: str, end: Offset, store_options: str | None
) -> list[tuple[bytes, bytes | None, bytes | None, int]]:
    """The tasks of a batch that is a snapshot: a pickled reader, a range of keys, and the sequence
    number of the rows.

    :raises Expired: the checkpoint is gone, because the batch was not stored within its lifetime.
    """
    with siltstone.open_reader(
        url, checkpoint=end["snapshot"], options=SMALL, store_options=store_options
    ) as reader:
        pickled = pickle.dumps(reader)
        pieces = split(reader, None, None, lambda: os.cpu_count() or 1)
    return [(pickled, first, last, end["seq"]) for first, last in pieces]


def snapshot_of(
    pickled: bytes, start: bytes | None, end: bytes | None, seq: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a range as changes: puts of the moment when the checkpoint was made."""
    reader = reader_of(pickled)
    if reader.checkpoint is None:
        raise siltstone.Internal("the reader of a snapshot is at no checkpoint")
    made = reader.checkpoint.created
    for batch in rows(reader, start, end, ROWS):
        count = batch.num_rows
        arrays = [
            pa.array(["put"] * count, pa.string()),
            *batch.columns,
            pa.repeat(pa.scalar(seq, pa.int64()), count),
            pa.repeat(pa.scalar(made, SCHEMA.field("time").type), count),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def let_go(url: str, checkpoints: Collection[str], store_options: str | None) -> None:
    """Deletes the checkpoints of a snapshot that is stored. If this fails, they expire."""
    for checkpoint in checkpoints:
        try:
            siltstone.admin.delete_checkpoint(url, checkpoint, store_options=store_options)
        except (Expired, NotFound):
            # An earlier commit of the batch deleted it.
            continue
        except Error as error:
            LOG.warning(
                "the checkpoint %s of %s was not deleted and stays until it expires: %s",
                checkpoint,
                url,
                error,
            )
