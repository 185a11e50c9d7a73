"""The exceptions. Programs branch on their classes, which say what to do; texts are for people.

======================  =====================================================================
``Conflict``            somebody else changed what the call was based on: read again, retry
``Fenced``              another one opened this path for writing: this handle is dead
``Closed``              the handle was closed, or belongs to the process before a fork
``Unavailable``         the store does not answer as it should: retry later
``Timeout``             the deadline passed; an unfinished write may still succeed
``Expired``             a checkpoint or lease is gone: make a new one
``Invalid``             the call is wrong: fix the argument that the text names
``NotFound``            the database, or the object asked for by name, does not exist
``Denied``              the store refused the credentials or the permission
``Corruption``          stored bytes are not what was written: restore
``Unsupported``         written by a newer version, or not built yet
``Internal``            a rule of Siltstone itself was broken: please report it
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
    """The base of all exceptions of Siltstone.

    A key that is absent is no error: ``get`` answers its default, ``db[key]`` raises KeyError.
    """

    operation: str | None
    """What failed ("open", "flush"), where that was said."""
    context: dict[str, str]
    """Facts by name: which object, which option, which epoch."""

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
        # OSError, a base of some, would show an errno instead.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {"operation": self.operation, "context": self.context}
        return (type(self), self.args, facts)


class Conflict(Error):
    """Somebody else changed what this call was based on: read again and retry, or give up."""


class Fenced(Error):
    """Another process, or another handle of this one, opened this path for writing, and this handle
    is dead: a database has one writer at a time. `open_reader` reads beside it. What was not
    acknowledged may or may not have been recovered by the new writer."""


class Closed(Error):
    """The handle was closed, or it was opened before a fork and belongs to the parent process."""


class Unavailable(Error):
    """The store does not answer as it should just now. Nothing is known wrong: retry later."""


class Timeout(Unavailable, TimeoutError):
    """The deadline of the call passed. An unfinished write goes on and may still succeed."""


class Expired(Error):
    """A checkpoint or another lease that this call relied on is gone: make a new one."""


class Invalid(Error, ValueError):
    """The call itself is wrong: fix the argument that the text names."""


class NotFound(Error, FileNotFoundError):
    """The database (or the object that was asked for by name) does not exist."""


class Denied(Error, PermissionError):
    """The store refused the credentials or the permission: fix them; retrying does not help."""


class Corruption(Error):
    """Stored bytes are not what was written: restore from a checkpoint or a copy."""


class Unsupported(Error):
    """Written by a newer version of Siltstone, or not built yet: the text names what is missing."""


class Internal(Error):
    """A rule of Siltstone itself was broken: please report it."""
