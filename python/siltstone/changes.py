"""The change feed: all changes in commit order, as Arrow record batches.

    import siltstone

    with siltstone.open("example.db") as db:
        feed = db.changes(consumer="index", since="oldest")
        db.put(b"key", b"value")
        db.flush()                              # the feed contains durable changes
        for batch in feed:                      # up to the last durable change
            ...                                 # kind, key, value, seq, time
        feed.acknowledge()                      # release the log of these changes

A batch is an array of structs. Any library with the Arrow PyCapsule interface reads it as a record
batch, for example with `pyarrow.record_batch(batch)`. Its columns:

- ``kind``: "put", "delete", "merge" or "delete_range"
- ``key``: the key; for a range delete the first key
- ``value``: the value, or the operand of a merge; for a range delete the exclusive end key; null
  for a delete
- ``seq``: the sequence number
- ``time``: the time of the commit by the clock of the writer, in milliseconds; it never decreases
- ``before``: only with before-images: the value that the key had right before the change; null if
  it had none, and for a range delete

`Changes.token` is the position of a feed, as text. A feed that begins at a token returns the same
rows in the same order, in any process. A consumer is a name that retains the log from its
acknowledged position on. Without a consumer the log may be collected, and the feed then raises
Expired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Self, TypeAlias
from uuid import UUID

from siltstone import _native
from siltstone._checkpoints import Checkpoint, CheckpointLike, moment, name_of
from siltstone._native import ArrowArray, AsyncCommit, Commit
from siltstone._numbers import count_of, size_of
from siltstone._open import StoreOptionsSource, Url, _store, _text, hidden
from siltstone.exceptions import Invalid
from siltstone.options import Bytes, Seconds

__all__ = [
    "Before",
    "Changes",
    "HeldBy",
    "Row",
    "RowWithBefore",
    "Since",
    "begin",
    "consumers",
    "forget",
    "latest",
    "plan",
    "read",
]

Since: TypeAlias = str | Commit | AsyncCommit | Checkpoint | UUID | None
"""Start of a feed: a token; "oldest", "latest" or "snapshot"; a Commit (start after it); a
Checkpoint or its id (start after its state). None: the position of the consumer, or "latest"
without a consumer."""

Before: TypeAlias = CheckpointLike | bool | None
"""Whether a feed has before-images. True: from the checkpoint at which it begins. A Checkpoint, its
id or its name: from that checkpoint, which is at or before the start of the feed."""

ROWS = 65_536
"""Default number of rows in a batch. A batch ends with the commit that reaches it."""
BYTES = 16 << 20
"""Default size of the keys and values in a batch, in bytes."""

_WORDS = ("oldest", "latest", "snapshot")


class Row(NamedTuple):
    """A change."""

    kind: str
    """One of "put", "delete", "merge" and "delete_range"."""
    key: bytes
    """The key; for a range delete the first key."""
    value: bytes | None
    """The value or operand; for a range delete the exclusive end key; None for a delete."""
    seq: int
    """Sequence number."""
    time: datetime
    """Time of the commit."""


class RowWithBefore(NamedTuple):
    """A change of a feed with before-images."""

    kind: str
    """As of `Row`, and so are the others but the last."""
    key: bytes
    value: bytes | None
    seq: int
    time: datetime
    before: bytes | None
    """The value that the key had right before the change; None if it had none, for a range delete,
    and for a feed without before-images."""


class Changes(Iterator[ArrowArray]):
    """A position in the feed. Iteration ends after the last durable change. A later iteration
    continues there. Use it in one thread at a time."""

    __slots__ = ("_feed", "batch_bytes", "batch_rows")

    batch_rows: int
    """Maximum number of rows of a `read` that names none."""
    batch_bytes: Bytes
    """Maximum size of a `read` that names none."""

    def __init__(self, feed: _native.Feed) -> None:
        self._feed = feed
        self.batch_rows = ROWS
        self.batch_bytes = BYTES

    def read(self, rows: int | None = None, bytes: Bytes | None = None) -> ArrowArray | None:
        """Returns the next changes, or None if there are no more durable changes. The result has
        whole commits, until `rows` or `bytes` is reached, and at least one commit. The rows of an
        ingest job may be split over several results.

        :param rows: number of rows; None: `batch_rows`.
        :param bytes: size of keys and values in bytes, or text such as "1MiB"; None:
            `batch_bytes`.
        :raises Invalid: if `rows` or `bytes` is below 1.
        :raises Expired: if the next changes were collected or undone by a restore, or the consumer
            was removed. To miss no change, begin again with a snapshot.
        :raises Fenced: if a newer feed of the same consumer has begun.
        :raises Invalid: with before-images, if the keys that changed since the checkpoint exceed
            1 GiB: go on from a newer checkpoint.
        :raises Corruption, Denied, Unavailable: see `siltstone.exceptions`. The read can be
            repeated.
        """
        return self._feed.read(*_most(self, rows, bytes))

    def rows(self, rows: int | None = None) -> list[Row] | None:
        """As `read`, but returns rows as Python objects, for a few rows or without an Arrow
        library.

        :raises Invalid, Expired, Fenced: as for `read`.
        """
        found = self.rows_with_before(rows)
        return None if found is None else [Row(*row[:-1]) for row in found]

    def rows_with_before(self, rows: int | None = None) -> list[RowWithBefore] | None:
        """As `rows`, with the value that each key had before, for a feed with `before`.

        :raises Invalid, Expired, Fenced: as for `read`.
        """
        found = self._feed.rows(*_most(self, rows, None))
        if found is None:
            return None
        return [
            RowWithBefore(kind, key, value, seq, moment(at), before)
            for kind, key, value, seq, at, before in found
        ]

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ArrowArray:
        batch = self.read()
        if batch is None:
            raise StopIteration
        return batch

    def acknowledge(self, token: str | None = None) -> None:
        """Acknowledges all changes up to `token`; None: all changes that were read. The consumer no
        longer retains the log before that position, and its next feed begins there; if it lies
        inside a load or ingest, at the first row of that. Each call commits a manifest: call it
        every few seconds, not after every batch.

        :raises Invalid: if the feed has no consumer, or changes up to the token were not read.
        :raises Expired: if the consumer was removed: it made no read for longer than its lifetime,
            retained more than its maximum, or was forgotten.
        :raises Fenced: if a newer feed of the same consumer has begun.
        """
        self._feed.acknowledge(token)

    @property
    def token(self) -> str:
        """Token of the current position."""
        return self._feed.token

    @property
    def seq(self) -> int:
        """Last sequence number that was returned completely."""
        return self._feed.seq

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint of a feed that began with "snapshot"; open a reader at it to read the
        initial state."""
        return self._feed.checkpoint

    @property
    def consumer(self) -> str | None:
        """Name of the consumer, or None."""
        return self._feed.consumer

    def __repr__(self) -> str:
        of = "" if self.consumer is None else f" of {self.consumer!r}"
        return f"<siltstone.changes.Changes{of} behind {self.seq}>"


