"""Databases that a write creates, and their removal if that write fails.

A write creates the database before its tasks begin. If the write fails, no empty database must be
left, and nothing that another process wrote may be lost. A database that existed before is never
removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from siltstone import admin, ingest
from siltstone._open import StoreOptionsSource, Url, _open_for_a_moment, destroy, open_reader
from siltstone.exceptions import Closed, Conflict, Fenced, Invalid, NotFound
from siltstone.spark._pins import SMALL

__all__ = ["Creation", "created_by", "exists", "log_ignored", "removed_on_failure"]

LOG = logging.getLogger("siltstone.spark")
EMPTY: Mapping[str, Any] = {
    "writer_epoch": 2,
    "destroyed_at_ms": None,
    "flushed_seq": 0,
    "l0": [],
    "runs": [],
    "ancestors": [],
    "pending_ingests": 0,
    "ingest_apps": [],
}
"""Fields of the manifest of a database that was opened twice, to create and to remove it, and into
which nothing was written."""

EMPTY_EXISTS = (
    "It exists and holds nothing, as after a first load whose process was killed. Mode append "
    "loads into it; siltstone.destroy(url) removes it, and the next load creates it again"
)
"""The remedy for a write that must create a database, and finds one without rows. The manifest does
not show whether a killed write or a user created it, so such a write never loads into it."""


@dataclass(frozen=True)
class Creation:
    """A database that a write created. It can be sent to other processes."""

    url: Url
    database: str
    """The identity of the database."""
    store_options: StoreOptionsSource | None

    def undo(self) -> bool:
        """Removes the database if nothing was written to it, and returns whether it did.

        A second opening of the database as its writer keeps other writers out meanwhile. If another
        writer was ever opened, or another job was begun there and not aborted, the database stays.
        An error is logged and not raised, because the caller raises the error of the write.
        """
        try:
            return self._removed()
        except NotFound:
            return False
        except Exception as error:  # noqa: BLE001 - a provider may raise any error
            LOG.warning(
                "the write that created the database at %s failed, and the empty database could "
                "not be removed: %s",
                self.url,
                error,
            )
            return False

    def _removed(self) -> bool:
        now = self._manifest()
        if now["database"] != self.database or now["writer_epoch"] != 1 or self._has_jobs():
            return False
        try:
            held = _open_for_a_moment(self.url, False, store_options=self.store_options)
        except Conflict:
            # Another writer is at work.
            return False
        # The removal fences this handle; its close reports that.
        with suppress(Closed, Fenced, NotFound):
            try:
                if not self._is_empty() or next(iter(held.scan()), None) is not None:
                    return False
                destroy(self.url, store_options=self.store_options)
            finally:
                held.close()
        return True

    def _is_empty(self) -> bool:
        now = self._manifest()
        same = now["database"] == self.database
        return same and all(now[name] == it for name, it in EMPTY.items()) and not self._has_jobs()

    def _manifest(self) -> dict[str, Any]:
        return admin.manifest(self.url, store_options=self.store_options)

    def _has_jobs(self) -> bool:
        """Whether another load was begun here. The write that failed has aborted its own."""
        listed = ingest.jobs(self.url, store_options=self.store_options)
        return any(one.status.state != "aborted" for one in listed)


def created_by(
    create: Callable[[], None], url: Url, store_options: StoreOptionsSource | None
) -> Creation | None:
    """Calls `create`, and returns what it created. None: another process was first.

    :param create: opens the database as its writer, creates it if it is missing, and closes it.
    """
    try:
        create()
    except (Conflict, Invalid):
        # Another process creates it, perhaps with other columns. The caller checks the frame then.
        return None
    found = admin.manifest(url, store_options=store_options)
    # The first writer has epoch 1. A later epoch: another process opened the database, too.
    if found["writer_epoch"] != 1:
        return None
    return Creation(url, str(found["database"]), store_options)


@contextmanager
def removed_on_failure() -> Iterator[list[Creation]]:
    """A list for the databases that the block creates. If the block fails, they are removed."""
    creations: list[Creation] = []
    try:
        yield creations
    except BaseException:
        for creation in creations:
            creation.undo()
        raise


def _holds_nothing(url: Url, store_options: StoreOptionsSource | None) -> bool:
    """Whether the database has neither rows nor a version of an application nor a pending load.

    :raises NotFound, Denied, Unavailable: as `open_reader`.
    """
    now = admin.manifest(url, store_options=store_options)
    if any(now[name] != it for name, it in EMPTY.items() if name != "writer_epoch"):
        return False
    with open_reader(url, options=SMALL, store_options=store_options) as reader:
        return next(iter(reader.scan(limit=1)), None) is None


def exists(url: Url, mode: str, store_options: StoreOptionsSource | None) -> Conflict:
    """The error of a write that must create the database, and finds one.

    :param mode: the argument that says so.
    """
    text = (
        f"there is a database at {url} already, and {mode}: mode append adds to it, mode overwrite "
        "replaces what it holds"
    )
    return Conflict(f"{text}. {EMPTY_EXISTS}" if _holds_nothing(url, store_options) else text)


def log_ignored(url: Url, store_options: StoreOptionsSource | None) -> None:
    """Logs a warning if a write is ignored because of a database that holds nothing."""
    if _holds_nothing(url, store_options):
        LOG.warning(
            "nothing was written to %s: its mode is ignore, and there is a database. %s",
            url,
            EMPTY_EXISTS,
        )
