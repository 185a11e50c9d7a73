"""A block in which all reads of a database read one version.

The driver makes a checkpoint of its own for the block and renews it until the block ends. A renewal
that fails must not be silent: frames would fail later with an error that names another cause.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from siltstone import _native, admin
from siltstone._checkpoints import Checkpoint, CheckpointLike
from siltstone._open import StoreOptionsSource, Url
from siltstone.exceptions import Error, Expired, Invalid, NotFound, Unavailable
from siltstone.options import Seconds
from siltstone.spark._arguments import check_session
from siltstone.spark._calls import spelled
from siltstone.spark._columns import explained_absence
from siltstone.spark._pins import blocks, check_reachable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PinnedState", "pinned"]

LOG = logging.getLogger("siltstone.spark")
LIFETIME = 3600.0
"""Seconds that the checkpoint of a block lives after its last renewal."""
TRIES = 4
"""Renewals within a lifetime."""


class PinnedState:
    """The state that a block of `pinned` reads."""

    def __init__(
        self,
        spark: SparkSession,
        url: Url,
        made: Checkpoint,
        lifetime: float,
        store_options: StoreOptionsSource | None,
    ) -> None:
        self._spark = spark
        self._url = url
        self._made = made
        self._lifetime = lifetime
        self._store_options = store_options
        self._over = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._renew, name="siltstone-pinned", daemon=True)
        self._thread.start()

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the state. It ends with the block.

        :raises Error: it could not be renewed.
        """
        self.check()
        return self._made

    def load(self, **options: Any) -> DataFrame:
        """A frame of ``format("siltstone")`` at this state.

        :param options: the options of the format.
        :raises Error: as `checkpoint`.
        """
        reader = self._spark.read.format("siltstone").option("checkpoint", self.checkpoint.id.hex)
        if isinstance(self._store_options, str):
            reader = reader.option("storeOptions", self._store_options)
        return reader.options(**options).load(str(self._url))

    def check(self) -> None:
        """Raises the error of the last renewal, if it failed.

        :raises Error: the error of `siltstone.admin.refresh_checkpoint`.
        """
        failure = self._failure
        if failure is None:
            return
        text = f"the state that the block reads could not be renewed: {failure}"
        kind = type(failure) if isinstance(failure, Error) else Unavailable
        raise kind(text) from failure

    def _renew(self) -> None:
        while not self._over.wait(self._lifetime / TRIES):
            try:
                self._made = admin.refresh_checkpoint(
                    self._url,
                    self._made,
                    lifetime=self._lifetime,
                    store_options=self._store_options,
                )
                self._failure = None
            except Exception as error:  # noqa: BLE001 - a provider may raise any; `check` raises it
                LOG.warning("the pinned state of %s could not be renewed: %s", self._url, error)
                self._failure = error
                if isinstance(error, Expired | NotFound):
                    return

    def _end(self) -> None:
        """Ends the renewal and deletes the checkpoint."""
        self._over.set()
        self._thread.join()
        try:
            admin.delete_checkpoint(self._url, self._made, store_options=self._store_options)
        except Exception as error:  # noqa: BLE001 - a provider may raise any error
            LOG.warning("the checkpoint of a pinned state of %s stays: %s", self._url, error)


@contextmanager
def pinned(
    spark: SparkSession,
    url: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    lifetime: Seconds = LIFETIME,
    store_options: StoreOptionsSource | None = None,
) -> Iterator[PinnedState]:
    """A block in which all reads of one database read one version.

    ``with pinned(spark, url) as state: …``

    In the block `scan`, `view`, `count`, `lookup`, `get`, `export_parquet` and `verify` of this
    database read the same state, unless they name a checkpoint. ``state.load()`` is a frame of
    ``format("siltstone")`` at it, and ``state.checkpoint`` can be named in options. Writes are not
    affected, and what they add is not seen in the block. The block holds for the thread that enters
    it. Do not read frames of the block after it ends: they raise Expired as soon as a collector has
    removed tables of the state, and read the same state until then.

    The driver renews the state until the block ends. If a renewal fails, a warning is logged, and
    the next of these calls raises the error, as the end of the block does. A later renewal that
    succeeds clears it.

    :param checkpoint: the state; None: the state that is durable now.
    :param lifetime: how long the state is kept after the last renewal, if this process dies: a
        timedelta, seconds, or text such as "2h".
    :param store_options: as for `scan`.
    :raises Invalid: a `memory://` database; a lifetime that is not positive.
    :raises NotFound, Expired, Denied, Unavailable, Corruption: as
        `siltstone.admin.create_checkpoint`.
    """
    check_session(spark)
    check_reachable(url)
    seconds = _native.seconds_of_duration(lifetime, "lifetime")
    if not seconds > 0:
        raise Invalid(f"lifetime is {lifetime!r}: a duration above 0, such as 3600 or 1h")
    with explained_absence():
        made = admin.create_checkpoint(
            url, lifetime=seconds, source=checkpoint, store_options=store_options
        )
    state = PinnedState(spark, url, made, seconds, store_options)
    token = blocks.set((*blocks.get(), (spelled(url), lambda: state.checkpoint)))
    try:
        yield state
        state.check()
    finally:
        blocks.reset(token)
        state._end()  # noqa: SLF001 - of this module