@dataclass(frozen=True, slots=True)
class HeldBy:
    """A consumer, and the log that it retains."""

    name: str
    """Name of the consumer."""
    seq: int
    """Last sequence number that it has acknowledged."""
    wal_from: int
    """Number of the first WAL object that it retains."""
    expires: datetime | None
    """Time at which it is removed, unless it reads before; None: never."""
    most_bytes: int | None
    """Maximum size of the retained log in bytes. A consumer that retains more is removed."""


def _most(feed: Any, rows: int | None, bytes: Bytes | None) -> tuple[int, int]:
    """Returns the maximum rows and bytes of a read: the arguments, or else the attributes of the
    feed.

    :raises Invalid: if one is below 1.
    """
    most_rows = feed.batch_rows if rows is None else rows
    most_bytes = feed.batch_bytes if bytes is None else bytes
    return (
        count_of(most_rows, "batch_rows" if rows is None else "rows", 1),
        size_of(most_bytes, "batch_bytes" if bytes is None else "bytes", 1),
    )


def begin(
    url: Url,
    *,
    since: Since = None,
    consumer: str | None = None,
    until: str | None = None,
    lifetime: Seconds | None = None,
    most_bytes: Bytes | None = None,
    before: Before = None,
    store_options: StoreOptionsSource | None = None,
) -> Changes:
    """Begins a change feed. The database does not need to be open in this process.

    :param since: start of the feed. A token: continue there. "oldest": the oldest change that is
        kept; a new consumer retains what is not flushed yet, and a collector may delete the rest
        before it is acknowledged. "latest": after the last durable change. "snapshot": create a
        checkpoint together with the consumer, so that `Changes.checkpoint` and the feed are
        complete together. A Commit or a Checkpoint: after it. None: the position of the consumer,
        or "latest" without a consumer.
    :param consumer: name of a consumer. The log is retained from its acknowledged position on. A
        later feed with the same name continues there, and fences this one.
    :param until: token at which the feed ends; None: it does not end.
    :param lifetime: time without a read after which the consumer is removed (a timedelta, seconds,
        or text); None: one day.
    :param most_bytes: size of the retained log above which the consumer is removed, in bytes or as
        text such as "1GiB"; None: 4 GiB.
    :param before: a column ``before`` with the value that the key had right before each change.
        True: the feed begins at a Checkpoint or "snapshot". A checkpoint: the feed begins at or
        after it, and first reads the changes in between. Values of an operator that is not built in
        need the feed of a handle that has the operator (`Database.changes`, `Reader.changes`).
    :raises Expired: if the start was collected or undone by a restore, or if `since` is None and
        the consumer is new or was removed; if the checkpoint of `before` is gone, or changes
        between it and the start were collected.
    :raises Invalid: if a token was altered, a token or a Commit is of another database, "snapshot"
        or `lifetime` or `most_bytes` is used without a consumer, or `most_bytes` is not a size; if
        `before` is True and the feed
        does not begin at a checkpoint, or is a checkpoint after the start.
    :raises Fenced, Closed: if a Commit is not known to be durable, and its handle has ended.
    :raises NotFound, Denied, Unavailable, Timeout: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    asked = _asked(since, consumer, until, lifetime, most_bytes, before)
    return Changes(_native.feed_begin(_text(url), _store(store_options), asked))


def latest(url: Url, *, store_options: StoreOptionsSource | None = None) -> str:
    """Returns the token of the position after the last durable change.

    :raises NotFound, Denied, Unavailable, Timeout: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    return _native.feed_latest(_text(url), _store(store_options))


