"""The state that a job reads: a checkpoint that this process keeps until it ends, and its reader,
which is pickled for Spark's workers.
"""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import siltstone
from siltstone import _native
from siltstone._checkpoints import Checkpoint, CheckpointLike
from siltstone._open import StoreOptionsSource, Url, _store, _text
from siltstone.exceptions import Invalid
from siltstone.merging import MergeOperatorSource
from siltstone.options import Options, Seconds, named_options
from siltstone.spark._calls import spelled
from siltstone.spark._columns import explained_absence
from siltstone.spark._driver import driver_name

__all__ = [
    "LIFETIME",
    "Pinned",
    "blocks",
    "check_reachable",
    "following",
    "kept_for_a_call",
    "pin",
    "pinned_reader",
    "reading",
    "release",
]

LOG = logging.getLogger("siltstone.spark")

LIFETIME = 3600.0
"""Seconds that a checkpoint lives after its last refresh."""
MOST = 16
"""Most checkpoints of one driver in one database; the engine deletes the others."""
SMALL = {"block_cache_bytes": 32 << 20, "metadata_cache_bytes": 16 << 20}
"""Caches of a reader in a worker: a machine runs one worker for each core."""

blocks: ContextVar[tuple[tuple[str, Callable[[], Checkpoint]], ...]] = ContextVar(
    "pinned blocks", default=()
)
"""The blocks of `pinned` that this thread is in: databases, and functions that return their
checkpoints or raise the error of a renewal."""


@dataclass(frozen=True)
class Pinned:
    """One state, for any process."""

    checkpoint: Checkpoint
    """The checkpoint that keeps the state."""
    reader: bytes
    """A pickled `siltstone.Reader` at it."""


@dataclass(frozen=True)
class _Kept:
    """A checkpoint that this process made."""

    url: Url
    checkpoint: Checkpoint
    store_options: StoreOptionsSource | None
    call: str | None = None
    """The call that deletes it; None: the frames of this driver share it."""


