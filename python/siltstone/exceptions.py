"""The exceptions. The class of an exception says what the caller must do; the text is for people.

======================  =====================================================================
``Conflict``            another write changed the data that the call depends on: read again, retry
``Fenced``              another writer opened the database: this handle is unusable
``Closed``              the handle was closed, or belongs to the parent of a forked process
``Unavailable``         the store does not respond correctly: retry later
``Timeout``             the deadline passed; an unfinished write may still succeed
``Expired``             a checkpoint or lease is gone: create a new one
``Invalid``             an argument is wrong: fix the argument that the text names
``NotFound``            the database, or the named object, does not exist
``Denied``              the store refused the credentials or the permission
``Corruption``          stored bytes differ from the written bytes: restore
``Unsupported``         written by a newer version, or not implemented yet
``Internal``            an internal invariant of Siltstone was violated: please report it
======================  =====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "Closed",
    "Conflict",
    "Corruption",
    "Denied",
    "Error",
    "Expired",
    "Fenced",
    "Internal",
    "Invalid",
    "NotFound",
    "Timeout",
    "Unavailable",
    "Unsupported",
]


class Error(Exception):
    """The base class of all exceptions of Siltstone.

    An absent key is not an `Error`: ``get`` returns its default, and ``db[key]`` raises KeyError.
    """

    operation: str | None
    """Name of the failed operation, such as "open" or "flush"; None if unknown."""
    context: dict[str, str]
    """Details by name, such as the object, the option or the epoch."""

    def __init__(
        self,
        message: str = "",
        *,
        operation: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.context = dict(context or {})

    def __str__(self) -> str:
        # OSError, a base class of some exceptions, shows an errno instead.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {"operation": self.operation, "context": self.context}
        return (type(self), self.args, facts)


class Conflict(Error):
    """Another write changed the data that the call depends on. Read again and retry, or give up."""


class Fenced(Error):
    """Another process, or another handle of this process, opened the database for writing. A
    database has one writer at a time, so this handle is unusable. `open_reader` reads beside a
    writer. The outcome of unacknowledged writes is unknown: the new writer may have recovered
    them."""


class Closed(Error):
    """The handle was closed, or it was opened before a fork and belongs to the parent process."""


class Unavailable(Error):
    """The store does not respond, or responds with a temporary error. Retry later."""


class Timeout(Unavailable, TimeoutError):
    """The deadline of the call passed. An unfinished write continues and may still succeed."""


class Expired(Error):
    """A checkpoint or lease that the call needs is gone. Create a new one."""


class Invalid(Error, ValueError):
    """An argument of the call is wrong. Fix the argument that the text names."""


class NotFound(Error, FileNotFoundError):
    """The database, or the named object, does not exist."""


class Denied(Error, PermissionError):
    """The store refused the credentials or the permission. Fix them; retrying does not help."""


class Corruption(Error):
    """Stored bytes differ from the written bytes. Restore from a checkpoint or a copy."""


class Unsupported(Error):
    """The data was written by a newer version of Siltstone, or the feature is not implemented yet.
    The text names the feature."""


class Internal(Error):
    """An internal invariant of Siltstone was violated. Please report it."""