def plan(
    url: Url,
    since: str,
    *,
    rows: int = ROWS,
    bytes: Bytes = BYTES,
    store_options: StoreOptionsSource | None = None,
) -> str:
    """Returns the token of the position about `rows` rows or `bytes` bytes after `since`, or after
    the last durable change. A driver can use it to divide a feed among processes that call `read`.
    The call reads the changes that it counts.

    :raises Expired: if the changes were collected.
    """
    store_options = hidden(store_options)
    feed = begin(url, since=since, store_options=store_options)
    feed.read(rows, bytes)
    return feed.token


def read(
    url: Url,
    since: Since,
    until: str,
    *,
    before: Before = None,
    store_options: StoreOptionsSource | None = None,
) -> Iterator[ArrowArray]:
    """Returns the changes between two tokens. Any process can call it; it needs only the tokens.

    :param since: a token, or a Checkpoint: after its state.
    :param before: as for `begin`: the checkpoint from which before-images are computed.
    :raises Expired: if the changes were collected.
    :raises Invalid: as for `begin`.
    """
    store_options = hidden(store_options)
    return begin(url, since=since, until=until, before=before, store_options=store_options)


def consumers(url: Url, *, store_options: StoreOptionsSource | None = None) -> list[HeldBy]:
    """Lists the consumers, and the log that they retain."""
    store_options = hidden(store_options)
    held = _native.feed_consumers(_text(url), _store(store_options))
    return [
        HeldBy(name, seq, wal, None if expires is None else moment(expires), most)
        for name, seq, wal, expires, most in held
    ]


def forget(url: Url, consumer: str, *, store_options: StoreOptionsSource | None = None) -> None:
    """Removes a consumer and releases the log that it retains.

    :raises Expired: if there is no consumer with the name.
    """
    store_options = hidden(store_options)
    _native.feed_forget(_text(url), _store(store_options), consumer)


def _asked(
    since: Since,
    consumer: str | None,
    until: str | None,
    lifetime: Seconds | None,
    most_bytes: Bytes | None,
    before: Before,
) -> dict[str, Any]:
    """Converts the arguments of a feed for the compiled module.

    :raises Invalid: if `most_bytes` is not a size; if it or `lifetime` is given without a consumer.
    """
    if consumer is None and (lifetime, most_bytes) != (None, None):
        raise Invalid("lifetime and most_bytes bound what a consumer retains: name a consumer")
    return {
        "since": _since(since),
        "until": until,
        "consumer": consumer,
        "lifetime": lifetime,
        "most_bytes": None if most_bytes is None else size_of(most_bytes, "most_bytes"),
        "before": _before(before),
    }


def _before(before: Before) -> tuple[str, str | None]:
    if before is None or isinstance(before, bool):
        return ("start" if before else "none", None)
    return ("checkpoint", name_of(before))


def _since(since: Since) -> tuple[str, str | Commit | AsyncCommit | None]:
    if since is None:
        return ("kept", None)
    if isinstance(since, Commit | AsyncCommit):
        return ("commit", since)
    if isinstance(since, Checkpoint | UUID):
        return ("checkpoint", name_of(since))
    if isinstance(since, str):
        return (since, None) if since in _WORDS else ("token", since)
    taken = 'a token, "oldest", "latest", "snapshot", a Commit or a Checkpoint'
    raise TypeError(f"since takes {taken}, not {type(since).__name__}")