class _Keeper:
    """Refreshes the checkpoints of this process in one thread, and deletes them when it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[_Kept] = []
        self._process = 0
        self._wake = threading.Event()

    def keep(self, kept: _Kept) -> None:
        with self._lock:
            if self._process != os.getpid():
                # After a fork there is no thread, and this process has made no checkpoint yet.
                self._kept, self._process, self._wake = [], os.getpid(), threading.Event()
                wake = self._wake
                threading.Thread(
                    target=self._refresh, args=(wake,), name="siltstone-pins", daemon=True
                ).start()
                atexit.register(self.release)
            others = [one for one in self._kept if one.checkpoint.id != kept.checkpoint.id]
            here = [one for one in others if one.url == kept.url and one.call is None]
            # The engine has deleted those beyond the limit.
            gone = here[: max(len(here) + 1 - MOST, 0)] if kept.call is None else []
            self._kept = [*(one for one in others if one not in gone), kept]

    def release(self) -> int:
        """Deletes the kept checkpoints that frames share; returns their number."""
        with self._lock:
            if self._process != os.getpid():
                return 0
            kept = [one for one in self._kept if one.call is None]
            self._kept = [one for one in self._kept if one.call is not None]
        self._delete(kept)
        return len(kept)

    def drop(self, call: str) -> None:
        """Deletes the checkpoint of a call."""
        with self._lock:
            kept = [one for one in self._kept if one.call == call]
            self._kept = [one for one in self._kept if one.call != call]
        self._delete(kept)

    def _delete(self, kept: list[_Kept]) -> None:
        for one in kept:
            try:
                siltstone.admin.delete_checkpoint(
                    one.url, one.checkpoint, store_options=one.store_options
                )
            except (siltstone.Expired, siltstone.NotFound):
                # It is gone already, perhaps with its database.
                continue
            except Exception as error:  # noqa: BLE001 - a provider may raise any error
                LOG.warning(
                    "a checkpoint of %s was not deleted and stays until it expires: %s",
                    one.url,
                    error,
                )

    def _refresh(self, wake: threading.Event) -> None:
        # A checkpoint is renewed in the second half of its life: at least three tries.
        while not wake.wait(LIFETIME / 8):
            with self._lock:
                kept = list(self._kept)
            for one in kept:
                self._renew(one)

    def _renew(self, one: _Kept) -> None:
        """Extends the life of a checkpoint, unless more than half of it is left."""
        try:
            pin(one.url, one.store_options, LIFETIME, one.checkpoint, one.call)
        except (siltstone.Expired, siltstone.NotFound) as error:
            # The driver has pinned sixteen later states since, or the call or the database ended.
            LOG.info("frames of an earlier state of %s cannot be read any more: %s", one.url, error)
            with self._lock:
                self._kept = [kept for kept in self._kept if kept != one]
        except Exception as error:  # noqa: BLE001 - a provider may raise any error
            LOG.warning(
                "a checkpoint of %s was not renewed; if this goes on, frames that read it raise "
                "Expired: %s",
                one.url,
                error,
            )


_keeper = _Keeper()


def pin(
    url: Url,
    store_options: StoreOptionsSource | None,
    lifetime: float,
    source: CheckpointLike | None = None,
    call: str | None = None,
) -> Checkpoint:
    """A checkpoint of the state that is durable now, or of `source`, which all frames of this Spark
    driver share. One driver has at most sixteen in a database; the next state replaces the one that
    expires first.

    :param call: the call that has a checkpoint of its own.
    :raises NotFound, Expired, Denied, Unavailable, Corruption: as
        `siltstone.admin.create_checkpoint`.
    """
    holder = [("made_by", "siltstone.spark"), ("driver", driver_name())]
    if call is not None:
        holder.append(("call", call))
    return _native.pin_shared(_text(url), _store(store_options), holder, lifetime, source)


def release() -> int:
    """Deletes all checkpoints that `scan` and the other functions made in this process; returns
    their number. Frames that read them, also frames of `load()` that share them, raise Expired as
    soon as a collector has removed tables of their state. Until then they read the same state.
    """
    return _keeper.release()


def check_reachable(url: Url) -> None:
    """Checks that workers can reach the database.

    :raises Invalid: a `memory://` database.
    """
    if str(url).startswith("memory:"):
        raise Invalid(
            "a memory:// database is in this process, and Spark's workers are others; use a folder "
            "or a bucket that all of them reach"
        )


def _checkpoint_of_block(url: Url) -> Checkpoint | None:
    """The checkpoint of the innermost block of `pinned` for a database; None outside of one.

    :raises Error: it could not be renewed.
    """
    place = spelled(url) if blocks.get() else ""
    here = (checkpoint for one, checkpoint in reversed(blocks.get()) if one == place)
    found = next(here, None)
    return None if found is None else found()


def pinned_reader(
    url: Url,
    checkpoint: CheckpointLike | None,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> tuple[siltstone.Reader, Pinned]:
    """A reader at `checkpoint`, or at a new one of the state that is durable now, and its pickle.

    :raises Invalid: a database in the memory of this process, which no worker can reach.
    :raises NotFound, Expired, Denied, Unavailable, Corruption: as `open_reader`.
    """
    check_reachable(url)
    at = _checkpoint_of_block(url) if checkpoint is None else checkpoint
    with explained_absence():
        if at is None:
            made = pin(url, store_options, LIFETIME)
            _keeper.keep(_Kept(url, made, store_options))
            at = made
        reader = siltstone.open_reader(
            url,
            checkpoint=at,
            options={**SMALL, **named_options(options)},
            store_options=store_options,
            merge_operator=merge_operator,
        )
    held = reader.checkpoint
    if held is None:
        raise Invalid(f"the reader is at no checkpoint, although it was opened at {at}")
    return reader, Pinned(held, pickle.dumps(reader))


@contextmanager
def kept_for_a_call(
    url: Url,
    checkpoint: CheckpointLike | None,
    store_options: StoreOptionsSource | None,
    newest: bool = False,
) -> Iterator[CheckpointLike]:
    """The checkpoint that a call reads which ends with its jobs: `checkpoint`, or that of the block
    of `pinned`, or one of the state that is durable now, which ends with the call. It is not among
    the sixteen of the driver's frames, so no number of calls ends a frame.

    :param newest: read the durable state also in a block of `pinned`.
    :raises Invalid, NotFound, Expired, Denied, Unavailable, Corruption: as `pinned_reader`.
    """
    check_reachable(url)
    at = checkpoint
    if at is None and not newest:
        at = _checkpoint_of_block(url)
    if at is not None:
        yield at
        return
    call = uuid.uuid4().hex
    with explained_absence():
        made = pin(url, store_options, LIFETIME, call=call)
    _keeper.keep(_Kept(url, made, store_options, call))
    try:
        yield made
    finally:
        _keeper.drop(call)


@contextmanager
def reading(
    url: Url,
    checkpoint: CheckpointLike | None,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> Iterator[tuple[siltstone.Reader, Pinned]]:
    """As `pinned_reader`, for the block that plans what is read.

    :raises Invalid, NotFound, Expired, Denied, Unavailable, Corruption: as `pinned_reader`.
    """
    reader, held = pinned_reader(url, checkpoint, options, store_options, merge_operator)
    with reader:
        yield reader, held


@contextmanager
def following(
    url: Url,
    max_staleness: Seconds,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> Iterator[tuple[siltstone.Reader, bytes]]:
    """A reader that follows the writer, and its pickle. No checkpoint is made here; the readers in
    the workers lease what they read.

    :raises Invalid: as `pinned_reader`; no positive duration; in a block of `pinned`.
    :raises NotFound, Denied, Unavailable, Corruption: as `open_reader`.
    """
    check_reachable(url)
    if _checkpoint_of_block(url) is not None:
        raise Invalid(
            "max_staleness follows the writer, and all reads in a block of siltstone.spark.pinned "
            "are of one state: leave it out, or look up outside of the block"
        )
    named = {**SMALL, **named_options(options)}
    named["readers"] = {**named.get("readers", {}), "max_staleness": max_staleness}
    with explained_absence():
        reader = siltstone.open_reader(
            url, options=named, store_options=store_options, merge_operator=merge_operator
        )
    with reader:
        yield reader, pickle.dumps(reader)
