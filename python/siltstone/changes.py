"""The change feed: what was committed, in the order of its commits, as Arrow record batches.

    import siltstone

    with siltstone.open("example.db") as db:
        feed = db.changes(consumer="index", since="oldest")
        db.put(b"key", b"value")
        db.flush()                              # the feed shows what is durable
        for batch in feed:                      # to the end of what is there now
            ...                                 # kind, key, value, seq, time
        feed.acknowledge()                      # what came so far is not held any more

A batch is an array of structs that whatever speaks the Arrow PyCapsule interface takes as a record
batch, as `pyarrow.record_batch(batch)` does. Its columns:

- ``kind``: "put", "delete", "merge" or "delete_range"
- ``key``: the key; of a range delete the first one
- ``value``: the value, or the operand of a merge; of a range delete the key behind the last one;
  null for a delete
- ``seq``: the sequence number
- ``time``: when it was committed, by the writer's clock, to the millisecond; it never falls

`Changes.token` is a text that says where the feed stands: read on from it, the same rows come in
the same order, in any process. A consumer has a name, and holds what it has not acknowledged:
without one, what was collected is Expired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Self, TypeAlias
from uuid import UUID

from siltstone import _native
from siltstone._checkpoints import Checkpoint, moment, name_of
from siltstone._native import ArrowArray, AsyncCommit, Commit
from siltstone._open import StoreOptionsSource, Url, _store, _text
from siltstone.exceptions import Invalid
from siltstone.options import Seconds

__all__ = [
    "Changes",
    "HeldBy",
    "Row",
    "Since",
    "begin",
    "consumers",
    "forget",
    "latest",
    "plan",
    "read",
]

Since: TypeAlias = str | Commit | AsyncCommit | Checkpoint | UUID | None
"""Where a feed begins: a token; "oldest", "latest" or "snapshot"; behind a Commit; behind what a
Checkpoint (or its id) holds; None: where its consumer stands; without a consumer "latest"."""

ROWS = 65_536
"""Rows of a batch, unless said otherwise: it ends with the commit that reaches them."""
BYTES = 16 << 20
"""Bytes of keys and values of a batch, likewise."""

_WORDS = ("oldest", "latest", "snapshot")


class Row(NamedTuple):
    """A change."""

    kind: str
    """"put", "delete", "merge" or "delete_range"."""
    key: bytes
    """The key; of a range delete the first one."""
    value: bytes | None
    """The value or operand; the key behind the last one of a range delete; None for a delete."""
    seq: int
    """Its sequence number."""
    time: datetime
    """When it was committed."""


class Changes(Iterator[ArrowArray]):
    """A reading position in the feed. Iterating ends at the end of what is durable, and may be
    begun again: then it goes on. One thread at a time."""

    __slots__ = ("_feed", "batch_bytes", "batch_rows")

    def __init__(self, feed: _native.Feed) -> None:
        self._feed = feed
        self.batch_rows = ROWS
        self.batch_bytes = BYTES

    def read(self, rows: int | None = None, bytes: int | None = None) -> ArrowArray | None:
        """The next changes: whole commits, as many as it takes to reach `rows` or `bytes`, at least
        one; of an ingest just so many. None where nothing more is durable.

        :param rows: `batch_rows` where nothing is said.
        :param bytes: of keys and values; `batch_bytes` where nothing is said.
        :raises Expired: what comes next is not kept any more, or was undone by a restore; or the
            consumer has been let go. Begin anew: from a snapshot, where nothing may be missed.
        :raises Fenced: a newer consumer of the same name has begun.
        :raises Corruption, Denied, Unavailable: as their texts say; reading again goes on.
        """
        most = (_counted(rows, self.batch_rows), _counted(bytes, self.batch_bytes))
        return self._feed.read(*most)

    def rows(self, rows: int | None = None) -> list[Row] | None:
        """As `read`, row by row in Python: for a few of them, without a library that reads Arrow.

        :raises Expired, Fenced: as `read`.
        """
        found = self._feed.rows(_counted(rows, self.batch_rows), self.batch_bytes)
        if found is None:
            return None
        return [Row(kind, key, value, seq, moment(at)) for kind, key, value, seq, at in found]

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ArrowArray:
        batch = self.read()
        if batch is None:
            raise StopIteration
        return batch

    def acknowledge(self, token: str | None = None) -> None:
        """Says that everything up to `token` was dealt with (None: all that was read): the log up
        to there is not held any more, and the consumer begins there when it begins again. A commit
        of the manifest each time: every few seconds, rather than every batch.

        :raises Invalid: without a consumer; a token of what was not read.
        :raises Expired: the consumer has been let go: it was silent for longer than its lifetime,
            kept more than its bytes, or was forgotten.
        :raises Fenced: a newer consumer of the same name has begun.
        """
        self._feed.acknowledge(token)

    @property
    def token(self) -> str:
        """Where it stands."""
        return self._feed.token

    @property
    def seq(self) -> int:
        """The last sequence number that was passed on whole."""
        return self._feed.seq

    @property
    def checkpoint(self) -> Checkpoint | None:
        """What it goes on from, where it began with a snapshot: open a reader there."""
        return self._feed.checkpoint

    @property
    def consumer(self) -> str | None:
        """The name of its consumer."""
        return self._feed.consumer

    def __repr__(self) -> str:
        of = "" if self.consumer is None else f" of {self.consumer!r}"
        return f"<siltstone.changes.Changes{of} behind {self.seq}>"


@dataclass(frozen=True, slots=True)
class HeldBy:
    """A consumer that holds the log."""

    name: str
    """Its name."""
    seq: int
    """The last sequence number that it has acknowledged."""
    wal_from: int
    """The first WAL object that it keeps."""
    expires: datetime | None
    """When it is let go, unless it reads on before; None: never."""
    most_bytes: int | None
    """Bytes of the log beyond which it is let go."""


def _counted(given: int | None, usual: int) -> int:
    """How many at most.

    :raises Invalid: none at all.
    """
    if given is None:
        return usual
    if given < 1:
        raise Invalid(f"a read of the feed is of at least one row and one byte, not {given}")
    return given


def begin(
    url: Url,
    *,
    since: Since = None,
    consumer: str | None = None,
    until: str | None = None,
    lifetime: Seconds | None = None,
    most_bytes: int | None = None,
    store_options: StoreOptionsSource | None = None,
) -> Changes:
    """The feed of a database that nobody needs to have opened here.

    :param since: where it begins. A token goes on from there. "oldest": with what is still there.
        "latest": behind all that is durable now. "snapshot" makes a checkpoint together with the
        consumer's hold, so that both make the whole: `Changes.checkpoint`. A Commit, or a
        Checkpoint: behind it. None: where the consumer stands; without one "latest".
    :param consumer: a name. The log is held from the place that this consumer has acknowledged, and
        who takes the name later goes on there; the one before is over.
    :param until: a token where it ends.
    :param lifetime: the consumer is let go when it was silent for so long (a timedelta, or
        seconds); None: a day. Reading refreshes it.
    :param most_bytes: the consumer is let go when it keeps more of the log; None: 4 GiB.
    :raises Expired: the place is not kept any more, or a restore has undone what was before it; no
        `since`, and a consumer that holds nothing: it is new, or was let go.
    :raises Invalid: a token that was altered, or is another database's; "snapshot" without a
        consumer.
    :raises NotFound, Denied, Unavailable, Timeout: as their texts say.
    """
    asked = _asked(since, consumer, until, lifetime, most_bytes)
    return Changes(_native.feed_begin(_text(url), _store(store_options), asked))


def latest(url: Url, *, store_options: StoreOptionsSource | None = None) -> str:
    """The token of the end of what is durable now.

    :raises NotFound, Denied, Unavailable, Timeout: as their texts say.
    """
    return _native.feed_latest(_text(url), _store(store_options))


def plan(
    url: Url,
    since: str,
    *,
    rows: int = ROWS,
    bytes: int = BYTES,
    store_options: StoreOptionsSource | None = None,
) -> str:
    """The token at which a reader from `since` on has about so many rows or bytes, or all that is
    durable: what a driver hands to whoever reads from one token to the other. It reads what it
    counts.

    :raises Expired: what comes next is not kept any more.
    """
    feed = begin(url, since=since, store_options=store_options)
    feed.read(rows, bytes)
    return feed.token


def read(
    url: Url, since: str, until: str, *, store_options: StoreOptionsSource | None = None
) -> Iterator[ArrowArray]:
    """The changes from one token to another, in any process: texts are all that it needs.

    :raises Expired: they are not kept any more.
    """
    return begin(url, since=since, until=until, store_options=store_options)


def consumers(url: Url, *, store_options: StoreOptionsSource | None = None) -> list[HeldBy]:
    """Who holds the log."""
    held = _native.feed_consumers(_text(url), _store(store_options))
    return [
        HeldBy(name, seq, wal, None if expires is None else moment(expires), most)
        for name, seq, wal, expires, most in held
    ]


def forget(url: Url, consumer: str, *, store_options: StoreOptionsSource | None = None) -> None:
    """Lets a consumer go: what only it held is collected.

    :raises Expired: there is none of that name.
    """
    _native.feed_forget(_text(url), _store(store_options), consumer)


def _asked(
    since: Since,
    consumer: str | None,
    until: str | None,
    lifetime: Seconds | None,
    most_bytes: int | None,
) -> dict[str, Any]:
    """What the compiled part understands."""
    return {
        "since": _since(since),
        "until": until,
        "consumer": consumer,
        "lifetime": lifetime,
        "most_bytes": most_bytes,
    }


def _since(since: Since) -> tuple[str, str | None]:
    if since is None:
        return ("kept", None)
    if isinstance(since, Commit | AsyncCommit):
        return ("seq", str(since.seq))
    if isinstance(since, Checkpoint | UUID):
        return ("checkpoint", name_of(since))
    if isinstance(since, str):
        return (since, None) if since in _WORDS else ("token", since)
    taken = 'a token, "oldest", "latest", "snapshot", a Commit or a Checkpoint'
    raise TypeError(f"since takes {taken}, not {type(since).__name__}")
